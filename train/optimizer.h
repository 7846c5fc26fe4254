/* SGD or AdamW on a model's parameters. The update is fused into the GEMMs that compute the gradients; for
 * accumulation, and for most clipping, gradients are stored and updated by afterwards. */
#ifndef MN_TRAIN_OPTIMIZER_H
#define MN_TRAIN_OPTIMIZER_H

#include "engine/hooks.h"
#include "train/model.h"

/* The learning rates that `minnow train` takes by default. */
#define MN_RATE_ADAMW 0.007
#define MN_RATE_SGD 0.05

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

/* The rates that the update of step `step`, from 0 on, reads: the learning rate and AdamW's corrections for
 * the step. */
void mn_optimizer_rates(const struct mn_optimizer *optimizer, double rate, int64_t step,
                        double out[MN_RATES]);

/* For steps that are given ahead, each with its own rates and norm: the backward reads the rates [MN_RATES]
 * at `rate` in the device's memory, and the norm goes to `norm`. NULL restores the optimizer's own memory. */
void mn_optimizer_at(struct mn_optimizer *optimizer, const double *rate, double *norm);

/* Drops gradients that have been added up for a step that was not finished. */
mn_status mn_optimizer_reset(struct mn_optimizer *optimizer);

/* Ends a step, after its backward passes on `tape`: clips, updates and zeroes gradients that were added up,
 * unless the tape's nonfinite flag is raised. If updates were fused, it does not act. */
mn_status mn_optimizer_step(struct mn_optimizer *optimizer, struct mn_tape *tape);

enum { MN_SCHEDULES = MN_SCHEDULE_STEP + 1 };
/* "constant", "cosine" (to 0 at the horizon, over the steps after the warm-up) or "step". */
extern const char *const mn_schedule_words[]; /* NULL behind the last */
const char *mn_schedule_name(enum mn_schedule_kind kind);

/* MN_USAGE: a member that cannot be. */
mn_status mn_schedule_check(const struct mn_schedule *schedule);

/* The rate of optimizer step `step`, 0 … horizon − 1. */
double mn_schedule_rate(const struct mn_schedule *schedule, int64_t step);

#endif
