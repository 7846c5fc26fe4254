/* Measures the columns of x. */
#include "data/columns.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/clock.h"

enum { PIECE = 1 << 20, STRETCH = 64 }; /* bytes of rows at a time; rows of a stretch */

static int64_t rows_of_piece(int64_t cols) {
  const int64_t rows = PIECE / (int64_t)sizeof(double) / cols;
  return rows < 1 ? 1 : rows;
}

/* Adds `count` rows, reals of `real` bytes, to the statistics. Squares of the new rows are taken around their
 * own mean, then merged (Chan, Golub and LeVeque 1979), so that a large mean does not cancel digits. Until
 * the end `deviation` holds the sum of squares. sums: [cols]. */
static void add_rows(struct mn_columns *c, const void *x, size_t real, int64_t count, double *sums) {
  const double had = (double)c->rows, all = had + (double)count;
  for (int64_t i = 0; i < c->cols; i++) sums[i] = 0;
  for (int64_t n = 0; n < count; n++)
    for (int64_t i = 0; i < c->cols; i++) {
      const double value = mn_real_at(x, real, n * c->cols + i);
      sums[i] += value;
      c->smallest[i] = value < c->smallest[i] ? value : c->smallest[i];
      c->largest[i] = value > c->largest[i] ? value : c->largest[i];
    }
  for (int64_t i = 0; i < c->cols; i++) {
    const double mean = sums[i] / (double)count, apart = mean - c->mean[i];
    c->mean[i] += apart * ((double)count / all);
    c->deviation[i] += apart * apart * had * ((double)count / all);
    sums[i] = mean;
  }
  for (int64_t n = 0; n < count; n++)
    for (int64_t i = 0; i < c->cols; i++) {
      const double apart = mn_real_at(x, real, n * c->cols + i) - sums[i];
      c->deviation[i] += apart * apart;
    }
  c->rows += count;
}

static mn_status measure(struct mn_columns *c, struct mn_dataset *d, int64_t most, double *x,
                         const int *stop) {
  const int64_t piece = rows_of_piece(c->cols), stretch = most >= d->rows ? d->rows : STRETCH;
  const int64_t stretches = most >= d->rows ? 1 : (most + STRETCH - 1) / STRETCH;
  double *sums = x + piece * c->cols;
  const size_t real = mn_stored_real(d);
  for (int64_t s = 0; s < stretches; s++) {
    const int64_t first =
        stretches > 1 ? (int64_t)((double)(d->rows - stretch) * (double)s / (double)(stretches - 1)) : 0;
    for (int64_t done = 0, here; done < stretch; done += here) {
      here = stretch - done < piece ? stretch - done : piece;
      if (stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))
        return mn_fail(MN_INTERRUPTED, "reading was stopped");
      MN_TRY(d->read(d, first + done, here, real, x, NULL));
      add_rows(c, x, real, here, sums);
      mn_heartbeat_of("rows measured", s * stretch + done, stretches * stretch);
    }
  }
  for (int64_t i = 0; i < c->cols; i++) {
    const int constant = c->smallest[i] == c->largest[i];
    if (constant) c->mean[i] = c->smallest[i];
    c->deviation[i] = constant ? 0 : sqrt(c->deviation[i] / (double)c->rows);
    c->scale[i] = c->deviation[i] > 0 ? c->deviation[i] : 1;
  }
  return MN_OK;
}

mn_status mn_columns_measure(struct mn_columns *out, struct mn_dataset *d, int64_t most, const int *stop) {
  const size_t cols = (size_t)d->inputs, piece = (size_t)rows_of_piece(d->inputs) * cols;
  if (most < d->rows && most < STRETCH) most = d->rows < STRETCH ? d->rows : STRETCH;
  double *all = calloc(6 * cols + piece, sizeof *all);
  *out = (struct mn_columns){.mean = all};
  if (!all) return mn_fail(MN_NO_MEMORY, "no memory to measure %lld columns", (long long)d->inputs);
  *out = (struct mn_columns){.cols = d->inputs,
                             .mean = all,
                             .deviation = all + cols,
                             .smallest = all + 2 * cols,
                             .largest = all + 3 * cols,
                             .scale = all + 4 * cols};
  for (size_t i = 0; i < cols; i++) out->smallest[i] = INFINITY, out->largest[i] = -INFINITY;
  return measure(out, d, most, all + 5 * cols, stop);
}

void mn_columns_free(struct mn_columns *c) {
  free(c->mean);
  *c = (struct mn_columns){0};
}

void mn_columns_extremes(const struct mn_columns *c, int64_t *least, int64_t *largest) {
  *least = *largest = -1;
  for (int64_t i = 0; i < c->cols; i++) {
    if (!(c->deviation[i] > 0)) continue;
    if (*least < 0 || c->deviation[i] < c->deviation[*least]) *least = i;
    if (*largest < 0 || c->deviation[i] > c->deviation[*largest]) *largest = i;
  }
}
