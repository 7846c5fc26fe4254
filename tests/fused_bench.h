/* What the tests of fused products share: a block or a stack of them on two sides, one held against the
 * other, with the same random values; memory that is full of NaN at first and ends in bytes that nobody may
 * touch; tensors compared, and their errors printed. */
#ifndef MN_TESTS_FUSED_BENCH_H
#define MN_TESTS_FUSED_BENCH_H

#include "tests/planes_read.h"
#include "tests/training.h"

/* One block, or a stack of equal ones. */
struct fused_case {
  int64_t rows, inputs, groups, width; /* N, I, G, D */
  int blocks;                          /* 0: one */
  double x_offset, bias_offset;
  enum mn_precision precision; /* of the side that is tested */
  int exact;                   /* x and W are values that its planes hold: their rounding changes nothing */
  int twice;                   /* gradients are added up over two passes */
  int nesterov;
  int adamw;
  enum mn_plan plan; /* 0: MN_PLAN_BLOCK */
  int head, labels;  /* outputs of a linear head, whose loss is the cross-entropy */
};

/* Whose products end in epilogues of the GEMM of our own, where there is one. */
static const enum mn_precision fused_precisions[] __attribute__((unused)) = {MN_BF16, MN_FP16, MN_FP16X3};

static inline int64_t channels_of(const struct fused_case *c) {
  return c->groups * c->width;
}

/* ---- random values, the same for both widths ---- */

struct range {
  double offset, bound;
  enum mn_precision planes; /* the values are such as planes of this precision hold; MN_FP32: any */
};

static inline double *numbers(int64_t count, uint64_t seed, struct range r) {
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
#pragma omp parallel for
  for (int64_t i = 0; i < count; i++) {
    float value = (float)(r.offset + r.bound * (2 * random01(seed, i) - 1));
    out[i] = r.planes == MN_BF16 ? mn_to_bf16(value) : r.planes == MN_FP16 ? mn_to_fp16(value) : value;
  }
  return out;
}

static inline void fill(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed, struct range r) {
  double *values = numbers(mn_tensor_count(tensor), seed, r);
  MUST(mn_tensor_write(device, tensor, values));
  free(values);
}

/* A power of two about 1/√I, so that z is about 1. */
static inline double weight_bound(const struct fused_case *c) {
  return exp2(-floor(log2(sqrt((double)c->inputs))));
}

static inline enum mn_precision planes_of(const struct fused_case *c) {
  return c->exact ? c->precision : MN_FP32;
}

enum { SEED_X = 1, SEED_DY, SEED_TARGET, SEED_PARAMETER = 100, SEED_MOMENTUM = 1000 };

/* gamma on both sides of 0. In a stack beta keeps v off the kink, so that what rounding does to y moves no v
 * across it: behind several blocks nobody could say any more what to expect. */
static inline void fill_parameter(struct mn_model *model, int i, const struct fused_case *c) {
  struct mn_tensor *t = model->parameters[i];
  const struct range ranges[] = {{0, weight_bound(c), planes_of(c)},
                                 {c->bias_offset, 1, MN_FP32},
                                 {0, 2, MN_FP32},
                                 {c->blocks > 1 ? 0 : 0.25, 1, MN_FP32}};
  double *values = numbers(mn_tensor_count(t), (uint64_t)(SEED_PARAMETER + i), ranges[i % 4]);
  for (int64_t k = 0; i % 4 == 3 && c->blocks > 1 && k < mn_tensor_count(t); k++)
    values[k] += values[k] < 0 ? -8 : 8;
  MUST(mn_tensor_write(model->device, t, values));
  free(values);
}

static inline struct mn_model *open_stack(struct mn_device *device, const struct fused_case *c) {
  struct mn_model_config config = {.inputs = c->inputs,
                                   .depth = c->blocks ? c->blocks : 1,
                                   .groups = c->groups,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .head = c->head,
                                   .loss = c->labels ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE,
                                   .plan = c->plan ? c->plan : MN_PLAN_BLOCK};
  for (int i = 0; i < config.depth; i++) config.hidden[i] = channels_of(c);
  struct mn_model *model;
  MUST(mn_model_open(&model, device, &config));
  for (int i = 0; i < model->count; i++) fill_parameter(model, i, c);
  return model;
}

static inline void fill_x(struct mn_pass *pass, const struct fused_case *c) {
  fill(pass->model->device, pass->x, SEED_X, (struct range){c->x_offset, 1, planes_of(c)});
}

/* AdamW's rate is the size of its steps. Its v is far enough from 0 for small gradients' errors to stay
 * small. */
static inline void open_optimizer(struct training *t, const struct fused_case *c) {
  const double size = weight_bound(c);
  const struct mn_optimizer_config sgd = {
      .rule = {.momentum = 0.9, .weight_decay = 0.01, .nesterov = c->nesterov}, .accumulate = 1};
  const struct mn_optimizer_config adamw = {
      .rule = {.kind = MN_ADAMW, .beta1 = 0.5, .beta2 = 0.5, .eps = size / 16, .weight_decay = 0.01},
      .accumulate = 1};
  MUST(mn_optimizer_open(&t->optimizer, t->model, c->adamw ? &adamw : &sgd));
  MUST(mn_optimizer_rate(t->optimizer, c->adamw ? size / 4 : 0.5, 2));
  for (int i = 0; i < t->model->count; i++) {
    struct mn_tensor *p = t->model->parameters[i];
    const struct range ranges[] = {{0, size, MN_FP32}, {size * size / 2, size * size / 4, MN_FP32}};
    void *const kept[] = {p->update.m, p->update.v};
    for (int k = 0; k < 2 && kept[k]; k++) {
      double *values = numbers(mn_tensor_count(p), (uint64_t)(SEED_MOMENTUM * (k + 1) + i), ranges[k]);
      MUST(mn_device_write(t->model->device, kept[k], values, mn_tensor_count(p)));
      free(values);
    }
  }
}

/* With a gradient, a momentum and a rate of such sizes that each moves W by about itself. */
static inline struct training train_stack(struct mn_device *device, const struct fused_case *c) {
  struct training t = {.model = open_stack(device, c)};
  double scale = weight_bound(c) / 16 * (double)channels_of(c) * sqrt((double)c->rows);
  open_optimizer(&t, c);
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, c->rows, scale, 0));
  fill_x(t.pass, c);
  if (t.pass->target)
    fill(device, t.pass->target, SEED_TARGET, (struct range){0, c->blocks > 1 ? 16 : 2, MN_FP32});
  if (t.pass->labels) {
    int32_t *labels = malloc((size_t)c->rows * sizeof *labels);
    assert_non_null(labels);
    for (int64_t n = 0; n < c->rows; n++) labels[n] = (int32_t)(random01(SEED_TARGET, n) * c->head);
    MUST(device->kernels->copy(device, t.pass->labels, labels, (size_t)c->rows * sizeof *labels));
    MUST(device->kernels->synchronize(device));
    free(labels);
  }
  return t;
}

static inline double loss_of(const struct training *t) {
  double loss;
  MUST(mn_tape_results(t->pass->tape, &loss, NULL));
  return loss;
}

/* ---- comparing ---- */

static inline double norm(const double *values, int64_t count) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
  return sqrt(sum);
}

static inline double norm_of_difference(const double *a, const double *e, int64_t count) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += (a[i] - e[i]) * (a[i] - e[i]);
  return sqrt(sum);
}

static inline double *read_device(struct mn_device *device, const void *reals, int64_t count) {
  const struct memory m = {.device = device};
  return read_reals(&m, reals, count);
}

/* Prints a tensor's error and holds it against its bound; what nobody wrote is NaN, and fails. */
static inline void report(const struct fused_case *c, const char *tensor, double error, double bound) {
  int good = error <= bound;
  print_message("%-6s %5ld x %4ld -> %4ld /%3ld%s  %-28s %9.2e %s %8.2e\n", mn_precision_name(c->precision),
                (long)c->rows, (long)c->inputs, (long)channels_of(c), (long)c->groups,
                c->blocks > 1 ? ", stacked" : "", tensor, error, good ? "<=" : "> ", bound);
  if (!good) fail_msg("%s: an error of %g is past %g", tensor, error, bound);
}

/* ---- all that a step moves ---- */

struct part {
  char *device;
  size_t bytes, at;
};

struct bytes {
  struct part parts[64];
  int count;
  size_t size;
};

/* Parameters, their planes, what the rule keeps and the planes' scales; dz's scales too, which a step writes
 * even where a value is not finite, only if `all`. */
static inline struct bytes moved_by(const struct training *t, int all) {
  struct bytes b = {.count = 0};
  struct mn_device *device = t->model->device;
  for (int i = 0; i < t->model->count; i++) {
    const struct mn_tensor *p = t->model->parameters[i];
    size_t count = (size_t)mn_tensor_count(p);
    const struct part parts[] = {{p->value.real, count * device->real, 0},
                                 {p->value.planes[0], count * device->plane, 0},
                                 {p->value.planes[1], count * device->plane, 0},
                                 {(char *)p->value.low, count * sizeof *p->value.low, 0},
                                 {p->update.m, count * device->real, 0},
                                 {p->update.v, count * device->real, 0},
                                 {(char *)p->scales, (size_t)(all ? 2 : 1) * sizeof *p->scales, 0}};
    for (size_t k = 0; k < COUNT(parts); k++) {
      if (!parts[k].device) continue;
      assert_true(b.count < (int)COUNT(b.parts));
      b.parts[b.count] = parts[k];
      b.parts[b.count++].at = b.size;
      b.size += parts[k].bytes;
    }
  }
  return b;
}

static inline char *download(const struct training *t, const struct bytes *b) {
  struct mn_device *device = t->model->device;
  char *out = malloc(b->size);
  assert_non_null(out);
  for (int i = 0; i < b->count; i++)
    MUST(device->kernels->download(device, out + b->parts[i].at, b->parts[i].device, b->parts[i].bytes));
  return out;
}

static inline void upload(const struct training *t, const struct bytes *b, const char *from) {
  struct mn_device *device = t->model->device;
  for (int i = 0; i < b->count; i++)
    MUST(device->kernels->copy(device, b->parts[i].device, from + b->parts[i].at, b->parts[i].bytes));
  MUST(device->kernels->synchronize(device));
}

/* As if the largest |dz| of the last step had been so many times what it was. */
static inline void pretend_dz(const struct training *t, const struct mn_tensor *w, double times) {
  struct mn_device *device = t->model->device;
  struct mn_scale dz = get_scale(device, &w->scales[1]);
  dz.largest = (float)(dz.largest * times);
  put_scale(device, &w->scales[1], dz);
}

static inline int raised(const struct training *t) {
  int flag = -1;
  MUST(mn_tape_nonfinite(t->pass->tape, &flag));
  return flag;
}

#endif
