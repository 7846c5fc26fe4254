/* What `eval` prints beside the loss: for numbers R² and RMSE of each target; for classes the recall of each,
 * and a confusion matrix if they are few. */
#ifndef MN_TRAIN_COMMAND_SCORES_H
#define MN_TRAIN_COMMAND_SCORES_H

#include "kernels/status.h"
#include "train/json.h"

struct mn_scores {
  int classes;
  int64_t rows, cols; /* rows so far; K outputs */
  size_t real;        /* bytes of an output */
  /* [K] each, for numbers: the targets' mean, Σ (target − mean)², Σ (output − target)² */
  double *mean, *spread, *error;
  int64_t *of_class, *right; /* [K] each, for classes: their rows, and the rows predicted right */
  int64_t *confusion;        /* [K, K]: row label, column prediction; NULL above MN_SCORES_CONFUSION */
};

enum { MN_SCORES_CONFUSION = 20 };

mn_status mn_scores_open(struct mn_scores *scores, int classes, int64_t cols, size_t real); /* MN_NO_MEMORY */
void mn_scores_close(struct mn_scores *scores); /* all zero is fine */

/* Adds `count` rows of outputs and their targets: an mn_evaluator_see. */
mn_status mn_scores_add(void *scores, const void *y, const void *targets, int64_t count);

/* Writes members of an open object: for numbers r2 and rmse; for classes recall, class_rows and confusion,
 * which has a row for each label and a column for each prediction. The recall of a class without rows and the
 * r2 of a constant target are NaN. */
void mn_scores_show(const struct mn_scores *scores, struct mn_json *json);

/* The class that a row predicts: the first of its largest outputs. The row is `cols` reals of `real` bytes,
 * from y's number `at` on. */
int32_t mn_scores_class(const void *y, size_t real, int64_t at, int64_t cols);

#endif
