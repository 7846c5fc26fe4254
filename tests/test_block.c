/* The block's epilogues, forward, backward and with the loss, in every precision on every device: drawn cases,
 * behind products and on matrices in memory, and named ones. */
#include "tests/block_case.h"

/* One of all, one channel a group, every kind of width, several chunks of rows: rows, groups, width. */
static const int64_t shapes[][3] = {
    {1, 1, 1},    {1, 3, 1},   {33, 5, 1},  {5, 3, 2},    {65, 3, 3},  {17, 9, 4},   {5, 3, 7},    {40, 5, 8},
    {40, 6, 12},  {1, 8, 16},  {70, 9, 16}, {32, 5, 32},  {33, 2, 33}, {9, 3, 64},   {9, 5, 66},   {9, 3, 96},
    {31, 2, 128}, {7, 3, 200}, {9, 3, 255}, {35, 2, 256}, {3, 2, 300}, {33, 3, 600}, {2, 1, 8192}, {1, 6, 1},
    {3, 5, 1},    {7, 3, 5},   {33, 1, 7},  {70, 8, 3},   {5, 2, 513}, {32, 4, 16},  {2, 32, 3},
};

static struct draw shaped(const int64_t shape[3], unsigned ops, enum mn_epilogue_kind kind) {
  return (struct draw){.rows = shape[0],
                       .groups = shape[1],
                       .width = shape[2],
                       .depth = 1,
                       .form = FROM_MEMORY,
                       .ops = ops,
                       .kind = (int64_t)kind};
}

static void blocks_follow_their_formulas(struct memory *m) {
  try_drawn(m, check_block, 200);
}

/* Every subset of ops, in place and apart. The Jacobian of a wide group takes its time. */
static void blocks_have_edges(struct memory *m) {
  for (size_t i = 0; i < COUNT(shapes); i++) {
    const int slow = !is_cuda(m) && shapes[i][2] > 32;
    if (slow && shapes[i][2] > 513 && m->device->precision != MN_FP32) continue;
    for (unsigned ops = 0; ops <= MN_OP_ALL; ops += quick() || slow ? 5 : 1)
      for (int loss = 0; loss < 2; loss++) {
        const struct draw d = shaped(shapes[i], ops, loss ? MN_BLOCK_LOSS : MN_BLOCK);
        try_case(m, check_block, &d, "a named case");
      }
    for (int alias = APART; alias <= D_TAKES_Z; alias++) {
      struct draw d = shaped(shapes[i], MN_OP_ALL, alias == APART ? MN_BLOCK_LOSS : MN_BLOCK);
      d.alias = alias, d.way = 1;
      try_case(m, check_block, &d, "a named case");
    }
  }
}

/* Our own GEMM does not take the first depth, and takes the others, once by the library's way; a part of a matrix
 * begins at no multiple of 16 bytes; many runs leave the same bytes. */
static void blocks_stand_behind_products(struct memory *m) {
  const int64_t many = quick() || !is_cuda(m) ? 1 : 99;
  const struct draw cases[] = {
      {50, 16, 70, 6, .kind = MN_BLOCK, .ops = MN_OP_ALL},
      {50, 16, 72, 6, .kind = MN_BLOCK, .ops = MN_OP_ALL},
      {50, 16, 72, 6, .kind = MN_BLOCK, .ops = MN_OP_ALL, .library = 1},
      {37, 16, 1, 6, .kind = MN_BLOCK, .ops = MN_OP_ALL, .form = FROM_MEMORY, .shift = 1},
      {150, 16, 1, 9, .kind = MN_BLOCK, .ops = MN_OP_ALL, .form = FROM_MEMORY, .repeats = many},
      {70, 300, 1, 2, .kind = MN_BLOCK, .ops = MN_OP_ALL, .form = FROM_MEMORY, .repeats = many},
  };
  try_named(m, check_block, cases, COUNT(cases));
}

/* z far from 0: the variance is of what is left when the mean is gone. E[z²] − E[z]² in float has nothing
 * left of it at all. */
static void variance_is_centred(struct memory *m) {
  const struct draw d = shaped((const int64_t[]){6, 4, 16}, MN_OP_ALL, MN_BLOCK);
  struct block_case *c = open_case(m, &d);
  for (int64_t i = 0; i < c->count[D]; i++)
    c->v[D][i] = (float)(1e4 + 0.25 * c->v[D][i]), c->v[BIAS][i % c->channels] = 0;
  forward_reference(c);
  upload(c);
  apply(c, MN_BLOCK, c->real[D]);
  assert_array(c, "rstd", RSTD, 1e-3);
  /* The mean is within a unit of 1e4's last place, 2⁻¹⁰, of a deviation of 0.29. */
  assert_array(c, "y", Y, 1e-2);
}

/* Equal values in a group give v = beta, to the bit, whatever they are and whatever the width. */
static void constant_group_gives_beta(struct memory *m) {
  static const int64_t sizes[] = {1, 3, 4, 7, 12, 16, 33, 64, 128, 200, 256, 300, 1000};
  for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
    const struct draw d =
        shaped((const int64_t[]){40, 2, sizes[i / 2]}, i % 2 ? MN_OP_ALL : MN_OP_NORM, MN_BLOCK);
    struct block_case *c = open_case(m, &d);
    for (int64_t k = 0; k < c->count[D]; k++) {
      c->v[D][k] = i % 2 ? 3.5 : (float)(1000.1 + (double)(k / sizes[i / 2]));
      c->v[BIAS][k % c->channels] = 0.25;
      c->v[Y][k] = y_reference(c, c->v[BETA][k % c->channels]);
    }
    upload(c);
    apply(c, MN_BLOCK, c->real[D]);
    assert_array(c, "y", Y, i % 2 ? 1e-7 : 0);
    release_all(m);
  }
}

/* At v = 0 the gradient is the slope's, as PyTorch's: constant groups with beta 0 put every v there. */
static void at_zero_the_slope_counts(struct memory *m) {
  const struct draw d = shaped((const int64_t[]){3, 2, 4}, MN_OP_ALL, MN_BLOCK);
  struct block_case *c = open_case(m, &d);
  double *dbeta = kept_zeros(m, c->channels);
  for (int64_t i = 0; i < c->count[D]; i++) {
    c->v[D][i] = 3.5, c->v[BIAS][i % c->channels] = 0.25, c->v[BETA][i % c->channels] = 0;
    dbeta[i % c->channels] += 2 * c->slope * c->v[DY][i];
  }
  upload(c);
  apply(c, MN_BLOCK, c->real[D]);
  apply(c, MN_BLOCK_BACKWARD, c->real[DY]);
  const void *third = (char *)c->real[SUMS] + (size_t)(2 * c->channels) * m->device->real;
  assert_reals(m, "dbeta", third, dbeta, c->channels, 1e-6);
}

/* A row by itself gives the bytes that it gives among others. */
static void statistics_never_see_other_rows(struct memory *m) {
  const struct draw d = shaped((const int64_t[]){40, 3, 4}, MN_OP_ALL, MN_BLOCK);
  struct block_case *c = open_case(m, &d);
  for (int64_t i = 0; i < c->count[D]; i++) c->v[D][i] *= 1 + (double)(i / c->channels);
  upload(c);
  apply(c, MN_BLOCK, c->real[D]);
  const double *y = kept_reals(m, c->y.real, c->count[Y]);
  for (int64_t n = 0; n < d.rows; n += 13) {
    c->rows = c->block.rows = c->y.rows = 1;
    apply(c, MN_BLOCK, take_reals(m, c->v[D] + n * c->channels, c->channels));
    const double *alone = kept_reals(m, c->y.real, c->channels);
    assert_memory_equal(alone, y + n * c->channels, (size_t)c->channels * sizeof *y);
  }
}

/* ---- values that are not finite, and those that planes cannot hold ---- */

/* A variance that overflows makes the group NaN, though every z is finite; a row that is almost as large
 * stays as it is. */
static void overflowing_variances_raise_the_flag(struct memory *m) {
  for (size_t i = 0; i < 4 * COUNT(shapes); i++) {
    const struct draw d = shaped(shapes[i / 4], MN_OP_ALL, i / 2 % 2 ? MN_BLOCK_LOSS : MN_BLOCK);
    struct block_case *c = open_case(m, &d);
    const double most = m->device->real == 8 ? 9e153 : 1e19;
    const int64_t last = c->count[D] - 1;
    const int over = i % 2 && c->width > 1;
    if (c->width > 1) c->v[D][last] = over ? 3 * most : most, c->v[D][last - 1] = -c->v[D][last];
    c->scale = 0.7;
    upload(c);
    apply(c, i / 2 % 2 ? MN_BLOCK_LOSS : MN_BLOCK, c->real[D]);
    assert_int_equal(flag_of(m->device), over);
    assert_true(isnan(kept_reals(m, c->y.real, last + 1)[last]) == over);
    release_all(m);
  }
}

/* The flag goes up for a NaN or an infinity in any place, and only then. */
static void check_nonfinite(struct memory *m, const struct draw *d, double bad) {
  const enum mn_epilogue_kind kind = (enum mn_epilogue_kind)d->kind;
  const int64_t count = d->rows * columns_of(d);
  for (int64_t place = count - 1; place >= 0; place -= 1 + count / 4) {
    struct block_case *c = open_case(m, d);
    upload(c);
    if (kind == MN_BLOCK_BACKWARD) apply(c, MN_BLOCK, c->real[D]);
    assert_int_equal(flag_of(m->device), 0);
    double *values = c->v[kind == MN_BLOCK_BACKWARD ? DY : D];
    values[place] = bad;
    apply(c, kind, take_reals(m, values, count));
    assert_int_equal(flag_of(m->device), !isfinite(bad));
    release_all(m);
  }
}

static void nonfinite_values_raise_the_flag(struct memory *m) {
  static const int64_t some[][3] = {{33, 3, 16}, {3, 5, 7}, {5, 2, 300}, {1, 1, 33}, {35, 2, 4}};
  static const enum mn_epilogue_kind kinds[] = {MN_BLOCK, MN_BLOCK_LOSS, MN_BLOCK_BACKWARD};
  static const double values[] = {NAN, INFINITY, -INFINITY, 1};
  for (size_t i = 0; i < 3 * 4 * COUNT(some); i++) {
    const struct draw d = shaped(some[i / 12], MN_OP_ALL, kinds[i / 4 % 3]);
    check_nonfinite(m, &d, values[i % 4]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_EACH(EVERY, blocks_follow_their_formulas),
      IN_EACH(EVERY, blocks_have_edges),
      IN_EACH(EVERY, blocks_stand_behind_products),
      IN_EACH(FP32, variance_is_centred),
      IN_EACH(WIDTHS, constant_group_gives_beta),
      IN_EACH(WIDTHS, at_zero_the_slope_counts),
      IN_EACH(WIDTHS, statistics_never_see_other_rows),
      IN_EACH(WIDTHS, overflowing_variances_raise_the_flag),
      IN_EACH(WIDTHS | SCALED, nonfinite_values_raise_the_flag),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
