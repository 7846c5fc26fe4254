/* A branch: work that runs beside the device's other work, on a CUDA stream of its own.
 *
 * branch_fork records the point that the branch depends on. Work given between branch_begin and branch_end,
 * of which there may be several pairs, is ordered after that point and after the branch's own work, not after
 * what else was given since, and uses the multiprocessors that the other work leaves idle: a short kernel
 * overlaps a long one that it does not depend on. Work given after branch_join is ordered after both. Each
 * branch can be there once at a time, in a graph too.
 *
 * A branch and the work beside it must not both use cuBLASLt's workspace, nor both run mn_reduce,
 * mn_dot or mn_column_sums with a loss, which share one counter. On the CPU all four functions do
 * nothing, because work is done when it is given. */
#ifndef MN_KERNELS_BRANCH_H
#define MN_KERNELS_BRANCH_H

#include "kernels/types.h"

enum mn_branch {
  MN_BRANCH_SUMS,     /* of a lower priority than the device's other work: column sums */
  MN_BRANCH_REPLICAS, /* of a higher one: what replicas exchange, */
  MN_BRANCH_SHARDS,   /* and what shards exchange beside products */
  MN_BRANCHES,
};

/* While a sum of replicas' may run beside them, products of our own GEMM leave it so many multiprocessors
 * (struct mn_device, reserved_sms), which suffice for the link's full rate (NOTES.md). */
enum { MN_EXCHANGE_MULTIPROCESSORS = 24 };

typedef mn_status mn_branch_fork_function(struct mn_device *device, enum mn_branch which);
/* branch_end must be called after branch_begin, and branch_join after branch_fork, even when work in between
 * failed. */
typedef mn_status mn_branch_begin_function(struct mn_device *device, enum mn_branch which);
typedef mn_status mn_branch_end_function(struct mn_device *device, enum mn_branch which);
typedef mn_status mn_branch_join_function(struct mn_device *device, enum mn_branch which);

#endif
