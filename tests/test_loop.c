/* A loop of a program's own, on passes and an optimizer: what it learns, what it is told of values that are
 * not finite, and of calls that cannot do what they say. And parameters in and out. */
#include "tests/all.h"
#include "tests/check.h"

enum { ROWS = 24, INPUTS = 12, OUTPUTS = 3, STEPS = 40 };

static float x[ROWS * INPUTS], y[ROWS * OUTPUTS];

struct loop {
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_pass *pass;
};

static struct mn_model_config sizes(void) {
  struct mn_model_config c = mn_model_defaults();
  c.inputs = INPUTS, c.depth = 1, c.hidden[0] = 32, c.head = OUTPUTS;
  return c;
}

static struct loop open_loop(struct mn_device *device, enum mn_pass_kind kind,
                             const struct mn_optimizer_config *by, int64_t rows) {
  struct loop l = {0};
  const struct mn_model_config c = sizes();
  MUST(mn_model_open(&l.model, device, &c));
  MUST(mn_model_initialise(l.model, 3));
  MUST(mn_optimizer_open(&l.optimizer, l.model, by));
  MUST(mn_pass_open(&l.pass, l.model, kind, rows, 1.0 / by->accumulate, kind == MN_PASS_SEEDED));
  return l;
}

static void close_loop(struct loop *l) {
  mn_pass_close(l->pass), mn_optimizer_close(l->optimizer), mn_model_close(l->model);
}

static void assert_alike(const struct mn_model *a, const struct mn_model *b, double bound) {
  for (int i = 0; i < a->count; i++) {
    const int64_t count = mn_tensor_count(a->parameters[i]);
    float *values[2];
    for (int k = 0; k < 2; k++) {
      values[k] = malloc((size_t)count * sizeof **values);
      assert_non_null(values[k]);
      MUST(mn_model_get(k ? b : a, a->parameters[i]->name, values[k], count));
    }
    for (int64_t k = 0; k < count; k++)
      if (!(fabsf(values[0][k] - values[1][k]) <= bound))
        fail_msg("%s, value %ld: %g and %g", a->parameters[i]->name, (long)k, (double)values[0][k],
                 (double)values[1][k]);
    free(values[0]), free(values[1]);
  }
}

static const struct mn_optimizer_config optimizers[] = {
    {.rule = {.momentum = 0.9}, .accumulate = 1},
    {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 1},
    {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8}, .accumulate = 2},
};

/* Steps; with `bad` a batch with a NaN comes before each third, and changes nothing. Returns the last loss. */
static double train(struct loop *l, const struct mn_optimizer_config *by, int bad) {
  double loss = NAN;
  for (int step = 0; step < STEPS; step++) {
    MUST(mn_optimizer_rate(l->optimizer, 0.02, step));
    for (int batch = 0; batch < by->accumulate; batch++) {
      if (bad && step % 3 == 0 && batch == 0) {
        static float broken[ROWS * INPUTS];
        memcpy(broken, x, sizeof x);
        broken[5 * INPUTS + 1] = step % 2 ? NAN : INFINITY;
        MUST(mn_pass_arrays(l->pass, broken, y));
        assert_int_equal(mn_pass_step(l->pass, &loss, NULL), MN_FAILED);
        assert_non_null(strstr(mn_message(), "row 5 is not finite, and the batch has changed nothing"));
        if (step % 2 && by->accumulate == 1) MUST(mn_optimizer_step(l->optimizer, l->pass->tape));
      }
      MUST(mn_pass_arrays(l->pass, x, y));
      MUST(mn_pass_step(l->pass, &loss, NULL));
    }
    MUST(mn_optimizer_step(l->optimizer, l->pass->tape));
  }
  return loss;
}

static void a_batch_that_is_not_finite_changes_nothing(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  for (size_t k = 0; k < COUNT(optimizers); k++) {
    struct loop whole = open_loop(device, MN_PASS_TRAIN, &optimizers[k], ROWS);
    struct loop broken = open_loop(device, MN_PASS_TRAIN, &optimizers[k], ROWS);
    const double loss = train(&whole, &optimizers[k], 0);
    assert_true(loss < 0.2 && train(&broken, &optimizers[k], 1) == loss);
    assert_alike(whole.model, broken.model, 0);
    close_loop(&whole), close_loop(&broken);
  }
  mn_device_close(device);
}

/* Rows in 16 bits whose factors do not fit are taken again. */
static void factors_follow(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp16");
  struct loop l = open_loop(device, MN_PASS_TRAIN, &optimizers[0], ROWS);
  static float wide[ROWS * INPUTS];
  double loss;
  MUST(mn_optimizer_rate(l.optimizer, 1e-4, 0));
  for (int step = 0; step < 3; step++) {
    for (int i = 0; i < ROWS * INPUTS; i++) wide[i] = x[i] * (step == 1 ? 1e4F : 1e-3F);
    MUST(mn_pass_arrays(l.pass, wide, y));
    MUST(mn_pass_step(l.pass, &loss, NULL));
  }
  close_loop(&l), mn_device_close(device);
}

/* The gradient of the mean squared error by hand: the same steps, and the input's gradient by differences. */
static void a_loss_of_ones_own(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  static float out[ROWS * OUTPUTS], dy[ROWS * OUTPUTS], dx[ROWS * INPUTS];
  for (size_t k = 0; k < COUNT(optimizers); k++) {
    const struct mn_optimizer_config *by = &optimizers[k];
    struct loop fused = open_loop(device, MN_PASS_TRAIN, by, ROWS),
                own = open_loop(device, MN_PASS_SEEDED, by, ROWS);
    const double means[INPUTS] = {0.5, -2}, scales[INPUTS] = {3, 3, 3, 1, 0.5, 1, 1, 1, 1, 1, 1, 1};
    const float unit = k == 1 ? 9 : 1; /* the square of the targets' scale */
    for (int i = 0; i < 2 && k == 1; i++) {
      MUST(mn_model_standardize(i ? own.model : fused.model, means, scales));
      MUST(mn_model_standardize_targets(i ? own.model : fused.model, means, scales));
    }
    for (int step = 0; step < 5; step++) {
      double loss, sum = 0;
      MUST(mn_optimizer_rate(fused.optimizer, 0.02, step));
      MUST(mn_optimizer_rate(own.optimizer, 0.02, step));
      for (int batch = 0; batch < by->accumulate; batch++) {
        MUST(mn_pass_arrays(fused.pass, x, y));
        MUST(mn_pass_step(fused.pass, &loss, NULL));
        MUST(mn_pass_arrays(own.pass, x, NULL));
        MUST(mn_pass_forward(own.pass, out));
        sum = 0;
        for (int i = 0; i < ROWS * OUTPUTS; i++) {
          dy[i] = 2 * (out[i] - y[i]) / (ROWS * OUTPUTS) / (float)by->accumulate / unit;
          sum += (double)((out[i] - y[i]) * (out[i] - y[i])) / (ROWS * OUTPUTS);
        }
        MUST(mn_pass_backward(own.pass, dy, dx));
        assert_true(fabs(sum - loss) < 1e-5 * loss);
      }
      MUST(mn_optimizer_step(fused.optimizer, fused.pass->tape));
      MUST(mn_optimizer_step(own.optimizer, own.pass->tape));
    }
    assert_alike(fused.model, own.model, 1e-5);
    double moved = 0;
    for (int i = 0; i < ROWS * INPUTS; i++) moved += fabs((double)dx[i]);
    assert_true(moved > 0);
    close_loop(&fused), close_loop(&own);
  }
  mn_device_close(device);
}

#define REFUSED(call, words)                                                                                 \
  do {                                                                                                       \
    assert_int_equal((call), MN_USAGE);                                                                      \
    if (!strstr(mn_message(), words)) fail_msg("%s: %s", #call, mn_message());                               \
  } while (0)

static void calls_in_another_order_are_refused(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  const struct mn_model_config c = sizes();
  struct mn_model *model;
  struct mn_optimizer *optimizer, *second;
  struct mn_pass *pass, *predict;
  struct mn_tape *tape;
  double loss;
  float out[ROWS * OUTPUTS];
  void *memory;
  MUST(mn_model_open(&model, device, &c));
  MUST(mn_model_initialise(model, 0));
  REFUSED(mn_pass_open(&pass, model, MN_PASS_TRAIN, ROWS, 1, 0), "open the model's optimizer before it");
  MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, ROWS, 1, 1)); /* for x's gradient */
  REFUSED(mn_optimizer_open(&optimizer, model, &optimizers[0]), "open it before them");
  mn_pass_close(pass);
  MUST(mn_optimizer_open(&optimizer, model, &optimizers[0]));
  REFUSED(mn_optimizer_open(&second, model, &optimizers[0]), "a second optimizer");
  MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, ROWS, 1, 0));
  REFUSED(mn_pass_arrays(pass, NULL, y), "without x");
  REFUSED(mn_pass_arrays(pass, x, NULL), "targets y");
  REFUSED(mn_pass_step(pass, &loss, NULL), "no batch is loaded");
  MUST(mn_pass_arrays(pass, x, y));
  REFUSED(mn_pass_step(pass, &loss, NULL), "no learning rate is set");
  REFUSED(mn_optimizer_rate(optimizer, NAN, 0), "a finite rate");
  REFUSED(mn_optimizer_rate(optimizer, -1, 0), "a finite rate");
  REFUSED(mn_optimizer_rate(optimizer, INFINITY, 0), "a finite rate");
  REFUSED(mn_optimizer_rate(optimizer, 1, -1), "a step from 0");
  MUST(mn_optimizer_rate(optimizer, 0.1, 0));
  MUST(mn_pass_step(pass, &loss, NULL));
  REFUSED(mn_pass_forward(pass, out), "take mn_pass_step");
  MUST(mn_pass_open(&predict, model, MN_PASS_PREDICT, ROWS, 1, 0));
  MUST(mn_pass_arrays(predict, x, NULL));
  REFUSED(mn_pass_step(predict, &loss, NULL), "take mn_pass_forward");
  MUST(mn_pass_forward(predict, out));
  REFUSED(mn_pass_backward(predict, out, NULL), "MN_PASS_SEEDED");
  mn_pass_close(predict), mn_pass_close(pass), mn_optimizer_close(optimizer);
  REFUSED(mn_pass_open(&pass, model, MN_PASS_TRAIN, ROWS, 1, 0), "open the model's optimizer before it");
  MUST(mn_tape_open(&tape, device, 0));
  mn_tape_close(tape);
  REFUSED(mn_device_allocate(device, &memory, 0, 4), "0 elements");
  mn_model_close(model), mn_device_close(device);
}

/* A backward is of the forward before it, and a batch that was refused is none. */
static void a_forward_has_one_backward(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct loop l = open_loop(device, MN_PASS_SEEDED, &optimizers[0], ROWS),
              other = open_loop(device, MN_PASS_TRAIN, &optimizers[0], ROWS);
  struct mn_trainer_config by = mn_trainer_defaults(MN_SGD, 3);
  struct mn_trainer *trainer;
  struct mn_evaluator *evaluator;
  struct mn_saver *saver;
  struct mn_dataset *rows;
  struct mn_pass *pass;
  struct mn_text text = {"note", "one"};
  float out[ROWS * OUTPUTS];
  MUST(mn_optimizer_rate(l.optimizer, 0.1, 0));
  REFUSED(mn_pass_forward(l.pass, out), "no batch is loaded");
  MUST(mn_pass_arrays(l.pass, x, NULL));
  REFUSED(mn_pass_backward(l.pass, out, NULL), "without its forward");
  MUST(mn_pass_forward(l.pass, out));
  MUST(mn_pass_backward(l.pass, out, NULL));
  REFUSED(mn_pass_backward(l.pass, out, NULL), "without its forward");
  MUST(mn_pass_forward(l.pass, out));
  MUST(mn_pass_arrays(l.pass, x, NULL));
  REFUSED(mn_pass_backward(l.pass, out, NULL), "without its forward");
  REFUSED(mn_pass_arrays(l.pass, NULL, NULL), "without x");
  REFUSED(mn_pass_forward(l.pass, out), "no batch is loaded");
  MUST(mn_dataset_arrays(&rows, x, y, ROWS, INPUTS, OUTPUTS));
  REFUSED(mn_trainer_open(&trainer, l.model, other.optimizer, rows, &by, NULL), "the optimizer of another");
  REFUSED(mn_saver_open(&saver, "/tmp/minnow-none.h5", 1, l.model, other.optimizer),
          "the optimizer of another");
  REFUSED(mn_evaluator_open(&evaluator, l.model, rows, 8, (enum mn_place)77), "place 77");
  REFUSED(mn_pass_open(&pass, l.model, (enum mn_pass_kind)77, 8, 1, 0), "a pass of kind 77");
  REFUSED(mn_pass_open(&pass, l.model, MN_PASS_EVALUATE, 8, NAN, 0), "a finite scale");
  MUST(mn_saver_open(&saver, "/tmp/minnow-none.h5", 1, l.model, l.optimizer));
  REFUSED(mn_saver_start(saver, MN_SAVE_NEWEST, NULL, NULL, 3), "3 texts");
  REFUSED(mn_saver_start(saver, 77, NULL, NULL, 0), "parts 77");
  memset(text.value, 'z', sizeof text.value);
  REFUSED(mn_saver_start(saver, MN_SAVE_NEWEST, NULL, &text, 1), "text 0");
  mn_saver_close(saver), mn_dataset_close(rows);
  close_loop(&l), close_loop(&other), mn_device_close(device);
}

/* ---- members of configs ---- */

/* Opens a trainer of a small table by the configs. */
static mn_status open_by(struct mn_device *device, const struct mn_model_config *sizes_of,
                         const struct mn_trainer_config *by) {
  struct mn_dataset *rows;
  struct mn_model *model = NULL;
  struct mn_optimizer *optimizer = NULL;
  struct mn_trainer *trainer = NULL;
  mn_status status = mn_dataset_arrays(&rows, x, y, ROWS, INPUTS, OUTPUTS);
  if (status == MN_OK) status = mn_model_open(&model, device, sizes_of);
  if (status == MN_OK) status = mn_model_initialise(model, 0);
  if (status == MN_OK) status = mn_optimizer_open(&optimizer, model, &optimizers[0]);
  if (status == MN_OK) status = mn_trainer_open(&trainer, model, optimizer, rows, by, NULL);
  if (status == MN_OK) status = mn_trainer_run(trainer, 3, NULL, NULL);
  mn_trainer_close(trainer), mn_optimizer_close(optimizer), mn_model_close(model), mn_dataset_close(rows);
  return status;
}

/* Each member out of its limits is refused by name, whatever the others are. */
static void members_have_limits(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  const struct mn_model_config good = sizes();
  struct mn_trainer_config by = mn_trainer_defaults(MN_SGD, 3);
  by.batch = 8;
  MUST(open_by(device, &good, &by));
#define MODEL(member, ...)                                                                                   \
  for (size_t i = 0; i < COUNT(((double[]){__VA_ARGS__})); i++) {                                            \
    struct mn_model_config c = good;                                                                         \
    c.member = (__typeof__(c.member))((double[]){__VA_ARGS__})[i];                                           \
    REFUSED(open_by(device, &c, &by), #member);                                                              \
  }
#define TRAINER(member, ...)                                                                                 \
  for (size_t i = 0; i < COUNT(((double[]){__VA_ARGS__})); i++) {                                            \
    struct mn_trainer_config c = by;                                                                         \
    c.schedule.every = 1, c.schedule.factor = 0.5;                                                           \
    c.schedule.kind = c.member == c.schedule.every ? MN_SCHEDULE_STEP : MN_SCHEDULE_CONSTANT;                \
    c.member = (__typeof__(c.member))((double[]){__VA_ARGS__})[i];                                           \
    REFUSED(open_by(device, &good, &c), strrchr("." #member, '.') + 1);                                      \
  }
  MODEL(inputs, 0, -1, 0x1p31, 0x1p60);
  MODEL(depth, 0, -3, 65, 0x1p40);
  MODEL(groups, 0, -8, 0x1p40);
  MODEL(head, -1, 0x1p31);
  MODEL(eps, 0, -1, NAN, INFINITY);
  MODEL(slope, NAN, INFINITY, -INFINITY);
  MODEL(loss, 2, 99);
  MODEL(plan, 7, 99);
  TRAINER(batch, 0, -1, 0x1p40);
  TRAINER(place, 4, 9);
  TRAINER(on_nonfinite, 2, 99);
  TRAINER(schedule.kind, 3, 9);
  TRAINER(schedule.rate, NAN, -1, INFINITY);
  TRAINER(schedule.horizon, -1, 0x1p62 * 1.5);
  TRAINER(schedule.warmup, -5);
  TRAINER(schedule.every, 0, -1);
  by.schedule.kind = MN_SCHEDULE_STEP, by.schedule.every = 1;
  const double factors[] = {NAN, -1, INFINITY};
  for (int i = 0; i < 3; i++) {
    by.schedule.factor = factors[i];
    REFUSED(open_by(device, &good, &by), "factor");
  }
  mn_device_close(device);
}

/* ---- parameters ---- */

static void parameters_go_in_and_out(void **state) {
  static const char *const precisions[] = {"fp32", "fp64", "bf16", "fp16"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    if (!device) continue;
    struct loop l = open_loop(device, MN_PASS_TRAIN, &optimizers[0], ROWS);
    struct mn_model *copy, *other;
    float weights[32 * INPUTS], back[32 * INPUTS], mean[INPUTS], out[ROWS * OUTPUTS], again[ROWS * OUTPUTS];
    double means[INPUTS], scales[INPUTS];
    for (int i = 0; i < INPUTS; i++) means[i] = 0.1 * i, scales[i] = 1 + i;
    MUST(mn_model_standardize(l.model, means, scales));
    for (int i = 0; i < 32 * INPUTS; i++) weights[i] = (float)random01(4, i) - 0.5F;
    MUST(mn_model_set(l.model, "blocks.0.fc.weight", weights, 32 * INPUTS));
    MUST(mn_model_get(l.model, "blocks.0.fc.weight", back, 32 * INPUTS));
    assert_memory_equal(weights, back, sizeof weights); /* masters are floats */
    MUST(mn_model_copy(&copy, l.model));
    assert_alike(copy, l.model, 0);
    MUST(mn_model_predict(l.model, x, ROWS, out));
    MUST(mn_model_predict(copy, x, ROWS, again));
    assert_memory_equal(out, again, sizeof out);
    struct mn_predictor *predictor;
    MUST(mn_predictor_open(&predictor, copy, ROWS));
    train(&l, &optimizers[0], 0); /* the copy stays */
    MUST(mn_predict(predictor, x, ROWS, again));
    assert_memory_equal(out, again, sizeof out);
    MUST(mn_model_copy(&other, copy));
    MUST(mn_model_blend(other, l.model, 0.25));
    float a[OUTPUTS], b[OUTPUTS], c[OUTPUTS];
    MUST(mn_model_get(copy, "head.bias", a, OUTPUTS));
    MUST(mn_model_get(l.model, "head.bias", b, OUTPUTS));
    MUST(mn_model_get(other, "head.bias", c, OUTPUTS));
    for (int i = 0; i < OUTPUTS; i++) assert_true(fabsf(c[i] - (0.75F * a[i] + 0.25F * b[i])) < 1e-6F);
    MUST(mn_model_blend(copy, l.model, 1)); /* and its predictor follows */
    assert_alike(copy, l.model, 0);
    MUST(mn_model_predict(l.model, x, ROWS, out));
    MUST(mn_predict(predictor, x, ROWS, again));
    assert_memory_equal(out, again, sizeof out);
    REFUSED(mn_model_get(l.model, "blocks.1.fc.weight", mean, INPUTS), "no parameter blocks.1.fc.weight");
    REFUSED(mn_model_get(l.model, "head.bias", mean, INPUTS), "which has 3");
    REFUSED(mn_model_blend(copy, l.model, 1.5), "a share of 1.5");
    weights[3] = NAN;
    assert_int_equal(mn_model_set(l.model, "blocks.0.fc.weight", weights, 32 * INPUTS), MN_BAD_DATA);
    mn_predictor_close(predictor), mn_model_close(copy), mn_model_close(other);
    close_loop(&l), mn_device_close(device);
  }
}

int main(void) {
  for (int i = 0; i < ROWS * INPUTS; i++) x[i] = (float)random01(1, i) * 2 - 1;
  for (int i = 0; i < ROWS * OUTPUTS; i++)
    y[i] = x[i / OUTPUTS * INPUTS + i % OUTPUTS] * x[i / OUTPUTS * INPUTS + 4];
  const struct CMUnitTest tests[] = {
      BOTH(a_batch_that_is_not_finite_changes_nothing),
      BOTH(factors_follow),
      BOTH(a_loss_of_ones_own),
      BOTH(calls_in_another_order_are_refused),
      BOTH(a_forward_has_one_backward),
      BOTH(members_have_limits),
      BOTH(parameters_go_in_and_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
