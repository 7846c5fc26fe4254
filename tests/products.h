/* What the tests of products and of updates share: operands of every form with their planes, a parameter with
 * what its rule keeps, and what plain double arithmetic makes of both. */
#ifndef MN_TESTS_PRODUCTS_H
#define MN_TESTS_PRODUCTS_H

#include "tests/planes_read.h"

/* Whether this runs under a checker that does not see what cuBLASLt writes in 16 bits (tests/sanitizer.sh).
 */
static inline int blind(enum mn_precision precision) {
  const char *text = getenv("MINNOW_BLIND");
  return text && *text && (precision == MN_TF32 || precision == MN_BF16 || precision == MN_FP16);
}

/* ---- operands ---- */

struct sizes {
  int64_t rows, cols, depth;
};

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

/* Both of a product's, with planes where a GEMM can read them: two planes want a width of whole multiples of
 * 8 of everything that is contiguous. */
static inline void operands(struct memory *m, enum mn_form form, struct sizes z, struct mn_operand *x,
                            struct mn_operand *y) {
  const int planes = mn_has_planes(m->device, z.cols, form == MN_TN ? z.rows : z.depth);
  const int64_t along = form == MN_TN ? z.depth : z.rows, across = form == MN_NT ? z.cols : z.depth;
  *x = (struct mn_operand){.rows = along, .cols = z.rows + z.depth - along};
  *y = (struct mn_operand){.rows = across, .cols = z.cols + z.depth - across};
  *x = operand_with(m, *x, 11, planes);
  *y = operand_with(m, *y, 12, planes);
}

/* tf32 keeps 10 bits of each factor; of planes the GEMM and the reference read the same numbers. */
static inline double product_tolerance(const struct mn_device *device) {
  if (device->precision == MN_FP64) return 1e-12;
  return device->precision == MN_TF32 ? 1e-3 : device->planes ? 1e-4 : 1e-5;
}

/* What a GEMM reads of an operand; free() it. */
static inline double *factors_of(const struct memory *m, const struct mn_operand *o) {
  if (!o->planes[0]) return read_reals(m, o->real, o->rows * o->cols);
  struct planes p = get_planes(m->device, o);
  double *out = zeros(p.count);
  for (int64_t i = 0; i < p.count; i++) out[i] = planes_value(&p, i);
  free_planes(&p);
  return out;
}

/* d[rows, cols] = op(a)·op(b), summed in double; free() it. */
static inline double *product_of(const struct memory *m, enum mn_form form, const struct mn_operand *x,
                                 const struct mn_operand *y) {
  const int64_t rows = form == MN_TN ? x->cols : x->rows, depth = form == MN_TN ? x->rows : x->cols;
  const int64_t cols = form == MN_NT ? y->rows : y->cols;
  const int64_t down = form == MN_TN ? 1 : depth, along = form == MN_TN ? rows : 1;
  const int64_t across = form == MN_NT ? depth : 1, deep = form == MN_NT ? 1 : cols;
  double *a = factors_of(m, x), *b = factors_of(m, y), *out = zeros(rows * cols);
#pragma omp parallel for
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < cols; j++)
        out[i * cols + j] += a[i * down + k * along] * b[j * across + k * deep];
  free(a), free(b);
  return out;
}

/* ---- parameters ---- */

struct rule {
  double momentum, decay, scale; /* scale 0: none */
  int nesterov;
  enum mn_rule_kind kind;
};
static const struct rule rules[] __attribute__((unused)) = {
    {0, 0, 0, 0, MN_SGD},       {0, 0.1, 0.5, 0, MN_SGD}, {0.9, 0, 0, 0, MN_SGD},
    {0.9, 0.1, 0, 0, MN_SGD},   {0.9, 0.1, 0, 1, MN_SGD}, {0.9, 0.1, 0.5, 0, MN_SGD},
    {0, 0.1, 0.5, 0, MN_ADAMW}, {0, 0, 0, 0, MN_ADAMW},
};
enum { RULES = COUNT(rules), MOMENTUM_DECAY = 3, ADAMW = RULES - 1 };
static const double rule_rates[MN_RATES] __attribute__((unused)) = {0.1, 1 / (1 - 0.8), 3.1622776601683795};

/* Whether the device needs memory for a product that updates (struct mn_epilogue). */
static inline int needs_memory(const struct mn_device *device, struct rule r) {
  return device->type == MN_DEVICE_CPU && (r.kind != MN_SGD || r.momentum == 0 || r.scale > 0 || r.nesterov);
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
                                  struct rule r) {
  const int64_t count = rows * cols;
  const struct mn_operand shape = {.rows = rows, .cols = cols, .headroom = MN_HEADROOM_W};
  *p = (struct parameter){.w = operand(m, shape, 21), .scale = r.scale > 0 ? r.scale : 1};
  if (m->device->precision == MN_BF16) split_weight(m, &p->w);
  p->rule = (struct mn_rule){.rate = put_bytes(m, rule_rates, sizeof rule_rates),
                             .momentum = r.momentum,
                             .weight_decay = r.decay,
                             .nesterov = r.nesterov,
                             .kind = r.kind,
                             .beta1 = 0.8,
                             .beta2 = 0.9,
                             .eps = 1e-3};
  if (r.scale > 0) p->rule.scale = put_bytes(m, &r.scale, sizeof r.scale);
  p->update = (struct mn_update){.w = &p->w, .rule = &p->rule};
  p->values = random_values(count, 21, 1);
  if (mn_rule_keeps_m(&p->rule)) p->m = random_values(count, 22, 1);
  if (mn_rule_keeps_v(&p->rule)) p->v = random_values(count, 24, 1);
  /* So far from 0 that a gradient's error does not grow in the quotient. */
  for (int64_t i = 0; p->v && i < count; i++) p->v[i] = (float)(0.0625 + p->v[i] * p->v[i]);
  if (p->m) p->update.m = take_reals(m, p->m, count);
  if (p->v) p->update.v = take_reals(m, p->v, count);
}

/* What one number becomes by its gradient (struct mn_rule). */
static inline void follow(struct parameter *p, const double *gradient) {
  const struct mn_rule *r = &p->rule;
  for (int64_t i = 0; i < p->w.rows * p->w.cols; i++) {
    double g = p->scale * gradient[i], *w = &p->values[i];
    if (r->kind == MN_ADAMW) {
      p->m[i] = r->beta1 * p->m[i] + (1 - r->beta1) * g;
      p->v[i] = r->beta2 * p->v[i] + (1 - r->beta2) * g * g;
      const double size = sqrt(p->v[i]) * rule_rates[MN_RATE_SECOND] + r->eps;
      *w -= rule_rates[MN_RATE] * (r->weight_decay * *w + rule_rates[MN_RATE_FIRST] * p->m[i] / size);
      continue;
    }
    g += r->weight_decay * *w;
    if (p->m) p->m[i] = r->momentum * p->m[i] + g;
    *w -= rule_rates[MN_RATE] * (r->nesterov ? g + r->momentum * p->m[i] : p->m ? p->m[i] : g);
  }
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

static inline void free_parameter(struct parameter *p) {
  free(p->values), free(p->m), free(p->v);
}

#endif
