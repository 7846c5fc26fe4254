/* What the trainer gives a device at a time: for trainer.c, launch.c and retry.c. */
#ifndef MN_TRAIN_LAUNCH_H
#define MN_TRAIN_LAUNCH_H

#include "train/trainer.h"

enum {
  MN_LAUNCHES = MN_LOADER_BUFFERS, /* under way at once: each has a buffer */
  MN_LAUNCH_STEPS = 16,            /* in a launch, at most */
};

/* A launch's host memory that the device reads and writes. */
struct mn_pinned {
  struct {
    double loss, correct, norm;
  } results[MN_LAUNCH_STEPS];              /* of each batch */
  double rates[MN_LAUNCH_STEPS][MN_RATES]; /* of each */
  int nonfinite;                           /* the tape's flag when the launch was done, or taken again */
};

/* What the device is given at a time: some whole optimizer steps or, under accumulation, one batch. */
struct mn_launch {
  struct mn_trainer *trainer;
  int64_t batches;       /* gathered for it */
  int updates;           /* the (last) batch ends an optimizer step */
  struct mn_batch batch; /* all of them */
  double given;          /* mn_seconds() */
  int follows;           /* it was given while the one before was under way */
  int64_t first, count;  /* of its batches, those that are being given */
  int done;              /* it was waited for */
  struct mn_pinned *pinned;
  double (*rates)[MN_RATES]; /* [MN_LAUNCH_STEPS], on the device */
};

/* A call of mn_trainer_run. On the CPU a launch, which a filling is gathered for, is one batch. */
struct mn_course {
  struct mn_trainer *trainer;
  int64_t step, batch; /* those with which the next launch begins; batch 0 without accumulation */
  int64_t until;
  int under_way, stop; /* launches; whether no further steps are to be given */
  int (*tell)(void *to, const struct mn_trainer *trainer);
  void *to;
};

/* Takes the launches' memory, and chooses how many steps each has. */
mn_status mn_launches_open(struct mn_trainer *trainer);

/* The launches under way, from the oldest, 0, on. */
static inline struct mn_launch *mn_launch_under_way(const struct mn_course *run, int number) {
  return &run->trainer->launches[(run->trainer->next + MN_LAUNCHES - run->under_way + number) % MN_LAUNCHES];
}

/* The mark identifies a batch among those under way; see nonfinite in kernels/types.h. */
static inline int mn_launch_mark(const struct mn_launch *l, int64_t batch) {
  return (int)(l - l->trainer->launches) * MN_LAUNCH_STEPS + (int)batch + 1;
}

/* Gives `count` of the launch's batches, from `first` on. */
mn_status mn_launch_give(struct mn_launch *launch, int64_t first, int64_t count);

/* Waits until all given of the launch is done, once. */
mn_status mn_launch_wait(struct mn_launch *launch);

/* ---- batches that are not finite ---- */

/* Decides whether the first batch measures its dz; `resumed`: an earlier run has left its scales. */
mn_status mn_retry_open(struct mn_trainer *trainer, int resumed);

/* The batch of the oldest launch has raised the flag: takes it again if a scale may have been too large, with
 * all batches given after it. If it still is not finite: MN_FAILED, or t->skipping is set. */
mn_status mn_retry_batch(struct mn_launch *launch, int64_t batch, const struct mn_course *run);

/* Leaves out the step that ends with this batch of the oldest launch. */
mn_status mn_retry_skip(struct mn_launch *launch, int64_t batch, const struct mn_course *run);

#endif
