/* The fused block, y = a + a with a = leaky_relu(group_norm(x·Wᵀ + b)), and the single operations that it is
 * made of. All are one operation on the tape, with more or fewer ops (enum mn_block_op), so that every fusion
 * plan runs the same kernel.
 *
 * x [N, I], weight [C, I], bias [C], gamma [C], beta [C], y [N, C]; statistics per row and group, as
 * torch.nn.GroupNorm. Each …_record records the operation on `tape`; its output y is a tensor of the tape.
 * MN_USAGE when the sizes do not fit; MN_NO_MEMORY. */
#ifndef MN_LAYERS_BLOCK_H
#define MN_LAYERS_BLOCK_H

#include "layers/layer.h"

/* A block's parameters, as mn_block_kind orders them; a linear layer has the first two. */
enum { MN_BLOCK_WEIGHT, MN_BLOCK_BIAS, MN_BLOCK_GAMMA, MN_BLOCK_BETA, MN_BLOCK_PARAMETERS };
extern MN_EXPORT const struct mn_layer_kind mn_block_kind;
extern MN_EXPORT const struct mn_layer_kind mn_linear_kind;

/* The word for a plan, such as "block" (NULL: no such plan), and the plan for a word (MN_USAGE: no such
 * word). */
extern const char *const mn_plan_words[]; /* NULL-terminated */
MN_API const char *mn_plan_name(enum mn_plan plan);
MN_API mn_status mn_plan_parse(const char *word, enum mn_plan *out);

/* The block whose sizes, constants, plan and parameters `layer` holds. */
MN_API mn_status mn_block_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                                 const struct mn_layer *layer);

/* The block followed by mse, in one epilogue: the forward computes the loss mean((y − target)²) and dz, and
 * does not store y. `scale` multiplies the gradient, not the loss (1/steps under accumulation). It must be
 * the last node of a tape that trains. target [N, C]. */
MN_API mn_status mn_block_mse_record(struct mn_tape *tape, struct mn_tensor *x, const struct mn_layer *layer,
                                     struct mn_tensor *target, double scale);

/* y = x·Wᵀ + bias, as torch.nn.Linear. */
MN_API mn_status mn_linear_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                                  struct mn_tensor *weight, struct mn_tensor *bias);
/* y = (x − mean)·rstd·gamma + beta, as torch.nn.GroupNorm on [N, C]. */
MN_API mn_status mn_group_norm_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                                      struct mn_tensor *gamma, struct mn_tensor *beta, int64_t groups,
                                      double eps);
/* y = x > 0 ? x : slope·x, as torch.nn.LeakyReLU. */
MN_API mn_status mn_leaky_relu_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                                      double slope);

/* For checks: z [N, C], mean and rstd [N, G] that the last forward saved for the block with output y, which
 * was recorded with MN_PLAN_BLOCK. Reals in the device's memory, freed with the tape; NULL where the tape
 * does not train. */
MN_API void mn_block_saved(const struct mn_tensor *y, const struct mn_tape *tape, const void **z,
                           const void **mean, const void **rstd);

/* Writes reals to `grams`: dz·dzᵀ [N, N] and x·xᵀ [N, N], N a multiple of 8, unless x is NULL; then the gradients
 * of bias, gamma and beta, [C] each, one behind the other; a vector that is not wanted is left out. `sums`: the
 * column sums over chunks, as mn_column_sums takes them. The weight's gradient is not computed; its norm is
 * ‖dzᵀ·x‖² = tr(xᵀ·dz·dzᵀ·x) = Σ (dz·dzᵀ)∘(x·xᵀ). */
mn_status mn_block_grams(struct mn_device *device, const struct mn_operand *dz, const struct mn_operand *x,
                         void *sums, const int wanted[3], void *grams);

/* MN_USAGE unless groups divides channels; the message names divisors. */
MN_API mn_status mn_block_check_groups(int64_t channels, int64_t groups);

#endif
