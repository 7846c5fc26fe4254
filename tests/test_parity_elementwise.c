/* The CPU's and CUDA's passes over memory, in one process: the same inputs to both, and the answers equal.
 * Without a GPU every test is skipped, and says why. */
#include "tests/parity_bench.h"

#include "kernels/planes.h"

static void add(void **state) {
  const enum mn_precision precisions[] = {MN_FP64, MN_FP32, MN_BF16, MN_FP16, MN_FP16X3};
  for (int p = 0; p < 5; p++) {
    struct bench b;
    open_bench(&b, precisions[p]);
    for (int64_t cols = 1; cols < 40; cols += 6) {
      void *y[SIDES];
      for (int s = 0; s < SIDES; s++) {
        y[s] = put_drawn(&b, s, 61, 3 * cols, 1);
        struct mn_operand out = {.rows = 3, .cols = cols, .real = y[s]};
        if (!b.on[s]->scaled) take_planes(&b, s, &out, 1);
        must(b.on[s]->kernels->add(b.on[s], &out, y[s], put_drawn(&b, s, 62, 3 * cols, 1)));
        exact_planes(&b, s, "a sum, rounded", &out);
      }
      same_reals(&b, "a sum", y, 3 * cols, 0);
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

/* Ties, both ways; the largest finite float, which rounds to infinity; subnormals; infinities and NaN. Of a
 * split weight too, whose ties are rounded otherwise. */
static void check_rounding(int split) {
  struct bench b;
  open_bench(&b, MN_BF16);
  const double values[] = {1,          0x1.01p0, 0x1.03p0, 0x1.0101p0, -0x1.01p0, 0x1.fffffep127, 0x1p-140,
                           0x1.8p-134, -0.0,     INFINITY, -INFINITY,  NAN,       3.14159,        0x1.02p0};
  enum { COUNT = sizeof values / sizeof values[0] };
  struct planes found[SIDES];
  for (int s = 0; s < SIDES; s++) {
    struct mn_operand o = {.rows = 1,
                           .cols = COUNT,
                           .real = put(&b, s, values, COUNT),
                           .planes = {poisoned(&b, s, COUNT * b.on[s]->plane)},
                           .split = split,
                           .stale = 1};
    must(b.on[s]->kernels->round(b.on[s], &o, 0));
    assert_int_equal(o.stale, 0);
    found[s] = get_planes(b.on[s], &o);
  }
  for (int i = 0; i < COUNT; i++) {
    const float value = (float)values[i], rounded = split ? mn_to_upper_half(value) : mn_to_bf16(value);
    for (int s = 0; s < SIDES; s++) assert_true(same_float(plane_at(&found[s], 0, i), rounded));
  }
  free_planes(&found[CPU]), free_planes(&found[CUDA]);
  close_bench(&b);
}

static void rounding(void **state) {
  for (int split = 0; split < 2; split++) check_rounding(split);
}

/* Numbers of every kind, to a float in each precision: ties, both ways; the largest finite float, the least
 * double that rounds to infinity and the one before; subnormal floats and their ties; infinities and NaN. At
 * every alignment, and nothing past the end. */
static void narrow(void **state) {
  const double values[] = {1,
                           0x1.000001p0,
                           0x1.000003p0,
                           0x1.0000010000001p0,
                           -0x1.000001p0,
                           0x1.fffffep127,
                           0x1.ffffffp127,
                           0x1.fffffefffffffp127,
                           -0x1p128,
                           0x1p-149,
                           0x1p-150,
                           0x1.8p-149,
                           -0x1.0000000000001p-150,
                           0x1.000002p-126,
                           -0.0,
                           INFINITY,
                           -INFINITY,
                           NAN,
                           3.14159};
  enum { COUNT = sizeof values / sizeof values[0] };
  const enum mn_precision precisions[] = {MN_FP64, MN_FP32, MN_BF16};
  for (int p = 0; p < 3; p++) {
    struct bench b;
    open_bench(&b, precisions[p]);
    for (int64_t place = 0; place < 20; place++) { /* 4 of `from` by 5 of `out` */
      const int64_t at = place % 4, to = place / 4, count = COUNT - at;
      float *host[SIDES];
      for (int s = 0; s < SIDES; s++) {
        const struct mn_operand from = {.rows = 1, .cols = COUNT, .real = put(&b, s, values, COUNT)};
        float *out = poisoned(&b, s, (COUNT + 8) * sizeof *out);
        must(b.on[s]->kernels->narrow(b.on[s], out + to, &from, at, count));
        host[s] = get_raw(&b, s, out, (COUNT + 8) * sizeof *out);
      }
      for (int64_t i = 0; i < COUNT + 8; i++) {
        const int inside = i >= to && i < to + count;
        const float expected = inside ? (float)values[at + i - to] : NAN;
        for (int s = 0; s < SIDES; s++)
          assert_true(isnan(expected) ? isnan(host[s][i]) : !memcmp(&host[s][i], &expected, sizeof expected));
      }
      free(host[CPU]), free(host[CUDA]);
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(add),
      cmocka_unit_test(rounding),
      cmocka_unit_test(narrow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
