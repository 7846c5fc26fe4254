/* Work beside other work. fork remembers a place in the device; what is given between begin and join comes
 * after what stood before fork, but need not wait for what was given since, and runs on what that leaves
 * free: so a short piece of work hides behind a long one that does not need it. What is given after join
 * comes after all of it. One branch at a time, in a graph too; and what the device has one of, the library's
 * workspace or the count of a sum's spans, for one side only. On the CPU work is done when it is given. */
#ifndef MN_KERNELS_BRANCH_H
#define MN_KERNELS_BRANCH_H

#include "kernels/types.h"

/* After begin, join is to be called whatever happened. */
typedef mn_status mn_branch_function(struct mn_device *device);
MN_C mn_branch_function mn_branch_fork_cpu;
MN_C mn_branch_function mn_branch_fork_cuda;
MN_C mn_branch_function mn_branch_begin_cpu;
MN_C mn_branch_function mn_branch_begin_cuda;
MN_C mn_branch_function mn_branch_join_cpu;
MN_C mn_branch_function mn_branch_join_cuda;

#endif
