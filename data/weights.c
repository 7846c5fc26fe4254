/* What the losses of rows are multiplied by. */
#include <stdlib.h>
#include <string.h>

#include "data/weights.h"

mn_status mn_dataset_weigh(struct mn_dataset *d, const double *weights) {
  MN_GIVEN(d);
  double sum = 0;
  for (int64_t row = 0; weights && row < d->rows; row++) {
    if (weights[row] != 0 && !(weights[row] >= 1e-20 && weights[row] <= 1e20))
      return mn_fail(MN_USAGE, "row %ld (from 0) has the weight %g: 0, and 1e-20 to 1e20, work",
                     (long)mn_dataset_row(d, row), weights[row]);
    sum += weights[row];
  }
  if (weights && sum == 0) return mn_fail(MN_USAGE, "all weights are 0: one above it is needed");
  double *const copy = weights ? malloc((size_t)d->rows * sizeof *copy) : NULL;
  if (weights && !copy) return mn_fail(MN_NO_MEMORY, "no memory for the weights of %ld rows", (long)d->rows);
  if (copy) memcpy(copy, weights, (size_t)d->rows * sizeof *copy);
  free(d->weights);
  d->weights = copy;
  return MN_OK;
}

mn_status mn_dataset_weigh_classes(struct mn_dataset *d, const double *by_class) {
  int32_t *labels;
  MN_TRY(mn_dataset_labels(&labels, d));
  double *const weights = malloc((size_t)d->rows * sizeof *weights);
  for (int64_t row = 0; row < d->rows && weights; row++)
    weights[row] = by_class[labels[row]] * (d->weights ? d->weights[row] : 1);
  const mn_status status =
      weights ? mn_dataset_weigh(d, weights) : mn_fail(MN_NO_MEMORY, "no memory for weights");
  free(weights), free(labels);
  return status;
}

mn_status mn_dataset_balance(struct mn_dataset *d, double *by_class) {
  int32_t *labels;
  double classes = 0;
  MN_TRY(mn_dataset_labels(&labels, d));
  for (int64_t k = 0; k < d->outputs; k++) by_class[k] = 0;
  for (int64_t row = 0; row < d->rows; row++) by_class[labels[row]]++;
  for (int64_t k = 0; k < d->outputs; k++) classes += by_class[k] > 0;
  for (int64_t k = 0; k < d->outputs; k++)
    by_class[k] = by_class[k] > 0 ? (double)d->rows / (classes * by_class[k]) : 1;
  free(labels);
  return MN_OK;
}
