/* The synthetic teacher: what it teaches against the same written down anew, and that a row depends on
 * nothing but its place and the seed. */
#include <math.h>

#include "kernels/random.h"
#include "tests/dataset_make.h"

enum { I = 37, K = 24, GROUPS = 6, SEED = 4711 };

static double t_of(uint32_t sequence, uint64_t index) {
  return ldexp((double)(mn_random_word(SEED, sequence, index) >> 8), -23) - 1;
}

/* Row r of the teacher, written down anew: x and y without noise. */
static void teacher(uint64_t row, double *x, double *y) {
  double z[K];
  const int D = K / GROUPS;
  for (uint64_t i = 0; i < I; i++) x[i] = sqrt(3) * t_of(MN_RANDOM_INPUTS, row * I + i);
  for (uint64_t c = 0; c < K; c++) {
    z[c] = t_of(MN_RANDOM_TEACHER + 1, c) / sqrt(I);
    for (uint64_t i = 0; i < I; i++) z[c] += x[i] * t_of(MN_RANDOM_TEACHER, c * I + i) / sqrt(I);
  }
  for (int g = 0; g < GROUPS; g++) {
    double mean = 0, variance = 0;
    for (int k = 0; k < D; k++) mean += z[g * D + k] / D;
    for (int k = 0; k < D; k++) variance += (z[g * D + k] - mean) * (z[g * D + k] - mean) / D;
    for (int k = 0; k < D; k++) {
      uint64_t c = (uint64_t)(g * D + k);
      double gamma = 1 + 0.5 * t_of(MN_RANDOM_TEACHER + 2, c), beta = 0.5 * t_of(MN_RANDOM_TEACHER + 3, c);
      double v = (z[c] - mean) / sqrt(variance + 1e-5) * gamma + beta;
      y[c] = 2 * (v > 0 ? v : 0.01 * v);
    }
  }
}

static void teaches(void **state) {
  (void)state;
  const int64_t rows = 200;
  for (int part = MN_PART_TRAIN; part <= MN_PART_TEST; part++) {
    struct mn_dataset *d;
    assert_int_equal(mn_dataset_synthetic(&d, part, rows, I, K, GROUPS, 0.25, SEED), MN_OK);
    assert_int_equal(d->rows, rows);
    assert_int_equal(d->inputs, I);
    assert_int_equal(d->outputs, K);
    assert_false(d->classes);
    assert_true(d->floor == 0.0625);
    static double x[200 * I], y[200 * K];
    assert_int_equal(d->read(d, 0, rows, 8, x, y), MN_OK);
    uint64_t base = part == MN_PART_TEST ? (uint64_t)1 << 40 : 0;
    for (int64_t r = 0; r < rows; r++) {
      double wx[I], wy[K];
      teacher(base + (uint64_t)r, wx, wy);
      for (int i = 0; i < I; i++) assert_true(x[r * I + i] == wx[i]);
      for (int k = 0; k < K; k++) {
        double noise = sqrt(3) * 0.25 * t_of(MN_RANDOM_NOISE, (base + (uint64_t)r) * K + (uint64_t)k);
        assert_true(fabs(y[r * K + k] - (wy[k] + noise)) < 1e-12);
      }
    }
    mn_dataset_close(d);
  }
}

/* A row is the same, to the bit, whatever is asked for with it; floats are the doubles rounded. */
static void teaches_rows_alone(void **state) {
  (void)state;
  enum { ROWS = 150 };
  struct mn_dataset *d;
  static double x[ROWS * I], y[ROWS * K], px[ROWS * I], py[ROWS * K];
  static float fx[ROWS * I], fy[ROWS * K];
  assert_int_equal(mn_dataset_synthetic(&d, MN_PART_TRAIN, ROWS, I, K, GROUPS, 0.5, SEED), MN_OK);
  assert_int_equal(d->read(d, 0, ROWS, 8, x, y), MN_OK);
  assert_int_equal(d->read(d, 0, ROWS, 4, fx, fy), MN_OK);
  for (int i = 0; i < ROWS * I; i++) assert_true(fx[i] == (float)x[i]);
  for (int i = 0; i < ROWS * K; i++) assert_true(fy[i] == (float)y[i]);
  const int64_t stretches[][2] = {{0, 1}, {63, 2}, {64, 64}, {10, 100}, {149, 1}, {150, 0}};
  for (size_t s = 0; s < sizeof stretches / sizeof *stretches; s++) {
    int64_t first = stretches[s][0], count = stretches[s][1];
    assert_int_equal(d->read(d, first, count, 8, px, NULL), MN_OK);
    assert_int_equal(d->read(d, first, count, 8, NULL, py), MN_OK);
    assert_memory_equal(px, x + first * I, (size_t)(count * I) * sizeof *px);
    assert_memory_equal(py, y + first * K, (size_t)(count * K) * sizeof *py);
  }
  double mean = 0, square = 0;
  for (int i = 0; i < ROWS * I; i++) mean += x[i] / (ROWS * I), square += x[i] * x[i] / (ROWS * I);
  assert_true(fabs(mean) < 0.05 && fabs(square - 1) < 0.05);
  mn_dataset_close(d);
  /* Another seed is other data. */
  assert_int_equal(mn_dataset_synthetic(&d, MN_PART_TRAIN, ROWS, I, K, GROUPS, 0.5, SEED + 1), MN_OK);
  assert_int_equal(d->read(d, 0, 1, 8, px, py), MN_OK);
  assert_memory_not_equal(px, x, I * sizeof *px);
  assert_memory_not_equal(py, y, K * sizeof *py);
  mn_dataset_close(d);
}

static void refuses_teachers(void **state) {
  (void)state;
  struct mn_dataset *d;
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 0, 2, 2, 1, 0, 0), MN_USAGE, "0 rows", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 2, 0, 2, 1, 0, 0), MN_USAGE, "0 inputs", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 2, 2, 5000000, 1, 0, 0), MN_USAGE, "5000000 outputs",
                 NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 2, 2, 128, 7, 0, 0), MN_USAGE, "7 groups",
                 "128 outputs", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 2, 2, 2, 0, 0, 0), MN_USAGE, "0 groups", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 2, 2, 2, 1, -1, 0), MN_USAGE, "noise of -1", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 2, 2, 2, 1, NAN, 0), MN_USAGE, "noise", NULL);
  assert_null(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(teaches),
      cmocka_unit_test(teaches_rows_alone),
      cmocka_unit_test(refuses_teachers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
