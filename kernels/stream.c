/* The CPU does work when it is given: it has no streams, branches or work ahead, and its library takes no
 * workspace. Contract: kernels/stream.h. */
#include <string.h>

#include "kernels/kernels.h"

mn_status mn_branch_fork_cpu(struct mn_device *device, enum mn_branch which) {
  return MN_OK;
}

mn_status mn_ahead_used_cpu(struct mn_device *device, void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
  return MN_OK;
}

mn_status mn_ahead_wait_cpu(struct mn_device *device, double *idle) {
  *idle = 0;
  return MN_OK;
}

void mn_exchange_cpu(struct mn_device *device, struct mn_outside *outside) {
  int *const nonfinite = device->nonfinite, mark = device->mark;
  device->nonfinite = outside->nonfinite, device->mark = outside->mark;
  outside->nonfinite = nonfinite, outside->mark = mark;
}

mn_status mn_count_cpu(struct mn_device *device, const struct mn_counts *counts) {
  int set = counts->flags ? 0 : *device->nonfinite;
  for (int i = 0; i < counts->flag_count; i++) set |= counts->flags[i], counts->flags[i] = 0;
  *device->nonfinite = set ? device->mark : 0;
  mn_count_step(counts, set != 0, 0, 1);
  return MN_OK;
}
