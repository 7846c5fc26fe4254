/* The kernels one by one, through the table that the engine uses, on every device there is: against plain
 * double arithmetic written out here, and against what the headers promise to the bit. */
#include "tests/products.h"

#include "kernels/text.h"

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

/* bound·t with t exact and one rounding, from any place in the device, and nothing past the end. */
static void check_uniform(struct memory *m, const struct draw *d) {
  static const uint64_t firsts[] = {0, 1, 3, 4, 6, ((uint64_t)1 << 34) + 5};
  const double bounds[] = {1, 0.3, 1 / sqrt(784)}, bound = bounds[d->kind % 3];
  const uint64_t seed = 0x123456789abcdef, first = firsts[d->rule % 6]; /* more than 32 bits */
  const int64_t count = d->rows;
  void *out = take_reals(m, NULL, count + 1);
  MUST(m->device->kernels->uniform(m->device, out, count, seed, 77, first, bound));
  const double *values = kept_reals(m, out, count + 1);
  for (int64_t i = 0; i < count; i++) {
    const double t = (mn_random_word(seed, 77, first + (uint64_t)i) >> 8) * 0x1p-23 - 1;
    const float narrow = (float)bound * (float)t;
    if (values[i] != (m->device->real == 8 ? bound * t : (double)narrow) || !(t >= -1 && t < 1))
      WRONG("number %ld is %a", (long)i, values[i]);
  }
  if (!isnan(values[count])) WRONG("the number past the end is written");
}

static void uniform_is_exact(struct memory *m) {
  static const int64_t counts[] = {1, 2, 4, 5, 8, 516, 1031};
  for (int64_t i = 0; i < 6 * (int64_t)COUNT(counts); i++) {
    const struct draw d = {counts[i / 6], 1, 1, .kind = i, .rule = i};
    try_case(m, check_uniform, &d, "a named case");
  }
}

/* Split weights, and floats */

/* Writes any range as engine/forms.c does: what is tested is round. test_masters tests forms.c. */
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
static void split_weights_are_written_and_read(struct memory *m) {
  enum { MANY = 5003 };
  static const int64_t ranges[][2] = {{0, MANY}, {0, 1},        {8, 4096},
                                      {3, 2000}, {MANY - 1, 1}, {16, MANY - 16}};
  const struct mn_kernels *k = m->device->kernels;
  struct mn_device *device = m->device;
  struct mn_operand w = {.rows = 1, .cols = MANY, .real = take_reals(m, NULL, MANY)};
  float expected[MANY], found[MANY], *memory[2] = {take_bytes(m, MANY + 4, sizeof(float)), NULL};
  MUST(k->allocate_host(device, (void **)&memory[1], (MANY + 4) * sizeof(float)));
  take_planes(m, &w, 1);
  split_weight(m, &w);
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
    for (int64_t i = 0; i < MANY; i++) assert_true(same_float(found[i], expected[i]));
    assert_planes(device, "a split weight", &w);
  }
  k->release_host(device, memory[1]);
}

/* At every alignment, more than one CTA's worth and a part of one, and nothing past the end. */
static void narrow_rounds_to_floats(struct memory *m) {
  enum { MANY = 20003, AROUND = 8 };
  double *all = kept_zeros(m, MANY);
  for (int64_t i = 0; i < MANY; i++) all[i] = i % 3 ? special(i / 3) : sin((double)i);
  const struct mn_operand from = {.rows = 1, .cols = MANY, .real = take_reals(m, all, MANY)};
  for (int64_t place = 0; place < 40; place++) { /* 4 of `from` by 5 of `out`, a few and many */
    const int64_t at = place % 4, to = place / 4 % 5, count = place < 20 ? MANY - at : 61 - at;
    float *out = poisoned(m, (MANY + AROUND) * sizeof *out);
    MUST(m->device->kernels->narrow(m->device, out + to, &from, at, count));
    const float *host = kept(m, get_bytes(m->device, out, (MANY + AROUND) * sizeof *out));
    for (int64_t i = 0; i < MANY + AROUND; i++) {
      const int inside = i >= to && i < to + count;
      assert_true(same_float(host[i], inside ? (float)all[at + i - to] : NAN));
    }
  }
}

/* Reductions */

/* Each span of values, or of products, is added up by itself. The sums go through the same memory one after the
 * other, as a stream's do: each leaves nothing behind for the next, and blocks that are done in another order
 * give the same bytes. */
static void reduce_adds_in_its_fixed_order(struct memory *m) {
  static const int64_t counts[] = {3000001, 4097, 1, 255, 300000, 4095, 4096, 13000, 50000};
  enum { SUMS = 3 * COUNT(counts) }; /* each alone, and times others or itself */
  const struct mn_kernels *k = m->device->kernels;
  double *values[2] = {kept_random(m, 1, counts[0], 1), kept_random(m, 2, counts[0], 2)}, first[SUMS], again;
  for (int64_t i = 0; i < counts[0]; i += 7) values[0][i] *= 0x1p60; /* so that another order shows */
  void *parts[2] = {take_reals(m, values[0], counts[0]), take_reals(m, values[1], counts[0])};
  const size_t bytes = 8 * (size_t)mn_reduce_scratch(counts[0]);
  struct mn_reduction sum = {.out = poisoned(m, 8), .scratch = poisoned(m, bytes), .parts = parts[0]};
  for (int i = 0; i < (is_cuda(m) && !quick() ? 20 : 2) * SUMS; i++) {
    const double *others = i % 3 ? values[i % 3 % 2] : NULL;
    double total = 0, size = 0;
    sum.count = counts[i % SUMS / 3], sum.factor = others ? 1 : 0.3,
    sum.others = others ? parts[i % 3 % 2] : NULL;
    if (i >= SUMS) MUST(k->zero(m->device, sum.scratch, bytes)); /* no sum from before */
    MUST(k->reduce(m->device, &sum));
    MUST(k->download(m->device, &again, sum.out, sizeof again));
    if (i >= SUMS) {
      assert_true(again == first[i % SUMS]);
      continue;
    }
    for (int64_t span = 0; span < sum.count; span += MN_REDUCE_SPAN) {
      double part = 0;
      for (int64_t n = span; n < sum.count && n < span + MN_REDUCE_SPAN; n++) {
        const double term = values[0][n] * (others ? others[n] : 1);
        part += term, size += fabs(term);
      }
      total += part;
    }
    if (!is_cuda(m) && !others) assert_true(again == sum.factor * total);
    assert_true(fabs(again - sum.factor * total) <= (others ? 1e-13 : 1e-14) * size);
    first[i] = again;
  }
}

/* A sum that is not finite raises the flag to the device's mark; a mark that is there stays. */
static void a_sum_that_is_not_finite_raises_the_flag(struct memory *m) {
  static const double bad[] = {NAN, INFINITY, -INFINITY};
  enum { MANY = 5000 };
  struct mn_device *device = m->device;
  double values[MANY] = {0};
  struct mn_reduction sum = {.count = MANY, .factor = 1};
  sum.out = take_bytes(m, 1, 8), sum.scratch = take_bytes(m, mn_reduce_scratch(MANY), 8);
  const void *good = take_reals(m, values, MANY);
  for (size_t b = 0; b < COUNT(bad); b++) {
    values[4567] = bad[b];
    const void *parts[] = {good, take_reals(m, values, MANY)};
    for (int i = 0; i < 3; i++) {
      int flag;
      device->mark = i < 2 ? 7 : 9;
      sum.parts = parts[i > 0];
      MUST(device->kernels->reduce(device, &sum));
      MUST(device->kernels->download(device, &flag, device->nonfinite, sizeof flag));
      assert_int_equal(flag, i ? 7 : 0);
    }
    assert_int_equal(flag_of(device), 7);
  }
}

static void clip_follows_the_global_norm(struct memory *m) {
  static const struct {
    double squares[3], norm, scale, sum;
    int flag;
  } cases[] = {{{9, 16}, 1, 1 / (5 + 1e-6), 25, 0},
               {{9, 16}, 2, 2 / (5 + 1e-6), 25, 0},
               {{9, 16}, 5.1, 1, 25, 0},
               {{0}, 1, 1, 0, 0},
               {{1e-4}, 2, 1, 1e-4, 0},
               {{1, -1.5}, 1, 1, 0, 0},
               {{1, NAN}, 1, 1, NAN, 1},
               {{INFINITY, 1, 1}, 2, 0, NAN, 1}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    double *out = take_bytes(m, 2, sizeof(double)), found[2];
    const double *given = put_bytes(m, cases[i].squares, sizeof cases[i].squares), norm = sqrt(cases[i].sum);
    MUST(m->device->kernels->clip(m->device, out, out + 1, given, 3, cases[i].norm));
    MUST(m->device->kernels->download(m->device, found, out, sizeof found));
    assert_int_equal(flag_of(m->device), cases[i].flag);
    if (!cases[i].flag) assert_true(fabs(found[1] - norm) <= 1e-13 * norm);
    if (!(fabs(found[0] - cases[i].scale) <= 1e-15)) fail_msg("case %zu: %g", i, found[0]);
  }
}

/* y = a + b beside them, over a, and of a = b; with planes where they are not scaled. */
static void check_add(struct memory *m, const struct draw *d) {
  const int64_t cols = columns_of(d), count = d->rows * cols;
  double *b = kept_random(m, 2, count, 1), *a = d->way == 2 ? b : kept_random(m, 1, count, 1);
  void *pa = take_reals(m, a, count), *pb = d->way == 2 ? pa : take_reals(m, b, count);
  struct mn_operand y = {
      .rows = d->rows, .cols = cols, .real = d->way == 1 ? pa : take_reals(m, NULL, count)};
  if (!m->device->scaled) take_planes(m, &y, 1);
  MUST(m->device->kernels->add(m->device, &y, pa, pb));
  const double *sum = kept_reals(m, y.real, count);
  for (int64_t i = 0; i < count; i++)
    if (sum[i] != (m->device->real == 8 ? a[i] + b[i] : (float)(a[i] + b[i]))) WRONG("sum %ld", (long)i);
  assert_planes(m->device, "a sum", &y);
}

/* Losses */

/* What rows are multiplied by: of every other case 1, for which NULL is given. */
static double *drawn_weights(struct memory *m, const struct draw *d) {
  double *weights = kept_random(m, 3, d->rows, 1);
  for (int64_t n = 0; n < d->rows; n++) weights[n] = d->seed % 2 == 0 ? 1 : n % 4 ? fabs(weights[n]) : 0;
  return weights;
}

/* Rows that a warp adds up, and those that a CTA does. */
static void check_mse(struct memory *m, const struct draw *d) {
  const int64_t cols = columns_of(d), count = d->rows * cols;
  double *y = kept_random(m, 1, count, 2), *target = kept_random(m, 2, count, 2);
  double *parts = kept_zeros(m, d->rows), *dy = kept_zeros(m, count), *weights = drawn_weights(m, d);
  for (int64_t i = 0; i < count; i++) {
    parts[i / cols] += weights[i / cols] * (y[i] - target[i]) * (y[i] - target[i]);
    dy[i] = weights[i / cols] * 0.25 * 2 * (y[i] - target[i]) / (double)count;
  }
  void *py = take_reals(m, y, count), *pt = take_reals(m, target, count);
  void *pp = take_reals(m, NULL, d->rows), *pd = take_reals(m, NULL, count);
  void *pw = d->seed % 2 ? take_reals(m, weights, d->rows) : NULL;
  MUST(m->device->kernels->mse(m->device, pp, pd, py, pt, pw, d->rows, cols, 0.25));
  const double tolerance = tolerance_of(m->device) / (cols < 16 ? 10 : 1);
  assert_reals(m, "parts", pp, parts, d->rows, tolerance);
  assert_reals(m, "dy", pd, dy, count, tolerance);
}

/* What plain arithmetic says of a row; correct if the label's logit is the first of the largest. Some rows have their
 * largest value twice: the first one counts. */
static void check_cross_entropy(struct memory *m, const struct draw *d) {
  const double tolerance = tolerance_of(m->device);
  const int64_t rows = d->rows, cols = columns_of(d);
  double *y = kept_random(m, 44, rows * cols, 50), *parts = kept_zeros(m, rows),
         *correct = kept_zeros(m, rows), *dy = kept_zeros(m, rows * cols), *weights = drawn_weights(m, d);
  int32_t *labels = kept(m, calloc((size_t)rows, sizeof *labels));
  for (int64_t n = 0; n < rows; n++) {
    double *row = y + n * cols, sum = 0;
    int64_t first = 0, label = labels[n] = (int32_t)(n * 7 % cols);
    if (n % 3 == 0) row[label] = row[cols - 1] = 60;
    for (int64_t k = 1; k < cols; k++)
      if (row[k] > row[first]) first = k;
    for (int64_t k = 0; k < cols; k++) sum += exp(row[k] - row[first]);
    for (int64_t k = 0; k < cols; k++)
      dy[n * cols + k] = weights[n] * 0.5 / (double)rows * (exp(row[k] - row[first]) / sum - (k == label));
    parts[n] = weights[n] * (log(sum) + row[first] - row[label]);
    correct[n] = first == label ? weights[n] : 0;
  }
  void *pp = take_reals(m, NULL, rows), *pc = take_reals(m, NULL, rows),
       *pd = take_reals(m, NULL, rows * cols), *pw = d->seed % 2 ? take_reals(m, weights, rows) : NULL;
  MUST(m->device->kernels->cross_entropy(m->device, pp, pc, pd, take_reals(m, y, rows * cols),
                                         put_bytes(m, labels, (size_t)rows * sizeof *labels), pw, rows, cols,
                                         0.5));
  assert_reals(m, "parts", pp, parts, rows, tolerance);
  assert_reals(m, "correct", pc, correct, rows, d->seed % 2 ? tolerance : 0);
  assert_reals(m, "dy", pd, dy, rows * cols, tolerance);
}

static void sums_and_losses_follow_their_formulas(struct memory *m) {
  static check_function *const checks[] = {check_add, check_add, check_add, check_mse, check_cross_entropy};
  static const int64_t sizes[][3] = {{1, 1, 1},   {1, 7, 1},    {5, 13, 1},
                                     {33, 10, 1}, {5, 1500, 1}, {64, 100, 1}};
  for (size_t i = 0; i < (m->device->planes ? 3 : COUNT(checks)); i++) { /* losses read reals alone */
    for (size_t k = 0; k < COUNT(sizes); k++) {
      struct draw d = sized(sizes[k]);
      d.way = (int64_t)i;
      try_case(m, checks[i], &d, "a named case");
    }
    try_drawn(m, checks[i], 40);
  }
}

/* exp would overflow at each of these, were it not taken from the row's maximum. */
static void cross_entropy_bears_huge_logits(struct memory *m) {
  enum { ROWS = 5, COLS = 3, MANY = ROWS * COLS };
  static const double y[MANY] = {1e4, 0, -1e4, 1e4, 0, -1e4, 0, 0, 0, -5e4, -5e4, -6e4, 2, 2, 1};
  static const int32_t labels[ROWS] = {0, 1, 2, 1, 1};
  const double e = exp(-1), tie = log(2 + e);
  const double parts[ROWS] = {0, 1e4, log(3), log(2), tie};
  const double correct[ROWS] = {1, 0, 0, 0, 0}; /* of equal ones the first counts as the largest */
  const double q = 1 / (2 + e);
  const double dy[MANY] = {0,       0,       0,        1, -1, 0,     1.0 / 3, 1.0 / 3,
                           -2. / 3, 1.0 / 2, -1.0 / 2, 0, q,  q - 1, q * e};
  const struct mn_kernels *k = m->device->kernels;
  double expected[MANY];
  void *py = take_reals(m, y, MANY), *pp = take_reals(m, NULL, ROWS), *pc = take_reals(m, NULL, ROWS);
  void *pd = take_reals(m, NULL, MANY);
  const int32_t *pl = put_bytes(m, labels, sizeof labels);
  MUST(k->cross_entropy(m->device, pp, pc, pd, py, pl, NULL, ROWS, COLS, 0.5));
  assert_reals(m, "parts", pp, parts, ROWS, 1e-6);
  const double *small = kept_reals(m, pp, ROWS); /* beside 1e4 the others would hide */
  for (int n = 0; n < ROWS; n++) assert_true(fabs(small[n] - parts[n]) <= 1e-6 * (1 + parts[n]));
  assert_reals(m, "correct", pc, correct, ROWS, 0);
  for (int i = 0; i < MANY; i++) expected[i] = 0.5 / ROWS * dy[i];
  assert_reals(m, "dy", pd, expected, MANY, 1e-6);
}

/* A label without a column is not looked up; the loss is not finite then, and the flag says so. */
static void cross_entropy_flags_labels_out_of_range(struct memory *m) {
  static const int32_t labels[][2] = {{0, 3}, {-1, 2}, {INT32_MAX, 0}, {INT32_MIN, 0}, {0, 2}};
  const struct mn_kernels *k = m->device->kernels;
  for (int64_t cols = 3; cols <= 2000; cols += 1997)
    for (size_t i = 0; i < COUNT(labels); i++) {
      double loss, *out = take_bytes(m, 2, sizeof *out);
      const int bad = i < 4 && (cols == 3 || i > 0);
      void *y = take_reals(m, kept_zeros(m, 2 * cols), 2 * cols), *parts = take_reals(m, NULL, 2);
      const int32_t *given = put_bytes(m, labels[i], sizeof labels[i]);
      MUST(k->cross_entropy(m->device, parts, take_reals(m, NULL, 2), NULL, y, given, NULL, 2, cols, 1));
      MUST(k->reduce(m->device, &(struct mn_reduction){out, out + 1, parts, NULL, 2, 0.5}));
      MUST(k->download(m->device, &loss, out, sizeof loss));
      assert_int_equal(!isfinite(loss), bad);
      assert_int_equal(flag_of(m->device) != 0, bad);
    }
}

static void memory_moves_as_it_is(struct memory *m) {
  const struct mn_kernels *k = m->device->kernels;
  unsigned char from[1000], to[1000];
  for (int i = 0; i < 1000; i++) from[i] = (unsigned char)(i * 7);
  void *a = take_bytes(m, 1000, 1), *b = poisoned(m, 1000), *pinned, *none;
  MUST(k->allocate_host(m->device, &pinned, sizeof from));
  memcpy(pinned, from, sizeof from);
  double ms = NAN;
  MUST(k->stamp(m->device, 0));
  MUST(k->copy(m->device, a, pinned, sizeof from));
  MUST(k->zero(m->device, b, sizeof from));
  MUST(k->copy(m->device, b, a, 999));
  MUST(k->stamp(m->device, 1));
  MUST(k->download(m->device, to, b, sizeof to));
  assert_memory_equal(to, from, 999);
  assert_int_equal(to[999], 0);
  assert_int_equal((uintptr_t)a % 256, 0);
  k->release_host(m->device, pinned);
  MUST(k->elapsed(m->device, &ms));
  assert_true(ms >= 0 && ms < 10000);
  if (is_cuda(m)) {
    assert_int_equal(k->allocate(m->device, &none, (size_t)1 << 50), MN_NO_MEMORY);
    assert_null(none);
    MUST(k->synchronize(m->device)); /* and the stream still works */
  }
}

/* Devices */

/* The libraries' versions, "major.minor…"; none on the CPU. */
static void a_device_has_versions(struct memory *m) {
  const struct mn_device *device = m->device;
  const char *const versions[] = {device->versions.cuda, device->versions.cublaslt, device->versions.driver};
  for (size_t i = 0; i < COUNT(versions); i++) {
    int major, minor, patch, end = 0;
    const int parts = sscanf(versions[i], "%d.%d%n.%d%n", &major, &minor, &end, &patch, &end);
    if (is_cuda(m))
      assert_true(parts == (i == 1 ? 3 : 2) && !versions[i][end] && (major >= 11 || i == 2));
    else
      assert_string_equal(versions[i], "");
  }
  print_message("on %s, CUDA %s, cuBLASLt %s, driver for %s\n", device->name, versions[0], versions[1],
                versions[2]);
}

/* A name and back for every precision; a word that is none is refused with the list. */
static void precisions_have_words(void **state) {
  static const char *const names[] = {[MN_FP64] = "fp64", [MN_FP32] = "fp32", [MN_TF32] = "tf32",
                                      [MN_BF16] = "bf16", [MN_FP16] = "fp16", [MN_FP16X3] = "fp16x3"};
  int found;
  for (int p = 0; p < MN_PRECISIONS; p++) {
    assert_string_equal(mn_precision_name((enum mn_precision)p), names[p]);
    MUST(mn_word_find(&found, "precision", mn_precision_words, names[p]));
    assert_int_equal(found, p);
  }
  assert_int_equal(mn_word_find(&found, "precision", mn_precision_words, "fp8"), MN_USAGE);
  assert_non_null(strstr(mn_message(), "'fp8'"));
  assert_non_null(strstr(mn_message(), "fp64, fp32, tf32, bf16, fp16 and fp16x3 are"));
}

/* The first and the last of what Unicode has, and their neighbours, which it has not or which steer a terminal. */
static void characters_end_where_unicode_does(void **state) {
  static const char *const shown[] = {" ",      "~",      "\u00a0", "\u0100", "\u07ff",     "\u0800",
                                      "\ud7ff", "\ue000", "\ufffd", "\uffbe", "\U00010000", "\U0010ffff"};
  static const char escaped[] =
      "\x1f\0\x7f\0\xc1\xbf\0\xc2\x80\0\xc2\x9f\0\xe0\x9f\xbf\0\xed\xa0\x80\0\xef\xbf\xbe\0\xef\xbf\xbf\0"
      "\xf0\x8f\xbf\xbf\0\xf4\x90\x80\x80\0\xf5\x80\x80\x80\0";
  for (size_t i = 0; i < COUNT(shown); i++) assert_int_equal(mn_escape_character(shown[i]), strlen(shown[i]));
  for (const char *at = escaped; *at; at += strlen(at) + 1) assert_int_equal(mn_escape_character(at), 0);
}

static void a_newline_stays_at_the_end_alone(void **state) {
  static const char *const texts[][2] = {
      {"", ""}, {"\n", "\n"}, {"ab", "ab"}, {"ab\n", "ab\n"}, {"a\nb\n\n", "a\\x0Ab\\x0A\n"}};
  for (size_t i = 0; i < COUNT(texts); i++) {
    char printed[32] = "";
    FILE *out = fmemopen(printed, sizeof printed, "w");
    assert_non_null(out);
    mn_escape_print(out, "%s", texts[i][0]);
    fclose(out);
    assert_string_equal(printed, texts[i][1]);
  }
}

/* Without a GPU too: a device that cannot be is refused in words. */
static void a_device_that_cannot_be_is_refused(void **state) {
  struct mn_device *device = NULL;
  assert_int_equal(mn_device_open(&device, "cuda:1000", "fp32", 0), MN_NO_DEVICE);
  assert_null(device);
  assert_true(strlen(mn_message()) > 0 && !strchr(mn_message(), '\n'));
  assert_non_null(strstr(mn_message(), "the device cpu would do"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_gives_the_known_answers),
      IN_EACH(WIDTHS, uniform_is_exact),
      IN_EACH(BF16, split_weights_are_written_and_read),
      IN_EACH(WIDTHS | BF16, narrow_rounds_to_floats),
      IN_EACH(WIDTHS, reduce_adds_in_its_fixed_order),
      IN_EACH(WIDTHS, a_sum_that_is_not_finite_raises_the_flag),
      IN_EACH(WIDTHS, clip_follows_the_global_norm),
      IN_EACH(EVERY, sums_and_losses_follow_their_formulas),
      IN_EACH(WIDTHS, cross_entropy_bears_huge_logits),
      IN_EACH(WIDTHS, cross_entropy_flags_labels_out_of_range),
      IN_EACH(FP32, memory_moves_as_it_is),
      IN_EACH(FP32, a_device_has_versions),
      cmocka_unit_test(precisions_have_words),
      cmocka_unit_test(characters_end_where_unicode_does),
      cmocka_unit_test(a_newline_stays_at_the_end_alone),
      cmocka_unit_test(a_device_that_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
