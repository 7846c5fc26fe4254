/* What the losses of rows are multiplied by. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/weights.h"

mn_status mn_dataset_weigh(struct mn_dataset *d, const double *weights) {
  MN_GIVEN(d);
  const int64_t wrong =
      weights ? mn_find_outside(weights, d->rows, sizeof *weights, -0x1p-1074, 0x1p127) : -1;
  if (wrong >= 0)
    return mn_fail(MN_USAGE, "row %ld (from 0) has the weight %g: from 0 to 1e38 works",
                   (long)mn_dataset_row(d, wrong), weights[wrong]);
  double sum = 0;
  for (int64_t row = 0; weights && row < d->rows; row++) sum += weights[row];
  if (weights && sum == 0)
    return mn_fail(MN_USAGE, "all weights are 0: rows to learn from have one above it");
  double *const copy = weights ? malloc((size_t)d->rows * sizeof *copy) : NULL;
  if (weights && !copy) return mn_fail(MN_NO_MEMORY, "no memory for the weights of %ld rows", (long)d->rows);
  if (copy) memcpy(copy, weights, (size_t)d->rows * sizeof *copy);
  free(d->weights);
  d->weights = copy;
  return MN_OK;
}

/* Counts the rows of each class in `count` or, if that is NULL, multiplies weights by those of the labels. */
static mn_status each_label(struct mn_dataset *d, double *count, double *weights, const double *by_class) {
  enum { AT_ONCE = 4096 };
  int32_t labels[AT_ONCE];
  MN_REQUIRE(d->classes);
  for (int64_t first = 0, here; first < d->rows; first += here) {
    here = d->rows - first < AT_ONCE ? d->rows - first : AT_ONCE;
    MN_TRY(d->read(d, first, here, sizeof(float), NULL, labels));
    MN_TRY(mn_labels_check(labels, first, here, d->outputs, "the data", "it"));
    for (int64_t i = 0; i < here; i++)
      if (count)
        count[labels[i]]++;
      else
        weights[first + i] *= by_class[labels[i]];
  }
  return MN_OK;
}

mn_status mn_dataset_weigh_classes(struct mn_dataset *d, const double *by_class) {
  double *const weights = malloc((size_t)d->rows * sizeof *weights);
  if (!weights) return mn_fail(MN_NO_MEMORY, "no memory for the weights of %ld rows", (long)d->rows);
  for (int64_t row = 0; row < d->rows; row++) weights[row] = d->weights ? d->weights[row] : 1;
  mn_status status = each_label(d, NULL, weights, by_class);
  if (status == MN_OK) status = mn_dataset_weigh(d, weights);
  free(weights);
  return status;
}

mn_status mn_dataset_balance(struct mn_dataset *d, double *by_class) {
  double classes = 0;
  for (int64_t k = 0; k < d->outputs; k++) by_class[k] = 0;
  MN_TRY(each_label(d, by_class, NULL, NULL));
  for (int64_t k = 0; k < d->outputs; k++) classes += by_class[k] > 0;
  for (int64_t k = 0; k < d->outputs; k++)
    by_class[k] = by_class[k] > 0 ? (double)d->rows / (classes * by_class[k]) : 1;
  return MN_OK;
}
