/* The learning rate as a function of the step: warm-up first, then the schedule over the steps that are left.
 */
#include "train/schedule.h"

#include <math.h>
#include <stddef.h>

#include "kernels/words.h"

static const char *const names[] = {
    [MN_SCHEDULE_CONSTANT] = "constant", [MN_SCHEDULE_COSINE] = "cosine", [MN_SCHEDULE_STEP] = "step"};
_Static_assert(sizeof names / sizeof *names == MN_SCHEDULES, "every schedule has its name");

const char *mn_schedule_name(enum mn_schedule_kind kind) {
  return kind < MN_SCHEDULES ? names[kind] : NULL;
}

mn_status mn_schedule_parse(const char *word, enum mn_schedule_kind *out) {
  int found;
  MN_TRY(mn_word_find(&found, "schedule", names, MN_SCHEDULES, word));
  *out = (enum mn_schedule_kind)found;
  return MN_OK;
}

double mn_schedule_rate(const struct mn_schedule *s, int64_t step) {
  MN_REQUIRE(step >= 0);
  if (step < s->warmup) return s->rate * (double)(step + 1) / (double)s->warmup;
  int64_t done = step - s->warmup, span = s->horizon - s->warmup;
  switch (s->kind) {
  case MN_SCHEDULE_CONSTANT:
    return s->rate;
  case MN_SCHEDULE_COSINE:
    /* A run may be asked for a step past its horizon; the rate has arrived at 0 there, and does not rise. */
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
