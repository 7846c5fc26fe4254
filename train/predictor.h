/* Predictions in a program of one's own: a model's outputs for rows in memory, as soon as they come, in any
 * number of threads. */
#ifndef MN_TRAIN_PREDICTOR_H
#define MN_TRAIN_PREDICTOR_H

#include "train/model.h"

struct mn_predictor; /* its own part of the device, and buffers for `rows` rows */

/* A predictor of a model, for up to `rows` rows at a time. `*out` is the caller's, for mn_predictor_close,
 * and borrows the model, whose predictors share its weights; on the CPU, and if planes are scaled, they share
 * one more copy of these, as products read them. One thread at a time uses a predictor, so each thread has
 * its own; any thread may open and close it. MN_USAGE: rows below 1, or a model among ranks. */
MN_API mn_status mn_predictor_open(struct mn_predictor **out, struct mn_model *model, int64_t rows);
MN_API void mn_predictor_close(struct mn_predictor *predictor); /* NULL is fine; before the model */

/* The outputs y [n, K] of x [n, I], 0 ≤ n ≤ rows. x is in the units of the rows that the model was trained
 * on, and y in their targets'; of a model of classes y is what softmax is applied to. On the CPU a row's y
 * has the same bytes whatever the other rows, except in MN_FP16. It allocates nothing and waits for no other
 * thread, except for the first prediction after the model has changed, which reads its weights anew. While a
 * thread changes the model, none may predict. MN_USAGE: n above `rows`. MN_BAD_DATA: a value of x is not
 * finite. MN_FAILED: nor is a value of y; the message names the first value that is not, and its row. */
MN_API mn_status mn_predict(struct mn_predictor *predictor, const float *x, int64_t n, float *y);

/* mn_predict by a predictor of its own, for any number of rows. */
MN_API mn_status mn_model_predict(struct mn_model *model, const float *x, int64_t rows, float *y);

#endif
