/* A model: a stack of blocks, with a linear head or without, and its parameters under PyTorch's names. */
#ifndef MN_TRAIN_MODEL_H
#define MN_TRAIN_MODEL_H

#include "data/columns.h"
#include "layers/layer.h"

enum {
  MN_MODEL_DEPTH = 64, /* blocks at most */
  MN_MODEL_LAYERS = MN_MODEL_DEPTH + 1,
  MN_MODEL_PARAMETERS = MN_LAYER_PARAMETERS * MN_MODEL_LAYERS,
};

enum mn_loss { MN_LOSS_MSE, MN_LOSS_CROSS_ENTROPY, MN_LOSSES };
extern const char *const mn_loss_words[]; /* NULL behind the last */
const char *mn_loss_name(enum mn_loss loss);

struct mn_model_config {
  int64_t inputs;                 /* I of the first block */
  int64_t depth;                  /* blocks, 1 … MN_MODEL_DEPTH */
  int64_t hidden[MN_MODEL_DEPTH]; /* C of each */
  int64_t groups;                 /* G of each */
  int64_t head;                   /* outputs of the linear head; 0 without a head */
  double eps, slope;
  enum mn_loss loss;
  enum mn_plan plan;
};

/* A config with the defaults of `minnow train`: 8 groups, eps 1e-5, slope 0.01, mse, MN_PLAN_STACK. The
 * caller sets inputs, depth and hidden, which are 0; a head; for classes the loss. */
MN_API struct mn_model_config mn_model_defaults(void);

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

/* Allocates the parameters on the device, not initialised; if the device has ranks, this rank's shard of each
 * (kernels/ranks/collectives.h), by outputs, with the same numbers as the full parameter. `*out` is the
 * caller's, for mn_model_close; it borrows `device`. MN_USAGE: sizes that cannot be, or an eps that is not
 * above 0, named. */
MN_API mn_status mn_model_open(struct mn_model **out, struct mn_device *device,
                               const struct mn_model_config *config);
MN_API void mn_model_close(struct mn_model *model); /* NULL is fine */

/* torch.nn's initial values (layers/block.c). The same bits on every device. Every rank calls it. */
MN_API mn_status mn_model_initialise(struct mn_model *model, uint64_t seed);

/* Sets how every parameter is trained (engine/tensor.h); before the pass that trains it is opened. */
mn_status mn_model_train(struct mn_model *model, enum mn_epilogue_kind how, const struct mn_rule *rule);

/* No parameter is trained any more. */
void mn_model_freeze(struct mn_model *model);

/* If planes are scaled, rewrites every weight's planes under a factor that fits its current values, over all
 * shards; every rank calls it. */
mn_status mn_model_measure(struct mn_model *model);

int64_t mn_model_size(const struct mn_model_config *config); /* parameters, of all tensors together */
MN_API int64_t mn_model_outputs(const struct mn_model_config *config); /* K: width of the last layer */

/* Describes parameter `index` (in state_dict order) of a model of these sizes, with its whole name; returns 0
 * past the last. Needs no device. */
MN_API int mn_model_parameter(const struct mn_model_config *config, int index, struct mn_parameter *out);

/* The members, for programs that do not know the struct. */
MN_API const struct mn_model_config *mn_model_sizes(const struct mn_model *model);
MN_API const char *mn_model_class(const struct mn_model *model, int64_t k);
MN_API const char *mn_model_table(const struct mn_model *model);

#endif
