/* The training loop: batches in the order of samples, the learning rate by its schedule, updates. What goes
 * on between steps (evaluation, saving, logs) is the caller's.
 *
 * The device does not wait for the host. While a step runs, the next one is given and its batch is gathered;
 * a step's results (loss, gradient norm, whether all values were finite) are read after that. Several short
 * steps are given as one CUDA graph.
 *
 * If planes are scaled, a value that is not finite may be one that its plane could not hold under a factor
 * that was chosen before. The batch is then repeated under factors that fit its own values, and after it all
 * batches that were given later. Training has diverged only if the batch is still not finite. */
#ifndef MN_TRAIN_TRAINER_H
#define MN_TRAIN_TRAINER_H

#include "data/loader.h"
#include "engine/thread.h"
#include "train/fault.h"
#include "train/optimizer.h"

/* What becomes of a step in which a value is not finite. In either case it does not update. */
enum mn_nonfinite {
  MN_NONFINITE_STOP, /* training has diverged, and ends */
  /* The run goes on with the next step. All batches of the step are left out, even finite ones: parameters
   * and the optimizer's state stay, the step counts as done (in number, samples, epoch and schedule, and in t
   * of AdamW's bias correction), and its loss is NaN. MN_SKIPPED_MOST such steps in a row are a divergence.
   * So is a parameter that is not finite itself, which skipping cannot mend. A step writes such a parameter
   * if every value up to its gradient is finite, but the product with the rate, or, without clipping, the
   * gradient's own last sum, is not. */
  MN_NONFINITE_SKIP,
  MN_NONFINITES,
};
enum { MN_SKIPPED_MOST = 10 };

/* "stop" or "skip". */
extern const char *const mn_nonfinite_words[]; /* NULL behind the last */
const char *mn_nonfinite_name(enum mn_nonfinite what);

struct mn_trainer_config {
  struct mn_schedule schedule;
  int64_t batch;
  uint64_t seed;       /* of a new run's order of samples */
  enum mn_place place; /* the placement of the rows; 0 chooses by size */
  enum mn_nonfinite on_nonfinite;
  const int *stop; /* set atomically, by a signal handler or another thread, to end mn_trainer_open with
                      MN_INTERRUPTED while it reads rows; may be NULL */
};

#define MN_BATCH 64 /* rows a batch by default */

/* A config with the defaults of `minnow train` for a run of `steps` steps: batches of 64 rows, seed 0; for
 * AdamW MN_RATE_ADAMW and the cosine schedule, for SGD a constant MN_RATE_SGD, after a warm-up of 100
 * steps or a tenth of all, whichever is less. MN_SCHEDULE_STEP would drop the rate to a tenth every third of
 * the run. */
MN_API struct mn_trainer_config mn_trainer_defaults(enum mn_rule_kind rule, int64_t steps);

/* The progress of a run: with parameters and optimizer state, all that a resumed run needs to be the same
 * run. */
struct mn_progress {
  int64_t step;            /* optimizer steps done */
  int64_t epoch, position; /* of the next sample: samples / rows, and the remainder */
  int64_t samples;         /* seen */
  int64_t rows;            /* of the training data, which the order of samples depends on */
  uint64_t seed;           /* of the order of samples and the initial parameters */
  double best;             /* best metric: accuracy, or −loss; −infinity before the first evaluation */
  int64_t best_epoch;      /* `epoch` when that was found, or from which patience counts before */
  int64_t skipped;         /* steps of `step` without an update: MN_NONFINITE_SKIP … */
  int64_t skipped_running; /* … and how many of the last steps in a row */
};

struct mn_trainer {
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_dataset *dataset;
  struct mn_schedule schedule;
  int64_t batch;
  struct mn_pass *pass;
  struct mn_loader *loader;
  struct mn_evaluator *tests;  /* given behind each step that ends an epoch, for `tell` to take; or NULL */
  struct mn_progress progress; /* after the last step that is done; `best` is the caller's to set */
  double loss, rate; /* of that step; NaN before the first; the loss of a skipped one is NaN too. In the
                                  targets' own units, if one number does it (mn_model_loss_unit) */
  double norm;       /* gradient norm; NaN without clipping or after a skipped step */
  const struct mn_fault *skipped; /* why that step was skipped, its row counted in its batch; else NULL */
  double finished;                /* mn_seconds() at its end */
  int64_t retaken;                /* batches that were taken again since the trainer was opened */
  struct {                        /* how the time went since the trainer was opened, in seconds */
    double running;               /* from the giving of steps to their end */
    double waiting; /* of that: the device was idle for want of rows; on the CPU, rows were gathered */
    double reading; /* of that: mn_trainer_run waited for the disk */
    int64_t steps;  /* taken in `running` */
  } times;
  /* the trainer's own */
  struct mn_launch *launches; /* under way, or to be used next */
  int64_t most;               /* batches of a full launch; 1 under accumulation */
  int next;                   /* the launch to use next: the loader's next buffer */
  int ran[2];                 /* a batch has run, without and with an update */
  double ended;               /* mn_seconds() at the end of the last launch */
  double sum;                 /* of the losses of a step's batches so far */
  enum mn_nonfinite on_nonfinite;
  int skipping;              /* a batch of the step that is being collected was not finite, so that all of the
                                step is left out; the flag stays raised up to its end */
  struct mn_fault fault;     /* of that batch */
  struct mn_outcome outcome; /* what ended training */
};

/* Opens training of `model` by `optimizer` on `dataset`, all borrowed. `from`: the progress at which an
 * earlier run stopped, whose parameters (with their scales) and optimizer state were restored; its seed
 * counts then. NULL for a new run. `*out` is the caller's. MN_USAGE: a batch that the dataset's rows do not
 * fill, a schedule that cannot be, or more samples than can be counted; MN_BAD_DATA: a dataset that does not
 * fit the model, or has other rows than the run that is continued; and the errors of mn_loader_open. */
MN_API mn_status mn_trainer_open(struct mn_trainer **out, struct mn_model *model,
                                 struct mn_optimizer *optimizer, struct mn_dataset *dataset,
                                 const struct mn_trainer_config *config, const struct mn_progress *from);
/* The step that ends the epoch of the sample after `step`. */
int64_t mn_trainer_epoch_end(const struct mn_trainer *trainer, int64_t step);
MN_API void mn_trainer_close(struct mn_trainer *trainer); /* NULL is fine; before all that it borrows */

/* Takes optimizer steps until step `until` is done, each of the optimizer's `accumulate` batches, and returns
 * when the device has finished all that it was given. After each step calls `tell`, unless that is NULL, with
 * the step's results in the trainer; the device is already busy with later ones then. Once `tell` returns
 * other than 0, no further steps are given; those under way are finished and passed to `tell`. MN_FAILED when
 * training diverged, naming step, tensor and row: parameters and optimizer state are then as before that
 * step, and so is `progress`; under MN_NONFINITE_SKIP that is the last of the steps in a row. An error is
 * returned after `tell` got the steps before it, and again at each later call. */
MN_API mn_status mn_trainer_run(struct mn_trainer *trainer, int64_t until,
                                int (*tell)(void *to, const struct mn_trainer *trainer), void *to);

/* One step. */
mn_status mn_trainer_step(struct mn_trainer *trainer);

/* The members, for programs that do not know the struct. */
MN_API const struct mn_progress *mn_trainer_progress(const struct mn_trainer *trainer);
MN_API double mn_trainer_loss(const struct mn_trainer *trainer);
MN_API double mn_trainer_rate(const struct mn_trainer *trainer);

#endif
