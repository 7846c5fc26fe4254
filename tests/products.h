/* What the tests of products and of updates share: operands of every form with their planes, a parameter with
 * what its rule keeps, and what plain double arithmetic makes of both. */
#ifndef MN_TESTS_PRODUCTS_H
#define MN_TESTS_PRODUCTS_H

#include "tests/draws.h"
#include "tests/planes_read.h"

/* Whether this runs under a checker that does not see what cuBLASLt writes in 16 bits (tests/sanitizer.sh).
 */
static inline int blind(enum mn_precision precision) {
  const char *text = getenv("MINNOW_BLIND");
  return text && *text && (precision == MN_TF32 || precision == MN_BF16 || precision == MN_FP16);
}

/* ---- operands ---- */

/* Random values of this shape, with planes where `planes`, under the factor that suits them. */
static inline struct mn_operand operand_with(struct memory *m, struct mn_operand shape, uint64_t seed,
                                             int planes) {
  shape.real = put_random(m, seed, shape.rows * shape.cols, 1);
  if (!planes) return shape;
  if (!shape.headroom) shape.headroom = MN_HEADROOM_X;
  take_planes(m, &shape, 0);
  MUST(m->device->kernels->round(m->device, &shape, 1));
  assert_int_equal(shape.stale, 0);
  return shape;
}

static inline struct mn_operand operand(struct memory *m, struct mn_operand shape, uint64_t seed) {
  return operand_with(m, shape, seed, mn_has_planes(m->device, shape.rows, shape.cols));
}

/* Sets the shapes of a product's two operands. */
static inline void shapes_of(enum mn_form form, const struct draw *d, struct mn_operand of[2]) {
  const int64_t cols = columns_of(d), along = form == MN_TN ? d->depth : d->rows;
  const int64_t across = form == MN_NT ? cols : d->depth;
  of[0] = (struct mn_operand){.rows = along, .cols = d->rows + d->depth - along};
  of[1] = (struct mn_operand){.rows = across, .cols = cols + d->depth - across};
}

/* Both of a product's, with planes where a GEMM can read them: two planes want a width of whole multiples of
 * 8 of everything that is contiguous. With `shift` the first starts so many elements into its memory. */
static inline void operands(struct memory *m, const struct draw *d, struct mn_operand of[2]) {
  const enum mn_form form = (enum mn_form)d->form;
  const int planes = mn_has_planes(m->device, columns_of(d), form == MN_TN ? d->rows : d->depth);
  shapes_of(form, d, of);
  of[0].rows += d->shift;
  for (int i = 0; i < 2; i++)
    of[i] = operand_with(m, of[i], 11 + (uint64_t)i + 64 * (uint64_t)d->seed, planes);
  of[0].rows -= d->shift; /* the same memory, from a later element on */
  of[0].real = (char *)of[0].real + (size_t)d->shift * m->device->real;
  for (int i = 0; i < 2; i++)
    if (of[0].planes[i]) of[0].planes[i] = (char *)of[0].planes[i] + (size_t)d->shift * m->device->plane;
}

/* tf32 keeps 10 bits of each factor; of planes the GEMM and the reference read the same numbers. */
static inline double product_tolerance(const struct mn_device *device) {
  if (device->precision == MN_FP64) return 1e-12;
  return device->precision == MN_TF32 ? 1e-3 : device->planes ? 1e-4 : 1e-5;
}

/* What a GEMM reads of an operand. */
static inline double *factors_of(struct memory *m, const struct mn_operand *o) {
  if (!o->planes[0]) return kept_reals(m, o->real, o->rows * o->cols);
  struct planes p = get_planes(m->device, o);
  double *out = kept_zeros(m, p.count);
#pragma omp parallel for
  for (int64_t i = 0; i < p.count; i++) out[i] = planes_value(&p, i);
  free_planes(&p);
  return out;
}

/* product_of on a GPU in fp64, on a device that stays open: a CPU would take minutes for the large ones. */
static inline void product_by_gpu(double *out, const struct draw *d, const double *a, const double *b) {
  const int64_t rows = d->rows, cols = columns_of(d), depth = d->depth;
  static struct memory m;
  if (!m.device) MUST(mn_device_open(&m.device, "cuda", "fp64", 0));
  const struct mn_operand x = {.rows = d->form == MN_TN ? depth : rows,
                               .cols = d->form == MN_TN ? rows : depth,
                               .real = take_reals(&m, a, rows * depth)},
                          y = {.rows = d->form == MN_NT ? cols : depth,
                               .cols = d->form == MN_NT ? depth : cols,
                               .real = take_reals(&m, b, cols * depth)};
  const struct mn_epilogue e = {.kind = MN_STORE, .into = take_reals(&m, NULL, rows * cols)};
  MUST(m.device->kernels->gemm(m.device, (enum mn_form)d->form, &x, &y, &e));
  MUST(mn_device_read(m.device, out, e.into, rows * cols));
  release_all(&m);
}

/* d[rows, cols] = op(a)·op(b), summed in double. */
static inline double *product_of(struct memory *m, const struct draw *d, const struct mn_operand of[2]) {
  const int64_t rows = d->rows, cols = columns_of(d), depth = d->depth;
  const int64_t down = d->form == MN_TN ? 1 : depth, along = d->form == MN_TN ? rows : 1;
  double *a = factors_of(m, &of[0]), *b = factors_of(m, &of[1]), *out = kept_zeros(m, rows * cols),
         *turned = b;
  if (is_cuda(m) && (double)rows * (double)cols * (double)depth > 1e8) {
    product_by_gpu(out, d, a, b);
    return out;
  }
  if (d->form == MN_NT) turned = kept_zeros(m, depth * cols);
  for (int64_t i = 0; i < depth * cols && d->form == MN_NT; i++) turned[i % depth * cols + i / depth] = b[i];
#pragma omp parallel for
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < cols; j++) out[i * cols + j] += a[i * down + k * along] * turned[k * cols + j];
  return out;
}

/* Only the library leaves the product in `into`, so that shows which way it went. The library has no use for two
 * planes: with them our own GEMM updates a weight in any case. */
static inline void assert_way(struct memory *m, const struct draw *d, const struct mn_epilogue *e) {
  const int64_t count = d->rows * columns_of(d);
  const int leaves = d->library && !(m->device->planes == 2 && e->kind == MN_UPDATE);
  const double *into = d->fits ? kept_reals(m, e->into, count) : NULL;
  for (int64_t i = 0; i < count && into; i++)
    if (isnan(into[i]) == leaves) WRONG("the product went the %s way", leaves ? "GEMM's" : "library's");
}

/* ---- parameters ---- */

static const double half __attribute__((unused)) = 0.5;
#define ADAMW_OF_RULES .kind = MN_ADAMW, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3
static const struct mn_rule rules[] __attribute__((unused)) = {
    {.momentum = 0},
    {.weight_decay = 0.1, .scale = &half},
    {.momentum = 0.9},
    {.momentum = 0.9, .weight_decay = 0.1},
    {.momentum = 0.9, .weight_decay = 0.1, .nesterov = 1},
    {.momentum = 0.9, .weight_decay = 0.1, .scale = &half},
    {.weight_decay = 0.1, .scale = &half, ADAMW_OF_RULES},
    {ADAMW_OF_RULES},
};
enum { RULES = COUNT(rules), MOMENTUM_DECAY = 3, ADAMW = RULES - 1 };
static const double rule_rates[MN_RATES] __attribute__((unused)) = {0.1, 1 / (1 - 0.8), 3.1622776601683795};

/* Whether the device needs memory for a product that updates (struct mn_epilogue). */
static inline int needs_memory(const struct mn_device *device, const struct mn_rule *r) {
  return device->type == MN_DEVICE_CPU && !mn_rule_by_gemm(r);
}

/* Applies a rule (struct mn_rule) to numbers and their gradient times `scale`; m and v are NULL if it keeps none. */
static inline void follow_rule(const struct mn_rule *r, const double rates[MN_RATES], double scale,
                               int64_t count, double *w, double *m, double *v, const double *gradient) {
#pragma omp parallel for
  for (int64_t i = 0; i < count; i++) {
    double g = scale * gradient[i];
    if (r->kind == MN_ADAMW) {
      m[i] = r->beta1 * m[i] + (1 - r->beta1) * g;
      v[i] = r->beta2 * v[i] + (1 - r->beta2) * g * g;
      const double size = sqrt(v[i]) * rates[MN_RATE_SECOND] + r->eps;
      w[i] -= rates[MN_RATE] * (r->weight_decay * w[i] + rates[MN_RATE_FIRST] * m[i] / size);
      continue;
    }
    g += r->weight_decay * w[i];
    if (m) m[i] = r->momentum * m[i] + g;
    w[i] -= rates[MN_RATE] * (!m ? g : r->nesterov ? g + r->momentum * m[i] : m[i]);
  }
}

/* A parameter with its update, and what its values and all that its rule keeps should be. */
struct parameter {
  struct mn_operand w;
  struct mn_rule rule;
  struct mn_update update;
  double scale, *values, *m, *v; /* m, v: NULL without */
};

/* A weight in bf16 becomes split: on CUDA it has halves instead of reals. */
static inline void split_weight(struct memory *m, struct mn_operand *w) {
  struct mn_operand written = *w;
  w->split = written.split = 1;
  if (m->device->type == MN_DEVICE_CUDA)
    w->low = written.low = poisoned(m, (size_t)(w->rows * w->cols) * sizeof *w->low), w->real = NULL;
  MUST(m->device->kernels->round(m->device, &written, 0));
}

static inline void make_parameter(struct memory *m, struct parameter *p, int64_t rows, int64_t cols,
                                  const struct draw *d) {
  const int64_t count = rows * cols;
  const uint64_t seed = 21 + 64 * (uint64_t)d->seed;
  const struct mn_operand shape = {.rows = rows, .cols = cols, .headroom = MN_HEADROOM_W};
  *p = (struct parameter){.w = operand(m, shape, seed), .rule = rules[d->rule % RULES], .scale = 1};
  if (m->device->precision == MN_BF16) split_weight(m, &p->w);
  if (p->rule.scale) p->scale = *p->rule.scale, p->rule.scale = put_bytes(m, &p->scale, sizeof p->scale);
  p->rule.rate = put_bytes(m, rule_rates, sizeof rule_rates);
  p->update = (struct mn_update){.w = &p->w, .rule = &p->rule};
  p->values = kept_random(m, seed, count, 1);
  if (mn_rule_keeps_m(&p->rule)) p->m = kept_random(m, seed + 1, count, 1);
  if (mn_rule_keeps_v(&p->rule)) p->v = kept_random(m, seed + 3, count, 1);
  /* So far from 0 that a gradient's error does not grow in the quotient. */
  for (int64_t i = 0; p->v && i < count; i++) p->v[i] = (float)(0.0625 + p->v[i] * p->v[i]);
  if (p->m) p->update.m = take_reals(m, p->m, count);
  if (p->v) p->update.v = take_reals(m, p->v, count);
}

static inline void follow(struct parameter *p, const double *gradient) {
  follow_rule(&p->rule, rule_rates, p->scale, p->w.rows * p->w.cols, p->values, p->m, p->v, gradient);
}

static inline void assert_parameter(struct memory *m, const struct parameter *p, const char *what,
                                    double tolerance) {
  const int64_t count = p->w.rows * p->w.cols;
  void *reals = p->w.real;
  if (p->w.split) {
    reals = poisoned(m, (size_t)count * sizeof(float));
    MUST(m->device->kernels->narrow(m->device, reals, &p->w, 0, count));
  }
  assert_reals(m, what, reals, p->values, count, tolerance);
  if (p->m) assert_reals(m, what, p->update.m, p->m, count, tolerance);
  if (p->v) assert_reals(m, what, p->update.v, p->v, count, tolerance);
  assert_planes(m->device, what, &p->w);
}

/* Raises the flag, as the step of mark 7 would. */
static inline void raise_flag(struct mn_device *device) {
  const int mark = 7;
  MUST(device->kernels->copy(device, device->nonfinite, &mark, sizeof mark));
  MUST(device->kernels->synchronize(device));
}

/* ---- a matrix and its epilogue ---- */

/* Repeats the product into memory of zeros: each run leaves the first one's bytes. */
static inline void check_repeats(struct memory *m, const struct draw *d, const struct mn_operand of[2],
                                 const struct mn_epilogue *e) {
  struct mn_device *device = m->device;
  const size_t bytes = (size_t)(d->rows * columns_of(d)) * device->real;
  char *first = kept(m, get_bytes(device, e->into, bytes));
  for (int64_t run = 0; run < d->repeats; run++) {
    MUST(device->kernels->zero(device, e->into, bytes));
    MUST(device->kernels->gemm(device, (enum mn_form)d->form, &of[0], &of[1], e));
    char *next = get_bytes(device, e->into, bytes);
    if (memcmp(first, next, bytes) != 0) WRONG("run %ld leaves other bytes", (long)run);
    free(next);
  }
}

/* Under a raised flag nothing is added or updated. An update writes W's planes under the factor that they have,
 * and clears a gradient if it is told to. With `way` odd an update has memory for its product, or clears. */
static inline void check_matrix(struct memory *m, const struct draw *d) {
  struct mn_device *device = m->device;
  const enum mn_epilogue_kind kind = d->kind > MN_ADD ? MN_UPDATE : (enum mn_epilogue_kind)d->kind;
  const int64_t cols = columns_of(d), count = d->rows * cols;
  const int product = d->form != FROM_MEMORY;
  struct draw at = *d;
  if (device->planes == 2) at.shift = 0;             /* which no library takes instead */
  if (product && kind == MN_UPDATE) at.form = MN_TN; /* as an update is a gradient's */
  const double tolerance = product ? product_tolerance(device) : tolerance_of(device);
  double *before = kind == MN_ADD ? kept_random(m, 13, count + at.shift, 1) : NULL, *values;
  struct mn_operand of[2];
  struct parameter w = {.scale = 1};
  struct mn_epilogue e = {.kind = kind, .update = &w.update};
  void *from = NULL;
  if (product && kind == MN_ADD && blind(device->precision)) return;
  make_parameter(m, &w, d->rows, cols, d);
  if (product && kind == MN_UPDATE && device->precision == MN_TF32 && w.v)
    return; /* too coarse for quotients */
  if (product)
    operands(m, &at, of), values = product_of(m, &at, of);
  else
    values = kept_random(m, 23 + 64 * (uint64_t)d->seed, count, 1), from = take_reals(m, values, count);
  w.update.clears = !product && d->way % 2;
  if (kind != MN_UPDATE || (product && (d->way % 2 || needs_memory(device, &w.rule))))
    e.into = (char *)take_reals(m, before, count + at.shift) + (size_t)at.shift * device->real;
  const float factor = w.w.scale ? get_scale(device, w.w.scale).factor : 1;
  if (before) before += at.shift;
  device->force_cublas = d->library != 0;
  for (int under = d->flag != 0; under >= 0; under--) {
    if (under) raise_flag(device);
    if (product)
      MUST(device->kernels->gemm(device, (enum mn_form)at.form, &of[0], &of[1], &e));
    else
      MUST(device->kernels->epilogue(device, from, d->rows, cols, &e));
    if (flag_of(device) != 7 * under) WRONG("the flag is not %d", 7 * under); /* nobody else has raised it */
    if (product) assert_way(m, d, &e);
    for (int64_t i = 0; i < count && before && !under; i++) before[i] += values[i];
    if (!under && kind == MN_UPDATE) follow(&w, values);
    if (kind == MN_UPDATE) assert_parameter(m, &w, "a parameter", under ? 0 : tolerance);
    if (kind == MN_STORE) assert_reals(m, "what is stored", e.into, values, count, tolerance);
    if (before) assert_reals(m, "a sum", e.into, before, count, under ? 0 : tolerance);
    for (int64_t i = 0; i < count && w.update.clears && kind == MN_UPDATE && !under; i++) values[i] = 0;
    if (!product) assert_reals(m, "the matrix", from, values, count, 0);
  }
  if (w.w.scale && get_scale(device, w.w.scale).factor != factor) WRONG("another factor");
  if (product && kind == MN_STORE) check_repeats(m, d, of, &e);
}

#endif
