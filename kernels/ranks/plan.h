/* How a collective takes a matrix, block by block. */
#ifndef MN_KERNELS_RANKS_PLAN_H
#define MN_KERNELS_RANKS_PLAN_H

#include "kernels/ranks/collectives.h"

/* A collective goes over the matrix in blocks of `rows` rows, for which the pieces of all ranks, each as wide
 * as the widest, fit one staging buffer. MN_NO_MEMORY: a single row does not fit. */
struct mn_ranks_plan {
  int64_t share;  /* this rank's columns */
  int64_t widest; /* a rank's share at most */
  int64_t rows;   /* at a time */
};
static inline mn_status mn_ranks_plan(struct mn_ranks_plan *out, const struct mn_device *device, int64_t cols,
                                      size_t each) {
  const struct mn_team *t = &device->ranks->shards;
  int64_t first;
  out->share = mn_share(cols, t->rank, t->size, &first);
  out->widest = (cols + t->size - 1) / t->size;
  out->rows = MN_RANKS_STAGING / ((int64_t)each * out->widest * t->size);
  if (out->rows > 0) return MN_OK;
  return mn_fail(MN_NO_MEMORY,
                 "a row of %ld numbers is wider than the staging memory of exchanges between ranks, %d MiB",
                 (long)cols, MN_RANKS_STAGING >> 20);
}

#endif
