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

/* A step that MN_NONFINITE_SKIP leaves out counts as done (in number, samples, epoch and schedule, and in t
 * of AdamW's bias correction); all of its batches are left out, even finite ones, and its loss is NaN.
 * MN_SKIPPED_MOST such steps in a row are a divergence. So is a parameter that is not finite itself, which
 * skipping cannot mend. A step writes such a parameter if every value up to its gradient is finite, but the
 * product with the rate, or, without clipping, the gradient's own last sum, is not. */
enum { MN_SKIPPED_MOST = 10, MN_NONFINITES = MN_NONFINITE_SKIP + 1 };

/* "stop" or "skip". */
extern const char *const mn_nonfinite_words[]; /* NULL behind the last */
const char *mn_nonfinite_name(enum mn_nonfinite what);

#define MN_BATCH 64 /* rows a batch by default */

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

/* The step that ends the epoch of the sample after `step`. */
int64_t mn_trainer_epoch_end(const struct mn_trainer *trainer, int64_t step);

#endif
