/* The block as two plain calls on memory of the caller's, in a CUDA stream of the caller's: for other
 * frameworks, such as PyTorch (layers/minnow_torch.py). Nothing is recorded on a tape.
 *
 * The calls neither allocate memory of the device's nor wait for it, and may be captured in a CUDA graph.
 * They make the context's GPU the calling thread's current one. One thread at a time uses a context. */
#ifndef MN_LAYERS_BLOCK_CALL_H
#define MN_LAYERS_BLOCK_CALL_H

#include "engine/context.h"

/* A matrix that products read. */
struct mn_block_matrix {
  const void *values; /* reals or, if narrow, what the precision's products read, bfloat16s or float16s */
  void *planes;       /* memory for what products read of reals, so that a later call need not make it again:
                         aligned to 256 bytes (16 on the CPU), of mn_block_plane_bytes for each element and
                         MN_BLOCK_PLANES_MORE besides. NULL: it is in the workspace */
  int narrow;         /* on CUDA, in MN_BF16 and MN_FP16 */
  int ready;          /* an earlier call has written the planes from the same values */
};
enum { MN_BLOCK_PLANES_MORE = 32 };

/* The arguments of both calls; a caller sets what it needs and leaves the rest 0. All pointers are to the
 * device's memory. Reals are doubles in MN_FP64, else floats; matrices are row-major and dense, and z, dx and
 * dweight are aligned to 16 bytes. */
struct mn_block_call {
  size_t size;                            /* sizeof(struct mn_block_call) */
  int64_t rows, inputs, channels, groups; /* N, I, C, G */
  double eps, slope;
  struct mn_block_matrix x, weight; /* [N, I], [C, I] */
  const void *bias, *gamma, *beta;  /* [C] reals */
  void *y; /* out of the forward: [N, C] reals or, if y_narrow, as narrow values are */
  int y_narrow;
  void *z, *mean, *rstd; /* [N, C], [N, G], [N, G] reals: into the backward, and out of the forward where they
                            are not NULL */
  const void *dy;        /* [N, C] reals: into the backward; NULL for the forward */
  void *dx, *dweight, *dbias, *dgamma, *dbeta; /* reals: out of the backward, those that are not NULL */
  void *stream;    /* a cudaStream_t of the context's GPU; NULL: its default stream */
  void *workspace; /* mn_block_workspace bytes, aligned as planes are: the call's own until it is done */
};

/* 0 where products read the values themselves. */
MN_API size_t mn_block_plane_bytes(const struct mn_context *context);

/* By the sizes and by which pointers are NULL: of the forward or, where dy is not NULL, of the backward. 0
 * where call->size is another's. */
MN_API size_t mn_block_workspace(const struct mn_context *context, const struct mn_block_call *call);

/* y, z, mean and rstd of x, weight, bias, gamma and beta; and the planes of x and weight that are not ready.
 * MN_USAGE: sizes or pointers that cannot be. MN_LIBRARY. */
MN_API mn_status mn_block_forward(struct mn_context *context, const struct mn_block_call *call);

/* The gradients, of dy, z, mean, rstd, gamma and beta, and, for dx, of weight and, for dweight, of x. Nothing
 * else is read, and none of these is written. MN_USAGE, MN_LIBRARY. */
MN_API mn_status mn_block_backward(struct mn_context *context, const struct mn_block_call *call);

#endif
