/* The layers and losses that a tape records. Each …_record records one on `tape`; its output y is a tensor of
 * the tape. MN_USAGE when the sizes do not fit; MN_NO_MEMORY. */
#ifndef MN_LAYERS_LAYER_H
#define MN_LAYERS_LAYER_H

#include "engine/tape.h"

/* ---- a layer of a model ----
 *
 * struct mn_layer_kind is the one description of its parameters: their names, shapes and initial values.
 * Models, checkpoints and checks go by it. A new kind of layer defines one and gets an entry in
 * train/model.c's list. */

enum { MN_LAYER_PARAMETERS = 4 }; /* the most a kind has */
enum { MN_PLANS = MN_PLAN_STACK + 1 };

struct mn_layer {
  const struct mn_layer_kind *kind;
  char name[32]; /* prefix of its parameters' names: "blocks.0" */
  int64_t inputs, outputs;
  int64_t first, whole; /* a shard's first output, and the full layer's outputs; without ranks 0, outputs */
  int64_t groups;       /* groups, eps, slope and plan: for blocks only */
  double eps, slope;
  enum mn_plan plan;
  struct mn_tensor *parameters[MN_LAYER_PARAMETERS]; /* borrowed; as `kind` orders them */
};

struct mn_layer_kind {
  int parameters; /* how many */
  struct mn_parameter (*parameter)(const struct mn_layer *layer, int index);
  /* MN_USAGE: the layer's sizes do not fit together. NULL if all sizes from 1 up do. */
  mn_status (*check)(const struct mn_layer *layer);
  /* Records y = layer(x); y is a tensor of the tape. */
  mn_status (*record)(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                      const struct mn_layer *layer);
  /* Records the layer fused with the mean squared error, as mn_loss_record's, as the last node of a tape that
   * trains: the forward computes the loss and dz, and does not store y. NULL if the two cannot be fused. */
  mn_status (*record_mse)(struct mn_tape *tape, struct mn_tensor *x, const struct mn_layer *layer,
                          struct mn_tensor *target, double scale);
};

/* ---- the block ----
 *
 * y = a + a with a = leaky_relu(group_norm(x·Wᵀ + b)), fused, and the single operations that it is made of.
 * All but the sum are one operation on the tape, with more or fewer ops (MN_OP_…), so that every fusion plan
 * runs the same kernel.
 *
 * x [N, I], weight [C, I], bias [C], gamma [C], beta [C], y [N, C]; statistics per row and group, as
 * torch.nn.GroupNorm. */

/* A block's parameters, as mn_block_kind orders them; a linear layer has the first two. */
enum { MN_BLOCK_WEIGHT, MN_BLOCK_BIAS, MN_BLOCK_GAMMA, MN_BLOCK_BETA, MN_BLOCK_PARAMETERS };
extern const struct mn_layer_kind mn_block_kind;
extern const struct mn_layer_kind mn_linear_kind;

/* The word for a plan, such as "block"; NULL for an invalid plan. */
extern const char *const mn_plan_words[]; /* NULL-terminated */
const char *mn_plan_name(enum mn_plan plan);

/* Consecutive operations of the block, as one node: MN_OP_… flags, but not MN_OP_SUM alone. MN_OP_BIAS: y =
 * x·Wᵀ + bias, as torch.nn.Linear; MN_OP_NORM as torch.nn.GroupNorm on [N, C]; MN_OP_ACTIVATE as
 * torch.nn.LeakyReLU. Members of `layer` that the operations do not read need not be set. */
mn_status mn_block_ops_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                              const struct mn_layer *layer, unsigned ops);

/* y = a + b, element by element, of two tensors of one shape. They may be the same tensor, whose gradient is
 * then 2·dy. */
mn_status mn_add_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *a, struct mn_tensor *b);

/* For checks: the block with output y, which was recorded with MN_PLAN_BLOCK. Its z, mean and rstd are what
 * the last forward saved, reals in the device's memory; NULL if the tape does not train. */
const struct mn_block *mn_block_saved(const struct mn_tensor *y, const struct mn_tape *tape);

/* MN_USAGE unless groups divides channels; the message names the nearest divisors. */
mn_status mn_block_check_groups(int64_t channels, int64_t groups);

/* ---- losses ----
 *
 * The last operation of a tape. The loss goes to tape->results (mn_tape_results); `scale` multiplies the
 * gradient, not the loss (1/steps under accumulation). */

/* y [N, K] is not a parameter trained by MN_ADD (MN_REQUIRE). Give a target or labels, not both. With a
 * target [N, K] mean((y − target)²) over all elements, as torch.nn.MSELoss. If target is NULL the mean over
 * the rows of −log softmax(y)[label], as torch.nn.CrossEntropyLoss, and the number of rows whose first
 * largest y is at the label. *labels: int32 [N] on the device, each in 0 … K−1 (another one raises the
 * nonfinite flag). `labels` is borrowed and read at each run, so that it may lead to other labels then. */
mn_status mn_loss_record(struct mn_tape *tape, struct mn_tensor *y, struct mn_tensor *target,
                         int32_t *const *labels, double scale);

/* After a forward of a tape whose last node is one of these: each row's loss, [N] reals on the device. */
const void *mn_loss_rows(const struct mn_tape *tape);

#endif
