/* A model over a whole dataset, in its order: the loss, the accuracy, the outputs. */
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

/* Gets a batch: its outputs y [count, K], reals of the device's (double in MN_FP64, else float), and its
 * targets, reals like y or int32 labels [count], NULL for MN_PASS_PREDICT; both on the host, of rows first …
 * first + count − 1, valid during the call. An error ends the evaluation or prediction. */
typedef mn_status mn_evaluator_take(void *to, const void *y, const void *targets, int64_t first,
                                    int64_t count);

/* From then on mn_evaluate also calls `take` with each batch in turn. MN_NO_MEMORY. */
mn_status mn_evaluator_watch(struct mn_evaluator *evaluator, mn_evaluator_take *take, void *to);

/* Calls `take` with each batch in turn. MN_USAGE: the evaluator is not of MN_PASS_PREDICT. MN_FAILED: an
 * output is not finite; the message names the first value on the way there that is not, and its row. The
 * first error, of `take` too, ends the prediction and is returned, then and at each later call. */
mn_status mn_evaluator_predict(struct mn_evaluator *evaluator, mn_evaluator_take *take, void *to);

#endif
