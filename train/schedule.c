/* The learning rate as a function of the step: warm-up first, then the schedule over the steps that are left.
 */
#include "train/schedule.h"

#include <math.h>

#include "kernels/text.h"

MN_WORDS(schedule, enum mn_schedule_kind, MN_SCHEDULES, [MN_SCHEDULE_CONSTANT] = "constant",
         [MN_SCHEDULE_COSINE] = "cosine", [MN_SCHEDULE_STEP] = "step");

double mn_schedule_rate(const struct mn_schedule *s, int64_t step) {
  MN_REQUIRE(step >= 0);
  if (step < s->warmup) return s->rate * (double)(step + 1) / (double)s->warmup;
  int64_t done = step - s->warmup, span = s->horizon - s->warmup;
  switch (s->kind) {
  case MN_SCHEDULE_CONSTANT:
    return s->rate;
  case MN_SCHEDULE_COSINE:
    /* Past the horizon the cosine would rise again; the rate stays 0. */
    if (done >= span) return 0;
    return s->rate * 0.5 * (1 + cos(M_PI * (double)done / (double)span));
  case MN_SCHEDULE_STEP:
    MN_REQUIRE(s->every > 0);
    return s->rate * pow(s->factor, (double)(done / s->every));
  case MN_SCHEDULES:
    break;
  }
  mn_abort(__FILE__, __LINE__, "a schedule");
}
