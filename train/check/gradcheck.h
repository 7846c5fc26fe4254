/* `minnow gradcheck`: every parameter's gradient and x's against central differences, in fp64, through the
 * same tape and kernels as training. */
#ifndef MN_TRAIN_CHECK_GRADCHECK_H
#define MN_TRAIN_CHECK_GRADCHECK_H

#include <stdio.h>

#include "train/pass.h"

struct mn_gradcheck_config {
  struct mn_model_config model;
  int has_loss; /* the loss is model.loss; else Σ dy·y with random dy */
  int64_t batch;
  uint64_t seed;
  double tolerance; /* |a − n| ≤ tolerance·max(|a|, |n|, rms of the tensor's gradient) */
};

/* The command's defaults: one block of 8 channels in 2 groups over 6 inputs, a batch of 4, a tolerance of
 * 1e-6, no loss. */
MN_API struct mn_gradcheck_config mn_gradcheck_defaults(void);

/* Checks on `device`, which must be fp64, and writes one line a tensor to `out`: its elements, the worst
 * error over its bound, the index of that element, its analytic and numeric value, and how many elements were
 * kinks (±h moves a v of some block across 0; they are not compared); or one JSON object. All parameters are
 * random, gamma and beta too. With a loss, a line `loss` compares the loss computed in training, fused into
 * the last block if it can be, with the one computed in evaluation, to 1e-12. The bound of a gradient that is
 * 0 but for rounding (one channel a group) is that rounding. MN_FAILED: a tensor is past its bound, or all of
 * its elements were kinks; MN_USAGE: a slope below 0, for which kinks do not show in y; MN_NO_MEMORY. */
MN_API mn_status mn_gradcheck(FILE *out, struct mn_device *device, const struct mn_gradcheck_config *config,
                              int json);

#endif
