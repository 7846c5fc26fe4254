/* Squared norms of a block's gradients. */
#ifndef MN_LAYERS_NORMS_H
#define MN_LAYERS_NORMS_H

#include "engine/hooks.h"

/* Writes reals to `grams`: dz·dzᵀ [N, N] and x·xᵀ [N, N], N a multiple of 8, unless x is NULL; then the
 * gradients of bias, gamma and beta, [C] each, one behind the other; a vector that is not wanted is left out.
 * `sums`: the column sums over chunks, as mn_column_sums takes them. The weight's gradient is not computed;
 * its norm is ‖dzᵀ·x‖² = tr(xᵀ·dz·dzᵀ·x) = Σ (dz·dzᵀ)∘(x·xᵀ). */
mn_status mn_block_grams(struct mn_device *device, const struct mn_operand *dz, const struct mn_operand *x,
                         void *sums, const int wanted[3], void *grams);

/* Appends squares to clipping->squares, of which *count are there: one for the weight's gradient unless x is
 * NULL, and one for those of all vectors that are wanted. */
mn_status mn_block_squares(struct mn_device *device, const struct mn_operand *dz, const struct mn_operand *x,
                           void *sums, const int wanted[3], const struct mn_clipping *clipping,
                           int64_t *count);

#endif
