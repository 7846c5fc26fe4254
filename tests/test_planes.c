/* float16 planes and their scales: the rounding itself, the choice of factors, and what kernels make of both:
 * to the bit, since factors are powers of two. */
#include "kernels/planes.h"
#include "tests/products.h"

#include "engine/forms.h"

static const char *const scaled[] = {"fp16", "fp16x3"};

/* ---- rounding ---- */

/* Every float16 is itself; half-way between two neighbours the even one counts, and next to it the nearer. */
static void float16_rounds_to_nearest_even(void **state) {
  for (uint32_t sign = 0; sign < 2; sign++)
    for (uint32_t half = 0; half < 0x7c00; half++) {
      float low = half_value(half | sign << 15), away = sign ? -INFINITY : INFINITY;
      float high = half == 0x7bff ? (sign ? -65536.0f : 65536.0f) : half_value((half + 1) | sign << 15);
      float beyond = half == 0x7bff ? away : high, middle = low + (high - low) / 2;
      assert_int_equal(to_bits(mn_to_fp16(low)), to_bits(low));
      assert_int_equal(to_bits(mn_to_fp16(middle)), to_bits(half & 1 ? beyond : low));
      assert_int_equal(to_bits(mn_to_fp16(nextafterf(middle, 0))), to_bits(low));
      assert_int_equal(to_bits(mn_to_fp16(nextafterf(middle, away))), to_bits(beyond));
      assert_int_equal(to_bits(mn_to_fp16(nextafterf(low, away))), to_bits(low));
      assert_int_equal(to_bits(mn_to_fp16(nextafterf(high, 0))), to_bits(beyond));
    }
}

static void float16_ends_in_infinities_and_keeps_nan(void **state) {
  static const float large[] = {65520, 65536, 1e6f, 0x1.fffffep127f, INFINITY};
  static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu};
  for (size_t i = 0; i < COUNT(large); i++) {
    assert_true(mn_to_fp16(large[i]) == INFINITY);
    assert_true(mn_to_fp16(-large[i]) == -INFINITY);
  }
  for (size_t i = 0; i < COUNT(nans); i++) assert_true(isnan(mn_to_fp16(from_bits(nans[i]))));
  assert_int_equal(to_bits(mn_to_fp16(0x1p-149f)), 0);
  assert_int_equal(to_bits(mn_to_fp16(-0x1p-149f)), 0x80000000u);
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

/* Ties, both ways; the largest finite values, which round to infinity, and those that just do not;
 * subnormals; infinities and NaN. */
static const double special[] = {1,
                                 0x1.01p0,
                                 0x1.03p0,
                                 0x1.0101p0,
                                 -0x1.01p0,
                                 0x1.fffffep127,
                                 0x1p-134,
                                 0x1p-140,
                                 0x1.8p-134,
                                 -0.0,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 0x1.02p0,
                                 3.14159,
                                 0x1.010002p0,
                                 0x1.00fffep0,
                                 0x1.002p0,
                                 0x1.006p0,
                                 0x1.0021p0,
                                 65504,
                                 65519,
                                 65520,
                                 -65520,
                                 65535,
                                 0x1p-14,
                                 0x1p-24,
                                 0,
                                 0x1p-25,
                                 0x1.8p-25,
                                 -0x1p-25,
                                 -0x1.8p-24,
                                 0x1.ffcp-15,
                                 0x1.ffep-15,
                                 1e-12,
                                 0x1.004p-14,
                                 0x1.123456p3,
                                 -0x1.fedcbap-9,
                                 0x1p-60};
enum { SPECIAL = COUNT(special) };

/* By planes that start `at` elements into their memory. */
static void check_rounding(struct memory *m, double factor, int64_t at, int split) {
  struct mn_operand o = {.rows = 1, .cols = SPECIAL + at, .real = take_reals(m, special, SPECIAL)};
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

static void planes_are_the_reals_rounded(void **state) {
  static const char *const precisions[] = {"bf16", "bf16", "fp16", "fp16x3"}; /* once more, split */
  static const double factors[] = {1, 0x1p-3, 0x1p12, 0x1p60, 0x1p-60};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct memory m = {.device = open_or_skip(*state, precisions[p])};
    if (!m.device) continue;
    for (int i = 0; i < 10; i++) check_rounding(&m, factors[i / 2], i % 2, p == 1);
    close_memory(&m);
  }
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

static void round_measures_when_asked(void **state) {
  static const int64_t counts[] = {1, 7, 4096, 100003};
  static const int headrooms[] = {MN_HEADROOM_X, MN_HEADROOM_DZ, MN_HEADROOM_W};
  static const double sizes[] = {1, 0x1.fffffep0, 3e38, 1e-38, 0x1p-149, 6e-5, 0};
  for (size_t p = 0; p < COUNT(scaled); p++) {
    struct memory m = {.device = open_or_skip(*state, scaled[p])};
    if (!m.device) continue;
    for (int i = 0; i < 4 * 7 && m.device->scaled; i++) {
      const int64_t count = counts[i / 7];
      double *values = random_values(count, 92, sizes[i % 7] / 2);
      values[count * 2 / 3] = -sizes[i % 7];
      if (count > 4) values[1] = i % 2 ? INFINITY : NAN, values[count - 1] = -values[1];
      check_measuring(&m, values, count, headrooms[i % 3]);
      free(values);
    }
    close_memory(&m);
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
  double *gamma = random_values(channels, 93, 1.7), *beta = random_values(channels, 94, 0.6);
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
  free(gamma), free(beta);
  release_all(m);
}

static void rescale_chooses_by_what_is_known(void **state) {
  static const struct mn_scale dz[] = {{8, 0},     {8, 3},        {8, INFINITY},  {0x1p20f, 1e-30f},
                                       {2, 1e38f}, {4, 1.5f},     {2, 0x1p-149f}, {0, 0},
                                       {1, 65504}, {0x1p-10f, 1}, {1, 1e-30f},    {0x1p60f, 1e30f}};
  static const int64_t channels[][2] = {{1, 1},      {33, 3}, {96, 6},  {1000, 1}, {3000, 1500},
                                        {8192, 512}, {48, 1}, {49, 49}, {81, 27}};
  static const double slopes[] = {0.01, 0, 3, -3};
  for (size_t p = 0; p < COUNT(scaled); p++) {
    struct memory m = {.device = open_or_skip(*state, scaled[p])};
    if (!m.device) continue;
    for (size_t i = 0; i < COUNT(dz); i++) check_dz_factor(&m, dz[i]);
    for (size_t i = 0; i < 4 * COUNT(channels); i++)
      check_y_factor(&m, channels[i / 4][0], channels[i / 4][1], slopes[i % 4]);
    close_memory(&m);
  }
}

/* An operand of these values with a plane, not written, and a scale. */
static struct mn_operand put_operand(struct memory *m, int64_t rows, int64_t cols, const double *values,
                                     float factor) {
  struct mn_operand o = {.rows = rows, .cols = cols, .real = take_reals(m, values, rows * cols)};
  take_planes(m, &o, factor);
  return o;
}

/* Small integers times powers of two, so that nothing is rounded: the factors must not show at all. */
static void a_product_is_without_its_factors(void **state) {
  enum { ROWS = 24, COLS = 40, DEPTH = 32 };
  struct memory m = {.device = open_or_skip(*state, "fp16")};
  static const int sizes[][2] = {{0, 0}, {-40, 30}, {-70, 10}, {60, -50}};
  static const float factors[][2] = {{1, 1}, {64, 0x1p-3f}, {0x1p9f, 16}};
  double *a = random_values(ROWS * DEPTH, 1, 8), *b = random_values(COLS * DEPTH, 2, 8);
  for (int i = 0; i < ROWS * DEPTH; i++) a[i] = floor(a[i]);
  for (int i = 0; i < COLS * DEPTH; i++) b[i] = floor(b[i]);
  for (size_t s = 0; s < COUNT(sizes); s++)
    for (size_t f = 0; f < COUNT(factors); f++) {
      double unit[] = {ldexp(1, sizes[s][0]), ldexp(1, sizes[s][1])};
      double *x = zeros(ROWS * DEPTH), *y = zeros(COLS * DEPTH), *expected = zeros(ROWS * COLS);
      for (int i = 0; i < ROWS * DEPTH; i++) x[i] = a[i] * unit[0];
      for (int i = 0; i < COLS * DEPTH; i++) y[i] = b[i] * unit[1];
      struct mn_operand left = put_operand(&m, ROWS, DEPTH, x, factors[f][0] / (float)unit[0]);
      struct mn_operand right = put_operand(&m, COLS, DEPTH, y, factors[f][1] / (float)unit[1]);
      if (fabs(log2(1 / unit[0])) > 50 || fabs(log2(1 / unit[1])) > 50) { /* beyond the factors there are */
        left.headroom = right.headroom = MN_HEADROOM_X;
        MUST(mn_operand_prepare(m.device, &left));
        MUST(mn_operand_prepare(m.device, &right));
      } else {
        MUST(m.device->kernels->round(m.device, &left, 0));
        MUST(m.device->kernels->round(m.device, &right, 0));
      }
      for (int add = 0; add < 2 - blind(MN_FP16); add++) {
        for (int i = 0; i < ROWS; i++)
          for (int j = 0; j < COLS; j++) {
            expected[i * COLS + j] = add ? 4 * unit[0] * unit[1] : 0;
            for (int k = 0; k < DEPTH; k++) expected[i * COLS + j] += x[i * DEPTH + k] * y[j * DEPTH + k];
          }
        double *before = zeros(ROWS * COLS);
        for (int i = 0; i < ROWS * COLS; i++) before[i] = 4 * unit[0] * unit[1];
        struct mn_epilogue e = {.kind = add ? MN_ADD : MN_STORE,
                                .into = take_reals(&m, add ? before : NULL, ROWS * COLS)};
        MUST(m.device->kernels->gemm(m.device, MN_NT, &left, &right, &e));
        assert_reals(&m, "a product", e.into, expected, ROWS * COLS, 0);
        free(before);
      }
      free(x), free(y), free(expected);
      release_all(&m);
    }
  free(a), free(b);
  mn_device_close(m.device);
}

/* ---- who writes planes ---- */

/* dz = dy, or half of it: its largest is noted, over the largest before, and one that the plane cannot hold
 * raises the flag with the mark. */
static void a_backward_notes_its_largest(void **state) {
  enum { ROWS = 70, CHANNELS = 24, MANY = ROWS * CHANNELS };
  struct memory m = {.device = open_or_skip(*state, "fp16")};
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
  double *z = zeros(MANY), *dy = zeros(MANY);
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int at = 0; at < MANY; at += 333) {
      double unit = fabs(cases[i].largest) < 1e-20 ? 1e-30 : 1;
      for (int k = 0; k < MANY; k++) z[k] = k % 3 ? 1 : -1, dy[k] = (k % 2 ? unit : -unit);
      z[at] = 1, dy[at] = cases[i].largest;
      struct mn_operand dz = put_operand(&m, ROWS, CHANNELS, NULL, cases[i].factor);
      put_scale(m.device, dz.scale, (struct mn_scale){cases[i].factor, cases[i].before});
      struct mn_block b = {.ops = MN_OP_ACTIVATE,
                           .rows = ROWS,
                           .channels = CHANNELS,
                           .groups = 1,
                           .slope = 0.5,
                           .z = take_reals(&m, z, MANY),
                           .dz = &dz,
                           .sums = take_reals(&m, NULL, 3 * mn_chunks(ROWS) * CHANNELS)};
      struct mn_epilogue e = {.kind = MN_BLOCK_BACKWARD, .block = &b};
      for (int mark = 5; mark < 7; mark++) { /* the first mark stays */
        m.device->mark = mark;
        MUST(m.device->kernels->epilogue(m.device, take_reals(&m, dy, MANY), ROWS, CHANNELS, &e));
      }
      m.device->mark = 1;
      assert_planes(m.device, "dz", &dz);
      assert_true(get_scale(m.device, dz.scale).factor == cases[i].factor);
      /* Of an infinity it matters only that it is no factor's. */
      float noted = get_scale(m.device, dz.scale).largest;
      if (noted != cases[i].noted) fail_msg("case %zu: %g was noted", i, (double)noted);
      assert_int_equal(flag_of(m.device), cases[i].raised);
      release_all(&m);
    }
  free(z), free(dy);
  mn_device_close(m.device);
}

/* ---- what is left alone once the flag is raised ---- */

static void raise_flag(struct mn_device *device) {
  const int mark = 7;
  MUST(device->kernels->copy(device, device->nonfinite, &mark, sizeof mark));
  MUST(device->kernels->synchronize(device));
}

/* An update writes W's planes under the factor that they have, and clears a gradient that it is told to;
 * under the flag it does neither, nor does that of a product. */
static void check_update(struct memory *m, int64_t rows, int64_t cols, struct rule rule, int clears) {
  const int64_t count = rows * cols;
  struct mn_device *device = m->device;
  struct parameter w;
  struct mn_operand dz, x;
  operands(m, MN_TN, (struct sizes){rows, cols, rows % 8 ? 9 : 1100}, &dz, &x); /* 1100 is shared out */
  make_parameter(m, &w, rows, cols, rule);
  const float factor = w.w.scale ? get_scale(device, w.w.scale).factor : 1;
  double *steps = random_values(count, 23, 1);
  void *d = take_reals(m, steps, count);
  struct mn_epilogue e = {.kind = MN_UPDATE, .update = &w.update};
  if (needs_memory(device, rule)) e.into = take_reals(m, NULL, count);
  raise_flag(device);
  MUST(device->kernels->gemm(device, MN_TN, &dz, &x, &e));
  w.update.clears = clears;
  MUST(device->kernels->epilogue(device, d, rows, cols, &e));
  assert_int_equal(flag_of(device), 7); /* nobody else has raised it */
  assert_reals(m, "a sum under the flag", d, steps, count, 0);
  assert_parameter(m, &w, "a weight that was not updated", 0);
  MUST(device->kernels->epilogue(device, d, rows, cols, &e));
  assert_int_equal(flag_of(device), 0);
  follow(&w, steps);
  assert_parameter(m, &w, "a weight that was updated", tolerance_of(device));
  if (w.w.scale) assert_true(get_scale(device, w.w.scale).factor == factor);
  for (int64_t i = 0; clears && i < count; i++) steps[i] = 0;
  assert_reals(m, "a sum", d, steps, count, 0);
  free(steps);
  free_parameter(&w);
  release_all(m);
}

static void updates_stop_at_the_flag(void **state) {
  static const int64_t sizes[][2] = {{1, 7}, {33, 17}, {40, 24}, {64, 64}, {130, 144}};
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct memory m = {.device = open_or_skip(*state, mn_precision_name((enum mn_precision)p))};
    if (!m.device) continue;
    for (int i = 0; i < 5 * RULES * 2; i++)
      check_update(&m, sizes[i / 2 / RULES][0], sizes[i / 2 / RULES][1], rules[i / 2 % RULES], i % 2);
    close_memory(&m);
  }
}

/* Adds, and adds again by either way of a product: under the flag to nothing. */
static void check_adding(struct memory *m, enum mn_form form, struct sizes z) {
  const struct mn_kernels *k = m->device->kernels;
  const int64_t count = z.rows * z.cols;
  struct mn_operand x, y;
  operands(m, form, z, &x, &y);
  double *before = random_values(count, 13, 1), *beside = random_values(count, 14, 1);
  double *product = product_of(m, form, &x, &y);
  void *d = take_reals(m, beside, count);
  const struct mn_epilogue add = {.kind = MN_ADD, .into = take_reals(m, before, count)};
  for (int library = 0; library < 2; library++) {
    m->device->force_cublas = library;
    raise_flag(m->device);
    MUST(k->gemm(m->device, form, &x, &y, &add));
    MUST(k->epilogue(m->device, d, z.rows, z.cols, &add));
    assert_reals(m, "a sum under the flag", add.into, before, count, 0);
    assert_int_equal(flag_of(m->device), 7);
  }
  MUST(k->gemm(m->device, form, &x, &y, &add));
  MUST(k->epilogue(m->device, d, z.rows, z.cols, &add));
  m->device->force_cublas = 0;
  for (int64_t i = 0; i < count; i++) before[i] += product[i] + beside[i];
  assert_reals(m, "a sum", add.into, before, count, product_tolerance(m->device));
  free(before), free(beside), free(product);
  release_all(m);
}

/* A sum of gradients, to which a batch that is taken again must not be added twice: by products of every
 * form, in small and in large tiles and the library's, in shares of the depth, and from memory. */
static void nothing_is_added_under_the_flag(void **state) {
  static const char *const precisions[] = {"fp64", "fp32", "fp16", "fp16x3"};
  static const struct sizes sizes[] = {
      {33, 17, 9}, {40, 48, 32}, {40, 48, 1100}, {136, 72, 40}, {2040, 2040, 16}};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct memory m = {.device = open_or_skip(*state, precisions[p])};
    if (!m.device) continue;
    const int count = on_cuda(*state) && m.device->scaled && !quick() ? 5 : 4;
    for (int i = 0; i < 3 * count && !blind(m.device->precision); i++)
      check_adding(&m, (enum mn_form)(i % 3), sizes[i / 3]);
    close_memory(&m);
  }
}

/* Only what is stored is written. */
static void column_sums_stop_at_the_flag(void **state) {
  static const char *const precisions[] = {"fp64", "fp32", "fp16"};
  enum { CHUNKS = 5, CHANNELS = 100, ALL = CHUNKS * CHANNELS };
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct memory m = {.device = open_or_skip(*state, precisions[p])};
    if (!m.device) continue;
    struct parameter w;
    double *before = random_values(CHANNELS, 31, 1), *values = random_values(3 * ALL, 32, 1);
    double *stored = zeros(CHANNELS);
    for (int i = ALL; i < 2 * ALL; i++) stored[i % CHANNELS] += values[i];
    make_parameter(&m, &w, 1, CHANNELS, rules[MOMENTUM_DECAY]);
    w.w = (struct mn_operand){.rows = 1, .cols = CHANNELS, .real = w.w.real}; /* a vector has no planes */
    const struct mn_epilogue store = {.kind = MN_STORE, .into = take_reals(&m, NULL, CHANNELS)},
                             add = {.kind = MN_ADD, .into = take_reals(&m, before, CHANNELS)},
                             update = {.kind = MN_UPDATE, .update = &w.update};
    const struct mn_epilogue *const sinks[] = {&add, &store, &update};
    raise_flag(m.device);
    MUST(m.device->kernels->column_sums(m.device, take_reals(&m, values, 3 * ALL), CHUNKS, CHANNELS, sinks,
                                        NULL));
    assert_reals(&m, "column sums, added", add.into, before, CHANNELS, 0);
    assert_parameter(&m, &w, "column sums, updated", 0);
    assert_int_equal(flag_of(m.device), 7);
    assert_reals(&m, "column sums, stored", store.into, stored, CHANNELS, tolerance_of(m.device));
    free(before), free(values), free(stored);
    free_parameter(&w);
    close_memory(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float16_rounds_to_nearest_even),
      cmocka_unit_test(float16_ends_in_infinities_and_keeps_nan),
      cmocka_unit_test(two_planes_hold_a_value),
      cmocka_unit_test(a_factor_leaves_its_headroom),
      BOTH(planes_are_the_reals_rounded),
      BOTH(round_measures_when_asked),
      BOTH(rescale_chooses_by_what_is_known),
      BOTH(a_product_is_without_its_factors),
      BOTH(a_backward_notes_its_largest),
      BOTH(updates_stop_at_the_flag),
      BOTH(nothing_is_added_under_the_flag),
      BOTH(column_sums_stop_at_the_flag),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
