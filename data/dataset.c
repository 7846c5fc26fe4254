/* What the sources of rows share: what a reader may ask for, and which values and labels it may find. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>

void mn_dataset_close(struct mn_dataset *dataset) {
  if (dataset) free(dataset->weights);
  if (dataset && dataset->close)
    dataset->close(dataset);
  else
    free(dataset);
}

mn_status mn_dataset_check_read(const struct mn_dataset *dataset, int64_t first, int64_t count, size_t real,
                                const void *y) {
  if (first < 0 || count < 0 || count > dataset->rows || first > dataset->rows - count)
    return mn_fail(MN_USAGE, "rows %lld to %lld are asked for, but the data has rows 0 to %lld",
                   (long long)first, (long long)first + (long long)count - 1, (long long)dataset->rows - 1);
  if (real != sizeof(float) && real != sizeof(double))
    return mn_fail(MN_USAGE, "reals of %zu bytes are asked for; 4 (float) and 8 (double) work", real);
  return y && dataset->outputs == 0 ? mn_fail(MN_USAGE, "y is asked for, but the data has none") : MN_OK;
}

/* For floats a sum, which vectorises, tells first whether to search. */
int64_t mn_find_outside(const void *values, int64_t count, size_t real, double low, double high) {
  const float *f = values, above = (float)low, below = (float)high;
  int odd = real != sizeof *f;
  for (int64_t i = 0; i < count && real == sizeof *f; i++) odd |= !((f[i] > above) & (f[i] < below));
  for (int64_t i = 0; odd && i < count; i++)
    if (!(mn_real_at(values, real, i) > low && mn_real_at(values, real, i) < high)) return i;
  return -1;
}

mn_status mn_dataset_check_finite(const char *file, const char *dataset, int64_t at, int64_t cols,
                                  int64_t count, const void *values, size_t real) {
  const int64_t i = mn_find_outside(values, count, real, -INFINITY, INFINITY);
  if (i < 0) return MN_OK;
  const double value = mn_real_at(values, real, i);
  return mn_fail(MN_BAD_DATA,
                 "%s: dataset %s, row %lld, column %lld (from 0) is %g%s; every value must be finite: "
                 "replace it",
                 file, dataset, (long long)((at + i) / cols), (long long)((at + i) % cols), value,
                 isinf(value) && real == sizeof(float) ? " (as a float)" : "");
}

mn_status mn_labels_check(const int32_t *labels, int64_t first, int64_t count, int64_t classes,
                          const char *data, const char *model) {
  for (int64_t i = 0; i < count; i++)
    if (labels[i] < 0 || labels[i] >= classes)
      return mn_fail(MN_BAD_DATA,
                     "row %lld (from 0) of %s has the label %d, but %s has %lld classes, 0 to %lld: correct "
                     "it, or leave out the row",
                     (long long)(first + i), data, (int)labels[i], model, (long long)classes,
                     (long long)classes - 1);
  return MN_OK;
}

mn_status mn_dataset_labels(int32_t **out, struct mn_dataset *d) {
  int32_t *labels = *out = calloc((size_t)d->rows, sizeof *labels);
  if (!labels) return mn_fail(MN_NO_MEMORY, "no memory for %ld labels", (long)d->rows);
  mn_status status = d->classes ? d->read(d, 0, d->rows, sizeof(float), NULL, labels) : MN_OK;
  if (status == MN_OK && d->classes)
    status = mn_labels_check(labels, 0, d->rows, d->outputs, "the data", "it");
  if (status != MN_OK) free(labels), *out = NULL;
  return status;
}

int64_t mn_dataset_rows(const struct mn_dataset *dataset) {
  return dataset->rows;
}

int64_t mn_dataset_inputs(const struct mn_dataset *dataset) {
  return dataset->inputs;
}

int64_t mn_dataset_outputs(const struct mn_dataset *dataset) {
  return dataset->outputs;
}

int mn_dataset_classes(const struct mn_dataset *dataset) {
  return dataset->classes;
}
