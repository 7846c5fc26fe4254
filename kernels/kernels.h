/* The contract between the engine and the arithmetic: what each kernel does, and one table of kernels for
 * each device and width of real; tests/ compares the tables entry by entry. */
#ifndef MN_KERNELS_KERNELS_H
#define MN_KERNELS_KERNELS_H

#include "kernels/memory.h"
#include "kernels/order.h"
#include "kernels/random.h"
#include "kernels/ranks/collectives.h"
#include "kernels/stack/stack.h"
#include "kernels/stream.h"

/* ---- the matrix product, and what happens to its result ---- */

enum mn_form {
  MN_NT, /* d[rows, cols] = a[rows, depth] · b[cols, depth]ᵀ    the forward:  z  = x·Wᵀ  */
  MN_NN, /* d[rows, cols] = a[rows, depth] · b[depth, cols]     backward:     dx = dz·W  */
  MN_TN, /* d[rows, cols] = a[depth, rows]ᵀ · b[depth, cols]    backward:     dW = dzᵀ·x */
};

/* d = a·b in `form`, and `epilogue` applied to d. Sizes are the operands'. If both operands have planes,
 * those are read, which must not be stale; else the real forms. A MN_BLOCK… epilogue's block is [rows, cols]
 * = [N, C]. The product is computed tile by tile on the CPU (kernels/tile.h); on CUDA by the GEMM of our
 * own if it fits (kernels/hopper/product.cuh), else by cuBLASLt with the heuristic's first algorithm for a
 * fixed workspace (split-K only with a reduction of fixed order). For a shard (`whole`: b of MN_NT, a of
 * MN_TN) cuBLASLt gives the full product's bytes, if the full product's algorithm can compute the shard.
 * MN_LIBRARY when the library refuses. */
typedef mn_status mn_gemm_function(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                                   const struct mn_operand *b, const struct mn_epilogue *epilogue);
#define mn_gemm(device, ...) (device)->kernels->gemm(device, __VA_ARGS__)

/* ---- losses, as torch.nn.MSELoss (mean over elements) and torch.nn.CrossEntropyLoss (over rows) ---- */

/* parts[n] = Σ over k of (y − target)², for the N rows of y[N, K]. The loss is reduce(parts)/(N·K). If dy
 * is not NULL, dy = scale·2·(y − target)/(N·K). Unless NULL, weights [N] multiply a row's results, in both
 * losses. */
typedef mn_status mn_mse_function(struct mn_device *device, void *parts, void *dy, const void *y,
                                  const void *target, const void *weights, int64_t rows, int64_t cols,
                                  double scale);
#define mn_mse(device, ...) (device)->kernels->mse(device, __VA_ARGS__)

/* parts[n] = log Σ exp(y[n]) − y[n, label], computed relative to the row's maximum, so that exp does not
 * overflow; correct[n] = 1 if the first largest of y[n] is at the label, else 0. labels int32 [N], each in 0
 * … K−1 (checked when rows are read). Another label makes parts[n] NaN, and the reduce that follows sets the
 * nonfinite flag. If dy is not NULL, dy = scale·(softmax(y) − onehot(label))/N. */
typedef mn_status mn_cross_entropy_function(struct mn_device *device, void *parts, void *correct, void *dy,
                                            const void *y, const int32_t *labels, const void *weights,
                                            int64_t rows, int64_t cols, double scale);
#define mn_cross_entropy(device, ...) (device)->kernels->cross_entropy(device, __VA_ARGS__)

/* *out = factor·Σ parts[i] or, if `others` is not NULL, factor·Σ parts[i]·others[i], 0 ≤ i < count, added in
 * double, in a fixed order: 4096 at a time, then those sums. A sum that is not finite sets the nonfinite
 * flag. `scratch`, mn_reduce_scratch(count) doubles, is in the device's memory; `out`, one double, there or
 * in memory of allocate_host. */
enum { MN_REDUCE_SPAN = 4096 };
static inline int64_t mn_reduce_scratch(int64_t count) {
  return (count + MN_REDUCE_SPAN - 1) / MN_REDUCE_SPAN;
}
struct mn_reduction {
  double *out, *scratch;
  const void *parts, *others; /* which may be one */
  int64_t count;
  double factor;
};
typedef mn_status mn_reduce_function(struct mn_device *device, const struct mn_reduction *reduction);
#define mn_reduce(device, ...) (device)->kernels->reduce(device, __VA_ARGS__)

/* The epilogues over a matrix in memory: store, add, update, and the block's forward, forward with loss and
 * backward.
 *
 * Forward, per row and group of D = C/G neighbours (flags of block->ops):
 *   z = d + bias;  mean = Σz/D;  rstd = 1/√(Σ(z − mean)²/D + eps);  ẑ = (z − mean)·rstd;  v = ẑ·gamma + beta;
 *   y = 2·(v > 0 ? v : slope·v)
 * The variance is centred (on the CPU E[(z − a)²] − E[z − a]², a the rounded mean), never E[z²] − E[z]²; a
 * constant group gives v = beta. If it overflows, rstd is NaN, not 0, which would hide z in a finite y.
 * Backward:
 *   g = 2·dy·(v > 0 ? 1 : slope);  h = g·gamma;  m1 = Σh/D;  m2 = Σh·ẑ/D;  dz = rstd·(h − m1 − ẑ·m2)
 *   sums: dbeta += g;  dgamma += g·ẑ;  dbias += dz     over the rows of a chunk
 * As torch.nn.Linear, GroupNorm, LeakyReLU and x + x, and their autograd. */

/* Applies `epilogue` to the matrix d[rows, cols]. d may be epilogue->into, block->z (forward) or
 * block->dz->real (backward): each group of a row is read before it is written. block->z, mean and rstd are
 * saved if they are not NULL; a forward without z overwrites d. The nonfinite flag is set when a value of
 * the result is not finite. */
typedef mn_status mn_epilogue_function(struct mn_device *device, void *d, int64_t rows, int64_t cols,
                                       const struct mn_epilogue *epilogue);
#define mn_epilogue(device, ...) (device)->kernels->epilogue(device, __VA_ARGS__)

/* What every path requires of an epilogue; has_gradient: its matrix is there, not a product's operands. */
static inline void mn_epilogue_check(const struct mn_epilogue *e, int64_t rows, int64_t cols,
                                     int has_gradient) {
  if (e->kind == MN_UPDATE) {
    const struct mn_update *u = e->update;
    MN_REQUIRE(rows == u->w->rows && cols == u->w->cols && (has_gradient || mn_rule_by_gemm(u->rule)));
    MN_REQUIRE((u->m || !mn_rule_keeps_m(u->rule)) && !u->v == !mn_rule_keeps_v(u->rule));
  } else if (mn_is_block(e->kind)) {
    const struct mn_block *b = e->block;
    MN_REQUIRE(rows == b->rows && cols == b->channels);
    MN_REQUIRE(b->z || e->kind != MN_BLOCK_BACKWARD || !(b->ops & (MN_OP_NORM | MN_OP_ACTIVATE)));
    MN_REQUIRE(e->kind == MN_BLOCK_BACKWARD || !b->y || !b->y->planes[0] || !b->y->scale ||
               b->ops & MN_OP_NORM);
  }
}

/* Reduces the partial sums [3, chunks, C] of a block's backward: for each of dbias, dgamma, dbeta whose sink
 * is not NULL, adds the chunks in an order that depends on their number alone, and applies the sink
 * (which stores, adds or updates) to the vector [C]. `sums` may be overwritten. `loss`, if not NULL, is
 * reduced in the same launch, as by mn_reduce. */
typedef mn_status mn_column_sums_function(struct mn_device *device, void *sums, int64_t chunks,
                                          int64_t channels, const struct mn_epilogue *const sinks[3],
                                          const struct mn_reduction *loss);
#define mn_column_sums(device, ...) (device)->kernels->column_sums(device, __VA_ARGS__)

/* ---- clipping; the update itself is the MN_UPDATE epilogue ---- */

/* *norm = √max(0, Σ squares[0 … count)) and *scale = min(1, max_norm/(norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_ has them. A norm that is not finite sets the nonfinite flag. All in the
 * device's memory, except that norm may be in memory of allocate_host. */
typedef mn_status mn_clip_function(struct mn_device *device, double *scale, double *norm,
                                   const double *squares, int64_t count, double max_norm);
#define mn_clip(device, ...) (device)->kernels->clip(device, __VA_ARGS__)

/* ---- the few passes over memory that are not an epilogue ---- */

/* y = a + b, element by element over [rows, cols] of y; y's forms that are not NULL are written, except that
 * planes must not be scaled. y->real may be a or b. */
typedef mn_status mn_add_function(struct mn_device *device, struct mn_operand *y, const void *a,
                                  const void *b);
#define mn_add(device, ...) (device)->kernels->add(device, __VA_ARGS__)

/* Writes operand's planes from operand->real, which it must have (NaN stays NaN), and clears stale. If
 * they are scaled: under the factor that there is or, if `measure`, under one that suits the largest
 * |value| and the headroom; *scale->largest is that value then. A value that is not finite is not counted.
 * With `measure` MN_MEASURE_TOGETHER the value is the largest of all ranks' operands, each of which is a
 * shard; every rank calls it then. A split weight, whose reals are given beside it, gets its upper
 * halves and, if it has `low`, its lower ones. */
enum { MN_MEASURE_TOGETHER = 2 };
typedef mn_status mn_round_function(struct mn_device *device, struct mn_operand *operand, int measure);
#define mn_round(device, ...) (device)->kernels->round(device, __VA_ARGS__)

/* Chooses factors before a forward; each may be NULL. *dz: by the largest |dz| that was written under the
 * last factor, with MN_HEADROOM_DZ; the factor stays if that is 0 or not finite. dz->largest becomes 0. *y:
 * by the bound of the block's output, 2·max(1, |slope|)·(√(D − 1)·max |gamma| + max |beta|), since no
 * normalised value is larger than √(D − 1); of the block slope, channels, groups, gamma and beta are read.
 * Without y the block may be NULL. */
typedef mn_status mn_rescale_function(struct mn_device *device, struct mn_scale *dz, struct mn_scale *y,
                                      const struct mn_block *block);
#define mn_rescale(device, ...) (device)->kernels->rescale(device, __VA_ARGS__)

/* out[i] = element first + i of `from` rounded to float (nearest, ties to even; beyond a float's range
 * infinity), 0 ≤ i < count, count > 0. Floats, also those of a split weight, are copied: a NaN stays a NaN.
 * `out` is in the device's memory or in memory of allocate_host, and not `from`'s. */
typedef mn_status mn_narrow_function(struct mn_device *device, float *out, const struct mn_operand *from,
                                     int64_t first, int64_t count);
#define mn_narrow(device, ...) (device)->kernels->narrow(device, __VA_ARGS__)

/* ---- the tables ---- */

/* Every entry, once, in three lists: compute here, memory and streams in their headers; collectives have a
 * table of their own. REAL(name): an fp32 and an fp64 version for each device. DEVICE(name): one version for
 * each device. AS(name, other): the same, but the CPU's is `other`'s, of the same type. CUDA(name): one
 * version, and NULL in the CPU's tables. mn_NAME(device, …) calls the device's version: mn_NAME_cpu in the C
 * files or mn_NAME_cuda in the .cu files, of the type mn_NAME_function. The struct, the declarations and the
 * tables (device.c, device.cu) are generated from the lists, so an entry without an implementation does not
 * link. */
#define MN_KERNELS(REAL, DEVICE, AS, CUDA)                                                                   \
  REAL(gemm)                                                                                                 \
  REAL(epilogue)                                                                                             \
  REAL(column_sums)                                                                                          \
  REAL(mse)                                                                                                  \
  REAL(cross_entropy)                                                                                        \
  REAL(reduce)                                                                                               \
  REAL(clip)                                                                                                 \
  REAL(add)                                                                                                  \
  REAL(round)                                                                                                \
  REAL(rescale)                                                                                              \
  REAL(narrow)                                                                                               \
  REAL(uniform)                                                                                              \
  DEVICE(number) CUDA(stack) CUDA(stack_parts) MN_MEMORY(DEVICE, AS, CUDA) MN_STREAMS(DEVICE, AS, CUDA)

#define MN_KERNEL_POINTER(name, ...) mn_##name##_function *name;
struct mn_kernels {
  MN_KERNELS(MN_KERNEL_POINTER, MN_KERNEL_POINTER, MN_KERNEL_POINTER, MN_KERNEL_POINTER)
};

/* The CPU's versions; CUDA's are declared in cuda.cuh. */
#define MN_KERNEL_CPU_REAL(name)                                                                             \
  MN_C mn_##name##_function mn_##name##_cpu_fp32;                                                            \
  MN_C mn_##name##_function mn_##name##_cpu_fp64;
#define MN_KERNEL_CPU(name) MN_C mn_##name##_function mn_##name##_cpu;
#define MN_KERNEL_NONE(...)
MN_KERNELS(MN_KERNEL_CPU_REAL, MN_KERNEL_CPU, MN_KERNEL_NONE, MN_KERNEL_NONE)

#endif
