/* The block as plain calls on memory of the caller's, in a CUDA stream of the caller's: for other
 * frameworks, such as PyTorch (layers/minnow_torch/). They do without a tape.
 *
 * A backward stores the gradients, or it leaves dz and x for an update. The update computes the product dzᵀ·x
 * and applies the rule to its result, so that the weight's gradient is never stored.
 *
 * The calls neither allocate memory of the device's nor wait for it, and may be captured in a CUDA graph. The
 * calling thread's current GPU is the same afterwards. One thread at a time uses a device. */
#ifndef MN_LAYERS_BLOCK_CALL_H
#define MN_LAYERS_BLOCK_CALL_H

#include "layers/layer.h"

/* A matrix that products read. */
struct mn_block_matrix {
  const void *values; /* reals or, if narrow, the precision's bfloat16s or float16s */
  void *planes;       /* memory for what products read of reals, so that a later call need not make it again:
                         aligned to 256 bytes (16 on the CPU), of mn_block_plane_bytes for each element and
                         MN_BLOCK_PLANES_MORE besides; NULL to use the workspace */
  int narrow;         /* on CUDA, in MN_BF16 and MN_FP16 */
  int ready;          /* an earlier call has written the planes from the same values */
  int updated;        /* updates write the planes of this weight too: their scale leaves it room to grow */
};
enum { MN_BLOCK_PLANES_MORE = 32 };

/* A parameter and the state that its rule keeps, all reals of its shape, aligned to 16 bytes. */
struct mn_block_parameter {
  void *values; /* NULL for a parameter that is not trained */
  /* A 16-bit module's own parameter, which the update writes beside the values; NULL in other modules. In
   * MN_BF16 a weight's floats are in two halves (kernels/planes.h): the upper here, the lower in `values`. */
  void *narrow;
  void *m, *v;    /* not read if the rule has no state */
  void *gradient; /* where its gradient is stored in place of an update; else NULL */
};

/* The arguments of all calls; a caller sets what its call needs and leaves the rest 0. All pointers are to
 * the device's memory. Reals are doubles in MN_FP64, else floats; matrices are row-major and dense, and y,
 * z, dx and dweight are aligned to 16 bytes. */
struct mn_block_call {
  size_t size;                            /* sizeof(struct mn_block_call) */
  int64_t rows, inputs, channels, groups; /* N, I, C, G */
  double eps, slope;
  struct mn_block_matrix x, weight; /* [N, I], [C, I] */
  /* Z alone as under PyTorch's autocast; MODULE as in a module of 16 bits, all from bias to dbeta but mean
   * and rstd. */
  enum mn_narrow narrow;
  const void *bias, *gamma, *beta; /* [C] */
  void *y;                         /* out of the forward: [N, C] */
  void *z, *mean, *rstd; /* [N, C], [N, G], [N, G]: into the backward, and out of the forward if they are
                            not NULL */
  const void *dy;        /* [N, C]: into the backward; NULL for the forward */
  void *dx, *dweight, *dbias, *dgamma, *dbeta; /* out of the backward, those that are not NULL */
  /* Out of the backward if not NULL: dz and the column sums for an update, mn_block_pair_bytes, aligned as
   * planes are. */
  void *pair;
  /* In the device's memory. It becomes MN_BLOCK_NONFINITE if the backward meets a value that is not finite;
   * if it is not 0, no parameter is updated. NULL to do without. */
  int *nonfinite;
  void *stream;    /* a cudaStream_t of the device's GPU; NULL for its default stream */
  void *workspace; /* mn_block_workspace bytes, aligned as planes are: the call's own until it is done */
  /* An update, which reads rows, inputs, channels and groups, x and pair as the backward that wrote the
   * pair, and writes the weight's planes beside its reals. */
  struct mn_block_parameter of[MN_BLOCK_PARAMETERS];
  struct mn_rule rule; /* its rate and scale are in the device's memory; rate is NULL for other calls */
  /* Out: up to 2·N² + 3·C reals, aligned to 16 bytes, by mn_block_grams (layers/norms.h); the vectors that
   * have values are wanted. N is a multiple of 8. Such a call does not update; NULL for an update. */
  void *grams;
  struct mn_counts counts; /* of mn_block_count (kernels/stream.h) */
};

/* The bits of the float 1, so that the flag serves as a found_inf of PyTorch's too. */
enum { MN_BLOCK_NONFINITE = 0x3f800000 };

/* By the call's sizes: how many bytes the planes of x and weight take for each element. 0 if products read
 * the values themselves or call->size is another's. */
MN_API size_t mn_block_plane_bytes(const struct mn_device *device, const struct mn_block_call *call);

/* Depends on the sizes and on which pointers are NULL; for the update if it has a rate, else for the backward
 * if it has a dy, else for the forward. 0 if call->size is another's. */
MN_API size_t mn_block_workspace(const struct mn_device *device, const struct mn_block_call *call);

/* y, z, mean and rstd of x, weight, bias, gamma and beta; and the planes of x and weight that are not ready.
 * MN_USAGE: sizes or pointers that cannot be. MN_LIBRARY. */
MN_API mn_status mn_block_forward(struct mn_device *device, const struct mn_block_call *call);

/* The gradients, of dy, z, mean, rstd, gamma and beta, and, for dx, of weight and, for dweight, of x, of
 * which ready planes do alone. Of the matrices and vectors it does not read others, and does not write these.
 * MN_USAGE, MN_LIBRARY. */
MN_API mn_status mn_block_backward(struct mn_device *device, const struct mn_block_call *call);

/* How much memory the call's pair takes, by its sizes. 0 if call->size is another's. */
MN_API size_t mn_block_pair_bytes(const struct mn_device *device, const struct mn_block_call *call);

/* The pair's gradient of a parameter is stored where `gradient` is not NULL; any other parameter is updated
 * by it. The pair stays as it is. MN_USAGE: sizes or pointers that cannot be. MN_LIBRARY. */
MN_API mn_status mn_block_update(struct mn_device *device, const struct mn_block_call *call);

/* Counts a step before its updates, by the call's counts, flag and stream. MN_USAGE: pointers that cannot be
 * NULL. MN_LIBRARY. */
MN_API mn_status mn_block_count(struct mn_device *device, const struct mn_block_call *call);

#endif
