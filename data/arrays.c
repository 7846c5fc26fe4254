/* A dataset in the caller's arrays. */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

struct arrays {
  struct mn_dataset base; /* first, so that the two convert */
  const void *x, *y;      /* reals, borrowed; y is NULL with labels or without targets */
  const int32_t *labels;  /* borrowed */
};

/* Copies rows of `cols` values of `had` bytes as reals of `real` bytes, and checks them. */
static mn_status copy(const char *name, const void *from, size_t had, int64_t first, int64_t count,
                      int64_t cols, size_t real, void *to) {
  const int64_t at = first * cols, values = count * cols;
  if (real == had) memcpy(to, (const char *)from + (size_t)at * had, (size_t)values * had);
  for (int64_t i = 0; real != had && i < values; i++) mn_real_put(to, real, i, mn_real_at(from, had, at + i));
  return mn_dataset_check_finite("the arrays", name, at, cols, values, to, real);
}

static mn_status arrays_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                             void *y) {
  const struct arrays *a = (const struct arrays *)dataset;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  if (x) MN_TRY(copy("x", a->x, dataset->parallel, first, count, dataset->inputs, real, x));
  if (!y) return MN_OK;
  if (a->y) return copy("y", a->y, dataset->parallel, first, count, dataset->outputs, real, y);
  /* Checked again: the caller may have changed them. */
  MN_TRY(mn_labels_check(a->labels + first, first, count, dataset->outputs, "the arrays", "the dataset"));
  memcpy(y, a->labels + first, (size_t)count * sizeof *a->labels);
  return MN_OK;
}

static mn_status open_arrays(struct mn_dataset **out, size_t real, struct arrays a) {
  struct mn_dataset *d = &a.base;
  *out = NULL;
  d->parallel = d->y_parallel = real, d->read = arrays_read;
  if (d->rows < 1 || d->inputs < 1 || d->outputs < 0 || !a.x || (d->outputs && !a.y && !a.labels))
    return mn_fail(
        MN_USAGE,
        "arrays of %ld rows, %ld inputs and %ld outputs: at least 1, 1 and 0 work, and an array that "
        "is not NULL for each",
        (long)d->rows, (long)d->inputs, (long)d->outputs);
  if (d->classes) MN_TRY(mn_labels_check(a.labels, 0, d->rows, 1LL << 31, "the arrays", "a dataset"));
  for (int64_t i = 0; d->classes && i < d->rows; i++)
    if (a.labels[i] >= d->outputs) d->outputs = (int64_t)a.labels[i] + 1;
  struct arrays *opened = malloc(sizeof a);
  if (!opened) return mn_fail(MN_NO_MEMORY, "no memory for a dataset");
  *opened = a;
  *out = &opened->base;
  return MN_OK;
}

mn_status mn_dataset_arrays(struct mn_dataset **out, const float *x, const float *y, int64_t rows,
                            int64_t inputs, int64_t outputs) {
  MN_OPENS(out);
  const struct mn_dataset base = {.rows = rows, .inputs = inputs, .outputs = outputs};
  return open_arrays(out, sizeof *x, (struct arrays){.base = base, .x = x, .y = y});
}

mn_status mn_dataset_doubles(struct mn_dataset **out, const double *x, const double *y, const int32_t *labels,
                             int64_t rows, int64_t inputs, int64_t outputs) {
  MN_OPENS(out);
  const struct mn_dataset base = {
      .rows = rows, .inputs = inputs, .outputs = labels ? 1 : outputs, .classes = labels != NULL};
  return open_arrays(out, sizeof *x,
                     (struct arrays){.base = base, .x = x, .y = labels ? NULL : y, .labels = labels});
}

mn_status mn_dataset_labelled(struct mn_dataset **out, const float *x, const int32_t *labels, int64_t rows,
                              int64_t inputs) {
  MN_OPENS(out);
  const struct mn_dataset base = {.rows = rows, .inputs = inputs, .outputs = 1, .classes = 1};
  return open_arrays(out, sizeof *x, (struct arrays){.base = base, .x = x, .labels = labels});
}
