/* A model's weights as its predictors read them, for all of them together: with planes under factors by the
 * values alone, if planes are scaled, and on the CPU packed; else as the model has them. And what predict
 * asks of a predictor. */
#ifndef MN_TRAIN_PREPARED_H
#define MN_TRAIN_PREPARED_H

#include "train/model.h"

/* Each in any thread, also several at a time; `device` is a predictor's own, on the model's GPU or the CPU.
 * The first open takes the memory, which mn_prepared_free releases. */
mn_status mn_prepared_open(struct mn_model *model, struct mn_device *device);
void mn_prepared_close(struct mn_model *model);
void mn_prepared_free(struct mn_model *model);

/* A parameter with these forms. */
const struct mn_tensor *mn_prepared_parameter(const struct mn_model *model, int index);

/* Whether the model has changed since; mn_prepare, while nothing trains it, reads its weights anew. */
int mn_prepared_old(const struct mn_model *model);
mn_status mn_prepare(struct mn_model *model, struct mn_device *device);

/* How far row `row` of the last mn_predict_rows lies outside the rows to train on: the most deviations of a
 * column beyond its mean or, of a column of 0 and 1, beyond these. 0 if x is not standardised. */
double mn_predictor_outside(const struct mn_predictor *predictor, int64_t row);

#endif
