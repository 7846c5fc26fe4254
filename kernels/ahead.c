/* Nothing runs ahead on the CPU. Contract: kernels/ahead.h. */
#include <string.h>

#include "kernels/kernels.h"

mn_status mn_ahead_begin_cpu(struct mn_device *device) {
  (void)device;
  return MN_OK;
}

mn_status mn_ahead_end_cpu(struct mn_device *device) {
  (void)device;
  return MN_OK;
}

mn_status mn_ahead_used_cpu(struct mn_device *device, void *to, const void *from, size_t bytes) {
  (void)device;
  memcpy(to, from, bytes);
  return MN_OK;
}

mn_status mn_ahead_wait_cpu(struct mn_device *device, double *idle) {
  (void)device;
  *idle = 0;
  return MN_OK;
}

mn_status mn_ahead_finish_cpu(struct mn_device *device) {
  (void)device;
  return MN_OK;
}
