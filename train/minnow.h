/* minnow: a minimal neural-net engine that trains, on a CPU or a GPU. All of its library, for C, C++ and
 * whatever calls C.
 *
 *   build     cc program.c $(pkg-config --cflags --libs minnow), or in CMake find_package(minnow) and
 *             target_link_libraries(program minnow::minnow); with -static also pkg-config --static
 *   bindings  cc -E -P -DMINNOW_PLAIN leaves declarations alone, for cffi and so on
 *   train     mn_device_open, mn_dataset_open, mn_defaults, mn_model_open, mn_model_initialise,
 *             mn_model_standardize_by, mn_optimizer_open, mn_trainer_open, mn_trainer_run: what `minnow
 *             train` does, to the last bit
 *   predict   mn_model_load, mn_predictor_open, mn_predict
 *   a loop of one's own, with a loss of one's own, weighted rows, or rows that come one by one:
 *             mn_optimizer_open, mn_pass_open; then for each step mn_optimizer_rate, for each of its batches
 *             mn_pass_arrays and mn_pass_step (or mn_pass_forward and mn_pass_backward), and mn_pass_update
 *
 * Errors: a call that can fail returns a status, and mn_message() says what, with its value and what would
 * do. After an error each `out` is NULL, every …_close accepts NULL, and nothing that existed is harmed. A
 * NULL where nothing says that it may be one is MN_USAGE. Every status may be MN_NO_MEMORY too. Functions
 * that return no status, but the closes, take no NULL.
 *
 * Ownership: what an …_open gives is the caller's, to be closed; what it was opened on is borrowed until
 * then. So close in the opposite order. Configs and texts are copied, arrays of rows are borrowed.
 *
 * Threads: one thread at a time uses a device and all that was opened on it, in whichever thread; only
 * predictors are for threads beside each other, one each. mn_message() is each thread's own. On the CPU,
 * work is shared among the device's threads by OpenMP. In a process that was forked off, a CPU device
 * computes on, with one thread; a GPU's returns MN_LIBRARY.
 *
 * The program around it stays as it was: no setting of OpenMP, HDF5, signals or the locale changes, nothing
 * is printed, and no process is started but by mn_dataset_open and mn_snapshot_load_weights. Same calls, same
 * bytes, on the same device.
 *
 * Sizes: N rows, I inputs, C channels of a block in G groups, K outputs. Matrices are row-major and dense. */
#ifndef MINNOW_H
#define MINNOW_H

#include <stddef.h>
#include <stdint.h>

#define MINNOW_VERSION "0.4.0"
#define MINNOW_VERSION_MAJOR 0
#define MINNOW_VERSION_MINOR 4
#define MINNOW_VERSION_PATCH 0
#define MINNOW_ABI 2 /* of libminnow.so.2: it changes with the sizes of structs */

#ifdef __cplusplus
extern "C" {
#endif
#if defined __GNUC__ && !defined MINNOW_PLAIN
#pragma GCC visibility push(default)
#define MN_CHECKED __attribute__((warn_unused_result))
#else
#define MN_CHECKED
#endif

/* ---- statuses ---- */

/* The command's exit codes too. */
typedef enum mn_status {
  MN_OK = 0,
  MN_FAILED = 1,      /* a check failed, or training diverged */
  MN_USAGE = 64,      /* arguments that cannot be */
  MN_BAD_DATA = 65,   /* a file, or rows, whose content is wrong */
  MN_NO_INPUT = 66,   /* a file that is not there or cannot be read */
  MN_NO_DEVICE = 69,  /* no GPU, or one without the requested feature */
  MN_LIBRARY = 70,    /* CUDA, cuBLASLt or HDF5 failed */
  MN_NO_MEMORY = 71,  /* host or device memory, threads */
  MN_NO_CREATE = 73,  /* an output that exists already, or cannot be created */
  MN_IO = 74,         /* reading or writing failed on the way, a full disk included */
  MN_INTERRUPTED = 75 /* stopped by a flag that the caller gave */
} mn_status;

/* The calling thread's last message, one line: valid until its next error; "" before the first. */
const char *mn_message(void);

/* The version of the library that runs: MINNOW_VERSION of its own header. */
const char *mn_version(void);

/* ---- devices ---- */

struct mn_device;

/* name: "cpu", "cuda", "cuda:1" or "auto", which takes the GPU when one is there, else the CPU. precision, of
 * the matrix products' inputs: "fp64", "fp32", "tf32", "bf16", "fp16", "fp16x3"; sums are double in fp64,
 * else float. threads: the most that compute on the CPU; 0: what OpenMP would take for the calling thread
 * (OMP_NUM_THREADS, omp_set_num_threads) or, without OMP_NUM_THREADS, no more than the cores that affinity
 * and quota leave. Small products take fewer. MN_USAGE: no such word, or number of threads. MN_NO_DEVICE: no
 * driver, no GPU, or a precision that the GPU (below sm_80) lacks. Cost: threads and some MiB; of a GPU a
 * context, tenths of a second. */
MN_CHECKED mn_status mn_device_open(struct mn_device **out, const char *name, const char *precision,
                                    int threads);
void mn_device_close(struct mn_device *device);
const char *mn_device_name(const struct mn_device *device); /* to print: "NVIDIA H200", "CPU (16 threads)" */

/* ---- rows ---- */

struct mn_dataset;

/* The caller's rows: x [rows, inputs] and targets y [rows, outputs], or class labels [rows] from 0 on;
 * outputs is 0, and y NULL, without targets. The arrays are borrowed until mn_dataset_close, and must not
 * change while a trainer or an evaluator is open on the dataset. Labels are read here. MN_USAGE: rows or
 * inputs below 1, outputs below 0. MN_BAD_DATA: a label below 0; later, when rows are read, a value that is
 * not finite, by row and column. */
MN_CHECKED mn_status mn_dataset_arrays(struct mn_dataset **out, const float *x, const float *y, int64_t rows,
                                       int64_t inputs, int64_t outputs);
MN_CHECKED mn_status mn_dataset_labelled(struct mn_dataset **out, const float *x, const int32_t *labels,
                                         int64_t rows, int64_t inputs);
/* Both for doubles, whose means are subtracted before they are rounded; either y or labels, or neither. */
MN_CHECKED mn_status mn_dataset_doubles(struct mn_dataset **out, const double *x, const double *y,
                                        const int32_t *labels, int64_t rows, int64_t inputs, int64_t outputs);

enum mn_part { MN_PART_TRAIN, MN_PART_TEST, MN_PART_ALL };
enum { MN_Y_REQUIRED = 1, MN_Y_NUMBERS = 2, MN_Y_NONE = 4, MN_TRUSTED = 8 };

/* The datasets x and y of an HDF5 file, or those of its groups train and test, under these names or NULL for
 * "x" and "y"; rows stay in the file. Floats are targets; integers and words [N] are classes. how:
 * MN_Y_REQUIRED, y may not be missing; MN_Y_NUMBERS, integers are targets too; MN_Y_NONE, y is not looked at.
 * *out is NULL, with MN_OK, for MN_PART_TEST of a file without parts. A child process (fork) tries the file
 * out before it is read, since libhdf5 crashes on files that are damaged or made to mislead it; with
 * MN_TRUSTED no process is started. MN_NO_INPUT, MN_BAD_DATA, MN_IO; each message names the file, the
 * dataset, the fault and a remedy. */
MN_CHECKED mn_status mn_dataset_open(struct mn_dataset **out, const char *path, enum mn_part part,
                                     const char *x_name, const char *y_name, int how);

/* Holds a `fraction` of the rows out for a test: *dataset becomes those (MN_PART_TEST) or the others
 * (MN_PART_TRAIN), which own it from then on; open the rows twice for both. If `stratified`, single rows are
 * drawn, of each class its share, by (seed, rows, fraction, labels); else stretches of a large file.
 * MN_USAGE: a fraction that is not between 0 and 1. MN_BAD_DATA: a single row, or its rows all weigh 0. After
 * an error *dataset is as it was. */
MN_CHECKED mn_status mn_dataset_hold_out(struct mn_dataset **dataset, enum mn_part part, double fraction,
                                         uint64_t seed, int stratified);

/* Multiplies each row's loss by weights[row] in training and tests, and its part of accuracy and scores. They
 * are copied; NULL: by 1. Before anything opens the rows. MN_USAGE: all are 0, or one beyond 1e-20 … 1e20. */
MN_CHECKED mn_status mn_dataset_weigh(struct mn_dataset *dataset, const double *weights);

int64_t mn_dataset_rows(const struct mn_dataset *dataset);
int64_t mn_dataset_inputs(const struct mn_dataset *dataset);
int64_t mn_dataset_outputs(const struct mn_dataset *dataset);          /* K, or with classes their number */
int mn_dataset_classes(const struct mn_dataset *dataset);              /* 1 if y are labels */
int64_t mn_dataset_row(const struct mn_dataset *dataset, int64_t row); /* its number in the file, from 0 */
void mn_dataset_close(struct mn_dataset *dataset);

/* ---- CSV: a column by its name, a word by what the model knows it as ---- */

struct mn_csv;

enum { MN_CSV_NOTES = 5 };
struct mn_csv_config {
  int header;          /* 1: the first line has names, -1: it has rows, 0: as it looks */
  const char *table;   /* of mn_model_table; NULL: a new one, whose columns the following decide */
  const char *target;  /* names of columns between commas; NULL: the last */
  const char *drop;    /* names of columns to leave out; may be NULL */
  const char *use;     /* and of columns to take that would be left out */
  const char *id;      /* name of a column whose texts mn_csv_id returns; NULL: none */
  const char *weights; /* name of a column of the rows' weights (mn_dataset_weigh), no input; NULL: none */
  int numbers;         /* targets are numbers: 1, classes: -1, 0: classes if words or few whole numbers */
};

/* Reads a file whole, by a config whose members may be 0. Words are one input each, 1 or 0. `path` is
 * borrowed. MN_NO_INPUT, MN_IO; MN_USAGE: a name that no column has; MN_BAD_DATA: the file is damaged or
 * lacks a column of the table, or a target is not of its kind; MN_LIBRARY: this build is without libcsv. */
MN_CHECKED mn_status mn_csv_open(struct mn_csv **out, const char *path, const struct mn_csv_config *config);
void mn_csv_close(struct mn_csv *csv); /* after its rows */

/* Its rows; with `targets` those alone that have one. MN_BAD_DATA: none has, or a class is unknown. */
MN_CHECKED mn_status mn_csv_rows(struct mn_dataset **out, struct mn_csv *csv, int targets);

/* Without a table: sets what stands for missing numbers to the means of `train`, some of its rows, before
 * mn_model_standardize_by and mn_model_columns. A table that was given has its own. */
MN_CHECKED mn_status mn_csv_fill(struct mn_csv *csv, struct mn_dataset *train);

/* The text of the column `id` in a row of the file (mn_dataset_row); valid until mn_csv_close; or NULL. */
const char *mn_csv_id(const struct mn_csv *csv, int64_t row);

/* What became of the columns, for people: a line or NULL for each number from 0 to MN_CSV_NOTES - 1. */
const char *mn_csv_note(const struct mn_csv *csv, int number);

/* ---- models: blocks of Linear, GroupNorm, LeakyReLU, x + x, and a linear head or none ---- */

struct mn_model;

enum { MN_MODEL_DEPTH = 64 }; /* blocks at most */
enum mn_loss { MN_LOSS_MSE, MN_LOSS_CROSS_ENTROPY };
/* Which of a block's operations are one kernel: the same results at another speed. */
enum mn_plan {
  MN_PLAN_NONE,
  MN_PLAN_ACTIVATION,
  MN_PLAN_NORM_ACTIVATION,
  MN_PLAN_TAIL,
  MN_PLAN_LINEAR_NORM,
  MN_PLAN_BLOCK,
  MN_PLAN_STACK /* all, of a narrow stack of blocks too: the fastest */
};

struct mn_model_config {
  int64_t inputs;                 /* I of the first block */
  int64_t depth;                  /* blocks, 1 … MN_MODEL_DEPTH */
  int64_t hidden[MN_MODEL_DEPTH]; /* C of each */
  int64_t groups;                 /* G of each; it divides C */
  int64_t head;                   /* K, outputs of the linear head; 0 without a head: K is the last C */
  double eps, slope;              /* of the norm, above 0, and of the activation below 0 */
  enum mn_loss loss;
  enum mn_plan plan;
};

/* 8 groups, eps 1e-5, slope 0.01, mse, MN_PLAN_STACK. The caller sets inputs, depth and hidden, which are 0;
 * a head; for classes the loss. */
struct mn_model_config mn_model_defaults(void);

/* Takes the parameters' memory. MN_USAGE: a member that cannot be, by name, or sizes that do not fit
 * together. */
MN_CHECKED mn_status mn_model_open(struct mn_model **out, struct mn_device *device,
                                   const struct mn_model_config *config);
/* torch.nn's initial values: the same bits on every device. A model is not usable before this, or a load. */
MN_CHECKED mn_status mn_model_initialise(struct mn_model *model, uint64_t seed);
void mn_model_close(struct mn_model *model);

const struct mn_model_config *mn_model_sizes(const struct mn_model *model);
int64_t mn_model_outputs(const struct mn_model_config *config); /* K */
const char *mn_model_class(const struct mn_model *model,
                           int64_t k);                    /* name of a class; NULL: they are numbers */
const char *mn_model_table(const struct mn_model *model); /* of a CSV's columns, as JSON; or NULL */

struct mn_parameter {
  char name[64]; /* PyTorch's: "blocks.0.fc.weight", "blocks.0.gn.bias", "head.weight" */
  int rank;      /* 2: [rows, cols]; 1: [cols] with rows 1 */
  int64_t rows, cols;
  double initial, bound; /* of a new model: uniform on ±bound or, if that is 0, all `initial` */
};
/* Describes parameter `index`, in the order of a state_dict; returns 0 past the last. */
int mn_model_parameter(const struct mn_model_config *config, int index, struct mn_parameter *out);

/* Copies a parameter's rows·cols values to `values`, or sets it to them. MN_USAGE: no such name, or it has
 * not `count` values. MN_BAD_DATA: a value to be set is not finite. Waits for the device. */
MN_CHECKED mn_status mn_model_get(const struct mn_model *model, const char *name, float *values,
                                  int64_t count);
MN_CHECKED mn_status mn_model_set(struct mn_model *model, const char *name, const float *values,
                                  int64_t count);

/* A model with the same parameters and all that belongs to them, but an optimizer, on the same device. */
MN_CHECKED mn_status mn_model_copy(struct mn_model **out, const struct mn_model *from);

/* Each parameter of `to` becomes (1 - share)·to + share·from, 0 ≤ share ≤ 1: a target network follows with a
 * small share, and takes all with 1. MN_USAGE: models of other sizes. */
MN_CHECKED mn_status mn_model_blend(struct mn_model *to, const struct mn_model *from, double share);

/* From then on x is standardised wherever rows enter: (x - mean[i])/scale[i], both [I], copied; a file of the
 * model keeps them. NULLs: x is taken as it is. The same of targets, [K]: the model learns (y -
 * mean[k])/scale[k], and its outputs leave it in their own units. MN_USAGE: a number that is not finite, or a
 * scale not above 0; targets of a model of classes. Before passes, trainers and evaluators are opened. */
MN_CHECKED mn_status mn_model_standardize(struct mn_model *model, const double *mean, const double *scale);
MN_CHECKED mn_status mn_model_standardize_targets(struct mn_model *model, const double *mean,
                                                  const double *scale);

/* The same by the rows, all of which are read, as `minnow train` does it; and the names of their classes. */
MN_CHECKED mn_status mn_model_standardize_by(struct mn_model *model, struct mn_dataset *rows);

/* Names the classes, with what words they stand for: `count` different ones of 1 to 63 bytes, sorted by their
 * bytes; copied, and kept in files. MN_USAGE: another number, or order. */
MN_CHECKED mn_status mn_model_classes(struct mn_model *model, const char *const *names, int64_t count);

/* The columns of a CSV, which a file of the model keeps, for mn_csv_config's `table`. */
MN_CHECKED mn_status mn_model_columns(struct mn_model *model, const struct mn_csv *csv);

/* ---- training ---- */

struct mn_optimizer;
struct mn_trainer;

enum mn_rule_kind { MN_SGD, MN_ADAMW };

/* Both are PyTorch's rules. Members of the other kind are 0. */
struct mn_rule {
  const double *rate, *scale; /* the optimizer's own: NULL */
  double momentum;            /* SGD's, from 0 to below 1 */
  double weight_decay;        /* of every parameter; decoupled with AdamW */
  int nesterov;               /* SGD's */
  enum mn_rule_kind kind;
  double beta1, beta2, eps; /* AdamW's */
};

struct mn_optimizer_config {
  struct mn_rule rule;
  double clip;    /* largest norm of the whole gradient; 0: no clipping */
  int accumulate; /* batches a step, 1 or more */
  int64_t rows;   /* of each batch, for faster clipping on a GPU; 0: not known */
};

enum mn_schedule_kind { MN_SCHEDULE_CONSTANT, MN_SCHEDULE_COSINE, MN_SCHEDULE_STEP };
struct mn_schedule {
  enum mn_schedule_kind kind; /* cosine: to 0 at the horizon; step: rate·factor each `every` steps */
  double rate;                /* the learning rate that it starts from, after the warm-up */
  int64_t horizon;            /* steps of the whole run */
  int64_t warmup;             /* steps of linear warm-up: step s < warmup has rate·(s + 1)/warmup */
  int64_t every;
  double factor;
};

enum mn_place { MN_PLACE_AUTO, MN_PLACE_DEVICE, MN_PLACE_HOST, MN_PLACE_FILE }; /* where rows wait */
enum mn_nonfinite { MN_NONFINITE_STOP, MN_NONFINITE_SKIP }; /* a step, for mn_trainer_run */

struct mn_trainer_config {
  struct mn_schedule schedule;
  int64_t batch; /* rows, at most all */
  uint64_t seed; /* of the order of rows, which is drawn anew each epoch */
  enum mn_place place;
  enum mn_nonfinite on_nonfinite; /* stop with an error; or leave the step out, at most 10 in a row */
  const int *stop; /* set atomically, to end mn_trainer_open by MN_INTERRUPTED as it reads rows; or NULL */
};

struct mn_defaults {
  struct mn_model_config model;
  struct mn_optimizer_config optimizer;
  struct mn_trainer_config trainer;
  int64_t steps; /* of the whole run, by which decay and schedule go: mn_trainer_run's `until` */
};

/* With parameters and optimizer state all that a resumed run needs to be the same run. */
struct mn_progress {
  int64_t step;            /* optimizer steps done */
  int64_t epoch, position; /* of the next sample: samples / rows, and the remainder */
  int64_t samples;         /* seen */
  int64_t rows;            /* of the training data, which the order of samples depends on */
  uint64_t seed;           /* of the order of samples */
  double best;             /* the caller's: its best metric so far, -infinity at first … */
  int64_t best_epoch;      /* … and `epoch` then */
  int64_t skipped;         /* steps of `step` without an update … */
  int64_t skipped_running; /* … and how many of the last steps in a row */
};

/* The configs of `minnow train --hidden …`, which suit real tables, with `epochs` and rows a batch (0: its
 * defaults). `hidden`: the widths of `depth` blocks. Beside them, mn_model_standardize_by. */
MN_CHECKED mn_status mn_defaults(struct mn_defaults *out, const struct mn_dataset *rows,
                                 const int64_t *hidden, int depth, int64_t epochs, int64_t batch);
/* Parts of these: AdamW with beta1 0.9, beta2 0.98, eps 1e-8, or SGD with momentum 0.9, without decay and
 * clipping; and for so many steps batches of 64, with AdamW rate 0.007 and the cosine, with SGD a constant
 * 0.05. */
struct mn_optimizer_config mn_optimizer_defaults(enum mn_rule_kind rule);
struct mn_trainer_config mn_trainer_defaults(enum mn_rule_kind rule, int64_t steps);

/* A model has one optimizer at a time, opened before its passes and trainers. MN_USAGE: a member that cannot
 * be, a second one, or passes that train are open. */
MN_CHECKED mn_status mn_optimizer_open(struct mn_optimizer **out, struct mn_model *model,
                                       const struct mn_optimizer_config *config);
void mn_optimizer_close(struct mn_optimizer *optimizer);

/* `from`: the progress at which an earlier run stopped, whose checkpoint was restored; NULL for a new run.
 * Reads the rows to where they wait. MN_USAGE: a member that cannot be. MN_BAD_DATA: rows that do not fit the
 * model, or are others than those of the run that goes on. */
MN_CHECKED mn_status mn_trainer_open(struct mn_trainer **out, struct mn_model *model,
                                     struct mn_optimizer *optimizer, struct mn_dataset *rows,
                                     const struct mn_trainer_config *config, const struct mn_progress *from);
void mn_trainer_close(struct mn_trainer *trainer);

/* Takes steps until step `until` is done, and waits for the device. After each calls `tell`, unless that is
 * NULL; if it returns other than 0 the run ends, with MN_OK. MN_FAILED: training diverged; the message names
 * step, tensor and row, and all is as before that step. Errors are returned again at each later call. */
MN_CHECKED mn_status mn_trainer_run(struct mn_trainer *trainer, int64_t until,
                                    int (*tell)(void *to, const struct mn_trainer *trainer), void *to);
const struct mn_progress *mn_trainer_progress(const struct mn_trainer *trainer); /* after the last step */
double
mn_trainer_loss(const struct mn_trainer *trainer); /* of that step, in the targets' units; NaN before */
double mn_trainer_rate(const struct mn_trainer *trainer); /* its learning rate */

/* ---- a loop of one's own ---- */

struct mn_pass;

enum mn_pass_kind {
  MN_PASS_PREDICT,  /* y */
  MN_PASS_FORWARD,  /* not for programs */
  MN_PASS_EVALUATE, /* the loss */
  MN_PASS_TRAIN,    /* the loss and its gradients, by which the optimizer's step is taken */
  MN_PASS_SEEDED    /* y, and the gradients of Σ dy·y for a dy of the caller's: of any loss, and of x */
};

/* Passes over batches of `rows` rows. `scale` multiplies the loss's gradient, by 1/accumulate; a dy of the
 * caller's has it already. input_gradient: x's gradient is wanted too. MN_USAGE: nothing to train, for lack
 * of an open optimizer. */
MN_CHECKED mn_status mn_pass_open(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind,
                                  int64_t rows, double scale, int input_gradient);
void mn_pass_close(struct mn_pass *pass);

/* The learning rate of step `step`, from 0 on, which follows; AdamW needs a call for each. MN_USAGE: a rate
 * that is not finite or below 0. */
MN_CHECKED mn_status mn_optimizer_rate(struct mn_optimizer *optimizer, double rate, int64_t step);

/* The next batch: x [rows, I] and, for a pass with a loss, y [rows, K] or labels [rows]; copied. */
MN_CHECKED mn_status mn_pass_arrays(struct mn_pass *pass, const float *x, const float *y);
MN_CHECKED mn_status mn_pass_labelled(struct mn_pass *pass, const float *x, const int32_t *labels);

/* A pass with a loss: *loss is the mean over the rows; *correct, unless NULL, the rows classified right.
 * MN_FAILED: a value is not finite, by tensor and row; the batch has changed nothing, and the next may
 * follow. */
MN_CHECKED mn_status mn_pass_step(struct mn_pass *pass, double *loss, double *correct);

/* A pass without: y [rows, K]; then, of MN_PASS_SEEDED, once, dy [rows, K] and, unless NULL, dx [rows, I].
 * MN_FAILED as above. */
MN_CHECKED mn_status mn_pass_forward(struct mn_pass *pass, float *y);
MN_CHECKED mn_status mn_pass_backward(struct mn_pass *pass, const float *dy, float *dx);

/* Ends a step, after all of its batches. With accumulate 1 and without clipping mn_pass_step or
 * mn_pass_backward has taken it already, in the products that compute the gradients. */
MN_CHECKED mn_status mn_pass_update(struct mn_pass *pass);

/* ---- scores and predictions ---- */

struct mn_evaluator;
struct mn_predictor;

/* batch: rows a pass, reduced to those there are. */
MN_CHECKED mn_status mn_evaluator_open(struct mn_evaluator **out, struct mn_model *model,
                                       struct mn_dataset *rows, int64_t batch, enum mn_place place);
/* The mean loss over all rows and, unless NULL, the share classified right, NaN without classes; both NaN if
 * a row's is not finite. */
MN_CHECKED mn_status mn_evaluate(struct mn_evaluator *evaluator, double *loss, double *accuracy);
void mn_evaluator_close(struct mn_evaluator *evaluator);

/* For up to `rows` rows at a time. Predictors share the model's weights; on the CPU, and if a GPU's are
 * scaled, one more copy of these. Each thread has its own, which any thread may open and close. */
MN_CHECKED mn_status mn_predictor_open(struct mn_predictor **out, struct mn_model *model, int64_t rows);
void mn_predictor_close(struct mn_predictor *predictor);

/* y [n, K] of x [n, I], 0 ≤ n ≤ rows: in the targets' units or, of classes, what softmax is applied to. On
 * the CPU a row's y has the same bytes whatever the other rows, except in fp16. It allocates nothing and
 * takes no lock, but for the first call after the model has learned; while it learns, none may predict.
 * MN_BAD_DATA: a value of x is not finite. MN_FAILED: a value of y would not be. */
MN_CHECKED mn_status mn_predict(struct mn_predictor *predictor, const float *x, int64_t n, float *y);

/* The same for rows first … first + count - 1 of a dataset, of a CSV too: y [count, K]. MN_BAD_DATA: its
 * number of inputs is not the model's. */
MN_CHECKED mn_status mn_predict_rows(struct mn_predictor *predictor, struct mn_dataset *rows, int64_t first,
                                     int64_t count, double *y);

/* mn_predict by a predictor of its own, for any number of rows. */
MN_CHECKED mn_status mn_model_predict(struct mn_model *model, const float *x, int64_t rows, float *y);

/* ---- files ---- */

struct mn_checkpoint;
struct mn_saver;

/* Writes a model without its training: whole or not at all. `minnow` takes the file, and h5py reads /model as
 * a state_dict. MN_NO_CREATE: another kind of file stands there. MN_IO: no space, a failing disk. */
MN_CHECKED mn_status mn_model_save(const struct mn_model *model, const char *path);

/* Opens the model of such a file, or of a checkpoint. MN_NO_INPUT; MN_BAD_DATA: not minnow's, or damaged. */
MN_CHECKED mn_status mn_model_load(struct mn_model **out, struct mn_device *device, const char *path);

/* Loads the weights alone of any HDF5 file, floats in /model under the parameters' names, as PyTorch's side
 * writes them. A child process tries it out. MN_BAD_DATA lists all that does not fit; the model is then as it
 * was. */
MN_CHECKED mn_status mn_snapshot_load_weights(const char *path, struct mn_model *model);

enum { MN_TEXT_NAME = 32, MN_TEXT_VALUE = 256 };
struct mn_text { /* an option of the caller's, kept in a checkpoint */
  char name[MN_TEXT_NAME];
  char value[MN_TEXT_VALUE];
};
enum { MN_SAVE_NEWEST = 1, MN_SAVE_BEST = 2 };
enum { MN_CHECKPOINT_PATH = 4096 }; /* bytes of a path */

/* Saves checkpoints of a run beside training: a snapshot is taken at once, and a thread writes it, whole or
 * not at all, to `path`. The file there moves, a.h5 to a.1.h5 and so on, so that `keep` stay. The memory is
 * taken here. */
MN_CHECKED mn_status mn_saver_open(struct mn_saver **out, const char *path, int keep,
                                   const struct mn_model *model, const struct mn_optimizer *optimizer);
/* what: MN_SAVE_NEWEST, MN_SAVE_BEST, which goes to best.h5 beside it, or both. config: `count` texts of the
 * caller's. Without `progress` the model alone is saved. MN_USAGE: a save is running. */
MN_CHECKED mn_status mn_saver_start(struct mn_saver *saver, int what, const struct mn_progress *progress,
                                    const struct mn_text *config, int count);
int mn_saver_busy(struct mn_saver *saver);
/* Waits for the running save, and returns its error; *saved, unless NULL: the step of the newest that is
 * written. */
MN_CHECKED mn_status mn_saver_wait(struct mn_saver *saver, int64_t *saved);
void mn_saver_close(struct mn_saver *saver); /* waits too */

/* Reads and verifies a checkpoint. Of the newest: a.h5, a.1.h5 … or else best.h5 beside them that is whole;
 * its name goes to `used`, and to `skipped`, for people, those that were damaged, which are renamed
 * (a.damaged-1.h5), or missing. Restoring gives its parameters, the optimizer's state and the progress (these
 * two unless NULL) to a model of its sizes. MN_BAD_DATA: it is damaged or does not fit. */
MN_CHECKED mn_status mn_checkpoint_load(struct mn_checkpoint **out, const char *path);
MN_CHECKED mn_status mn_checkpoint_load_newest(struct mn_checkpoint **out, const char *path,
                                               char used[MN_CHECKPOINT_PATH], char *skipped,
                                               size_t skipped_size);
const struct mn_model_config *mn_checkpoint_sizes(const struct mn_checkpoint *checkpoint);
const char *mn_checkpoint_config(const struct mn_checkpoint *checkpoint,
                                 const char *name); /* a text, or NULL */
MN_CHECKED mn_status mn_snapshot_restore(const struct mn_checkpoint *from, struct mn_model *model,
                                         struct mn_optimizer *optimizer, struct mn_progress *progress);
void mn_checkpoint_free(struct mn_checkpoint *checkpoint);

#if defined __GNUC__ && !defined MINNOW_PLAIN
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
