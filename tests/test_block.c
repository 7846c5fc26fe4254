/* The block's epilogues, forward, backward and with the loss, on every device there is: against the formulas
 * in plain double arithmetic, the group's Jacobian written out instead of the kernels' two means. */
#include "tests/check.h"

/* Sizes, ops and inputs of one check, and what plain arithmetic says about them. */
struct block_case {
  unsigned ops;
  int64_t rows, channels, groups;
  double eps, slope, scale;
  double *d, *bias, *gamma, *beta, *dy, *target;
  double *z, *mean, *rstd, *y, *dz, *sums[3], *parts; /* sums: dbias, dgamma, dbeta */
};

static void normalise_reference(struct block_case *c, int64_t n, int64_t k) {
  int64_t width = c->channels / c->groups, at = n * c->channels + k * width;
  long double mean = 0, variance = 0;
  for (int64_t i = at; i < at + width; i++) mean += c->z[i];
  mean /= width;
  for (int64_t i = at; i < at + width; i++) variance += (c->z[i] - mean) * (c->z[i] - mean);
  c->mean[n * c->groups + k] = (double)mean;
  c->rstd[n * c->groups + k] = 1 / sqrt((double)(variance / width) + c->eps);
}

static double v_reference(const struct block_case *c, int64_t n, int64_t channel, double *standardised) {
  int64_t group = n * c->groups + channel / (c->channels / c->groups);
  double z = c->z[n * c->channels + channel];
  *standardised = (z - c->mean[group]) * c->rstd[group];
  return c->ops & MN_OP_NORM ? *standardised * c->gamma[channel] + c->beta[channel] : z;
}

static double y_reference(const struct block_case *c, double v) {
  double a = c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope * v : v;
  return c->ops & MN_OP_SUM ? 2 * a : a;
}

/* dL/dv. */
static double g_reference(const struct block_case *c, int64_t n, int64_t channel, double dy) {
  double unused, v = v_reference(c, n, channel, &unused);
  return dy * (c->ops & MN_OP_SUM ? 2 : 1) * (c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope : 1);
}

static void forward_reference(struct block_case *c) {
  for (int64_t n = 0; n < c->rows; n++) {
    for (int64_t i = 0; i < c->channels; i++)
      c->z[n * c->channels + i] = c->d[n * c->channels + i] + (c->ops & MN_OP_BIAS ? c->bias[i] : 0);
    for (int64_t k = 0; k < c->groups; k++) normalise_reference(c, n, k);
    for (int64_t i = 0; i < c->channels; i++) {
      double unused;
      c->y[n * c->channels + i] = y_reference(c, v_reference(c, n, i, &unused));
    }
  }
}

/* dL/dz_i = Σ_j over the group  h_j·∂ẑ_j/∂z_i,  ∂ẑ_j/∂z_i = rstd·(δ_ij − 1/D − ẑ_i·ẑ_j/D): the Jacobian
 * written out, which is another way than the kernels' m1 and m2. */
static void backward_reference(struct block_case *c, const double *dy) {
  int64_t width = c->channels / c->groups;
  for (int64_t n = 0; n < c->rows; n++)
    for (int64_t i = 0; i < c->channels; i++) {
      double *dz = &c->dz[n * c->channels + i], own, other, unused = v_reference(c, n, i, &own);
      double g = g_reference(c, n, i, dy[n * c->channels + i]);
      (void)unused;
      c->sums[1][i] += g * own;
      c->sums[2][i] += g;
      *dz = c->ops & MN_OP_NORM ? 0 : g;
      int64_t first = i / width * width, last = c->ops & MN_OP_NORM ? first + width : first;
      for (int64_t j = first; j < last; j++) {
        v_reference(c, n, j, &other);
        double h = g_reference(c, n, j, dy[n * c->channels + j]) * c->gamma[j];
        *dz += c->rstd[n * c->groups + i / width] * h * ((i == j) - (1 + own * other) / (double)width);
      }
      c->sums[0][i] += *dz;
    }
}

/* dy of the squared error, and its parts. */
static void loss_reference(struct block_case *c) {
  int64_t width = c->channels / c->groups, count = c->rows * c->channels;
  for (int64_t i = 0; i < count; i++) {
    double error = c->y[i] - c->target[i];
    c->dy[i] = c->scale * 2 * error / (double)count;
    c->parts[i / c->channels * c->groups + i % c->channels / width] += error * error;
  }
}

static struct block_case open_case(unsigned ops, int64_t rows, int64_t channels, int64_t groups) {
  int64_t count = rows * channels;
  uint64_t seed = (uint64_t)(rows * 1009 + channels * 31 + groups);
  struct block_case c = {.ops = ops,
                         .rows = rows,
                         .channels = channels,
                         .groups = ops & MN_OP_NORM ? groups : 1,
                         .eps = 1e-3,
                         .slope = 0.1,
                         .scale = 0.7,
                         .d = random_values(count, seed, 2),
                         .bias = random_values(channels, seed + 1, 1),
                         .gamma = random_values(channels, seed + 2, 2),
                         .beta = random_values(channels, seed + 3, 1),
                         .dy = random_values(count, seed + 4, 1),
                         .target = random_values(count, seed + 5, 1),
                         .z = zeros(count),
                         .mean = zeros(rows * groups),
                         .rstd = zeros(rows * groups),
                         .y = zeros(count),
                         .dz = zeros(count),
                         .sums = {zeros(channels), zeros(channels), zeros(channels)},
                         .parts = zeros(rows * groups)};
  return c;
}

static void close_case(struct block_case *c) {
  double *const all[] = {c->d,    c->bias, c->gamma, c->beta,  c->dy,      c->target,  c->z,      c->mean,
                         c->rstd, c->y,    c->dz,    c->parts, c->sums[0], c->sums[1], c->sums[2]};
  for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
}

/* The case on the device. `block` points into itself, so it stays where it is. */
struct device_case {
  struct memory m;
  struct mn_operand y, dz;
  struct mn_block block;
  void *dy;
};

static void upload_case(struct device_case *t, const struct block_case *c) {
  int64_t count = c->rows * c->channels, chunks = mn_chunks(c->rows);
  t->y = t->dz = (struct mn_operand){.rows = c->rows, .cols = c->channels};
  t->y.real = take_reals(&t->m, NULL, count);
  t->dz.real = take_reals(&t->m, NULL, count);
  t->dy = take_reals(&t->m, c->dy, count);
  t->block = (struct mn_block){.ops = c->ops,
                               .rows = c->rows,
                               .channels = c->channels,
                               .groups = c->groups,
                               .eps = c->eps,
                               .slope = c->slope,
                               .bias = take_reals(&t->m, c->bias, c->channels),
                               .gamma = take_reals(&t->m, c->gamma, c->channels),
                               .beta = take_reals(&t->m, c->beta, c->channels),
                               .z = take_reals(&t->m, c->ops & MN_OP_BIAS ? NULL : c->d, count),
                               .mean = take_reals(&t->m, NULL, c->rows * c->groups),
                               .rstd = take_reals(&t->m, NULL, c->rows * c->groups),
                               .y = &t->y,
                               .target = take_reals(&t->m, c->target, count),
                               .scale = c->scale,
                               .loss_parts = take_reals(&t->m, NULL, c->rows * c->groups),
                               .dz = &t->dz,
                               .sums = take_reals(&t->m, NULL, 3 * chunks * c->channels)};
}

/* Applies the epilogue `kind` to d. */
static void apply(struct device_case *t, enum mn_epilogue_kind kind, void *d) {
  struct mn_device *device = t->m.device;
  struct mn_epilogue epilogue = {.kind = kind, .block = &t->block};
  MUST(device->kernels->epilogue(device, d, t->block.rows, t->block.channels, &epilogue));
}

static void assert_backward(struct device_case *t, const struct block_case *c, double tolerance) {
  struct mn_device *device = t->m.device;
  static const char *const names[] = {"dbias", "dgamma", "dbeta"};
  struct mn_epilogue stores[3];
  const struct mn_epilogue *sinks[3] = {0};
  for (int i = 0; i < 3; i++) {
    stores[i] = (struct mn_epilogue){.kind = MN_STORE, .into = take_reals(&t->m, NULL, c->channels)};
    if (c->ops & (i ? MN_OP_NORM : MN_OP_BIAS)) sinks[i] = &stores[i];
  }
  MUST(device->kernels->column_sums(device, t->block.sums, mn_chunks(c->rows), c->channels, sinks, NULL));
  assert_reals(&t->m, "dz", t->dz.real, c->dz, c->rows * c->channels, tolerance);
  for (int i = 0; i < 3; i++)
    if (sinks[i]) assert_reals(&t->m, names[i], stores[i].into, c->sums[i], c->channels, tolerance);
}

static void check_block(struct mn_device *device, struct block_case c) {
  double tolerance = tolerance_of(device);
  struct device_case t = {.m.device = device};
  int64_t count = c.rows * c.channels;
  forward_reference(&c);
  backward_reference(&c, c.dy);
  upload_case(&t, &c);
  apply(&t, MN_BLOCK, c.ops & MN_OP_BIAS ? take_reals(&t.m, c.d, count) : t.block.z);
  assert_reals(&t.m, "z", t.block.z, c.z, count, tolerance);
  if (c.ops & MN_OP_NORM) {
    assert_reals(&t.m, "mean", t.block.mean, c.mean, c.rows * c.groups, tolerance);
    assert_reals(&t.m, "rstd", t.block.rstd, c.rstd, c.rows * c.groups, tolerance);
  }
  assert_reals(&t.m, "y", t.y.real, c.y, count, tolerance);
  apply(&t, MN_BLOCK_BACKWARD, t.dy);
  assert_backward(&t, &c, tolerance);
  release_all(&t.m);
  close_case(&c);
}

static void check_block_loss(struct mn_device *device, struct block_case c) {
  struct device_case t = {.m.device = device};
  forward_reference(&c);
  loss_reference(&c);
  backward_reference(&c, c.dy);
  upload_case(&t, &c);
  t.y.real = NULL; /* nobody asks for y */
  apply(&t, MN_BLOCK_LOSS, take_reals(&t.m, c.d, c.rows * c.channels));
  assert_reals(&t.m, "loss parts", t.block.loss_parts, c.parts, c.rows * c.groups, tolerance_of(device));
  assert_backward(&t, &c, tolerance_of(device));
  release_all(&t.m);
  close_case(&c);
}

/* Rows, channels, groups: one of all, one channel a group, odd, wide, several chunks of rows. */
static const int64_t shapes[][3] = {{1, 1, 1},   {1, 6, 6},   {3, 5, 5},   {7, 15, 3},
                                    {1, 300, 1}, {33, 7, 1},  {70, 24, 8}, {5, 1026, 2},
                                    {65, 9, 3},  {32, 64, 4}, {2, 96, 32}};

static void block_follows_its_formulas(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    for (size_t i = 0; i < COUNT(shapes); i++) {
      check_block(device, open_case(MN_OP_ALL, shapes[i][0], shapes[i][1], shapes[i][2]));
      check_block_loss(device, open_case(MN_OP_ALL, shapes[i][0], shapes[i][1], shapes[i][2]));
    }
    mn_device_close(device);
  }
}

/* Every run of ops that a plan has. */
static void stages_follow_their_formulas(void **state) {
  enum { BIAS = MN_OP_BIAS, NORM = MN_OP_NORM, ACTIVATE = MN_OP_ACTIVATE, SUM = MN_OP_SUM };
  static const unsigned runs[] = {
      BIAS, NORM, ACTIVATE, ACTIVATE | SUM, NORM | ACTIVATE, NORM | ACTIVATE | SUM, BIAS | NORM};
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    for (size_t i = 0; i < COUNT(runs); i++) {
      check_block(device, open_case(runs[i], 35, 24, 4));
      check_block(device, open_case(runs[i], 3, 5, 5));
      check_block(device, open_case(runs[i], 1, 7, 1));
    }
    mn_device_close(device);
  }
}

/* The results in the buffers that a tape shares are the ones of separate buffers. */
static void block_works_in_place(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    struct block_case c = open_case(MN_OP_ALL, 37, 12, 3);
    struct device_case t = {.m.device = device};
    double tolerance = tolerance_of(device);
    int64_t count = c.rows * c.channels;
    forward_reference(&c);
    backward_reference(&c, c.dy);
    upload_case(&t, &c);
    MUST(mn_device_write(device, t.block.z, c.d, count));
    apply(&t, MN_BLOCK, t.block.z); /* the product stands in z */
    assert_reals(&t.m, "z", t.block.z, c.z, count, tolerance);
    assert_reals(&t.m, "y", t.y.real, c.y, count, tolerance);
    t.dz.real = t.dy; /* dz over dy */
    apply(&t, MN_BLOCK_BACKWARD, t.dy);
    assert_backward(&t, &c, tolerance);
    t.dy = take_reals(&t.m, c.dy, count);
    t.dz.real = t.block.z; /* dz over z */
    apply(&t, MN_BLOCK_BACKWARD, t.dy);
    for (int i = 0; i < 3; i++) memset(c.sums[i], 0, (size_t)c.channels * sizeof(double));
    backward_reference(&c, c.dy);
    assert_backward(&t, &c, tolerance);
    release_all(&t.m);
    close_case(&c);
    mn_device_close(device);
  }
}

/* Whether or not z, mean and rstd are saved, the results are the same bytes. */
static void what_is_saved_changes_nothing(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    for (size_t i = 0; i < COUNT(shapes); i++)
      for (int loss = 0; loss < 2; loss++) {
        struct block_case c = open_case(MN_OP_ALL, shapes[i][0], shapes[i][1], shapes[i][2]);
        int64_t count = c.rows * c.channels;
        double *results[2];
        for (int saved = 0; saved < 2; saved++) {
          struct device_case t = {.m.device = device};
          upload_case(&t, &c);
          if (!saved) t.block.z = t.block.mean = t.block.rstd = NULL;
          apply(&t, loss ? MN_BLOCK_LOSS : MN_BLOCK, take_reals(&t.m, c.d, count));
          results[saved] = read_reals(&t.m, loss ? t.dz.real : t.y.real, count);
          release_all(&t.m);
        }
        assert_true(isfinite(results[0][0]));
        assert_memory_equal(results[0], results[1], (size_t)count * sizeof(double));
        free(results[0]);
        free(results[1]);
        close_case(&c);
      }
    mn_device_close(device);
  }
}

/* z far from 0: the variance is of what is left when the mean is gone. E[z²] − E[z]² in float has nothing
 * left of it at all. */
static void variance_is_centred(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct block_case c = open_case(MN_OP_ALL, 6, 64, 4);
  struct device_case t = {.m.device = device};
  c.eps = 1e-5;
  for (int64_t i = 0; i < c.rows * c.channels; i++) c.d[i] = (float)(1e4 + 0.25 * c.d[i]);
  for (int64_t i = 0; i < c.channels; i++) c.bias[i] = 0;
  forward_reference(&c);
  upload_case(&t, &c);
  apply(&t, MN_BLOCK, take_reals(&t.m, c.d, c.rows * c.channels));
  assert_reals(&t.m, "rstd", t.block.rstd, c.rstd, c.rows * c.groups, 1e-3);
  /* The mean is within a unit of 1e4's last place, 2⁻¹⁰, of a deviation of 0.29. */
  assert_reals(&t.m, "y", t.y.real, c.y, c.rows * c.channels, 1e-2);
  release_all(&t.m);
  close_case(&c);
  mn_device_close(device);
}

/* Equal values in a group give v = beta, whatever they are. */
static void constant_group_gives_beta(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    struct block_case c = open_case(MN_OP_ALL, 3, 8, 2);
    struct device_case t = {.m.device = device};
    for (int64_t i = 0; i < c.rows * c.channels; i++) c.d[i] = 3.5;
    for (int64_t i = 0; i < c.channels; i++) c.bias[i] = 0.25;
    upload_case(&t, &c);
    apply(&t, MN_BLOCK, take_reals(&t.m, c.d, c.rows * c.channels));
    for (int64_t i = 0; i < c.rows * c.channels; i++) c.y[i] = y_reference(&c, c.beta[i % c.channels]);
    assert_reals(&t.m, "y", t.y.real, c.y, c.rows * c.channels, 1e-7);
    release_all(&t.m);
    close_case(&c);
    mn_device_close(device);
  }
}

/* At v = 0 the gradient is the slope's, as PyTorch's: constant groups with beta 0 put every v there. */
static void at_zero_the_slope_counts(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    struct block_case c = open_case(MN_OP_ALL, 3, 8, 2);
    struct device_case t = {.m.device = device};
    double *dbeta = c.sums[2];
    for (int64_t i = 0; i < c.rows * c.channels; i++)
      c.d[i] = 3.5, dbeta[i % c.channels] += 2 * c.slope * c.dy[i];
    for (int64_t i = 0; i < c.channels; i++) c.bias[i] = 0.25, c.beta[i] = 0;
    upload_case(&t, &c);
    apply(&t, MN_BLOCK, take_reals(&t.m, c.d, c.rows * c.channels));
    apply(&t, MN_BLOCK_BACKWARD, t.dy);
    struct mn_epilogue store = {.kind = MN_STORE, .into = take_reals(&t.m, NULL, c.channels)};
    const struct mn_epilogue *sinks[3] = {NULL, NULL, &store};
    MUST(device->kernels->column_sums(device, t.block.sums, 1, c.channels, sinks, NULL));
    assert_reals(&t.m, "dbeta", store.into, dbeta, c.channels, 1e-6);
    release_all(&t.m);
    close_case(&c);
    mn_device_close(device);
  }
}

/* A row by itself gives the bytes that it gives among others. */
static void statistics_never_see_other_rows(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    struct block_case c = open_case(MN_OP_ALL, 40, 12, 3);
    for (int64_t i = 0; i < c.rows * c.channels; i++) c.d[i] *= 1 + (double)(i / c.channels);
    struct device_case all = {.m.device = device}, one = {.m.device = device};
    upload_case(&all, &c);
    apply(&all, MN_BLOCK, take_reals(&all.m, c.d, c.rows * c.channels));
    double *y = read_reals(&all.m, all.y.real, c.rows * c.channels);
    int64_t rows = c.rows;
    c.rows = 1;
    upload_case(&one, &c);
    for (int64_t n = 0; n < rows; n += 13) {
      apply(&one, MN_BLOCK, take_reals(&one.m, c.d + n * c.channels, c.channels));
      double *alone = read_reals(&one.m, one.y.real, c.channels);
      assert_memory_equal(alone, y + n * c.channels, (size_t)c.channels * sizeof *y);
      free(alone);
    }
    free(y);
    release_all(&all.m);
    release_all(&one.m);
    close_case(&c);
    mn_device_close(device);
  }
}

static int flag_of(struct mn_device *device) {
  int flag = 0;
  MUST(device->kernels->download(device, &flag, device->nonfinite, sizeof flag));
  MUST(device->kernels->zero(device, device->nonfinite, sizeof flag));
  return flag;
}

/* A variance that overflows makes the group NaN, though every z is finite; a row that is almost as large
 * stays as it is. */
static void overflowing_variances_raise_the_flag(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++)
    for (size_t i = 0; i < COUNT(shapes); i++)
      for (int over = 0; over < 2; over++)
        for (int loss = 0; loss < 2; loss++) {
          struct mn_device *device = open_or_skip(*state, widths[w]);
          struct block_case c = open_case(MN_OP_ALL, shapes[i][0], shapes[i][1], shapes[i][2]);
          struct device_case t = {.m.device = device};
          const double most = device->real == 8 ? 9e153 : 1e19;
          const int64_t width = c.channels / c.groups, last = c.rows * c.channels - 1;
          if (width > 1) c.d[last] = over ? 3 * most : most, c.d[last - 1] = -c.d[last];
          upload_case(&t, &c);
          (void)flag_of(device);
          apply(&t, loss ? MN_BLOCK_LOSS : MN_BLOCK, take_reals(&t.m, c.d, c.rows * c.channels));
          assert_int_equal(flag_of(device), over && width > 1);
          double *y = read_reals(&t.m, t.y.real, c.rows * c.channels);
          assert_true(isnan(y[last]) == (over && width > 1));
          free(y);
          release_all(&t.m);
          close_case(&c);
          mn_device_close(device);
        }
}

/* The flag goes up for a NaN or an infinity in any place, and only then. */
static void nonfinite_values_raise_the_flag(void **state) {
  static const double bad[] = {NAN, INFINITY, -INFINITY};
  struct mn_device *device = open_or_skip(*state, "fp32");
  for (int kind = 0; kind < 4; kind++)
    for (int64_t at = 0; at < 35 * 8; at += 93) {
      struct block_case c = open_case(MN_OP_ALL, 35, 8, 2);
      struct device_case t = {.m.device = device};
      if (kind < 3) c.d[at] = bad[kind];
      upload_case(&t, &c);
      (void)flag_of(device);
      apply(&t, MN_BLOCK, take_reals(&t.m, c.d, c.rows * c.channels));
      assert_int_equal(flag_of(device), kind < 3);
      release_all(&t.m);
      close_case(&c);
    }
  mn_device_close(device);
}

#define BOTH(test) ON("cpu", test), ON("cuda", test)

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(block_follows_its_formulas),
      BOTH(stages_follow_their_formulas),
      BOTH(block_works_in_place),
      BOTH(what_is_saved_changes_nothing),
      BOTH(variance_is_centred),
      BOTH(constant_group_gives_beta),
      BOTH(at_zero_the_slope_counts),
      BOTH(statistics_never_see_other_rows),
      BOTH(nonfinite_values_raise_the_flag),
      BOTH(overflowing_variances_raise_the_flag),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
