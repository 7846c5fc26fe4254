/* float16 planes and their scales: the rounding itself, the choice of factors, and what kernels make of both:
 * to the bit, since factors are powers of two. */
#include "tests/check.h"

#include "kernels/planes.h"

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

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

static struct mn_scale *put_scale(struct memory *m, struct mn_scale scale) {
  struct mn_scale *out = take_bytes(m, 1, sizeof scale);
  MUST(m->device->kernels->copy(m->device, out, &scale, sizeof scale));
  MUST(m->device->kernels->synchronize(m->device));
  return out;
}

static struct mn_scale get_scale(const struct memory *m, const struct mn_scale *scale) {
  struct mn_scale out;
  MUST(m->device->kernels->download(m->device, &out, scale, sizeof out));
  return out;
}

/* An operand of these values with a plane, not written, and a scale. */
static struct mn_operand put_operand(struct memory *m, int64_t rows, int64_t cols, const double *values,
                                     float factor, int headroom) {
  return (struct mn_operand){.rows = rows,
                             .cols = cols,
                             .real = take_reals(m, values, rows * cols),
                             .planes = {take_bytes(m, rows * cols, m->device->plane)},
                             .scale = put_scale(m, (struct mn_scale){factor, 7}),
                             .headroom = headroom,
                             .stale = 1};
}

/* The plane holds the real values under the factor that there is. */
static void assert_plane(const struct memory *m, const char *what, const struct mn_operand *o) {
  int64_t count = o->rows * o->cols;
  double *values = read_reals(m, o->real, count);
  float *plane = read_float16(m->device, o->planes[0], count), factor = get_scale(m, o->scale).factor;
  for (int64_t i = 0; i < count; i++) {
    float expected = mn_to_fp16((float)values[i] * factor);
    if (isnan(expected) ? !isnan(plane[i]) : to_bits(plane[i]) != to_bits(expected))
      fail_msg("%s: %ld: %a is %a in the plane, not %a, under %g", what, (long)i, values[i], (double)plane[i],
               (double)expected, (double)factor);
  }
  free(values), free(plane);
}

static void round_measures_when_asked(void **state) {
  enum { ROWS = 37, COLS = 1024, MANY = ROWS * COLS };
  struct memory m = {.device = open_or_skip(*state, "fp16")};
  double *values = random_values(MANY, 1, 3e-5);
  values[5] = INFINITY, values[6] = -INFINITY, values[7] = NAN, values[8] = -0.0, values[9] = 1e-12;
  values[MANY - 1] = -5e-5;
  struct mn_operand o = put_operand(&m, ROWS, COLS, values, 64, MN_HEADROOM_W);
  MUST(m.device->kernels->round(m.device, &o, 0));
  assert_false(o.stale);
  assert_true(get_scale(&m, o.scale).factor == 64 && get_scale(&m, o.scale).largest == 7);
  assert_plane(&m, "the factor that there was", &o);
  o.stale = 1;
  MUST(m.device->kernels->round(m.device, &o, 1));
  assert_false(o.stale);
  assert_true(get_scale(&m, o.scale).largest == 5e-5f);
  assert_true(get_scale(&m, o.scale).factor == mn_scale_factor(5e-5f, MN_HEADROOM_W, 0));
  assert_plane(&m, "a measured factor", &o);
  /* mn_operand_prepare measures, and only what is stale. */
  o.headroom = MN_HEADROOM_X;
  MUST(mn_operand_prepare(m.device, &o));
  assert_true(get_scale(&m, o.scale).factor == mn_scale_factor(5e-5f, MN_HEADROOM_W, 0));
  o.stale = 1;
  MUST(mn_operand_prepare(m.device, &o));
  assert_true(get_scale(&m, o.scale).factor == mn_scale_factor(5e-5f, MN_HEADROOM_X, 0));
  assert_plane(&m, "a prepared operand", &o);
  /* Nothing to measure. */
  for (int i = 0; i < MANY; i++) values[i] = i ? 0 : NAN;
  struct mn_operand none = put_operand(&m, ROWS, COLS, values, 64, MN_HEADROOM_X);
  MUST(m.device->kernels->round(m.device, &none, 1));
  assert_true(get_scale(&m, none.scale).factor == 1 && get_scale(&m, none.scale).largest == 0);
  assert_plane(&m, "zeros", &none);
  free(values);
  release_all(&m);
  mn_device_close(m.device);
}

static void rescale_chooses_by_what_is_known(void **state) {
  enum { CHANNELS = 48 };
  struct memory m = {.device = open_or_skip(*state, "fp16")};
  static const struct mn_scale written[] = {{4, 1.5f}, {4, 0}, {4, INFINITY}, {1, 1e-30f}, {0x1p60f, 1e30f}};
  for (size_t i = 0; i < COUNT(written); i++) {
    struct mn_scale *dz = put_scale(&m, written[i]);
    MUST(m.device->kernels->rescale(m.device, dz, NULL, NULL));
    struct mn_scale now = get_scale(&m, dz);
    assert_true(now.factor == mn_scale_factor(written[i].largest, MN_HEADROOM_DZ, written[i].factor));
    assert_true(now.factor == mn_scale_next(&written[i]) && now.largest == 0);
  }
  double *gamma = random_values(CHANNELS, 1, 1), *beta = random_values(CHANNELS, 2, 1);
  gamma[17] = -3, beta[CHANNELS - 1] = -5;
  for (int64_t groups = 1; groups <= CHANNELS; groups *= 3)
    for (int slope = -3; slope < 3; slope += 2) {
      struct mn_scale *dz = put_scale(&m, written[0]), *y = put_scale(&m, (struct mn_scale){0, 0});
      struct mn_block block = {.gamma = take_reals(&m, gamma, CHANNELS),
                               .beta = take_reals(&m, beta, CHANNELS),
                               .channels = CHANNELS,
                               .groups = groups == 27 ? CHANNELS : groups,
                               .slope = slope};
      double width = (double)CHANNELS / (double)block.groups;
      double bound = 2 * fmax(1, fabs(block.slope)) * (sqrt(width - 1) * 3 + 5);
      MUST(m.device->kernels->rescale(m.device, dz, y, &block));
      assert_true(get_scale(&m, y).factor == mn_scale_factor((float)bound, MN_HEADROOM_X, 1));
      assert_true(get_scale(&m, dz).factor == mn_scale_next(&written[0]));
      release_all(&m);
    }
  free(gamma), free(beta);
  mn_device_close(m.device);
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
      struct mn_operand left = put_operand(&m, ROWS, DEPTH, x, factors[f][0] / (float)unit[0], 0);
      struct mn_operand right = put_operand(&m, COLS, DEPTH, y, factors[f][1] / (float)unit[1], 0);
      if (fabs(log2(1 / unit[0])) > 50 || fabs(log2(1 / unit[1])) > 50) { /* beyond the factors there are */
        left.headroom = right.headroom = MN_HEADROOM_X;
        MUST(mn_operand_prepare(m.device, &left));
        MUST(mn_operand_prepare(m.device, &right));
      } else {
        MUST(m.device->kernels->round(m.device, &left, 0));
        MUST(m.device->kernels->round(m.device, &right, 0));
      }
      for (int add = 0; add < 2; add++) {
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

static int flag_of(const struct memory *m) {
  int raised;
  MUST(m->device->kernels->download(m->device, &raised, m->device->nonfinite, sizeof raised));
  MUST(m->device->kernels->zero(m->device, m->device->nonfinite, sizeof raised));
  return raised;
}

/* The output of a normalisation, under a factor that rescale chose. */
static void a_block_writes_y_under_its_factor(void **state) {
  enum { ROWS = 9, CHANNELS = 32, GROUPS = 4 };
  struct memory m = {.device = open_or_skip(*state, "fp16")};
  double *values = random_values(ROWS * CHANNELS, 1, 2);
  struct mn_operand y = put_operand(&m, ROWS, CHANNELS, NULL, 0x1p-5f, 0);
  struct mn_block b = {.ops = MN_OP_ALL,
                       .rows = ROWS,
                       .channels = CHANNELS,
                       .groups = GROUPS,
                       .eps = 1e-5,
                       .slope = 0.1,
                       .bias = take_reals(&m, values, CHANNELS),
                       .gamma = take_reals(&m, values + CHANNELS, CHANNELS),
                       .beta = take_reals(&m, values + 2 * CHANNELS, CHANNELS),
                       .z = take_reals(&m, NULL, ROWS * CHANNELS),
                       .mean = take_reals(&m, NULL, ROWS * GROUPS),
                       .rstd = take_reals(&m, NULL, ROWS * GROUPS),
                       .y = &y};
  struct mn_epilogue e = {.kind = MN_BLOCK, .block = &b};
  for (int rescaled = 0; rescaled < 2; rescaled++) {
    if (rescaled) MUST(m.device->kernels->rescale(m.device, NULL, y.scale, &b));
    void *d = take_reals(&m, values, ROWS * CHANNELS);
    MUST(m.device->kernels->epilogue(m.device, d, ROWS, CHANNELS, &e));
    assert_plane(&m, "y", &y);
    assert_int_equal(flag_of(&m), 0);
  }
  free(values);
  release_all(&m);
  mn_device_close(m.device);
}

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
      struct mn_operand dz = put_operand(&m, ROWS, CHANNELS, NULL, cases[i].factor, 0);
      dz.scale = put_scale(&m, (struct mn_scale){cases[i].factor, cases[i].before});
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
      assert_plane(&m, "dz", &dz);
      assert_true(get_scale(&m, dz.scale).factor == cases[i].factor);
      /* Of an infinity it matters only that it is no factor's. */
      float noted = get_scale(&m, dz.scale).largest;
      if (noted != cases[i].noted) fail_msg("case %zu: %g was noted", i, (double)noted);
      assert_int_equal(flag_of(&m), cases[i].raised);
      release_all(&m);
    }
  free(z), free(dy);
  mn_device_close(m.device);
}

/* An update writes W's plane under the factor that it has, and clears a gradient that it is told to; once the
 * flag is raised it does neither. */
static void an_update_keeps_the_factor(void **state) {
  enum { ROWS = 130, COLS = 144, MANY = ROWS * COLS };
  static const char *const precisions[] = {"fp64", "fp32", "bf16", "fp16"};
  for (size_t p = 0; p < COUNT(precisions); p++)
    for (int way = 0; way < 8; way++) {
      struct memory m = {.device = open_or_skip(*state, precisions[p])};
      const struct mn_kernels *k = m.device->kernels;
      struct mn_device *device = m.device;
      int clears = way & 1, raised = way & 2, fp16 = device->scaled, nesterov = way & 4;
      double *values = random_values(MANY, 1, 1), *steps = random_values(MANY, 2, 1), rate = 0.25;
      struct mn_operand w = {.rows = ROWS, .cols = COLS, .real = take_reals(&m, values, MANY)};
      if (fp16) w = put_operand(&m, ROWS, COLS, values, 128, MN_HEADROOM_W);
      double *device_rate = take_bytes(&m, 1, sizeof rate);
      MUST(k->copy(device, device_rate, &rate, sizeof rate));
      if (raised) MUST(k->copy(device, device->nonfinite, &(int){3}, sizeof(int)));
      MUST(k->synchronize(device));
      double *none = zeros(MANY);
      struct mn_rule sgd = {.rate = device_rate, .momentum = 0.5, .nesterov = nesterov};
      struct mn_update update = {.w = &w, .m = take_reals(&m, none, MANY), .rule = &sgd, .clears = clears};
      struct mn_epilogue e = {.kind = MN_UPDATE, .update = &update};
      void *gradient = take_reals(&m, steps, MANY);
      if (fp16) MUST(k->round(device, &w, 0));
      MUST(k->epilogue(device, gradient, ROWS, COLS, &e));
      double *left = read_reals(&m, gradient, MANY), *now = read_reals(&m, w.real, MANY);
      for (int i = 0; i < MANY; i++) {
        assert_true(left[i] == (clears && !raised ? 0 : steps[i]));
        assert_true((now[i] == values[i]) == (raised || steps[i] == 0));
      }
      if (fp16) assert_true(get_scale(&m, w.scale).factor == 128);
      if (fp16) assert_plane(&m, "w", &w);
      assert_int_equal(flag_of(&m), raised ? 3 : 0);
      free(values), free(steps), free(none), free(left), free(now);
      release_all(&m);
      mn_device_close(m.device);
    }
}

/* A sum of gradients stays as it is once the flag is raised, whoever would add to it. */
static void nothing_is_added_once_the_flag_is_raised(void **state) {
  enum { ROWS = 40, COLS = 48, DEPTH = 32 };
  static const char *const precisions[] = {"fp64", "fp32", "fp16"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct memory m = {.device = open_or_skip(*state, precisions[p])};
    const struct mn_kernels *k = m.device->kernels;
    struct mn_device *device = m.device;
    double *values = random_values(ROWS * COLS, 1, 1), *a = random_values(DEPTH * ROWS, 2, 1);
    double *b = random_values(DEPTH * COLS, 3, 1);
    struct mn_operand left = {.rows = DEPTH, .cols = ROWS, .real = take_reals(&m, a, DEPTH * ROWS)};
    struct mn_operand right = {.rows = DEPTH, .cols = COLS, .real = take_reals(&m, b, DEPTH * COLS)};
    if (device->scaled) {
      left = put_operand(&m, DEPTH, ROWS, a, 1, MN_HEADROOM_X);
      right = put_operand(&m, DEPTH, COLS, b, 1, MN_HEADROOM_X);
      MUST(mn_operand_prepare(m.device, &left));
      MUST(mn_operand_prepare(m.device, &right));
    }
    struct mn_epilogue e = {.kind = MN_ADD, .into = take_reals(&m, values, ROWS * COLS)};
    void *d = take_reals(&m, values, ROWS * COLS);
    for (int raised = 1; raised >= 0; raised--)
      for (int by_gemm = 0; by_gemm < 2; by_gemm++) {
        double *before = read_reals(&m, e.into, ROWS * COLS);
        if (raised) MUST(k->copy(device, device->nonfinite, &(int){3}, sizeof(int)));
        MUST(by_gemm ? k->gemm(device, MN_TN, &left, &right, &e) : k->epilogue(device, d, ROWS, COLS, &e));
        assert_int_equal(flag_of(&m), raised ? 3 : 0);
        double *after = read_reals(&m, e.into, ROWS * COLS);
        assert_true((memcmp(before, after, ROWS * COLS * sizeof *before) == 0) == raised);
        free(before), free(after);
      }
    free(values), free(a), free(b);
    release_all(&m);
    mn_device_close(m.device);
  }
}

int main(void) {
#define BOTH(test) ON("cpu", test), ON("cuda", test)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float16_rounds_to_nearest_even),
      cmocka_unit_test(float16_ends_in_infinities_and_keeps_nan),
      cmocka_unit_test(a_factor_leaves_its_headroom),
      BOTH(round_measures_when_asked),
      BOTH(rescale_chooses_by_what_is_known),
      BOTH(a_product_is_without_its_factors),
      BOTH(a_block_writes_y_under_its_factor),
      BOTH(a_backward_notes_its_largest),
      BOTH(an_update_keeps_the_factor),
      BOTH(nothing_is_added_once_the_flag_is_raised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
