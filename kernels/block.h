/* The epilogues over a matrix in memory: store, add, update, and the block's forward, forward with loss and
 * backward.
 *
 * Forward, per row and group of D = C/G neighbours (flags of block->ops):
 *   z = d + bias;  mean = Σz/D;  rstd = 1/√(Σ(z − mean)²/D + eps);  ẑ = (z − mean)·rstd;  v = ẑ·gamma + beta;
 *   y = 2·(v > 0 ? v : slope·v)
 * The variance is centred, never E[z²] − E[z]²; a constant group gives v = beta. Where it overflows, rstd is
 * NaN, not 0, which would hide z behind a finite y.
 * Backward:
 *   g = 2·dy·(v > 0 ? 1 : slope);  h = g·gamma;  m1 = Σh/D;  m2 = Σh·ẑ/D;  dz = rstd·(h − m1 − ẑ·m2)
 *   sums: dbeta += g;  dgamma += g·ẑ;  dbias += dz     over the rows of a chunk
 * As torch.nn.Linear, GroupNorm, LeakyReLU and x + x, and their autograd. */
#ifndef MN_KERNELS_BLOCK_H
#define MN_KERNELS_BLOCK_H

#include "kernels/loss.h"

/* Applies `epilogue` to the matrix d[rows, cols]. d may be epilogue->into, block->z (forward) or
 * block->dz->real (backward): each group of a row is read before it is written. block->z, mean and rstd are
 * saved where they are not NULL; a forward without z overwrites d. The nonfinite flag is set when a value of
 * the result is not finite. */
typedef mn_status mn_epilogue_function(struct mn_device *device, void *d, int64_t rows, int64_t cols,
                                       const struct mn_epilogue *epilogue);

/* Reduces the partial sums [3, chunks, C] of a block's backward: for each of dbias, dgamma, dbeta whose sink
 * is not NULL, adds the chunks in an order that depends on their number alone, and applies the sink
 * (MN_STORE, MN_ADD or MN_UPDATE) to the vector [C]. `sums` may be overwritten. `loss`, if not NULL, is
 * reduced in the same launch, as by mn_reduce. */
typedef mn_status mn_column_sums_function(struct mn_device *device, void *sums, int64_t chunks,
                                          int64_t channels, const struct mn_epilogue *const sinks[3],
                                          const struct mn_reduction *loss);

#endif
