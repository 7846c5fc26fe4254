/* A model's weights as all its predictors read them: with planes under factors by the values alone, if planes
 * are scaled, and on the CPU packed; else as the model has them. */
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

/* Whether the model has changed since; another open, while nothing trains it, reads its weights anew. */
int mn_prepared_old(const struct mn_model *model);

/* The rows of the last mn_predict_rows as the model takes them, standardised reals [count, I]. */
const void *mn_predictor_x(const struct mn_predictor *predictor);

#endif
