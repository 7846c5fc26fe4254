/* A block's inputs on a device, its calls within a workspace that is watched, and what a tape makes of the same
 * inputs: what the tests of mn_block_forward, mn_block_backward and mn_block_update share. */
#ifndef MN_TESTS_BLOCK_SUBJECT_H
#define MN_TESTS_BLOCK_SUBJECT_H

#include "tests/products.h"

#include "layers/block_call.h"
#include "train/pass.h"

enum { X = 0, PARAMETERS = MN_BLOCK_PARAMETERS, GRADIENTS = 5 }; /* gradients of x and of the parameters */

static const int64_t sizes[][4] = {{5, 16, 24, 3}, {70, 24, 64, 8}, {3, 7, 10, 2}, {33, 8, 300, 1}};
/* Products that the streaming and the plain tile of our own GEMM take. */
static const int64_t large[][4] __attribute__((unused)) = {{256, 768, 4096, 128}, {2080, 768, 4096, 128}};

/* A block's inputs on the device, its results, and what a tape makes of the same. */
struct subject {
  struct memory *m;
  struct mn_device *device; /* m's */
  struct mn_block_call call;
  double *x, *dy, *parameters[PARAMETERS];
  double *y, *z, *gradients[GRADIENTS];
  int64_t counts[GRADIENTS], results;
};

static inline void run_tape(struct subject *s) {
  const struct mn_block_call *c = &s->call;
  const struct mn_model_config config = {.inputs = c->inputs,
                                         .depth = 1,
                                         .hidden = {c->channels},
                                         .groups = c->groups,
                                         .eps = c->eps,
                                         .slope = c->slope,
                                         .plan = MN_PLAN_BLOCK};
  struct mn_model *model;
  struct mn_pass *pass;
  MUST(mn_model_open(&model, s->device, &config));
  MUST(mn_model_train(model, MN_STORE, NULL));
  for (int i = 0; i < PARAMETERS; i++)
    MUST(mn_tensor_write(s->device, model->parameters[i], s->parameters[i]));
  MUST(mn_pass_open(&pass, model, MN_PASS_SEEDED, c->rows, 1, 1));
  MUST(mn_tensor_write(s->device, pass->x, s->x));
  MUST(mn_tape_forward(pass->tape));
  s->y = kept_reals(s->m, pass->y->value.real, s->results);
  s->z = kept_reals(s->m, mn_block_saved(pass->y, pass->tape)->z, s->results);
  MUST(mn_device_write(s->device, pass->y->gradient, s->dy, s->results));
  MUST(mn_tape_backward(pass->tape));
  for (int i = 0; i < GRADIENTS; i++)
    s->gradients[i] =
        kept_reals(s->m, i == X ? pass->x->gradient : model->parameters[i - 1]->gradient, s->counts[i]);
  mn_pass_close(pass);
  mn_model_close(model);
}

static inline struct subject open_subject(struct memory *m, const int64_t *size) {
  struct subject s = {.m = m,
                      .device = m->device,
                      .call = {.size = sizeof s.call,
                               .rows = size[0],
                               .inputs = size[1],
                               .channels = size[2],
                               .groups = size[3],
                               .eps = 1e-5,
                               .slope = 0.01},
                      .counts = {size[0] * size[1], size[2] * size[1], size[2], size[2], size[2]},
                      .results = size[0] * size[2]};
  struct mn_block_call *c = &s.call;
  const void **const into[] = {&c->weight.values, &c->bias, &c->gamma, &c->beta};
  s.x = kept_random(m, 1, s.counts[X], 2);
  s.dy = kept_random(m, 2, s.results, 1e-3);
  for (int i = 0; i < PARAMETERS; i++) s.parameters[i] = kept_random(m, 3 + (uint64_t)i, s.counts[i + 1], 1);
  /* The tape rounds a weight's ties away from zero, the call to even. */
  if (m->device->precision == MN_BF16)
    for (int64_t k = 0; k < s.counts[1]; k++) s.parameters[0][k] = mn_to_bf16((float)s.parameters[0][k]);
  run_tape(&s);
  c->x.values = take_reals(m, s.x, s.counts[X]);
  for (int i = 0; i < PARAMETERS; i++) *into[i] = take_reals(m, s.parameters[i], s.counts[i + 1]);
  c->y = take_reals(m, NULL, s.results);
  c->z = take_reals(m, NULL, s.results);
  c->mean = take_reals(m, NULL, size[0] * size[3]);
  c->rstd = take_reals(m, NULL, size[0] * size[3]);
  return s;
}

typedef mn_status block_function(struct mn_device *device, const struct mn_block_call *call);

/* The call in a workspace of NaN, and in no byte around it (tests/check.h), without an allocation. */
static inline mn_status within(const struct subject *s, const struct mn_block_call *call,
                               block_function *which) {
  struct mn_block_call c = *call;
  MUST(s->device->kernels->allocate(s->device, &c.workspace, mn_block_workspace(s->device, call)));
  const int64_t allocations = s->device->allocations;
  const mn_status status = which(s->device, &c);
  assert_int_equal(s->device->allocations, allocations);
  s->device->kernels->release(s->device, c.workspace);
  return status;
}

static inline mn_status call_within(struct subject *s, block_function *which) {
  return within(s, &s->call, which);
}

static inline double near(const struct subject *s) {
  const enum mn_precision p = s->device->precision;
  return p == MN_FP64 ? 1e-13 : p == MN_BF16 || p == MN_FP16 ? 1e-3 : 2e-6;
}

static inline void refused(const struct subject *s, const struct mn_block_call *call, block_function *which,
                           const char *words) {
  assert_int_equal(which(s->device, call), MN_USAGE);
  if (!strstr(mn_message(), words)) fail_msg("'%s' does not say '%s'", mn_message(), words);
}

/* Room for the planes of x and of the weight. */
static inline void take_block_planes(struct subject *s) {
  const int64_t each = (int64_t)mn_block_plane_bytes(s->device, &s->call);
  s->call.x.planes = take_bytes(s->m, each * s->counts[0] + MN_BLOCK_PLANES_MORE, 1);
  s->call.weight.planes = take_bytes(s->m, each * s->counts[1] + MN_BLOCK_PLANES_MORE, 1);
}

/* 16 bits in the device's memory. */
static inline double *read_narrow(const struct subject *s, const void *from, int64_t count) {
  const uint16_t *bits = kept(s->m, get_bytes(s->device, from, (size_t)count * sizeof *bits));
  double *out = kept_zeros(s->m, count);
  for (int64_t i = 0; i < count; i++)
    out[i] = s->device->precision == MN_FP16 ? half_value(bits[i]) : from_bits((uint32_t)bits[i] << 16);
  return out;
}

static inline float narrowed(const struct subject *s, double value) {
  return s->device->precision == MN_FP16 ? mn_to_fp16((float)value) : mn_to_bf16((float)value);
}

#endif
