/* float16 planes and their scales: the rounding itself, the choice of factors, and what kernels make of both:
 * to the bit, since factors are powers of two. */
#include "tests/block_case.h"

#include "engine/forms.h"

/* ---- rounding ---- */

/* The nearest of the numbers with so many binary digits, of which the smallest normal one is 2^least; of two as near
 * the even one, or the one `away` from 0; beyond the most there is an infinity. */
static float nearest(float value, int digits, int least, double most, int away) {
  if (value == 0 || !isfinite(value)) return value;
  const double unit = ldexp(1, (ilogb(value) < least ? least : ilogb(value)) - digits + 1),
               units = value / unit;
  const double to = unit * (away ? round(units) : rint(units));
  return (float)(fabs(to) > most ? copysign(INFINITY, to) : to);
}

static void check_rounding_of(uint32_t bits) {
  const float value = from_bits(bits), upper = mn_to_upper_half(value);
  const uint16_t high = mn_upper_half(value);
  assert_true(same_float(mn_to_bf16(value), nearest(value, 8, -126, 0x1.fep127, 0)));
  assert_true(same_float(mn_to_fp16(value), nearest(value, 11, -14, 65504, 0)));
  assert_true(same_float(upper, nearest(value, 8, -126, 0x1.fep127, 1)));
  assert_int_equal(to_bits(upper), (uint32_t)high << 16);
  const float back = mn_join_halves(high, (uint16_t)mn_split_bits(value));
  assert_true(same_float(back, value));
}

/* Every upper half of a float, and every float16 and what is beyond, with the lower bits around a tie, which has the
 * subnormals, the infinities and the finite floats that round to infinity among them; then floats all over. */
static void floats_round_to_the_nearest(void **state) {
  for (int low = 13; low <= 16; low += 3)
    for (uint32_t top = 0; top < 1u << (32 - low); top++)
      for (uint32_t tie = 0; tie < 2; tie++)
        for (uint32_t beside = 0; beside < 3; beside++)
          check_rounding_of((top << low) + (tie << (low - 1)) + beside - 1);
  for (uint32_t i = 0; i < 1u << 22; i++) check_rounding_of(i * 0x9e3779b1u);
  assert_int_equal(mn_upper_half(from_bits(0x7f7fffffu)), 0x7f80);
  assert_int_equal(mn_upper_half(from_bits(0x7fffffffu)), 0x7fff); /* the GPU's own NaN, not -0 */
}

/* Down to where the second plane ends, 2⁻²⁴: to 2⁻²² of the value, or half of that end. */
static void two_planes_hold_a_value(void **state) {
  enum { MANY = 100000 };
  double *values = random_values(MANY, 91, 1);
  for (int i = 0; i < MANY; i++) {
    const float value = ldexpf((float)values[i], i % 40 - 25);
    const float high = mn_to_fp16(value), low = mn_to_fp16(value - high);
    const double error = fabs((double)high + low - value);
    if (!(error <= fmax(0x1p-22 * fabs(value), 0x1p-25))) fail_msg("%a is off by %a", value, error);
  }
  free(values);
}

/* ---- factors ---- */

/* The largest power of two under which the largest value stays below 2^(16 − headroom). */
static void a_factor_leaves_its_headroom(void **state) {
  static const int headrooms[] = {MN_HEADROOM_X, MN_HEADROOM_DZ, MN_HEADROOM_W};
  for (size_t h = 0; h < COUNT(headrooms); h++) {
    for (int e = -45; e <= 60; e++) {
      const float values[] = {ldexpf(1, e), ldexpf(1.37f, e), ldexpf(0x1.fffffep0f, e)};
      for (size_t i = 0; i < COUNT(values); i++) {
        float factor = mn_scale_factor(values[i], headrooms[h], 3), most = ldexpf(1, 16 - headrooms[h]);
        int exponent;
        assert_true(frexpf(factor, &exponent) == 0.5f);
        assert_true(values[i] * factor < most && values[i] * factor >= most / 2);
      }
    }
    assert_true(mn_scale_factor(1e-38f, headrooms[h], 3) == MN_FACTOR_MOST);
    assert_true(mn_scale_factor(1e-44f, headrooms[h], 3) == MN_FACTOR_MOST);
    assert_true(mn_scale_factor(3e38f, headrooms[h], 3) == 1 / MN_FACTOR_MOST);
    const float none[] = {0, INFINITY, NAN};
    for (size_t i = 0; i < COUNT(none); i++) assert_true(mn_scale_factor(none[i], headrooms[h], 3) == 3);
  }
}

/* ---- on a device ---- */

/* Rounds to planes that start `at` elements into their memory. */
static void check_rounding(struct memory *m, double factor, int64_t at, int split) {
  double *values = kept_zeros(m, SPECIAL);
  for (int i = 0; i < SPECIAL; i++) values[i] = special(i);
  struct mn_operand o = {.rows = 1, .cols = SPECIAL + at, .real = take_reals(m, values, SPECIAL)};
  take_planes(m, &o, (float)factor);
  o.cols = SPECIAL, o.split = split;
  for (int i = 0; i < m->device->planes; i++)
    o.planes[i] = (char *)o.planes[i] + (size_t)at * m->device->plane;
  if (!o.scale)
    MUST(mn_operand_prepare(m->device, &o));
  else
    MUST(m->device->kernels->round(m->device, &o, 0));
  assert_int_equal(o.stale, 0);
  assert_planes(m->device, "numbers of every kind", &o);
  release_all(m);
}

static void planes_are_the_reals_rounded(struct memory *m) {
  static const double factors[] = {1, 0x1p-3, 0x1p12, 0x1p60, 0x1p-60};
  for (int i = 0; i < 20; i++)
    if (i < 10 || m->device->precision == MN_BF16) check_rounding(m, factors[i / 2 % 5], i % 2, i >= 10);
}

static void assert_scale(const struct memory *m, const struct mn_operand *o, float factor, float largest) {
  const struct mn_scale scale = get_scale(m->device, o->scale);
  if (scale.factor != factor || scale.largest != largest)
    fail_msg("%a and %a are not %a and %a", scale.factor, scale.largest, factor, largest);
  assert_planes(m->device, "planes under their factor", o);
}

/* The factor follows from the largest |value| and the headroom; without `measure` it stays. What prepares an
 * operand measures it, if it is stale. */
static void check_measuring(struct memory *m, const double *values, int64_t count, int headroom) {
  struct mn_operand o = {
      .rows = 1, .cols = count, .real = take_reals(m, values, count), .headroom = headroom};
  float largest = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(values[i])) largest = fmaxf(largest, fabsf((float)values[i]));
  const float factor = mn_scale_factor(largest, headroom, 1);
  take_planes(m, &o, 0x1p33f);
  put_scale(m->device, o.scale, (struct mn_scale){0x1p33f, 7});
  MUST(m->device->kernels->round(m->device, &o, 0));
  assert_scale(m, &o, 0x1p33f, 7);
  for (int measure = 1; measure >= 0; measure--) {
    o.stale = 1;
    MUST(m->device->kernels->round(m->device, &o, measure));
    assert_int_equal(o.stale, 0);
    assert_scale(m, &o, factor, largest);
  }
  o.headroom = headroom + 2;
  for (int stale = 0; stale < 2; stale++) {
    o.stale = stale;
    MUST(mn_operand_prepare(m->device, &o));
    assert_scale(m, &o, stale ? mn_scale_factor(largest, headroom + 2, 1) : factor, largest);
  }
  release_all(m);
}

static void round_measures_when_asked(struct memory *m) {
  static const int64_t counts[] = {1, 7, 4096, 100003};
  static const int headrooms[] = {MN_HEADROOM_X, MN_HEADROOM_DZ, MN_HEADROOM_W};
  static const double sizes[] = {1, 0x1.fffffep0, 3e38, 1e-38, 0x1p-149, 6e-5, 0};
  for (int i = 0; i < 4 * 7 && m->device->scaled; i++) {
    const int64_t count = counts[i / 7];
    double *values = random_values(count, 92, sizes[i % 7] / 2);
    values[count * 2 / 3] = -sizes[i % 7];
    if (count > 4) values[1] = i % 2 ? INFINITY : NAN, values[count - 1] = -values[1];
    check_measuring(m, values, count, headrooms[i % 3]);
    free(values);
  }
}

/* By the largest |dz| under the last factor, unless that is 0 or not finite. */
static void check_dz_factor(struct memory *m, struct mn_scale before) {
  struct mn_scale *dz = put_bytes(m, &before, sizeof before);
  MUST(m->device->kernels->rescale(m->device, dz, NULL, NULL));
  const struct mn_scale after = get_scale(m->device, dz);
  const int measured = before.largest > 0 && isfinite(before.largest);
  assert_true(after.largest == 0 && after.factor == mn_scale_next(&before));
  assert_true(after.factor == mn_scale_factor(before.largest, MN_HEADROOM_DZ, before.factor));
  if (!measured) assert_true(after.factor == before.factor);
  const float under = ldexpf(before.largest * after.factor, MN_HEADROOM_DZ);
  if (measured && after.factor < MN_FACTOR_MOST && after.factor > 1 / MN_FACTOR_MOST)
    assert_true(under >= 0x1p15f && under < 0x1p16f);
  release_all(m);
}

/* By the bound of a block's output, with the factor of a dz beside it or without. */
static void check_y_factor(struct memory *m, int64_t channels, int64_t groups, double slope) {
  double *gamma = kept_random(m, 93, channels, 1.7), *beta = kept_random(m, 94, channels, 0.6);
  double most = 0, offset = 0;
  gamma[channels / 3] = -3, beta[channels - 1] = -5;
  for (int64_t i = 0; i < channels; i++)
    most = fmax(most, fabs(gamma[i])), offset = fmax(offset, fabs(beta[i]));
  const double width = (double)channels / (double)groups;
  const double bound = 2 * fmax(1, fabs(slope)) * (sqrt(width - 1) * most + offset);
  const struct mn_scale before = {3, 5}, dz_before = {4, 1.5f};
  struct mn_scale *y = put_bytes(m, &before, sizeof before), *dz = put_bytes(m, &dz_before, sizeof before);
  const struct mn_block block = {.channels = channels,
                                 .groups = groups,
                                 .slope = slope,
                                 .gamma = take_reals(m, gamma, channels),
                                 .beta = take_reals(m, beta, channels)};
  MUST(m->device->kernels->rescale(m->device, channels % 2 ? dz : NULL, y, &block));
  assert_true(get_scale(m->device, y).factor == mn_scale_factor((float)bound, MN_HEADROOM_X, 1));
  assert_true(get_scale(m->device, dz).factor == (channels % 2 ? mn_scale_next(&dz_before) : 4));
  release_all(m);
}

static void rescale_chooses_by_what_is_known(struct memory *m) {
  static const struct mn_scale dz[] = {{8, 0},     {8, 3},        {8, INFINITY},  {0x1p20f, 1e-30f},
                                       {2, 1e38f}, {4, 1.5f},     {2, 0x1p-149f}, {0, 0},
                                       {1, 65504}, {0x1p-10f, 1}, {1, 1e-30f},    {0x1p60f, 1e30f}};
  static const int64_t channels[][2] = {{1, 1},      {33, 3}, {96, 6},  {1000, 1}, {3000, 1500},
                                        {8192, 512}, {48, 1}, {49, 49}, {81, 27}};
  static const double slopes[] = {0.01, 0, 3, -3, INFINITY};
  for (size_t i = 0; i < COUNT(dz); i++) check_dz_factor(m, dz[i]);
  for (size_t i = 0; i < 5 * COUNT(channels); i++) /* the last slope has no finite bound */
    check_y_factor(m, channels[i / 5][0], channels[i / 5][1], slopes[i % 5]);
}

/* An operand of these values with a plane, not written, and a scale. */
static struct mn_operand put_operand(struct memory *m, int64_t rows, int64_t cols, const double *values,
                                     float factor) {
  struct mn_operand o = {.rows = rows, .cols = cols, .real = take_reals(m, values, rows * cols)};
  take_planes(m, &o, factor);
  return o;
}

/* Small integers times powers of two, so that nothing is rounded: the factors must not show at all. */
static void a_product_is_without_its_factors(struct memory *m) {
  enum { ROWS = 24, COLS = 40, DEPTH = 32, ALL = ROWS * COLS };
  static const int sizes[][2] = {{0, 0}, {-40, 30}, {-70, 10}, {60, -50}};
  static const float factors[][2] = {{1, 1}, {64, 0x1p-3f}, {0x1p9f, 16}};
  for (size_t s = 0; s < COUNT(sizes) * COUNT(factors); s++) {
    struct mn_operand of[2];
    double unit[2], *values[2], *before = kept_zeros(m, ALL), *expected = kept_zeros(m, ALL);
    for (int i = 0; i < 2; i++) {
      const int64_t rows = i ? COLS : ROWS;
      unit[i] = ldexp(1, sizes[s / 3][i]), values[i] = kept_random(m, 1 + (uint64_t)i, rows * DEPTH, 8);
      for (int64_t k = 0; k < rows * DEPTH; k++) values[i][k] = unit[i] * floor(values[i][k]);
      of[i] = put_operand(m, rows, DEPTH, values[i], factors[s % 3][i] / (float)unit[i]);
      of[i].headroom = MN_HEADROOM_X;
    }
    const int beyond = sizes[s / 3][0] < -50 || sizes[s / 3][0] > 50; /* the factors that there are */
    for (int i = 0; i < 2; i++)
      MUST(beyond ? mn_operand_prepare(m->device, &of[i]) : m->device->kernels->round(m->device, &of[i], 0));
    for (int add = 0; add < 2 - blind(MN_FP16); add++) {
      for (int i = 0; i < ALL; i++) {
        before[i] = expected[i] = add ? 4 * unit[0] * unit[1] : 0;
        for (int k = 0; k < DEPTH; k++)
          expected[i] += values[0][i / COLS * DEPTH + k] * values[1][i % COLS * DEPTH + k];
      }
      const struct mn_epilogue e = {.kind = add ? MN_ADD : MN_STORE,
                                    .into = take_reals(m, add ? before : NULL, ALL)};
      MUST(m->device->kernels->gemm(m->device, MN_NT, &of[0], &of[1], &e));
      assert_reals(m, "a product", e.into, expected, ALL, 0);
    }
    release_all(m);
  }
}

/* ---- who writes planes ---- */

/* dz = dy, or half of it: its largest is noted, over the largest before, and one that the plane cannot hold
 * raises the flag with the mark. */
static void a_backward_notes_its_largest(struct memory *m) {
  enum { ROWS = 70, CHANNELS = 24, MANY = ROWS * CHANNELS };
  static const struct {
    double largest;
    float factor, before, noted;
    int raised;
  } cases[] = {
      {3, 16, 0, 3, 0},         {3, 16, 4, 4, 0},
      {65504, 1, 0, 65504, 0},  {65505, 1, 0, 65505, 5},
      {-32752, 2, 0, 32752, 0}, {-32753, 2, 0, 32753, 5},
      {1e30, 1, 0, 1e30f, 5},   {1e-30, 0x1p60f, 0, 1e-30f, 0},
      {NAN, 16, 0, 1, 5},       {INFINITY, 1, 0, INFINITY, 5},
  };
  const struct draw d = {ROWS, CHANNELS, 1, .kind = MN_BLOCK, .form = FROM_MEMORY, .ops = MN_OP_ACTIVATE};
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int at = 0; at < MANY; at += 333) {
      struct block_case *c = open_case(m, &d);
      const double unit = fabs(cases[i].largest) < 1e-20 ? 1e-30 : 1;
      for (int k = 0; k < MANY; k++) c->v[D][k] = k % 3 ? 1 : -1, c->v[DY][k] = k % 2 ? unit : -unit;
      c->v[D][at] = 1, c->v[DY][at] = cases[i].largest, c->slope = 0.5; /* without a bias z is d */
      upload(c);
      put_scale(m->device, c->dz.scale, (struct mn_scale){cases[i].factor, cases[i].before});
      for (int mark = 5; mark < 7; mark++) { /* the first mark stays */
        m->device->mark = mark;
        apply(c, MN_BLOCK_BACKWARD, take_reals(m, c->v[DY], MANY));
      }
      m->device->mark = 1;
      assert_scale(m, &c->dz, cases[i].factor, cases[i].noted);
      assert_int_equal(flag_of(m->device), cases[i].raised);
      release_all(m);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats_round_to_the_nearest),   cmocka_unit_test(two_planes_hold_a_value),
      cmocka_unit_test(a_factor_leaves_its_headroom),  IN_EACH(BF16 | SCALED, planes_are_the_reals_rounded),
      IN_EACH(SCALED, round_measures_when_asked),      IN_EACH(SCALED, rescale_chooses_by_what_is_known),
      IN_EACH(FP16, a_product_is_without_its_factors), IN_EACH(FP16, a_backward_notes_its_largest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
