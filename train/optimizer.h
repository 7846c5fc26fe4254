/* SGD on a model's parameters: fused into the GEMMs that compute their gradients, or, for clipping and
 * accumulation, after the gradients were stored. */
#ifndef MN_TRAIN_OPTIMIZER_H
#define MN_TRAIN_OPTIMIZER_H

#include "train/model.h"

struct mn_sgd_config {
  double momentum, weight_decay;
  int nesterov;
  double clip;    /* largest global gradient norm; 0: no clipping */
  int accumulate; /* backward passes a step, ≥ 1 */
};

struct mn_optimizer {
  struct mn_model *model;
  struct mn_sgd_config config;
  struct mn_sgd sgd;              /* what the update epilogues read */
  double *rate, *scale, *squares; /* on the device: rate [1], scale [1], squares [parameters] */
  double *norm; /* [1] the gradient's, under clipping, after each step; as mn_tape.results */
  double *scratch;
  double host_rate; /* what rate is copied from */
  int stored;       /* gradients are stored, and mn_optimizer_step updates: clipping or accumulation */
};

/* Sets the model's parameters to be trained (mn_model_train) by SGD; open it before the pass. MN_USAGE:
 * values that cannot be (Nesterov without momentum, as in PyTorch; negative ones). `*out` is the caller's. */
MN_API mn_status mn_optimizer_open(struct mn_optimizer **out, struct mn_model *model,
                                   const struct mn_sgd_config *config);
MN_API void mn_optimizer_close(struct mn_optimizer *optimizer); /* NULL is fine; before the model */

/* The learning rate from the next backward on. */
MN_API mn_status mn_optimizer_rate(struct mn_optimizer *optimizer, double rate);

/* For steps that are given ahead, each with its own: the rate stands at `rate` in the device's memory when
 * the backward runs, and the norm goes to `norm`. NULL: to the optimizer's own memory again. */
MN_API void mn_optimizer_at(struct mn_optimizer *optimizer, const double *rate, double *norm);

/* Drops gradients that have been added up for a step that was not finished. */
MN_API mn_status mn_optimizer_reset(struct mn_optimizer *optimizer);

/* Ends a step, after its backward passes on `tape`: clips, updates and zeroes gradients that were added up,
 * unless the tape's nonfinite flag is raised; nothing where updates were fused. */
MN_API mn_status mn_optimizer_step(struct mn_optimizer *optimizer, struct mn_tape *tape);

#endif
