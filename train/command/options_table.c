/* The table of options, from their list, and the table of commands. */
#include "train/command/options.h"

#include <string.h>

#include "data/placement.h"
#include "kernels/device.h"
#include "train/defaults.h"
#include "train/optimizer.h"
#include "train/scores.h"
#include "train/trainer.h"

/* Sets of commands. */
enum {
  TRAIN = 1 << MN_COMMAND_TRAIN,
  EVAL = 1 << MN_COMMAND_EVAL,
  PREDICT = 1 << MN_COMMAND_PREDICT,
  EXPORT = 1 << MN_COMMAND_EXPORT,
  GRADCHECK = 1 << MN_COMMAND_GRADCHECK,
  PARITY = 1 << MN_COMMAND_PARITY,
  BENCH = 1 << MN_COMMAND_BENCH,
  PLOT = 1 << MN_COMMAND_PLOT,
  FILES = 1 << MN_COMMAND_INFO | 1 << MN_COMMAND_VERIFY | 1 << MN_COMMAND_DIFF,
  READS = EVAL | PREDICT,
  RUNS = TRAIN | READS,
  CHECKS = GRADCHECK | PARITY | BENCH,
};

/* Short, so that a row reads at a glance. */
enum {
  CONFIG = MN_OPTION_CONFIG,
  ABOVE = MN_OPTION_ABOVE,
  BELOW = MN_OPTION_BELOW,
  COURSE = MN_OPTION_CONFIG | MN_OPTION_COURSE,
  KEPT = MN_OPTION_KEPT,
};

static const char *const parts[] = {
    [MN_ROWS_AUTO] = "auto", [MN_ROWS_TRAIN] = "train", [MN_ROWS_TEST] = "test", [MN_ROWS_ALL] = "all", NULL};

static const char *const standards[] = {
    [MN_STANDARDIZE_NO] = "no", [MN_STANDARDIZE_COLUMNS] = "columns", [MN_STANDARDIZE_ONE] = "one", NULL};

static const char *const no_or_yes[] = {"no", "yes", NULL}, *const linear_or_log[] = {"linear", "log", NULL};

/* 2²² and 2⁴⁰: the most channels or inputs, and what bounds every count. */
#define WIDEST MN_OPTION_WIDEST
#define LARGEST 1099511627776.0

/* A number that a macro names, as text. */
#define TEXT_OF(number) TEXT_OF_IT(number)
#define TEXT_OF_IT(number) #number

static const struct mn_option_row table[] = {
#define HEADING(words, example) {.kind = MN_KIND_HEADING, .help = words, .argument = example},
#define OPTION(kind, field, name, argument, commands, flags, low, high, initial, words, ...)                 \
  {name, argument, commands,      MN_KIND_##kind, offsetof(struct mn_options, field), flags, low,            \
   high, initial,  .help = words, ##__VA_ARGS__},
#include "train/command/options_list.h"
};
enum { ROWS = sizeof table / sizeof *table };
_Static_assert(ROWS <= (int)MN_OPTION_MOST, "room for each option");
const struct mn_option_row *const mn_option_rows = table;
const int mn_option_count = ROWS;

/* A command's own defaults and help; NULL keeps the table's. */
static const struct {
  unsigned commands; /* as in struct mn_option_row */
  const char *name, *initial, *help;
} variants[] = {
    {GRADCHECK, "batch", "4", "rows a batch"},
    {GRADCHECK, "in", "6", "inputs"},
    {GRADCHECK, "hidden", "8", NULL},
    {GRADCHECK, "groups", "2", "groups of each block; has to divide every --hidden"},
    {GRADCHECK, "head", "0", "outputs of a linear head, 0: none"},
    {GRADCHECK, "loss", NULL, "loss; auto: the sum of dy*y with random dy"},
    {GRADCHECK, "tolerance", "1e-6", "largest relative error"},
    {BENCH, "batch", "1024", "rows a batch"},
    {BENCH, "optimizer", "sgd", NULL},
    {BENCH, "weight-decay", "0", "on every parameter; decoupled from the gradient with adamw"},
    {BENCH, "in", NULL, "inputs; auto: 8192, and 1024 on the CPU"},
    {BENCH, "hidden", "auto", "channels of each block; auto: 8192, and 1024 on the CPU"},
    {BENCH, "head", "0", "outputs of a linear head, 0: none"},
    {BENCH, "loss", "mse", "loss, of random targets or labels"},
    {BENCH, "groups", "auto", "groups of each block; auto: of 16 channels each, or one"},
    {READS, "precision", "auto", "of the matrix products' inputs; auto: the checkpoint's"},
    {READS, "run", NULL, "folder of a run, or its best.h5 or any checkpoint, to read the parameters from"},
    {READS, "groups", "auto", "groups of each block; auto: the checkpoint's; weights alone have none"},
    {READS, "eps", NULL, "added to the variance, of weights alone"},
    {READS, "slope", NULL, "of the leaky ReLU below 0, of weights alone"},
    {READS, "loss", NULL, "of weights alone; auto: what the targets are for, mse without any"},
    {PREDICT, "y", NULL, "dataset of the targets or labels, copied to --out if it is there"},
    {PREDICT, "out", NULL,
     "CSV to write, the predictions in the target's words or unit; or HDF5: y [n, K], the outputs (for "
     "classes logits); label [n], the class of the largest; "
     "row [n], each row's number in its part of --data; target, the y of --data; classes, the names of "
     "labels that are words"},
    {PLOT, "out", NULL, "picture to write, .svg or .png"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

const struct mn_command_row mn_command_rows[] = {
    {"train", "", 0, 0, "", "Train a stack of blocks on the rows of --data or --synthetic.",
     "--data rows.h5 --hidden 128,128 --run digits"},
    {"eval", "", 0, 0, "", "Loss and scores of a checkpoint on a dataset.", "--run digits --data rows.h5"},
    {"predict", "", 0, 0, "", "Write the outputs of a checkpoint for the rows of a dataset.",
     "--run digits --data rows.h5 --out outputs.h5"},
    {"export", "RUN", 1, 1, "one run", "Write a model as a header of C, or as Python.",
     "digits --c digits.h"},
    {"gradcheck", "", 0, 0, "", "Check every gradient against central differences, in fp64.",
     "--hidden 8,8 --in 6 --groups 2"},
    {"parity", "F", 1, 1, "one file of cases", "Run the cases of F and print the error of each tensor.",
     "tests/golden/block.h5"},
    {"bench", "", 0, 0, "", "Time a training step, bare products and the copy rate.",
     "--batch 1024 --in 8192 --hidden 8192 --groups 512 --precision bf16"},
    {"plot", "LOG...", 1, 1 << 20, "one log or several", "Draw loss, metric and learning rate of runs.",
     "digits --out digits.svg"},
    {"info", "F", 1, 1, "one HDF5 file", "Say what a dataset or a checkpoint holds.", "digits"},
    {"verify", "F", 1, 1, "one HDF5 file", "Check every checksum of a file.", "digits"},
    {"diff", "A B", 2, 2, "two checkpoints", "Say where two checkpoints differ, in units in the last place.",
     "digits try"},
};
_Static_assert(sizeof mn_command_rows / sizeof *mn_command_rows == MN_COMMANDS, "a row for each command");

int mn_option_taken(int index, enum mn_command command) {
  return table[index].kind != MN_KIND_HEADING && table[index].commands >> command & 1;
}

int mn_option_find(const char *name) {
  for (int i = 0; i < mn_option_count; i++)
    if (table[i].name && strcmp(table[i].name, name) == 0) return i;
  return -1;
}

int mn_option_excludes(int index) {
  return table[index].excludes ? mn_option_find(table[index].excludes) : -1;
}

int mn_options_given(const struct mn_options *options, const char *name) {
  int index = mn_option_find(name);
  MN_REQUIRE(index >= 0);
  return options->given[index];
}

struct mn_option_row mn_option_of(int index, enum mn_command command) {
  struct mn_option_row row = table[index];
  for (int i = 0; i < VARIANTS; i++) {
    if (!(variants[i].commands >> command & 1) || strcmp(variants[i].name, row.name) != 0) continue;
    if (variants[i].initial) row.initial = variants[i].initial;
    if (variants[i].help) row.help = variants[i].help;
  }
  return row;
}
