/* How exact products are: fp16x3 beside fp32, fp16 beside tf32, and both against fp64 on the same GPU, which
 * multiplies the same floats. The error of a product is ‖d − e‖/‖e‖.
 *
 * What fp16x3 promises is float's accuracy: an error of at most 1.1 times that of the library's fp32 product,
 * or of at most FP16X3_FLOOR where that adds the depth in parts and is nearer, whatever the depth, in all
 * three forms, for numbers of one size or of very many, and whatever the scale of an operand. fp16 keeps as
 * many bits as tf32, and must lose no more.
 *
 * Two planes hold a value to 2⁻²² of itself, or, where it is small, to 2⁻²⁵ over the factor, which is 2⁻³³ of
 * the largest value of a weight. So where some rows of an operand are 10⁴ times smaller than others it is the
 * whole product that the promise is about: its norm is that of the large rows. How the worst row fares is
 * printed beside it.
 *
 * Every case is printed, also where one has failed before. */
#include "tests/products.h"

enum { FORMS = MN_TN + 1 };
static const char *const form_names[FORMS] = {"z = x Wt", "dx = dz W", "dW = dzt x"};

enum data { UNIFORM, NORMAL, POSITIVE, SPREAD, DATA };
static const char *const data_names[DATA] = {"uniform", "normal", "positive", "spread"};

/* What is done to operands of such data. */
struct kind {
  const char *name; /* "": nothing */
  enum data data;
  double a, b; /* they are multiplied by these, */
  int rows[2]; /* and every other row of them by 10⁴ */
};
static const struct kind kinds[] = {
    {"", UNIFORM, 1, 1, {0, 0}},           {"", NORMAL, 1, 1, {0, 0}},
    {"", POSITIVE, 1, 1, {0, 0}},          {"", SPREAD, 1, 1, {0, 0}},
    {"a 1e-6", UNIFORM, 1e-6, 1, {0, 0}},  {"b 1e-6", UNIFORM, 1, 1e-6, {0, 0}},
    {"a 1e4", NORMAL, 1e4, 1, {0, 0}},     {"b 1e4", NORMAL, 1, 1e4, {0, 0}},
    {"a's rows", UNIFORM, 1, 1, {1, 0}},   {"b's rows", UNIFORM, 1, 1, {0, 1}},
    {"both's rows", NORMAL, 1, 1, {1, 1}},
};

/* The error, over the peer's, that is promised. fp16's slack is for sums that are added in another order. */
#define FP16X3_PROMISE 1.1
#define FP16_PROMISE 1.05
/* Errors so small are kept whatever the peer's is. cuBLASLt adds the depth of small products, and of some
 * large ones, in many parts: in float all-positive ones are then exact to 1e-7. Rounding tf32's or fp16's
 * inputs, which makes errors of 3e-4, averages out where all are positive. */
#define FP16X3_FLOOR 5e-7
#define FP16_FLOOR 6e-5

/* ---- numbers ---- */

static double number(enum data data, uint64_t seed, int64_t i) {
  const double u = random01(seed, 2 * i), v = random01(seed, 2 * i + 1), turn = 6.283185307179586;
  switch (data) {
  case UNIFORM:
    return 2 * u - 1;
  case NORMAL:
    return sqrt(-2 * log(1 - u)) * cos(turn * v);
  case POSITIVE:
    return u;
  case SPREAD:
    return (v < 0.5 ? -1 : 1) * exp2(36 * u - 18);
  case DATA:
    break;
  }
  fail_msg("no such data");
  return 0;
}

/* The values of operand `which`, floats. */
static double *values_of(const struct kind *kind, int which, int64_t rows, int64_t cols) {
  double *out = malloc((size_t)(rows * cols) * sizeof *out);
  assert_non_null(out);
#pragma omp parallel for
  for (int64_t row = 0; row < rows; row++) {
    const double large = kind->rows[which] && row % 2 ? 1e4 : 1;
    for (int64_t i = row * cols; i < (row + 1) * cols; i++)
      out[i] = (float)(large * (which ? kind->b : kind->a) * number(kind->data, 11 + (uint64_t)which, i));
  }
  return out;
}

/* ---- products ---- */

/* d of a product in a device: of operands with all of their forms, under the headroom that they have in training. */
static double *multiply(struct mn_device *device, const struct draw *p, double *const values[2]) {
  const enum mn_form form = (enum mn_form)p->form;
  const int headrooms[] = {form == MN_NT ? MN_HEADROOM_X : MN_HEADROOM_DZ,
                           form == MN_TN ? MN_HEADROOM_X : MN_HEADROOM_W};
  struct memory m = {.device = device};
  struct mn_tensor *t[2];
  struct mn_operand shapes[2];
  shapes_of(form, p, shapes);
  for (int i = 0; i < 2; i++) {
    MUST(mn_tensor_parameter(device, &t[i], "an operand", 2, shapes[i].rows, shapes[i].cols, 0, 0));
    t[i]->value.headroom = headrooms[i];
    MUST(mn_tensor_write(device, t[i], values[i]));
  }
  struct mn_epilogue store = {.kind = MN_STORE, .into = take_reals(&m, NULL, p->rows * p->width)};
  MUST(device->kernels->gemm(device, form, &t[0]->value, &t[1]->value, &store));
  double *out = read_reals(&m, store.into, p->rows * p->width);
  for (int i = 0; i < 2; i++) mn_tensor_free(device, t[i]);
  release_all(&m);
  return out;
}

/* ‖d − e‖/‖e‖ of the elements first, first + step, … */
static double error_of(const double *d, const double *e, int64_t first, int64_t step, int64_t count) {
  double difference = 0, size = 0;
#pragma omp parallel for reduction(+ : difference, size)
  for (int64_t k = 0; k < count; k++) {
    const int64_t i = first + k * step;
    difference += (d[i] - e[i]) * (d[i] - e[i]);
    size += e[i] * e[i];
  }
  return sqrt(difference / size);
}

/* The largest ratio of errors of a row of the product, or of a column; of those that an operand's rows are
 * behind. NaN where they are behind none. */
static double worst_ratio(const struct draw *p, const struct kind *kind, const double *d, const double *other,
                          const double *e) {
  const int by_rows = kind->rows[0] && p->form != MN_TN, by_cols = kind->rows[1] && p->form == MN_NT;
  double worst = NAN;
  for (int64_t i = 0; i < p->rows && by_rows; i++)
    worst = fmax(worst,
                 error_of(d, e, i * p->width, 1, p->width) / error_of(other, e, i * p->width, 1, p->width));
  for (int64_t i = 0; i < p->width && by_cols; i++)
    worst = fmax(worst, error_of(d, e, i, p->width, p->rows) / error_of(other, e, i, p->width, p->rows));
  return worst;
}

/* ---- one precision beside another ---- */

enum { TESTED, PEER, EXACT, SIDES };

/* Prints a case; returns whether the promise is kept. */
static int compare(struct mn_device *const on[SIDES], const struct draw *p, const struct kind *kind,
                   double promise, double floor) {
  double *values[2], *d[SIDES];
  struct mn_operand shapes[2];
  shapes_of((enum mn_form)p->form, p, shapes);
  for (int i = 0; i < 2; i++) values[i] = values_of(kind, i, shapes[i].rows, shapes[i].cols);
  for (int s = 0; s < SIDES; s++) d[s] = multiply(on[s], p, values);
  const int64_t count = p->rows * p->width;
  const double tested = error_of(d[TESTED], d[EXACT], 0, 1, count);
  const double peer = error_of(d[PEER], d[EXACT], 0, 1, count);
  const double worst = worst_ratio(p, kind, d[TESTED], d[PEER], d[EXACT]);
  const int kept = tested <= promise * peer || tested <= floor; /* not so for NaN */
  char text[32] = "";
  if (!isnan(worst)) snprintf(text, sizeof text, ", worst row or column %.2f", worst);
  print_message("%-10s %4ld x %4ld, depth %4ld  %-8s %-11s %s %.3e, %s %.3e, ratio %.3f %s %.2f%s\n",
                form_names[p->form], (long)p->rows, (long)p->width, (long)p->depth, data_names[kind->data],
                kind->name, mn_precision_name(on[TESTED]->precision), tested,
                mn_precision_name(on[PEER]->precision), peer, tested / peer,
                tested <= promise * peer ? "<=" : "> ", promise, text);
  for (int i = 0; i < 2; i++) free(values[i]);
  for (int s = 0; s < SIDES; s++) free(d[s]);
  return kept;
}

/* All forms at small and at large sizes, of little and of much depth: the GEMM of our own has small tiles for
 * the former and large ones for the latter. */
static int compare_forms(struct mn_device *const on[SIDES], int64_t rows, const struct kind *kind,
                         double promise, double floor) {
  const int64_t sizes[][2] = {{256, 256}, {rows, 2048}}, depths[] = {1024, 8192};
  int broken = 0;
  for (int form = MN_NT; form < FORMS; form++)
    for (int i = 0; i < (quick() ? 1 : 4); i++) {
      const struct draw p = {sizes[i / 2][0], sizes[i / 2][1], depths[i % 2], .form = form};
      broken += !compare(on, &p, kind, promise, floor);
    }
  return broken;
}

/* fp16x3 beside fp32, fp16 beside tf32, which need not bear all kinds. */
static void planes_are_as_exact_as_promised(struct memory *m) {
  const int split = m->device->precision == MN_FP16X3;
  if (split && m->device->planes != 2) SKIP("no Hopper GPU: fp16x3 is fp32 here");
  struct mn_device *on[SIDES] = {[TESTED] = m->device,
                                 [PEER] = open_or_skip("cuda", split ? "fp32" : "tf32"),
                                 [EXACT] = open_or_skip("cuda", "fp64")};
  int broken = 0;
  for (size_t k = 0; k < (quick() ? 1 : COUNT(kinds)); k++)
    if (split || (!*kinds[k].name && kinds[k].data != SPREAD))
      broken += compare_forms(on, split ? 1024 : 2048, &kinds[k], split ? FP16X3_PROMISE : FP16_PROMISE,
                              split ? FP16X3_FLOOR : FP16_FLOOR);
  mn_device_close(on[PEER]), mn_device_close(on[EXACT]);
  if (broken) fail_msg("%d products are less exact than promised", broken);
}

/* ---- the measures themselves, without a GPU ---- */

static void errors_are_what_they_should_be(void **state) {
  const double e[] = {3, 4, 0, 12, 5, 0}, d[] = {3, 4, 0, 12, 5, 1.3};
  assert_true(error_of(d, e, 0, 1, 3) == 0);
  assert_true(fabs(error_of(d, e, 3, 1, 3) - 0.1) < 1e-15);
  assert_true(isinf(error_of(d, e, 2, 3, 2)));
  const double bad[] = {3, NAN, 0, 12, 5, 0};
  assert_false(error_of(bad, e, 0, 1, 6) <= 1e300);
  const struct kind kind = {"", SPREAD, 0.5, 1, {1, 0}};
  double *values = values_of(&kind, 0, 2, 1000), most = 0, least = INFINITY;
  for (int i = 0; i < 1000; i++) most = fmax(most, fabs(values[i])), least = fmin(least, fabs(values[i]));
  assert_true(most < 0x1p17 && most > 0x1p15 && least > 0x1p-19 && least < 0x1p-17);
  const double moved = values[1000] / (1e4 * 0.5 * number(SPREAD, 11, 1000));
  assert_true(fabs(moved - 1) < 1e-6);
  free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_are_what_they_should_be),
      IN_EACH_ON("cuda", FP16, planes_are_as_exact_as_promised),
      IN_EACH_ON("cuda", FP16X3, planes_are_as_exact_as_promised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
