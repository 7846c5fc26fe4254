/* Measures the columns of x or of y. */
#include "data/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/clock.h"

enum { PIECE = 1 << 20, STRETCH = 64 }; /* bytes of rows at a time; rows of a stretch */

static int64_t rows_of_piece(int64_t cols) {
  const int64_t rows = PIECE / (int64_t)sizeof(double) / cols;
  return rows < 1 ? 1 : rows;
}

/* A power of two, with which a column's squares and sums neither vanish nor overflow. */
static double factor_of(double smallest, double largest) {
  int exponent = 0;
  frexp(fmax(fabs(smallest), fabs(largest)), &exponent);
  return ldexp(1, exponent < -1000 ? 1000 : -exponent);
}

/* Adds `count` rows, reals of `real` bytes, to the statistics. Squares of the new rows are taken around their
 * own mean, then merged (Chan, Golub and LeVeque 1979), so that a large mean does not cancel digits. Until
 * the end `scale` holds a factor, and `deviation` the sum of squares of values times it. sums: [cols]. */
static void add_rows(struct mn_columns *c, const void *x, size_t real, int64_t count, double *sums) {
  double *factor = c->scale;
  const double had = (double)c->rows, all = had + (double)count;
  for (int64_t n = 0; n < count; n++)
    for (int64_t i = 0; i < c->cols; i++) {
      const double value = mn_real_at(x, real, n * c->cols + i);
      if (value < c->smallest[i])
        c->low[i] = c->smallest[i], c->smallest[i] = value;
      else if (value > c->smallest[i] && value < c->low[i])
        c->low[i] = value;
      if (value != floor(value))
        c->whole[i] = 0;
      else if (c->whole[i] == 2 && value <= c->largest[i])
        c->whole[i] = 1;
      if (value > c->largest[i])
        c->high[i] = c->largest[i], c->largest[i] = value;
      else if (value < c->largest[i] && value > c->high[i])
        c->high[i] = value;
    }
  for (int64_t i = 0; i < c->cols; i++) {
    const double before = factor[i];
    factor[i] = factor_of(c->smallest[i], c->largest[i]);
    if (c->deviation[i] > 0) c->deviation[i] *= factor[i] / before * (factor[i] / before);
    sums[i] = 0;
  }
  for (int64_t n = 0; n < count; n++)
    for (int64_t i = 0; i < c->cols; i++) sums[i] += mn_real_at(x, real, n * c->cols + i) * factor[i];
  for (int64_t i = 0; i < c->cols; i++) {
    const double mean = sums[i] / (double)count, apart = mean - c->mean[i] * factor[i];
    c->mean[i] += apart * ((double)count / all) / factor[i];
    c->deviation[i] += apart * apart * had * ((double)count / all);
    sums[i] = mean;
  }
  for (int64_t n = 0; n < count; n++)
    for (int64_t i = 0; i < c->cols; i++) {
      const double apart = mn_real_at(x, real, n * c->cols + i) * factor[i] - sums[i];
      c->deviation[i] += apart * apart;
    }
  c->rows += count;
}

static mn_status measure(struct mn_columns *c, struct mn_dataset *d, int side, int64_t most, double *values,
                         const int *stop) {
  const int64_t piece = rows_of_piece(c->cols), stretch = most >= d->rows ? d->rows : STRETCH;
  const int64_t stretches = most >= d->rows ? 1 : (most + STRETCH - 1) / STRETCH;
  double *sums = values + piece * c->cols;
  const size_t real = mn_stored_real(d, side);
  for (int64_t s = 0; s < stretches; s++) {
    const int64_t first =
        stretches > 1 ? (int64_t)((double)(d->rows - stretch) * (double)s / (double)(stretches - 1)) : 0;
    for (int64_t done = 0, here; done < stretch; done += here) {
      here = stretch - done < piece ? stretch - done : piece;
      if (stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))
        return mn_fail(MN_INTERRUPTED, "reading was stopped");
      MN_TRY(
          d->read(d, first + done, here, real, side == MN_X ? values : NULL, side == MN_Y ? values : NULL));
      add_rows(c, values, real, here, sums);
      mn_heartbeat_of("rows measured", s * stretch + done, stretches * stretch);
    }
  }
  for (int64_t i = 0; i < c->cols; i++) {
    const int constant = c->smallest[i] == c->largest[i];
    if (constant) c->mean[i] = c->smallest[i];
    c->deviation[i] = constant ? 0 : sqrt(c->deviation[i] / (double)c->rows) / c->scale[i];
    c->scale[i] = c->deviation[i] > 0 ? c->deviation[i] : 1;
  }
  return MN_OK;
}

mn_status mn_columns_measure(struct mn_columns *out, struct mn_dataset *d, int side, int64_t most,
                             const int *stop) {
  const int64_t width = side == MN_X ? d->inputs : d->outputs;
  const size_t cols = (size_t)width, piece = (size_t)rows_of_piece(width) * cols;
  if (most < d->rows && most < STRETCH) most = d->rows < STRETCH ? d->rows : STRETCH;
  double *all = calloc(9 * cols + piece, sizeof *all);
  *out = (struct mn_columns){.mean = all};
  if (!all) return mn_fail(MN_NO_MEMORY, "no memory to measure %lld columns", (long long)width);
  *out = (struct mn_columns){.cols = width,
                             .mean = all,
                             .deviation = all + cols,
                             .smallest = all + 2 * cols,
                             .largest = all + 3 * cols,
                             .scale = all + 4 * cols,
                             .whole = all + 5 * cols,
                             .low = all + 6 * cols,
                             .high = all + 7 * cols};
  for (size_t i = 0; i < cols; i++)
    out->smallest[i] = out->low[i] = INFINITY, out->largest[i] = out->high[i] = -INFINITY, out->whole[i] = 2;
  return measure(out, d, side, most, all + 8 * cols, stop);
}

int mn_columns_alike(const struct mn_columns *c, const char *type) {
  double smallest = INFINITY, largest = -INFINITY;
  int64_t vary = 0, low = 0, high = 0, both = 0;
  if (type && (strcmp(type, "uint8") == 0 || strcmp(type, "int8") == 0)) return 1;
  for (int64_t i = 0; i < c->cols; i++) {
    smallest = fmin(smallest, c->smallest[i]), largest = fmax(largest, c->largest[i]);
    vary += c->deviation[i] > 0;
  }
  for (int64_t i = 0; i < c->cols; i++) {
    const int is_low = c->smallest[i] == smallest, is_high = c->largest[i] == largest;
    low += is_low, high += is_high, both += is_low && is_high;
  }
  return vary > 0 && (low == c->cols || high == c->cols) && 2 * both >= vary;
}

void mn_columns_pool(struct mn_columns *c) {
  c->alike = 1;
  double mean = 0, squares = 0, smallest = INFINITY, largest = -INFINITY;
  for (int64_t i = 0; i < c->cols; i++) {
    mean += c->mean[i] / (double)c->cols;
    smallest = fmin(smallest, c->smallest[i]), largest = fmax(largest, c->largest[i]);
  }
  const double factor = factor_of(smallest, largest);
  for (int64_t i = 0; i < c->cols; i++) {
    const double apart = (c->mean[i] - mean) * factor, deviation = c->deviation[i] * factor;
    squares += (apart * apart + deviation * deviation) / (double)c->cols;
  }
  for (int64_t i = 0; i < c->cols; i++)
    c->mean[i] = mean, c->scale[i] = squares > 0 ? sqrt(squares) / factor : 1;
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
