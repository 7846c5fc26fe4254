/* A model: a stack of blocks, with a linear head or without, and its parameters under PyTorch's names. */
#ifndef MN_TRAIN_MODEL_H
#define MN_TRAIN_MODEL_H

#include "layers/block.h"

enum { MN_MODEL_DEPTH = 64, MN_MODEL_PARAMETERS = 4 * MN_MODEL_DEPTH + 2 };

enum mn_loss { MN_LOSS_MSE, MN_LOSS_CROSS_ENTROPY };
const char *mn_loss_name(enum mn_loss loss); /* NULL behind the last one */
mn_status mn_loss_parse(const char *word, enum mn_loss *out);

struct mn_model_config {
  int64_t inputs;                 /* I of the first block */
  int depth;                      /* blocks, 1 … MN_MODEL_DEPTH */
  int64_t hidden[MN_MODEL_DEPTH]; /* C of each */
  int64_t groups;                 /* G of each */
  int64_t head;                   /* outputs of the linear head; 0: none */
  double eps, slope;
  enum mn_loss loss;
  enum mn_plan plan;
};

struct mn_model {
  struct mn_context *context;
  struct mn_model_config config;
  struct mn_block_layer blocks[MN_MODEL_DEPTH];
  struct mn_tensor *head_weight, *head_bias;         /* NULL without a head */
  struct mn_tensor *parameters[MN_MODEL_PARAMETERS]; /* all of the above, in state_dict order; owned */
  int count;
};

/* Takes the parameters on the device, not initialised. MN_USAGE: sizes that cannot be, named. */
mn_status mn_model_open(struct mn_model **out, struct mn_context *context,
                        const struct mn_model_config *config);
void mn_model_close(struct mn_model *model); /* NULL is fine */

/* torch.nn's initial values: weights and biases uniform on ±1/√I, gamma 1, beta 0. The same bits on every
 * device. */
mn_status mn_model_initialise(struct mn_model *model, uint64_t seed);

/* Sets how every parameter is trained (engine/tensor.h); before the pass that trains it is opened. */
mn_status mn_model_train(struct mn_model *model, enum mn_training how, const struct mn_sgd *sgd);

int64_t mn_model_outputs(const struct mn_model_config *config); /* K: width of the last layer */

/* What a recorded pass over a model is for. */
enum mn_pass_kind {
  MN_PASS_PREDICT,  /* y */
  MN_PASS_FORWARD,  /* y in the form that the GEMM of a next layer would read, and in no other */
  MN_PASS_EVALUATE, /* the loss (and the rows classified correctly) */
  MN_PASS_TRAIN,    /* the loss and its gradients; fuses the loss into the last block where it can */
  MN_PASS_EXPLAIN,  /* as MN_PASS_EVALUATE, and every tensor on the way is kept */
  MN_PASS_SEEDED,   /* y, and the gradients of Σ dy·y for a dy that the caller writes to y->gradient */
};

/* A tape over a model for batches of `rows` rows. */
struct mn_pass {
  struct mn_model *model;
  struct mn_tape *tape;
  struct mn_tensor *x;      /* [rows, I] */
  struct mn_tensor *y;      /* [rows, K]; NULL where the loss is fused into the last block */
  struct mn_tensor *target; /* [rows, K] under mse, else NULL */
  int32_t *labels;          /* [rows] on the device under cross-entropy, else NULL */
  int64_t rows;
};

/* scale multiplies the loss's gradient (1/steps under accumulation). inputs_too: x's gradient is computed and
 * stored. */
mn_status mn_pass_open(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind, int64_t rows,
                       double scale, int inputs_too);
void mn_pass_close(struct mn_pass *pass); /* NULL is fine */

/* Uploads a batch from host memory: x [rows, I] reals; y [rows, K] reals or [rows] int32 labels, or NULL.
 * Both must stay until the next wait for the device (mn_tape_results). */
mn_status mn_pass_load(struct mn_pass *pass, const void *x, const void *y);

/* After the nonfinite flag was raised by a batch: the first value on its way through the model that is not
 * finite, in words ("the output of blocks.1, row 5"). Runs the batch again, forward and unfused, on tensors
 * of its own. */
mn_status mn_pass_explain(struct mn_model *model, int64_t rows, const void *x, const void *y, char *text,
                          size_t size);

#endif
