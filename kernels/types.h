/* The types that every kernel works on: the device, the operand, the epilogue.
 *
 * Everything here works on raw pointers and sizes. A `real` is the type sums, statistics, vectors and master
 * weights have: double in MN_FP64, float in every other precision; `void *` stands for "reals, in the
 * device's memory" unless a comment says otherwise. Matrices are row-major and dense. The CPU files are
 * compiled twice, for float and for double; the CUDA files are templates. Each header beside this one
 * describes one kind of operation, with its formula and its parameters, for the CPU and CUDA versions alike.
 *
 * A CUDA version returns when its work is in the device's CUDA stream, with the status of the launch. It
 * makes the device's GPU the calling thread's current one first (device.cu), so one thread may use several
 * devices in turn. */
#ifndef MN_KERNELS_TYPES_H
#define MN_KERNELS_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

#ifdef __CUDACC__
#define MN_EVERYWHERE __host__ __device__
#define MN_GPU __device__ __forceinline__
/* A loop that is unrolled: MN_UNROLL(int i = 0; i < W; i++). */
#define MN_UNROLL(...) _Pragma("unroll") for (__VA_ARGS__)
#else
#define MN_EVERYWHERE
#endif

enum mn_device_type { MN_DEVICE_CPU, MN_DEVICE_CUDA, MN_DEVICE_TYPES };

/* The precision of a GEMM's inputs. It accumulates in the real: double in MN_FP64, else float. On the CPU,
 * MN_TF32 and MN_FP16X3 run as MN_FP32, and so does MN_FP16X3 on a GPU without a GEMM of our own. */
enum mn_precision {
  MN_FP64,   /* double */
  MN_FP32,   /* float, plain multiply-adds */
  MN_TF32,   /* float rounded to TF32 */
  MN_BF16,   /* a bfloat16 plane */
  MN_FP16,   /* a float16 plane, scaled */
  MN_FP16X3, /* two float16 planes, scaled, of which three products are summed: float's accuracy */
  MN_PRECISIONS,
};

/* The content of an operand's planes, which decides which products of planes are summed: high·high alone or,
 * of two planes, low·high and high·low too. */
enum mn_plane_kind { MN_NO_PLANES, MN_PLANES_BF16, MN_PLANES_FP16, MN_PLANES_FP16X2 };

/* The word for a precision, such as "fp64"; NULL for an invalid precision. In device.c. */
extern const char *const mn_precision_words[]; /* NULL-terminated */
MN_C const char *mn_precision_name(enum mn_precision precision);

/* Which products have all of a CPU's threads: large ones, those that are not small, as if threads were asked
 * for by mn_device_open, or each. */
enum mn_thread_rule { MN_FEWER_THREADS, MN_ASKED_THREADS, MN_ALL_THREADS };

/* How many of a CPU's threads compute: all, half of them (of two or three one), or one. */
enum mn_team_size { MN_TEAM_ALL, MN_TEAM_HALF, MN_TEAM_ONE };

/* Runs what it is given, in order. Opened by mn_device_open (kernels/device.h); one thread at a time, except
 * for host memory and download_beside (kernels/memory.h). */
struct mn_device {
  const struct mn_kernels *kernels;
  enum mn_device_type type;
  int ordinal; /* the GPU's number, as mn_device_open was given it */
  enum mn_precision precision;
  int capability;   /* the precision needs a GPU of this compute capability (8: 8.0) or newer */
  double tolerance; /* relative, of results in the precision */
  size_t real;      /* bytes of a real: 8 or 4 */
  enum mn_plane_kind plane_kind;
  int planes;   /* planes of an operand that GEMMs read: 0, 1 or 2 */
  size_t plane; /* bytes of a plane's element: 2 on CUDA, and 4 on the CPU, which keeps the rounded value in a
                   float so that products read it; 0 without planes */
  int scaled;   /* planes hold scaled values: struct mn_scale, kernels/planes.h */
  int has_own_gemm; /* for this GPU and precision */
  int reserved_sms; /* multiprocessors that the GEMM of our own leaves free, for what runs beside it: a
                       gather, an exchange. reduce_scatter_rows raises it; the tape restores it after the
                       step */
  int force_cublas; /* every product takes the library path, even if a GEMM of our own fits; for measuring
                   and checking one against the other. Products of two planes, which no library takes, are
                   stored by our own GEMM and their epilogue comes after it */
  int *nonfinite; /* in the device's memory: 0 until an epilogue or a loss meets an infinity, a NaN or a value
                     that its plane cannot hold, and sets it to `mark`; read by every update, which then does
                     not write */
  int mark;       /* not 0. The first mark stays, so that it identifies the step */
  struct mn_scale *unscaled; /* in the device's memory: the factor 1, of float16s that are another's */
  struct mn_cuda *cuda;      /* CUDA streams, cuBLASLt handle and workspace; NULL on the CPU */
  struct mn_ranks
      *ranks; /* that this device trains with (kernels/ranks/collectives.h); NULL without others */
  const struct mn_collectives *collectives; /* among those; on the CPU NULL without others */
  double stamps[2];                         /* the CPU's stopwatch, ms */
  void *room;             /* the CPU's, in which products pack their operands (kernels/tile.h) … */
  int rooms;              /* … for so many threads (mn_team_take) */
  int threads;            /* the most; 0: by OpenMP (mn_device_open) */
  enum mn_team_size team; /* of these for the work at hand */
  char name[256];         /* to print: "NVIDIA H200", "CPU (16 threads)" */
  struct {
    char cuda[24], driver[24], cublaslt[24];
  } versions;          /* of the CUDA runtime ("13.0"), the newest CUDA that the driver supports, and cuBLASLt
                          ("13.1.0"), by which results may differ; "" on the CPU */
  int64_t allocations; /* by mn_device_allocate, made so far; steps do not allocate */
  size_t bytes;        /* allocated by it now */
  enum mn_thread_rule all_threads;   /* who gets all (engine/tape.h) */
  const struct mn_tape_hooks *hooks; /* what ranks add (engine/hooks.h), or NULL */
};

/* Threads for the device's work at hand, on the CPU; 1 in a process that was forked off one with threads,
 * which are missing there (team.c). */
MN_C int mn_threads(const struct mn_device *device);

/* A matrix with the forms that GEMMs read. Code that writes the matrix writes all of its forms.
 *
 * The planes are 16-bit matrices: the value (times the scale's factor) rounded, and in the second plane the
 * rest rounded. To nearest, ties to even.
 *
 * A weight in MN_BF16 is split: its plane is rounded to nearest, ties away from zero, so that the plane and
 * the lower 16 bits of the float hold the float (mn_upper_half, kernels/planes.h). On CUDA it has these two
 * alone, and the plane cannot be stale; on the CPU, whose planes are floats, the float stays beside it.
 * mn_round writes it from reals beside it, mn_narrow reads it. */
struct mn_operand {
  int64_t rows, cols;
  int64_t whole;          /* a shard's: the rows of the full weight, or the columns of its dz; 0 for a full
                             weight */
  void *real;             /* [rows, cols]; NULL if only the planes are read, and if there is low */
  void *planes[2];        /* [rows, cols]; NULL if no GEMM reads them */
  int split;              /* see above */
  uint16_t *low;          /* [rows, cols] the lower halves of a weight that is split on CUDA; else NULL */
  struct mn_scale *scale; /* the planes' (kernels/planes.h); NULL if they hold the values themselves */
  int headroom;           /* the scale's */
  struct mn_arrival *arrival; /* kernels/ranks/collectives.h; NULL if all of the plane is there */
  void *packed; /* on the CPU, of a weight that predictors read: [⌈rows/32⌉·32, cols] reals in the
                                 order in which mn_gemm reads its b in MN_NT, by mn_pack; else NULL */
  int stale;    /* real was loaded or initialised since the planes were written */
};

/* The operations between x·Wᵀ and y, as flags of the block epilogue. The single operations and all fusion
 * plans are subsets of these, applied in this order. */
enum {
  MN_OP_BIAS = 1,     /* z = product + bias */
  MN_OP_NORM = 2,     /* v = (z − mean)·rstd·gamma + beta, per row and group */
  MN_OP_ACTIVATE = 4, /* a = v > 0 ? v : slope·v */
  MN_OP_SUM = 8,      /* y = a + a */
  MN_OP_ALL = 15,
};

/* Whether an operand of this size can have planes: two planes need the GEMM of our own, which takes rows of
 * whole multiples of 16 bytes in every form of product (of a batch any number of rows will do). Another
 * operand is multiplied as MN_FP32. */
static inline int mn_has_planes(const struct mn_device *device, int64_t rows, int64_t cols) {
  return device->planes == 1 || (device->planes == 2 && rows % 8 == 0 && cols % 8 == 0);
}

/* Column sums are added up over chunks of this many rows, then over the chunks in order. The result's bytes
 * therefore do not depend on the number of threads. */
enum { MN_CHUNK_ROWS = 32 };
MN_EVERYWHERE static inline int64_t mn_chunks(int64_t rows) {
  return (rows + MN_CHUNK_ROWS - 1) / MN_CHUNK_ROWS;
}

/* What of a block is 16 bits in place of reals, as products read them without a scale: z, which is rounded
 * before its statistics are taken, as PyTorch's Linear does; or also bias, gamma, beta, y, dy and all
 * gradients. */
enum mn_narrow { MN_NARROW_NONE, MN_NARROW_Z, MN_NARROW_MODULE };

/* Operands of the block epilogues (kernels/kernels.h): N rows, C channels, G groups. */
struct mn_block {
  unsigned ops; /* MN_OP_… flags; without MN_OP_NORM, groups, gamma, beta, mean and rstd are not
                   read */
  int64_t rows, channels, groups; /* N, C, G; C divisible by G */
  double eps, slope;
  const void *bias, *gamma, *beta; /* [C] */
  void *z;           /* [N, C] saved: the matrix d plus bias; without MN_OP_BIAS a copy of d, or d itself */
  void *mean, *rstd; /* [N, G] saved */
  struct mn_operand *y; /* [N, C]: the forms that are not NULL are written; scaled planes need MN_OP_NORM,
                           which bounds them, and their factor (mn_rescale) */
  const void *target;   /* [N, C]: MN_BLOCK_LOSS only */
  const void *weights;  /* [N] MN_BLOCK_LOSS: multiply dy and loss_parts of a row; NULL: by 1 */
  double scale;         /* MN_BLOCK_LOSS: dy = scale·2·(y − target)/(N·C) */
  void *loss_parts; /* [N, G] MN_BLOCK_LOSS: Σ (y − target)² over the group (D = C/G neighbours) of a row; [N]
                       without MN_OP_NORM, as a row is one group then */
  struct mn_operand *dz; /* [N, C]: the forms that are not NULL are written; dz->real may be z or dy */
  void *sums;            /* [3, chunks, C]: partial column sums of dbias, dgamma, dbeta, over chunks of
                            MN_CHUNK_ROWS rows; only operations in ops write theirs */
  enum mn_narrow narrow; /* CUDA, MN_BLOCK and MN_BLOCK_BACKWARD */
};

/* How a weight w follows its gradient by struct mn_rule, with g = scale·gradient, or the gradient if scale is
 * NULL. Both are PyTorch's rules.
 *
 * MN_SGD:   g += weight_decay·w;  m = momentum·m + g;  w −= rate·(nesterov ? g + momentum·m : m).
 * MN_ADAMW: w −= rate·weight_decay·w;  m = beta1·m + (1 − beta1)·g;  v = beta2·v + (1 − beta2)·g²;
 *           w −= rate·first·m / (√v·second + eps), with first = 1/(1 − beta1ᵗ) and second = 1/√(1 − beta2ᵗ)
 *           in step t, from 1 on.
 *
 * What changes from step to step, the rule's rate [MN_RATES] (SGD reads rate[MN_RATE] alone) and scale, sits
 * in the device's memory, so that a recorded step can be replayed. */
enum { MN_RATE, MN_RATE_FIRST, MN_RATE_SECOND, MN_RATES };
enum { MN_RULES = MN_ADAMW + 1 };

/* Whether a rule keeps m, and v. */
static inline int mn_rule_keeps_m(const struct mn_rule *rule) {
  return rule->kind == MN_ADAMW || rule->momentum != 0;
}
static inline int mn_rule_keeps_v(const struct mn_rule *rule) {
  return rule->kind == MN_ADAMW;
}

/* Whether a GEMM with beta = momentum can compute momentum·m + gradient in place. Not with Nesterov, which
 * needs the gradient by itself, nor with a scale, which must not multiply the old momentum. */
static inline int mn_rule_by_gemm(const struct mn_rule *rule) {
  return rule->kind == MN_SGD && rule->momentum != 0 && !rule->nesterov && !rule->scale;
}

struct mn_update {
  struct mn_operand *w; /* all its forms, in place; scaled planes under the factor that they have */
  void *m, *v;          /* reals of w's shape; NULL if the rule does not keep them */
  const struct mn_rule *rule;
  int clears; /* the gradient is a sum in memory (no GEMM's product), which becomes 0 with the update */
};

/* Applied to a matrix product, or to any matrix in memory. */
enum mn_epilogue_kind {
  MN_STORE,          /* into  = d */
  MN_ADD,            /* into += d, unless the nonfinite flag is set */
  MN_BLOCK,          /* block: bias, statistics, normalise, activate, sum -> y; saves z, mean, rstd */
  MN_BLOCK_LOSS,     /* block: the same, then the squared error and its backward -> dz, sums, loss_parts */
  MN_BLOCK_BACKWARD, /* block: d is dy -> dz, sums */
  MN_UPDATE,         /* update: d is a parameter's gradient -> w, m, v */
  MN_REDUCE_SCATTER, /* scatter: d is a shard's term of a sum over the shards, whose columns are divided */
  MN_REDUCE_SCATTER_ROWS, /* into = d, a replica's term of a sum over the replicas; its share of the rows
                             becomes that sum (kernels/ranks/collectives.h, reduce_scatter_rows) */
};
static inline int mn_is_block(enum mn_epilogue_kind kind) {
  return kind == MN_BLOCK || kind == MN_BLOCK_LOSS || kind == MN_BLOCK_BACKWARD;
}

struct mn_epilogue {
  enum mn_epilogue_kind kind;
  void *into; /* of d's shape. MN_STORE, MN_ADD: the result. MN_REDUCE_SCATTER, MN_REDUCE_SCATTER_ROWS: memory
                 for d that the shards, or replicas, share. The others: memory for the product of a library
                 GEMM. It may be NULL in an MN_UPDATE: on CUDA the product then goes through scratch memory of
                 the device's; on the CPU straight into momentum, which takes SGD with momentum, without
                 Nesterov and scale. The GEMM of our own needs no memory of the caller's */
  union {     /* as the kind says; MN_STORE, MN_ADD and MN_REDUCE_SCATTER_ROWS read none */
    const struct mn_block *block;
    const struct mn_update *update;
    const struct mn_scatter *scatter; /* kernels/ranks/collectives.h */
  };
  int narrow; /* CUDA, MN_STORE: `into` gets 16 bits, as products read them without a scale */
};

#endif
