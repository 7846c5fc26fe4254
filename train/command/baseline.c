/* One pass over y. */
#include "train/command/baseline.h"

#include <stdlib.h>

enum { AT_ONCE = 1024 }; /* rows */

/* Adds rows to `counts` of classes, or to means and sums of squares (Welford); `before`: rows added earlier. */
static void add(const struct mn_dataset *d, const void *y, int64_t count, int64_t before, double *counts,
                double *squares) {
  const int64_t cols = d->classes ? 1 : d->outputs;
  for (int64_t i = 0; i < count * cols; i++) {
    if (d->classes) {
      counts[((const int32_t *)y)[i]]++;
      continue;
    }
    double *mean = &counts[i % cols];
    const double apart = ((const double *)y)[i] - *mean;
    *mean += apart / (double)(before + i / cols + 1);
    squares[i % cols] += apart * (((const double *)y)[i] - *mean);
  }
}

mn_status mn_baseline(struct mn_dataset *d, double *metric) {
  const size_t cols = (size_t)d->outputs, row = d->classes ? sizeof(int32_t) : cols * sizeof(double);
  double *counts = calloc(2 * cols, sizeof *counts), *squares = counts + cols;
  void *y = malloc(AT_ONCE * row);
  mn_status status = counts && y ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for a baseline");
  for (int64_t first = 0, here; first < d->rows && status == MN_OK; first += here) {
    here = d->rows - first < AT_ONCE ? d->rows - first : AT_ONCE;
    status = d->read(d, first, here, sizeof(double), NULL, y);
    if (status == MN_OK) add(d, y, here, first, counts, squares);
  }
  *metric = 0;
  for (size_t i = 0; i < cols && status == MN_OK; i++) {
    const double share = counts[i] / (double)d->rows, variance = squares[i] / (double)d->rows;
    if (!d->classes) *metric += variance / (double)cols;
    if (d->classes && share > *metric) *metric = share;
  }
  free(counts);
  free(y);
  return status;
}
