/* A pass over a model: a tape for batches of one size, recorded for prediction, evaluation or training. */
#ifndef MN_TRAIN_PASS_H
#define MN_TRAIN_PASS_H

#include "data/loader.h"
#include "train/model.h"

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
  int32_t *labels;          /* [rows] on the device; read under cross-entropy */
  int64_t rows;
};

/* scale multiplies the loss's gradient (1/steps under accumulation). input_gradient: x's gradient is computed
 * and stored. `*out` is the caller's, for mn_pass_close; it borrows the model. */
MN_API mn_status mn_pass_open(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind,
                              int64_t rows, double scale, int input_gradient);
/* The same for batches in memory of the caller's: mn_pass_set names it before each run. x's gradient is not
 * computed. */
MN_API mn_status mn_pass_open_outside(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind,
                                      int64_t rows, double scale);
MN_API void mn_pass_close(struct mn_pass *pass); /* NULL is fine */

/* Whether x is read as reals, for lack of a GEMM that reads planes of it. */
int mn_pass_reads_reals(const struct mn_pass *pass);

/* The batch of the next run: its memory is borrowed until that is done. */
MN_API void mn_pass_set(struct mn_pass *pass, const struct mn_batch *batch);

/* Uploads a batch from host memory: x [rows, I] reals; y [rows, K] reals or [rows] int32 labels, or NULL.
 * Both must stay until the next wait for the device (mn_tape_results). */
MN_API mn_status mn_pass_load(struct mn_pass *pass, const void *x, const void *y);

/* After a batch raised its tape's nonfinite flag: the first value on its way through the model that is not
 * finite, in words ("the output of blocks.1, row 5"). Runs the batch again, forward and unfused, on tensors
 * of its own. */
MN_API mn_status mn_pass_explain(struct mn_model *model, const struct mn_batch *batch, char *text,
                                 size_t size);

#endif
