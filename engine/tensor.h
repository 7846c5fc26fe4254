/* A tensor: a matrix on the device with the forms that GEMMs read, its gradient, and the epilogue that is to
 * be applied to that gradient. Vectors are matrices of one row. */
#ifndef MN_ENGINE_TENSOR_H
#define MN_ENGINE_TENSOR_H

#include "kernels/device.h"
#include "kernels/planes.h"

struct mn_tensor {
  char name[64];           /* a parameter's is PyTorch's, "blocks.0.fc.weight" */
  int rank;                /* 1 for a vector [cols], else 2 */
  struct mn_operand value; /* [rows, cols] */
  int64_t first, whole;    /* a parameter's shard: `value` holds rows (a vector: cols) from `first` on, out
                              of `whole` in all shards; without ranks 0 and all rows */
  void *gradient;          /* [rows, cols] reals; NULL if the gradient is never stored */
  /* On the device, if the planes are scaled: [0] their scale; [1] of a weight, that of its first node's dz,
   * whose factor is 0 until one is measured; else NULL. dz's scales of further nodes are not saved. */
  struct mn_scale *scales;
  int needs_gradient;
  struct mn_epilogue sink; /* applied to the gradient: by its one consumer's GEMM, or to the sum of several */
  struct mn_update update; /* a MN_UPDATE sink points at it; its m and v are the tensor's */
  int uses, stored;        /* on the tape finished last: how many nodes read it; `gradient` holds their sum */
  int keep;                /* the real form is kept, whatever the consumers read */
  int outside; /* the value's memory is another's: the forms that are read point to it before each run */
  int summed;  /* a parameter without shares: the tape all-reduces its stored gradient over replicas */
  /* The team whose collectives reach the gradient and the forms that GEMMs read, or NULL. A parameter's team
   * is the replicas, if each of several can have a share of its rows. */
  const struct mn_team *shared;
  int operand; /* a tape's last output: only a GEMM reads it, so it has no real form */
};

/* MN_USAGE unless rows and cols are from 1 to INT32_MAX, so that their product fits an int64_t. */
mn_status mn_tensor_check_shape(const char *name, int64_t rows, int64_t cols);

/* A parameter, not initialised: its real form and, of rank 2, the planes that the device's GEMMs read; or, of
 * rank 2 in MN_BF16, a split weight (struct mn_operand). first, whole: of a rank's shard, as in struct
 * mn_tensor; else 0. `*out` is the caller's, for mn_tensor_free. */
mn_status mn_tensor_parameter(struct mn_device *device, struct mn_tensor **out, const char *name, int rank,
                              int64_t rows, int64_t cols, int64_t first, int64_t whole);
void mn_tensor_free(struct mn_device *device, struct mn_tensor *tensor); /* NULL is fine */

static inline int64_t mn_tensor_count(const struct mn_tensor *t) {
  return t->value.rows * t->value.cols;
}

/* A parameter's rows, or the cols of a vector. */
static inline int64_t mn_tensor_outputs(const struct mn_tensor *t) {
  return t->rank == 2 ? t->value.rows : t->value.cols;
}

/* Sets how a parameter is trained, before the tape that trains it is finished; without this call it has no
 * gradient. MN_UPDATE: the epilogue that produces the gradient applies the rule. MN_STORE: the gradient, of
 * all replicas, is stored, for checks or a later step; if each replica has a share of the rows, in that
 * share. MN_ADD: this rank's gradient is added up over several backward passes. Takes the buffers that `how`
 * and the rule need: the gradient, and m and v, which start at 0. `rule` is borrowed, and may be NULL except
 * for MN_UPDATE. */
mn_status mn_tensor_train(struct mn_device *device, struct mn_tensor *tensor, enum mn_epilogue_kind how,
                          const struct mn_rule *rule);

/* Set all of a tensor's forms: from doubles on the host; to uniform numbers, from number `first` of their
 * sequence on (kernels/random.h). A split weight takes pinned memory for a part of it meanwhile. */
mn_status mn_tensor_write(struct mn_device *device, struct mn_tensor *tensor, const double *from);
mn_status mn_tensor_uniform(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed,
                            uint32_t sequence, uint64_t first, double bound);

/* Copy a tensor's rows·cols values: _read as doubles and _download as reals to the host, and wait for the
 * device; _copy as reals to the device's memory, in order with its work. A real has 8 bytes in MN_FP64, else
 * 4. The tensor has its real form or is a split weight. For a split weight the first two take pinned memory
 * for a part meanwhile, and no device memory. */
mn_status mn_tensor_read(struct mn_device *device, const struct mn_tensor *tensor, double *to);
mn_status mn_tensor_download(struct mn_device *device, const struct mn_tensor *tensor, void *to);
mn_status mn_tensor_copy(struct mn_device *device, const struct mn_tensor *tensor, void *to);

#endif
