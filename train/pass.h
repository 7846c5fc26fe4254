/* A pass over a model: a tape for batches of one size, recorded for prediction, evaluation or training. */
#ifndef MN_TRAIN_PASS_H
#define MN_TRAIN_PASS_H

#include "data/loader.h"
#include "train/model.h"

struct mn_pass {
  struct mn_model *model;
  struct mn_tape *tape;
  struct mn_tensor *x;           /* [rows, I] */
  struct mn_tensor *y;           /* [rows, K]; NULL if the loss is fused into the last block */
  struct mn_tensor *target;      /* [rows, targets] under mse, else NULL */
  int64_t targets, first_target; /* K and 0; with shards and a fused loss, the columns of this shard */
  int32_t *labels;               /* [rows] on the device; read under cross-entropy */
  int reads_y;                   /* it has a loss: targets or labels */
  int loaded, ran; /* a batch was loaded; a forward has run on it, whose backward has not (train/steps.c) */
  int64_t rows;    /* of a batch, which this rank computes, */
  int64_t batch;   /* and all replicas' (kernels/ranks/collectives.h); alone the same */
};

struct mn_pass_config {
  enum mn_pass_kind kind;
  int64_t rows, batch; /* as in struct mn_pass */
  double scale;        /* multiplies the loss's gradient (1/steps under accumulation) */
  int input_gradient;  /* x's gradient is computed and stored */
  int keep;            /* every tensor on the way is kept */
  int outside;         /* the batch is in memory of the caller's: mn_pass_set names it before each run */
};

/* Records the pass of a config. `*out` is the caller's, for mn_pass_close; it borrows the model. */
mn_status mn_pass_record(struct mn_pass **out, struct mn_model *model, const struct mn_pass_config *config);

/* The same for batches in memory of the caller's: mn_pass_set names it before each run. x's gradient is not
 * computed. `rows` counts the rows of all replicas; this pass reads mn_own_rows of them. */
mn_status mn_pass_open_outside(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind,
                               int64_t rows, double scale);

/* Whether x is read as reals, for lack of a GEMM that reads planes of it. */
int mn_pass_reads_reals(const struct mn_pass *pass);

/* The batch of the next run, which borrows its memory; of a pass of mn_pass_open_outside. */
void mn_pass_set(struct mn_pass *pass, const struct mn_batch *batch);

#endif
