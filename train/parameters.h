/* A model's parameters in and out by their names, and copies and blends of models. */
#ifndef MN_TRAIN_PARAMETERS_H
#define MN_TRAIN_PARAMETERS_H

#include "train/model.h"

/* Copies the parameter with PyTorch's `name`, such as "blocks.0.fc.weight", row by row, to `values` on the
 * host, or sets it to them, rounded to what the device keeps. MN_USAGE: no such parameter, or it has not
 * `count` values; a model among ranks. MN_BAD_DATA: a value to be set is not finite. MN_NO_MEMORY. */
MN_API mn_status mn_model_get(const struct mn_model *model, const char *name, float *values, int64_t count);
MN_API mn_status mn_model_set(struct mn_model *model, const char *name, const float *values, int64_t count);

/* A model with the same parameters and all that belongs to them, but an optimizer, on the same device. `*out`
 * is the caller's, for mn_model_close. Errors: mn_model_open's. */
MN_API mn_status mn_model_copy(struct mn_model **out, const struct mn_model *from);

/* Each parameter of `to` becomes (1 − share)·to + share·from: a target network follows with a small share,
 * and takes all with 1. MN_USAGE: models of other sizes, or a share outside 0 … 1; a model among ranks.
 * MN_NO_MEMORY. */
MN_API mn_status mn_model_blend(struct mn_model *to, const struct mn_model *from, double share);

#endif
