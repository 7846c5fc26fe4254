/* The CPU has no streams, and its library takes no workspace. Contract: kernels/outside.h. */
#include "kernels/kernels.h"

void mn_exchange_cpu(struct mn_device *device, struct mn_outside *outside) {
  int *const nonfinite = device->nonfinite, mark = device->mark;
  device->nonfinite = outside->nonfinite, device->mark = outside->mark;
  outside->nonfinite = nonfinite, outside->mark = mark;
}
