/* A layer of a model, and the one description of its parameters: their names, shapes and initial values.
 * Models, checkpoints and checks go by it. A new kind of layer defines a struct mn_layer_kind and gets an
 * entry in train/model.c's list of layers. */
#ifndef MN_LAYERS_LAYER_H
#define MN_LAYERS_LAYER_H

#include "engine/tape.h"

enum { MN_LAYER_PARAMETERS = 4 }; /* the most a kind has */

/* Parameter values of a new model; MN_INITIAL_UNIFORM: uniform on ±bound. */
enum mn_initial { MN_INITIAL_ZERO, MN_INITIAL_ONE, MN_INITIAL_UNIFORM };

struct mn_parameter {
  char name[64]; /* PyTorch's, within the layer ("fc.weight") or the model ("blocks.0.fc.weight") */
  int rank;      /* 2: [rows, cols], read by a GEMM; 1: [cols] with rows 1 */
  int64_t rows, cols;
  enum mn_initial initial;
  double bound;
};

/* Which of a block's operations are fused. Same results, different speed. */
enum mn_plan {
  MN_PLAN_NONE,            /* linear, group_norm, leaky_relu, add */
  MN_PLAN_ACTIVATION,      /* linear, group_norm, leaky_relu+add */
  MN_PLAN_NORM_ACTIVATION, /* linear, group_norm+leaky_relu, add */
  MN_PLAN_TAIL,            /* linear, group_norm+leaky_relu+add */
  MN_PLAN_LINEAR_NORM,     /* linear+group_norm, leaky_relu+add */
  MN_PLAN_BLOCK,           /* all in one */
  MN_PLANS,
};

struct mn_layer {
  const struct mn_layer_kind *kind;
  char name[32]; /* prefix of its parameters' names: "blocks.0" */
  int64_t inputs, outputs;
  int64_t first,
      whole;      /* of a layer that is divided among ranks (kernels/ranks/ranks.h): `outputs` are those from
                           `first` on of `whole`; alone 0 and outputs */
  int64_t groups; /* groups, eps, slope and plan: of blocks alone */
  double eps, slope;
  enum mn_plan plan;
  struct mn_tensor *parameters[MN_LAYER_PARAMETERS]; /* borrowed; as `kind` orders them */
};

struct mn_layer_kind {
  int parameters; /* how many */
  struct mn_parameter (*parameter)(const struct mn_layer *layer, int index);
  /* MN_USAGE: the layer's sizes do not fit together. NULL: all sizes from 1 up do. */
  mn_status (*check)(const struct mn_layer *layer);
  /* Records y = layer(x); y is a tensor of the tape. */
  mn_status (*record)(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                      const struct mn_layer *layer);
  /* Records the layer fused with the mean squared error, as the last node of a tape that trains; used under
   * MN_PLAN_BLOCK alone. NULL: the two cannot be fused. */
  mn_status (*record_mse)(struct mn_tape *tape, struct mn_tensor *x, const struct mn_layer *layer,
                          struct mn_tensor *target, double scale);
};

#endif
