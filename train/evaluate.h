/* A model over a whole dataset, in its order: the loss, the accuracy, the outputs. */
#ifndef MN_TRAIN_EVALUATE_H
#define MN_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "train/pass.h"

struct mn_evaluator; /* passes for a full batch and for the rows that remain, and host buffers */

/* kind: MN_PASS_EVALUATE or MN_PASS_PREDICT. Borrows model and dataset; batch is made smaller where the
 * dataset is. */
MN_API mn_status mn_evaluator_open(struct mn_evaluator **out, struct mn_model *model,
                                   struct mn_dataset *dataset, enum mn_pass_kind kind, int64_t batch);
MN_API void mn_evaluator_close(struct mn_evaluator *evaluator); /* NULL is fine */

/* The mean loss over all rows, and the share classified correctly (NaN without classes). */
MN_API mn_status mn_evaluate(struct mn_evaluator *evaluator, double *loss, double *accuracy);

/* Hands the outputs of each batch in turn to `take`: y [count, K] reals on the host, for rows first … first +
 * count. */
MN_API mn_status mn_evaluator_predict(struct mn_evaluator *evaluator,
                                      mn_status (*take)(void *to, const void *y, int64_t first,
                                                        int64_t count),
                                      void *to);

#endif
