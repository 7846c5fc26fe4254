/* The training loop's one step: batches in the order of samples, the learning rate by its schedule, SGD. What
 * goes on between steps (evaluation, saving, logs) is the caller's. */
#ifndef MN_TRAIN_TRAINER_H
#define MN_TRAIN_TRAINER_H

#include "data/loader.h"
#include "train/optimizer.h"
#include "train/pass.h"
#include "train/progress.h"
#include "train/schedule.h"

struct mn_trainer {
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_dataset *dataset;
  struct mn_schedule schedule;
  int64_t batch;
  struct mn_pass *pass;
  struct mn_loader *loader;
  struct mn_progress progress; /* after the last step; `best` is the caller's to set */
  double loss, rate;           /* of the last step; NaN before the first */
};

/* Opens training of `model` by `optimizer` on `dataset`, all borrowed, in batches of `batch` rows. `from`:
 * where an earlier run, whose parameters and momentum were restored, stopped; its seed counts then. NULL: a
 * new run, from `seed`. `*out` is the caller's. MN_USAGE: a batch that the dataset's rows do not fill, a
 * schedule that cannot be, or more samples than can be counted; MN_BAD_DATA: a dataset that does not fit the
 * model, or has other rows than the run that is continued. */
MN_API mn_status mn_trainer_open(struct mn_trainer **out, struct mn_model *model,
                                 struct mn_optimizer *optimizer, struct mn_dataset *dataset,
                                 const struct mn_schedule *schedule, int64_t batch, uint64_t seed,
                                 const struct mn_progress *from);
MN_API void mn_trainer_close(struct mn_trainer *trainer); /* NULL is fine; before all that it borrows */

/* One optimizer step: as many batches as the optimizer accumulates, forward and backward, and the update.
 * MN_FAILED when it diverged, naming step, tensor and row: parameters and momentum are then as before the
 * step. */
MN_API mn_status mn_trainer_step(struct mn_trainer *trainer);

#endif
