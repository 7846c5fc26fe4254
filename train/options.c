/* The option table, reading it with argp, and the one line that says what is wrong with a command line.
 *
 * Every option has one row in `table`: its name, the commands that take it, its kind and bounds, its default
 * as the user would write it, and its help. Reading, --help, /config and every error message come from that
 * row. argp does the parsing, but stays silent: its own messages take two lines and cannot say what would do,
 * so that after a failure `diagnose` looks at the word where it stopped. */
#include "train/options.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind {
  HEADING, /* of a section of --help; no option */
  FLAG,    /* int */
  INTEGER, /* int64_t */
  SMALL,   /* int */
  SEED,    /* uint64_t */
  REAL,    /* double */
  TEXT,    /* const char *: a file or a dataset */
  PICTURE, /* const char *: a file that ends in .svg or .png */
  WORD,    /* const char *: one of the words that `argument` lists */
  PLACE,   /* const char *: a device */
  PLAN,    /* enum mn_plan */
  WIDTHS,  /* hidden and depth */
  EVERY,   /* save_every and save_seconds */
};

enum {
  CONFIG = 1, /* makes the run what it is: kept in a checkpoint's /config */
  ABOVE = 2,  /* low itself is not allowed */
  BELOW = 4,  /* nor is high */
};

/* Sets of commands. */
enum {
  TRAIN = 1 << MN_COMMAND_TRAIN,
  EVAL = 1 << MN_COMMAND_EVAL,
  PREDICT = 1 << MN_COMMAND_PREDICT,
  GRADCHECK = 1 << MN_COMMAND_GRADCHECK,
  PARITY = 1 << MN_COMMAND_PARITY,
  BENCH = 1 << MN_COMMAND_BENCH,
  PLOT = 1 << MN_COMMAND_PLOT,
  FILES = 1 << MN_COMMAND_INFO | 1 << MN_COMMAND_VERIFY | 1 << MN_COMMAND_DIFF,
  RUNS = TRAIN | EVAL | PREDICT,
  CHECKS = GRADCHECK | PARITY | BENCH,
};

struct option_row {
  const char *name;
  const char *argument; /* as --help shows it; of a WORD the words, a|b|c */
  unsigned commands;
  enum kind kind;
  int flags;
  size_t offset;
  double low, high;    /* high 0: no bound but the type's */
  const char *initial; /* NULL: 0, or NULL */
  unsigned automatic;  /* the commands in which it may be "auto" … */
  double auto_value;   /* … and the number that stands for it (of text it is NULL, of widths none) */
  const char *help;
};

#define AT(field) offsetof(struct mn_options, field)
#define LARGEST 1099511627776.0 /* 2⁴⁰, which bounds every count */
#define WIDEST 4194304.0        /* 2²², channels or inputs */

static const struct option_row table[] = {
    {.kind = HEADING, .help = "Rows:"},
    {"data", "F", RUNS, TEXT, CONFIG, AT(data),
     .help = "HDF5 file with x [n, I] and y, or train/ and test/ of them"},
    {"x", "NAME", RUNS, TEXT, CONFIG, AT(x_name), .initial = "x", .help = "dataset of the inputs"},
    {"y", "NAME", TRAIN | EVAL, TEXT, CONFIG, AT(y_name), .initial = "y",
     .help = "dataset of the targets or labels"},
    {"synthetic", "n", TRAIN, INTEGER, CONFIG, AT(synthetic), 1, LARGEST,
     .help = "n rows of a random teacher instead of --data"},
    {"noise", "S", TRAIN, REAL, CONFIG, AT(noise), 0, 0, "0.1",
     .help = "standard deviation of the synthetic targets' noise"},
    {"test-rows", "n", TRAIN, INTEGER, CONFIG, AT(test_rows), 0, LARGEST, "auto", TRAIN, -1,
     "synthetic rows held out for evaluation, 0: none; auto: a tenth of --synthetic"},
    {.kind = HEADING, .help = "Model:"},
    {"in", "I", TRAIN | GRADCHECK | BENCH, INTEGER, CONFIG, AT(in), 1, WIDEST, "auto", TRAIN | BENCH, 0,
     "inputs, with --synthetic"},
    {"hidden", "C,C...", TRAIN | GRADCHECK | BENCH, WIDTHS, CONFIG, AT(hidden), 1, WIDEST, NULL, BENCH, 0,
     "channels of each block, such as 128,128"},
    {"groups", "G", TRAIN | GRADCHECK | BENCH, INTEGER, CONFIG, AT(groups), 1, WIDEST, "8", BENCH, 0,
     "groups of each block; has to divide every --hidden"},
    {"head", "K", TRAIN | GRADCHECK, INTEGER, CONFIG, AT(head), 0, WIDEST, "auto", TRAIN, -1,
     "outputs of a linear head, 0: none; auto: the largest label + 1, or the targets' width where the last "
     "block has another"},
    {"eps", "E", TRAIN | GRADCHECK, REAL, CONFIG | ABOVE, AT(eps), 0, 0, "1e-5",
     .help = "added to the variance"},
    {"slope", "S", TRAIN | GRADCHECK, REAL, CONFIG, AT(slope), 0, 0, "0.01",
     .help = "of the leaky ReLU below 0"},
    {"loss", "mse|cross-entropy", TRAIN | GRADCHECK, WORD, CONFIG, AT(loss), 0, 0, "auto", TRAIN | GRADCHECK,
     0, "loss; auto: what the targets are for, reals mse and labels cross-entropy"},
    {"plan", "none|activation|norm-activation|tail|linear-norm|block", TRAIN | GRADCHECK, PLAN, CONFIG,
     AT(plan), 0, 0, "block", .help = "which operations are fused"},
    {.kind = HEADING, .help = "Training:"},
    {"epochs", "N", TRAIN, INTEGER, CONFIG, AT(epochs), 1, LARGEST, "10",
     .help = "passes over the rows: the horizon of the schedule"},
    {"steps", "N", TRAIN, INTEGER, CONFIG, AT(steps), 1, LARGEST,
     .help = "optimizer steps, instead of --epochs"},
    {"stop-at", "S", TRAIN, INTEGER, 0, AT(stop_at), 1, LARGEST,
     .help = "end early, after step S, to be resumed; the horizon stays"},
    {"batch", "N", TRAIN | GRADCHECK | BENCH, INTEGER, CONFIG, AT(batch), 1, LARGEST, "64",
     .help = "rows a batch"},
    {"lr", "RATE", TRAIN, REAL, CONFIG | ABOVE, AT(lr), 0, 0, "0.05", .help = "learning rate"},
    {"momentum", "M", TRAIN | BENCH, REAL, CONFIG | BELOW, AT(momentum), 0, 1, "0.9", .help = "of SGD"},
    {"weight-decay", "D", TRAIN | BENCH, REAL, CONFIG, AT(weight_decay), 0, 0, "0",
     .help = "of SGD, on every parameter"},
    {"nesterov", NULL, TRAIN, FLAG, CONFIG, AT(nesterov), .help = "Nesterov's momentum"},
    {"schedule", "constant|cosine|step", TRAIN, WORD, CONFIG, AT(schedule), 0, 0, "constant",
     .help = "of the learning rate"},
    {"step-every", "N", TRAIN, INTEGER, CONFIG, AT(step_every), 1, LARGEST, "auto", TRAIN, 0,
     "steps between the drops of --schedule step; auto: a third of the horizon"},
    {"step-factor", "F", TRAIN, REAL, CONFIG | ABOVE, AT(step_factor), 0, 1, "0.1",
     .help = "what each drop multiplies the rate by"},
    {"warmup", "N", TRAIN, INTEGER, CONFIG, AT(warmup), 0, LARGEST, "0", .help = "steps of linear warm-up"},
    {"clip", "NORM", TRAIN, REAL, CONFIG, AT(clip), 0, 0, "0",
     .help = "largest norm of the whole gradient, 0: no clipping"},
    {"accumulate", "N", TRAIN, SMALL, CONFIG, AT(accumulate), 1, 1e6, "1",
     .help = "batches an optimizer step"},
    {"seed", "N", TRAIN | GRADCHECK | BENCH, SEED, CONFIG, AT(seed), 0, 0, "0",
     .help = "of everything random"},
    {.kind = HEADING, .help = "Device:"},
    {"device", "auto|cpu|cuda|cuda:N", RUNS | CHECKS, PLACE, 0, AT(device), 0, 0, "auto",
     .help = "auto: the GPU where there is one"},
    {"precision", "fp64|fp32|tf32|bf16", RUNS | PARITY | BENCH, WORD, CONFIG, AT(precision), 0, 0, "fp32",
     .help = "of the matrix products' inputs; tf32 runs as fp32 on the CPU"},
    {.kind = HEADING, .help = "Files:"},
    {"checkpoint", "F", RUNS, TEXT, 0, AT(checkpoint),
     .help = "HDF5 file of the parameters and of all that resuming needs"},
    {"save-every", "N|30s", TRAIN, EVERY, 0, AT(save_every), 1, 1e9,
     .help = "save each N steps or so many seconds, not at the end alone"},
    {"keep", "K", TRAIN, SMALL, 0, AT(keep), 1, 1000, "1",
     .help = "checkpoints to keep: run.h5, run.1.h5, run.2.h5 …"},
    {"resume", NULL, TRAIN, FLAG, 0, AT(resume), .help = "go on from --checkpoint, with its options"},
    {"log", "F.jsonl", TRAIN, TEXT, 0, AT(log), .help = "write the run's log, one JSON object a line"},
    {"log-every", "N", TRAIN, INTEGER, 0, AT(log_every), 1, LARGEST, "auto", TRAIN, 0,
     "steps a line of --log; auto: about 1000 lines a run"},
    {"plot", "F.svg", TRAIN, PICTURE, 0, AT(plot), .help = "draw the --log at the end, as SVG or PNG"},
    {"out", "F", PREDICT | PLOT, TEXT, 0, AT(out), .help = "file to write"},
    {.kind = HEADING, .help = "Output:"},
    {"tolerance", "T", GRADCHECK | PARITY, REAL, ABOVE, AT(tolerance), 0, 0, "auto", PARITY, 0,
     "largest relative error; auto: the precision's own"},
    {"plans", NULL, BENCH, FLAG, 0, AT(plans), .help = "the fusion plans beside each other"},
    {"json", NULL, TRAIN | EVAL | CHECKS | FILES, FLAG, 0, AT(json), .help = "one JSON object on stdout"},
    {"verbose", NULL, TRAIN, FLAG, 0, AT(verbose), .help = "say what is fused, and more"},
    {"quiet", NULL, RUNS | CHECKS, FLAG, 0, AT(quiet), .help = "no progress and no notes on stderr"},
};
enum { ROWS = sizeof table / sizeof *table, FIRST_KEY = 256, HELP_KEY = FIRST_KEY + ROWS };
_Static_assert(ROWS <= 8 * sizeof((struct mn_options *)0)->given, "a bit for each option");

/* Where a command's default, or what it means by an option, is not the table's. NULL: as there. */
static const struct {
  enum mn_command command;
  const char *name, *initial, *help;
} variants[] = {
    {MN_COMMAND_GRADCHECK, "batch", "4", NULL},
    {MN_COMMAND_GRADCHECK, "in", "6", "inputs"},
    {MN_COMMAND_GRADCHECK, "hidden", "8", NULL},
    {MN_COMMAND_GRADCHECK, "groups", "2", NULL},
    {MN_COMMAND_GRADCHECK, "head", "0", "outputs of a linear head, 0: none"},
    {MN_COMMAND_GRADCHECK, "loss", NULL, "loss; auto: the sum of dy*y with random dy"},
    {MN_COMMAND_GRADCHECK, "tolerance", "1e-6", "largest relative error"},
    {MN_COMMAND_BENCH, "batch", "1024", NULL},
    {MN_COMMAND_BENCH, "in", NULL, "inputs; auto: 8192, and 1024 on the CPU"},
    {MN_COMMAND_BENCH, "hidden", "auto", "channels of each block; auto: 8192, and 1024 on the CPU"},
    {MN_COMMAND_BENCH, "groups", "auto", "groups of each block; auto: of 16 channels each, or one"},
    {MN_COMMAND_EVAL, "checkpoint", NULL, "HDF5 file to read the parameters from"},
    {MN_COMMAND_PREDICT, "checkpoint", NULL, "HDF5 file to read the parameters from"},
    {MN_COMMAND_PREDICT, "out", NULL, "HDF5 file to write: y [n, K], and with classes label [n]"},
    {MN_COMMAND_PLOT, "out", NULL, "picture to write, .svg or .png"},
};

static const struct {
  const char *name, *arguments; /* arguments: as --help shows them */
  int least, most;
  const char *needs, *summary;
} commands[MN_COMMANDS] = {
    {"train", "", 0, 0, "", "Train a stack of blocks on the rows of --data or --synthetic."},
    {"eval", "", 0, 0, "", "Loss, and accuracy where there are classes, of a checkpoint on a dataset."},
    {"predict", "", 0, 0, "", "Write the outputs of a checkpoint for the rows of a dataset."},
    {"gradcheck", "", 0, 0, "", "Check every gradient against central differences, in fp64."},
    {"parity", "F", 1, 1, "one file of cases", "Run the cases of F and print the error of each tensor."},
    {"bench", "", 0, 0, "", "Time a training step beside the bare matrix products and the copy rate."},
    {"plot", "LOG...", 1, 1 << 20, "one log or several",
     "Draw loss, metric and learning rate of one run or several."},
    {"info", "F", 1, 1, "one HDF5 file", "Say what a dataset or a checkpoint holds."},
    {"verify", "F", 1, 1, "one HDF5 file", "Check every checksum of a file."},
    {"diff", "A B", 2, 2, "two checkpoints", "Say where two checkpoints differ, in units in the last place."},
};

/* Which options go together. `needs` 0: the two exclude each other. */
static const struct {
  const char *name, *other;
  int needs;
} rules[] = {
    {"data", "synthetic", 0},
    {"epochs", "steps", 0},
    {"quiet", "verbose", 0},
    {"x", "data", 1},
    {"y", "data", 1},
    {"in", "synthetic", 1},
    {"noise", "synthetic", 1},
    {"test-rows", "synthetic", 1},
    {"save-every", "checkpoint", 1},
    {"keep", "checkpoint", 1},
    {"resume", "checkpoint", 1},
    {"log-every", "log", 1},
    {"plot", "log", 1},
};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

const char *mn_command_name(enum mn_command command) {
  return commands[command].name;
}

static int taken(int row, enum mn_command command) {
  return table[row].kind != HEADING && table[row].commands >> command & 1;
}

/* The place of an option in the table, −1 for none. */
static int find(const char *name) {
  for (int i = 0; i < ROWS; i++)
    if (table[i].name && strcmp(table[i].name, name) == 0) return i;
  return -1;
}

static const char *initial_text(int row, enum mn_command command) {
  for (int i = 0; i < COUNT(variants); i++)
    if (variants[i].command == command && strcmp(variants[i].name, table[row].name) == 0 &&
        variants[i].initial)
      return variants[i].initial;
  return table[row].initial;
}

static const char *help_text(int row, enum mn_command command) {
  for (int i = 0; i < COUNT(variants); i++)
    if (variants[i].command == command && table[row].name && strcmp(variants[i].name, table[row].name) == 0 &&
        variants[i].help)
      return variants[i].help;
  return table[row].help;
}

static int is_given(const struct mn_options *options, int row) {
  return (int)(options->given[row / 64] >> row % 64 & 1);
}

int mn_options_given(const struct mn_options *options, const char *name) {
  int row = find(name);
  MN_REQUIRE(row >= 0);
  return is_given(options, row);
}

/* Values, from text. All return 0, or −1 for text that is no such value. */

static int in_bounds(const struct option_row *row, double value) {
  if (!(value >= row->low) || (row->flags & ABOVE && value == row->low)) return 0;
  return row->high == 0 || value < row->high || (value == row->high && !(row->flags & BELOW));
}

/* Digits alone: strtoll would take blanks and signs too. */
static int read_unsigned(uint64_t *out, const char *text, size_t length) {
  char digits[24], *end;
  if (length == 0 || length >= sizeof digits || strspn(text, "0123456789") < length) return -1;
  memcpy(digits, text, length);
  digits[length] = 0;
  errno = 0;
  uint64_t value = strtoull(digits, &end, 10);
  if (errno != 0 || *end != 0) return -1;
  *out = value;
  return 0;
}

static int read_integer(int64_t *out, const struct option_row *row, const char *text, size_t length) {
  uint64_t value;
  if (read_unsigned(&value, text, length) != 0 || value > INT64_MAX || !in_bounds(row, (double)value))
    return -1;
  *out = (int64_t)value;
  return 0;
}

/* Decimal numbers alone: strtod would take nan, inf and hexadecimal too. */
static int read_real(double *out, const struct option_row *row, const char *text) {
  char *end;
  if (*text == 0 || strspn(text, "0123456789.eE+-") != strlen(text)) return -1;
  double value = strtod(text, &end);
  if (*end != 0 || !isfinite(value) || !in_bounds(row, value)) return -1;
  *out = value;
  return 0;
}

static int read_widths(struct mn_options *options, const struct option_row *row, const char *text) {
  int64_t widths[MN_MODEL_DEPTH];
  int depth = 0;
  for (;;) {
    size_t length = strcspn(text, ",");
    if (depth == MN_MODEL_DEPTH || read_integer(&widths[depth], row, text, length) != 0) return -1;
    depth++;
    if (text[length] == 0) break;
    text += length + 1;
  }
  memset(options->hidden, 0, sizeof options->hidden);
  memcpy(options->hidden, widths, (size_t)depth * sizeof *widths);
  options->depth = depth;
  return 0;
}

static int read_every(struct mn_options *options, const struct option_row *row, const char *text) {
  size_t length = strlen(text);
  int seconds = length > 1 && text[length - 1] == 's';
  if (read_integer(&options->save_every, row, text, length - (size_t)seconds) != 0) return -1;
  options->save_seconds = seconds;
  return 0;
}

/* Whether `text` is one of the words in a|b|c. */
static int is_word(const char *words, const char *text) {
  size_t length = strlen(text);
  for (const char *at = words; length > 0; at += strcspn(at, "|") + 1) {
    if (strcspn(at, "|") == length && strncmp(at, text, length) == 0) return 1;
    if (at[strcspn(at, "|")] == 0) break;
  }
  return 0;
}

static int is_place(const char *text) {
  uint64_t ordinal;
  if (is_word("auto|cpu|cuda", text)) return 1;
  return strncmp(text, "cuda:", 5) == 0 && read_unsigned(&ordinal, text + 5, strlen(text + 5)) == 0 &&
         ordinal < 1024;
}

static int is_picture(const char *text) {
  size_t length = strlen(text);
  return length > 4 && (strcmp(text + length - 4, ".svg") == 0 || strcmp(text + length - 4, ".png") == 0);
}

static int read_auto(struct mn_options *options, const struct option_row *row) {
  void *field = (char *)options + row->offset;
  switch (row->kind) {
  case INTEGER:
    *(int64_t *)field = (int64_t)row->auto_value;
    return 0;
  case REAL:
    *(double *)field = row->auto_value;
    return 0;
  case WORD:
    *(const char **)field = NULL;
    return 0;
  case WIDTHS:
    options->depth = 0;
    return 0;
  default:
    return -1;
  }
}

/* Flags read "yes" or "no", as /config has them. */
static int read_flag(int *out, const char *text) {
  *out = strcmp(text, "yes") == 0;
  return *out || strcmp(text, "no") == 0 ? 0 : -1;
}

static int read_value(struct mn_options *options, int place, enum mn_command command, const char *text) {
  const struct option_row *row = &table[place];
  void *field = (char *)options + row->offset;
  if (strcmp(text, "auto") == 0 && row->automatic >> command & 1) return read_auto(options, row);
  int64_t small;
  int good;
  switch (row->kind) {
  case FLAG:
    return read_flag(field, text);
  case INTEGER:
    return read_integer(field, row, text, strlen(text));
  case SMALL:
    if (read_integer(&small, row, text, strlen(text)) != 0) return -1;
    *(int *)field = (int)small;
    return 0;
  case SEED:
    return read_unsigned(field, text, strlen(text));
  case REAL:
    return read_real(field, row, text);
  case PLAN:
    return mn_plan_parse(text, field) == MN_OK ? 0 : -1;
  case WIDTHS:
    return read_widths(options, row, text);
  case EVERY:
    return read_every(options, row, text);
  /* A forgotten value must not make the next option a file's name. */
  case TEXT:
    good = *text != 0 && strncmp(text, "--", 2) != 0;
    break;
  case PICTURE:
    good = strncmp(text, "--", 2) != 0 && is_picture(text);
    break;
  case WORD:
    good = is_word(row->argument, text);
    break;
  case PLACE:
    good = is_place(text);
    break;
  default:
    good = 0;
  }
  if (good) *(const char **)field = text;
  return good ? 0 : -1;
}

/* Values, to text. */

/* The shortest decimal that reads back as the same double. */
static void show_real(char *out, size_t size, double value) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(out, size, "%.*g", digits, value);
    if (strtod(out, NULL) == value) return;
  }
}

static int show_widths(char *out, size_t size, const struct mn_options *options) {
  int length = snprintf(out, size, "%s", options->depth ? "" : "auto");
  for (int i = 0; i < options->depth; i++)
    length +=
        snprintf(out + (length < (int)size ? length : 0), length < (int)size ? size - (size_t)length : 0,
                 "%s%" PRId64, i ? "," : "", options->hidden[i]);
  return length;
}

/* The canonical text of an option; returns its length, which may be more than fits. */
static int show_value(char *out, size_t size, const struct mn_options *options, int place) {
  const struct option_row *row = &table[place];
  const void *field = (const char *)options + row->offset;
  const char *text;
  switch (row->kind) {
  case FLAG:
    return snprintf(out, size, "%s", *(const int *)field ? "yes" : "no");
  case INTEGER:
    if (row->automatic && (double)*(const int64_t *)field == row->auto_value)
      return snprintf(out, size, "auto");
    return snprintf(out, size, "%" PRId64, *(const int64_t *)field);
  case SMALL:
    return snprintf(out, size, "%d", *(const int *)field);
  case SEED:
    return snprintf(out, size, "%" PRIu64, *(const uint64_t *)field);
  case REAL:
    show_real(out, size, *(const double *)field);
    return (int)strlen(out);
  case PLAN:
    return snprintf(out, size, "%s", mn_plan_name(*(const enum mn_plan *)field));
  case WIDTHS:
    return show_widths(out, size, options);
  case EVERY:
    return snprintf(out, size, "%" PRId64 "%s", options->save_every, options->save_seconds ? "s" : "");
  default:
    text = *(const char *const *)field;
    return snprintf(out, size, "%s", text ? text : row->automatic ? "auto" : "");
  }
}

/* What the user is told. */

/* "a, b or c" of a|b|c. */
static void describe_words(char *out, size_t size, const char *words) {
  size_t used = 0;
  for (const char *at = words; *at && used + 1 < size;) {
    size_t length = strcspn(at, "|");
    const char *next = at + length + (at[length] == '|');
    const char *between = *next == 0 ? "" : strchr(next, '|') ? ", " : " or ";
    used += (size_t)snprintf(out + used, size - used, "%.*s%s", (int)length, at, between);
    at = next;
  }
}

/* What would do as the value of an option, where `value` (NULL: none) did not. The bound of counts that have
 * no natural one is only of interest to who has passed it. */
static void describe(char *out, size_t size, const struct option_row *row, enum mn_command command,
                     const char *value) {
  const char *or_auto = row->automatic >> command & 1 ? " or auto" : "";
  char high[40] = "", words[160];
  int too_large = value && *value && value[strspn(value, "0123456789")] == 0;
  if (row->high > 0 && (row->flags & BELOW || row->high < WIDEST || too_large))
    snprintf(high, sizeof high, " to %s%.0f", row->flags & BELOW ? "below " : "", row->high);
  switch (row->kind) {
  case INTEGER:
  case SMALL:
    snprintf(out, size, "a whole number from %g%s%s is needed", row->low, high, or_auto);
    break;
  case SEED:
    snprintf(out, size, "a whole number from 0 to %" PRIu64 " is needed", UINT64_MAX);
    break;
  case REAL:
    snprintf(out, size, "a number %s %g%s%s is needed", row->flags & ABOVE ? "above" : "from", row->low, high,
             or_auto);
    break;
  case PICTURE:
    snprintf(out, size, "a file's name that ends in .svg or .png is needed");
    break;
  case WIDTHS:
    snprintf(out, size, "whole numbers from 1 are needed, one a block and at most %d, such as 128,128",
             MN_MODEL_DEPTH);
    break;
  case EVERY:
    snprintf(out, size, "a number of steps such as 500, or of seconds such as 30s, is needed");
    break;
  case WORD:
  case PLAN:
  case PLACE:
    describe_words(words, sizeof words, row->argument);
    snprintf(out, size, "%s is needed", words);
    break;
  case FLAG:
    snprintf(out, size, "yes or no is needed");
    break;
  default:
    snprintf(out, size, "a name is needed");
    break;
  }
}

static mn_status refuse_value(int place, enum mn_command command, const char *value) {
  char remedy[256];
  describe(remedy, sizeof remedy, &table[place], command, value);
  return mn_fail(MN_USAGE, "--%s '%s': %s", table[place].name, value, remedy);
}

/* How many letters have to be put in, left out or changed to make `b` of `b`'s first `length` … of a's. */
static int distance(const char *a, size_t length, const char *b) {
  int row[64];
  size_t width = strlen(b);
  if (width >= COUNT(row)) return COUNT(row);
  for (size_t j = 0; j <= width; j++) row[j] = (int)j;
  for (size_t i = 1; i <= length; i++) {
    int corner = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= width; j++) {
      int change = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      int skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = change < skip ? change : skip;
    }
  }
  return row[width];
}

/* Close enough to be meant: one slip in a short word, two in a longer one. */
static int is_close(int slips, size_t length) {
  return slips <= (length > 4 ? 2 : 1) && 2 * (size_t)slips < length;
}

static mn_status refuse_unknown(enum mn_command command, const char *word, size_t length) {
  const char *says = commands[command].name;
  int best = -1, least = 0;
  for (int i = 0; i < ROWS; i++) {
    if (table[i].kind == HEADING) continue;
    int slips = distance(word + 2, length - 2, table[i].name);
    if (slips == 0) {
      int other = __builtin_ctz(table[i].commands);
      return mn_fail(MN_USAGE, "%s takes no --%s, which is an option of %s; minnow %s --help lists its own",
                     says, table[i].name, commands[other].name, says);
    }
    if (taken(i, command) && (best < 0 || slips < least)) best = i, least = slips;
  }
  if (best >= 0 && is_close(least, length - 2))
    return mn_fail(MN_USAGE, "%s has no option '%.*s'; did you mean --%s?", says, (int)length, word,
                   table[best].name);
  return mn_fail(MN_USAGE, "%s has no option '%.*s'; minnow %s --help lists those there are", says,
                 (int)length, word, says);
}

/* What is wrong with a word at which argp stopped: an option that is not there, is short for several, lacks
 * its value or takes none. MN_OK when nothing is. */
static mn_status diagnose(enum mn_command command, const char *word) {
  if (!word || word[0] != '-' || word[1] == 0) return MN_OK;
  if (word[1] != '-')
    return mn_fail(MN_USAGE,
                   "%s has no option '%s'; options are whole words behind two dashes, see minnow %s --help",
                   commands[command].name, word, commands[command].name);
  size_t length = strcspn(word, "=");
  int match = -1, matches = 0;
  char names[256] = "";
  for (int i = 0; i < ROWS; i++) {
    if (!taken(i, command) || strncmp(table[i].name, word + 2, length - 2) != 0) continue;
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s--%s", matches ? ", " : "", table[i].name);
    match = i, matches++;
    if (strlen(table[i].name) == length - 2) {
      matches = 1;
      break;
    }
  }
  if (matches == 0 || length == 2) return refuse_unknown(command, word, length);
  if (matches > 1)
    return mn_fail(MN_USAGE, "'%.*s' could be any of %s; write it out", (int)length, word, names);
  char remedy[256];
  describe(remedy, sizeof remedy, &table[match], command, NULL);
  if (table[match].kind == FLAG && word[length] == '=')
    return mn_fail(MN_USAGE, "'%s': --%s takes no value; leave out '%s'", word, table[match].name,
                   word + length);
  if (table[match].kind != FLAG && word[length] == 0)
    return mn_fail(MN_USAGE, "--%s has no value: %s", table[match].name, remedy);
  return MN_OK;
}

/* Reading a command line. */

struct reading {
  struct mn_options *options;
  mn_status status;
  int help;
  int stopped; /* the word behind the one at which argp stopped */
};

static mn_status take_files(struct mn_options *options, char **files, int count) {
  const char *name = commands[options->command].name, *arguments = commands[options->command].arguments;
  int most = commands[options->command].most;
  if (count > most && most == 0)
    return mn_fail(MN_USAGE, "'%s': %s takes options alone, each behind two dashes", files[0], name);
  if (count > most || count < commands[options->command].least)
    return mn_fail(MN_USAGE, "%s%s%s%s needs %s: minnow %s %s", count > most ? "'" : "",
                   count > most ? files[most] : "", count > most ? "' is too much: " : "", name,
                   commands[options->command].needs, name, arguments);
  for (int i = 0; i < count && i < COUNT(options->files); i++) options->files[i] = files[i];
  options->logs = files;
  options->log_count = count;
  return MN_OK;
}

static mn_status take_option(struct mn_options *options, int place, const char *text) {
  char value[MN_OPTION_VALUE];
  if (read_value(options, place, options->command, text ? text : "yes") != 0)
    return refuse_value(place, options->command, text);
  options->given[place / 64] |= (uint64_t)1 << place % 64;
  if (table[place].flags & CONFIG && show_value(value, sizeof value, options, place) >= (int)sizeof value)
    return mn_fail(MN_USAGE, "--%s '%s': at most %d characters fit a checkpoint's /config; shorten it",
                   table[place].name, text, MN_OPTION_VALUE - 1);
  return MN_OK;
}

static error_t take(int key, char *text, struct argp_state *state) {
  struct reading *reading = state->input;
  if (key == HELP_KEY) {
    reading->help = 1;
  } else if (key >= FIRST_KEY && key < FIRST_KEY + ROWS) {
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
  for (int i = 0; i < ROWS; i++) {
    const struct option_row *row = &table[i];
    struct argp_option option = {.name = row->name, .key = FIRST_KEY + i, .arg = row->argument};
    if (row->kind == HEADING) {
      int any = 0;
      for (int j = i + 1; j < ROWS && table[j].kind != HEADING; j++) any += taken(j, command);
      if (!any) continue;
      option.key = 0;
    } else if (!taken(i, command)) {
      continue;
    }
    option.doc = help_text(i, command);
    const char *initial = row->kind == HEADING ? NULL : initial_text(i, command);
    if (help && initial && asprintf(&help[i], "%s (default %s)", option.doc, initial) >= 0)
      option.doc = help[i];
    out[count++] = option;
  }
  out[count++] = (struct argp_option){.name = "help", .key = HELP_KEY, .doc = "this list", .group = -1};
  out[count] = (struct argp_option){0};
}

static void print_help(enum mn_command command) {
  struct argp_option options[ROWS + 2];
  char *help[ROWS] = {0}, name[64];
  fill_argp(options, help, command);
  const char *arguments = *commands[command].arguments ? commands[command].arguments : NULL;
  struct argp argp = {options, take, arguments, commands[command].summary, NULL, NULL, NULL};
  snprintf(name, sizeof name, "minnow %s", commands[command].name);
  argp_help(&argp, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_DOC | ARGP_HELP_LONG, name);
  for (int i = 0; i < ROWS; i++) free(help[i]);
}

static void print_commands(void) {
  puts("Usage: minnow COMMAND [OPTION...]\nA minimal neural-net engine that trains.\n");
  for (int i = 0; i < MN_COMMANDS; i++)
    printf("  %s %-*s%s\n", commands[i].name, 14 - (int)strlen(commands[i].name), commands[i].arguments,
           commands[i].summary);
  puts("\nminnow COMMAND --help lists a command's options, minnow --version says which minnow this is.\n"
       "Exit status: 0 done; 1 a check failed or training diverged; 64 usage; 65 bad data; 66 no input;\n"
       "69 no device; 70 a library failed; 71 out of memory; 73 cannot create; 74 input or output failed;\n"
       "75 stopped by a signal, to be resumed.");
}

static mn_status find_command(enum mn_command *out, const char *word) {
  int best = 0, least = 64;
  for (int i = 0; i < MN_COMMANDS; i++) {
    int slips = distance(word, strlen(word), commands[i].name);
    if (slips == 0) {
      *out = (enum mn_command)i;
      return MN_OK;
    }
    if (slips < least) best = i, least = slips;
  }
  if (word[0] == '-')
    return mn_fail(MN_USAGE,
                   "'%s' comes before a command; write minnow COMMAND first, as minnow --help lists them",
                   word);
  if (is_close(least, strlen(word)))
    return mn_fail(MN_USAGE, "no command is called '%s'; did you mean %s?", word, commands[best].name);
  return mn_fail(MN_USAGE, "no command is called '%s'; minnow --help lists those there are", word);
}

static void set_defaults(struct mn_options *options, enum mn_command command) {
  memset(options, 0, sizeof *options);
  options->command = command;
  for (int i = 0; i < ROWS; i++) {
    if (table[i].kind == HEADING || !initial_text(i, command)) continue;
    /* A command that does not take an option gets the default of those that do, "auto" included. */
    const char *text = taken(i, command) ? initial_text(i, command) : table[i].initial;
    int automatic = text && table[i].automatic && strcmp(text, "auto") == 0;
    if (text)
      MN_REQUIRE((automatic ? read_auto(options, &table[i]) : read_value(options, i, command, text)) == 0);
  }
}

/* Whether an option has a value that means something, from wherever. */
static int is_set(const struct mn_options *options, int place) {
  const void *field = (const char *)options + table[place].offset;
  switch (table[place].kind) {
  case INTEGER:
    return *(const int64_t *)field > 0;
  case SMALL:
    return *(const int *)field > 0;
  default:
    return *(const char *const *)field != NULL;
  }
}

/* resuming: options that /config may still set are not asked for yet. */
static mn_status check_rules(const struct mn_options *options, int resuming) {
  for (int i = 0; i < COUNT(rules); i++) {
    int row = find(rules[i].name), other = find(rules[i].other);
    if (!is_given(options, row) || !taken(other, options->command)) continue;
    if (!rules[i].needs && is_given(options, other))
      return mn_fail(MN_USAGE, "--%s and --%s exclude each other; leave one out", table[row].name,
                     table[other].name);
    if (!rules[i].needs || is_set(options, other) || (resuming && table[other].flags & CONFIG)) continue;
    return mn_fail(MN_USAGE, "--%s needs --%s %s", table[row].name, table[other].name, table[other].argument);
  }
  return MN_OK;
}

static mn_status check_needed(const struct mn_options *o) {
  unsigned command = 1u << o->command;
  const char *name = commands[o->command].name;
  if (o->command == MN_COMMAND_TRAIN && !o->data && !o->synthetic)
    return mn_fail(MN_USAGE, "train needs rows: --data F for a file's, or --synthetic n for random ones");
  if (o->command == MN_COMMAND_TRAIN && o->synthetic && !o->in)
    return mn_fail(MN_USAGE, "--synthetic needs --in I, the number of inputs");
  if (o->command == MN_COMMAND_TRAIN && o->depth == 0)
    return mn_fail(MN_USAGE, "train needs --hidden, the channels of each block, such as --hidden 128,128");
  if (command & (EVAL | PREDICT) && !o->checkpoint)
    return mn_fail(MN_USAGE, "%s needs --checkpoint F, a file that train wrote", name);
  if (command & (EVAL | PREDICT) && !o->data)
    return mn_fail(MN_USAGE, "%s needs --data F, an HDF5 file of rows", name);
  if (command & (PREDICT | PLOT) && !o->out)
    return mn_fail(MN_USAGE, "%s needs --out F, the file to write", name);
  if (o->command == MN_COMMAND_PLOT && !is_picture(o->out))
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

/* argp, silent: what it stopped at is for `diagnose` to say. */
static mn_status read_words(struct reading *reading, int argc, char **argv) {
  enum mn_command command = reading->options->command;
  struct argp_option options[ROWS + 2];
  fill_argp(options, NULL, command);
  struct argp argp = {options, take, NULL, NULL, NULL, NULL, NULL};
  error_t error = argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP, NULL, reading);
  if (error == 0 || reading->status != MN_OK) return reading->status;
  if (error == ENOMEM) return mn_fail(MN_NO_MEMORY, "no memory to read the options");
  /* getopt has passed the word that it did not like, unless it was in the middle of it. */
  int next = reading->stopped;
  if (next > 0 && next <= argc) MN_TRY(diagnose(command, argv[next - 1]));
  if (next < argc) MN_TRY(diagnose(command, argv[next]));
  return mn_fail(MN_USAGE, "these options cannot be read; minnow %s --help lists those there are",
                 commands[command].name);
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

/* /config. */

int mn_options_config(const struct mn_options *options, struct mn_option_text *out, int room) {
  int count = 0;
  for (int i = 0; i < ROWS; i++) {
    if (!taken(i, MN_COMMAND_TRAIN) || !(table[i].flags & CONFIG)) continue;
    MN_REQUIRE(count < room);
    struct mn_option_text *text = &out[count++];
    snprintf(text->name, sizeof text->name, "%s", table[i].name);
    show_value(text->value, sizeof text->value, options, i);
    text->given = is_given(options, i);
  }
  return count;
}

/* Of two options that exclude each other one is unset, which no command line can say: "0" or "". */
static int read_unset(struct mn_options *options, int place, const char *text) {
  void *field = (char *)options + table[place].offset;
  int excluded = 0;
  for (int i = 0; i < COUNT(rules); i++)
    excluded |= !rules[i].needs && (strcmp(rules[i].name, table[place].name) == 0 ||
                                    strcmp(rules[i].other, table[place].name) == 0);
  if (!excluded || strcmp(text, table[place].kind == INTEGER ? "0" : "") != 0) return -1;
  if (table[place].kind == INTEGER)
    *(int64_t *)field = 0;
  else
    *(const char **)field = NULL;
  return 0;
}

mn_status mn_options_set(struct mn_options *options, const char *name, const char *value) {
  int place = find(name);
  if (place < 0 || !(table[place].flags & CONFIG))
    return mn_fail(MN_BAD_DATA, "/config has '%s', which no run here has; was it written by another minnow?",
                   name);
  if (read_unset(options, place, value) == 0) return MN_OK;
  if (read_value(options, place, MN_COMMAND_TRAIN, value) == 0) return MN_OK;
  char remedy[256];
  describe(remedy, sizeof remedy, &table[place], MN_COMMAND_TRAIN, value);
  return mn_fail(MN_BAD_DATA, "/config has %s '%s': %s", name, value, remedy);
}
