/* One pass over y. */
#include "train/command/baseline.h"

#include <math.h>
#include <stdlib.h>

#include "data/columns.h"

enum { AT_ONCE = 4096 }; /* rows */

static mn_status of_classes(struct mn_dataset *d, int64_t *counts, double *loss, double *share) {
  int32_t labels[AT_ONCE];
  for (int64_t first = 0, here; first < d->rows; first += here) {
    here = d->rows - first < AT_ONCE ? d->rows - first : AT_ONCE;
    MN_TRY(d->read(d, first, here, sizeof(float), NULL, labels));
    for (int64_t i = 0; i < here; i++) counts[labels[i]]++;
  }
  *share = 0;
  for (int64_t i = 0; i < d->outputs; i++) {
    const double p = (double)counts[i] / (double)d->rows;
    *share = fmax(*share, p);
    if (p > 0) *loss -= p * log(p);
  }
  return MN_OK;
}

mn_status mn_baseline(struct mn_dataset *d, double *loss, double *share) {
  struct mn_columns c;
  *loss = 0;
  *share = NAN;
  if (d->classes) {
    int64_t *counts = calloc((size_t)d->outputs, sizeof *counts);
    mn_status counted =
        counts ? of_classes(d, counts, loss, share) : mn_fail(MN_NO_MEMORY, "no memory for a baseline");
    free(counts);
    return counted;
  }
  mn_status status = mn_columns_measure(&c, d, MN_COLUMNS_Y, d->rows, NULL);
  for (int64_t i = 0; i < c.cols && status == MN_OK; i++)
    *loss += c.deviation[i] * c.deviation[i] / (double)c.cols;
  mn_columns_free(&c);
  return status;
}
