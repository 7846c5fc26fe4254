/* The block's epilogues on the CPU and on CUDA, side by side: every subset of ops on every kind of group,
 * in place and apart; values that are not finite; and the same bytes, run after run. Without a GPU every test
 * is skipped, and says why. */
#include "tests/parity_bench.h"

static void same_sums(struct bench *b, struct side two[SIDES], const char *what, double tolerance) {
  const struct mn_block *k = &two[CPU].block;
  int64_t plane = mn_chunks(k->rows) * k->channels;
  double *e = get(b, CPU, two[CPU].block.sums, 3 * plane), *a = get(b, CUDA, two[CUDA].block.sums, 3 * plane);
  for (int q = 0; q < 3; q++) {
    if (k->ops & (q == 0 ? MN_OP_BIAS : MN_OP_NORM)) {
      near(what, a + q * plane, e + q * plane, plane, tolerance);
      continue;
    }
    for (int64_t i = 0; i < plane; i++) assert_true(isnan(a[q * plane + i])); /* left alone */
  }
  free(a), free(e);
}

/* Where one channel is a group, or rounding is all there is, dz is 0 but for rounding: no relative error. */
static double gradient_tolerance(const struct bench *b, struct shape at, unsigned ops) {
  double tolerance = tolerance_of(b) * (b->precision == MN_FP64 ? 10 : 1);
  return (ops & MN_OP_NORM) && at.width <= 2 ? INFINITY : tolerance;
}

static void check_dz(struct bench *b, struct side two[SIDES], struct shape at, unsigned ops,
                     const char *what) {
  int64_t count = at.rows * at.groups * at.width;
  double tolerance = gradient_tolerance(b, at, ops);
  char text[256];
  snprintf(text, sizeof text, "dz of %s", what);
  for (int s = 0; s < SIDES; s++) {
    exact_planes(b, s, text, &two[s].dz);
    if (!two[s].dz.scale) continue;
    const double noted = get_scale(b->on[s], two[s].dz.scale).largest;
    if (!(noted == largest_real(b, s, &two[s].dz))) fail_msg("%s: %g is not the largest", text, noted);
  }
  if (tolerance < INFINITY) {
    same_reals(b, text, PAIR(dz.real), count, tolerance);
    snprintf(text, sizeof text, "sums of %s", what);
    same_sums(b, two, text, 4 * tolerance);
    return;
  }
  /* The size that counts is the one of the terms that cancel: rstd·h. */
  double *a = get(b, CUDA, two[CUDA].dz.real, count), *e = get(b, CPU, two[CPU].dz.real, count);
  double *rstd = get(b, CPU, two[CPU].block.rstd, at.rows * at.groups), most = 0;
  for (int64_t i = 0; i < at.rows * at.groups; i++) most = fmax(most, rstd[i]);
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(a[i] - e[i]) <= 100 * tolerance_of(b) * (1 + most)))
      fail_msg("%s: %g is not %g", text, a[i], e[i]);
  free(a), free(e), free(rstd);
}

static void check_forward(struct bench *b, struct side two[SIDES], struct shape at, unsigned ops,
                          const char *what) {
  int64_t count = at.rows * at.groups * at.width;
  double tolerance = tolerance_of(b);
  char text[256];
  snprintf(text, sizeof text, "y of %s", what);
  same_reals(b, text, PAIR(y.real), count, tolerance);
  for (int s = 0; s < SIDES; s++) {
    exact_planes(b, s, text, &two[s].y);
    if (!two[s].y.scale) continue;
    const double factor = get_scale(b->on[s], two[s].y.scale).factor;
    if (!(largest_real(b, s, &two[s].y) * factor < 0x1p15)) fail_msg("%s: past the bound of its scale", text);
  }
  snprintf(text, sizeof text, "z of %s", what);
  same_reals(b, text, PAIR(block.z), count, tolerance);
  if (!(ops & MN_OP_NORM)) return;
  snprintf(text, sizeof text, "rstd of %s", what);
  same_reals(b, text, PAIR(block.rstd), at.rows * at.groups, tolerance);
  /* A mean may be next to nothing; its error is that of the values it is taken from. */
  double *a = get(b, CUDA, two[CUDA].block.mean, at.rows * at.groups);
  double *e = get(b, CPU, two[CPU].block.mean, at.rows * at.groups);
  double *rstd = get(b, CPU, two[CPU].block.rstd, at.rows * at.groups);
  for (int64_t i = 0; i < at.rows * at.groups; i++)
    if (!(fabs(a[i] - e[i]) <= tolerance * (fabs(e[i]) + 1 / rstd[i])))
      fail_msg("mean of %s: %g is not %g", what, a[i], e[i]);
  free(a), free(e), free(rstd);
}

/* Forward, then backward from the CPU's z, mean and rstd, so that both stand on the same side of every kink.
 */
static void check_block(struct bench *b, struct shape at, unsigned ops, enum alias alias) {
  struct side two[SIDES];
  char what[200];
  snprintf(what, sizeof what, "%s N %lld G %lld D %lld ops %u alias %d", mn_precision_name(b->precision),
           (long long)at.rows, (long long)at.groups, (long long)at.width, ops, (int)alias);
  for (int s = 0; s < SIDES; s++) {
    make_side(b, s, &two[s], at, ops, alias);
    apply(b, s, &two[s], MN_BLOCK, two[s].d);
  }
  check_forward(b, two, at, ops, what);
  struct {
    void **to, *from;
    int64_t count;
  } shared[] = {{&two[CUDA].block.z, two[CPU].block.z, at.rows * at.groups * at.width},
                {&two[CUDA].block.mean, two[CPU].block.mean, at.rows * at.groups},
                {&two[CUDA].block.rstd, two[CPU].block.rstd, at.rows * at.groups}};
  for (int i = 0; i < 3; i++)
    must(b->on[CUDA]->kernels->copy(b->on[CUDA], *shared[i].to, shared[i].from,
                                    (size_t)shared[i].count * b->on[CUDA]->real));
  for (int s = 0; s < SIDES; s++) apply(b, s, &two[s], MN_BLOCK_BACKWARD, two[s].dy);
  check_dz(b, two, at, ops, what);
  for (int s = 0; s < SIDES; s++) assert_int_equal(flag(b, s), 0);
  clear_bench(b);
}

static void check_block_loss(struct bench *b, struct shape at, unsigned ops) {
  struct side two[SIDES];
  char what[200];
  snprintf(what, sizeof what, "loss %s N %lld G %lld D %lld ops %u", mn_precision_name(b->precision),
           (long long)at.rows, (long long)at.groups, (long long)at.width, ops);
  for (int s = 0; s < SIDES; s++) {
    make_side(b, s, &two[s], at, ops, APART);
    apply(b, s, &two[s], MN_BLOCK_LOSS, two[s].d);
  }
  check_forward(b, two, at, ops, what);
  same_reals(b, what, PAIR(block.loss_parts), at.rows * (ops & MN_OP_NORM ? at.groups : 1), tolerance_of(b));
  check_dz(b, two, at, ops, what);
  for (int s = 0; s < SIDES; s++) assert_int_equal(flag(b, s), 0);
  clear_bench(b);
}

static const struct shape SHAPES[] = {
    {1, 1, 1},    {1, 3, 1},   {33, 5, 1},  {5, 3, 2},    {65, 3, 3},  {17, 9, 4},   {5, 3, 7},    {40, 5, 8},
    {40, 6, 12},  {1, 8, 16},  {70, 9, 16}, {32, 5, 32},  {33, 2, 33}, {9, 3, 64},   {9, 5, 66},   {9, 3, 96},
    {31, 2, 128}, {7, 3, 200}, {9, 3, 255}, {35, 2, 256}, {3, 2, 300}, {33, 3, 600}, {2, 1, 8192},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof SHAPES[0] };

static void all_blocks(enum mn_precision precision) {
  struct bench b;
  open_bench(&b, precision);
  for (int i = 0; i < SHAPE_COUNT; i++) {
    for (unsigned ops = 0; ops <= MN_OP_ALL; ops += quick() ? 5 : 1) {
      check_block(&b, SHAPES[i], ops, APART);
      check_block_loss(&b, SHAPES[i], ops);
    }
    check_block(&b, SHAPES[i], MN_OP_ALL, DY_TAKES_DZ);
    check_block(&b, SHAPES[i], MN_OP_ALL, Z_TAKES_DZ);
    check_block(&b, SHAPES[i], MN_OP_ALL, D_TAKES_Z);
  }
  close_bench(&b);
}

static void block_fp64(void **state) {
  all_blocks(MN_FP64);
}
static void block_fp32(void **state) {
  all_blocks(MN_FP32);
}
static void block_bf16(void **state) {
  all_blocks(MN_BF16);
}

static void block_fp16(void **state) {
  all_blocks(MN_FP16);
}
static void block_fp16x3(void **state) {
  all_blocks(MN_FP16X3);
}

/* Pointers that are not multiples of 16 bytes, as a part of a matrix has: an odd number of reals in. */
static void block_unaligned(void **state) {
  struct bench b;
  open_bench(&b, MN_FP32);
  struct shape at = {37, 6, 16};
  int64_t count = at.rows * at.groups * at.width;
  struct side two[SIDES];
  void *y[SIDES];
  for (int s = 0; s < SIDES; s++) {
    make_side(&b, s, &two[s], at, MN_OP_ALL, APART);
    y[s] = two[s].y.real = (float *)poisoned_reals(&b, s, count + 1) + 1;
    apply(&b, s, &two[s], MN_BLOCK, two[s].d);
  }
  same_reals(&b, "y, unaligned", y, count, 1e-5);
  close_bench(&b);
}

/* v = beta to the bit, whatever the width and the constant. */
static void block_constant_group(void **state) {
  struct bench b;
  open_bench(&b, MN_FP32);
  const int64_t widths[] = {1, 3, 4, 7, 12, 16, 33, 64, 128, 200, 256, 300, 1000};
  for (unsigned i = 0; i < sizeof widths / sizeof widths[0]; i++) {
    struct shape at = {40, 2, widths[i]};
    int64_t c = at.groups * at.width, count = at.rows * c;
    struct side side;
    make_side(&b, CUDA, &side, at, MN_OP_NORM, APART);
    double *same = malloc((size_t)count * sizeof *same);
    assert_non_null(same);
    for (int64_t k = 0; k < count; k++) same[k] = (float)(1000.1 + (double)(k / at.width));
    void *d = side.block.z = put(&b, CUDA, same, count);
    apply(&b, CUDA, &side, MN_BLOCK, d);
    double *y = get(&b, CUDA, side.y.real, count), *beta = get(&b, CUDA, side.block.beta, c);
    for (int64_t k = 0; k < count; k++)
      if (!(y[k] == beta[k % c])) fail_msg("D %lld: %g is not %g", (long long)at.width, y[k], beta[k % c]);
    free(same), free(y), free(beta);
    clear_bench(&b);
  }
  close_bench(&b);
}

/* ---- values that are not finite ---- */

/* Everything that updates, one after another; then whether w, m and v are the bytes they were. */
static void updates_write_nothing(struct bench *b, int s, struct rule rule) {
  struct sizes z = {40, 24, 9};
  struct parameter p;
  struct mn_operand dz, x;
  make_parameter(b, s, &p, z.rows, z.cols, rule);
  operands(b, s, MN_TN, z, &dz, &x);
  int64_t count = z.rows * z.cols;
  size_t bytes = (size_t)count * b->on[s]->real;
  const void *const stand[] = {p.w.real, p.update.m, p.update.v};
  void *before[3] = {NULL};
  for (int i = 0; i < 3; i++)
    if (stand[i]) before[i] = get_raw(b, s, stand[i], bytes);
  void *d = put_drawn(b, s, 23, 3 * count, 1);
  struct mn_epilogue e = {.kind = MN_UPDATE, .update = &p.update};
  if (rule.kind == MN_ADAMW) e.into = poisoned_reals(b, s, count);
  must(b->on[s]->kernels->epilogue(b->on[s], d, z.rows, z.cols, &e));
  must(b->on[s]->kernels->gemm(b->on[s], MN_TN, &dz, &x, &e));
  struct mn_operand flat = {.rows = 1, .cols = count, .real = p.w.real};
  struct mn_update vector = p.update;
  vector.w = &flat;
  struct mn_epilogue to_vector = {.kind = MN_UPDATE, .update = &vector};
  const struct mn_epilogue *const sinks[] = {NULL, &to_vector, NULL};
  must(b->on[s]->kernels->column_sums(b->on[s], d, 1, count, sinks, NULL));
  for (int i = 0; i < 3; i++) {
    if (!stand[i]) continue;
    void *after = get_raw(b, s, stand[i], bytes);
    assert_memory_equal(before[i], after, bytes);
    free(before[i]), free(after);
  }
  exact_planes(b, s, "a weight that was not updated", &p.w);
}

static void check_nonfinite(struct bench *b, struct shape at, enum mn_epilogue_kind kind, double bad) {
  int64_t c = at.groups * at.width, count = at.rows * c;
  for (int s = 0; s < SIDES; s++) {
    struct side side;
    make_side(b, s, &side, at, MN_OP_ALL, APART);
    if (kind == MN_BLOCK_BACKWARD) apply(b, s, &side, MN_BLOCK, side.d);
    assert_int_equal(flag(b, s), 0);
    double *values = draw(kind == MN_BLOCK_BACKWARD ? 2 : 1, count, 1);
    values[count - 1] = bad;
    apply(b, s, &side, kind, put(b, s, values, count));
    free(values);
    assert_int_equal(flag(b, s), 1);
    updates_write_nothing(b, s, RULES[3]);
    updates_write_nothing(b, s, RULES[ADAMW]);
  }
  clear_bench(b);
}

static void nonfinite(void **state) {
  const struct shape shapes[] = {{33, 3, 16}, {3, 5, 7}, {5, 2, 300}, {1, 1, 33}};
  const enum mn_epilogue_kind kinds[] = {MN_BLOCK, MN_BLOCK_LOSS, MN_BLOCK_BACKWARD};
  const double bads[] = {NAN, INFINITY, -INFINITY};
  const enum mn_precision precisions[] = {MN_FP64, MN_FP32, MN_FP16, MN_FP16X3};
  for (int p = 0; p < 4; p++) {
    struct bench b;
    open_bench(&b, precisions[p]);
    for (int i = 0; i < 36; i++) check_nonfinite(&b, shapes[i / 9], kinds[i / 3 % 3], bads[i % 3]);
    close_bench(&b);
  }
}

/* ---- the same bytes every time ---- */

/* What one run leaves behind. */
struct outcome {
  void *bytes[3];
  size_t sizes[3];
};

static struct outcome block_once(struct bench *b, struct shape at) {
  struct side side;
  int64_t c = at.groups * at.width, count = at.rows * c;
  make_side(b, CUDA, &side, at, MN_OP_ALL, APART);
  apply(b, CUDA, &side, MN_BLOCK, side.d);
  apply(b, CUDA, &side, MN_BLOCK_BACKWARD, side.dy);
  void *total = poisoned_reals(b, CUDA, c);
  struct mn_epilogue store = {.kind = MN_STORE, .into = total};
  const struct mn_epilogue *const sinks[] = {NULL, &store, NULL};
  must(b->on[CUDA]->kernels->column_sums(b->on[CUDA], side.block.sums, mn_chunks(at.rows), c, sinks, NULL));
  size_t real = b->on[CUDA]->real;
  struct outcome o = {{get_raw(b, CUDA, side.y.real, (size_t)count * real),
                       get_raw(b, CUDA, side.dz.real, (size_t)count * real),
                       get_raw(b, CUDA, total, (size_t)c * real)},
                      {(size_t)count * real, (size_t)count * real, (size_t)c * real}};
  clear_bench(b);
  return o;
}

static struct outcome gemm_once(struct bench *b) {
  struct outcome o = {{NULL}, {0}};
  for (int form = MN_NT; form <= MN_TN; form++) {
    const struct sizes odd = {129, 257, 2000}, even = {136, 264, 2000},
                       z = b->on[CUDA]->planes == 2 ? even : odd;
    struct mn_operand x, y;
    operands(b, CUDA, (enum mn_form)form, z, &x, &y);
    void *into = poisoned_reals(b, CUDA, z.rows * z.cols);
    struct mn_epilogue e = {.kind = MN_STORE, .into = into};
    must(b->on[CUDA]->kernels->gemm(b->on[CUDA], (enum mn_form)form, &x, &y, &e));
    o.sizes[form] = (size_t)(z.rows * z.cols) * b->on[CUDA]->real;
    o.bytes[form] = get_raw(b, CUDA, into, o.sizes[form]);
    clear_bench(b);
  }
  return o;
}

static void same_bytes(struct outcome *first, struct outcome next) {
  for (int i = 0; i < 3; i++) {
    if (first->sizes[i] == 0) { /* the first run is the measure */
      first->bytes[i] = next.bytes[i], first->sizes[i] = next.sizes[i];
      continue;
    }
    assert_memory_equal(first->bytes[i], next.bytes[i], next.sizes[i]);
    free(next.bytes[i]);
  }
}

static void repeats(void **state) {
  const enum mn_precision precisions[] = {MN_FP64, MN_FP32, MN_BF16, MN_FP16, MN_FP16X3};
  for (int p = 0; p < 5; p++) {
    struct bench b;
    open_bench(&b, precisions[p]);
    struct outcome wide = {{NULL}, {0}}, narrow = wide, product = wide;
    for (int run = 0; run < (quick() ? 2 : 100); run++) {
      same_bytes(&narrow, block_once(&b, (struct shape){150, 9, 16}));
      same_bytes(&wide, block_once(&b, (struct shape){70, 2, 300}));
      same_bytes(&product, gemm_once(&b));
    }
    for (int i = 0; i < 3; i++) free(wide.bytes[i]), free(narrow.bytes[i]), free(product.bytes[i]);
    close_bench(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(block_fp64),
      cmocka_unit_test(block_fp32),
      cmocka_unit_test(block_bf16),
      cmocka_unit_test(block_fp16),
      cmocka_unit_test(block_fp16x3),
      cmocka_unit_test(block_unaligned),
      cmocka_unit_test(block_constant_group),
      cmocka_unit_test(nonfinite),
      cmocka_unit_test(repeats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
