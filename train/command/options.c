/* Reading a command line: argp takes it apart by the table of options_table.c and prints --help from it; then
 * come the checks of what each command needs and of which options go together. What is wrong with a word or a
 * value is said by options_errors.c. */
#include "train/command/options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train/command/options_table.h"

/* argp's keys: of the option at place 0, and so on. */
enum { FIRST_KEY = 256, HELP_KEY = FIRST_KEY + MN_OPTION_MOST };

int mn_options_given(const struct mn_options *options, const char *name) {
  int place = mn_option_find(name);
  MN_REQUIRE(place >= 0);
  return (int)(options->given[place / 64] >> place % 64 & 1);
}

/* Words, through argp. */

struct reading {
  struct mn_options *options;
  mn_status status;
  int help;
  int stopped; /* the word behind the one at which argp stopped */
};

static mn_status take_files(struct mn_options *options, char **files, int count) {
  const struct mn_command_row *command = &mn_command_rows[options->command];
  int most = command->most;
  if (count > most && most == 0)
    return mn_fail(MN_USAGE, "'%s': %s takes options alone, each behind two dashes", files[0], command->name);
  if (count > most || count < command->least)
    return mn_fail(MN_USAGE, "%s%s%s%s needs %s: minnow %s %s", count > most ? "'" : "",
                   count > most ? files[most] : "", count > most ? "' is too much: " : "", command->name,
                   command->needs, command->name, command->arguments);
  for (int i = 0; i < count && i < (int)(sizeof options->files / sizeof *options->files); i++)
    options->files[i] = files[i];
  options->logs = files;
  options->log_count = count;
  return MN_OK;
}

static mn_status take_option(struct mn_options *options, int place, const char *text) {
  char value[MN_OPTION_VALUE];
  if (mn_option_read(options, place, options->command, text ? text : "yes") != 0)
    return mn_option_refuse(place, options->command, text);
  options->given[place / 64] |= (uint64_t)1 << place % 64;
  if (mn_option_rows[place].flags & MN_OPTION_CONFIG &&
      mn_option_show(value, sizeof value, options, place) >= (int)sizeof value)
    return mn_fail(MN_USAGE, "--%s '%s': at most %d characters fit a checkpoint's /config; shorten it",
                   mn_option_rows[place].name, text, MN_OPTION_VALUE - 1);
  return MN_OK;
}

static error_t take(int key, char *text, struct argp_state *state) {
  struct reading *reading = state->input;
  if (key == HELP_KEY) {
    reading->help = 1;
  } else if (key >= FIRST_KEY && key < FIRST_KEY + mn_option_count) {
    reading->status = take_option(reading->options, key - FIRST_KEY, text);
  } else if (key == ARGP_KEY_ARGS || key == ARGP_KEY_NO_ARGS) {
    if (!reading->help)
      reading->status = take_files(reading->options, state->argv + state->next, state->argc - state->next);
    state->next = state->argc;
  } else {
    if (key == ARGP_KEY_ERROR) reading->stopped = state->next;
    return ARGP_ERR_UNKNOWN;
  }
  return reading->status == MN_OK ? 0 : EINVAL;
}

/* argp's own table of the options that `command` takes; `help` (may be NULL) gets each one's help with its
 * default, to be freed. */
static void fill_argp(struct argp_option *out, char **help, enum mn_command command) {
  int count = 0;
  for (int i = 0; i < mn_option_count; i++) {
    const struct mn_option_row *row = &mn_option_rows[i];
    struct argp_option option = {.name = row->name, .key = FIRST_KEY + i, .arg = row->argument};
    if (row->kind == MN_KIND_HEADING) {
      int any = 0;
      for (int j = i + 1; j < mn_option_count && mn_option_rows[j].kind != MN_KIND_HEADING; j++)
        any += mn_option_taken(j, command);
      if (!any) continue;
      option.key = 0;
    } else if (!mn_option_taken(i, command)) {
      continue;
    }
    option.doc = mn_option_help(i, command);
    const char *initial = row->kind == MN_KIND_HEADING ? NULL : mn_option_initial(i, command);
    if (help && initial && asprintf(&help[i], "%s (default %s)", option.doc, initial) >= 0)
      option.doc = help[i];
    out[count++] = option;
  }
  out[count++] = (struct argp_option){.name = "help", .key = HELP_KEY, .doc = "this list", .group = -1};
  out[count] = (struct argp_option){0};
}

/* argp, silent: what it stopped at is for mn_option_diagnose to say. */
static mn_status read_words(struct reading *reading, int argc, char **argv) {
  enum mn_command command = reading->options->command;
  struct argp_option options[MN_OPTION_MOST + 2];
  fill_argp(options, NULL, command);
  struct argp argp = {options, take, NULL, NULL, NULL, NULL, NULL};
  error_t error = argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP, NULL, reading);
  if (error == 0 || reading->status != MN_OK) return reading->status;
  if (error == ENOMEM) return mn_fail(MN_NO_MEMORY, "no memory to read the options");
  /* getopt has passed the word that it did not like, unless it was in the middle of it. */
  int next = reading->stopped;
  if (next > 0 && next <= argc) MN_TRY(mn_option_diagnose(command, argv[next - 1]));
  if (next < argc) MN_TRY(mn_option_diagnose(command, argv[next]));
  return mn_fail(MN_USAGE, "these options cannot be read; minnow %s --help lists those there are",
                 mn_command_name(command));
}

/* --help. */

static void print_help(enum mn_command command) {
  struct argp_option options[MN_OPTION_MOST + 2];
  char *help[MN_OPTION_MOST] = {0}, name[64];
  fill_argp(options, help, command);
  const char *arguments = *mn_command_rows[command].arguments ? mn_command_rows[command].arguments : NULL;
  struct argp argp = {options, take, arguments, mn_command_rows[command].summary, NULL, NULL, NULL};
  snprintf(name, sizeof name, "minnow %s", mn_command_name(command));
  argp_help(&argp, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_DOC | ARGP_HELP_LONG, name);
  for (int i = 0; i < mn_option_count; i++) free(help[i]);
}

static void print_commands(void) {
  puts("Usage: minnow COMMAND [OPTION...]\nA minimal neural-net engine that trains.\n");
  for (int i = 0; i < MN_COMMANDS; i++)
    printf("  %s %-*s%s\n", mn_command_name(i), 14 - (int)strlen(mn_command_name(i)),
           mn_command_rows[i].arguments, mn_command_rows[i].summary);
  puts("\nminnow COMMAND --help lists a command's options, minnow --version says which minnow this is.\n"
       "Exit status: 0 done; 1 a check failed or training diverged; 64 usage; 65 bad data; 66 no input;\n"
       "69 no device; 70 a library failed; 71 out of memory; 73 cannot create; 74 input or output failed;\n"
       "75 stopped by a signal, to be resumed.");
}

/* Which options go together, and what each command needs. */

/* Whether an option has a value that means something, from wherever. */
static int is_set(const struct mn_options *options, const struct mn_option_row *row) {
  const void *field = (const char *)options + row->offset;
  switch (row->kind) {
  case MN_KIND_INTEGER:
    return *(const int64_t *)field > 0;
  case MN_KIND_SMALL:
    return *(const int *)field > 0;
  default:
    return *(const char *const *)field != NULL;
  }
}

/* resuming: options that /config may still set are not asked for yet. */
static mn_status check_rules(const struct mn_options *options, int resuming) {
  for (const struct mn_option_rule *rule = mn_option_rules; rule->name; rule++) {
    int place = mn_option_find(rule->other);
    const struct mn_option_row *other = &mn_option_rows[place];
    if (!mn_options_given(options, rule->name) || !mn_option_taken(place, options->command)) continue;
    if (!rule->needs && mn_options_given(options, rule->other))
      return mn_fail(MN_USAGE, "--%s and --%s exclude each other; leave one out", rule->name, rule->other);
    if (!rule->needs || is_set(options, other) || (resuming && other->flags & MN_OPTION_CONFIG)) continue;
    return mn_fail(MN_USAGE, "--%s needs --%s %s", rule->name, rule->other, other->argument);
  }
  return MN_OK;
}

static mn_status check_needed(const struct mn_options *o) {
  const char *name = mn_command_name(o->command);
  int predicts = o->command == MN_COMMAND_PREDICT, plots = o->command == MN_COMMAND_PLOT;
  int reads = predicts || o->command == MN_COMMAND_EVAL;
  if (o->command == MN_COMMAND_TRAIN && !o->data && !o->synthetic)
    return mn_fail(MN_USAGE, "train needs rows: --data F for a file's, or --synthetic n for random ones");
  if (o->command == MN_COMMAND_TRAIN && o->synthetic && !o->in)
    return mn_fail(MN_USAGE, "--synthetic needs --in I, the number of inputs");
  if (o->command == MN_COMMAND_TRAIN && o->depth == 0)
    return mn_fail(MN_USAGE, "train needs --hidden, the channels of each block, such as --hidden 128,128");
  if (reads && !o->checkpoint)
    return mn_fail(MN_USAGE, "%s needs --checkpoint F, a file that train wrote", name);
  if (reads && !o->data) return mn_fail(MN_USAGE, "%s needs --data F, an HDF5 file of rows", name);
  if ((predicts || plots) && !o->out) return mn_fail(MN_USAGE, "%s needs --out F, the file to write", name);
  if (plots && !mn_option_is_picture(o->out))
    return mn_fail(MN_USAGE, "--out '%s': a file's name that ends in .svg or .png is needed", o->out);
  return MN_OK;
}

static mn_status check_values(const struct mn_options *o) {
  if (o->command == MN_COMMAND_TRAIN) {
    if (o->nesterov && o->momentum == 0) return mn_fail(MN_USAGE, "--nesterov needs --momentum above 0");
    if (o->synthetic && o->loss && strcmp(o->loss, "mse") != 0)
      return mn_fail(MN_USAGE,
                     "--loss %s needs classes, which --synthetic has none of; use --data or --loss mse",
                     o->loss);
    const char *drop = mn_options_given(o, "step-every") ? "step-every" : "step-factor";
    if (strcmp(o->schedule, "step") != 0 && mn_options_given(o, drop))
      return mn_fail(MN_USAGE, "--%s goes with --schedule step alone, not with %s", drop, o->schedule);
  }
  for (int i = 0; i < o->depth && o->groups > 0; i++) MN_TRY(mn_block_check_groups(o->hidden[i], o->groups));
  return MN_OK;
}

mn_status mn_options_check(const struct mn_options *options) {
  MN_TRY(check_rules(options, 0));
  MN_TRY(check_needed(options));
  return check_values(options);
}

/* All of it. */

static mn_status find_command(enum mn_command *out, const char *word) {
  for (int i = 0; i < MN_COMMANDS; i++)
    if (strcmp(mn_command_name(i), word) == 0) {
      *out = (enum mn_command)i;
      return MN_OK;
    }
  return mn_command_refuse(word);
}

static void set_defaults(struct mn_options *options, enum mn_command command) {
  memset(options, 0, sizeof *options);
  options->command = command;
  for (int i = 0; i < mn_option_count; i++)
    if (mn_option_rows[i].kind != MN_KIND_HEADING) mn_option_reset(options, i, command);
}

mn_status mn_options_parse(struct mn_options *out, int argc, char **argv, int *done) {
  *done = 0;
  if (argc < 2) return mn_fail(MN_USAGE, "a command is needed; minnow --help lists them");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "--version") == 0) {
    if (argv[1][2] == 'h')
      print_commands();
    else
      puts("minnow " MN_VERSION);
    *done = 1;
    return MN_OK;
  }
  enum mn_command command = MN_COMMAND_TRAIN;
  MN_TRY(find_command(&command, argv[1]));
  set_defaults(out, command);
  struct reading reading = {.options = out, .status = MN_OK};
  MN_TRY(read_words(&reading, argc - 1, argv + 1));
  if (reading.help) {
    print_help(command);
    *done = 1;
    return MN_OK;
  }
  if (mn_options_given(out, "steps") && !mn_options_given(out, "epochs")) out->epochs = 0;
  if (!out->resume) return mn_options_check(out);
  return check_rules(out, 1);
}
