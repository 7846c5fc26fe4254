/* The table: every option has one row, with its name, the commands that take it, its kind and bounds, its
 * default as the user would write it, and its help. Reading, --help, /config and every error message come
 * from that row; a new option is a row here and a field in struct mn_options, and nothing else. Beside it,
 * the commands, and which options go together. */
#include "train/command/options_table.h"

#include <string.h>

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

/* Short, so that a row reads at a glance. */
enum { CONFIG = MN_OPTION_CONFIG, ABOVE = MN_OPTION_ABOVE, BELOW = MN_OPTION_BELOW };

#define AT(field) offsetof(struct mn_options, field)
#define LARGEST 1099511627776.0 /* 2⁴⁰, which bounds every count */

static const struct mn_option_row table[] = {
    {.kind = MN_KIND_HEADING, .help = "Rows:"},
    {"data", "F", RUNS, MN_KIND_TEXT, CONFIG, AT(data),
     .help = "HDF5 file with x [n, I] and y, or train/ and test/ of them"},
    {"x", "NAME", RUNS, MN_KIND_TEXT, CONFIG, AT(x_name), .initial = "x", .help = "dataset of the inputs"},
    {"y", "NAME", TRAIN | EVAL, MN_KIND_TEXT, CONFIG, AT(y_name), .initial = "y",
     .help = "dataset of the targets or labels"},
    {"synthetic", "n", TRAIN, MN_KIND_INTEGER, CONFIG, AT(synthetic), 1, LARGEST,
     .help = "n rows of a random teacher instead of --data"},
    {"noise", "S", TRAIN, MN_KIND_REAL, CONFIG, AT(noise), 0, 0, "0.1",
     .help = "standard deviation of the synthetic targets' noise"},
    {"test-rows", "n", TRAIN, MN_KIND_INTEGER, CONFIG, AT(test_rows), 0, LARGEST, "auto", TRAIN, -1,
     "synthetic rows held out for evaluation, 0: none; auto: a tenth of --synthetic"},
    {.kind = MN_KIND_HEADING, .help = "Model:"},
    {"in", "I", TRAIN | GRADCHECK | BENCH, MN_KIND_INTEGER, CONFIG, AT(in), 1, MN_OPTION_WIDEST, "auto",
     TRAIN | BENCH, 0, "inputs, with --synthetic"},
    {"hidden", "C,C...", TRAIN | GRADCHECK | BENCH, MN_KIND_WIDTHS, CONFIG, AT(hidden), 1, MN_OPTION_WIDEST,
     NULL, BENCH, 0, "channels of each block, such as 128,128"},
    {"groups", "G", TRAIN | GRADCHECK | BENCH, MN_KIND_INTEGER, CONFIG, AT(groups), 1, MN_OPTION_WIDEST, "8",
     BENCH, 0, "groups of each block; has to divide every --hidden"},
    {"head", "K", TRAIN | GRADCHECK, MN_KIND_INTEGER, CONFIG, AT(head), 0, MN_OPTION_WIDEST, "auto", TRAIN,
     -1,
     "outputs of a linear head, 0: none; auto: the largest label + 1, or the targets' width where the last "
     "block has another"},
    {"eps", "E", TRAIN | GRADCHECK, MN_KIND_REAL, CONFIG | ABOVE, AT(eps), 0, 0, "1e-5",
     .help = "added to the variance"},
    {"slope", "S", TRAIN | GRADCHECK, MN_KIND_REAL, CONFIG, AT(slope), 0, 0, "0.01",
     .help = "of the leaky ReLU below 0"},
    {"loss", "mse|cross-entropy", TRAIN | GRADCHECK, MN_KIND_WORD, CONFIG, AT(loss), 0, 0, "auto",
     TRAIN | GRADCHECK, 0, "loss; auto: what the targets are for, reals mse and labels cross-entropy"},
    {"plan", "none|activation|norm-activation|tail|linear-norm|block", TRAIN | GRADCHECK, MN_KIND_PLAN,
     CONFIG, AT(plan), 0, 0, "block", .help = "which operations are fused"},
    {.kind = MN_KIND_HEADING, .help = "Training:"},
    {"epochs", "N", TRAIN, MN_KIND_INTEGER, CONFIG, AT(epochs), 1, LARGEST, "10",
     .help = "passes over the rows: the horizon of the schedule"},
    {"steps", "N", TRAIN, MN_KIND_INTEGER, CONFIG, AT(steps), 1, LARGEST,
     .help = "optimizer steps, instead of --epochs"},
    {"stop-at", "S", TRAIN, MN_KIND_INTEGER, 0, AT(stop_at), 1, LARGEST,
     .help = "end early, after step S, to be resumed; the horizon stays"},
    {"batch", "N", TRAIN | GRADCHECK | BENCH, MN_KIND_INTEGER, CONFIG, AT(batch), 1, LARGEST, "64",
     .help = "rows a batch"},
    {"lr", "RATE", TRAIN, MN_KIND_REAL, CONFIG | ABOVE, AT(lr), 0, 0, "0.05", .help = "learning rate"},
    {"momentum", "M", TRAIN | BENCH, MN_KIND_REAL, CONFIG | BELOW, AT(momentum), 0, 1, "0.9",
     .help = "of SGD"},
    {"weight-decay", "D", TRAIN | BENCH, MN_KIND_REAL, CONFIG, AT(weight_decay), 0, 0, "0",
     .help = "of SGD, on every parameter"},
    {"nesterov", NULL, TRAIN, MN_KIND_FLAG, CONFIG, AT(nesterov), .help = "Nesterov's momentum"},
    {"schedule", "constant|cosine|step", TRAIN, MN_KIND_WORD, CONFIG, AT(schedule), 0, 0, "constant",
     .help = "of the learning rate"},
    {"step-every", "N", TRAIN, MN_KIND_INTEGER, CONFIG, AT(step_every), 1, LARGEST, "auto", TRAIN, 0,
     "steps between the drops of --schedule step; auto: a third of the horizon"},
    {"step-factor", "F", TRAIN, MN_KIND_REAL, CONFIG | ABOVE, AT(step_factor), 0, 1, "0.1",
     .help = "what each drop multiplies the rate by"},
    {"warmup", "N", TRAIN, MN_KIND_INTEGER, CONFIG, AT(warmup), 0, LARGEST, "0",
     .help = "steps of linear warm-up"},
    {"clip", "NORM", TRAIN, MN_KIND_REAL, CONFIG, AT(clip), 0, 0, "0",
     .help = "largest norm of the whole gradient, 0: no clipping"},
    {"accumulate", "N", TRAIN, MN_KIND_SMALL, CONFIG, AT(accumulate), 1, 1e6, "1",
     .help = "batches an optimizer step"},
    {"seed", "N", TRAIN | GRADCHECK | BENCH, MN_KIND_SEED, CONFIG, AT(seed), 0, 0, "0",
     .help = "of everything random"},
    {.kind = MN_KIND_HEADING, .help = "Device:"},
    {"device", "auto|cpu|cuda|cuda:N", RUNS | CHECKS, MN_KIND_PLACE, 0, AT(device), 0, 0, "auto",
     .help = "auto: the GPU where there is one"},
    {"precision", "fp64|fp32|tf32|bf16", RUNS | PARITY | BENCH, MN_KIND_WORD, CONFIG, AT(precision), 0, 0,
     "fp32", .help = "of the matrix products' inputs; tf32 runs as fp32 on the CPU"},
    {.kind = MN_KIND_HEADING, .help = "Files:"},
    {"checkpoint", "F", RUNS, MN_KIND_TEXT, 0, AT(checkpoint),
     .help = "HDF5 file of the parameters and of all that resuming needs"},
    {"save-every", "N|30s", TRAIN, MN_KIND_EVERY, 0, AT(save_every), 1, 1e9,
     .help = "save each N steps or so many seconds, not at the end alone"},
    {"keep", "K", TRAIN, MN_KIND_SMALL, 0, AT(keep), 1, 1000, "1",
     .help = "checkpoints to keep: run.h5, run.1.h5, run.2.h5 …"},
    {"resume", NULL, TRAIN, MN_KIND_FLAG, 0, AT(resume), .help = "go on from --checkpoint, with its options"},
    {"log", "F.jsonl", TRAIN, MN_KIND_TEXT, 0, AT(log),
     .help = "write the run's log, one JSON object a line"},
    {"log-every", "N", TRAIN, MN_KIND_INTEGER, 0, AT(log_every), 1, LARGEST, "auto", TRAIN, 0,
     "steps a line of --log; auto: about 1000 lines a run"},
    {"plot", "F.svg", TRAIN, MN_KIND_PICTURE, 0, AT(plot),
     .help = "draw the --log at the end, as SVG or PNG"},
    {"out", "F", PREDICT | PLOT, MN_KIND_TEXT, 0, AT(out), .help = "file to write"},
    {.kind = MN_KIND_HEADING, .help = "Output:"},
    {"tolerance", "T", GRADCHECK | PARITY, MN_KIND_REAL, ABOVE, AT(tolerance), 0, 0, "auto", PARITY, 0,
     "largest relative error; auto: the precision's own"},
    {"plans", NULL, BENCH, MN_KIND_FLAG, 0, AT(plans), .help = "the fusion plans beside each other"},
    {"json", NULL, TRAIN | EVAL | CHECKS | FILES, MN_KIND_FLAG, 0, AT(json),
     .help = "one JSON object on stdout"},
    {"verbose", NULL, TRAIN, MN_KIND_FLAG, 0, AT(verbose), .help = "say what is fused, and more"},
    {"quiet", NULL, RUNS | CHECKS, MN_KIND_FLAG, 0, AT(quiet), .help = "no progress and no notes on stderr"},
};
enum { ROWS = sizeof table / sizeof *table };
_Static_assert(ROWS <= (int)MN_OPTION_MOST, "a bit for each option");
const struct mn_option_row *const mn_option_rows = table;
const int mn_option_count = ROWS;

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
enum { VARIANTS = sizeof variants / sizeof *variants };

const struct mn_command_row mn_command_rows[MN_COMMANDS] = {
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

const struct mn_option_rule mn_option_rules[] = {
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
    {NULL, NULL, 0},
};

const char *mn_command_name(enum mn_command command) {
  return mn_command_rows[command].name;
}

int mn_option_taken(int place, enum mn_command command) {
  return table[place].kind != MN_KIND_HEADING && table[place].commands >> command & 1;
}

int mn_option_find(const char *name) {
  for (int i = 0; i < mn_option_count; i++)
    if (table[i].name && strcmp(table[i].name, name) == 0) return i;
  return -1;
}

const char *mn_option_initial(int place, enum mn_command command) {
  for (int i = 0; i < VARIANTS; i++)
    if (variants[i].command == command && strcmp(variants[i].name, table[place].name) == 0 &&
        variants[i].initial)
      return variants[i].initial;
  return table[place].initial;
}

const char *mn_option_help(int place, enum mn_command command) {
  for (int i = 0; i < VARIANTS; i++)
    if (variants[i].command == command && table[place].name &&
        strcmp(variants[i].name, table[place].name) == 0 && variants[i].help)
      return variants[i].help;
  return table[place].help;
}
