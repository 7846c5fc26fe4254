/* Products and updates, through the table that the engine uses, in every precision on every device there is:
 * against plain double arithmetic on the numbers that the GEMM reads. Outputs are poisoned with NaN first. */
#include "tests/products.h"

/* ---- products ---- */

static const struct sizes products[] = {
    {1, 1, 1},      {1, 5, 3},        {3, 1, 7},       {16, 16, 16},    {33, 17, 9},  {64, 64, 1},
    {129, 257, 65}, {127, 130, 300},  {256, 512, 128}, {31, 1000, 513}, {8, 8, 8},    {131, 264, 72},
    {136, 264, 77}, {3, 5, 7},        {17, 1, 33},     {1, 31, 2},      {64, 48, 40}, {65, 67, 129},
    {24, 16, 1100}, {264, 136, 1100}, {136, 72, 1544}, {8, 8, 8200},
};

/* Stores the product, or adds it. With `shift` operands and result start in the middle of 16 bytes. */
static void check_product(struct memory *m, enum mn_form form, struct sizes z, enum mn_epilogue_kind kind,
                          int shift) {
  struct mn_device *device = m->device;
  const int64_t count = z.rows * z.cols;
  struct mn_operand x, y;
  char what[200];
  snprintf(what, sizeof what, "%s form %d kind %d, %ld by %ld by %ld", mn_precision_name(device->precision),
           (int)form, (int)kind, (long)z.rows, (long)z.cols, (long)z.depth);
  operands(m, form, (struct sizes){z.rows + shift, z.cols, z.depth}, &x, &y);
  if (shift) {
    x.rows = z.rows; /* the same memory, one element later */
    x.real = (char *)x.real + device->real;
    if (x.planes[0]) x.planes[0] = (char *)x.planes[0] + device->plane;
  }
  void *into = kind == MN_ADD ? put_random(m, 13, count + shift, 1) : take_reals(m, NULL, count + shift);
  struct mn_epilogue e = {.kind = kind, .into = (char *)into + (size_t)shift * device->real};
  double *before = read_reals(m, e.into, count), *expected = product_of(m, form, &x, &y);
  for (int64_t i = 0; kind == MN_ADD && i < count; i++) expected[i] += before[i];
  MUST(device->kernels->gemm(device, form, &x, &y, &e));
  assert_reals(m, what, e.into, expected, count, product_tolerance(device));
  free(before), free(expected);
  release_all(m);
}

static void gemm_multiplies_in_every_form(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct memory m = {.device = open_or_skip(*state, mn_precision_name((enum mn_precision)p))};
    if (!m.device) continue;
    for (int form = MN_NT; form <= MN_TN; form++) {
      for (size_t i = 0; i < COUNT(products); i++) {
        check_product(&m, (enum mn_form)form, products[i], MN_STORE, 0);
        if (!blind(m.device->precision)) check_product(&m, (enum mn_form)form, products[i], MN_ADD, 0);
      }
      /* Large tiles of the GEMM of our own. */
      const struct sizes large = {2040, 2040, 40};
      if (on_cuda(*state) && m.device->planes && !quick())
        check_product(&m, (enum mn_form)form, large, form == MN_NN ? MN_ADD : MN_STORE, 0);
    }
    close_memory(&m);
  }
}

static void gemm_takes_operands_that_are_not_aligned(void **state) {
  static const char *const precisions[] = {"fp32", "bf16", "fp16"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct memory m = {.device = open_or_skip(*state, precisions[p])};
    if (!m.device) continue;
    check_product(&m, MN_NT, (struct sizes){48, 80, 64}, MN_STORE, 1);
    close_memory(&m);
  }
}

enum { ROWS = 50, GROUPS = 6, CHANNELS = 96, MANY = ROWS * CHANNELS };

/* y of a block behind a product, with z in *z: in the product's own epilogue or, `apart`, in one behind it. */
static struct mn_operand block_behind(struct memory *m, const struct mn_operand *x,
                                      const struct mn_operand *w, int apart, void **z) {
  const struct mn_kernels *k = m->device->kernels;
  struct mn_operand y = {.rows = ROWS, .cols = CHANNELS, .real = take_reals(m, NULL, MANY)};
  const struct mn_block block = {.ops = MN_OP_ALL,
                                 .rows = ROWS,
                                 .channels = CHANNELS,
                                 .groups = GROUPS,
                                 .eps = 1e-5,
                                 .slope = 0.01,
                                 .bias = put_random(m, 3, CHANNELS, 1),
                                 .gamma = put_random(m, 4, CHANNELS, 2),
                                 .beta = put_random(m, 5, CHANNELS, 1),
                                 .z = *z = take_reals(m, NULL, MANY),
                                 .mean = take_reals(m, NULL, ROWS * GROUPS),
                                 .rstd = take_reals(m, NULL, ROWS * GROUPS),
                                 .y = &y};
  struct mn_epilogue e = {
      .kind = apart ? MN_STORE : MN_BLOCK, .into = take_reals(m, NULL, MANY), .block = &block};
  take_planes(m, &y, 1);
  if (y.scale) MUST(k->rescale(m->device, NULL, y.scale, &block));
  MUST(k->gemm(m->device, MN_NT, x, w, &e));
  e.kind = MN_BLOCK;
  if (apart) MUST(k->epilogue(m->device, e.into, ROWS, CHANNELS, &e));
  assert_planes(m->device, "y of a product", &y);
  return y;
}

/* Of a depth that the GEMM of our own takes, its own way and the library's, and of another. */
static void products_end_in_blocks(void **state) {
  static const char *const precisions[] = {"fp64", "fp32", "bf16", "fp16", "fp16x3"};
  for (size_t i = 0; i < 3 * COUNT(precisions); i++) {
    struct memory m = {.device = open_or_skip(*state, precisions[i / 3])};
    if (!m.device) continue;
    const double tolerance = m.device->precision == MN_FP64 ? 1e-12 : 1e-4;
    struct mn_operand x, w;
    void *z[2];
    operands(&m, MN_NT, (struct sizes){ROWS, CHANNELS, i % 3 ? 72 : 70}, &x, &w);
    m.device->force_cublas = i % 3 == 2;
    const struct mn_operand whole = block_behind(&m, &x, &w, 0, &z[0]),
                            apart = block_behind(&m, &x, &w, 1, &z[1]);
    double *y = read_reals(&m, apart.real, MANY), *product = product_of(&m, MN_NT, &x, &w);
    double *bias = random_values(CHANNELS, 3, 1);
    for (int64_t k = 0; k < MANY; k++) product[k] += bias[k % CHANNELS];
    assert_reals(&m, "y of a product", whole.real, y, MANY, tolerance);
    for (int k = 0; k < 2; k++)
      assert_reals(&m, "z of a product", z[k], product, MANY, product_tolerance(m.device));
    free(y), free(product), free(bias);
    close_memory(&m);
  }
}

/* ---- updates ---- */

static void updates_follow_their_rule(void **state) {
  static const int64_t sizes[][2] = {{1, 1}, {1, 7}, {33, 17}, {64, 64}};
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct memory m = {.device = open_or_skip(*state, mn_precision_name((enum mn_precision)p))};
    if (!m.device) continue;
    for (size_t i = 0; i < RULES * COUNT(sizes); i++) {
      const int64_t rows = sizes[i % 4][0], cols = sizes[i % 4][1], count = rows * cols;
      struct parameter w;
      make_parameter(&m, &w, rows, cols, rules[i / 4]);
      w.update.clears = (i / 4 + i) % 2;
      double *gradient = random_values(count, 23, 1);
      void *d = take_reals(&m, gradient, count);
      const struct mn_epilogue e = {.kind = MN_UPDATE, .update = &w.update};
      MUST(m.device->kernels->epilogue(m.device, d, rows, cols, &e));
      follow(&w, gradient);
      assert_parameter(&m, &w, "an update", tolerance_of(m.device));
      double *left = read_reals(&m, d, count);
      for (int64_t k = 0; k < count; k++) assert_true(left[k] == (w.update.clears ? 0 : gradient[k]));
      free(left), free(gradient);
      free_parameter(&w);
      release_all(&m);
    }
    close_memory(&m);
  }
}

/* With memory for the product and, where the device can do without, without; one part and several; and by the
 * GEMM of our own, in small tiles and in large ones, and with the depth shared out among tiles of both sizes.
 * tf32's products are too coarse for AdamW's quotients. */
static void products_update_as_gradients_do(void **state) {
  static const struct sizes sizes[] = {{5, 7, 3},        {130, 70, 33},   {136, 72, 33},
                                       {24, 16, 1100},   {136, 72, 1544}, {8, 8, 8200},
                                       {264, 136, 1100}, {2100, 4100, 8}, {2104, 4104, 8}};
  for (int p = 0; p < MN_PRECISIONS; p++) {
    if (p == MN_TF32) continue;
    struct memory m = {.device = open_or_skip(*state, mn_precision_name((enum mn_precision)p))};
    if (!m.device) continue;
    for (int i = 0; i < RULES * 2; i++) {
      const struct rule rule = rules[i / 2];
      const int large = on_cuda(*state) && (i / 2 == MOMENTUM_DECAY || i / 2 == ADAMW);
      const int given = i % 2 || needs_memory(m.device, rule);
      for (int k = 0; k < (!large ? (quick() ? 4 : 7) : m.device->planes && !quick() ? 9 : 8); k++) {
        const struct sizes z = sizes[k];
        struct mn_operand dz, x;
        struct parameter w;
        operands(&m, MN_TN, z, &dz, &x);
        make_parameter(&m, &w, z.rows, z.cols, rule);
        struct mn_epilogue e = {.kind = MN_UPDATE, .update = &w.update};
        if (given) e.into = take_reals(&m, NULL, z.rows * z.cols);
        MUST(m.device->kernels->gemm(m.device, MN_TN, &dz, &x, &e));
        double *gradient = product_of(&m, MN_TN, &dz, &x);
        follow(&w, gradient);
        assert_parameter(&m, &w, "an update by a product", product_tolerance(m.device));
        free(gradient);
        free_parameter(&w);
        release_all(&m);
      }
    }
    close_memory(&m);
  }
}

/* ---- column sums ---- */

static double get_double(const struct memory *m, const double *from) {
  double value;
  MUST(m->device->kernels->download(m->device, &value, from, sizeof value));
  return value;
}

/* Three vectors, one of each kind, and the loss beside them: every other time beside nothing. */
static void check_column_sums(struct memory *m, int64_t chunks, int64_t channels, int64_t parts, int i) {
  const struct mn_kernels *k = m->device->kernels;
  const double tolerance = tolerance_of(m->device);
  struct parameter w;
  double *values = random_values(3 * chunks * channels, 32, 1), *before = random_values(channels, 31, 1);
  double *totals = zeros(3 * channels), *terms = random_values(parts, 33, 3), expected = 0, size = 0;
  for (int64_t q = 0; q < 3 * chunks * channels; q++)
    totals[q / (chunks * channels) * channels + q % channels] += values[q];
  for (int64_t c = 0; c < channels; c++) totals[channels + c] += before[c];
  for (int64_t n = 0; n < parts; n++) expected += 0.25 * terms[n], size += fabs(terms[n]);
  make_parameter(m, &w, 1, channels, rules[i % RULES]);
  follow(&w, totals + 2 * channels);
  const struct mn_epilogue store = {.kind = MN_STORE, .into = take_reals(m, NULL, channels)},
                           add = {.kind = MN_ADD, .into = take_reals(m, before, channels)},
                           update = {.kind = MN_UPDATE, .update = &w.update};
  const struct mn_epilogue *const sinks[] = {&store, &add, &update}, *const none[] = {NULL, NULL, NULL};
  void *sums = take_reals(m, values, 3 * chunks * channels);
  double *out = poisoned(m, 16), *scratch = poisoned(m, 8 * (size_t)mn_reduce_scratch(parts));
  struct mn_reduction loss = {out, scratch, take_reals(m, terms, parts), NULL, parts, 0.25};
  MUST(k->column_sums(m->device, sums, chunks, channels, none, i % 2 ? &loss : NULL));
  MUST(k->column_sums(m->device, sums, chunks, channels, sinks, i % 2 ? NULL : &loss));
  loss.out = out + 1;
  MUST(k->reduce(m->device, &loss));
  assert_true(get_double(m, out) == get_double(m, out + 1)); /* the same order: the same bytes */
  assert_true(fabs(get_double(m, out) - expected) <= 1e-14 * size);
  assert_reals(m, "column sums, stored", store.into, totals, channels, tolerance);
  assert_reals(m, "column sums, added", add.into, totals + channels, channels, tolerance);
  assert_parameter(m, &w, "column sums, updated", tolerance);
  free(values), free(before), free(totals), free(terms);
  free_parameter(&w);
  release_all(m);
}

static void column_sums_go_where_they_should(void **state) {
  static const int64_t chunks[] = {1, 2, 7, 32, 70}, channels[] = {1, 33, 96}, parts[] = {1, 4097, 50000};
  for (size_t p = 0; p < COUNT(widths); p++) {
    struct memory m = {.device = open_or_skip(*state, widths[p])};
    for (int i = 0; i < 15; i++) check_column_sums(&m, chunks[i % 5], channels[i / 5], parts[i % 3], i);
    close_memory(&m);
  }
}

/* ---- the same bytes every time ---- */

static void products_repeat_their_bytes(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct memory m = {.device = open_or_skip(*state, mn_precision_name((enum mn_precision)p))};
    if (!m.device) continue;
    const struct sizes odd = {129, 257, 2000}, even = {136, 264, 2000},
                       z = m.device->planes == 2 ? even : odd;
    const size_t bytes = (size_t)(z.rows * z.cols) * m.device->real;
    for (int form = MN_NT; form <= MN_TN; form++) {
      struct mn_operand x, y;
      void *first = NULL, *into = take_reals(&m, NULL, z.rows * z.cols);
      operands(&m, (enum mn_form)form, z, &x, &y);
      for (int run = 0; run < (quick() || !on_cuda(*state) ? 2 : 100); run++) {
        struct mn_epilogue e = {.kind = MN_STORE, .into = into};
        MUST(m.device->kernels->zero(m.device, into, bytes));
        MUST(m.device->kernels->gemm(m.device, (enum mn_form)form, &x, &y, &e));
        void *next = get_bytes(m.device, into, bytes);
        if (first) assert_memory_equal(first, next, bytes);
        free(first);
        first = next;
      }
      free(first);
      release_all(&m);
    }
    close_memory(&m);
  }
}

/* ---- two GPUs ---- */

/* Two GPUs used in turn by one thread: every entry works on its own GPU. */
static void two_gpus_work_in_turn(void **state) {
  enum { GPUS = 2, LENGTH = 5000 };
  static const char *const names[GPUS] = {"cuda:0", "cuda:1"};
  struct memory m[GPUS] = {{NULL}};
  struct mn_operand y[GPUS];
  struct mn_graph *graph[GPUS];
  void *drawn[GPUS];
  for (int s = GPUS; s-- > 0;) m[s].device = open_or_skip(names[s], "fp32"); /* the second may be missing */
  struct mn_device *const on[GPUS] = {m[0].device, m[1].device};
  for (int i = 0; i < 6; i++) check_product(&m[i % GPUS], MN_NT, products[4 + i / GPUS], MN_ADD, 0);
  for (int s = 0; s < GPUS; s++) {
    drawn[s] = take_reals(&m[s], NULL, LENGTH);
    y[s] = (struct mn_operand){.rows = 1, .cols = LENGTH, .real = take_reals(&m[s], NULL, LENGTH)};
  }
  for (int s = 0; s < GPUS; s++)
    MUST(on[s]->kernels->uniform(on[s], drawn[s], LENGTH, 3, MN_RANDOM_CHECK, 0, 1));
  for (int s = 0; s < GPUS; s++) MUST(on[s]->kernels->add(on[s], &y[s], drawn[s], drawn[s]));
  for (int s = 0; s < GPUS; s++) {
    MUST(on[s]->kernels->graph_begin(on[s]));
    MUST(on[1 - s]->kernels->zero(on[1 - s], on[1 - s]->nonfinite, sizeof(int)));
    MUST(on[s]->kernels->branch_fork(on[s], MN_BRANCH_SUMS));
    MUST(on[s]->kernels->branch_begin(on[s], MN_BRANCH_SUMS));
    MUST(on[s]->kernels->add(on[s], &y[s], y[s].real, drawn[s]));
    MUST(on[s]->kernels->branch_end(on[s], MN_BRANCH_SUMS));
    MUST(on[s]->kernels->branch_join(on[s], MN_BRANCH_SUMS));
    MUST(on[s]->kernels->graph_end(on[s], &graph[s]));
  }
  for (int s = 0; s < GPUS; s++) MUST(on[s]->kernels->stamp(on[s], 0));
  for (int s = 0; s < GPUS; s++) MUST(on[s]->kernels->graph_launch(on[s], graph[s]));
  for (int s = 0; s < GPUS; s++) MUST(on[s]->kernels->stamp(on[s], 1));
  for (int s = 0; s < GPUS; s++) {
    double ms = NAN, *three = read_reals(&m[s], y[s].real, LENGTH),
           *one = read_reals(&m[s], drawn[s], LENGTH);
    MUST(on[s]->kernels->elapsed(on[s], &ms));
    assert_true(ms >= 0);
    for (int64_t i = 0; i < LENGTH; i++) {
      const float t = (mn_random_word(3, MN_RANDOM_CHECK, (uint64_t)i) >> 8) * 0x1p-23f - 1;
      assert_true(one[i] == t && three[i] == (float)(one[i] + one[i] + one[i]));
    }
    free(three), free(one);
    on[s]->kernels->graph_free(on[s], graph[s]);
  }
  for (int s = 0; s < GPUS; s++) close_memory(&m[s]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(gemm_multiplies_in_every_form),   BOTH(gemm_takes_operands_that_are_not_aligned),
      BOTH(products_end_in_blocks),          BOTH(updates_follow_their_rule),
      BOTH(products_update_as_gradients_do), BOTH(column_sums_go_where_they_should),
      BOTH(products_repeat_their_bytes),     cmocka_unit_test(two_gpus_work_in_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
