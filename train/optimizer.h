/* SGD or AdamW on a model's parameters. The update is fused into the GEMMs that compute the gradients; for
 * accumulation, and for most clipping, gradients are stored and updated by afterwards. */
#ifndef MN_TRAIN_OPTIMIZER_H
#define MN_TRAIN_OPTIMIZER_H

#include "engine/hooks.h"
#include "train/model.h"

struct mn_optimizer_config {
  struct mn_rule rule; /* members of the other kind are 0; the optimizer sets rate and scale */
  double clip;         /* largest global gradient norm; 0 means no clipping */
  int accumulate;      /* backward passes a step, ≥ 1 */
  int64_t rows;        /* of each batch, so that clipping may do without stored gradients; 0 to store */
};

/* The learning rates that `minnow train` takes by default. */
#define MN_RATE_ADAMW 0.007
#define MN_RATE_SGD 0.05

/* A config with the defaults of `minnow train`: AdamW with beta1 0.9, beta2 0.98, eps 1e-8, SGD with momentum
 * 0.9; each with accumulate 1, and without weight decay and clipping. */
MN_API struct mn_optimizer_config mn_optimizer_defaults(enum mn_rule_kind rule);

/* "sgd" or "adamw". */
extern const char *const mn_optimizer_words[]; /* NULL behind the last */
const char *mn_optimizer_name(enum mn_rule_kind rule);

struct mn_optimizer {
  struct mn_model *model;
  struct mn_optimizer_config config; /* the update epilogues read its rule */
  struct mn_tape *buffers;           /* owns the optimizer's memory on the device; it records nothing */
  double *rate;                      /* on the device, [MN_RATES] */
  struct mn_clipping clipping;       /* its norm is the gradient's, under clipping, after each step */
  double host_rate[MN_RATES];        /* what rate is copied from */
  int rated;                         /* mn_optimizer_rate was called */
  int stored; /* gradients are stored, and mn_optimizer_step updates: clipping, accumulation or replicas */
};

/* Sets the model's parameters to be trained (mn_model_train), until it is closed. MN_USAGE: values that
 * cannot be (Nesterov without momentum, as in PyTorch; negative ones), or are the other rule's; the model has
 * an optimizer, or open passes that train. `*out` is the caller's. */
MN_API mn_status mn_optimizer_open(struct mn_optimizer **out, struct mn_model *model,
                                   const struct mn_optimizer_config *config);
MN_API void mn_optimizer_close(struct mn_optimizer *optimizer); /* NULL is fine; before the model */

/* The rates that the update of step `step`, from 0 on, reads: the learning rate and AdamW's corrections for
 * the step. */
void mn_optimizer_rates(const struct mn_optimizer *optimizer, double rate, int64_t step,
                        double out[MN_RATES]);

/* Without a trainer: the learning rate from the next backward on, which belongs to step `step`, from 0 on. To
 * SGD every step is like the first; AdamW needs a call before each. MN_USAGE: a rate that is not finite or
 * below 0. */
MN_API mn_status mn_optimizer_rate(struct mn_optimizer *optimizer, double rate, int64_t step);

/* For steps that are given ahead, each with its own rates and norm: the backward reads the rates [MN_RATES]
 * at `rate` in the device's memory, and the norm goes to `norm`. NULL restores the optimizer's own memory. */
void mn_optimizer_at(struct mn_optimizer *optimizer, const double *rate, double *norm);

/* Drops gradients that have been added up for a step that was not finished. */
mn_status mn_optimizer_reset(struct mn_optimizer *optimizer);

/* Ends a step, after its backward passes on `tape`: clips, updates and zeroes gradients that were added up,
 * unless the tape's nonfinite flag is raised. If updates were fused, it does not act. */
mn_status mn_optimizer_step(struct mn_optimizer *optimizer, struct mn_tape *tape);

/* The learning rate as a function of the step: a warm-up, then the schedule over the other steps. */
enum mn_schedule_kind { MN_SCHEDULE_CONSTANT, MN_SCHEDULE_COSINE, MN_SCHEDULE_STEP, MN_SCHEDULES };

struct mn_schedule {
  enum mn_schedule_kind kind;
  double rate;     /* the learning rate that the schedule starts from */
  int64_t horizon; /* steps of the whole run */
  int64_t warmup;  /* steps of linear warm-up: step s < warmup has rate·(s + 1)/warmup */
  int64_t every;   /* MN_SCHEDULE_STEP: steps after the warm-up between multiplications by `factor` */
  double factor;
};

/* "constant", "cosine" (to 0 at the horizon, over the steps after the warm-up) or "step". */
extern const char *const mn_schedule_words[]; /* NULL behind the last */
const char *mn_schedule_name(enum mn_schedule_kind kind);

/* MN_USAGE: a member that cannot be. */
mn_status mn_schedule_check(const struct mn_schedule *schedule);

/* The rate of optimizer step `step`, 0 … horizon − 1. */
double mn_schedule_rate(const struct mn_schedule *schedule, int64_t step);

#endif
