/* The loss and the accuracy of a model over a whole dataset; a watcher gets the outputs of each batch. */
#ifndef MN_TRAIN_EVALUATE_H
#define MN_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "train/fault.h"

struct mn_evaluator; /* passes for a full batch and for the rows that remain, and a loader */

const struct mn_placement *mn_evaluator_placement(const struct mn_evaluator *evaluator);

/* Gives the device an evaluation, of no more rows than a batch, behind its other work; mn_evaluate, once for
 * each, waits for it in turn. Two may be under way. */
mn_status mn_evaluator_give(struct mn_evaluator *evaluator);

/* The reason for a NaN of the last mn_evaluate: the first value that is not finite, its row counted over the
 * dataset (except a parameter's); owned by the evaluator. NULL if it did not. *batches of *all batches have
 * such rows; if `batches` is NULL, `all` is ignored too. */
const struct mn_fault *mn_evaluator_fault(const struct mn_evaluator *evaluator, int64_t *batches,
                                          int64_t *all);

/* Gets a batch: its outputs y [count, K] and its targets, doubles like y or int32 labels [count]; of rows
 * first … first + count − 1, valid during the call. An error ends the evaluation, and each later one. */
typedef mn_status mn_evaluator_take(void *to, const double *y, const void *targets, int64_t first,
                                    int64_t count);

/* From then on mn_evaluate also calls `take` with each batch in turn. MN_NO_MEMORY. */
mn_status mn_evaluator_watch(struct mn_evaluator *evaluator, mn_evaluator_take *take, void *to);

#endif
