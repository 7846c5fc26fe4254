/* What is peculiar to planes and their scales, on the CPU and on CUDA: rounding, the choice of factors, a dz
 * that its planes cannot hold, and what is left alone once a value was not finite. Tests of two devices are
 * skipped without a GPU, and say why. */
#include "tests/parity_bench.h"

static const enum mn_precision scaled[] = {MN_FP16, MN_FP16X3};
enum { SCALED = sizeof scaled / sizeof scaled[0] };

/* ---- the roundings themselves ---- */

/* Every float16 is itself; between two neighbours the nearer, and in the middle the even one. */
static void to_fp16_is_to_nearest(void **state) {
  for (uint32_t bits = 0; bits < 0x7c00; bits++) {
    const float low = fp16_value((uint16_t)bits),
                high = bits == 0x7bff ? 65536 : fp16_value((uint16_t)(bits + 1));
    const float middle = (low + high) / 2, above = bits == 0x7bff ? INFINITY : high;
    const float even = bits % 2 ? above : low;
    for (int sign = 1; sign >= -1; sign -= 2) {
      const float s = (float)sign;
      assert_true(same_float(mn_to_fp16(s * low), s * low));
      assert_true(same_float(mn_to_fp16(s * middle), s * even));
      assert_true(same_float(mn_to_fp16(s * nextafterf(middle, 0)), s * low));
      assert_true(same_float(mn_to_fp16(s * nextafterf(middle, INFINITY)), s * above));
    }
  }
  assert_true(isnan(mn_to_fp16(NAN)));
  assert_true(mn_to_fp16(INFINITY) == INFINITY && mn_to_fp16(-INFINITY) == -INFINITY);
  assert_true(mn_to_fp16(0x1.fffffep127f) == INFINITY && mn_to_fp16(0x1p-149f) == 0);
}

/* Down to where the second plane ends, 2⁻²⁴: to 2⁻²² of the value, or half of that end. */
static void two_planes_hold_a_value(void **state) {
  double *values = draw(91, 100000, 1);
  for (int64_t i = 0; i < 100000; i++) {
    const float value = ldexpf((float)values[i], (int)(i % 40) - 25);
    const float high = mn_to_fp16(value), low = mn_to_fp16(value - high);
    const double error = fabs((double)high + low - value);
    if (!(error <= fmax(0x1p-22 * fabs(value), 0x1p-25))) fail_msg("%a is off by %a", value, error);
  }
  free(values);
}

/* ---- rounding on both devices ---- */

/* Ties, both ways; the largest finite values, which round to infinity, and those that just do not;
 * subnormals; infinities and NaN. */
static const double special[] = {
    1,           0x1.01p0,     0x1.03p0,       0x1.0101p0, -0x1.01p0,   0x1.fffffep127,
    0x1p-140,    0x1.8p-134,   -0.0,           INFINITY,   -INFINITY,   NAN,
    3.14159,     0x1.02p0,     0x1.002p0,      0x1.006p0,  0x1.0021p0,  65504,
    65519,       65520,        -65520,         65535,      0x1p-14,     0x1p-24,
    0x1p-25,     0x1.8p-25,    -0x1p-25,       -0x1.8p-24, 0x1.ffcp-15, 0x1.ffep-15,
    0x1.004p-14, 0x1.123456p3, -0x1.fedcbap-9, 0x1p-60};
enum { SPECIAL = sizeof special / sizeof special[0] };

/* By planes that start `at` elements into their memory. */
static void check_rounding(struct bench *b, double factor, int64_t at) {
  struct planes found[SIDES];
  for (int s = 0; s < SIDES; s++) {
    struct mn_operand o = {.rows = 1, .cols = SPECIAL + at, .real = put(b, s, special, SPECIAL)};
    take_planes(b, s, &o, (float)factor);
    o.cols = SPECIAL;
    for (int i = 0; i < b->on[s]->planes; i++)
      o.planes[i] = (char *)o.planes[i] + (size_t)at * b->on[s]->plane;
    if (o.planes[0]) must(b->on[s]->kernels->round(b->on[s], &o, 0));
    assert_int_equal(o.stale, !o.planes[0]);
    exact_planes(b, s, "numbers of every kind", &o);
    found[s] = get_planes(b->on[s], &o);
  }
  for (int64_t i = 0; i < SPECIAL && found[CPU].plane[0]; i++)
    assert_true(same_float(plane_at(&found[CPU], 0, i), plane_at(&found[CUDA], 0, i)));
  for (int s = 0; s < SIDES; s++) free_planes(&found[s]);
  clear_bench(b);
}

static void rounding(void **state) {
  const enum mn_precision precisions[] = {MN_BF16, MN_FP16, MN_FP16X3};
  const double factors[] = {1, 0x1p-3, 0x1p12, 0x1p60, 0x1p-60};
  for (int p = 0; p < 3; p++) {
    struct bench b;
    open_bench(&b, precisions[p]);
    for (int i = 0; i < 10; i++) check_rounding(&b, factors[i / 2], i % 2);
    close_bench(&b);
  }
}

/* The values of an operand, of which those that are not finite are not counted, and one is the largest. */
static double *values_with(int64_t count, double bound, double largest, double bad) {
  double *values = draw(92, count, bound);
  values[count * 2 / 3] = -largest;
  if (count > 4) values[1] = bad, values[count - 1] = -bad;
  return values;
}

/* The factor follows from the largest |value| and the headroom; without `measure` it stays. */
static void check_measuring(struct bench *b, const double *values, int64_t count, int headroom) {
  float largest = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(values[i])) largest = fmaxf(largest, fabsf((float)values[i]));
  const float factor = mn_scale_factor(largest, headroom, 1);
  for (int s = 0; s < SIDES; s++) {
    struct mn_operand o = {.rows = 1, .cols = count, .real = put(b, s, values, count), .headroom = headroom};
    take_planes(b, s, &o, 0x1p33f);
    for (int measure = 1; measure >= 0 && o.scale; measure--) {
      must(b->on[s]->kernels->round(b->on[s], &o, measure));
      const struct mn_scale scale = get_scale(b->on[s], o.scale);
      if (scale.factor != factor || scale.largest != largest)
        fail_msg("%a and %a are not %a and %a", scale.factor, scale.largest, factor, largest);
      exact_planes(b, s, "measured planes", &o);
    }
  }
  clear_bench(b);
}

static void measuring(void **state) {
  const int64_t counts[] = {1, 7, 4096, 100003};
  const int headrooms[] = {MN_HEADROOM_X, MN_HEADROOM_DZ, MN_HEADROOM_W};
  const double sizes[] = {1, 0x1.fffffep0, 3e38, 1e-38, 0x1p-149, 6e-5, 0};
  for (int p = 0; p < SCALED; p++) {
    struct bench b;
    open_bench(&b, scaled[p]);
    for (int i = 0; i < 4 * 7; i++) {
      const double size = sizes[i % 7], bad = i % 2 ? INFINITY : NAN;
      double *values = values_with(counts[i / 7], size / 2, size, bad);
      check_measuring(&b, values, counts[i / 7], headrooms[i % 3]);
      free(values);
    }
    close_bench(&b);
  }
}

/* ---- factors chosen before a forward ---- */

static void check_dz_factor(struct bench *b, struct mn_scale before) {
  for (int s = 0; s < SIDES; s++) {
    struct mn_scale *dz = put_raw(b, s, &before, sizeof before);
    must(b->on[s]->kernels->rescale(b->on[s], dz, NULL, NULL));
    const struct mn_scale after = get_scale(b->on[s], dz);
    const int measured = before.largest > 0 && isfinite(before.largest);
    assert_true(after.largest == 0 && after.factor == mn_scale_next(&before));
    if (!measured) assert_true(after.factor == before.factor);
    const float under = ldexpf(before.largest * after.factor, MN_HEADROOM_DZ);
    if (measured && after.factor < MN_FACTOR_MOST && after.factor > 1 / MN_FACTOR_MOST)
      assert_true(under >= 0x1p15f && under < 0x1p16f);
  }
  clear_bench(b);
}

static void check_y_factor(struct bench *b, int64_t channels, int64_t groups, double slope) {
  double *gamma = draw(93, channels, 1.7), *beta = draw(94, channels, 0.6), most = 0, offset = 0;
  for (int64_t i = 0; i < channels; i++)
    most = fmax(most, fabs(gamma[i])), offset = fmax(offset, fabs(beta[i]));
  const double width = (double)channels / (double)groups;
  const double bound = 2 * fmax(1, fabs(slope)) * (sqrt(width - 1) * most + offset);
  const struct mn_scale before = {3, 5}, dz_before = {2, 0};
  for (int s = 0; s < SIDES; s++) {
    struct mn_scale *y = put_raw(b, s, &before, sizeof before),
                    *dz = put_raw(b, s, &dz_before, sizeof before);
    const struct mn_block block = {.channels = channels,
                                   .groups = groups,
                                   .slope = slope,
                                   .gamma = put(b, s, gamma, channels),
                                   .beta = put(b, s, beta, channels)};
    must(b->on[s]->kernels->rescale(b->on[s], channels % 2 ? dz : NULL, y, &block));
    assert_true(get_scale(b->on[s], y).factor == mn_scale_factor((float)bound, MN_HEADROOM_X, 1));
    assert_true(get_scale(b->on[s], dz).factor == 2);
  }
  free(gamma), free(beta);
  clear_bench(b);
}

static void rescaling(void **state) {
  const struct mn_scale dz[] = {{8, 0},         {8, 3}, {8, INFINITY}, {0x1p20f, 1e-30f}, {2, 1e38f},
                                {2, 0x1p-149f}, {0, 0}, {1, 65504},    {0x1p-10f, 1}};
  const int64_t channels[][2] = {{1, 1}, {33, 3}, {96, 6}, {1000, 1}, {3000, 1500}, {8192, 512}};
  const double slopes[] = {0.01, 0, 3, -3};
  for (int p = 0; p < SCALED; p++) {
    struct bench b;
    open_bench(&b, scaled[p]);
    for (unsigned i = 0; i < sizeof dz / sizeof dz[0]; i++) check_dz_factor(&b, dz[i]);
    for (int i = 0; i < 24; i++) check_y_factor(&b, channels[i / 4][0], channels[i / 4][1], slopes[i % 4]);
    close_bench(&b);
  }
}

/* ---- a dz that its planes cannot hold ---- */

/* Applies a loss, or a backward, with dz's planes under this factor; returns the flag. */
static int flag_under(struct bench *b, int s, struct side *side, enum mn_epilogue_kind kind, float factor) {
  put_scale(b->on[s], side->dz.scale, (struct mn_scale){factor, 0});
  apply(b, s, side, kind, kind == MN_BLOCK_LOSS ? side->d : side->dy);
  const struct mn_scale scale = get_scale(b->on[s], side->dz.scale);
  assert_true(scale.factor == factor && scale.largest == largest_real(b, s, &side->dz));
  return flag(b, s);
}

/* The largest factor that the planes can bear raises nothing, twice that factor does, with the mark of the
 * first time. */
static void check_overflow(struct bench *b, struct shape at, unsigned ops, enum mn_epilogue_kind kind) {
  for (int s = 0; s < SIDES; s++) {
    struct mn_device *device = b->on[s];
    struct side side;
    make_side(b, s, &side, at, ops, APART);
    if (kind == MN_BLOCK_BACKWARD) apply(b, s, &side, MN_BLOCK, side.d);
    if (!side.dz.scale) continue;
    device->mark = 3;
    assert_int_equal(flag_under(b, s, &side, kind, 1), 0);
    const float bearable = exp2f(floorf(log2f(MN_FP16_MOST / (float)largest_real(b, s, &side.dz))));
    assert_int_equal(flag_under(b, s, &side, kind, bearable), 0);
    exact_planes(b, s, "dz, as large as can be", &side.dz);
    assert_int_equal(flag_under(b, s, &side, kind, 2 * bearable), 3);
    device->mark = 4;
    assert_int_equal(flag_under(b, s, &side, kind, 1024 * bearable), 3);
    assert_int_equal(flag_under(b, s, &side, kind, 1), 3);
    must(device->kernels->zero(device, device->nonfinite, sizeof(int)));
    assert_int_equal(flag_under(b, s, &side, kind, 2 * bearable), 4);
    device->mark = 1;
  }
  clear_bench(b);
}

static void overflow(void **state) {
  const struct shape shapes[] = {{33, 3, 16}, {3, 5, 7}, {5, 2, 300}, {70, 9, 8}, {9, 2, 256}};
  for (int p = 0; p < SCALED; p++) {
    struct bench b;
    open_bench(&b, scaled[p]);
    for (int i = 0; i < 10; i++) {
      const enum mn_epilogue_kind kind = i % 2 ? MN_BLOCK_LOSS : MN_BLOCK_BACKWARD;
      check_overflow(&b, shapes[i / 2], MN_OP_ALL, kind);
      check_overflow(&b, shapes[i / 2], MN_OP_BIAS | MN_OP_ACTIVATE, kind);
    }
    close_bench(&b);
  }
}

/* ---- what is left alone once the flag is raised ---- */

static void raise_flag(struct bench *b, int s) {
  const int mark = 7;
  must(b->on[s]->kernels->copy(b->on[s], b->on[s]->nonfinite, &mark, sizeof mark));
  must(b->on[s]->kernels->synchronize(b->on[s]));
}

static void lower_flag(struct bench *b, int s) {
  assert_int_equal(flag(b, s), 7); /* nobody else has */
  must(b->on[s]->kernels->zero(b->on[s], b->on[s]->nonfinite, sizeof(int)));
}

/* Whether reals are still those that were drawn. */
static int untouched(struct bench *b, int s, const void *reals, uint32_t which, int64_t count) {
  double *now = get(b, s, reals, count), *then = draw(which, count, 1);
  int same = 1;
  for (int64_t i = 0; i < count; i++) same &= now[i] == then[i];
  free(now), free(then);
  return same;
}

/* A sum of gradients, to which a batch that is taken again must not be added twice: by products of every
 * form, in small and in large tiles and the library's, and from memory. */
static void nothing_is_added_under_the_flag(void **state) {
  const struct sizes sizes[] = {{33, 17, 9}, {136, 72, 40}, {2040, 2040, 16}};
  for (int i = 0; i < SCALED * 3 * 3; i++) {
    struct bench b;
    const struct sizes z = sizes[i / 3 % 3];
    const enum mn_form form = (enum mn_form)(i % 3);
    const int64_t count = z.rows * z.cols;
    void *into[SIDES];
    if ((quick() && z.rows > 1000) || (scaled[i / 9] == MN_FP16 && blind())) continue;
    open_bench(&b, scaled[i / 9]);
    for (int s = 0; s < SIDES; s++) {
      const struct mn_kernels *k = b.on[s]->kernels;
      struct mn_operand x, y;
      operands(&b, s, form, z, &x, &y);
      into[s] = put_drawn(&b, s, 13, count, 1);
      void *d = put_drawn(&b, s, 14, count, 1);
      const struct mn_epilogue add = {.kind = MN_ADD, .into = into[s]};
      for (int library = 0; library < 2; library++) {
        b.on[s]->force_cublas = library;
        raise_flag(&b, s);
        must(k->gemm(b.on[s], form, &x, &y, &add));
        must(k->epilogue(b.on[s], d, z.rows, z.cols, &add));
        assert_true(untouched(&b, s, into[s], 13, count));
        lower_flag(&b, s);
      }
      must(k->gemm(b.on[s], form, &x, &y, &add));
      must(k->epilogue(b.on[s], d, z.rows, z.cols, &add));
      assert_false(untouched(&b, s, into[s], 13, count));
    }
    same_reals(&b, "a sum, without the flag", into, count, product_tolerance(&b));
    close_bench(&b);
  }
}

static void sums_are_kept_under_the_flag(void **state) {
  const int64_t sizes[][2] = {{1, 7}, {33, 17}, {64, 64}};
  for (int i = 0; i < SCALED * 3; i++) {
    struct bench b;
    const int64_t rows = sizes[i % 3][0], cols = sizes[i % 3][1], count = rows * cols;
    open_bench(&b, scaled[i / 3]);
    for (int s = 0; s < SIDES; s++) {
      const struct mn_kernels *k = b.on[s]->kernels;
      struct parameter p;
      make_parameter(&b, s, &p, rows, cols, RULES[4]);
      p.update.clears = 1;
      void *d = put_drawn(&b, s, 23, count, 1);
      const struct mn_epilogue e = {.kind = MN_UPDATE, .update = &p.update};
      raise_flag(&b, s);
      must(k->epilogue(b.on[s], d, rows, cols, &e));
      assert_true(untouched(&b, s, d, 23, count) && untouched(&b, s, p.w.real, 21, count));
      assert_true(untouched(&b, s, p.update.m, 22, count));
      exact_planes(&b, s, "a weight that was not updated", &p.w);
      lower_flag(&b, s);
      must(k->epilogue(b.on[s], d, rows, cols, &e));
      double *left = get(&b, s, d, count);
      for (int64_t j = 0; j < count; j++) assert_true(left[j] == 0);
      assert_false(untouched(&b, s, p.w.real, 21, count));
      exact_planes(&b, s, "a weight that was updated", &p.w);
      free(left);
    }
    close_bench(&b);
  }
}

/* Only what is stored is written. */
static void column_sums_under_the_flag(void **state) {
  const enum mn_precision precisions[] = {MN_FP64, MN_FP32, MN_FP16};
  enum { CHUNKS = 5, CHANNELS = 100 };
  for (int i = 0; i < 3; i++) {
    struct bench b;
    void *stored[SIDES];
    open_bench(&b, precisions[i]);
    for (int s = 0; s < SIDES; s++) {
      const double rate = 0.1;
      struct mn_operand w = {.rows = 1, .cols = CHANNELS, .real = put_drawn(&b, s, 21, CHANNELS, 1)};
      struct mn_rule sgd = {.rate = put_raw(&b, s, &rate, sizeof rate), .momentum = 0.9};
      struct mn_update vector = {.w = &w, .m = put_drawn(&b, s, 22, CHANNELS, 1), .rule = &sgd};
      void *added = put_drawn(&b, s, 31, CHANNELS, 1), *sums = put_drawn(&b, s, 32, 3 * CHUNKS * CHANNELS, 1);
      stored[s] = poisoned_reals(&b, s, CHANNELS);
      const struct mn_epilogue store = {.kind = MN_STORE, .into = stored[s]},
                               add = {.kind = MN_ADD, .into = added},
                               update = {.kind = MN_UPDATE, .update = &vector};
      const struct mn_epilogue *const sinks[] = {&add, &store, &update};
      raise_flag(&b, s);
      must(b.on[s]->kernels->column_sums(b.on[s], sums, CHUNKS, CHANNELS, sinks, NULL));
      assert_true(untouched(&b, s, added, 31, CHANNELS) && untouched(&b, s, w.real, 21, CHANNELS));
      assert_true(untouched(&b, s, vector.m, 22, CHANNELS));
      lower_flag(&b, s);
    }
    same_reals(&b, "column sums under the flag, stored", stored, CHANNELS, tolerance_of(&b));
    close_bench(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(to_fp16_is_to_nearest),
      cmocka_unit_test(two_planes_hold_a_value),
      cmocka_unit_test(rounding),
      cmocka_unit_test(measuring),
      cmocka_unit_test(rescaling),
      cmocka_unit_test(overflow),
      cmocka_unit_test(nothing_is_added_under_the_flag),
      cmocka_unit_test(sums_are_kept_under_the_flag),
      cmocka_unit_test(column_sums_under_the_flag),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
