/* What the parity tests share: the CPU and a GPU side by side, buffers on both that hold the same numbers,
 * and comparisons that a NaN fails. Outputs are poisoned with NaN before every call. */
#ifndef MN_TESTS_PARITY_BENCH_H
#define MN_TESTS_PARITY_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/planes_read.h"
#include "tests/skip.h"

/* Two devices on the same work. Every buffer is registered, so that one call gives all back. */
enum { CPU, CUDA, SIDES };
struct bench {
  struct mn_device *on[SIDES];
  void *memory[SIDES][512];
  int count[SIDES];
  enum mn_precision precision;
};

/* Under compute-sanitizer a launch costs a hundred times as much: a choice of cases then, and few repeats. */
static inline int quick(void) {
  return getenv("MINNOW_QUICK") != NULL;
}

/* Whether this runs under a checker that does not see what cuBLASLt writes in 16 bits (tests/sanitizer.sh).
 */
static inline int blind(void) {
  const char *text = getenv("MINNOW_BLIND");
  return text && *text;
}

static inline void must(mn_status status) {
  if (status != MN_OK) fail_msg("status %d: %s", status, mn_message());
}

/* Skips the calling test where the GPU, or the precision on it, is not there. */
static inline void open_bench(struct bench *b, enum mn_precision precision) {
  memset(b, 0, sizeof *b);
  b->precision = precision;
  if (mn_device_open(&b->on[CUDA], "cuda", mn_precision_name(precision)) != MN_OK) SKIP("%s", mn_message());
  must(mn_device_open(&b->on[CPU], "cpu", mn_precision_name(precision)));
}

static inline void clear_bench(struct bench *b) {
  for (int s = 0; s < SIDES; s++) {
    while (b->count[s] > 0) b->on[s]->kernels->release(b->on[s], b->memory[s][--b->count[s]]);
    must(b->on[s]->kernels->zero(b->on[s], b->on[s]->nonfinite, sizeof(int)));
  }
}

static inline void close_bench(struct bench *b) {
  clear_bench(b);
  for (int s = 0; s < SIDES; s++) mn_device_close(b->on[s]);
}

static inline void *take(struct bench *b, int s, size_t bytes) {
  void *memory = NULL;
  assert_true(b->count[s] < 512);
  must(b->on[s]->kernels->allocate(b->on[s], &memory, bytes));
  b->memory[s][b->count[s]++] = memory;
  return memory;
}

/* `values` as reals in a device's memory. */
static inline void *put(struct bench *b, int s, const double *values, int64_t count) {
  size_t bytes = (size_t)count * b->on[s]->real;
  void *memory = take(b, s, bytes), *host = malloc(bytes);
  assert_non_null(host);
  for (int64_t i = 0; i < count; i++)
    if (b->on[s]->real == 8)
      ((double *)host)[i] = values[i];
    else
      ((float *)host)[i] = (float)values[i];
  must(b->on[s]->kernels->copy(b->on[s], memory, host, bytes));
  must(b->on[s]->kernels->synchronize(b->on[s]));
  free(host);
  return memory;
}

static inline void *put_raw(struct bench *b, int s, const void *from, size_t bytes) {
  void *memory = take(b, s, bytes);
  must(b->on[s]->kernels->copy(b->on[s], memory, from, bytes));
  must(b->on[s]->kernels->synchronize(b->on[s]));
  return memory;
}

/* Bytes 0xff: NaN in every width. */
static inline void *poisoned(struct bench *b, int s, size_t bytes) {
  void *host = malloc(bytes);
  assert_non_null(host);
  memset(host, 0xff, bytes);
  void *memory = put_raw(b, s, host, bytes);
  free(host);
  return memory;
}

static inline void *poisoned_reals(struct bench *b, int s, int64_t count) {
  return poisoned(b, s, (size_t)count * b->on[s]->real);
}

static inline void *get_raw(struct bench *b, int s, const void *from, size_t bytes) {
  void *host = malloc(bytes);
  assert_non_null(host);
  must(b->on[s]->kernels->download(b->on[s], host, from, bytes));
  return host;
}

static inline double *get(struct bench *b, int s, const void *from, int64_t count) {
  void *host = get_raw(b, s, from, (size_t)count * b->on[s]->real);
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < count; i++)
    out[i] = b->on[s]->real == 8 ? ((double *)host)[i] : (double)((float *)host)[i];
  free(host);
  return out;
}

static inline int flag(struct bench *b, int s) {
  int *host = get_raw(b, s, b->on[s]->nonfinite, sizeof(int)), value = *host;
  free(host);
  return value;
}

/* Uniform on [−bound, bound), a float's worth of bits, so that both widths start from the same. */
static inline double *draw(uint32_t which, int64_t count, double bound) {
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < count; i++) {
    double t = (double)(mn_random_word(7, MN_RANDOM_CHECK + which, (uint64_t)i) >> 8) * 0x1p-23 - 1;
    out[i] = (float)(bound * t);
  }
  return out;
}

static inline void *put_drawn(struct bench *b, int s, uint32_t which, int64_t count, double bound) {
  double *values = draw(which, count, bound);
  void *memory = put(b, s, values, count);
  free(values);
  return memory;
}

/* ‖a − e‖/‖e‖, or ‖a‖/√count where all of e is zero. A NaN on either side fails. */
static inline void near(const char *what, const double *a, const double *e, int64_t count, double tolerance) {
  double difference = 0, size = 0, own = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (a[i] - e[i]) * (a[i] - e[i]);
    size += e[i] * e[i];
    own += a[i] * a[i];
  }
  double error = size > 0 ? sqrt(difference / size) : sqrt(own / (double)count);
  if (size != size) error = NAN;
  if (!(error <= tolerance)) fail_msg("%s: error %.3e is not within %.1e", what, error, tolerance);
}

static inline void same_reals(struct bench *b, const char *what, void *const at[SIDES], int64_t count,
                              double tolerance) {
  double *e = get(b, CPU, at[CPU], count), *a = get(b, CUDA, at[CUDA], count);
  near(what, a, e, count, tolerance);
  free(a), free(e);
}

/* The planes are the operand's reals, rounded, to the bit. */
static inline void exact_planes(struct bench *b, int s, const char *what, const struct mn_operand *o) {
  const int64_t wrong = wrong_planes(b->on[s], o);
  if (wrong) fail_msg("%s: %lld planes' elements are not its reals', rounded", what, (long long)wrong);
}

/* The largest |value| of the operand's reals. */
static inline double largest_real(struct bench *b, int s, const struct mn_operand *o) {
  double *values = get(b, s, o->real, o->rows * o->cols), largest = 0;
  for (int64_t i = 0; i < o->rows * o->cols; i++) largest = fmax(largest, fabs(values[i]));
  free(values);
  return largest;
}

/* Planes that nobody has written yet, where the device's GEMMs read them, and a scale with this factor. */
static inline void take_planes(struct bench *b, int s, struct mn_operand *o, float factor) {
  const struct mn_scale scale = {factor, 0};
  for (int i = 0; i < b->on[s]->planes; i++)
    o->planes[i] = poisoned(b, s, (size_t)(o->rows * o->cols) * b->on[s]->plane);
  if (b->on[s]->scaled) o->scale = put_raw(b, s, &scale, sizeof scale);
  o->stale = 1;
}

static inline double tolerance_of(const struct bench *b) {
  return b->precision == MN_FP64 ? 1e-12 : 1e-5;
}

/* ---- one side's block ---- */

enum alias { APART, DY_TAKES_DZ, Z_TAKES_DZ, D_TAKES_Z };
struct shape {
  int64_t rows, groups, width;
};

/* One side's block with everything it reads and writes. */
struct side {
  struct mn_block block;
  struct mn_operand y, dz;
  void *d, *dy;
};

static inline void make_side(struct bench *b, int s, struct side *side, struct shape at, unsigned ops,
                             enum alias alias) {
  int64_t n = at.rows, c = at.groups * at.width, count = n * c;
  const struct mn_device *device = b->on[s];
  memset(side, 0, sizeof *side);
  side->d = put_drawn(b, s, 1, count, 2);
  side->dy = put_drawn(b, s, 2, count, 1);
  side->y = (struct mn_operand){.rows = n, .cols = c, .real = poisoned_reals(b, s, count)};
  side->dz = (struct mn_operand){.rows = n, .cols = c};
  if (!device->scaled || ops & MN_OP_NORM) take_planes(b, s, &side->y, 1);
  take_planes(b, s, &side->dz, 4);
  side->block = (struct mn_block){
      .ops = ops,
      .rows = n,
      .channels = c,
      .groups = at.groups,
      .eps = 1e-5,
      .slope = 0.01,
      .bias = put_drawn(b, s, 3, c, 1),
      .gamma = put_drawn(b, s, 4, c, 2),
      .beta = put_drawn(b, s, 5, c, 1),
      .z = ops & MN_OP_BIAS && alias != D_TAKES_Z ? poisoned_reals(b, s, count) : side->d,
      .mean = poisoned_reals(b, s, n * at.groups),
      .rstd = poisoned_reals(b, s, n * at.groups),
      .target = put_drawn(b, s, 6, count, 2),
      .scale = (double)count / 4,
      .loss_parts = poisoned_reals(b, s, n * at.groups),
      .sums = poisoned_reals(b, s, 3 * mn_chunks(n) * c),
  };
  side->block.y = &side->y;
  side->block.dz = &side->dz;
  side->dz.real = alias == DY_TAKES_DZ  ? side->dy
                  : alias == Z_TAKES_DZ ? side->block.z
                                        : poisoned_reals(b, s, count);
  if (side->y.scale) must(device->kernels->rescale(b->on[s], NULL, side->y.scale, &side->block));
}

static inline void apply(struct bench *b, int s, struct side *side, enum mn_epilogue_kind kind, void *d) {
  struct mn_epilogue e = {.kind = kind, .into = d, .block = &side->block};
  must(b->on[s]->kernels->epilogue(b->on[s], d, side->block.rows, side->block.channels, &e));
}

#define PAIR(field) ((void *[]){two[CPU].field, two[CUDA].field})

/* ---- operands and parameters ---- */

struct sizes {
  int64_t rows, cols, depth;
};

static inline void operand_shape(enum mn_form form, struct sizes z, struct mn_operand *a,
                                 struct mn_operand *b) {
  *a =
      (struct mn_operand){.rows = form == MN_TN ? z.depth : z.rows, .cols = form == MN_TN ? z.rows : z.depth};
  *b =
      (struct mn_operand){.rows = form == MN_NT ? z.cols : z.depth, .cols = form == MN_NT ? z.depth : z.cols};
}

/* Random values of this shape, with planes where `planes`, under the factor that suits them. */
static inline struct mn_operand operand_with(struct bench *b, int s, struct mn_operand shape, uint32_t which,
                                             int planes) {
  shape.real = put_drawn(b, s, which, shape.rows * shape.cols, 1);
  if (!planes) return shape;
  if (!shape.headroom) shape.headroom = MN_HEADROOM_X;
  take_planes(b, s, &shape, 0);
  must(b->on[s]->kernels->round(b->on[s], &shape, 1));
  assert_int_equal(shape.stale, 0);
  return shape;
}

static inline struct mn_operand operand(struct bench *b, int s, struct mn_operand shape, uint32_t which) {
  return operand_with(b, s, shape, which, mn_has_planes(b->on[s], shape.rows, shape.cols));
}

/* Both of a product's, with planes where a GEMM can read them: two planes want a width of whole multiples of
 * 8 of everything that is contiguous. */
static inline void operands(struct bench *b, int s, enum mn_form form, struct sizes z, struct mn_operand *x,
                            struct mn_operand *y) {
  const int planes = mn_has_planes(b->on[s], z.cols, form == MN_TN ? z.rows : z.depth);
  operand_shape(form, z, x, y);
  *x = operand_with(b, s, *x, 11, planes);
  *y = operand_with(b, s, *y, 12, planes);
}

/* tf32 keeps 10 bits of each factor; the others multiply the same numbers on both sides. */
static inline double product_tolerance(const struct bench *b) {
  return b->precision == MN_FP64 ? 1e-12 : b->precision == MN_TF32 ? 1e-3 : b->on[CPU]->planes ? 1e-4 : 1e-5;
}

struct rule {
  double momentum, decay, scale; /* scale 0: none */
  int nesterov;
  enum mn_rule_kind kind;
};
static const struct rule RULES[] = {
    {0, 0, 0, 0, MN_SGD},       {0, 0.1, 0.5, 0, MN_SGD}, {0.9, 0, 0, 0, MN_SGD},
    {0.9, 0.1, 0, 0, MN_SGD},   {0.9, 0.1, 0, 1, MN_SGD}, {0.9, 0.1, 0.5, 0, MN_SGD},
    {0, 0.1, 0.5, 0, MN_ADAMW}, {0, 0, 0, 0, MN_ADAMW},
};
enum { RULE_COUNT = sizeof RULES / sizeof RULES[0], ADAMW = RULE_COUNT - 1 };

/* A weight in bf16 becomes split: on CUDA it has halves instead of reals. */
static inline void split_weight(struct bench *b, int s, struct mn_operand *w) {
  struct mn_operand written = *w;
  w->split = written.split = 1;
  if (s == CUDA)
    w->low = written.low = poisoned(b, s, (size_t)(w->rows * w->cols) * sizeof *w->low), w->real = NULL;
  must(b->on[s]->kernels->round(b->on[s], &written, 0));
}

/* The reals of a weight. */
static inline void *reals_of(struct bench *b, int s, const struct mn_operand *w) {
  if (!w->split) return w->real;
  float *floats = poisoned_reals(b, s, w->rows * w->cols);
  must(b->on[s]->kernels->narrow(b->on[s], floats, w, 0, w->rows * w->cols));
  return floats;
}

/* A parameter with its update, on one side. */
struct parameter {
  struct mn_operand w;
  struct mn_rule rule;
  struct mn_update update;
};

static inline void make_parameter(struct bench *b, int s, struct parameter *p, int64_t rows, int64_t cols,
                                  struct rule r) {
  const double rate[MN_RATES] = {0.1, 1 / (1 - 0.8), 1 / sqrt(1 - 0.9)};
  const int64_t count = rows * cols;
  p->w = operand(b, s, (struct mn_operand){.rows = rows, .cols = cols, .headroom = MN_HEADROOM_W}, 21);
  if (b->precision == MN_BF16) split_weight(b, s, &p->w);
  p->rule = (struct mn_rule){.rate = put_raw(b, s, rate, sizeof rate),
                             .momentum = r.momentum,
                             .weight_decay = r.decay,
                             .nesterov = r.nesterov,
                             .kind = r.kind,
                             .beta1 = 0.8,
                             .beta2 = 0.9,
                             .eps = 1e-3};
  if (r.scale > 0) p->rule.scale = put_raw(b, s, &r.scale, sizeof r.scale);
  p->update = (struct mn_update){.w = &p->w, .rule = &p->rule};
  if (mn_rule_keeps_m(&p->rule)) p->update.m = put_drawn(b, s, 22, count, 1);
  if (!mn_rule_keeps_v(&p->rule)) return;
  double *squares = draw(24, count, 1);
  for (int64_t i = 0; i < count; i++) squares[i] *= squares[i];
  p->update.v = put(b, s, squares, count);
  free(squares);
}

static inline void same_parameters(struct bench *b, struct parameter two[SIDES], const char *what,
                                   double tolerance) {
  int64_t count = two[CPU].w.rows * two[CPU].w.cols;
  void *const reals[] = {reals_of(b, CPU, &two[CPU].w), reals_of(b, CUDA, &two[CUDA].w)};
  same_reals(b, what, reals, count, tolerance);
  if (two[CPU].update.m) same_reals(b, what, PAIR(update.m), count, tolerance);
  if (two[CPU].update.v) same_reals(b, what, PAIR(update.v), count, tolerance);
  for (int s = 0; s < SIDES; s++) exact_planes(b, s, what, &two[s].w);
}

#endif
