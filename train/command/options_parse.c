/* Reading a command line: getopt_long takes it apart by the table of options, every message is ours, --help
 * is printed from the same table; then come the checks of what each command needs and of which options go
 * together. Here too: the model and the optimizer that the options name, and the options of a checkpoint's
 * /config. */
#include <getopt.h>
#include <string.h>

#include "kernels/ranks/mpi.h"
#include "kernels/text.h"
#include "train/command/announce.h"
#include "train/command/options.h"
#include "train/defaults.h"
#include "train/rule.h"
#include "train/runs/folder.h"
#include "train/trainer.h"

#ifdef MN_CUDA
#include "kernels/ranks/collectives.h"
#endif

/* What getopt_long returns: FIRST_KEY + i for the option of row i, beyond every character. */
enum { FIRST_KEY = 256, HELP_KEY = FIRST_KEY + MN_OPTION_MOST };

/* The word that is meant. */

/* How many letters to insert, remove or replace to turn the first `length` letters of a into b. */
static int distance(const char *a, size_t length, const char *b) {
  int row[64]; /* more letters than any command or option has */
  const int width = (int)strnlen(b, 63);
  for (int j = 0; j <= width; j++) row[j] = j;
  for (size_t i = 0; i < length; i++)
    for (int j = 0, corner = 0; j <= width; j++) {
      const int above = row[j] + 1, least = j && row[j - 1] + 1 < above ? row[j - 1] + 1 : above;
      const int change = corner + (j && a[i] != b[j - 1]);
      row[j] = j && change < least ? change : least;
      corner = above - 1;
    }
  return row[width];
}

/* The option that other programs, or an older minnow, call so; NULL without one. */
static const char *find_other(const char *word, size_t length, enum mn_command command) {
  static const char *const others[][2] = {
      {"learning-rate", "lr"}, {"batch-size", "batch"}, {"gpu", "device"},     {"layers", "hidden"},
      {"output", "out"},       {"wd", "weight-decay"},  {"checkpoint", "run"},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strlen(others[i][0]) == length && strncmp(others[i][0], word, length) == 0 &&
        mn_option_taken(mn_option_find(others[i][1]), command))
      return others[i][1];
  return NULL;
}

/* The command, or with `command` the option of it, that is at most two slips from the word, in a short word
 * one; NULL without one. */
static const char *find_meant(const char *word, size_t length, const enum mn_command *command) {
  const char *best = NULL;
  int least = length > 4 ? 3 : 2;
  for (int i = 0; i < (command ? mn_option_count : MN_COMMANDS); i++) {
    const char *name = command ? mn_option_rows[i].name : mn_command_rows[i].name;
    const int slips = command && !mn_option_taken(i, *command) ? least : distance(word, length, name);
    if (slips < least && 2 * (size_t)slips < length) best = name, least = slips;
  }
  return best;
}

static mn_status find_command(enum mn_command *out, const char *word) {
  for (*out = 0; *out < MN_COMMANDS; ++*out)
    if (strcmp(word, mn_command_rows[*out].name) == 0) return MN_OK;
  const char *meant = find_meant(word, strlen(word), NULL);
  if (meant) return mn_fail(MN_USAGE, "'%s' is no command; did you mean %s?", word, meant);
  return mn_fail(MN_USAGE, "'%s' is no command; write minnow COMMAND first, as minnow --help lists them",
                 word);
}

/* Taking the command line apart. */

/* text is NULL for a flag, or if the value is missing. */
static mn_status take_option(struct mn_options *options, int index, const char *text) {
  const struct mn_option_row *row = &mn_option_rows[index];
  char value[MN_TEXT_VALUE], remedy[256];
  if (!text && (row->kind == MN_KIND_FLAG || row->alone)) text = "yes";
  if (!text || mn_option_read(options, index, options->command, text) != 0) {
    mn_option_describe(remedy, sizeof remedy, index, options->command, text);
    if (!text) return mn_fail(MN_USAGE, "--%s has no value: %s", row->name, remedy);
    return mn_fail(MN_USAGE, "--%s '%s': %s", row->name, text, remedy);
  }
  options->given[index] = 1;
  if (row->flags & MN_OPTION_CONFIG &&
      mn_option_show(value, sizeof value, options, index) >= (int)sizeof value)
    return mn_fail(MN_USAGE, "--%s '%s': at most %d characters fit a checkpoint's /config; shorten it",
                   row->name, text, MN_TEXT_VALUE - 1);
  return MN_OK;
}

/* What getopt_long has refused: `word` is the one that it read last, `key` the option's, if it is one. */
static mn_status refuse(enum mn_command command, int key, const char *word) {
  const char *name = mn_command_rows[command].name, *value = strchr(word, '=');
  const int length = (int)(value ? value - word : (long)strlen(word));
  if (key >= FIRST_KEY)
    return mn_fail(MN_USAGE, "'%s': this option takes no value; leave out '%s'", word, value);
  if (key)
    return mn_fail(MN_USAGE, "%s has no option '-%c', only whole words behind two dashes: minnow %s --help",
                   name, key, name);
  const char *meant = length > 2 ? find_other(word + 2, (size_t)length - 2, command) : NULL;
  for (int i = 0; i < mn_option_count && !meant; i++)
    if (mn_option_rows[i].commands && strlen(mn_option_rows[i].name) + 2 == (size_t)length &&
        strncmp(word + 2, mn_option_rows[i].name, (size_t)length - 2) == 0)
      return mn_fail(MN_USAGE,
                     "%s has no option '%.*s', which is one of %s's: minnow %s --help lists its own", name,
                     length, word, mn_command_rows[ffs((int)mn_option_rows[i].commands) - 1].name, name);
  if (!meant && length > 2) meant = find_meant(word + 2, (size_t)length - 2, &command);
  const int older = command == MN_COMMAND_TRAIN && length == 12 && strncmp(word, "--checkpoint", 12) == 0;
  if (meant)
    return mn_fail(MN_USAGE, "%s has no option '%.*s'; did you mean --%s?%s", name, length, word, meant,
                   older ? " A run is a folder, --run DIR; the run of a file goes on in one: mkdir run && mv "
                           "run.h5 run/checkpoint.h5"
                         : "");
  return mn_fail(MN_USAGE,
                 "%s has no option '%.*s', or several that begin so: minnow %s --help lists its own", name,
                 length, word, name);
}

/* What getopt_long has found as an option's value; or the next word, if the option may stand alone, which
 * getopt does not look at. */
static const char *value_of(int index, int argc, char **argv) {
  const struct mn_option_row *row = &mn_option_rows[index];
  if (optarg || !row->alone || optind >= argc || strncmp(argv[optind], "--", 2) == 0) return optarg;
  return argv[optind++];
}

static mn_status read_words(struct mn_options *options, int argc, char **argv, int *help) {
  const struct mn_command_row *row = &mn_command_rows[options->command];
  struct option known[MN_OPTION_MOST + 2] = {{"help", no_argument, NULL, HELP_KEY}};
  int count = 1;
  for (int i = 0; i < mn_option_count; i++)
    if (mn_option_taken(i, options->command))
      known[count++] = (struct option){mn_option_rows[i].name,
                                       mn_option_rows[i].kind == MN_KIND_FLAG ? no_argument
                                       : mn_option_rows[i].alone              ? optional_argument
                                                                              : required_argument,
                                       NULL, FIRST_KEY + i};
  optind = 0; /* makes glibc start anew */
  opterr = 0;
  for (int key; (key = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
    if (key == '?') return refuse(options->command, optopt, argv[optind - 1]);
    if (key == HELP_KEY || key == 'h')
      *help = 1;
    else if (key == ':')
      MN_TRY(take_option(options, optopt - FIRST_KEY, NULL));
    else
      MN_TRY(take_option(options, key - FIRST_KEY, value_of(key - FIRST_KEY, argc, argv)));
  }
  char **files = argv + optind;
  const int files_given = argc - optind, most = row->most;
  if (*help) return MN_OK;
  if (files_given > most && most == 0)
    return mn_fail(MN_USAGE, "'%s': %s takes options alone, each behind two dashes", files[0], row->name);
  if (files_given > most || files_given < row->least)
    return mn_fail(MN_USAGE, "%s%s%s%s needs %s: minnow %s %s", files_given > most ? "'" : "",
                   files_given > most ? files[most] : "", files_given > most ? "' is too much: " : "",
                   row->name, row->needs, row->name, row->arguments);
  options->files = files;
  options->file_count = files_given;
  return MN_OK;
}

/* --help. */

/* Prints `text` from column `indent` on, the cursor's; wraps it before the terminal's last column. */
static void print_words(FILE *out, const char *text, int indent) {
  const int width = mn_show_columns(fileno(out)) < 80 ? mn_show_columns(fileno(out)) - 1 : 79;
  for (int length, column = indent; *text; text += length + (text[length] == ' ')) {
    length = (int)strcspn(text, " ");
    if (column > indent && column + 1 + length > width) fprintf(out, "\n%*s", column = indent, "");
    column += fprintf(out, "%s%.*s", column > indent ? " " : "", length, text);
  }
  putc('\n', out);
}

/* Prints a command or an option, and its text from column `indent` on: below it on a narrow terminal, and
 * where it leaves no room for two blanks, by which help2man tells the two apart. */
static void print_item(FILE *out, const char *item, const char *text, int indent) {
  if (mn_show_columns(fileno(out)) < 60) indent = 6;
  int column = fprintf(out, "  %s", item);
  if (column + 2 > indent) column = 0, putc('\n', out);
  fprintf(out, "%*s", indent - column, "");
  print_words(out, text, indent);
}

enum { COMMAND_INDENT = 17, OPTION_INDENT = 24 };

static void print_help(enum mn_command command) {
  const struct mn_command_row *row = &mn_command_rows[command];
  const struct mn_option_row *heading = NULL;
  char words[80], name[120], text[512];
  printf("Usage: minnow %s [OPTION...]%s%s\n", row->name, *row->arguments ? " " : "", row->arguments);
  print_words(stdout, row->summary, 0);
  snprintf(text, sizeof text, "For example: minnow %s %s", row->name, row->example);
  print_words(stdout, text, 0);
  for (int i = 0; i < mn_option_count; i++) {
    if (mn_option_rows[i].kind == MN_KIND_HEADING) heading = &mn_option_rows[i];
    if (!mn_option_taken(i, command)) continue;
    if (heading) {
      int example = heading->argument && command == MN_COMMAND_TRAIN;
      snprintf(text, sizeof text, example ? "%s, such as %s:" : "%s:", heading->help, heading->argument);
      putchar('\n');
      print_words(stdout, text, 0);
    }
    heading = NULL;
    struct mn_option_row option = mn_option_of(i, command);
    if (option.words) {
      mn_words_join(words, sizeof words, option.words, "|", "|");
      option.argument = words;
    }
    snprintf(name, sizeof name, option.argument ? "--%s=%s" : "--%s", option.name, option.argument);
    snprintf(text, sizeof text, option.initial ? "%s (default %s)" : "%s", option.help, option.initial);
    print_item(stdout, name, text, OPTION_INDENT);
  }
  putchar('\n');
  print_item(stdout, "--help", "this list; -h for short", OPTION_INDENT);
}

static void print_commands(FILE *out) {
  char name[32];
  print_words(out, "Usage: minnow COMMAND [OPTION...]", 0);
  print_words(out, "A minimal neural-net engine that trains.", 0);
  putc('\n', out);
  for (int i = 0; i < MN_COMMANDS; i++) {
    snprintf(name, sizeof name, "%s %s", mn_command_rows[i].name, mn_command_rows[i].arguments);
    print_item(out, name, mn_command_rows[i].summary, COMMAND_INDENT);
  }
  putc('\n', out);
  print_words(
      out, "minnow COMMAND --help lists a command's options, minnow --version says which minnow this is.", 0);
  print_words(
      out,
      "Exit status: 0 done; 1 a check failed or training diverged; 64 usage; 65 bad data; 66 no input; "
      "69 no device; 70 a library failed; 71 out of memory; 73 cannot create; 74 input or output "
      "failed; 75 stopped, to be resumed.",
      0);
}

/* Prints the version, and the libraries by which several processes train: these are loaded only when needed,
 * so a user who cannot start several checks here first. */
static void print_version(void) {
  const char *mpi = mn_mpi_version();
  printf("minnow %s\nMPI: %s\n", mn_version(), mpi ? mpi : "none");
#ifdef MN_CUDA
  char text[32];
  const char *nccl = mn_nccl_version(text, sizeof text);
  printf("NCCL: %s\n", nccl ? nccl : "none");
#endif
}

/* Handles help, help COMMAND, --help, -h and --version; *done is 1 for these, and 0 for a command. */
static mn_status answer(int argc, char **argv, int *done) {
  enum mn_command command;
  const char *first = argv[1];
  if (strcmp(first, "--version") == 0) {
    print_version();
  } else if (strcmp(first, "help") == 0 && argc > 2) {
    if (argc > 3) return mn_fail(MN_USAGE, "'%s' is too much: help takes one command", argv[3]);
    MN_TRY(find_command(&command, argv[2]));
    print_help(command);
  } else if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
    print_commands(stdout);
  } else {
    return MN_OK;
  }
  *done = 1;
  return MN_OK;
}

/* Which options go together, and what each command needs. */

/* Whether an option has a value, from the command line or the default: a text, or a number that is neither 0
 * nor "auto". */
static int is_set(const struct mn_options *options, int index) {
  const struct mn_option_row *row = &mn_option_rows[index];
  char text[MN_TEXT_VALUE];
  if (row->kind == MN_KIND_TEXT) return *(const char *const *)((const char *)options + row->offset) != NULL;
  mn_option_show(text, sizeof text, options, index);
  return *text != 0 && strcmp(text, "0") != 0 && strcmp(text, "auto") != 0;
}

/* resuming: options that /config may still set are not required yet. */
static mn_status check_rules(const struct mn_options *options, int resuming) {
  for (int i = 0; i < mn_option_count; i++) {
    const struct mn_option_row *row = &mn_option_rows[i];
    const int excluded = mn_option_excludes(i), needed = row->needs ? mn_option_find(row->needs) : -1;
    if (!options->given[i]) continue;
    if (excluded >= 0 && options->given[excluded])
      return mn_fail(MN_USAGE, "--%s and --%s exclude each other; leave one out", row->name, row->excludes);
    if (needed < 0 || !mn_option_taken(needed, options->command) || is_set(options, needed) ||
        (resuming && mn_option_rows[needed].flags & (MN_OPTION_CONFIG | MN_OPTION_KEPT)))
      continue;
    return mn_fail(MN_USAGE, "--%s needs --%s %s", row->name, row->needs, mn_option_rows[needed].argument);
  }
  return MN_OK;
}

static enum mn_rule_kind first_rule(const struct mn_rule_member *member) {
  return (enum mn_rule_kind)(ffs((int)member->rules) - 1);
}

/* The first option that was given for another rule than the optimizer's, or NULL. */
static const struct mn_rule_member *find_stray(const struct mn_options *o) {
  for (const struct mn_rule_member *m = mn_rule_members; m < mn_rule_members + MN_RULE_MEMBERS; m++)
    if (mn_options_given(o, m->name) && !(m->rules >> o->optimizer & 1)) return m;
  return NULL;
}

mn_status mn_options_check(const struct mn_options *o) {
  const char *drop = mn_options_given(o, "step-every") ? "step-every" : "step-factor";
  const struct mn_rule_member *stray = find_stray(o);
  MN_TRY(check_rules(o, 0));
  if (o->command == MN_COMMAND_TRAIN && !o->data && !o->synthetic)
    return mn_fail(MN_USAGE, "train needs rows: --data F for a file's, or --synthetic n for random ones");
  for (int i = 0; i < mn_option_count; i++)
    if (mn_option_rows[i].required >> o->command & 1 && !is_set(o, i))
      return mn_fail(MN_USAGE, "%s needs --%s %s, the %s", mn_command_rows[o->command].name,
                     mn_option_rows[i].name, mn_option_rows[i].argument, mn_option_of(i, o->command).help);
  if (stray)
    return mn_fail(MN_USAGE, "--%s is not for --optimizer %s; leave it out, or take %s", stray->name,
                   mn_optimizer_name(o->optimizer), mn_optimizer_name(first_rule(stray)));
  if (mn_options_given(o, "nesterov") && o->momentum == 0)
    return mn_fail(MN_USAGE, "--nesterov needs --momentum above 0");
  if (o->init && (o->tune || o->folds))
    return mn_fail(MN_USAGE, "--%s trains from random weights, which --init has none of; leave one out",
                   o->tune ? "tune" : "folds");
  if (o->synthetic && o->loss > MN_LOSS_MSE)
    return mn_fail(MN_USAGE,
                   "--loss %s needs classes, which --synthetic has none of; use --data or --loss mse",
                   mn_loss_name((enum mn_loss)o->loss));
  if (o->schedule != MN_SCHEDULE_STEP && mn_options_given(o, drop))
    return mn_fail(MN_USAGE, "--%s goes with --schedule step alone, not with %s", drop,
                   mn_schedule_name((enum mn_schedule_kind)o->schedule));
  for (int i = 0; i < o->hidden.count && o->groups > 0; i++)
    if (mn_block_check_groups(o->hidden.items[i], o->groups) != MN_OK)
      return mn_fail(MN_USAGE, "--groups %ld does not divide --hidden %ld: %s", (long)o->groups,
                     (long)o->hidden.items[i], mn_message());
  return MN_OK;
}

/* The files of --run, and of another run for --init. */
static mn_status find_run(struct mn_options *o) {
  static const char *const names[] = {MN_RUN_CHECKPOINT, MN_RUN_LOG};
  const int trains = o->command == MN_COMMAND_TRAIN;
  if (o->init) o->init = mn_run_read(o->in_run[2], o->init, names[0]);
  if (!o->run) return MN_OK;
  for (int i = 0; i <= trains; i++)
    if (mn_run_file(o->in_run[i], o->run, names[i]) != 0)
      return mn_fail(MN_NO_CREATE, "--run %.60s…: a path that is too long: name a shorter one", o->run);
  o->checkpoint = trains ? o->in_run[0] : mn_run_read(o->in_run[0], o->run, names[0]);
  o->log = trains ? o->in_run[1] : NULL;
  return MN_OK;
}

mn_status mn_options_parse(struct mn_options *out, int argc, char **argv, int *done) {
  *done = 0;
  if (argc < 2) {
    print_commands(stderr);
    return mn_fail(MN_USAGE, "a command is needed; minnow --help lists them");
  }
  MN_TRY(answer(argc, argv, done));
  if (*done) return MN_OK;
  enum mn_command command = MN_COMMAND_TRAIN;
  MN_TRY(find_command(&command, argv[1]));
  *out = (struct mn_options){.command = command};
  for (int i = 0; i < mn_option_count; i++)
    if (mn_option_rows[i].kind != MN_KIND_HEADING) mn_option_reset(out, i, command);
  MN_TRY(read_words(out, argc - 1, argv + 1, done));
  if (*done) {
    print_help(command);
    return MN_OK;
  }
  MN_TRY(find_run(out));
  if (command == MN_COMMAND_EXPORT && !(out->out = out->c ? out->c : out->numpy))
    return mn_fail(MN_USAGE, "export needs --c F.h, a header to write, or --numpy F.py");
  const char *picture = command == MN_COMMAND_PLOT ? out->out : NULL;
  const char *end = picture ? strrchr(picture, '.') : NULL;
  if (picture && !(end > picture && (strcmp(end, ".svg") == 0 || strcmp(end, ".png") == 0)))
    return mn_fail(MN_USAGE, "--out '%s': a file's name that ends in .svg or .png is needed", picture);
  if (mn_options_given(out, "steps") && !mn_options_given(out, "epochs")) out->epochs = 0;
  const struct mn_rule_member *stray = mn_options_given(out, "optimizer") ? NULL : find_stray(out);
  if (stray) out->optimizer = first_rule(stray); /* an option of one rule implies that rule */
  const struct mn_schedule schedule = mn_trainer_defaults((enum mn_rule_kind)out->optimizer, 1).schedule;
  if (!mn_options_given(out, "lr")) out->lr = schedule.rate;
  if (!mn_options_given(out, "schedule")) out->schedule = schedule.kind;
  if (!out->resume) return mn_options_check(out);
  return check_rules(out, 1);
}

/* What the options name. */

void mn_options_model(const struct mn_options *o, struct mn_model_config *out) {
  *out = (struct mn_model_config){.inputs = o->in,
                                  .depth = o->hidden.count,
                                  .groups = o->groups,
                                  .head = o->head > 0 ? o->head : 0,
                                  .eps = o->eps,
                                  .slope = o->slope,
                                  .plan = (enum mn_plan)o->plan};
  memcpy(out->hidden, o->hidden.items, sizeof out->hidden);
  if (o->command == MN_COMMAND_TRAIN && o->groups == 0)
    out->groups = mn_default_groups(o->hidden.items, o->hidden.count);
  if (o->loss >= 0) out->loss = (enum mn_loss)o->loss;
}

void mn_options_optimizer(const struct mn_options *o, int64_t horizon, struct mn_optimizer_config *out) {
  *out = (struct mn_optimizer_config){.rule = {.kind = (enum mn_rule_kind)o->optimizer},
                                      .clip = o->clip > 0 ? o->clip : 0,
                                      .accumulate = (int)o->accumulate,
                                      .rows = o->batch};
  for (const struct mn_rule_member *m = mn_rule_members; m < mn_rule_members + MN_RULE_MEMBERS; m++) {
    const void *field = (const char *)o + mn_option_rows[mn_option_find(m->name)].offset;
    if (m->rules >> out->rule.kind & 1)
      mn_rule_set(&out->rule, m, m->flag ? *(const int *)field : *(const double *)field);
  }
  /* A resumed run may drop the momentum, and Nesterov with it. */
  if (out->rule.momentum == 0) out->rule.nesterov = 0;
  if (o->weight_decay < 0) out->rule.weight_decay = mn_default_decay(out->rule.kind, horizon);
}

void mn_options_trainer(const struct mn_options *o, int64_t horizon, struct mn_trainer_config *out) {
  *out = mn_trainer_defaults((enum mn_rule_kind)o->optimizer, horizon);
  out->batch = o->batch;
  out->seed = o->seed;
  out->place = (enum mn_place)o->place;
  out->on_nonfinite = (enum mn_nonfinite)o->on_nonfinite;
  out->schedule.kind = (enum mn_schedule_kind)o->schedule;
  out->schedule.rate = o->lr;
  out->schedule.factor = o->step_factor;
  if (o->warmup >= 0) out->schedule.warmup = o->warmup;
  if (o->step_every > 0) out->schedule.every = o->step_every;
}

/* /config. */

int mn_options_list(const struct mn_options *options, int flag, struct mn_text *out, int room) {
  int count = 0;
  for (int i = 0; i < mn_option_count; i++) {
    const struct mn_option_row *row = &mn_option_rows[i];
    struct mn_text text;
    if (!(row->flags & flag)) continue;
    const char *unset = row->initial ? row->initial : row->kind == MN_KIND_TEXT ? "" : "0";
    snprintf(text.name, sizeof text.name, "%s", row->name);
    const int length = mn_option_show(text.value, sizeof text.value, options, i);
    if (flag == MN_OPTION_KEPT && (length >= (int)sizeof text.value || strcmp(text.value, unset) == 0))
      continue;
    MN_REQUIRE(count < room);
    out[count++] = text;
  }
  return count;
}

mn_status mn_options_set(struct mn_options *options, const char *name, const char *value) {
  int index = mn_option_find(name);
  if (index < 0 || !(mn_option_rows[index].flags & (MN_OPTION_CONFIG | MN_OPTION_KEPT)))
    return mn_fail(MN_BAD_DATA, "/config has '%s', which no run here has; was it written by another minnow?",
                   name);
  /* In /config a text may be unset, and one of two options that exclude each other: "" or "0", which a
   * command line cannot contain. */
  const struct mn_option_row *row = &mn_option_rows[index];
  const int number = row->kind == MN_KIND_INTEGER;
  if ((mn_option_excludes(index) >= 0 || row->kind == MN_KIND_TEXT) &&
      strcmp(value, number ? "0" : "") == 0) {
    memset((char *)options + row->offset, 0, number ? sizeof(int64_t) : sizeof(char *));
    return MN_OK;
  }
  if (mn_option_read(options, index, MN_COMMAND_TRAIN, value) == 0) return MN_OK;
  char remedy[256];
  mn_option_describe(remedy, sizeof remedy, index, MN_COMMAND_TRAIN, value);
  return mn_fail(MN_BAD_DATA, "/config has %s '%s': %s", name, value, remedy);
}
