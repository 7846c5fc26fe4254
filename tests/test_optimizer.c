/* SGD and AdamW against PyTorch's rules, written out here on single numbers: momentum, weight decay,
 * Nesterov, the corrections of AdamW's means, clipping and accumulation, on the path where the update is
 * fused into the GEMM and on the one where gradients are stored first. */
#include "tests/planes_read.h"
#include "tests/training.h"

enum { STEPS = 6, ROWS = 6, INPUTS = 5, OUTPUTS = 8 };
static const double rates[STEPS] = {0.1, 0.1, 0.05, 0.2, 0, 0.03};

static struct mn_model *open_planned(struct mn_device *device, int depth, int64_t inputs, int64_t outputs,
                                     enum mn_plan plan) {
  struct mn_model_config config = {.inputs = inputs,
                                   .depth = depth,
                                   .hidden = {outputs, outputs},
                                   .groups = 2,
                                   .eps = 1e-3,
                                   .slope = 0.1,
                                   .plan = plan};
  struct mn_model *model;
  MUST(mn_model_open(&model, device, &config));
  for (int i = 0; i < model->count; i++) randomise(device, model->parameters[i], 20 + (uint64_t)i);
  return model;
}

static struct mn_model *open_small(struct mn_device *device, int depth) {
  return open_planned(device, depth, INPUTS, OUTPUTS, MN_PLAN_BLOCK);
}

/* Forward and backward over `rows` rows of the batch of step `step`, from row `first` on. */
static void propagate(struct mn_pass *pass, int step, int64_t first) {
  struct mn_device *device = pass->model->device;
  const int64_t inputs = pass->x->value.cols, outputs = pass->target->value.cols;
  double *x = random_values(4 * ROWS * inputs, 300 + (uint64_t)step, 1);
  double *target = random_values(4 * ROWS * outputs, 400 + (uint64_t)step, 3);
  MUST(mn_tensor_write(device, pass->x, x + first * inputs));
  MUST(mn_tensor_write(device, pass->target, target + first * outputs));
  MUST(mn_tape_forward(pass->tape));
  MUST(mn_tape_backward(pass->tape));
  free(x);
  free(target);
}

/* torch.optim.SGD or AdamW and clip_grad_norm_, one number at a time, on gradients taken from a pass that
 * stores them.
 */
struct reference {
  struct mn_model *model;
  struct mn_pass *pass;
  struct mn_optimizer_config config;
  double *velocity[MN_MODEL_PARAMETERS]; /* NULL before the first step: PyTorch starts it with the gradient */
  double *squares[MN_MODEL_PARAMETERS];  /* AdamW: exp_avg_sq, beside the velocity exp_avg */
  int step;
};

static double norm_of(double *const *gradients, const struct mn_model *model) {
  double sum = 0;
  for (int i = 0; i < model->count; i++)
    for (int64_t k = 0; k < mn_tensor_count(model->parameters[i]); k++)
      sum += gradients[i][k] * gradients[i][k];
  return sqrt(sum);
}

/* torch.optim._single_tensor_adamw, by its names. */
static double adamw(const struct reference *r, double param, double grad, double *exp_avg, double *exp_avg_sq,
                    double rate) {
  const struct mn_optimizer_config *c = &r->config;
  param *= 1 - rate * c->rule.weight_decay;
  *exp_avg += (grad - *exp_avg) * (1 - c->rule.beta1);
  *exp_avg_sq = *exp_avg_sq * c->rule.beta2 + (1 - c->rule.beta2) * grad * grad;
  const double bias_correction1 = 1 - pow(c->rule.beta1, r->step),
               bias_correction2 = 1 - pow(c->rule.beta2, r->step);
  const double denom = sqrt(*exp_avg_sq) / sqrt(bias_correction2) + c->rule.eps;
  return param - rate / bias_correction1 * *exp_avg / denom;
}

static void update_reference(struct reference *r, int which, double *gradient, double clip, double rate) {
  struct mn_tensor *t = r->model->parameters[which];
  int64_t count = mn_tensor_count(t);
  int first = !r->velocity[which];
  double *w = malloc((size_t)count * sizeof *w);
  assert_non_null(w);
  if (first) r->velocity[which] = zeros(count), r->squares[which] = zeros(count);
  double *velocity = r->velocity[which];
  MUST(mn_tensor_read(r->model->device, t, w));
  for (int64_t k = 0; k < count; k++) {
    double direction = gradient[k] * clip;
    if (r->config.rule.kind == MN_ADAMW) {
      w[k] = adamw(r, w[k], direction, &velocity[k], &r->squares[which][k], rate);
      continue;
    }
    if (r->config.rule.weight_decay != 0) direction += r->config.rule.weight_decay * w[k];
    if (r->config.rule.momentum != 0) {
      velocity[k] = first ? direction : r->config.rule.momentum * velocity[k] + direction;
      direction = r->config.rule.nesterov ? direction + r->config.rule.momentum * velocity[k] : velocity[k];
    }
    w[k] -= rate * direction;
  }
  MUST(mn_tensor_write(r->model->device, t, w));
  free(w);
}

static void step_reference(struct reference *r, double rate) {
  struct memory m = {.device = r->model->device};
  double *gradients[MN_MODEL_PARAMETERS], clip = 1;
  r->step++;
  for (int i = 0; i < r->model->count; i++) {
    const struct mn_tensor *t = r->model->parameters[i];
    gradients[i] = read_reals(&m, t->gradient, mn_tensor_count(t));
  }
  if (r->config.clip > 0) {
    clip = r->config.clip / (norm_of(gradients, r->model) + 1e-6);
    if (clip > 1) clip = 1;
  }
  for (int i = 0; i < r->model->count; i++) {
    update_reference(r, i, gradients[i], clip, rate);
    free(gradients[i]);
  }
}

static struct reference open_reference(struct mn_device *device, struct mn_optimizer_config config,
                                       int64_t rows) {
  struct reference r = {.config = config, .model = open_small(device, 2)};
  MUST(mn_model_train(r.model, MN_STORE, NULL));
  MUST(mn_pass_open(&r.pass, r.model, MN_PASS_TRAIN, rows, 1, 0));
  return r;
}

static void close_reference(struct reference *r) {
  for (int i = 0; i < r->model->count; i++) free(r->velocity[i]), free(r->squares[i]);
  mn_pass_close(r->pass);
  mn_model_close(r->model);
}

static struct training open_trained(struct mn_device *device, struct mn_optimizer_config config,
                                    int64_t rows) {
  return train_model(open_small(device, 2), config, rows);
}

static void train(struct training *t, int step) {
  MUST(mn_optimizer_rate(t->optimizer, rates[step], step));
  for (int k = 0; k < t->optimizer->config.accumulate; k++) propagate(t->pass, step, k * t->pass->rows);
  MUST(mn_optimizer_step(t->optimizer, t->pass->tape));
}

static void assert_same_model(const char *what, const struct mn_model *a, const struct mn_model *b,
                              double tolerance) {
  for (int i = 0; i < a->count; i++) {
    char text[256];
    double *values = read_values(a->device, a->parameters[i]),
           *expected = read_values(b->device, b->parameters[i]);
    snprintf(text, sizeof text, "%s, %s", what, a->parameters[i]->name);
    assert_close(text, values, expected, mn_tensor_count(a->parameters[i]), tolerance);
    free(values), free(expected);
  }
}

static void follow(struct mn_device *device, struct mn_optimizer_config config) {
  struct reference r = open_reference(device, config, ROWS);
  struct training t = open_trained(device, config, ROWS / config.accumulate);
  assert_int_equal(t.optimizer->stored, config.clip > 0 || config.accumulate > 1);
  for (int step = 0; step < STEPS; step++) {
    char what[200];
    snprintf(what, sizeof what,
             "%s, momentum %g, beta1 %g, decay %g, nesterov %d, clip %g, accumulate %d, step %d",
             mn_optimizer_name(config.rule.kind), config.rule.momentum, config.rule.beta1,
             config.rule.weight_decay, config.rule.nesterov, config.clip, config.accumulate, step);
    propagate(r.pass, step, 0);
    step_reference(&r, rates[step]);
    train(&t, step);
    assert_same_model(what, t.model, r.model, 1e-12);
  }
  close_reference(&r);
  close_training(&t);
}

static const double decays[] = {0, 0.1}, clips[] = {0, 0.05, 1e3};

/* Momentum, decay and Nesterov in every combination, each plainly, clipped (by a norm that bites, and by one
 * that does not), and accumulated. */
static void training_follows_the_rule(void **state) {
  static const double momenta[] = {0, 0.9, 0.5};
  struct mn_device *device = open_or_skip(*state, "fp64");
  for (int kind = 0; kind < 3 * 2 * 3 * 2 * 2; kind++) {
    struct mn_optimizer_config config = {.rule = {.momentum = momenta[kind % 3],
                                                  .weight_decay = decays[kind / 3 % 2],
                                                  .nesterov = kind / 18 % 2},
                                         .clip = clips[kind / 6 % 3],
                                         .accumulate = kind / 36 ? 3 : 1};
    if (!config.rule.nesterov || config.rule.momentum != 0) follow(device, config);
  }
  mn_device_close(device);
}

/* The same of AdamW, with an eps that is next to nothing and one that counts; without means it follows signs.
 */
static void training_follows_adamw(void **state) {
  static const double betas[][2] = {{0.9, 0.99}, {0.5, 0.9}, {0, 0}}, epsilons[] = {1e-8, 0.05};
  struct mn_device *device = open_or_skip(*state, "fp64");
  for (int kind = 0; kind < 3 * 2 * 3 * 2 * 2; kind++) {
    const double *beta = betas[kind % 3];
    follow(device, (struct mn_optimizer_config){.rule = {.kind = MN_ADAMW,
                                                         .beta1 = beta[0],
                                                         .beta2 = beta[1],
                                                         .eps = epsilons[kind / 36],
                                                         .weight_decay = decays[kind / 3 % 2]},
                                                .clip = clips[kind / 6 % 3],
                                                .accumulate = kind / 18 % 2 ? 3 : 1});
  }
  mn_device_close(device);
}

static const struct mn_optimizer_config typical_adamw = {
    .rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1},
    .accumulate = 1};

/* Trains both alike, whose parameters are then the same, and closes them. */
static void must_agree(const char *what, struct training *one, struct training *other) {
  for (int step = 0; step < STEPS; step++) {
    train(one, step);
    train(other, step);
  }
  assert_same_model(what, one->model, other->model, 1e-12);
  close_training(one);
  close_training(other);
}

/* On a GPU the update of a weight needs no memory for its gradient, whatever the rule. */
static void a_gpu_keeps_no_gradient(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct training t = open_trained(device, typical_adamw, ROWS);
  int stored = 0;
  for (int i = 0; i < t.model->count; i++) stored += t.model->parameters[i]->gradient != NULL;
  assert_int_equal(stored > 0, device->type == MN_DEVICE_CPU);
  close_training(&t);
  mn_device_close(device);
}

/* With a norm that never bites, clipping leaves nothing but the other path. */
static void fused_and_stored_updates_agree(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  for (int kind = 0; kind < 4; kind++) {
    struct mn_optimizer_config config = {
        .rule = {.momentum = kind ? 0.9 : 0, .weight_decay = 0.01, .nesterov = kind == 2}, .accumulate = 1};
    if (kind == 3) config = typical_adamw;
    struct training fused = open_trained(device, config, ROWS);
    config.clip = 1e30;
    struct training stored = open_trained(device, config, ROWS);
    assert_false(fused.optimizer->stored);
    assert_true(stored.optimizer->stored);
    must_agree("fused and stored", &fused, &stored);
  }
  mn_device_close(device);
}

/* Clipping by the tape, before updates in the GEMMs, against the optimizer's from stored gradients. */
static void the_tape_clips_as_the_optimizer_does(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  struct memory m = {.device = device};
  for (int kind = 0; kind < 8; kind++) {
    const enum mn_plan plan = kind < 4 ? MN_PLAN_BLOCK : MN_PLAN_NONE; /* of which a node has vectors alone */
    struct mn_optimizer_config config = {.rule = {.momentum = 0.9, .weight_decay = 0.01}, .accumulate = 1};
    if (kind % 2) config = typical_adamw;
    struct training tape = {.model = open_planned(device, 2, INPUTS, OUTPUTS, plan)};
    MUST(mn_optimizer_open(&tape.optimizer, tape.model, &config));
    const struct mn_clipping clipping = {.max = kind % 4 < 2 ? 0.05 : 1e3,
                                         .rows = ROWS,
                                         .scale = take_bytes(&m, 1, sizeof(double)),
                                         .norm = take_bytes(&m, 1, sizeof(double)),
                                         .squares = take_bytes(&m, tape.model->count, sizeof(double)),
                                         .scratch = take_bytes(&m, 1, sizeof(double)),
                                         .grams = take_reals(&m, NULL, 2 * ROWS * ROWS + 3 * 16)};
    tape.model->clipping = &clipping, tape.optimizer->config.rule.scale = clipping.scale;
    MUST(mn_model_train(tape.model, MN_UPDATE, &tape.optimizer->config.rule));
    MUST(mn_pass_open(&tape.pass, tape.model, MN_PASS_TRAIN, ROWS, 1, 0));
    config.clip = clipping.max;
    struct training stored = train_model(open_planned(device, 2, INPUTS, OUTPUTS, plan), config, ROWS);
    must_agree("clipped by the tape", &tape, &stored);
  }
  release_all(&m);
  mn_device_close(device);
}

/* The optimizer's own choice, where the model's gradients are more than products of rows by rows. */
static void norms_without_gradients(void **state) {
  static const char *const narrow[] = {"bf16", "fp16"};
  for (size_t p = 0; p < COUNT(narrow); p++) {
    struct mn_device *device = open_or_skip("cuda", narrow[p]);
    struct mn_optimizer_config config = {.rule = {.momentum = 0.9}, .clip = 0.05, .accumulate = 1};
    struct training ways[2];
    for (int way = 0; way < 2; way++) {
      struct training *t = &ways[way];
      config.rows = way * 8;
      t->model = open_planned(device, 2, 64, 64, MN_PLAN_BLOCK);
      MUST(mn_optimizer_open(&t->optimizer, t->model, &config));
      assert_int_equal(t->optimizer->stored, !way);
      MUST(mn_pass_open(&t->pass, t->model, MN_PASS_TRAIN, 8, 1, 0));
    }
    for (int step = 0; step < STEPS; step++) {
      double norms[2];
      for (int way = 0; way < 2; way++) {
        train(&ways[way], step);
        MUST(device->kernels->download(device, &norms[way], ways[way].optimizer->clipping.norm,
                                       sizeof *norms));
        MUST(device->kernels->synchronize(device));
      }
      assert_true(norms[0] > 10 * config.clip && fabs(norms[1] / norms[0] - 1) < 1e-3);
      assert_same_model(narrow[p], ways[1].model, ways[0].model, 1e-4);
    }
    struct mn_pass *other;
    assert_int_equal(mn_pass_open(&other, ways[1].model, MN_PASS_TRAIN, 16, 1, 0), MN_USAGE);
    close_training(&ways[0]), close_training(&ways[1]);
    mn_device_close(device);
  }
}

static void accumulated_batches_are_one_batch(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  for (int clip = 0; clip < 2; clip++) {
    struct mn_optimizer_config config = {.rule = {.momentum = 0.9, .weight_decay = 0.01, .nesterov = 1},
                                         .clip = clip ? 0.1 : 0,
                                         .accumulate = 1};
    struct training whole = open_trained(device, config, 4 * ROWS);
    config.accumulate = 4;
    struct training parts = open_trained(device, config, ROWS);
    must_agree("4 batches and one", &whole, &parts);
  }
  mn_device_close(device);
}

static void float_follows_double(const char *where, struct mn_optimizer_config config) {
  struct mn_device *device = open_or_skip(where, "fp32"), *wide = open_or_skip("cpu", "fp64");
  struct training narrow = open_trained(device, config, ROWS), exact = open_trained(wide, config, ROWS);
  struct memory m = {.device = wide}, n = {.device = device};
  for (int step = 0; step < STEPS; step++) {
    train(&narrow, step);
    train(&exact, step);
  }
  for (int i = 0; i < exact.model->count; i++) {
    int64_t count = mn_tensor_count(exact.model->parameters[i]);
    double *expected = read_reals(&m, exact.model->parameters[i]->value.real, count);
    assert_reals(&n, exact.model->parameters[i]->name, narrow.model->parameters[i]->value.real, expected,
                 count, 1e-5);
    free(expected);
  }
  close_training(&narrow);
  close_training(&exact);
  mn_device_close(device);
  mn_device_close(wide);
}

/* As closely as its rounding lets it. */
static void fp32_follows_fp64(void **state) {
  float_follows_double(
      *state, (struct mn_optimizer_config){.rule = {.momentum = 0.9, .weight_decay = 0.1, .nesterov = 1},
                                           .accumulate = 1});
  float_follows_double(*state, typical_adamw);
}

/* In bf16 the GEMMs read a copy of W, rounded with halves away from zero; who updates W writes it. */
static void updates_refresh_the_half_form(void **state) {
  struct mn_device *device = open_or_skip(*state, "bf16");
  for (int kind = 0; kind < 4; kind++) {
    struct mn_optimizer_config config = {.rule = {.momentum = 0.9}, .accumulate = 1};
    if (kind / 2) config = typical_adamw;
    if (kind % 2) config.clip = 0.1;
    struct training t = open_trained(device, config, ROWS);
    train(&t, 0);
    for (int i = 0; i < t.model->count; i++) {
      const struct mn_tensor *w = t.model->parameters[i];
      assert_planes(device, w->name, &w->value);
    }
    close_training(&t);
  }
  mn_device_close(device);
}

static void impossible_settings_are_refused(void **state) {
  static const struct mn_optimizer_config wrong[] = {
      {.rule = {.momentum = 1}, .accumulate = 1},
      {.rule = {.momentum = -0.1}, .accumulate = 1},
      {.rule = {.momentum = NAN}, .accumulate = 1},
      {.rule = {.weight_decay = -1}, .accumulate = 1},
      {.rule = {.weight_decay = NAN}, .accumulate = 1},
      {.rule = {.nesterov = 1}, .accumulate = 1},
      {.clip = -1, .accumulate = 1},
      {.clip = NAN, .accumulate = 1},
      {.accumulate = 0},
      {.rule = {.kind = (enum mn_rule_kind)MN_RULES}, .accumulate = 1},
      {.rule = {.beta1 = 0.9}, .accumulate = 1},
      {.rule = {.eps = 1e-8}, .accumulate = 1},
      {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum = 0.9},
       .accumulate = 1},
      {.rule = {.kind = MN_ADAMW, .beta1 = 1, .beta2 = 0.999, .eps = 1e-8}, .accumulate = 1},
      {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = NAN, .eps = 1e-8}, .accumulate = 1},
      {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.999}, .accumulate = 1},
      {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-60}, .accumulate = 1},
  };
  struct mn_device *device = open_or_skip("cpu", "fp32");
  struct mn_model *model = open_small(device, 1);
  for (size_t i = 0; i < COUNT(wrong); i++) {
    struct mn_optimizer *optimizer;
    assert_int_equal(mn_optimizer_open(&optimizer, model, &wrong[i]), MN_USAGE);
    assert_null(optimizer);
  }
  mn_model_close(model);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(training_follows_the_rule),
      BOTH(training_follows_adamw),
      BOTH(a_gpu_keeps_no_gradient),
      BOTH(fused_and_stored_updates_agree),
      BOTH(the_tape_clips_as_the_optimizer_does),
      cmocka_unit_test(norms_without_gradients),
      BOTH(accumulated_batches_are_one_batch),
      BOTH(fp32_follows_fp64),
      BOTH(updates_refresh_the_half_form),
      cmocka_unit_test(impossible_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
