/* The block's epilogues, forward, backward and with the loss, in every precision on every device, behind products and
 * of matrices in memory: against the formulas in plain double arithmetic, the group's Jacobian written out in place of
 * the two means. */
#include "kernels/planes.h"
#include "tests/products.h"

/* Of a case's matrices and vectors: what is given; and what plain arithmetic, and the device, make of it. */
enum {
  D,
  BIAS,
  GAMMA,
  BETA,
  DY,
  TARGET,
  Z,
  MEAN,
  RSTD,
  Y,
  DZ,
  PARTS,
  SUMS,
  ARRAYS
}; /* SUMS: [3, chunks, C] */

struct block_case {
  struct memory *m;
  struct draw draw;
  unsigned ops;
  int norm;
  int64_t rows, channels, groups, width,
      count[ARRAYS]; /* of statistics; without MN_OP_NORM a row is a group */
  double eps, slope, scale;
  double *v[ARRAYS];  /* on the host */
  void *real[ARRAYS]; /* on the device, from upload() on */
  struct mn_operand y, dz;
  struct mn_block block;
};

static struct block_case *open_case(struct memory *m, const struct draw *d) {
  static const double bounds[Z] = {[D] = 2, [BIAS] = 1, [GAMMA] = 2, [BETA] = 1, [DY] = 1, [TARGET] = 2};
  struct block_case *c = kept(m, calloc(1, sizeof *c));
  c->m = m, c->draw = *d, c->ops = (unsigned)d->ops, c->norm = (d->ops & MN_OP_NORM) != 0;
  c->rows = d->rows, c->channels = columns_of(d), c->groups = c->norm && d->groups ? d->groups : 1;
  c->width = c->channels / c->groups, c->eps = 1e-5, c->slope = 0.01;
  const int64_t all = c->rows * c->channels;
  c->scale = (double)all / 4;
  for (int i = 0; i < ARRAYS; i++) {
    const int vector = i == BIAS || i == GAMMA || i == BETA, by_group = i == MEAN || i == RSTD || i == PARTS;
    c->count[i] = vector ? c->channels : by_group ? c->rows * c->groups : all;
    if (i == SUMS) c->count[i] = 3 * mn_chunks(c->rows) * c->channels;
    c->v[i] = i < Z ? kept_random(m, 64 * (uint64_t)d->seed + (uint64_t)i, c->count[i], bounds[i])
                    : kept_zeros(m, c->count[i]);
  }
  return c;
}

/* ---- plain arithmetic ---- */

static int64_t group_of(const struct block_case *c, int64_t i) {
  return i / c->channels * c->groups + i % c->channels / c->width;
}

static double rounded(const struct block_case *c, double value) {
  return c->m->device->real == sizeof(double) ? value : (float)value;
}

static double v_reference(const struct block_case *c, int64_t i, double *standardised) {
  const int64_t k = group_of(c, i);
  *standardised = (c->v[Z][i] - c->v[MEAN][k]) * c->v[RSTD][k];
  return c->norm ? *standardised * c->v[GAMMA][i % c->channels] + c->v[BETA][i % c->channels] : c->v[Z][i];
}

static double y_reference(const struct block_case *c, double v) {
  const double a = c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope * v : v;
  return c->ops & MN_OP_SUM ? 2 * a : a;
}

/* dL/dv. */
static double g_reference(const struct block_case *c, int64_t i, double *standardised) {
  const double v = v_reference(c, i, standardised);
  return c->v[DY][i] * (c->ops & MN_OP_SUM ? 2 : 1) * (c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope : 1);
}

/* What z gives. Where v is so near to 0 that an error of z may move it across, no gradient is right on both sides: dy
 * is 0 there, and the target what is expected. */
static void normalise_reference(struct block_case *c, double error) {
  for (int64_t k = 0; k < c->rows * c->groups; k++) {
    long double mean = 0, variance = 0;
    for (int64_t i = k * c->width; i < (k + 1) * c->width; i++) mean += c->v[Z][i];
    mean /= c->width;
    for (int64_t i = k * c->width; i < (k + 1) * c->width; i++)
      variance += (c->v[Z][i] - mean) * (c->v[Z][i] - mean);
    c->v[MEAN][k] = (double)mean;
    c->v[RSTD][k] = 1 / sqrt((double)(variance / c->width) + c->eps);
  }
  for (int64_t i = 0; i < c->count[Y]; i++) {
    double unused, v = v_reference(c, i, &unused);
    c->v[Y][i] = y_reference(c, v);
    if (v == 0 || fabs(v) > error * (1 + (c->norm ? c->v[RSTD][group_of(c, i)] : 0))) continue;
    c->v[DY][i] = 0, c->v[TARGET][i] = c->v[Y][i];
  }
}

static void forward_reference(struct block_case *c) {
  for (int64_t i = 0; i < c->count[Z]; i++)
    c->v[Z][i] = rounded(c, c->v[D][i] + (c->ops & MN_OP_BIAS ? c->v[BIAS][i % c->channels] : 0));
  normalise_reference(c, c->draw.form == FROM_MEMORY ? 1e-6 : 1e-3);
}

/* dL/dz_i = Σ_j over the group  h_j·∂ẑ_j/∂z_i,  ∂ẑ_j/∂z_i = rstd·(δ_ij − 1/D − ẑ_i·ẑ_j/D): the Jacobian
 * written out, which is another way than the kernels' m1 and m2. */
static double dz_reference(const struct block_case *c, int64_t i, const double *h, const double *own) {
  const int64_t first = i / c->width * c->width;
  double dz = h[i];
  for (int64_t j = first; c->norm && j < first + c->width; j++)
    dz -= h[j] * ((1 + own[i] * own[j]) / (double)c->width);
  return dz * (c->norm ? c->v[RSTD][group_of(c, i)] : 1);
}

/* From z, mean and rstd; of a loss with its dy and its parts before. */
static void backward_reference(struct block_case *c) {
  const int64_t plane = c->count[SUMS] / 3;
  double *h = kept_zeros(c->m, c->count[DZ]), *own = kept_zeros(c->m, c->count[DZ]);
  for (int64_t i = 0; i < c->count[DZ]; i++) {
    double *sums = c->v[SUMS] + i / c->channels / MN_CHUNK_ROWS * c->channels + i % c->channels;
    if (c->draw.kind == MN_BLOCK_LOSS) {
      const double error = y_reference(c, v_reference(c, i, &own[i])) - c->v[TARGET][i];
      c->v[DY][i] = c->scale * 2 * error / (double)c->count[DY];
      c->v[PARTS][group_of(c, i)] += error * error;
    }
    const double g = g_reference(c, i, &own[i]);
    h[i] = g * (c->norm ? c->v[GAMMA][i % c->channels] : 1);
    sums[plane] += g * own[i], sums[2 * plane] += g;
  }
#pragma omp parallel for
  for (int64_t i = 0; i < c->count[DZ]; i++) c->v[DZ][i] = dz_reference(c, i, h, own);
  for (int64_t i = 0; i < c->count[DZ]; i++)
    c->v[SUMS][i / c->channels / MN_CHUNK_ROWS * c->channels + i % c->channels] += c->v[DZ][i];
}

/* ---- the device ---- */

enum alias { APART, DY_TAKES_DZ, Z_TAKES_DZ, D_TAKES_Z };

/* Planes without scales are y's too, and those with where the block's norm bounds them. */
static void upload(struct block_case *c) {
  struct memory *m = c->m;
  for (int i = 0; i < ARRAYS; i++)
    c->real[i] = (char *)take_reals(m, i < Z ? c->v[i] : NULL, c->count[i] + (i == Y)) +
                 (i == Y ? (size_t)c->draw.shift * m->device->real : 0);
  if (!(c->ops & MN_OP_BIAS) || c->draw.alias == D_TAKES_Z) c->real[Z] = c->real[D];
  c->y = c->dz = (struct mn_operand){.rows = c->rows, .cols = c->channels};
  if (!m->device->scaled || c->norm) take_planes(m, &c->y, 0x1p-5f);
  take_planes(m, &c->dz, 4);
  c->y.real = c->real[Y];
  c->dz.real = c->real[c->draw.alias == DY_TAKES_DZ ? DY : c->draw.alias == Z_TAKES_DZ ? Z : DZ];
  c->block = (struct mn_block){.ops = c->ops,
                               .rows = c->rows,
                               .channels = c->channels,
                               .groups = c->draw.groups ? c->draw.groups : 1, /* also where it is not read */
                               .eps = c->eps,
                               .slope = c->slope,
                               .bias = c->real[BIAS],
                               .gamma = c->real[GAMMA],
                               .beta = c->real[BETA],
                               .z = c->real[Z],
                               .mean = c->real[MEAN],
                               .rstd = c->real[RSTD],
                               .y = &c->y,
                               .target = c->real[TARGET],
                               .scale = c->scale,
                               .loss_parts = c->real[PARTS],
                               .dz = &c->dz,
                               .sums = c->real[SUMS]};
}

/* Applies the epilogue `kind` to a matrix in memory. */
static void apply(struct block_case *c, enum mn_epilogue_kind kind, void *d) {
  struct mn_epilogue e = {.kind = kind, .into = d, .block = &c->block};
  MUST(c->m->device->kernels->epilogue(c->m->device, d, c->rows, c->channels, &e));
}

/* Each within the tolerance, or, of means, within that of the values that they are taken from. */
static void assert_each(const struct block_case *c, int which, double tolerance, const double *rstd) {
  const double *a = kept_reals(c->m, which == DZ ? c->dz.real : c->real[which], c->count[which]),
               *e = c->v[which];
  for (int64_t i = 0; i < c->count[which]; i++)
    if (!(fabs(a[i] - e[i]) <= tolerance * (rstd ? fabs(e[i]) + 1 / rstd[i] : 1)))
      WRONG("element %ld of %d is %g, not %g", (long)i, which, a[i], e[i]);
}

static void assert_array(struct block_case *c, const char *what, int which, double tolerance) {
  assert_reals(c->m, what, c->real[which], c->v[which], c->count[which], tolerance);
}

/* z is a product's within its own error; what follows from it is what follows from the z that was saved. */
static void assert_forward(struct block_case *c) {
  const double tolerance = tolerance_of(c->m->device);
  const int product = c->draw.form != FROM_MEMORY;
  assert_array(c, "z", Z, product ? product_tolerance(c->m->device) : tolerance);
  if (product) c->v[Z] = kept_reals(c->m, c->real[Z], c->count[Z]), normalise_reference(c, 0);
  if (c->y.real) assert_array(c, "y", Y, tolerance);
  assert_planes(c->m->device, "y", &c->y);
  if (!c->norm) return;
  assert_array(c, "rstd", RSTD, tolerance);
  assert_each(c, MEAN, tolerance, c->v[RSTD]);
}

/* The sums of what is not in ops are left alone. Where a group has two channels or one, dz is 0 but for
 * rounding: the size that counts is the one of the terms that cancel, rstd·h. */
static void assert_backward(struct block_case *c) {
  const int64_t plane = c->count[SUMS] / 3;
  const int cancels = c->norm && c->width <= 2;
  double *sums = kept_reals(c->m, c->real[SUMS], 3 * plane), most = 0, tolerance = tolerance_of(c->m->device);
  assert_planes(c->m->device, "dz", &c->dz);
  if (c->dz.scale && get_scale(c->m->device, c->dz.scale).largest != largest_real(c->m, &c->dz))
    WRONG("the largest dz is not the scale's");
  for (int64_t i = 0; c->norm && i < c->count[RSTD]; i++) most = fmax(most, c->v[RSTD][i]);
  if (cancels)
    assert_each(c, DZ, 100 * tolerance * (1 + most), NULL);
  else
    assert_reals(c->m, "dz", c->dz.real, c->v[DZ], c->count[DZ], tolerance);
  for (int q = 0; q < 3; q++) {
    const double *found = sums + q * plane;
    if (!(c->ops & (q ? MN_OP_NORM : MN_OP_BIAS))) {
      for (int64_t i = 0; i < plane; i++)
        if (!isnan(found[i])) WRONG("sums of %d are written", q);
    } else if (q || !cancels) {
      assert_close("column sums", found, c->v[SUMS] + q * plane, plane, 2 * tolerance);
    }
  }
  if (c->draw.kind == MN_BLOCK_LOSS) assert_array(c, "the loss", PARTS, tolerance);
}

/* Forward, and, if the case is no loss, backward from what the forward saved. A scaled y has the factor that suits it,
 * or, in place, the one that is there. */
static void run(struct block_case *c, const struct mn_operand *x, const struct mn_operand *w, int checked) {
  const int loss = c->draw.kind == MN_BLOCK_LOSS;
  struct mn_device *device = c->m->device;
  upload(c);
  if (loss && c->draw.way % 2)
    c->y = (struct mn_operand){.rows = c->rows, .cols = c->channels}; /* nobody wants y */
  if (c->y.scale && c->draw.alias == APART)
    MUST(device->kernels->rescale(device, NULL, c->y.scale, &c->block));
  const struct mn_epilogue e = {.kind = (enum mn_epilogue_kind)c->draw.kind,
                                .into = take_reals(c->m, NULL, c->count[D]),
                                .block = &c->block};
  if (x)
    MUST(device->kernels->gemm(device, (enum mn_form)c->draw.form, x, w, &e));
  else
    apply(c, e.kind, c->real[D]);
  if (checked) {
    assert_forward(c);
    if (c->y.real && c->y.scale &&
        !(largest_real(c->m, &c->y) * get_scale(device, c->y.scale).factor < 0x1p15))
      WRONG("y is too large for its factor");
    c->v[Z] = kept_reals(c->m, c->real[Z], c->count[Z]);
    if (c->norm) c->v[MEAN] = kept_reals(c->m, c->real[MEAN], c->count[MEAN]);
    if (c->norm) c->v[RSTD] = kept_reals(c->m, c->real[RSTD], c->count[RSTD]);
  }
  if (!loss) apply(c, MN_BLOCK_BACKWARD, c->real[DY]);
}

static void check_block(struct memory *m, const struct draw *d) {
  struct draw at = *d;
  if (at.kind != MN_BLOCK_LOSS || at.form != FROM_MEMORY) at.kind = MN_BLOCK;
  if (at.kind == MN_BLOCK_LOSS) at.alias = APART;
  struct block_case *c = open_case(m, &at);
  struct mn_operand x, w;
  const int product = at.form != FROM_MEMORY;
  at.shift = 0;
  if (product)
    operands(m, (enum mn_form)at.form, &at, &x, &w), c->v[D] = product_of(m, (enum mn_form)at.form, &x, &w);
  m->device->force_cublas = at.library != 0;
  forward_reference(c);
  run(c, product ? &x : NULL, &w, 1);
  backward_reference(c);
  assert_backward(c);
  const void *const left[] = {c->y.real, c->dz.real, c->real[SUMS]};
  const int64_t counts[] = {c->count[Y], c->count[DZ], c->count[SUMS]};
  double *first[3];
  for (int i = 0; i < 3; i++) first[i] = left[i] ? kept_reals(m, left[i], counts[i]) : NULL;
  for (int64_t again = 0; again < d->repeats; again++) {
    struct memory own = {.device = m->device};
    c->m = &own;
    run(c, product ? &x : NULL, &w, 0);
    const void *const now[] = {c->y.real, c->dz.real, c->real[SUMS]};
    for (int i = 0; i < 3; i++)
      if (first[i] &&
          memcmp(first[i], kept_reals(&own, now[i], counts[i]), (size_t)counts[i] * sizeof(double)) != 0)
        WRONG("another run leaves other bytes");
    release_all(&own);
  }
}

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
  try_drawn(m, check_block, 300);
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

/* Of a depth that the GEMM of our own takes, its own way and the library's, and of another; pointers that are not
 * multiples of 16 bytes, as a part of a matrix has; and many times. */
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

/* Whether or not z, mean and rstd are saved, the results are the same bytes. */
static void what_is_saved_changes_nothing(struct memory *m) {
  for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
    const struct draw d = shaped(shapes[i / 2], MN_OP_ALL, i % 2 ? MN_BLOCK_LOSS : MN_BLOCK);
    struct block_case *c = open_case(m, &d);
    double *results[2];
    for (int saved = 0; saved < 2; saved++) {
      upload(c);
      if (!saved) c->block.z = c->block.mean = c->block.rstd = NULL;
      apply(c, i % 2 ? MN_BLOCK_LOSS : MN_BLOCK, c->real[D]);
      results[saved] = kept_reals(m, i % 2 ? c->dz.real : c->y.real, c->count[Y]);
    }
    assert_true(isfinite(results[0][0]));
    assert_memory_equal(results[0], results[1], (size_t)c->count[Y] * sizeof(double));
    release_all(m);
  }
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

/* Applies a loss, or a backward, with dz's planes under this factor; returns the flag, which stays. */
static int flag_under(struct block_case *c, enum mn_epilogue_kind kind, float factor) {
  struct mn_device *device = c->m->device;
  int flag;
  put_scale(device, c->dz.scale, (struct mn_scale){factor, 0});
  apply(c, kind, c->real[kind == MN_BLOCK_LOSS ? D : DY]);
  const struct mn_scale scale = get_scale(device, c->dz.scale);
  assert_true(scale.factor == factor && scale.largest == largest_real(c->m, &c->dz));
  MUST(device->kernels->download(device, &flag, device->nonfinite, sizeof flag));
  return flag;
}

/* The largest factor that the planes can bear raises nothing, twice that factor does, with the mark of the
 * first time. */
static void check_overflow(struct memory *m, const struct draw *d, enum mn_epilogue_kind kind) {
  struct mn_device *device = m->device;
  struct block_case *c = open_case(m, d);
  upload(c);
  if (c->y.scale) MUST(device->kernels->rescale(device, NULL, c->y.scale, &c->block));
  if (kind == MN_BLOCK_BACKWARD) apply(c, MN_BLOCK, c->real[D]);
  device->mark = 3;
  assert_int_equal(flag_under(c, kind, 1), 0);
  const float bearable = exp2f(floorf(log2f(MN_FP16_MOST / (float)largest_real(m, &c->dz))));
  assert_int_equal(flag_under(c, kind, bearable), 0);
  assert_planes(device, "dz, as large as can be", &c->dz);
  assert_int_equal(flag_under(c, kind, 2 * bearable), 3);
  device->mark = 4;
  assert_int_equal(flag_under(c, kind, 1024 * bearable), 3);
  assert_int_equal(flag_under(c, kind, 1), 3);
  assert_int_equal(flag_of(device), 3);
  assert_int_equal(flag_under(c, kind, 2 * bearable), 4);
  assert_int_equal(flag_of(device), 4);
  device->mark = 1;
  release_all(m);
}

static void a_dz_that_planes_cannot_hold_raises_the_flag(struct memory *m) {
  static const int64_t some[][3] = {{33, 3, 16}, {3, 5, 7}, {5, 2, 300}, {70, 9, 8}, {9, 2, 256}};
  for (size_t i = 0; i < 4 * COUNT(some) && m->device->scaled; i++) {
    const struct draw d = shaped(some[i / 4], i & 1 ? MN_OP_ALL : MN_OP_BIAS | MN_OP_ACTIVATE, MN_BLOCK);
    check_overflow(m, &d, i & 2 ? MN_BLOCK_LOSS : MN_BLOCK_BACKWARD);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      EACH(EVERY, blocks_follow_their_formulas),
      EACH(EVERY, blocks_have_edges),
      EACH(EVERY, blocks_stand_behind_products),
      EACH(WIDTHS, what_is_saved_changes_nothing),
      EACH(FP32, variance_is_centred),
      EACH(WIDTHS, constant_group_gives_beta),
      EACH(WIDTHS, at_zero_the_slope_counts),
      EACH(WIDTHS, statistics_never_see_other_rows),
      EACH(WIDTHS, overflowing_variances_raise_the_flag),
      EACH(WIDTHS | SCALED, nonfinite_values_raise_the_flag),
      EACH(SCALED, a_dz_that_planes_cannot_hold_raises_the_flag),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
