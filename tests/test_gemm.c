/* A product, or numbers in memory, is stored, added or taken for a parameter's gradient; and column sums: through
 * the table that the engine uses, in every precision on every device, against double arithmetic on the numbers
 * that the GEMM reads. Outputs are poisoned with NaN first. */
#include "tests/products.h"

static void matrices_follow_their_epilogues(struct memory *m) {
  try_drawn(m, check_matrix, 300);
}

/* One of everything, one more or less than registers, vectors and tiles hold, and depths that are shared out. */
static const int64_t edges[][3] = {
    {1, 1, 1},      {1, 5, 3},        {3, 1, 7},       {16, 16, 16},    {33, 17, 9},   {64, 64, 1},
    {129, 257, 65}, {127, 130, 300},  {256, 512, 128}, {31, 1000, 513}, {8, 8, 8},     {131, 264, 72},
    {136, 264, 77}, {3, 5, 7},        {17, 1, 33},     {1, 31, 2},      {64, 48, 40},  {65, 67, 129},
    {24, 16, 1100}, {264, 136, 1100}, {136, 72, 1544}, {8, 8, 8200},    {40, 48, 1100}};

/* A CPU multiplies in tf32 and fp16x3 as in fp32. */
enum { OF_A_CPU = FP64 | FP32 | BF16 | FP16 };

static void products_have_edges(struct memory *m) {
  for (int form = MN_NT; form <= MN_TN; form++) {
    for (size_t i = 0; i < 4 * COUNT(edges); i++) {
      struct draw d = sized(edges[i / 4]);
      d.form = form, d.kind = i % 2 ? MN_ADD : MN_STORE, d.library = i / 2 % 2;
      d.flag = d.kind == MN_ADD && (is_cuda(m) || d.depth < 100);
      if (!d.library || (is_cuda(m) && !quick())) try_case(m, check_matrix, &d, "a named case");
    }
    /* Large tiles of the GEMM of our own. */
    const struct draw large[] = {{2040, 2040, 40, .form = form, .kind = form == MN_NN ? MN_ADD : MN_STORE},
                                 {2040, 2040, 16, .form = form, .kind = MN_ADD, .flag = 1}};
    if (is_cuda(m) && m->device->planes && !quick()) try_named(m, check_matrix, large, COUNT(large));
  }
  const struct draw unaligned = {48, 80, 64, .shift = 1};
  try_case(m, check_matrix, &unaligned, "a named case");
}

/* Without memory for the product where the device can do without, and with; one part and several; by the GEMM of our
 * own, in small tiles and in large ones, and with the depth shared out among tiles of both sizes. */
static void updates_have_edges(struct memory *m) {
  static const int64_t sizes[][3] = {{5, 7, 3},      {1, 1, 1},       {130, 70, 33},  {136, 72, 33},
                                     {24, 16, 1100}, {136, 72, 1544}, {8, 8, 8200},   {264, 136, 1100},
                                     {130, 144, 9},  {2100, 4100, 8}, {2104, 4104, 8}};
  for (int i = 0; i < RULES * 2; i++) {
    const int chosen = i / 2 == MOMENTUM_DECAY || i / 2 == ADAMW;
    const int last = !is_cuda(m) || !chosen ? (quick() ? 5 : 9) : m->device->planes && !quick() ? 11 : 10;
    for (int k = 0; k < last; k++) {
      struct draw d = sized(sizes[k]);
      d.kind = MN_UPDATE, d.form = MN_TN, d.rule = i / 2, d.way = i % 2;
      d.flag = k < 9 && (is_cuda(m) || d.depth < 100);
      if (is_cuda(m) || chosen || d.depth < 1000) try_case(m, check_matrix, &d, "a named case");
      d.form = FROM_MEMORY;
      if (k < 9 && d.depth < 100) try_case(m, check_matrix, &d, "a named case");
    }
  }
}

static void products_repeat_their_bytes(struct memory *m) {
  for (int form = MN_NT; form <= MN_TN; form++) {
    struct draw d = {129, 257, 2000, .form = form, .repeats = quick() || !is_cuda(m) ? 1 : 99};
    if (m->device->planes == 2) d.rows = 136, d.width = 264;
    try_case(m, check_matrix, &d, "a named case");
  }
}

/* ---- column sums ---- */

static double get_double(const struct memory *m, const double *from) {
  double value;
  MUST(m->device->kernels->download(m->device, &value, from, sizeof value));
  return value;
}

/* Three vectors, [chunks = rows, columns] each: one is stored, one added and one a gradient; the loss beside them, of
 * `depth` terms, or with way odd beside nothing. Under the flag only what is stored is written. */
static void check_column_sums(struct memory *m, const struct draw *d) {
  const struct mn_kernels *k = m->device->kernels;
  const double tolerance = tolerance_of(m->device);
  const int64_t channels = columns_of(d), each = d->rows * channels;
  double *values = kept_random(m, 32, 3 * each, 1), *before = kept_random(m, 31, channels, 1);
  double *totals = kept_zeros(m, 3 * channels), *terms = kept_random(m, 33, d->depth, 3), expected = 0,
         size = 0;
  struct parameter w;
  for (int64_t q = 0; q < 3 * each; q++) totals[q / each * channels + q % channels] += values[q];
  for (int64_t n = 0; n < d->depth; n++) expected += 0.25 * terms[n], size += fabs(terms[n]);
  make_parameter(m, &w, 1, channels, d);
  w.w = (struct mn_operand){.rows = 1, .cols = channels, .real = w.w.real}; /* a vector has no planes */
  const struct mn_epilogue store = {.kind = MN_STORE, .into = take_reals(m, NULL, channels)},
                           add = {.kind = MN_ADD, .into = take_reals(m, before, channels)},
                           update = {.kind = MN_UPDATE, .update = &w.update};
  const struct mn_epilogue *const sinks[] = {&store, &add, &update}, *const none[] = {NULL, NULL, NULL};
  double *out = poisoned(m, 16), *scratch = poisoned(m, 8 * (size_t)mn_reduce_scratch(d->depth));
  struct mn_reduction loss = {out, scratch, take_reals(m, terms, d->depth), NULL, d->depth, 0.25};
  for (int under = d->flag != 0; under >= 0; under--) {
    void *sums = take_reals(m, values, 3 * each);
    if (under) raise_flag(m->device);
    MUST(k->column_sums(m->device, sums, d->rows, channels, none, d->way % 2 ? &loss : NULL));
    MUST(k->column_sums(m->device, sums, d->rows, channels, sinks, d->way % 2 ? NULL : &loss));
    if (flag_of(m->device) != 7 * under) WRONG("the flag is not %d", 7 * under);
    if (!under) follow(&w, totals + 2 * channels);
    for (int64_t c = 0; c < channels && !under; c++) before[c] += totals[channels + c];
    assert_reals(m, "column sums, stored", store.into, totals, channels, tolerance);
    assert_reals(m, "column sums, added", add.into, before, channels, under ? 0 : tolerance);
    assert_parameter(m, &w, "column sums, updated", under ? 0 : tolerance);
  }
  loss.out = out + 1;
  MUST(k->reduce(m->device, &loss));
  if (get_double(m, out) != get_double(m, out + 1)) WRONG("the same order has other bytes");
  if (!(fabs(get_double(m, out) - expected) <= 1e-14 * size)) WRONG("the loss is %g", get_double(m, out));
}

static void column_sums_go_where_they_should(struct memory *m) {
  static const int64_t chunks[] = {1, 2, 7, 32, 70}, channels[] = {1, 33, 96}, parts[] = {1, 4097, 50000};
  for (int i = 0; i < 15; i++) {
    const struct draw d = {chunks[i % 5], channels[i / 5], parts[i % 3], .rule = i, .way = i, .flag = i % 2};
    try_case(m, check_column_sums, &d, "a named case");
  }
  try_drawn(m, check_column_sums, 100);
}

/* ---- two GPUs ---- */

/* Two GPUs used in turn by one thread: every entry works on its own GPU. */
static void two_gpus_work_in_turn(void **state) {
  enum { GPUS = 2, LENGTH = 5000 };
  static const char *const names[GPUS] = {"cuda:0", "cuda:1"};
  static const struct draw turns[] = {
      {33, 17, 9, .kind = MN_ADD}, {64, 64, 1, .kind = MN_ADD}, {129, 257, 65, .kind = MN_ADD}};
  struct memory m[GPUS] = {{NULL}};
  struct mn_operand y[GPUS];
  struct mn_graph *graph[GPUS];
  void *drawn[GPUS];
  for (int s = GPUS; s-- > 0;) m[s].device = open_or_skip(names[s], "fp32"); /* the second may be missing */
  struct mn_device *const on[GPUS] = {m[0].device, m[1].device};
  for (int i = 0; i < 6; i++) try_case(&m[i % GPUS], check_matrix, &turns[i / GPUS], "in turn");
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
      IN_EACH(EVERY, matrices_follow_their_epilogues),
      IN_EACH(EVERY, products_have_edges),
      IN_EACH(EVERY, updates_have_edges),
      IN_EACH(EVERY, products_repeat_their_bytes),
      IN_EACH(FP64 | FP32 | FP16, column_sums_go_where_they_should),
      cmocka_unit_test(two_gpus_work_in_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
