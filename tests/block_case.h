/* A block's epilogues, applied to a product or to numbers in memory, against the formulas in double arithmetic,
 * with the group's Jacobian written out in place of the two means. */
#ifndef MN_TESTS_BLOCK_CASE_H
#define MN_TESTS_BLOCK_CASE_H

#include "tests/products.h"

#include "kernels/planes.h"

/* A case's matrices and vectors: up to WEIGHTS they are given, the others computed; SUMS is [3, chunks, C]. */
enum { D, BIAS, GAMMA, BETA, DY, TARGET, WEIGHTS, Z, MEAN, RSTD, Y, DZ, PARTS, SUMS, ARRAYS };

struct block_case {
  struct memory *m;
  struct draw draw;
  unsigned ops;
  int norm;
  int64_t rows, channels, groups, width,
      count[ARRAYS]; /* of statistics; without MN_OP_NORM a row is a group */
  int product, bare;
  double unit, tolerance; /* bounds of the error of z, and of what follows from it */
  double eps, slope, scale;
  double *v[ARRAYS];  /* on the host */
  void *real[ARRAYS]; /* on the device, from upload() on */
  struct mn_operand y, dz;
  struct mn_block block;
};

/* The bound of z's error. A tensor core adds 16 products at a time to its accumulator and cuts the sum off: by
 * half a unit in the last place on the average, 2⁻²⁴ of the sum so far, and always towards zero, so that errors
 * add up: with one more for the bias, 2⁻²⁴·(1 + depth/16). Two planes are added up so for 128 of the depth at
 * most, three products each, and then as floats: 2⁻²⁰ has room for that. */
static inline double unit_of(const struct mn_device *device, int64_t depth) {
  if (!device->planes) return product_tolerance(device);
  return device->planes == 2 ? 0x1p-20 : 0x1p-24 * (1 + (double)depth / 16);
}

/* What a value is off by in its planes, typically. */
static inline double rounding_of(const struct mn_device *device) {
  return device->precision == MN_BF16 ? 0x1p-9 : device->precision == MN_FP16 ? 0x1p-12 : 0x1p-23;
}

static inline struct block_case *open_case(struct memory *m, const struct draw *d) {
  static const double bounds[Z] = {
      [D] = 2, [BIAS] = 1, [GAMMA] = 2, [BETA] = 1, [DY] = 1, [TARGET] = 2, [WEIGHTS] = 1};
  struct block_case *c = kept(m, calloc(1, sizeof *c));
  c->m = m, c->draw = *d, c->ops = (unsigned)d->ops, c->norm = (d->ops & MN_OP_NORM) != 0;
  c->rows = d->rows, c->channels = columns_of(d), c->groups = c->norm && d->groups ? d->groups : 1;
  c->width = c->channels / c->groups, c->eps = 1e-5, c->slope = 0.01;
  c->product = d->form != FROM_MEMORY, c->bare = d->way >= 2;
  c->unit = c->product ? unit_of(m->device, d->depth) : tolerance_of(m->device);
  c->tolerance = tolerance_of(m->device);
  const int64_t all = c->rows * c->channels;
  c->scale = (double)all / 4;
  for (int i = 0; i < ARRAYS; i++) {
    const int vector = i == BIAS || i == GAMMA || i == BETA, by_group = i == MEAN || i == RSTD || i == PARTS;
    c->count[i] = vector ? c->channels : by_group ? c->rows * c->groups : i == WEIGHTS ? c->rows : all;
    if (i == SUMS) c->count[i] = 3 * mn_chunks(c->rows) * c->channels;
    c->v[i] = i < Z ? kept_random(m, 64 * (uint64_t)d->seed + (uint64_t)i, c->count[i], bounds[i])
                    : kept_zeros(m, c->count[i]);
  }
  for (int64_t i = 0; i < c->channels; i++) c->v[BIAS][i] += (double)d->offset;
  for (int64_t n = 0; n < c->rows; n++) /* of every other case there are none */
    c->v[WEIGHTS][n] = d->seed % 2 ? fabs(c->v[WEIGHTS][n]) : 1;
  return c;
}

/* ---- plain arithmetic ---- */

static inline int64_t group_of(const struct block_case *c, int64_t i) {
  return i / c->channels * c->groups + i % c->channels / c->width;
}

static inline double rounded(const struct block_case *c, double value) {
  return c->m->device->real == sizeof(double) ? value : (float)value;
}

static inline double v_reference(const struct block_case *c, int64_t i, double *standardised) {
  const int64_t k = group_of(c, i);
  *standardised = (c->v[Z][i] - c->v[MEAN][k]) * c->v[RSTD][k];
  return c->norm ? *standardised * c->v[GAMMA][i % c->channels] + c->v[BETA][i % c->channels] : c->v[Z][i];
}

static inline double y_reference(const struct block_case *c, double v) {
  const double a = c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope * v : v;
  return c->ops & MN_OP_SUM ? 2 * a : a;
}

/* dL/dv. */
static inline double g_reference(const struct block_case *c, int64_t i, double *standardised) {
  const double v = v_reference(c, i, standardised);
  return c->v[DY][i] * (c->ops & MN_OP_SUM ? 2 : 1) * (c->ops & MN_OP_ACTIVATE && v <= 0 ? c->slope : 1);
}

/* Where v is so near to 0 that an error of z may move it across, no gradient is right on both sides. */
static inline int at_kink(const struct block_case *c, int64_t i, double error) {
  double unused;
  const double v = v_reference(c, i, &unused);
  return v != 0 && fabs(v) <= error * (1 + (c->norm ? c->v[RSTD][group_of(c, i)] : 0));
}

static inline void normalise_reference(struct block_case *c) {
#pragma omp parallel for
  for (int64_t k = 0; k < c->rows * c->groups; k++) {
    long double mean = 0, variance = 0;
    for (int64_t i = k * c->width; i < (k + 1) * c->width; i++) mean += c->v[Z][i];
    mean /= c->width;
    for (int64_t i = k * c->width; i < (k + 1) * c->width; i++)
      variance += (c->v[Z][i] - mean) * (c->v[Z][i] - mean);
    c->v[MEAN][k] = (double)mean;
    c->v[RSTD][k] = 1 / sqrt((double)(variance / c->width) + c->eps);
  }
#pragma omp parallel for
  for (int64_t i = 0; i < c->count[Y]; i++) {
    double unused;
    c->v[Y][i] = y_reference(c, v_reference(c, i, &unused));
  }
}

static inline double mean_square(const double *values, int64_t count) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
  return sum / (double)count;
}

/* The bound of what follows from z. Normalised, its error is to be seen against the deviation of its group: a
 * product's grows by κ = ‖product‖·rstd, z's own rounding by ‖z‖·rstd; a gradient meets ẑ more than once. Groups
 * differ; rstd itself is off by rstd² times an error of z, so the widest of means is the one to take. */
static inline double bound_behind(const struct block_case *c) {
  double squares = 0, fourths = 0;
  for (int64_t k = 0; k < c->count[RSTD]; k++)
    squares += pow(c->v[RSTD][k], 2), fourths += pow(c->v[RSTD][k], 4);
  const double rstd = c->norm ? sqrt(fourths / squares) : 1,
               last = c->m->device->real == 8 ? 0x1p-53 : 0x1p-24;
  const double product = c->bare ? c->unit * sqrt(mean_square(c->v[D], c->count[D])) : 0;
  return 4 * (product + last * sqrt(mean_square(c->v[Z], c->count[Z]))) * rstd + 4 * last;
}

/* At a kink dy is 0, and the target what is expected; where dy is a product, z moves away. */
static inline void forward_reference(struct block_case *c) {
  const int moves = c->draw.kind == MN_BLOCK_BACKWARD;
  const double error = c->product && !moves ? 8 * c->unit * sqrt(mean_square(c->v[D], c->count[D])) : 0;
#pragma omp parallel for
  for (int64_t i = 0; i < c->count[Z]; i++)
    c->v[Z][i] = rounded(c, c->v[D][i] + (c->ops & MN_OP_BIAS ? c->v[BIAS][i % c->channels] : 0));
  for (int moved = 1; moved;) {
    moved = 0;
    normalise_reference(c);
#pragma omp parallel for reduction(| : moved)
    for (int64_t i = 0; i < c->count[Z]; i++) {
      if (!at_kink(c, i, 1e-6 + error)) continue;
      c->v[TARGET][i] = c->v[Y][i];
      if (moves)
        c->v[Z][i] = rounded(c, c->v[Z][i] + 0.25), moved = 1;
      else
        c->v[DY][i] = 0;
    }
  }
  if (c->bare || c->draw.offset) c->tolerance = fmax(c->tolerance, bound_behind(c));
}

/* dL/dz_i = Σ_j over the group  h_j·∂ẑ_j/∂z_i,  ∂ẑ_j/∂z_i = rstd·(δ_ij − 1/D − ẑ_i·ẑ_j/D): the Jacobian
 * written out, which is another way than the kernels' m1 and m2. */
static inline double dz_reference(const struct block_case *c, int64_t i, const double *h, const double *own) {
  const int64_t first = i / c->width * c->width;
  double dz = h[i];
  for (int64_t j = first; c->norm && j < first + c->width; j++)
    dz -= h[j] * ((1 + own[i] * own[j]) / (double)c->width);
  return dz * (c->norm ? c->v[RSTD][group_of(c, i)] : 1);
}

/* Computes dz and the sums from z, mean and rstd; for a loss first its dy and its parts. */
static inline void backward_reference(struct block_case *c) {
  const int64_t plane = c->count[SUMS] / 3, each = MN_CHUNK_ROWS * c->channels, all = c->count[DZ];
  double *h = kept_zeros(c->m, all), *own = kept_zeros(c->m, all);
#pragma omp parallel for
  for (int64_t chunk = 0; chunk < mn_chunks(c->rows); chunk++)
    for (int64_t i = chunk * each; i < all && i < (chunk + 1) * each; i++) {
      double *sums = c->v[SUMS] + chunk * c->channels + i % c->channels;
      if (c->draw.kind == MN_BLOCK_LOSS) {
        const double error = y_reference(c, v_reference(c, i, &own[i])) - c->v[TARGET][i];
        const double weight = c->v[WEIGHTS][i / c->channels];
        c->v[DY][i] = weight * c->scale * 2 * error / (double)all;
        c->v[PARTS][group_of(c, i)] += weight * error * error;
      }
      const double g = g_reference(c, i, &own[i]);
      h[i] = g * (c->norm ? c->v[GAMMA][i % c->channels] : 1);
      sums[plane] += g * own[i], sums[2 * plane] += g;
    }
#pragma omp parallel for
  for (int64_t chunk = 0; chunk < mn_chunks(c->rows); chunk++)
    for (int64_t i = chunk * each; i < all && i < (chunk + 1) * each; i++) {
      c->v[DZ][i] = dz_reference(c, i, h, own);
      c->v[SUMS][chunk * c->channels + i % c->channels] += c->v[DZ][i];
    }
}

/* ---- the device ---- */

enum alias { APART, DY_TAKES_DZ, Z_TAKES_DZ, D_TAKES_Z };

/* Planes without scales are y's too, and those with where the block's norm bounds them. */
static inline void upload(struct block_case *c) {
  struct memory *m = c->m;
  for (int i = 0; i < ARRAYS; i++)
    c->real[i] = (char *)take_reals(m, i < Z ? c->v[i] : NULL, c->count[i] + (i == Y)) +
                 (i == Y ? (size_t)c->draw.shift * m->device->real : 0);
  if (!(c->ops & MN_OP_BIAS) || c->draw.alias == D_TAKES_Z) c->real[Z] = c->real[D];
  c->y = c->dz = (struct mn_operand){.rows = c->rows, .cols = c->channels};
  if (!m->device->scaled || c->norm) take_planes(m, &c->y, 0x1p-5f);
  take_planes(m, &c->dz, c->draw.kind == MN_BLOCK_BACKWARD ? 0x1p-4f : 4); /* of a product's size */
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
                               .weights = c->draw.seed % 2 ? c->real[WEIGHTS] : NULL,
                               .scale = c->scale,
                               .loss_parts = c->real[PARTS],
                               .dz = &c->dz,
                               .sums = c->real[SUMS]};
  if (c->draw.kind == MN_BLOCK_BACKWARD) {
    for (int i = Z; i <= RSTD; i++) MUST(mn_device_write(m->device, c->real[i], c->v[i], c->count[i]));
    c->y = (struct mn_operand){.rows = c->rows, .cols = c->channels};
  } else if (c->bare) {
    c->block.z = c->block.mean = c->block.rstd = NULL;
    if (c->draw.kind == MN_BLOCK_LOSS) c->block.y = NULL; /* as our own GEMM wants it */
  }
  if (c->draw.kind == MN_BLOCK_LOSS && c->draw.way)
    c->y = (struct mn_operand){.rows = c->rows, .cols = c->channels};
  if (c->bare && c->dz.planes[0]) c->dz.real = NULL;
  if (c->bare && c->y.planes[0]) c->y.real = NULL;
}

/* Applies the epilogue `kind` to a matrix in memory. */
static inline void apply(struct block_case *c, enum mn_epilogue_kind kind, void *d) {
  struct mn_epilogue e = {.kind = kind, .into = d, .block = &c->block};
  MUST(c->m->device->kernels->epilogue(c->m->device, d, c->rows, c->channels, &e));
}

/* Each within the tolerance, or, of means, within that of the values that they are taken from. */
static inline void assert_each(const double *a, const double *e, int64_t count, double tolerance,
                               const double *rstd) {
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(a[i] - e[i]) <= tolerance * (rstd ? fabs(e[i]) + 1 / rstd[i] : 1)))
      WRONG("element %ld is %g, not %g", (long)i, a[i], e[i]);
}

static inline void assert_array(struct block_case *c, const char *what, int which, double tolerance) {
  assert_reals(c->m, what, c->real[which], c->v[which], c->count[which], tolerance);
}

/* Checks what the forward saved, and goes on from these numbers: their error is known then, and what follows is
 * held against what follows from them. */
static inline void assert_forward(struct block_case *c) {
  assert_array(c, "z", Z, c->unit);
  c->v[Z] = kept_reals(c->m, c->real[Z], c->count[Z]);
  if (c->product) normalise_reference(c);
  if (c->y.real) assert_array(c, "y", Y, c->tolerance);
  if (c->y.real) assert_planes(c->m->device, "y", &c->y);
  if (c->y.real && c->y.scale &&
      !(largest_real(c->m, &c->y) * get_scale(c->m->device, c->y.scale).factor < 0x1p15))
    WRONG("y is too large for its factor");
  if (!c->norm) return;
  assert_array(c, "rstd", RSTD, c->tolerance);
  c->v[RSTD] = kept_reals(c->m, c->real[RSTD], c->count[RSTD]);
  double *mean = kept_reals(c->m, c->real[MEAN], c->count[MEAN]);
  assert_each(mean, c->v[MEAN], c->count[MEAN], c->tolerance, c->v[RSTD]);
  c->v[MEAN] = mean;
}

/* An operand's reals, or its planes' values if it has no reals. */
static inline double *values_of(struct memory *m, const struct mn_operand *o) {
  return o->real ? kept_reals(m, o->real, o->rows * o->cols) : factors_of(m, o);
}

static inline void assert_bare_y(struct block_case *c) {
  const double rounds = c->y.real ? 0 : 2 * rounding_of(c->m->device);
  assert_close("y", values_of(c->m, &c->y), c->v[Y], c->count[Y], c->tolerance + rounds);
}

/* The sums of what is not in ops are left alone. Where a group has two channels or one, dz is 0 but for
 * rounding: the size that counts is the one of the terms that cancel, rstd·h. */
static inline void assert_backward(struct block_case *c) {
  const int64_t plane = c->count[SUMS] / 3;
  const int cancels = c->norm && c->width <= 2;
  const double rounds = c->dz.real ? 0 : 2 * rounding_of(c->m->device);
  double *sums = kept_reals(c->m, c->real[SUMS], 3 * plane), *dz = values_of(c->m, &c->dz), most = 0;
  for (int64_t i = 0; c->norm && i < c->count[RSTD]; i++) most = fmax(most, c->v[RSTD][i]);
  if (c->dz.real) assert_planes(c->m->device, "dz", &c->dz);
  if (c->dz.real && c->dz.scale && get_scale(c->m->device, c->dz.scale).largest != largest_real(c->m, &c->dz))
    WRONG("the largest dz is not the scale's");
  if (cancels)
    assert_each(dz, c->v[DZ], c->count[DZ], 100 * c->tolerance * (1 + most), NULL);
  else
    assert_close("dz", dz, c->v[DZ], c->count[DZ], c->tolerance + rounds);
  for (int q = 0; q < 3; q++) {
    const double *found = sums + q * plane;
    if (!(c->ops & (q ? MN_OP_NORM : MN_OP_BIAS))) {
      for (int64_t i = 0; i < plane; i++)
        if (!isnan(found[i])) WRONG("sums of %d are written", q);
    } else if (q || !cancels) {
      assert_close("column sums", found, c->v[SUMS] + q * plane, plane, 2 * c->tolerance);
    }
  }
  if (c->draw.kind == MN_BLOCK_LOSS) assert_array(c, "the loss", PARTS, c->tolerance);
}

/* Runs the case's epilogue and, if it is a forward, the backward from what that saved. A scaled y has the factor
 * that suits it, or, in place, the one that is there. */
static inline void run(struct block_case *c, const struct mn_operand of[2], int checked) {
  struct mn_device *device = c->m->device;
  upload(c);
  if (c->y.scale && c->draw.alias == APART)
    MUST(device->kernels->rescale(device, NULL, c->y.scale, &c->block));
  const struct mn_epilogue e = {.kind = (enum mn_epilogue_kind)c->draw.kind,
                                .into = take_reals(c->m, NULL, c->count[D]),
                                .block = &c->block};
  if (c->product)
    MUST(device->kernels->gemm(device, (enum mn_form)c->draw.form, &of[0], &of[1], &e));
  else
    apply(c, e.kind, c->real[D]);
  if (c->product) assert_way(c->m, &c->draw, &e);
  if (checked && !c->bare && e.kind != MN_BLOCK_BACKWARD) assert_forward(c);
  if (e.kind == MN_BLOCK && !c->bare) apply(c, MN_BLOCK_BACKWARD, c->real[DY]);
}

/* y, dz and the sums, one after the other. */
static inline double *results_of(struct memory *m, const struct block_case *c) {
  double *out = kept_zeros(m, c->count[Y] + c->count[DZ] + c->count[SUMS]);
  if (c->y.real || c->y.planes[0]) memcpy(out, values_of(m, &c->y), (size_t)c->count[Y] * sizeof *out);
  memcpy(out + c->count[Y], values_of(m, &c->dz), (size_t)c->count[DZ] * sizeof *out);
  MUST(mn_device_read(m->device, out + c->count[Y] + c->count[DZ], c->real[SUMS], c->count[SUMS]));
  return out;
}

/* Every run leaves the same bytes. */
static inline void check_block_repeats(struct block_case *c, const struct mn_operand of[2]) {
  struct memory own = {.device = c->m->device};
  const double *first = results_of(c->m, c);
  for (int64_t again = 0; again < c->draw.repeats; again++) {
    struct block_case next = *c;
    next.m = &own;
    run(&next, of, 0);
    if (memcmp(first, results_of(&own, &next),
               (size_t)(c->count[Y] + c->count[DZ] + c->count[SUMS]) * sizeof *first))
      WRONG("another run leaves other bytes");
    release_all(&own);
  }
}

/* The epilogue once more on what is in memory: a backward, or with the loss. */
static inline void apply_last(struct block_case *c) {
  if (c->draw.kind == MN_BLOCK_LOSS)
    apply(c, MN_BLOCK_LOSS, c->real[D]);
  else
    apply(c, MN_BLOCK_BACKWARD, c->real[DY]);
}

/* The largest factor that dz's planes can bear raises nothing; twice that factor raises the first step's mark. */
static inline void check_overflow(struct block_case *c) {
  static const struct {
    float times;
    int mark, raised, clears;
  } steps[] = {{1, 3, 0, 0}, {2, 3, 3, 0}, {1024, 4, 3, 0}, {1, 4, 3, 1}, {2, 4, 4, 1}};
  struct mn_device *device = c->m->device;
  const double largest = largest_real(c->m, &c->dz);
  const float bearable = exp2f(floorf(log2f(MN_FP16_MOST / (float)largest)));
  for (size_t i = 0; i < COUNT(steps) && largest > 0; i++) {
    int flag;
    device->mark = steps[i].mark;
    put_scale(device, c->dz.scale, (struct mn_scale){bearable * steps[i].times, 0});
    apply_last(c);
    const struct mn_scale scale = get_scale(device, c->dz.scale);
    MUST(device->kernels->download(device, &flag, device->nonfinite, sizeof flag));
    if (flag != steps[i].raised) WRONG("under %g the flag is %d", (double)scale.factor, flag);
    if (scale.factor != bearable * steps[i].times || scale.largest != largest) WRONG("another scale");
    if (i == 0) assert_planes(device, "dz, as large as can be", &c->dz);
    if (steps[i].clears) flag_of(device);
  }
  put_scale(device, c->dz.scale, (struct mn_scale){1, 0});
}

/* Whether or not z, mean and rstd are saved, the results are the same bytes. */
static inline void check_unsaved(struct block_case *c) {
  const enum mn_epilogue_kind kind = (enum mn_epilogue_kind)c->draw.kind;
  const struct mn_operand *of = kind == MN_BLOCK ? &c->y : &c->dz;
  if (!of->real) return;
  const double *saved = values_of(c->m, of);
  c->block.z = c->block.mean = c->block.rstd = NULL;
  apply(c, kind, take_reals(c->m, c->v[D], c->count[D]));
  if (memcmp(saved, values_of(c->m, of), (size_t)c->count[Y] * sizeof *saved))
    WRONG("what is saved changes bytes");
}

/* `kind` is MN_BLOCK, with the backward behind it, MN_BLOCK_LOSS or, with a product, MN_BLOCK_BACKWARD. With
 * `way` other than 0 a loss has no y; with 2 and 3 nothing is saved, and y and dz have no reals if they have planes. */
static inline void check_block(struct memory *m, const struct draw *d) {
  struct draw at = *d;
  if (at.kind < MN_BLOCK || at.kind > MN_BLOCK_BACKWARD ||
      (at.kind == MN_BLOCK_BACKWARD && at.form == FROM_MEMORY))
    at.kind = MN_BLOCK;
  if (at.kind != MN_BLOCK) at.alias = APART;
  struct block_case *c = open_case(m, &at);
  struct mn_operand of[2];
  at.shift = 0;
  if (c->product) operands(m, &at, of), c->v[at.kind == MN_BLOCK_BACKWARD ? DY : D] = product_of(m, &at, of);
  m->device->force_cublas = at.library != 0;
  forward_reference(c);
  if (at.kind == MN_BLOCK_BACKWARD) {
    c->tolerance += 8 * c->unit;
    for (int i = MEAN; i <= RSTD; i++)
      for (int64_t k = 0; k < c->count[i]; k++) c->v[i][k] = rounded(c, c->v[i][k]);
  }
  run(c, of, 1);
  if (at.kind == MN_BLOCK && c->bare)
    assert_bare_y(c);
  else
    backward_reference(c), assert_backward(c);
  check_block_repeats(c, of);
  if (c->product || c->bare || at.alias != APART) return;
  if (c->dz.scale) check_overflow(c);
  check_unsaved(c);
}

#endif
