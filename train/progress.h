/* How far a training run has come: all that, beside parameters and what the optimizer keeps, makes a resumed
 * run the same run. */
#ifndef MN_TRAIN_PROGRESS_H
#define MN_TRAIN_PROGRESS_H

#include <stdint.h>

struct mn_progress {
  int64_t step;            /* optimizer steps done */
  int64_t epoch, position; /* of the next sample: samples / rows, and the remainder */
  int64_t samples;         /* seen */
  int64_t rows;            /* of the training data, which the order of samples depends on */
  uint64_t seed;           /* of the order of samples and the initial parameters */
  double best;             /* best metric: accuracy, or −loss; −infinity before the first evaluation */
  int64_t best_epoch;      /* `epoch` when that was found, at an epoch's end; before, that from which patience
                              counts */
  int64_t skipped; /* of `step`, those that updated nothing: MN_NONFINITE_SKIP (train/trainer.h) … */
  int64_t skipped_running; /* … and how many of them were the last steps, in a row */
};

#endif
