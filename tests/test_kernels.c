/* The kernels one by one, through the table that the engine uses, on every device there is: against plain
 * double arithmetic written out here, and against what the headers promise to the bit. */
#include "tests/check.h"

#include "kernels/planes.h"

/* Random numbers */

/* Philox4x32-10 as Salmon et al. describe it, written out. */
static void philox_reference(uint32_t counter[4], const uint32_t given[2]) {
  uint32_t key[2] = {given[0], given[1]};
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * counter[0], b = (uint64_t)0xCD9E8D57u * counter[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ counter[1] ^ key[0], (uint32_t)b,
                        (uint32_t)(a >> 32) ^ counter[3] ^ key[1], (uint32_t)a};
    memcpy(counter, next, sizeof next);
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
}

/* Random123's published answers; the reference has to give them, and the kernels' Philox what it gives. */
static void philox_gives_the_known_answers(void **state) {
  static const struct {
    uint32_t counter[4], key[2], answer[4];
  } known[] = {
      {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < COUNT(known); i++) {
    uint32_t words[4];
    memcpy(words, known[i].counter, sizeof words);
    philox_reference(words, known[i].key);
    assert_memory_equal(words, known[i].answer, sizeof words);
  }
  uint32_t words[4];
  mn_philox(0, 0, 0, words);
  assert_memory_equal(words, known[0].answer, sizeof words);
  const uint64_t seed = 0x299f31d0a4093822u, quad = 0x85a308d3243f6a88u;
  uint32_t expected[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0};
  philox_reference(expected, known[2].key);
  mn_philox(seed, 0x13198a2e, quad, words);
  assert_memory_equal(words, expected, sizeof words);
  for (uint64_t i = 0; i < 9; i++) {
    mn_philox(5, 7, i / 4, words);
    assert_int_equal(mn_random_word(5, 7, i), words[i % 4]);
  }
}

/* bound·t with t exact and one rounding, from any place in the device. */
static void uniform_is_exact(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    static const uint64_t firsts[] = {0, 1, 3, 6, ((uint64_t)1 << 34) + 5};
    const double bounds[] = {1, 0.3, 1 / sqrt(784)};
    enum { MOST = 1031 };
    void *out = take_reals(&m, NULL, MOST);
    for (size_t f = 0; f < COUNT(firsts); f++)
      for (int64_t count = 1; count <= MOST; count += 515) {
        double bound = bounds[f % 3];
        MUST(m.device->kernels->uniform(m.device, out, count, 99, 3, firsts[f], bound));
        double *values = read_reals(&m, out, count);
        for (int64_t i = 0; i < count; i++) {
          double t = (mn_random_word(99, 3, firsts[f] + (uint64_t)i) >> 8) * 0x1p-23 - 1;
          float narrow = (float)bound * (float)t;
          assert_true(t >= -1 && t < 1);
          assert_true(values[i] == (w == 0 ? bound * t : (double)narrow));
        }
        free(values);
      }
    release_all(&m);
    mn_device_close(m.device);
  }
}

/* bfloat16 */

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

/* The nearer neighbour among bfloat16s, the even one of two as near; as if the exponent went on above. */
static uint32_t nearest_bf16(uint32_t bits) {
  uint32_t low = bits & 0xffff0000u, high = low + 0x10000u, rest = bits & 0xffffu;
  if (rest != 0x8000u) return rest < 0x8000u ? low : high;
  return low & 0x10000u ? high : low;
}

static void bf16_rounds_to_nearest_even(void **state) {
  static const uint32_t rests[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (uint32_t top = 0; top < 0x10000u; top++)
    for (size_t r = 0; r < COUNT(rests); r++) {
      uint32_t bits = top << 16 | rests[r], out = to_bits(mn_to_bf16(from_bits(bits)));
      if (isnan(from_bits(bits)))
        assert_true(isnan(from_bits(out)));
      else
        assert_int_equal(out, nearest_bf16(bits));
    }
  assert_true(isinf(mn_to_bf16(from_bits(0x7f7fffffu))));
  assert_true(mn_to_bf16(-INFINITY) == -INFINITY);
}

static float bf16_at(const struct mn_device *device, const void *bf16, int64_t i) {
  if (device->plane == sizeof(float)) return ((const float *)bf16)[i];
  return from_bits((uint32_t)((const uint16_t *)bf16)[i] << 16);
}

/* The kernel that rounds, with ties, infinities and NaN among its inputs. */
static void round_fills_the_bf16_form(void **state) {
  struct memory m = {.device = open_or_skip(*state, "bf16")};
  static const uint32_t bits[] = {0x3f808000u, 0x3f818000u, 0xbf808000u, 0x3f808001u,
                                  0x3f807fffu, 0x7f800000u, 0xff800000u, 0x7fc00000u,
                                  0,           0x80000000u, 0x00008000u};
  enum { MANY = COUNT(bits) };
  double values[MANY];
  for (int i = 0; i < MANY; i++) values[i] = from_bits(bits[i]);
  size_t bf16 = m.device->plane;
  struct mn_operand operand = {.rows = 1, .cols = MANY, .real = take_reals(&m, values, MANY), .stale = 1};
  operand.planes[0] = take_bytes(&m, MANY, bf16);
  MUST(mn_operand_prepare(m.device, &operand));
  assert_false(operand.stale);
  char out[MANY * sizeof(float)];
  MUST(m.device->kernels->download(m.device, out, operand.planes[0], MANY * bf16));
  for (int i = 0; i < MANY; i++) {
    float value = bf16_at(m.device, out, i);
    if (isnan(values[i]))
      assert_true(isnan(value));
    else
      assert_int_equal(to_bits(value), nearest_bf16(bits[i]));
  }
  release_all(&m);
  mn_device_close(m.device);
}

/* The nearer neighbour among bfloat16s, of two as near the one that is larger in size. */
static uint32_t nearest_bf16_away(uint32_t bits) {
  return ((bits & 0xffffu) < 0x8000u ? bits : bits + 0x10000u) & 0xffff0000u;
}

static void check_halves(uint32_t bits) {
  const uint16_t high = mn_upper_half(from_bits(bits));
  const uint32_t back = to_bits(mn_join_halves(high, (uint16_t)mn_split_bits(from_bits(bits))));
  const uint32_t upper = to_bits(mn_to_upper_half(from_bits(bits)));
  assert_int_equal(upper, (uint32_t)high << 16);
  if (isnan(from_bits(bits))) {
    assert_true(isnan(from_bits(back)) && isnan(from_bits(upper)));
  } else {
    assert_int_equal(back, bits);
    assert_int_equal(upper, nearest_bf16_away(bits));
  }
}

/* Every upper half with the lower ones around a tie, which has the subnormals, the infinities and the finite
 * floats whose upper half is infinite among them; then a few million floats all over. */
static void halves_give_every_float_back(void **state) {
  static const uint32_t rests[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (uint32_t top = 0; top < 0x10000u; top++)
    for (size_t r = 0; r < COUNT(rests); r++) check_halves(top << 16 | rests[r]);
  for (uint32_t i = 0; i < 1u << 22; i++) check_halves(i * 0x9e3779b1u);
  const float largest = from_bits(0x7f7fffffu);
  assert_int_equal(mn_upper_half(largest), 0x7f80);
  assert_true(mn_join_halves(0x7f80, (uint16_t)mn_split_bits(largest)) == largest);
  assert_int_equal(mn_upper_half(from_bits(0x7fffffffu)), 0x7fff); /* the GPU's own NaN, not -0 */
}

/* A split weight with room for `count` elements, none of them written. */
static struct mn_operand split_weight(struct memory *m, int64_t count) {
  const struct mn_device *device = m->device;
  struct mn_operand w = {.rows = 1, .cols = count, .split = 1};
  w.planes[0] = take_bytes(m, count, device->plane);
  if (device->type == MN_DEVICE_CUDA)
    w.low = take_bytes(m, count, sizeof *w.low);
  else
    w.real = take_bytes(m, count, sizeof(float));
  return w;
}

static void assert_same_float(float found, float expected) {
  if (isnan(expected))
    assert_true(isnan(found));
  else
    assert_int_equal(to_bits(found), to_bits(expected));
}

/* As engine/tensor.c's split, of any range: what is tested is round. That split itself: test_masters. */
static void write_split(struct mn_device *device, const struct mn_operand *w, int64_t first, float *from,
                        int64_t count) {
  struct mn_operand part = *w;
  part.rows = 1, part.cols = count, part.real = w->low ? from : (float *)w->real + first;
  part.planes[0] = (char *)w->planes[0] + (size_t)first * device->plane;
  part.low = w->low ? w->low + first : NULL;
  if (!w->low) memcpy(part.real, from, (size_t)count * sizeof *from);
  MUST(device->kernels->round(device, &part, 0));
}

/* From and to any element, the device's memory and the host's; what stands beside it stays. */
static void split_weights_are_written_and_read(void **state) {
  enum { MANY = 5003 };
  static const int64_t ranges[][2] = {{0, MANY}, {0, 1},        {8, 4096},
                                      {3, 2000}, {MANY - 1, 1}, {16, MANY - 16}};
  struct memory m = {.device = open_or_skip(*state, "bf16")};
  const struct mn_kernels *k = m.device->kernels;
  struct mn_device *device = m.device;
  struct mn_operand w = split_weight(&m, MANY);
  float expected[MANY], found[MANY], planes[MANY],
      *memory[2] = {take_bytes(&m, MANY + 4, sizeof(float)), NULL};
  MUST(k->allocate_host(device, (void **)&memory[1], (MANY + 4) * sizeof(float)));
  for (size_t r = 0; r < 2 * COUNT(ranges); r++) {
    const int64_t first = ranges[r / 2][0], count = ranges[r / 2][1];
    float *from = memory[r % 2] + r % 3;
    for (int64_t i = first; i < first + count; i++) {
      const uint32_t bits = (uint32_t)(i + 1) * 0x9e3779b1u ^ (uint32_t)r << 20;
      expected[i] = i % 97 == 0 ? (i % 2 ? INFINITY : NAN) : from_bits(i % 5 ? bits : bits & 0xffff8000u);
    }
    if (r % 2)
      memcpy(from, expected + first, (size_t)count * sizeof *from);
    else
      MUST(k->copy(device, from, expected + first, (size_t)count * sizeof *from));
    write_split(device, &w, first, from, count);
    MUST(k->narrow(device, memory[r % 2], &w, 0, MANY));
    MUST(k->synchronize(device));
    if (r % 2)
      memcpy(found, memory[1], sizeof found);
    else
      MUST(k->download(device, found, memory[0], sizeof found));
    MUST(k->download(device, planes, w.planes[0], MANY * device->plane));
    for (int64_t i = 0; i < MANY; i++) {
      assert_same_float(found[i], expected[i]);
      assert_same_float(bf16_at(m.device, planes, i), mn_to_upper_half(expected[i]));
    }
  }
  k->release_host(device, memory[1]);
  release_all(&m);
  mn_device_close(m.device);
}

/* Reals as floats, in two parts, more than one CTA's worth and a part of one. */
static void narrow_rounds_to_floats(void **state) {
  enum { MANY = 20003 };
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    double values[] = {0.1, 0x1.000001p0, 0x1.000003p0, -0x1p-150, 0x1.8p-149, 0x1.ffffffp127, -INFINITY};
    double *all = zeros(MANY);
    for (size_t i = 0; i < MANY; i++) all[i] = i % 3 ? values[i % COUNT(values)] : sin((double)i);
    const struct mn_operand from = {.rows = 1, .cols = MANY, .real = take_reals(&m, all, MANY)};
    float *out = take_bytes(&m, MANY, sizeof *out), *host = malloc(MANY * sizeof *host);
    assert_non_null(host);
    MUST(m.device->kernels->narrow(m.device, out, &from, 0, 7));
    MUST(m.device->kernels->narrow(m.device, out + 7, &from, 7, MANY - 7));
    MUST(m.device->kernels->download(m.device, host, out, MANY * sizeof *host));
    for (size_t i = 0; i < MANY; i++) assert_int_equal(to_bits(host[i]), to_bits((float)all[i]));
    free(all), free(host);
    release_all(&m);
    mn_device_close(m.device);
  }
}

/* Reductions */

static void reduce_adds_in_its_fixed_order(void **state) {
  static const int64_t counts[] = {1, 4095, 4096, 4097, 13000};
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    for (size_t c = 0; c < COUNT(counts); c++) {
      double *values = random_values(counts[c], c, 1), total = 0;
      for (int64_t i = 0; i < counts[c]; i += 7) values[i] *= 0x1p60; /* so that another order shows */
      void *parts = take_reals(&m, values, counts[c]);
      double *scratch = take_bytes(&m, mn_reduce_scratch(counts[c]), sizeof(double));
      double *out = take_bytes(&m, 1, sizeof(double)), result;
      MUST(m.device->kernels->reduce(m.device,
                                     &(struct mn_reduction){out, scratch, parts, NULL, counts[c], 0.3}));
      MUST(m.device->kernels->download(m.device, &result, out, sizeof result));
      for (int64_t span = 0; span < counts[c]; span += MN_REDUCE_SPAN) {
        double sum = 0;
        for (int64_t i = span; i < counts[c] && i < span + MN_REDUCE_SPAN; i++) sum += values[i];
        total += sum;
      }
      double size = 0;
      for (int64_t i = 0; i < counts[c]; i++) size += fabs(values[i]);
      if (m.device->type == MN_DEVICE_CPU) assert_true(result == 0.3 * total);
      assert_true(fabs(result - 0.3 * total) <= 1e-14 * size);
      free(values);
    }
    release_all(&m);
    mn_device_close(m.device);
  }
}

/* A sum that is not finite raises the flag to the device's mark; a mark that is there stays. */
static void a_sum_that_is_not_finite_raises_the_flag(void **state) {
  static const double bad[] = {NAN, INFINITY, -INFINITY};
  for (size_t w = 0; w < COUNT(widths); w++)
    for (size_t b = 0; b < COUNT(bad); b++) {
      struct memory m = {.device = open_or_skip(*state, widths[w])};
      const struct mn_kernels *k = m.device->kernels;
      struct mn_device *device = m.device;
      double values[5000] = {0};
      double *scratch = take_bytes(&m, mn_reduce_scratch(5000), sizeof(double)),
             *out = take_bytes(&m, 1, sizeof(double));
      void *good = take_reals(&m, values, 5000);
      values[4567] = bad[b];
      void *parts = take_reals(&m, values, 5000);
      int flag;
      device->mark = 7;
      MUST(k->reduce(device, &(struct mn_reduction){out, scratch, good, NULL, 5000, 1}));
      MUST(k->download(device, &flag, device->nonfinite, sizeof flag));
      assert_int_equal(flag, 0);
      for (int again = 0; again < 2; again++) {
        MUST(k->reduce(device, &(struct mn_reduction){out, scratch, parts, NULL, 5000, 1}));
        MUST(k->download(device, &flag, device->nonfinite, sizeof flag));
        assert_int_equal(flag, 7);
        device->mark = 9;
      }
      release_all(&m);
      mn_device_close(m.device);
    }
}

static double clip_scale(struct memory *m, const double *squares, int64_t count, double norm, int *flag) {
  double *on_device = take_bytes(m, count, sizeof(double)), *out = take_bytes(m, 2, sizeof(double)), found[2],
         sum = 0;
  const struct mn_kernels *k = m->device->kernels;
  struct mn_device *device = m->device;
  MUST(k->copy(device, on_device, squares, (size_t)count * sizeof(double)));
  MUST(k->clip(device, out, out + 1, on_device, count, norm));
  MUST(k->download(device, found, out, sizeof found));
  MUST(k->download(device, flag, device->nonfinite, sizeof *flag));
  for (int64_t i = 0; i < count; i++) sum += squares[i];
  if (sum < 0) sum = 0;
  if (isfinite(sum)) assert_true(fabs(found[1] - sqrt(sum)) <= 1e-13 * sqrt(sum));
  return found[0];
}

static void clip_follows_the_global_norm(void **state) {
  struct memory m = {.device = open_or_skip(*state, "fp64")};
  int64_t count = 9001;
  double *values = random_values(count, 4, 2), *others = random_values(count, 5, 2), sum = 0, size = 0,
         result;
  for (int64_t i = 0; i < count; i++) sum += values[i] * others[i], size += fabs(values[i] * others[i]);
  double *scratch = take_bytes(&m, mn_reduce_scratch(count), sizeof(double));
  double *out = take_bytes(&m, 1, sizeof(double));
  const struct mn_reduction dot = {
      out, scratch, take_reals(&m, values, count), take_reals(&m, others, count), count, 1};
  MUST(m.device->kernels->reduce(m.device, &dot));
  MUST(m.device->kernels->download(m.device, &result, out, sizeof result));
  assert_true(fabs(result - sum) <= 1e-13 * size);
  free(values), free(others);
  int flag;
  assert_true(fabs(clip_scale(&m, (double[]){9, 16}, 2, 1, &flag) - 1 / (5 + 1e-6)) <= 1e-15);
  assert_true(clip_scale(&m, (double[]){9, 16}, 2, 5.1, &flag) == 1);
  assert_true(clip_scale(&m, (double[]){0}, 1, 1, &flag) == 1);
  assert_true(clip_scale(&m, (double[]){1, -1.5}, 2, 1, &flag) == 1);
  assert_int_equal(flag, 0);
  clip_scale(&m, (double[]){1, NAN}, 2, 1, &flag);
  assert_int_equal(flag, 1);
  release_all(&m);
  mn_device_close(m.device);
}

/* Products */

/* d[rows, cols] = op(a)·op(b), summed in double. */
static double product_at(enum mn_form form, const double *a, const double *b, const int64_t size[3],
                         int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < size[2]; k++)
    sum += a[form == MN_TN ? k * size[0] + i : i * size[2] + k] *
           b[form == MN_NT ? j * size[2] + k : k * size[1] + j];
  return sum;
}

static void check_product(struct memory *m, enum mn_form form, const int64_t size[3]) {
  double *a = random_values(size[0] * size[2], 1, 1), *b = random_values(size[1] * size[2], 2, 1);
  double *before = random_values(size[0] * size[1], 3, 1), *expected = zeros(size[0] * size[1]);
  struct mn_operand left = {.real = take_reals(m, a, size[0] * size[2]), .rows = size[0], .cols = size[2]};
  struct mn_operand right = {.real = take_reals(m, b, size[1] * size[2]), .rows = size[2], .cols = size[1]};
  if (form == MN_TN) left.rows = size[2], left.cols = size[0];
  if (form == MN_NT) right.rows = size[1], right.cols = size[2];
  for (int add = 0; add < 2; add++) {
    for (int64_t i = 0; i < size[0] * size[1]; i++)
      expected[i] = (add ? before[i] : 0) + product_at(form, a, b, size, i / size[1], i % size[1]);
    struct mn_epilogue epilogue = {.kind = add ? MN_ADD : MN_STORE,
                                   .into = take_reals(m, add ? before : NULL, size[0] * size[1])};
    MUST(m->device->kernels->gemm(m->device, form, &left, &right, &epilogue));
    assert_reals(m, "product", epilogue.into, expected, size[0] * size[1], tolerance_of(m->device));
  }
  free(a);
  free(b);
  free(before);
  free(expected);
}

static void gemm_multiplies_in_every_form(void **state) {
  static const int64_t sizes[][3] = {{1, 1, 1},  {3, 5, 7},    {17, 1, 33},
                                     {1, 31, 2}, {64, 48, 40}, {65, 67, 129}};
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    for (size_t s = 0; s < COUNT(sizes); s++)
      for (int form = MN_NT; form <= MN_TN; form++) {
        check_product(&m, (enum mn_form)form, sizes[s]);
        release_all(&m);
      }
    mn_device_close(m.device);
  }
}

/* y = a + b with y over a, and a = b. */
static void add_works_in_place(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    enum { MANY = 1037 };
    double *a = random_values(MANY, 1, 1), *b = random_values(MANY, 2, 1);
    void *pa = take_reals(&m, a, MANY), *pb = take_reals(&m, b, MANY);
    struct mn_operand y = {.rows = 17, .cols = 61, .real = pa};
    for (int i = 0; i < MANY; i++) a[i] += b[i], b[i] *= 2;
    MUST(m.device->kernels->add(m.device, &y, pa, pb));
    assert_reals(&m, "a + b", pa, a, MANY, 1e-7);
    y.real = take_reals(&m, NULL, MANY);
    MUST(m.device->kernels->add(m.device, &y, pb, pb));
    assert_reals(&m, "b + b", y.real, b, MANY, 0);
    free(a);
    free(b);
    release_all(&m);
    mn_device_close(m.device);
  }
}

/* Losses */

static void mse_follows_its_formula(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    enum { ROWS = 5, COLS = 13, MANY = ROWS * COLS };
    double *y = random_values(MANY, 1, 2), *target = random_values(MANY, 2, 2), parts[ROWS] = {0}, dy[MANY];
    for (int i = 0; i < MANY; i++) {
      parts[i / COLS] += (y[i] - target[i]) * (y[i] - target[i]);
      dy[i] = 0.25 * 2 * (y[i] - target[i]) / MANY;
    }
    void *py = take_reals(&m, y, MANY), *pt = take_reals(&m, target, MANY);
    void *pp = take_reals(&m, NULL, ROWS), *pd = take_reals(&m, NULL, MANY);
    const struct mn_kernels *k = m.device->kernels;
    MUST(k->mse(m.device, pp, pd, py, pt, ROWS, COLS, 0.25));
    assert_reals(&m, "parts", pp, parts, ROWS, 1e-6);
    assert_reals(&m, "dy", pd, dy, MANY, 1e-6);
    free(y);
    free(target);
    release_all(&m);
    mn_device_close(m.device);
  }
}

/* exp would overflow at each of these, were it not taken from the row's maximum. */
static void cross_entropy_bears_huge_logits(void **state) {
  enum { ROWS = 5, COLS = 3, MANY = ROWS * COLS };
  static const double y[MANY] = {1e4, 0, -1e4, 1e4, 0, -1e4, 0, 0, 0, -5e4, -5e4, -6e4, 2, 2, 1};
  static const int32_t labels[ROWS] = {0, 1, 2, 1, 1};
  const double e = exp(-1), tie = log(2 + e);
  const double parts[ROWS] = {0, 1e4, log(3), log(2), tie};
  const double correct[ROWS] = {1, 0, 0, 0, 0}; /* of equal ones the first counts as the largest */
  const double q = 1 / (2 + e);
  const double dy[MANY] = {0,       0,       0,        1, -1, 0,     1.0 / 3, 1.0 / 3,
                           -2. / 3, 1.0 / 2, -1.0 / 2, 0, q,  q - 1, q * e};
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct memory m = {.device = open_or_skip(*state, widths[w])};
    const struct mn_kernels *k = m.device->kernels;
    struct mn_device *device = m.device;
    double expected[MANY];
    void *py = take_reals(&m, y, MANY), *pp = take_reals(&m, NULL, ROWS), *pc = take_reals(&m, NULL, ROWS);
    void *pd = take_reals(&m, NULL, MANY);
    int32_t *pl = take_bytes(&m, ROWS, sizeof *labels);
    MUST(k->copy(device, pl, labels, sizeof labels));
    MUST(k->cross_entropy(device, pp, pc, pd, py, pl, ROWS, COLS, 0.5));
    assert_reals(&m, "parts", pp, parts, ROWS, 1e-6);
    double *small = read_reals(&m, pp, ROWS); /* beside 1e4 the others would hide */
    for (int n = 0; n < ROWS; n++) assert_true(fabs(small[n] - parts[n]) <= 1e-6 * (1 + parts[n]));
    free(small);
    assert_reals(&m, "correct", pc, correct, ROWS, 0);
    for (int i = 0; i < MANY; i++) expected[i] = 0.5 / ROWS * dy[i];
    assert_reals(&m, "dy", pd, expected, MANY, 1e-6);
    release_all(&m);
    mn_device_close(m.device);
  }
}

/* A label without a column is not looked up; the loss is not finite then, and the flag says so. */
static void cross_entropy_flags_labels_out_of_range(void **state) {
  static const int32_t labels[][2] = {{0, 3}, {-1, 2}, {INT32_MAX, 0}, {INT32_MIN, 0}, {0, 2}};
  for (size_t w = 0; w < COUNT(widths); w++)
    for (size_t cols = 3; cols <= 2000; cols += 1997)
      for (size_t i = 0; i < COUNT(labels); i++) {
        struct memory m = {.device = open_or_skip(*state, widths[w])};
        const struct mn_kernels *k = m.device->kernels;
        struct mn_device *device = m.device;
        int64_t count = 2 * (int64_t)cols;
        double loss;
        int raised, bad = i < 4 && (cols == 3 || i > 0);
        void *py = take_reals(&m, NULL, count), *pp = take_reals(&m, NULL, 2), *pc = take_reals(&m, NULL, 2);
        int32_t *pl = take_bytes(&m, 2, sizeof **labels);
        double *out = take_bytes(&m, 2, sizeof loss);
        MUST(k->zero(device, py, (size_t)count * device->real));
        MUST(k->copy(device, pl, labels[i], sizeof labels[i]));
        MUST(k->cross_entropy(device, pp, pc, NULL, py, pl, 2, (int64_t)cols, 1));
        MUST(k->reduce(device, &(struct mn_reduction){out, out + 1, pp, NULL, 2, 0.5}));
        MUST(k->download(device, &loss, out, sizeof loss));
        MUST(k->download(device, &raised, device->nonfinite, sizeof raised));
        assert_int_equal(raised != 0, bad);
        assert_int_equal(!isfinite(loss), bad);
        release_all(&m);
        mn_device_close(m.device);
      }
}

static void memory_moves_as_it_is(void **state) {
  struct memory m = {.device = open_or_skip(*state, "fp32")};
  const struct mn_kernels *k = m.device->kernels;
  unsigned char from[1000], to[1000];
  for (int i = 0; i < 1000; i++) from[i] = (unsigned char)(i * 7);
  void *a = take_bytes(&m, 1000, 1), *b = take_bytes(&m, 1000, 1), *pinned;
  MUST(k->allocate_host(m.device, &pinned, sizeof from));
  memcpy(pinned, from, sizeof from);
  MUST(k->copy(m.device, a, pinned, sizeof from));
  MUST(k->zero(m.device, b, sizeof from));
  MUST(k->copy(m.device, b, a, 999));
  MUST(k->download(m.device, to, b, sizeof to));
  assert_memory_equal(to, from, 999);
  assert_int_equal(to[999], 0);
  assert_int_equal((uintptr_t)a % 256, 0);
  k->release_host(m.device, pinned);
  double ms = -1;
  MUST(k->stamp(m.device, 0));
  MUST(k->stamp(m.device, 1));
  MUST(k->elapsed(m.device, &ms));
  assert_true(ms >= 0 && ms < 10000);
  release_all(&m);
  mn_device_close(m.device);
}

#define BOTH(test) ON("cpu", test), ON("cuda", test)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_gives_the_known_answers),
      cmocka_unit_test(bf16_rounds_to_nearest_even),
      BOTH(uniform_is_exact),
      BOTH(round_fills_the_bf16_form),
      cmocka_unit_test(halves_give_every_float_back),
      BOTH(split_weights_are_written_and_read),
      BOTH(narrow_rounds_to_floats),
      BOTH(reduce_adds_in_its_fixed_order),
      BOTH(a_sum_that_is_not_finite_raises_the_flag),
      BOTH(clip_follows_the_global_norm),
      BOTH(gemm_multiplies_in_every_form),
      BOTH(add_works_in_place),
      BOTH(mse_follows_its_formula),
      BOTH(cross_entropy_bears_huge_logits),
      BOTH(cross_entropy_flags_labels_out_of_range),
      BOTH(memory_moves_as_it_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
