/* A narrow stack of blocks of one width, with a linear head or without, in one kernel: its forward, or its
 * forward, loss, backward and updates. On CUDA, for weights that fit into a multiprocessor's shared
 * memory. */
#ifndef MN_KERNELS_STACK_STACK_H
#define MN_KERNELS_STACK_STACK_H

#include "kernels/types.h"

enum {
  MN_STACK_DEPTH = 8,   /* blocks at most */
  MN_STACK_HEAD = 16,   /* outputs of a head at most */
  MN_STACK_PARTS = 128, /* in which gradients are added up, whatever the number of multiprocessors */
  MN_STACK_PARAMETERS = 4 * MN_STACK_DEPTH + 2,
};

/* A block or, behind the blocks, the head, which has no gamma and beta. */
struct mn_stack_layer {
  const struct mn_operand *weight; /* of the first block [C, I], of the others [C, C], of the head [K, C] */
  const void *bias, *gamma, *beta;
  struct mn_scale *dz; /* of scaled planes: chosen by the last run's dz */
};

struct mn_stack {
  int depth;                                       /* blocks */
  int64_t rows, inputs, channels, groups, outputs; /* N, I, C, G of every block; K of the head, or 0 */
  double eps, slope;
  struct mn_stack_layer layers[MN_STACK_DEPTH + 1];
  const struct mn_operand *x; /* [N, I] planes */
  /* The forward alone: [N, K] or [N, C]; the forms that are not NULL are written, scaled planes under a
   * factor by the bound of mn_rescale, and not behind a head. */
  struct mn_operand *y;
  const void *target;    /* [N, K] or [N, C]; or NULL, and then, with a head: */
  const int32_t *labels; /* [N] in 0 … K − 1; another makes the loss NaN */
  const void *weights;   /* [N], which multiply a row's dy and its terms of `results`; or NULL */
  /* dy = scale·(y − target) or scale·(softmax(y) − onehot(label)); the loss is factor times the sum of
   * (y − target)² or of −log softmax(y)[label]. */
  double scale, factor;
  double *results; /* the loss; the rows whose first largest y is at the label (struct mn_tape) */
  void *parts;     /* stack_parts reals */
  int measures;    /* dz's factors are chosen by what this dz holds, for which the kernel runs again */
  /* MN_STORE, MN_ADD or MN_UPDATE of each weight, bias, gamma and beta in turn; for MN_REDUCE_SCATTER_ROWS
   * `into` becomes this replica's term, and the caller sums; NULL for the loss alone */
  const struct mn_epilogue *const *sinks;
};

/* How many reals `parts` has, or 0: such a stack has no kernel here. */
typedef int64_t mn_stack_parts_function(struct mn_device *device, const struct mn_stack *stack);

/* The forward, if there is y; else the loss, and all gradients, to which the sinks are applied. A value
 * that is not finite sets the nonfinite flag. */
typedef mn_status mn_stack_function(struct mn_device *device, const struct mn_stack *stack);

#endif
