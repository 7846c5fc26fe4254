/* The block's epilogues, forward, backward and with the loss, in every precision on every device: against
 * the formulas in plain double arithmetic, the group's Jacobian written out in place of the two means. */
#include "kernels/planes.h"
#include "tests/products.h"

struct shape {
  int64_t rows, groups, width;
};

/* Ops, sizes and inputs of one check, and what plain arithmetic says about them. */
struct block_case {
  unsigned ops;
  int64_t rows, channels, groups, given; /* given: groups, which are not read without MN_OP_NORM */
  double eps, slope, scale;
  size_t real; /* z is rounded to it, as a device's is */
  double *d, *bias, *gamma, *beta, *dy, *target;
  double *z, *mean, *rstd, *y, *dz, *sums, *parts; /* sums: [3, chunks, C] of dbias, dgamma, dbeta */
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
static double g_reference(const struct block_case *c, int64_t n, int64_t channel, double *standardised) {
  double v = v_reference(c, n, channel, standardised), dy = c->dy[n * c->channels + channel];
  return dy * (c->ops & MN_OP_SUM ? 2 : 1) * (c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope : 1);
}

static double rounded(const struct block_case *c, double value) {
  return c->real == sizeof(double) ? value : (float)value;
}

/* Where v is so near to 0 that rounding may move it across, no gradient is right on both sides: dy is 0
 * there, and the target what is expected. */
static void avoid_kink(struct block_case *c, int64_t n, int64_t i, double v) {
  const double rstd = c->ops & MN_OP_NORM ? c->rstd[n * c->groups + i / (c->channels / c->groups)] : 0;
  if (fabs(v) > 1e-6 * (1 + rstd)) return;
  c->dy[n * c->channels + i] = 0;
  c->target[n * c->channels + i] = y_reference(c, v);
}

static void forward_reference(struct block_case *c) {
  for (int64_t n = 0; n < c->rows; n++) {
    for (int64_t i = 0; i < c->channels; i++)
      c->z[n * c->channels + i] =
          rounded(c, c->d[n * c->channels + i] + (c->ops & MN_OP_BIAS ? c->bias[i] : 0));
    for (int64_t k = 0; k < c->groups; k++) normalise_reference(c, n, k);
    for (int64_t i = 0; i < c->channels; i++) {
      double unused, v = v_reference(c, n, i, &unused);
      c->y[n * c->channels + i] = y_reference(c, v);
      if (v != 0) avoid_kink(c, n, i, v);
    }
  }
}

/* dL/dz_i = Σ_j over the group  h_j·∂ẑ_j/∂z_i,  ∂ẑ_j/∂z_i = rstd·(δ_ij − 1/D − ẑ_i·ẑ_j/D): the Jacobian
 * written out, which is another way than the kernels' m1 and m2. */
static double dz_reference(const struct block_case *c, int64_t n, int64_t i, const double *h,
                           const double *own) {
  const int64_t width = c->channels / c->groups, first = i / width * width;
  double dz = h[i];
  if (!(c->ops & MN_OP_NORM)) return dz;
  for (int64_t j = first; j < first + width; j++) dz -= h[j] * ((1 + own[i] * own[j]) / (double)width);
  return dz * c->rstd[n * c->groups + i / width];
}

static void backward_reference(struct block_case *c) {
  const int64_t plane = mn_chunks(c->rows) * c->channels;
  double *h = zeros(c->channels), *own = zeros(c->channels);
  for (int64_t n = 0; n < c->rows; n++) {
    double *dz = c->dz + n * c->channels, *sums = c->sums + n / MN_CHUNK_ROWS * c->channels;
    for (int64_t i = 0; i < c->channels; i++) {
      const double g = g_reference(c, n, i, &own[i]);
      h[i] = g * (c->ops & MN_OP_NORM ? c->gamma[i] : 1);
      sums[plane + i] += g * own[i], sums[2 * plane + i] += g;
    }
#pragma omp parallel for
    for (int64_t i = 0; i < c->channels; i++) sums[i] += dz[i] = dz_reference(c, n, i, h, own);
  }
  free(h), free(own);
}

/* dy of the squared error, and its parts. */
static void loss_reference(struct block_case *c) {
  int64_t width = c->channels / c->groups, count = c->rows * c->channels;
  for (int64_t i = 0; i < count; i++) {
    double unused, v = v_reference(c, i / c->channels, i % c->channels, &unused);
    double error = y_reference(c, v) - c->target[i];
    c->dy[i] = c->scale * 2 * error / (double)count;
    c->parts[i / c->channels * c->groups + i % c->channels / width] += error * error;
  }
}

static struct block_case open_case(const struct mn_device *device, unsigned ops, struct shape at) {
  const int64_t channels = at.groups * at.width, count = at.rows * channels, groups = at.rows * at.groups;
  const uint64_t seed = (uint64_t)(at.rows * 1009 + channels * 31 + at.groups);
  struct block_case c = {.ops = ops,
                         .rows = at.rows,
                         .channels = channels,
                         .groups = ops & MN_OP_NORM ? at.groups : 1,
                         .given = at.groups,
                         .eps = 1e-5,
                         .slope = 0.01,
                         .scale = (double)count / 4,
                         .real = device->real,
                         .d = random_values(count, seed, 2),
                         .bias = random_values(channels, seed + 1, 1),
                         .gamma = random_values(channels, seed + 2, 2),
                         .beta = random_values(channels, seed + 3, 1),
                         .dy = random_values(count, seed + 4, 1),
                         .target = random_values(count, seed + 5, 2),
                         .z = zeros(count),
                         .mean = zeros(groups),
                         .rstd = zeros(groups),
                         .y = zeros(count),
                         .dz = zeros(count),
                         .sums = zeros(3 * mn_chunks(at.rows) * channels),
                         .parts = zeros(groups)};
  return c;
}

static void close_case(struct block_case *c) {
  double *const all[] = {c->d,    c->bias, c->gamma, c->beta, c->dy,    c->target, c->z,
                         c->mean, c->rstd, c->y,     c->dz,   c->parts, c->sums};
  for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
}

/* The case on the device, d in memory of its own. `block` points into itself, so it stays where it is. */
struct device_case {
  struct memory m;
  struct mn_operand y, dz;
  struct mn_block block;
  void *d, *dy;
  char what[120];
};

/* Planes without scales are y's too, and those with where the block's norm bounds them. */
static void upload_case(struct device_case *t, const struct block_case *c) {
  const int64_t count = c->rows * c->channels;
  struct memory *m = &t->m;
  snprintf(t->what, sizeof t->what, "%s, %ld rows, %ld channels, %ld groups, ops %u",
           mn_precision_name(m->device->precision), (long)c->rows, (long)c->channels, (long)c->given, c->ops);
  t->y = t->dz = (struct mn_operand){.rows = c->rows, .cols = c->channels};
  t->y.real = take_reals(m, NULL, count);
  t->dz.real = take_reals(m, NULL, count);
  if (!m->device->scaled || c->ops & MN_OP_NORM) take_planes(m, &t->y, 0x1p-5f);
  take_planes(m, &t->dz, 4);
  t->d = take_reals(m, c->d, count);
  t->dy = take_reals(m, c->dy, count);
  t->block = (struct mn_block){.ops = c->ops,
                               .rows = c->rows,
                               .channels = c->channels,
                               .groups = c->given,
                               .eps = c->eps,
                               .slope = c->slope,
                               .bias = take_reals(m, c->bias, c->channels),
                               .gamma = take_reals(m, c->gamma, c->channels),
                               .beta = take_reals(m, c->beta, c->channels),
                               .z = c->ops & MN_OP_BIAS ? take_reals(m, NULL, count) : t->d,
                               .mean = take_reals(m, NULL, c->rows * c->groups),
                               .rstd = take_reals(m, NULL, c->rows * c->groups),
                               .y = &t->y,
                               .target = take_reals(m, c->target, count),
                               .scale = c->scale,
                               .loss_parts = take_reals(m, NULL, c->rows * c->groups),
                               .dz = &t->dz,
                               .sums = take_reals(m, NULL, 3 * mn_chunks(c->rows) * c->channels)};
}

/* Applies the epilogue `kind` to d. */
static void apply(struct device_case *t, enum mn_epilogue_kind kind, void *d) {
  struct mn_epilogue e = {.kind = kind, .into = d, .block = &t->block};
  MUST(t->m.device->kernels->epilogue(t->m.device, d, t->block.rows, t->block.channels, &e));
}

/* Each within the tolerance, or, of means, within that of the values that they are taken from. */
static void assert_each(const struct device_case *t, const void *reals, const double *e, int64_t count,
                        double tolerance, const double *rstd) {
  double *a = read_reals(&t->m, reals, count);
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(a[i] - e[i]) <= tolerance * (rstd ? fabs(e[i]) + 1 / rstd[i] : 1)))
      fail_msg("%s: element %ld is %g, not %g", t->what, (long)i, a[i], e[i]);
  free(a);
}

static void assert_forward(const struct device_case *t, const struct block_case *c) {
  const int64_t count = c->rows * c->channels, groups = c->rows * c->groups;
  const double tolerance = tolerance_of(t->m.device);
  if (t->y.real) assert_reals(&t->m, t->what, t->y.real, c->y, count, tolerance);
  if (t->y.real) assert_planes(t->m.device, t->what, &t->y);
  assert_reals(&t->m, t->what, t->block.z, c->z, count, tolerance);
  if (!(c->ops & MN_OP_NORM)) return;
  assert_reals(&t->m, t->what, t->block.rstd, c->rstd, groups, tolerance);
  assert_each(t, t->block.mean, c->mean, groups, tolerance, c->rstd);
}

/* The sums of what is not in ops are left alone. Where a group has two channels or one, dz is 0 but for
 * rounding: the size that counts is the one of the terms that cancel, rstd·h. */
static void assert_backward(const struct device_case *t, const struct block_case *c) {
  const int64_t plane = mn_chunks(c->rows) * c->channels, count = c->rows * c->channels;
  const int norm = c->ops & MN_OP_NORM, cancels = norm && c->channels / c->groups <= 2;
  double *sums = read_reals(&t->m, t->block.sums, 3 * plane), most = 0, tolerance = tolerance_of(t->m.device);
  assert_planes(t->m.device, t->what, &t->dz);
  if (t->dz.scale) assert_true(get_scale(t->m.device, t->dz.scale).largest == largest_real(&t->m, &t->dz));
  for (int64_t i = 0; norm && i < c->rows * c->groups; i++) most = fmax(most, c->rstd[i]);
  if (cancels)
    assert_each(t, t->dz.real, c->dz, count, 100 * tolerance * (1 + most), NULL);
  else
    assert_reals(&t->m, t->what, t->dz.real, c->dz, count, tolerance);
  for (int q = 0; q < 3; q++) {
    const double *found = sums + q * plane;
    if (!(c->ops & (q ? MN_OP_NORM : MN_OP_BIAS)))
      for (int64_t i = 0; i < plane; i++) assert_true(isnan(found[i]));
    else if (q || !cancels)
      assert_close(t->what, found, c->sums + q * plane, plane, 2 * tolerance);
  }
  free(sums);
}

enum alias { APART, DY_TAKES_DZ, Z_TAKES_DZ, D_TAKES_Z };

/* Forward, then backward from the reference's z, mean and rstd, so that both stand on the same side of every
 * kink. A scaled y has the factor that suits it, or, in place, the one that is there. */
static void check_block(struct mn_device *device, unsigned ops, struct shape at, enum alias alias) {
  struct block_case c = open_case(device, ops, at);
  struct device_case t = {.m.device = device};
  const int64_t count = c.rows * c.channels, groups = c.rows * c.groups;
  forward_reference(&c);
  upload_case(&t, &c);
  if (alias == D_TAKES_Z) t.block.z = t.d;
  if (t.y.scale && alias == APART) MUST(device->kernels->rescale(device, NULL, t.y.scale, &t.block));
  apply(&t, MN_BLOCK, t.d);
  assert_forward(&t, &c);
  if (t.y.scale) assert_true(largest_real(&t.m, &t.y) * get_scale(device, t.y.scale).factor < 0x1p15);
  for (int64_t i = 0; i < groups; i++) c.mean[i] = rounded(&c, c.mean[i]), c.rstd[i] = rounded(&c, c.rstd[i]);
  MUST(mn_device_write(device, t.block.z, c.z, count));
  if (ops & MN_OP_NORM) MUST(mn_device_write(device, t.block.mean, c.mean, groups));
  if (ops & MN_OP_NORM) MUST(mn_device_write(device, t.block.rstd, c.rstd, groups));
  backward_reference(&c);
  if (alias == DY_TAKES_DZ || alias == Z_TAKES_DZ) t.dz.real = alias == Z_TAKES_DZ ? t.block.z : t.dy;
  apply(&t, MN_BLOCK_BACKWARD, t.dy);
  assert_backward(&t, &c);
  assert_int_equal(flag_of(device), 0);
  release_all(&t.m);
  close_case(&c);
}

/* The gradients are held against those of the mean and rstd that were saved, whose errors they would show. */
static void check_block_loss(struct mn_device *device, unsigned ops, struct shape at, int wants_y) {
  struct block_case c = open_case(device, ops, at);
  struct device_case t = {.m.device = device};
  forward_reference(&c);
  upload_case(&t, &c);
  if (!wants_y) t.y = (struct mn_operand){.rows = c.rows, .cols = c.channels};
  if (t.y.scale) MUST(device->kernels->rescale(device, NULL, t.y.scale, &t.block));
  apply(&t, MN_BLOCK_LOSS, t.d);
  assert_forward(&t, &c);
  if (ops & MN_OP_NORM) {
    MUST(mn_device_read(device, c.mean, t.block.mean, c.rows * c.groups));
    MUST(mn_device_read(device, c.rstd, t.block.rstd, c.rows * c.groups));
  }
  loss_reference(&c);
  backward_reference(&c);
  assert_reals(&t.m, t.what, t.block.loss_parts, c.parts, c.rows * c.groups, tolerance_of(device));
  assert_backward(&t, &c);
  assert_int_equal(flag_of(device), 0);
  release_all(&t.m);
  close_case(&c);
}

/* One of all, one channel a group, every kind of width, several chunks of rows. */
static const struct shape shapes[] = {
    {1, 1, 1},    {1, 3, 1},   {33, 5, 1},  {5, 3, 2},    {65, 3, 3},  {17, 9, 4},   {5, 3, 7},    {40, 5, 8},
    {40, 6, 12},  {1, 8, 16},  {70, 9, 16}, {32, 5, 32},  {33, 2, 33}, {9, 3, 64},   {9, 5, 66},   {9, 3, 96},
    {31, 2, 128}, {7, 3, 200}, {9, 3, 255}, {35, 2, 256}, {3, 2, 300}, {33, 3, 600}, {2, 1, 8192}, {1, 6, 1},
    {3, 5, 1},    {7, 3, 5},   {33, 1, 7},  {70, 8, 3},   {5, 2, 513}, {32, 4, 16},  {2, 32, 3},
};

/* Every subset of ops, in place and apart. The Jacobian of a wide group takes its time. */
static void blocks_follow_their_formulas(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct mn_device *device = open_or_skip(*state, mn_precision_name((enum mn_precision)p));
    if (!device) continue;
    for (size_t i = 0; i < COUNT(shapes); i++) {
      const int slow = !on_cuda(*state) && shapes[i].width > 32;
      if (slow && shapes[i].width > 513 && p != MN_FP32) continue;
      for (unsigned ops = 0; ops <= MN_OP_ALL; ops += quick() || slow ? 5 : 1)
        check_block(device, ops, shapes[i], APART), check_block_loss(device, ops, shapes[i], 1);
      check_block_loss(device, MN_OP_ALL, shapes[i], 0);
      for (int alias = DY_TAKES_DZ; alias <= D_TAKES_Z; alias++)
        check_block(device, MN_OP_ALL, shapes[i], (enum alias)alias);
    }
    mn_device_close(device);
  }
}

/* Pointers that are not multiples of 16 bytes, as a part of a matrix has: an odd number of reals in. */
static void a_result_need_not_be_aligned(void **state) {
  struct device_case t = {.m.device = open_or_skip(*state, "fp32")};
  struct block_case c = open_case(t.m.device, MN_OP_ALL, (struct shape){37, 6, 16});
  forward_reference(&c);
  upload_case(&t, &c);
  t.y.real = (float *)take_reals(&t.m, NULL, c.rows * c.channels + 1) + 1;
  apply(&t, MN_BLOCK, t.d);
  assert_forward(&t, &c);
  close_case(&c);
  close_memory(&t.m);
}

/* Whether or not z, mean and rstd are saved, the results are the same bytes. */
static void what_is_saved_changes_nothing(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct device_case t = {.m.device = open_or_skip(*state, widths[w])};
    for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
      struct block_case c = open_case(t.m.device, MN_OP_ALL, shapes[i / 2]);
      const int64_t count = c.rows * c.channels;
      double *results[2];
      for (int saved = 0; saved < 2; saved++) {
        upload_case(&t, &c);
        if (!saved) t.block.z = t.block.mean = t.block.rstd = NULL;
        apply(&t, i % 2 ? MN_BLOCK_LOSS : MN_BLOCK, t.d);
        results[saved] = read_reals(&t.m, i % 2 ? t.dz.real : t.y.real, count);
        release_all(&t.m);
      }
      assert_true(isfinite(results[0][0]));
      assert_memory_equal(results[0], results[1], (size_t)count * sizeof(double));
      free(results[0]), free(results[1]);
      close_case(&c);
    }
    close_memory(&t.m);
  }
}

/* z far from 0: the variance is of what is left when the mean is gone. E[z²] − E[z]² in float has nothing
 * left of it at all. */
static void variance_is_centred(void **state) {
  struct device_case t = {.m.device = open_or_skip(*state, "fp32")};
  struct block_case c = open_case(t.m.device, MN_OP_ALL, (struct shape){6, 4, 16});
  for (int64_t i = 0; i < c.rows * c.channels; i++) c.d[i] = (float)(1e4 + 0.25 * c.d[i]);
  for (int64_t i = 0; i < c.channels; i++) c.bias[i] = 0;
  forward_reference(&c);
  upload_case(&t, &c);
  apply(&t, MN_BLOCK, t.d);
  assert_reals(&t.m, "rstd", t.block.rstd, c.rstd, c.rows * c.groups, 1e-3);
  /* The mean is within a unit of 1e4's last place, 2⁻¹⁰, of a deviation of 0.29. */
  assert_reals(&t.m, "y", t.y.real, c.y, c.rows * c.channels, 1e-2);
  close_case(&c);
  close_memory(&t.m);
}

/* Equal values in a group give v = beta, to the bit, whatever they are and whatever the width. */
static void constant_group_gives_beta(void **state) {
  static const int64_t sizes[] = {1, 3, 4, 7, 12, 16, 33, 64, 128, 200, 256, 300, 1000};
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct device_case t = {.m.device = open_or_skip(*state, widths[w])};
    for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
      const unsigned ops = i % 2 ? MN_OP_ALL : MN_OP_NORM;
      struct block_case c = open_case(t.m.device, ops, (struct shape){40, 2, sizes[i / 2]});
      const int64_t count = c.rows * c.channels;
      for (int64_t k = 0; k < count; k++) {
        c.d[k] = i % 2 ? 3.5 : (float)(1000.1 + (double)(k / sizes[i / 2]));
        c.y[k] = y_reference(&c, c.beta[k % c.channels]);
      }
      for (int64_t k = 0; k < c.channels; k++) c.bias[k] = 0.25;
      upload_case(&t, &c);
      apply(&t, MN_BLOCK, t.d);
      assert_reals(&t.m, "y", t.y.real, c.y, count, i % 2 ? 1e-7 : 0);
      close_case(&c);
      release_all(&t.m);
    }
    close_memory(&t.m);
  }
}

/* At v = 0 the gradient is the slope's, as PyTorch's: constant groups with beta 0 put every v there. */
static void at_zero_the_slope_counts(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct device_case t = {.m.device = open_or_skip(*state, widths[w])};
    struct block_case c = open_case(t.m.device, MN_OP_ALL, (struct shape){3, 2, 4});
    double *dbeta = zeros(c.channels);
    for (int64_t i = 0; i < c.rows * c.channels; i++)
      c.d[i] = 3.5, dbeta[i % c.channels] += 2 * c.slope * c.dy[i];
    for (int64_t i = 0; i < c.channels; i++) c.bias[i] = 0.25, c.beta[i] = 0;
    upload_case(&t, &c);
    apply(&t, MN_BLOCK, t.d);
    apply(&t, MN_BLOCK_BACKWARD, t.dy);
    const void *third = (char *)t.block.sums + (size_t)(2 * c.channels) * t.m.device->real;
    assert_reals(&t.m, "dbeta", third, dbeta, c.channels, 1e-6);
    free(dbeta);
    close_case(&c);
    close_memory(&t.m);
  }
}

/* A row by itself gives the bytes that it gives among others. */
static void statistics_never_see_other_rows(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct mn_device *device = open_or_skip(*state, widths[w]);
    struct block_case c = open_case(device, MN_OP_ALL, (struct shape){40, 3, 4});
    for (int64_t i = 0; i < c.rows * c.channels; i++) c.d[i] *= 1 + (double)(i / c.channels);
    struct device_case all = {.m.device = device}, one = {.m.device = device};
    upload_case(&all, &c);
    apply(&all, MN_BLOCK, all.d);
    double *y = read_reals(&all.m, all.y.real, c.rows * c.channels);
    int64_t rows = c.rows;
    c.rows = 1, upload_case(&one, &c);
    for (int64_t n = 0; n < rows; n += 13) {
      apply(&one, MN_BLOCK, take_reals(&one.m, c.d + n * c.channels, c.channels));
      double *alone = read_reals(&one.m, one.y.real, c.channels);
      assert_memory_equal(alone, y + n * c.channels, (size_t)c.channels * sizeof *y);
      free(alone);
    }
    free(y);
    close_case(&c);
    release_all(&all.m);
    close_memory(&one.m);
  }
}

/* ---- values that are not finite, and those that planes cannot hold ---- */

/* A variance that overflows makes the group NaN, though every z is finite; a row that is almost as large
 * stays as it is. */
static void overflowing_variances_raise_the_flag(void **state) {
  for (size_t w = 0; w < COUNT(widths); w++) {
    struct device_case t = {.m.device = open_or_skip(*state, widths[w])};
    for (size_t i = 0; i < 4 * COUNT(shapes); i++) {
      struct block_case c = open_case(t.m.device, MN_OP_ALL, shapes[i / 4]);
      const double most = c.real == 8 ? 9e153 : 1e19;
      const int64_t width = c.channels / c.groups, last = c.rows * c.channels - 1;
      const int over = i % 2 && width > 1;
      if (width > 1) c.d[last] = over ? 3 * most : most, c.d[last - 1] = -c.d[last];
      c.scale = 0.7;
      upload_case(&t, &c);
      apply(&t, i / 2 % 2 ? MN_BLOCK_LOSS : MN_BLOCK, t.d);
      assert_int_equal(flag_of(t.m.device), over);
      double *y = read_reals(&t.m, t.y.real, c.rows * c.channels);
      assert_true(isnan(y[last]) == over);
      free(y);
      release_all(&t.m);
      close_case(&c);
    }
    close_memory(&t.m);
  }
}

/* The flag goes up for a NaN or an infinity in any place, and only then. */
static void check_nonfinite(struct mn_device *device, struct shape at, enum mn_epilogue_kind kind,
                            double bad) {
  struct block_case c = open_case(device, MN_OP_ALL, at);
  struct device_case t = {.m.device = device};
  const int64_t count = c.rows * c.channels;
  for (int64_t place = count - 1; place >= 0; place -= 1 + count / 4) {
    double *values = kind == MN_BLOCK_BACKWARD ? c.dy : c.d, before = values[place];
    upload_case(&t, &c);
    if (kind == MN_BLOCK_BACKWARD) apply(&t, MN_BLOCK, t.d);
    assert_int_equal(flag_of(device), 0);
    values[place] = bad;
    apply(&t, kind, take_reals(&t.m, values, count));
    assert_int_equal(flag_of(device), !isfinite(bad));
    values[place] = before;
    release_all(&t.m);
  }
  close_case(&c);
}

static void nonfinite_values_raise_the_flag(void **state) {
  static const struct shape some[] = {{33, 3, 16}, {3, 5, 7}, {5, 2, 300}, {1, 1, 33}, {35, 2, 4}};
  static const enum mn_epilogue_kind kinds[] = {MN_BLOCK, MN_BLOCK_LOSS, MN_BLOCK_BACKWARD};
  static const double values[] = {NAN, INFINITY, -INFINITY, 1};
  static const char *const precisions[] = {"fp64", "fp32", "fp16", "fp16x3"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    for (size_t i = 0; i < 3 * 4 * COUNT(some); i++)
      check_nonfinite(device, some[i / 12], kinds[i / 4 % 3], values[i % 4]);
    mn_device_close(device);
  }
}

/* Applies a loss, or a backward, with dz's planes under this factor; returns the flag, which stays. */
static int flag_under(struct device_case *t, enum mn_epilogue_kind kind, float factor) {
  struct mn_device *device = t->m.device;
  int flag;
  put_scale(device, t->dz.scale, (struct mn_scale){factor, 0});
  apply(t, kind, kind == MN_BLOCK_LOSS ? t->d : t->dy);
  const struct mn_scale scale = get_scale(device, t->dz.scale);
  assert_true(scale.factor == factor && scale.largest == largest_real(&t->m, &t->dz));
  MUST(device->kernels->download(device, &flag, device->nonfinite, sizeof flag));
  return flag;
}

/* The largest factor that the planes can bear raises nothing, twice that factor does, with the mark of the
 * first time. */
static void check_overflow(struct mn_device *device, struct shape at, unsigned ops,
                           enum mn_epilogue_kind kind) {
  struct device_case t = {.m.device = device};
  struct block_case c = open_case(device, ops, at);
  upload_case(&t, &c);
  if (t.y.scale) MUST(device->kernels->rescale(device, NULL, t.y.scale, &t.block));
  if (kind == MN_BLOCK_BACKWARD) apply(&t, MN_BLOCK, t.d);
  device->mark = 3;
  assert_int_equal(flag_under(&t, kind, 1), 0);
  const float bearable = exp2f(floorf(log2f(MN_FP16_MOST / (float)largest_real(&t.m, &t.dz))));
  assert_int_equal(flag_under(&t, kind, bearable), 0);
  assert_planes(device, "dz, as large as can be", &t.dz);
  assert_int_equal(flag_under(&t, kind, 2 * bearable), 3);
  device->mark = 4;
  assert_int_equal(flag_under(&t, kind, 1024 * bearable), 3);
  assert_int_equal(flag_under(&t, kind, 1), 3);
  assert_int_equal(flag_of(device), 3);
  assert_int_equal(flag_under(&t, kind, 2 * bearable), 4);
  assert_int_equal(flag_of(device), 4);
  device->mark = 1;
  close_case(&c);
  release_all(&t.m);
}

static void a_dz_that_planes_cannot_hold_raises_the_flag(void **state) {
  static const struct shape some[] = {{33, 3, 16}, {3, 5, 7}, {5, 2, 300}, {70, 9, 8}, {9, 2, 256}};
  static const char *const precisions[] = {"fp16", "fp16x3"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    for (size_t i = 0; i < 4 * COUNT(some) && device->scaled; i++)
      check_overflow(device, some[i / 4], i & 1 ? MN_OP_ALL : MN_OP_BIAS | MN_OP_ACTIVATE,
                     i & 2 ? MN_BLOCK_LOSS : MN_BLOCK_BACKWARD);
    mn_device_close(device);
  }
}

/* ---- the same bytes every time ---- */

/* y, dz and the column sums of one run, one after the other. */
static char *bytes_of_run(struct mn_device *device, struct shape at, size_t *bytes) {
  struct block_case c = open_case(device, MN_OP_ALL, at);
  struct device_case t = {.m.device = device};
  const size_t each = (size_t)(c.rows * c.channels) * c.real, vector = (size_t)c.channels * c.real;
  upload_case(&t, &c);
  apply(&t, MN_BLOCK, t.d);
  apply(&t, MN_BLOCK_BACKWARD, t.dy);
  char *out = malloc(*bytes = 2 * each + 3 * vector), *sums = take_reals(&t.m, NULL, 3 * c.channels);
  const struct mn_epilogue stores[] = {{.into = sums}, {.into = sums + vector}, {.into = sums + 2 * vector}};
  const struct mn_epilogue *const sinks[] = {&stores[0], &stores[1], &stores[2]};
  MUST(mn_column_sums(device, t.block.sums, mn_chunks(c.rows), c.channels, sinks, NULL));
  MUST(mn_download(device, out, t.y.real, each));
  MUST(mn_download(device, out + each, t.dz.real, each));
  MUST(mn_download(device, out + 2 * each, sums, 3 * vector));
  release_all(&t.m);
  close_case(&c);
  return out;
}

static void blocks_repeat_their_bytes(void **state) {
  static const struct shape some[] = {{150, 9, 16}, {70, 2, 300}};
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct mn_device *device = open_or_skip(*state, mn_precision_name((enum mn_precision)p));
    if (!device) continue;
    for (size_t i = 0; i < COUNT(some); i++) {
      size_t bytes;
      char *first = bytes_of_run(device, some[i], &bytes);
      for (int run = 1; run < (quick() || !on_cuda(*state) ? 2 : 100); run++) {
        char *next = bytes_of_run(device, some[i], &bytes);
        assert_memory_equal(first, next, bytes);
        free(next);
      }
      free(first);
    }
    mn_device_close(device);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(blocks_follow_their_formulas),    BOTH(a_result_need_not_be_aligned),
      BOTH(what_is_saved_changes_nothing),   BOTH(variance_is_centred),
      BOTH(constant_group_gives_beta),       BOTH(at_zero_the_slope_counts),
      BOTH(statistics_never_see_other_rows), BOTH(overflowing_variances_raise_the_flag),
      BOTH(nonfinite_values_raise_the_flag), BOTH(a_dz_that_planes_cannot_hold_raises_the_flag),
      BOTH(blocks_repeat_their_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
