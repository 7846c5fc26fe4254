/* Every option has one row here: its name, the commands that take it, its kind and bounds, its default as the
 * user would write it, and its help. A new option needs only a row and a field in struct mn_options. The
 * commands, and which options go together, stand below. */
#include "train/command/options_table.h"

#include <string.h>

#include "data/placement.h"
#include "engine/context.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/trainer.h"

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

/* A row's kind and field. A field of another type than the kind's does not compile. */
#define FIELD(field, type)                                                                                   \
  _Generic(((struct mn_options *)0)->field, type : offsetof(struct mn_options, field))
#define FLAG(field) MN_KIND_FLAG, FIELD(field, int)
#define INTEGER(field) MN_KIND_INTEGER, FIELD(field, int64_t)
#define SEED(field) MN_KIND_SEED, FIELD(field, uint64_t)
#define REAL(field) MN_KIND_REAL, FIELD(field, double)
#define TEXT(field) MN_KIND_TEXT, FIELD(field, const char *)
#define WORD(field) MN_KIND_WORD, FIELD(field, const char *)
#define WIDTHS(field) MN_KIND_WIDTHS, FIELD(field, int64_t *)
#define EVERY(field) MN_KIND_EVERY, FIELD(field, int64_t)

static const char *const parts[] = {"auto", "train", "test", "all", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", "cuda:N", NULL};

#define LARGEST 1099511627776.0 /* 2⁴⁰, which bounds every count */

static const struct mn_option_row table[] = {
    {.kind = MN_KIND_HEADING, .help = "Rows", .argument = "--data rows.h5 --validation 0.1 --standardize"},
    {"data", "F", RUNS, TEXT(data), COURSE,
     .help = "HDF5 file with x [n, I] and y, or train/ and test/ of them"},
    {"x", "NAME", RUNS, TEXT(x_name), COURSE, .initial = "x", .help = "dataset of the inputs"},
    {"y", "NAME", RUNS, TEXT(y_name), COURSE, .initial = "y", .help = "dataset of the targets or labels"},
    {"validation", "F", TRAIN, REAL(validation), CONFIG | BELOW, 0, 1, "0",
     .help = "of --data without a test part, the share of rows, of each class alike, that is held out for "
             "evaluation"},
    {"standardize", NULL, TRAIN, FLAG(standardize), CONFIG,
     .help =
         "from each column of x subtract its mean over the rows to train on, and divide by its deviation; "
         "eval and predict do the same, by the checkpoint's numbers"},
    {"part", NULL, READS, WORD(part), 0, 0, 0, "auto",
     .help = "which rows: the test part's, the train part's, or all of --x, a name from the file's root on; "
             "a run "
             "with --validation has parts of its own; auto: the test part's if there is one, else all",
     .words = parts},
    {"place", NULL, RUNS, WORD(place), 0, 0, 0, "auto",
     .help = "where the rows wait: in the device's memory, in host memory, or in the file; auto: the first "
             "that has room",
     .words = mn_place_words},
    {.kind = MN_KIND_HEADING, .help = "Random rows", .argument = "--synthetic 4096 --in 64 --hidden 64"},
    {"synthetic", "n", TRAIN, INTEGER(synthetic), CONFIG, 1, LARGEST,
     .help = "n rows of a random teacher instead of --data"},
    {"noise", "S", TRAIN, REAL(noise), CONFIG, 0, 0, "0.1",
     .help = "standard deviation of the synthetic targets' noise"},
    {"test-rows", "n", TRAIN, INTEGER(test_rows), CONFIG, 0, LARGEST, "auto", TRAIN, -1,
     .help = "synthetic rows held out for evaluation, 0: none; auto: a tenth of --synthetic"},
    {.kind = MN_KIND_HEADING, .help = "Model", .argument = "--hidden 256,128 --groups 16"},
    {"in", "I", TRAIN | GRADCHECK | BENCH, INTEGER(in), CONFIG, 1, MN_OPTION_WIDEST, "auto", TRAIN | BENCH, 0,
     .help = "inputs, with --synthetic"},
    {"hidden", "C,C...", TRAIN | GRADCHECK | BENCH, WIDTHS(hidden), CONFIG, 1, MN_OPTION_WIDEST, NULL, BENCH,
     0, .help = "channels of each block, such as 128,128"},
    {"groups", "G", RUNS | GRADCHECK | BENCH, INTEGER(groups), CONFIG, 1, MN_OPTION_WIDEST, "8",
     READS | BENCH, 0, .help = "groups of each block; has to divide every --hidden"},
    {"head", "K", TRAIN | GRADCHECK | BENCH, INTEGER(head), CONFIG, 0, MN_OPTION_WIDEST, "auto", TRAIN, -1,
     .help =
         "outputs of a linear head, 0: none; auto: the largest label + 1, or the targets' width where the "
         "last block has another"},
    {"eps", "E", RUNS | GRADCHECK, REAL(eps), CONFIG | ABOVE, 0, 0, "1e-5", .help = "added to the variance"},
    {"slope", "S", RUNS | GRADCHECK, REAL(slope), CONFIG, 0, 0, "0.01", .help = "of the leaky ReLU below 0"},
    {"loss", NULL, RUNS | GRADCHECK | BENCH, WORD(loss), COURSE, 0, 0, "auto", RUNS | GRADCHECK, 0,
     .help = "loss; auto: what the targets are for, reals mse and labels cross-entropy",
     .words = mn_loss_words},
    {"plan", NULL, TRAIN | GRADCHECK, WORD(plan), CONFIG, 0, 0, "block", .help = "which operations are fused",
     .words = mn_plan_words},
    {.kind = MN_KIND_HEADING, .help = "How long", .argument = "--epochs 30 --patience 5"},
    {"epochs", "N", TRAIN, INTEGER(epochs), COURSE, 1, LARGEST, "10",
     .help = "passes over the rows: the horizon of the schedule"},
    {"steps", "N", TRAIN, INTEGER(steps), COURSE, 1, LARGEST, .help = "optimizer steps, instead of --epochs"},
    {"stop-at", "S", TRAIN, INTEGER(stop_at), 0, 1, LARGEST,
     .help = "end early, after step S, to be resumed; the horizon stays"},
    {"patience", "N", TRAIN, INTEGER(patience), COURSE, 0, LARGEST, "0",
     .help = "end after N epochs in a row without a better test metric, 0: never"},
    {"dry-run", NULL, TRAIN, FLAG(dry_run), 0,
     .help = "open all that the run needs, say what it takes, and train nothing"},
    {.kind = MN_KIND_HEADING, .help = "Training", .argument = "--batch 256 --lr 0.003 --weight-decay 0.01"},
    {"batch", "N", TRAIN | GRADCHECK | BENCH, INTEGER(batch), CONFIG, 1, LARGEST, "64",
     .help = "rows a batch"},
    {"optimizer", NULL, TRAIN | BENCH, WORD(optimizer), CONFIG, 0, 0, "adamw",
     .help = "update rule of every parameter, PyTorch's; adamw without --weight-decay is Adam",
     .words = mn_optimizer_words},
    {"lr", "RATE", TRAIN, REAL(lr), COURSE | ABOVE, 0, 0, "0.007",
     .help = "learning rate; of sgd by default 0.05"},
    {"momentum", "M", TRAIN | BENCH, REAL(momentum), COURSE | BELOW, 0, 1, "0.9",
     .help = "of sgd, which it implies"},
    {"weight-decay", "D", TRAIN | BENCH, REAL(weight_decay), COURSE, 0, 0, "0",
     .help = "on every parameter; decoupled from the gradient with adamw"},
    {"nesterov", NULL, TRAIN, FLAG(nesterov), COURSE,
     .help = "Nesterov's momentum, of sgd, which it implies"},
    {"beta1", "B", TRAIN, REAL(beta1), COURSE | BELOW, 0, 1, "0.9",
     .help = "of adamw: decay of the mean of gradients"},
    {"beta2", "B", TRAIN, REAL(beta2), COURSE | BELOW, 0, 1, "0.98",
     .help = "of adamw: decay of the mean of squared gradients"},
    {"adam-eps", "E", TRAIN, REAL(adam_eps), COURSE | ABOVE, 0, 0, "1e-8",
     .help = "of adamw: added to the root of the mean of squares"},
    {"clip", "NORM", TRAIN, REAL(clip), COURSE, 0, 0, "0",
     .help = "largest norm of the whole gradient, 0: no clipping"},
    {"accumulate", "N", TRAIN, INTEGER(accumulate), CONFIG, 1, 1e6, "1", .help = "batches an optimizer step"},
    {"on-nonfinite", NULL, TRAIN, WORD(on_nonfinite), COURSE, 0, 0, "stop",
     .help = "end at a step in which a value is not finite, or skip that step: it updates nothing; the tenth "
             "such step in a row ends the run in any case",
     .words = mn_nonfinite_words},
    {"seed", "N", TRAIN | GRADCHECK | BENCH, SEED(seed), CONFIG, 0, 0, "0", .help = "of everything random"},
    {.kind = MN_KIND_HEADING,
     .help = "Schedule of the learning rate",
     .argument = "--schedule step --step-every 1000"},
    {"schedule", NULL, TRAIN, WORD(schedule), COURSE, 0, 0, "cosine",
     .help = "of the learning rate; of sgd by default constant", .words = mn_schedule_words},
    {"step-every", "N", TRAIN, INTEGER(step_every), COURSE, 1, LARGEST, "auto", TRAIN, 0,
     .help = "steps between the drops of --schedule step; auto: a third of the horizon"},
    {"step-factor", "F", TRAIN, REAL(step_factor), COURSE | ABOVE, 0, 1, "0.1",
     .help = "what each drop multiplies the rate by"},
    {"warmup", "N", TRAIN, INTEGER(warmup), COURSE, 0, LARGEST, "auto", TRAIN, -1,
     .help = "steps of linear warm-up; auto: 100, but at most a tenth of all"},
    {.kind = MN_KIND_HEADING, .help = "Device", .argument = "--device cuda:1 --precision bf16"},
    {"device", NULL, RUNS | CHECKS, WORD(device), 0, 0, 0, "auto", .help = "auto: the GPU where there is one",
     .words = devices},
    {"threads", "N", RUNS | CHECKS, INTEGER(threads), 0, 1, 1024, "auto", RUNS | CHECKS, 0,
     .help = "that the CPU computes with; auto: OMP_NUM_THREADS, or all cores; of these a quarter, or one, "
             "for small products"},
    {"precision", NULL, RUNS | PARITY | BENCH, WORD(precision), CONFIG, 0, 0, "fp32", EVAL | PREDICT, 0,
     .help = "of the matrix products' inputs; on the CPU tf32 and fp16x3 run as fp32, fp16x3 also on GPUs "
             "other than Hopper",
     .words = mn_precision_words},
    {.kind = MN_KIND_HEADING, .help = "Several GPUs or hosts", .argument = "--ranks 4x2"},
    {"ranks", "PxD", TRAIN, TEXT(ranks), 0, .initial = "auto",
     .help =
         "of the processes that mpirun or srun started, P shards divide the groups of every block, and D "
         "replicas of these the rows of a batch; auto: as many shards as a host has ranks, if their number "
         "divides the groups; 1: the process trains alone, whatever started it"},
    {"rank-timeout", "SECONDS", TRAIN, INTEGER(rank_timeout), 0, 0, 1e6, "30",
     .help = "among ranks: end the run when one does not come, or does not get on, for so long; 0: wait for "
             "ever"},
    {.kind = MN_KIND_HEADING,
     .help = "Checkpoints",
     .argument = "--checkpoint run.h5 --save-every 60s --best"},
    {"checkpoint", "F", RUNS, TEXT(checkpoint), 0,
     .help = "HDF5 file of the parameters and of all that resuming needs"},
    {"save-every", "N|30s", TRAIN, EVERY(save_every), KEPT, 1, 1e9,
     .help =
         "save each N steps or so many seconds, beside the training, not at the end alone; one that falls "
         "due while another is being written follows it"},
    {"keep", "K", TRAIN, INTEGER(keep), KEPT, 1, MN_CHECKPOINT_KEEP, "1",
     .help = "checkpoints to keep: run.h5, run.1.h5, run.2.h5 and so on"},
    {"best", NULL, TRAIN, FLAG(best), COURSE,
     .help = "keep the checkpoint of the best test metric too, as run.best.h5"},
    {"resume", NULL, TRAIN, FLAG(resume), 0,
     .help =
         "go on from --checkpoint, with its options; data, loss and the course of training (--epochs, --lr, "
         "--schedule and so on) may be named anew: the rate is then what that schedule has at this step"},
    {"init", "F", TRAIN, TEXT(init), 0,
     .help = "start a new run from the weights in group /model of an HDF5 file, not from random ones"},
    {.kind = MN_KIND_HEADING, .help = "Log and picture", .argument = "--log run.jsonl --plot run.svg"},
    {"log", "F.jsonl", TRAIN, TEXT(log), KEPT, .help = "write the run's log, one JSON object a line"},
    {"log-every", "N", TRAIN, INTEGER(log_every), KEPT, 1, LARGEST, "auto", TRAIN, 0,
     .help = "steps a line of --log; auto: about 1000 lines a run"},
    {"plot", "F.svg", TRAIN, TEXT(plot), 0, .help = "draw the --log at the end, as SVG or PNG"},
    {.kind = MN_KIND_HEADING, .help = "Output"},
    {"out", "F", PREDICT | PLOT, TEXT(out), 0, .help = "file to write"},
    {"probabilities", NULL, PREDICT, FLAG(probabilities), 0,
     .help = "write the softmax of the outputs as y, for a model of classes"},
    {"force", NULL, TRAIN | PREDICT | PLOT, FLAG(force), 0, .help = "replace the file if it exists"},
    {"tolerance", "T", GRADCHECK | PARITY, REAL(tolerance), ABOVE, 0, 0, "auto", PARITY, 0,
     .help = "largest relative error; auto: the precision's own"},
    {"plans", NULL, BENCH, FLAG(plans), 0, .help = "the fusion plans beside each other"},
    {"json", NULL, TRAIN | EVAL | CHECKS | FILES, FLAG(json), 0, .help = "one JSON object on stdout"},
    {"verbose", NULL, TRAIN, FLAG(verbose), 0, .help = "say what is fused, and more"},
    {"quiet", NULL, RUNS | CHECKS, FLAG(quiet), 0, .help = "no progress and no notes on stderr"},
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
    {GRADCHECK, "batch", "4", NULL},
    {GRADCHECK, "in", "6", "inputs"},
    {GRADCHECK, "hidden", "8", NULL},
    {GRADCHECK, "groups", "2", NULL},
    {GRADCHECK, "head", "0", "outputs of a linear head, 0: none"},
    {GRADCHECK, "loss", NULL, "loss; auto: the sum of dy*y with random dy"},
    {GRADCHECK, "tolerance", "1e-6", "largest relative error"},
    {BENCH, "batch", "1024", NULL},
    {BENCH, "optimizer", "sgd", NULL},
    {BENCH, "in", NULL, "inputs; auto: 8192, and 1024 on the CPU"},
    {BENCH, "hidden", "auto", "channels of each block; auto: 8192, and 1024 on the CPU"},
    {BENCH, "head", "0", "outputs of a linear head, 0: none"},
    {BENCH, "loss", "mse", "loss, of random targets or labels"},
    {BENCH, "groups", "auto", "groups of each block; auto: of 16 channels each, or one"},
    {TRAIN, "force", NULL, "replace the --plot if it exists"},
    {READS, "precision", "auto", "of the matrix products' inputs; auto: the checkpoint's"},
    {READS, "checkpoint", NULL, "HDF5 file to read the parameters from"},
    {READS, "groups", "auto", "groups of each block; auto: the checkpoint's; weights alone have none"},
    {READS, "eps", NULL, "added to the variance, of weights alone"},
    {READS, "slope", NULL, "of the leaky ReLU below 0, of weights alone"},
    {READS, "loss", NULL, "of weights alone; auto: what the targets are for, mse without any"},
    {PREDICT, "y", NULL, "dataset of the targets or labels, copied to --out if it is there"},
    {PREDICT, "out", NULL,
     "HDF5 file to write: y [n, K], the outputs (for classes logits); label [n], the class of the largest; "
     "row [n], each row's number in its part of --data; target, the y of --data"},
    {PLOT, "out", NULL, "picture to write, .svg or .png"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

const struct mn_command_row mn_command_rows[] = {
    {"train", "", 0, 0, "", "Train a stack of blocks on the rows of --data or --synthetic.",
     "--data rows.h5 --hidden 128,128 --checkpoint run.h5"},
    {"eval", "", 0, 0, "", "Loss and scores of a checkpoint on a dataset.",
     "--checkpoint run.h5 --data rows.h5"},
    {"predict", "", 0, 0, "", "Write the outputs of a checkpoint for the rows of a dataset.",
     "--checkpoint run.h5 --data rows.h5 --out outputs.h5"},
    {"gradcheck", "", 0, 0, "", "Check every gradient against central differences, in fp64.",
     "--hidden 8,8 --in 6 --groups 2"},
    {"parity", "F", 1, 1, "one file of cases", "Run the cases of F and print the error of each tensor.",
     "tests/golden/block.h5"},
    {"bench", "", 0, 0, "", "Time a training step, bare products and the copy rate.",
     "--batch 1024 --in 8192 --hidden 8192 --groups 512 --precision bf16"},
    {"plot", "LOG...", 1, 1 << 20, "one log or several", "Draw loss, metric and learning rate of runs.",
     "run.jsonl --out run.svg"},
    {"info", "F", 1, 1, "one HDF5 file", "Say what a dataset or a checkpoint holds.", "run.h5"},
    {"verify", "F", 1, 1, "one HDF5 file", "Check every checksum of a file.", "run.h5"},
    {"diff", "A B", 2, 2, "two checkpoints", "Say where two checkpoints differ, in units in the last place.",
     "run.h5 other.h5"},
};
_Static_assert(sizeof mn_command_rows / sizeof *mn_command_rows == MN_COMMANDS, "a row for each command");

const struct mn_option_rule mn_option_rules[] = {
    {"data", "synthetic", 0},
    {"epochs", "steps", 0},
    {"quiet", "verbose", 0},
    {"init", "resume", 0},
    {"x", "data", 1},
    {"y", "data", 1},
    {"in", "synthetic", 1},
    {"validation", "data", 1},
    {"noise", "synthetic", 1},
    {"test-rows", "synthetic", 1},
    {"save-every", "checkpoint", 1},
    {"keep", "checkpoint", 1},
    {"best", "checkpoint", 1},
    {"resume", "checkpoint", 1},
    {"log-every", "log", 1},
    {"plot", "log", 1},
    {"force", "plot", 1},
    {NULL, NULL, 0},
};

const char *mn_command_name(enum mn_command command) {
  return mn_command_rows[command].name;
}

int mn_option_taken(int index, enum mn_command command) {
  return table[index].kind != MN_KIND_HEADING && table[index].commands >> command & 1;
}

int mn_option_find(const char *name) {
  for (int i = 0; i < mn_option_count; i++)
    if (table[i].name && strcmp(table[i].name, name) == 0) return i;
  return -1;
}

int mn_option_excludes(int index) {
  for (const struct mn_option_rule *rule = mn_option_rules; rule->name; rule++) {
    if (!rule->needs && strcmp(rule->name, table[index].name) == 0) return mn_option_find(rule->other);
    if (!rule->needs && strcmp(rule->other, table[index].name) == 0) return mn_option_find(rule->name);
  }
  return -1;
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
