/* The fused block, y = a + a with a = leaky_relu(group_norm(x·Wᵀ + b)), and the single operations that it is
 * made of. All are one operation on the tape with more or fewer ops (enum mn_block_op), so that every fusion
 * plan runs the same kernel.
 *
 * x [N, I], weight [C, I], bias [C], gamma [C], beta [C], y [N, C]; statistics per row and group, as
 * torch.nn.GroupNorm. Each …_record notes the operation on `tape` and gives its output, a tensor of the tape.
 * MN_USAGE when the sizes do not fit; MN_NO_MEMORY. */
#ifndef MN_LAYERS_BLOCK_H
#define MN_LAYERS_BLOCK_H

#include "engine/tape.h"

/* A block's parameters, borrowed, and constants. */
struct mn_block_layer {
  struct mn_tensor *weight, *bias, *gamma, *beta;
  int64_t groups;
  double eps, slope;
};

/* Which of the ops are fused. Same results, different speed. */
enum mn_plan {
  MN_PLAN_NONE,            /* linear, group_norm, leaky_relu, add */
  MN_PLAN_ACTIVATION,      /* linear, group_norm, leaky_relu+add */
  MN_PLAN_NORM_ACTIVATION, /* linear, group_norm+leaky_relu, add */
  MN_PLAN_TAIL,            /* linear, group_norm+leaky_relu+add */
  MN_PLAN_LINEAR_NORM,     /* linear+group_norm, leaky_relu+add */
  MN_PLAN_BLOCK,           /* all in one: the default */
  MN_PLANS,
};
const char *mn_plan_name(enum mn_plan plan); /* NULL behind the last one */
mn_status mn_plan_parse(const char *word, enum mn_plan *out);

mn_status mn_block_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                          const struct mn_block_layer *layer, enum mn_plan plan);

/* The block with mse behind it, in one epilogue: the loss is mean((y − target)²), and dz is there when the
 * forward ends. `scale` multiplies the gradient, not the loss (1/steps under accumulation). Ends a tape that
 * trains; y itself is not kept. */
mn_status mn_block_mse_record(struct mn_tape *tape, struct mn_tensor *x, const struct mn_block_layer *layer,
                              struct mn_tensor *target, double scale);

/* y = x·Wᵀ + bias, as torch.nn.Linear. */
mn_status mn_linear_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                           struct mn_tensor *weight, struct mn_tensor *bias);
/* y = (x − mean)·rstd·gamma + beta, as torch.nn.GroupNorm on [N, C]. */
mn_status mn_group_norm_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                               struct mn_tensor *gamma, struct mn_tensor *beta, int64_t groups, double eps);
/* y = x > 0 ? x : slope·x, as torch.nn.LeakyReLU. */
mn_status mn_leaky_relu_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x, double slope);

/* What the last forward of a tape that trains saved, for checks: z [N, C], mean and rstd [N, G] of a block
 * recorded with MN_PLAN_BLOCK. Pointers into the device's memory, valid with the tape; NULL where the tape
 * does not train. */
void mn_block_saved(const struct mn_tensor *y, const struct mn_tape *tape, const void **z, const void **mean,
                    const void **rstd);

/* MN_USAGE unless groups divides channels; the message lists what does. */
mn_status mn_block_check_groups(int64_t channels, int64_t groups);

#endif
