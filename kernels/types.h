/* The types that every kernel works on: the device, the operand, the epilogue.
 *
 * Everything here works on raw pointers and sizes. A `real` is the type sums, statistics, vectors and master
 * weights have: double in MN_FP64, float in every other precision; `void *` stands for "reals, in the
 * stream's memory" unless a comment says otherwise. Matrices are row-major and dense. The CPU files are
 * compiled twice, for float and for double, the CUDA files are templates; each header beside this one names
 * one kind of operation, its formula and its parameters, and the CPU and CUDA versions share them.
 *
 * Every entry may be asynchronous (CUDA: ordered on the device); errors of the launch come back as the
 * status. */
#ifndef MN_KERNELS_TYPES_H
#define MN_KERNELS_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

enum mn_device_type { MN_DEVICE_CPU, MN_DEVICE_CUDA };

/* What a GEMM reads, and the real it accumulates in. On the CPU, MN_TF32 runs as MN_FP32. */
enum mn_precision {
  MN_FP64, /* double                            double */
  MN_FP32, /* float, plain multiply-adds        float  */
  MN_TF32, /* float rounded to TF32             float  */
  MN_BF16, /* bfloat16 copies (struct mn_operand.bf16) float  */
};

struct mn_kernels;
struct mn_cuda;

/* Where work goes: a device, in order. Opened by mn_device_open (kernels/device.h); one thread at a time. */
struct mn_device {
  const struct mn_kernels *kernels;
  enum mn_device_type type;
  enum mn_precision precision;
  size_t real; /* bytes of a real: 8 or 4 */
  size_t bf16; /* bytes of an element of an operand's bf16 form: 0 but in MN_BF16; there 2 on CUDA, and 4 on
                  the CPU, which keeps a bfloat16's value in a float so that sgemm can read it */
  int library; /* set: every product takes the library path, also where a GEMM of our own would do; for
                  measuring and checking one against the other */
  int *nonfinite; /* in the device's memory: set to 1 by an epilogue that meets an infinity or a NaN, and read
                     by every update, which then writes nothing */
  struct mn_cuda *cuda; /* device, cuBLASLt handle and workspace; NULL on the CPU */
  double marks[2];      /* the CPU's stopwatch, ms */
};

/* A matrix with the forms that GEMMs read. Whoever writes the matrix writes its forms. */
struct mn_operand {
  int64_t rows, cols;
  void *real; /* [rows, cols]; NULL where nobody reads more than the bf16 form */
  void *bf16; /* [rows, cols] rounded to bfloat16, to nearest even; NULL where no bf16 GEMM reads it */
  int stale;  /* real was written from outside (loaded, initialised): bf16 is older */
};

/* What stands between x·Wᵀ and y. Each is a flag of the one block epilogue; the single operations and all
 * fusion plans are subsets of these, in this order. */
enum mn_block_op {
  MN_OP_BIAS = 1,     /* z = product + bias */
  MN_OP_NORM = 2,     /* v = (z − mean)·rstd·gamma + beta, per row and group */
  MN_OP_ACTIVATE = 4, /* a = v > 0 ? v : slope·v */
  MN_OP_SUM = 8,      /* y = a + a */
  MN_OP_ALL = 15,
};

/* Rows whose column sums are added up together, in order: the chunks, and so the bytes of the result, do not
 * depend on how many threads there are. */
enum { MN_CHUNK_ROWS = 32 };
static inline int64_t mn_chunks(int64_t rows) {
  return (rows + MN_CHUNK_ROWS - 1) / MN_CHUNK_ROWS;
}

/* Operands of the block epilogues (kernels/block.h): N rows, C channels, G groups. */
struct mn_block {
  unsigned ops; /* enum mn_block_op flags; without MN_OP_NORM, groups, gamma, beta, mean and rstd are not
                      read */
  int64_t rows, channels, groups; /* N, C, G; C divisible by G */
  double eps, slope;
  const void *bias, *gamma, *beta; /* [C] */
  void *z;              /* [N, C] saved: d plus bias; without MN_OP_BIAS a copy of d, or d itself */
  void *mean, *rstd;    /* [N, G] saved */
  struct mn_operand *y; /* [N, C]: the forms that are not NULL are written */
  const void *target;   /* [N, C]: MN_BLOCK_LOSS only */
  double scale;         /* MN_BLOCK_LOSS: dy = scale·2·(y − target)/(N·C) */
  void *loss_parts; /* [N, G] MN_BLOCK_LOSS: Σ (y − target)² over the group (D = C/G neighbours) of a row;
                       [N] without MN_OP_NORM, where a row is one group */
  struct mn_operand
      *dz;    /* [N, C]: the forms that are not NULL are written; dz->real may be z or the incoming dy */
  void *sums; /* [3, chunks, C]: partial column sums of dbias, dgamma, dbeta, over chunks of
                 MN_CHUNK_ROWS rows; a stage that is off leaves its part alone */
};

/* SGD, PyTorch's rule: g = scale·gradient + weight_decay·w;  m = momentum·m + g;  w −= rate·(nesterov ? g +
 * momentum·m : m). The rate and the scale sit in the device's memory, so that a recorded step can be replayed
 * with new ones. */
struct mn_sgd {
  const double *rate;
  const double *scale; /* from clipping; NULL: 1 */
  double momentum, weight_decay;
  int nesterov;
};

struct mn_update {
  struct mn_operand *w; /* real in place, then its bf16 form where there is one */
  void *momentum;       /* like w->real; NULL where sgd->momentum is 0 */
  const struct mn_sgd *sgd;
};

/* What becomes of a matrix product, or of any matrix that stands in memory. */
enum mn_epilogue_kind {
  MN_STORE,          /* into  = d */
  MN_ADD,            /* into += d */
  MN_BLOCK,          /* block: bias, statistics, normalise, activate, sum -> y; saves z, mean, rstd */
  MN_BLOCK_LOSS,     /* block: the same, then the squared error and straight back -> dz, sums, loss_parts */
  MN_BLOCK_BACKWARD, /* block: d is dy -> dz, sums */
  MN_UPDATE,         /* update: d is a parameter's gradient -> w, momentum */
};
struct mn_epilogue {
  enum mn_epilogue_kind kind;
  void *into; /* like d. Store, add: the result. The others: where a library GEMM may leave its product on the
                 way; MN_UPDATE may have NULL here if momentum != 0, without Nesterov and scale: the product
                 then goes straight into momentum (CPU), through scratch of the device's (CUDA), or
                 stays in the registers of the GEMM of our own */
  const struct mn_block *block;
  const struct mn_update *update;
};

/* Declares the four versions of one kernel of type NAME_function. */
#define MN_KERNEL(name)                                                                                      \
  MN_C name##_function name##_cpu_fp32;                                                                      \
  MN_C name##_function name##_cpu_fp64;                                                                      \
  MN_C name##_function name##_cuda_fp32;                                                                     \
  MN_C name##_function name##_cuda_fp64

#endif
