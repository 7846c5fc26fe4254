/* The CPU does work when it is given, so a branch has nothing to do. Contract: kernels/branch.h. */
#include "kernels/kernels.h"

mn_status mn_branch_fork_cpu(struct mn_device *device, enum mn_branch which) {
  (void)device, (void)which;
  return MN_OK;
}

mn_status mn_branch_begin_cpu(struct mn_device *device, enum mn_branch which) {
  (void)device, (void)which;
  return MN_OK;
}

mn_status mn_branch_end_cpu(struct mn_device *device, enum mn_branch which) {
  (void)device, (void)which;
  return MN_OK;
}

mn_status mn_branch_join_cpu(struct mn_device *device, enum mn_branch which) {
  (void)device, (void)which;
  return MN_OK;
}
