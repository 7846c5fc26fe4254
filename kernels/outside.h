/* Work in a CUDA stream of another's, such as PyTorch's current one. */
#ifndef MN_KERNELS_OUTSIDE_H
#define MN_KERNELS_OUTSIDE_H

#include "kernels/types.h"

enum { MN_LIBRARY_WORKSPACE = 32 << 20, MN_LIBRARY_SCALARS = 8 };

/* What a device's kernels use besides their operands. Streams that run side by side must not share the
 * memory, which is the device's, aligned to 256 bytes. */
struct mn_outside {
  int ordinal;     /* the device's; after the exchange, the thread's current GPU before it */
  void *stream;    /* a cudaStream_t of the device's GPU; NULL means its default stream */
  void *workspace; /* MN_LIBRARY_WORKSPACE bytes */
  void *scalars;   /* MN_LIBRARY_SCALARS bytes */
  void *scratch;   /* MN_LIBRARY_WORKSPACE bytes if products are added or updated with; else NULL */
  int *nonfinite;  /* the flag, and its mark (struct mn_device) */
  int mark;
};

/* Exchanges the device's own for those of `outside`, so that what is given to it from then on is in that
 * stream; a second call exchanges them back, and has to follow even if the work failed. In between only gemm
 * (with MN_STORE, MN_ADD, MN_UPDATE or a block epilogue), epilogue, column_sums without a loss, round,
 * rescale and count may be called. On the CPU the flag and its mark alone are exchanged. */
typedef void mn_exchange_function(struct mn_device *device, struct mn_outside *outside);

/* What another's optimizer keeps of its steps, in the device's memory. */
struct mn_counts {
  float *steps; /* how many of AdamW's steps were not skipped; NULL for SGD */
  double *rate; /* [MN_RATES] of AdamW: first and second for the next step, by these betas */
  double beta1, beta2;
  int64_t *skipped; /* how many steps were skipped */
  int64_t *told;    /* a copy of skipped, which may be in memory of allocate_host */
  int ended;        /* a step has ended, which is counted; else only the rate is written */
  int clears;       /* this is the last call for the step: it counts a skipped one, and clears the flag */
};

/* A step is skipped if the nonfinite flag is set. */
typedef mn_status mn_count_function(struct mn_device *device, const struct mn_counts *counts);

#endif
