/* What the tests of tapes and passes share: a small model, random batches, and a training run. */
#ifndef MN_TESTS_TRAINING_H
#define MN_TESTS_TRAINING_H

#include "tests/check.h"

#include "train/optimizer.h"
#include "train/pass.h"

static const char *const precisions[] __attribute__((unused)) = {"fp64", "fp32", "bf16", "fp16"};

static inline struct mn_model *open_model(struct mn_device *device, int64_t head, enum mn_loss loss) {
  struct mn_model_config config = {.inputs = 7,
                                   .depth = 2,
                                   .hidden = {12, 8},
                                   .groups = 4,
                                   .head = head,
                                   .eps = 1e-3,
                                   .slope = 0.1,
                                   .loss = loss,
                                   .plan = MN_PLAN_BLOCK};
  struct mn_model *model;
  MUST(mn_model_open(&model, device, &config));
  for (int i = 0; i < model->count; i++) randomise(device, model->parameters[i], 20 + (uint64_t)i);
  return model;
}

static inline void load(struct mn_pass *pass, uint64_t seed) {
  struct mn_device *device = pass->model->device;
  double *x = random_values(mn_tensor_count(pass->x), seed, 1);
  MUST(mn_tensor_write(device, pass->x, x));
  free(x);
  if (pass->tape->weights) {
    double *weights = random_values(pass->rows, seed + 2, 1);
    for (int64_t n = 0; n < pass->rows; n++) weights[n] = fabs(weights[n]);
    MUST(mn_device_write(device, (void *)(uintptr_t)pass->tape->weights, weights, pass->rows));
    free(weights);
  }
  if (pass->target) {
    double *target = random_values(mn_tensor_count(pass->target), seed + 1, 1);
    MUST(mn_tensor_write(device, pass->target, target));
    free(target);
  }
  if (pass->labels) {
    int32_t *labels = malloc((size_t)pass->rows * sizeof *labels);
    uint64_t classes = (uint64_t)mn_model_outputs(&pass->model->config);
    for (int64_t n = 0; n < pass->rows; n++)
      labels[n] = (int32_t)(mn_random_word(seed, 2, (uint64_t)n) % classes);
    MUST(device->kernels->copy(device, pass->labels, labels, (size_t)pass->rows * sizeof *labels));
    MUST(device->kernels->synchronize(device));
    free(labels);
  }
}

/* How a training run is set up, over the paths that differ. */
static const struct mn_optimizer_config settings[] __attribute__((unused)) = {
    {.accumulate = 1},
    {.rule = {.momentum = 0.9}, .accumulate = 1},
    {.rule = {.momentum = 0.9, .weight_decay = 0.01, .nesterov = 1}, .accumulate = 1},
    {.rule = {.momentum = 0.9}, .clip = 0.1, .accumulate = 1},
    {.rule = {.momentum = 0.9, .nesterov = 1}, .clip = 0.1, .accumulate = 2},
    {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.01},
     .accumulate = 1},
    {.rule = {.kind = MN_ADAMW, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3}, .clip = 0.1, .accumulate = 2},
};

struct training {
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_pass *pass;
  int apart;    /* forward and backward are called one by one, not as a step */
  int measures; /* every step measures its dz, as forward and backward by themselves do */
};

/* Its batch is config.accumulate passes of `rows`. */
static inline struct training train_model(struct mn_model *model, struct mn_optimizer_config config,
                                          int64_t rows) {
  struct training t = {.model = model};
  MUST(mn_optimizer_open(&t.optimizer, t.model, &config));
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, rows, 1.0 / config.accumulate, 0));
  return t;
}

/* kind 0: mse on the last block; 1: mse on a head; 2: cross-entropy. */
static inline struct training open_training(struct mn_device *device, struct mn_optimizer_config config,
                                            int kind, int64_t rows) {
  const enum mn_loss loss = kind == 2 ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
  return train_model(open_model(device, kind ? 5 : 0, loss), config, rows);
}

static inline double step(struct training *t, uint64_t seed) {
  double loss;
  MUST(mn_optimizer_rate(t->optimizer, 0.05 / (double)(seed + 1), (int64_t)seed));
  for (int k = 0; k < t->optimizer->config.accumulate; k++) {
    load(t->pass, seed * 10 + (uint64_t)k);
    if (t->measures) t->pass->tape->measure = 1;
    if (t->apart) {
      MUST(mn_tape_forward(t->pass->tape));
      MUST(mn_tape_backward(t->pass->tape));
    } else {
      MUST(mn_tape_replay(t->pass->tape, 0));
    }
  }
  MUST(mn_optimizer_step(t->optimizer, t->pass->tape));
  MUST(mn_tape_results(t->pass->tape, &loss, NULL));
  return loss;
}

static inline void close_training(struct training *t) {
  mn_pass_close(t->pass);
  mn_optimizer_close(t->optimizer);
  mn_model_close(t->model);
}

#endif
