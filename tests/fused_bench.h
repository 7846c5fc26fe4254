/* What the tests of fused products share: a block or a stack of them on two sides, one held against the
 * other, with the same random values; memory that is full of NaN at first and ends in bytes that nobody may
 * touch; tensors compared, and their errors printed. */
#ifndef MN_TESTS_FUSED_BENCH_H
#define MN_TESTS_FUSED_BENCH_H

#include "tests/check.h"

#include "kernels/planes.h"
#include "train/optimizer.h"
#include "train/pass.h"

/* One block, or a stack of equal ones. */
struct fused_case {
  int64_t rows, inputs, groups, width; /* N, I, G, D */
  int blocks;                          /* 0: one */
  double x_offset, bias_offset;
  int bf16;  /* x and W are bfloat16 values: their rounding changes nothing */
  int twice; /* gradients are added up over two passes */
  int nesterov;
};

static inline int64_t channels_of(const struct fused_case *c) {
  return c->groups * c->width;
}

/* Under compute-sanitizer a launch costs a hundred times as much: small shapes and few repeats then. */
static inline int quick(void) {
  return getenv("MINNOW_QUICK") != NULL;
}

static inline int on_cuda(const char *device) {
  return strcmp(device, "cuda") == 0;
}

/* ---- memory that tells who wrote where ---- */

/* A context's kernels may be exchanged for these, which take a little more than they are asked for: the
 * buffer is NaN in every width, and what follows it has to stay CANARY until the buffer goes back. */
enum { CANARY = 0xa5, CANARIES = 4096 };
static struct guard {
  char *memory;
  size_t bytes;
} guards[1024];
static int guard_count;
static struct mn_kernels guarded;

static inline mn_status guarded_allocate(struct mn_device *device, void **out, size_t bytes) {
  static unsigned char poison[1 << 20], canaries[CANARIES];
  memset(poison, 0xff, sizeof poison);
  memset(canaries, CANARY, sizeof canaries);
  assert_true(guard_count < (int)COUNT(guards));
  MN_TRY(device->kernels->allocate(device, out, bytes + CANARIES));
  guards[guard_count++] = (struct guard){*out, bytes};
  for (size_t at = 0; at < bytes; at += sizeof poison) {
    size_t left = bytes - at;
    MN_TRY(device->kernels->upload(device, (char *)*out + at, poison,
                                   left < sizeof poison ? left : sizeof poison));
  }
  return device->kernels->upload(device, (char *)*out + bytes, canaries, sizeof canaries);
}

static inline void guarded_release(struct mn_device *device, void *memory) {
  unsigned char canaries[CANARIES];
  int i = guard_count - 1;
  while (i >= 0 && guards[i].memory != memory) i--;
  assert_true(i >= 0);
  size_t bytes = guards[i].bytes;
  guards[i] = guards[--guard_count];
  MUST(device->kernels->download(device, canaries, (char *)memory + bytes, sizeof canaries));
  device->kernels->release(device, memory);
  for (size_t k = 0; k < sizeof canaries; k++)
    if (canaries[k] != CANARY) fail_msg("byte %zu behind a buffer of %zu bytes was written", k, bytes);
}

static inline struct mn_context *open_guarded(const char *device, const char *precision) {
  struct mn_context *context = open_or_skip(device, precision);
  guard_count = 0;
  guarded = *context->kernels;
  guarded.allocate = guarded_allocate;
  guarded.release = guarded_release;
  context->kernels = &guarded;
  return context;
}

/* ---- random values, the same for both widths ---- */

struct range {
  double offset, bound;
  int bf16;
};

/* Value i of a device, on [−1, 1): splitmix64, because a weight of the reference shape has 67 million. */
static inline double number(uint64_t seed, int64_t i) {
  uint64_t x = seed * 0xd1342543de82ef95u + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (double)((x ^ x >> 31) >> 40) * 0x1p-23 - 1;
}

static inline double *numbers(int64_t count, uint64_t seed, struct range r) {
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
#pragma omp parallel for
  for (int64_t i = 0; i < count; i++) {
    float value = (float)(r.offset + r.bound * number(seed, i));
    out[i] = r.bf16 ? mn_to_bf16(value) : value;
  }
  return out;
}

static inline void fill(struct mn_context *context, struct mn_tensor *tensor, uint64_t seed, struct range r) {
  double *values = numbers(mn_tensor_count(tensor), seed, r);
  MUST(mn_tensor_write(context, tensor, values));
  free(values);
}

/* A power of two about 1/√I, so that z is about 1. */
static inline double weight_bound(const struct fused_case *c) {
  return exp2(-floor(log2(sqrt((double)c->inputs))));
}

enum { SEED_X = 1, SEED_DY, SEED_TARGET, SEED_PARAMETER = 100, SEED_MOMENTUM = 1000 };

/* gamma on both sides of 0. In a stack beta keeps v off the kink, so that what rounding does to y moves no v
 * across it: behind several blocks nobody could say any more what to expect. */
static inline void fill_parameter(struct mn_model *model, int i, const struct fused_case *c) {
  struct mn_tensor *t = model->parameters[i];
  const struct range ranges[] = {
      {0, weight_bound(c), c->bf16}, {c->bias_offset, 1, 0}, {0, 2, 0}, {c->blocks > 1 ? 0 : 0.25, 1, 0}};
  double *values = numbers(mn_tensor_count(t), (uint64_t)(SEED_PARAMETER + i), ranges[i % 4]);
  for (int64_t k = 0; i % 4 == 3 && c->blocks > 1 && k < mn_tensor_count(t); k++)
    values[k] += values[k] < 0 ? -8 : 8;
  MUST(mn_tensor_write(model->context, t, values));
  free(values);
}

static inline struct mn_model *open_model(struct mn_context *context, const struct fused_case *c) {
  struct mn_model_config config = {.inputs = c->inputs,
                                   .depth = c->blocks ? c->blocks : 1,
                                   .groups = c->groups,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .plan = MN_PLAN_BLOCK};
  for (int i = 0; i < config.depth; i++) config.hidden[i] = channels_of(c);
  struct mn_model *model;
  MUST(mn_model_open(&model, context, &config));
  for (int i = 0; i < model->count; i++) fill_parameter(model, i, c);
  return model;
}

static inline void fill_x(struct mn_pass *pass, const struct fused_case *c) {
  fill(pass->model->context, pass->x, SEED_X, (struct range){c->x_offset, 1, c->bf16});
}

/* One side in training. */
struct training {
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_pass *pass;
};

/* With a gradient, a momentum and a rate of such sizes that each moves W by about itself. */
static inline struct training open_training(struct mn_context *context, const struct fused_case *c) {
  struct training t = {.model = open_model(context, c)};
  struct mn_sgd_config sgd = {
      .momentum = 0.9, .weight_decay = 0.01, .nesterov = c->nesterov, .accumulate = 1};
  double scale = weight_bound(c) / 16 * (double)channels_of(c) * sqrt((double)c->rows);
  MUST(mn_optimizer_open(&t.optimizer, t.model, &sgd));
  MUST(mn_optimizer_rate(t.optimizer, 0.5));
  for (int i = 0; i < t.model->count; i++) {
    struct mn_tensor *p = t.model->parameters[i];
    double *values =
        numbers(mn_tensor_count(p), (uint64_t)(SEED_MOMENTUM + i), (struct range){0, weight_bound(c), 0});
    MUST(mn_context_write(context, p->momentum, values, mn_tensor_count(p)));
    free(values);
  }
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, c->rows, scale, 0));
  fill_x(t.pass, c);
  fill(context, t.pass->target, SEED_TARGET, (struct range){0, c->blocks > 1 ? 16 : 2, 0});
  return t;
}

static inline void close_training(struct training *t) {
  mn_pass_close(t->pass);
  mn_optimizer_close(t->optimizer);
  mn_model_close(t->model);
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

static inline double *read_device(struct mn_context *context, const void *reals, int64_t count) {
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
  MUST(mn_context_read(context, out, reals, count));
  return out;
}

/* Prints a tensor's error and holds it against its bound; what nobody wrote is NaN, and fails. */
static inline void report(const struct fused_case *c, const char *tensor, double error, double bound) {
  int good = error <= bound;
  print_message("%5ld x %4ld -> %4ld /%3ld%s  %-28s %9.2e %s %8.2e\n", (long)c->rows, (long)c->inputs,
                (long)channels_of(c), (long)c->groups, c->blocks > 1 ? ", stacked" : "", tensor, error,
                good ? "<=" : "> ", bound);
  if (!good) fail_msg("%s: an error of %g is past %g", tensor, error, bound);
}

/* W's copy for the GEMMs is W, rounded. */
static inline void assert_rounded(struct mn_context *context, const struct mn_tensor *w) {
  int64_t count = mn_tensor_count(w), wrong = 0;
  size_t size = context->device->plane;
  float *real = malloc((size_t)count * sizeof *real);
  char *bf16 = malloc((size_t)count * size);
  assert_true(real && bf16);
  MUST(context->kernels->download(context->device, real, w->value.real, (size_t)count * sizeof *real));
  MUST(context->kernels->download(context->device, bf16, w->value.planes[0], (size_t)count * size));
  /* A bfloat16 is the upper half of the float whose value it is; on the CPU it is kept as that float. */
#pragma omp parallel for reduction(+ : wrong)
  for (int64_t i = 0; i < count; i++) {
    float rounded = mn_to_bf16(real[i]);
    wrong += memcmp((char *)&rounded + sizeof rounded - size, bf16 + (size_t)i * size, size) != 0;
  }
  free(real), free(bf16);
  if (wrong) fail_msg("%ld elements of the copy of %s are not its own, rounded", (long)wrong, w->name);
}

#endif
