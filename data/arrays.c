/* A dataset in arrays of the caller's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/labels.h"

struct arrays {
  struct mn_dataset base; /* first, so that the two convert */
  const float *x, *y;     /* borrowed; y NULL: labels, or none */
  const int32_t *labels;  /* borrowed */
};

/* Copies rows of `cols` floats as reals of `real` bytes, and checks them. */
static mn_status copy(const char *name, const float *from, int64_t first, int64_t count, int64_t cols,
                      size_t real, void *to) {
  const int64_t at = first * cols, values = count * cols;
  MN_TRY(mn_dataset_check_finite("the arrays", name, at, cols, values, from + at, sizeof *from));
  if (real == sizeof *from) memcpy(to, from + at, (size_t)values * real);
  for (int64_t i = 0; real > sizeof *from && i < values; i++) ((double *)to)[i] = (double)from[at + i];
  return MN_OK;
}

static mn_status arrays_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                             void *y) {
  const struct arrays *a = (const struct arrays *)dataset;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  if (x) MN_TRY(copy("x", a->x, first, count, dataset->inputs, real, x));
  if (!y) return MN_OK;
  if (a->y) return copy("y", a->y, first, count, dataset->outputs, real, y);
  /* Checked again: the caller may have written to them since. */
  MN_TRY(mn_labels_check(a->labels + first, first, count, dataset->outputs, "the arrays", "the dataset"));
  memcpy(y, a->labels + first, (size_t)count * sizeof *a->labels);
  return MN_OK;
}

static void arrays_close(struct mn_dataset *dataset) {
  free(dataset);
}

static mn_status open_arrays(struct mn_dataset **out, const struct arrays *from) {
  const struct mn_dataset *d = &from->base;
  const int64_t width = d->inputs > d->outputs ? d->inputs : d->outputs;
  if (d->rows < 1 || d->inputs < 1 || d->outputs < 0 || d->rows > INT64_MAX / 8 / width)
    return mn_fail(MN_USAGE, "arrays of %lld rows, %lld inputs and %lld outputs: at least 1, 1 and 0 work",
                   (long long)d->rows, (long long)d->inputs, (long long)d->outputs);
  if (!from->x || (d->outputs && !from->y && !from->labels))
    return mn_fail(MN_USAGE, "%s is NULL, but there are %lld rows of it",
                   !from->x     ? "x"
                   : d->classes ? "labels"
                                : "y",
                   (long long)d->rows);
  struct arrays *a = malloc(sizeof *a);
  if (!a) return mn_fail(MN_NO_MEMORY, "no memory for a dataset");
  *a = *from;
  a->base.floor = NAN;
  a->base.parallel = sizeof *a->x;
  a->base.read = arrays_read;
  a->base.close = arrays_close;
  *out = &a->base;
  return MN_OK;
}

mn_status mn_dataset_arrays(struct mn_dataset **out, const float *x, const float *y, int64_t rows,
                            int64_t inputs, int64_t outputs) {
  const struct arrays a = {
      .base = {.rows = rows, .inputs = inputs, .outputs = outputs}, .x = x, .y = outputs ? y : NULL};
  *out = NULL;
  return open_arrays(out, &a);
}

mn_status mn_dataset_labelled(struct mn_dataset **out, const float *x, const int32_t *labels, int64_t rows,
                              int64_t inputs) {
  struct arrays a = {.base = {.rows = rows, .inputs = inputs, .outputs = 1, .classes = 1}, .x = x};
  *out = NULL;
  a.labels = labels;
  for (int64_t i = 0; labels && i < rows; i++) {
    if (labels[i] < 0)
      return mn_fail(MN_BAD_DATA, "the arrays: labels, row %lld (from 0) is %d; class labels are 0 or more",
                     (long long)i, (int)labels[i]);
    if (labels[i] >= a.base.outputs) a.base.outputs = (int64_t)labels[i] + 1;
  }
  return open_arrays(out, &a);
}
