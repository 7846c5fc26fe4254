/* A model: a stack of blocks, with a linear head or without, and its parameters under PyTorch's names. */
#ifndef MN_TRAIN_MODEL_H
#define MN_TRAIN_MODEL_H

#include "data/columns.h"
#include "layers/layer.h"

enum {
  MN_MODEL_LAYERS = MN_MODEL_DEPTH + 1,
  MN_MODEL_PARAMETERS = MN_LAYER_PARAMETERS * MN_MODEL_LAYERS,
};

enum { MN_LOSSES = MN_LOSS_CROSS_ENTROPY + 1 };
extern const char *const mn_loss_words[]; /* NULL behind the last */
const char *mn_loss_name(enum mn_loss loss);

struct mn_model {
  struct mn_device *device;
  struct mn_model_config config;
  struct mn_layer layers[MN_MODEL_LAYERS];           /* the blocks, then the head */
  int depth;                                         /* layers */
  struct mn_tensor *parameters[MN_MODEL_PARAMETERS]; /* the layers', in state_dict order; owned */
  int count;
  struct mn_standard standard[MN_SIDES]; /* what x and y are standardised by; owned */
  struct mn_class_names class_names;     /* of classes that are words; count 0 without; owned */
  char *table;                           /* of the columns of a CSV (data/csv/csv.h); NULL without; owned */
  char *trained;   /* hashes of rows that it was trained on (data/fingerprint.h); NULL without; owned */
  int64_t changes; /* of the parameters, counted (mn_count_change) */
  struct mn_prepared *prepared;       /* for predictors (train/prepared.h); NULL without; owned */
  struct mn_optimizer *optimizer;     /* that is open; NULL without */
  int training;                       /* open passes that train */
  const struct mn_clipping *clipping; /* an open optimizer's, if passes that train clip by it; else NULL */
};

/* Sets how every parameter is trained (engine/tensor.h); before the pass that trains it is opened. */
mn_status mn_model_train(struct mn_model *model, enum mn_epilogue_kind how, const struct mn_rule *rule);

/* If planes are scaled, rewrites every weight's planes under a factor that fits its current values, over all
 * shards; every rank calls it. */
mn_status mn_model_measure(struct mn_model *model);

int64_t mn_model_size(const struct mn_model_config *config); /* parameters, of all tensors together */

#endif
