/* A block's inputs on a device, its calls within a workspace that is watched, and what a tape makes of the same
 * inputs: what the tests of mn_block_forward, mn_block_backward and mn_block_update share. */
#ifndef MN_TESTS_BLOCK_SUBJECT_H
#define MN_TESTS_BLOCK_SUBJECT_H

#include "tests/check.h"

#include "kernels/planes.h"
#include "layers/block_call.h"
#include "train/pass.h"

enum {
  CANARY = 512,
  X = 0,
  PARAMETERS = MN_BLOCK_PARAMETERS,
  GRADIENTS = 5
}; /* gradients of x and of the parameters */

/* A block's inputs on the device, its results, and what a tape makes of the same. */
struct subject {
  struct mn_device *device;
  struct memory memory;
  struct mn_block_call call;
  double *x, *dy, *parameters[PARAMETERS];
  double *y, *z, *gradients[GRADIENTS];
  int64_t counts[GRADIENTS];
  int64_t allocations; /* of the device, before a call */
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
  s->y = read_values(s->device, pass->y);
  s->z = read_reals(&s->memory, mn_block_saved(pass->y, pass->tape)->z, c->rows * c->channels);
  MUST(mn_device_write(s->device, pass->y->gradient, s->dy, c->rows * c->channels));
  MUST(mn_tape_backward(pass->tape));
  for (int i = 0; i < GRADIENTS; i++) {
    const void *gradient = i == X ? pass->x->gradient : model->parameters[i - 1]->gradient;
    s->gradients[i] = read_reals(&s->memory, gradient, s->counts[i]);
  }
  mn_pass_close(pass);
  mn_model_close(model);
}

static inline struct subject open_subject(const char *name, const char *precision, const int64_t *size) {
  struct subject s = {.device = open_or_skip(name, precision),
                      .call = {.size = sizeof s.call,
                               .rows = size[0],
                               .inputs = size[1],
                               .channels = size[2],
                               .groups = size[3],
                               .eps = 1e-5,
                               .slope = 0.01}};
  struct mn_block_call *c = &s.call;
  const int64_t results = size[0] * size[2];
  const int64_t counts[GRADIENTS] = {size[0] * size[1], size[2] * size[1], size[2], size[2], size[2]};
  memcpy(s.counts, counts, sizeof counts);
  s.memory.device = s.device;
  s.x = random_values(counts[X], 1, 2);
  s.dy = random_values(results, 2, 1e-3);
  for (int i = 0; i < PARAMETERS; i++) s.parameters[i] = random_values(counts[i + 1], 3 + (uint64_t)i, 1);
  /* The tape rounds a weight's ties away from zero, the call to even. */
  if (s.device->precision == MN_BF16)
    for (int64_t k = 0; k < counts[1]; k++) s.parameters[0][k] = mn_to_bf16((float)s.parameters[0][k]);
  run_tape(&s);
  c->x.values = take_reals(&s.memory, s.x, counts[X]);
  c->weight.values = take_reals(&s.memory, s.parameters[0], counts[1]);
  c->bias = take_reals(&s.memory, s.parameters[1], counts[2]);
  c->gamma = take_reals(&s.memory, s.parameters[2], counts[3]);
  c->beta = take_reals(&s.memory, s.parameters[3], counts[4]);
  c->y = take_reals(&s.memory, NULL, results);
  c->z = take_reals(&s.memory, NULL, results);
  c->mean = take_reals(&s.memory, NULL, size[0] * size[3]);
  c->rstd = take_reals(&s.memory, NULL, size[0] * size[3]);
  return s;
}

static inline void close_subject(struct subject *s) {
  release_all(&s->memory);
  for (int i = 0; i < GRADIENTS; i++) free(s->gradients[i]);
  for (int i = 0; i < PARAMETERS; i++) free(s->parameters[i]);
  free(s->x), free(s->dy), free(s->y), free(s->z);
  mn_device_close(s->device);
}

/* A workspace full of NaN, with bytes behind and before it that are not the call's own. */
static inline char *open_watched(struct subject *s, size_t bytes) {
  const struct mn_kernels *k = s->device->kernels;
  const size_t all = bytes + 2 * CANARY;
  unsigned char *host = malloc(all);
  char *memory;
  assert_non_null(host);
  memset(host, 0xff, all);
  MUST(k->allocate(s->device, (void **)&memory, all));
  MUST(k->copy(s->device, memory, host, all));
  MUST(k->synchronize(s->device));
  free(host);
  s->allocations = s->device->allocations;
  return memory + CANARY;
}

static inline void close_watched(struct subject *s, char *workspace, size_t bytes) {
  const struct mn_kernels *k = s->device->kernels;
  unsigned char around[2 * CANARY];
  assert_int_equal(s->device->allocations, s->allocations);
  MUST(k->download(s->device, around, workspace - CANARY, CANARY));
  MUST(k->download(s->device, around + CANARY, workspace + bytes, CANARY));
  for (size_t i = 0; i < sizeof around; i++) assert_int_equal(around[i], 0xff);
  k->release(s->device, workspace - CANARY);
}

/* A forward or a backward. */
static inline mn_status call_within(struct subject *s,
                                    mn_status (*which)(struct mn_device *, const struct mn_block_call *)) {
  const size_t bytes = mn_block_workspace(s->device, &s->call);
  char *workspace = open_watched(s, bytes);
  s->call.workspace = workspace;
  const mn_status status = which(s->device, &s->call);
  close_watched(s, workspace, bytes);
  return status;
}

static inline double near(const struct subject *s) {
  const enum mn_precision p = s->device->precision;
  return p == MN_FP64 ? 1e-13 : p == MN_BF16 || p == MN_FP16 ? 1e-3 : 2e-6;
}

#endif
