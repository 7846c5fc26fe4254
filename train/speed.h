/* The speed of training. */
#ifndef MN_TRAIN_SPEED_H
#define MN_TRAIN_SPEED_H

#include "train/trainer.h"

/* What follows from mn_trainer.times. */
struct mn_trainer_speed {
  double samples, flops; /* a second, while running; NaN before the first step */
  double waiting;        /* share of the time */
  const char *bound;     /* what bounds it: "the step", "the link", "the disk" or "the gathering of rows" */
};

struct mn_trainer_speed mn_trainer_speed(const struct mn_trainer *trainer);

/* Floating-point operations of the matrix products of a training step, for one row. */
double mn_model_step_flops(const struct mn_model *model);

#endif
