/* The CPU has no streams, and its library takes no workspace. Contract: kernels/outside.h. */
#include <math.h>

#include "kernels/kernels.h"

void mn_exchange_cpu(struct mn_device *device, struct mn_outside *outside) {
  int *const nonfinite = device->nonfinite, mark = device->mark;
  device->nonfinite = outside->nonfinite, device->mark = outside->mark;
  outside->nonfinite = nonfinite, outside->mark = mark;
}

mn_status mn_count_cpu(struct mn_device *device, const struct mn_counts *c) {
  const int skipped = c->ended && *device->nonfinite != 0;
  if (c->steps) {
    if (c->ended && !skipped) *c->steps += 1;
    c->rate[MN_RATE_FIRST] = 1 / (1 - pow(c->beta1, *c->steps + 1.0));
    c->rate[MN_RATE_SECOND] = 1 / sqrt(1 - pow(c->beta2, *c->steps + 1.0));
  }
  if (!c->clears) return MN_OK;
  *c->told = *c->skipped += skipped;
  *device->nonfinite = 0;
  return MN_OK;
}
