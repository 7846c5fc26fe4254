/* The CPU has one thing to do at a time. */
#include "kernels/branch.h"

mn_status mn_branch_fork_cpu(struct mn_device *device) {
  (void)device;
  return MN_OK;
}

mn_status mn_branch_begin_cpu(struct mn_device *device) {
  (void)device;
  return MN_OK;
}

mn_status mn_branch_join_cpu(struct mn_device *device) {
  (void)device;
  return MN_OK;
}
