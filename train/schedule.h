/* The learning rate of a step: a function of the step and the horizon alone, so that a resumed run has the
 * same one. */
#ifndef MN_TRAIN_SCHEDULE_H
#define MN_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "kernels/status.h"

enum mn_schedule_kind { MN_SCHEDULE_CONSTANT, MN_SCHEDULE_COSINE, MN_SCHEDULE_STEP, MN_SCHEDULES };

struct mn_schedule {
  enum mn_schedule_kind kind;
  double rate;     /* the learning rate that the schedule starts from */
  int64_t horizon; /* steps of the whole run */
  int64_t warmup;  /* steps of linear warm-up: step s < warmup has rate·(s + 1)/warmup */
  int64_t every;   /* MN_SCHEDULE_STEP: steps after the warm-up between multiplications by `factor` */
  double factor;
};

/* "constant", "cosine" (to 0 at the horizon, over the steps after the warm-up) or "step", and back. MN_USAGE:
 * no such word. */
extern const char *const mn_schedule_words[]; /* NULL behind the last */
MN_API const char *mn_schedule_name(enum mn_schedule_kind kind);
MN_API mn_status mn_schedule_parse(const char *word, enum mn_schedule_kind *out);

/* The rate of optimizer step `step`, 0 … horizon − 1. */
MN_API double mn_schedule_rate(const struct mn_schedule *schedule, int64_t step);

#endif
