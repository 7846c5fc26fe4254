/* What ends training, or an evaluation: which step is named, what is left behind, and what the next trainer
 * or evaluator on the same device finds. */
#include "tests/pass_load.h"
#include "tests/trainer_run.h"

#include "train/evaluate.h"

/* A row that makes a value infinite, which steps given ahead go past: the step is named, those before it are
 * told, and parameters and momentum are theirs. */
static void divergence_is_named_exactly(void **state) {
  for (size_t s = 0; s < COUNT(setups); s++)
    for (int64_t row = 17; row < ROWS; row += 1111) {
      struct run r, before;
      struct made data = make(setups[s].classes);
      char words[64];
      /* The inputs, which show in the first block; or the targets, which show in the loss alone. */
      int far = !setups[s].classes && row % 2;
      *(far ? &data.far : &data.huge) = row;
      int64_t step = step_of(&setups[s], position_of(row));
      MUST(try_to_open(&r, *state, &setups[s], MN_PLACE_AUTO, &data, NULL));
      for (int again = 0; again < 2; again++) {
        mn_fail(MN_OK, "another");
        assert_int_equal(mn_trainer_run(r.trainer, 3000, tell, &r), MN_FAILED);
        snprintf(words, sizeof words, "training diverged at step %ld: ", (long)step);
        if (!strstr(mn_message(), words)) fail_msg("%s, not %s", mn_message(), words);
        assert_non_null(strstr(mn_message(), far ? "the loss" : "the output of blocks.0, row"));
      }
      assert_int_equal(r.told, step - 1);
      assert_int_equal(r.trainer->progress.step, step - 1);
      open_run(&before, *state, &setups[s], MN_PLACE_AUTO, NULL);
      train(&before, step - 1);
      assert_same_parameters(&before, &r);
      close_run(&before);
      /* Who goes on from there does not do so with the factors of what diverged. */
      open_run(&before, *state, &setups[s], MN_PLACE_AUTO, &r);
      assert_int_equal(before.trainer->pass->tape->measure, before.device->scaled);
      close_run(&before);
      close_run(&r);
    }
}

/* A row that cannot be read ends the run after the steps that do not need its window. */
static void rows_that_fail_come_after_the_steps_before(void **state) {
  struct run r;
  struct made data = make(0);
  for (data.bad = 70; is_sampled(data.bad);) data.bad++;
  char told[64];
  snprintf(told, sizeof told, "made up: row %lld is bad", (long long)data.bad);
  int64_t window =
      position_of(data.bad) / MN_ORDER_WINDOW_ROWS; /* 0 or 1: windows have 4096 rows here, or the rest */
  MUST(try_to_open(&r, *state, &setups[0], MN_PLACE_FILE, &data, NULL));
  for (int again = 0; again < 2; again++) {
    assert_int_equal(mn_trainer_run(r.trainer, 3000, tell, &r), MN_BAD_DATA);
    assert_string_equal(mn_message(), told);
  }
  if (window == 0) assert_int_equal(r.trainer->progress.step, 0);
  if (window == 1) assert_true(r.told > 0 && r.trainer->progress.step == r.told);
  close_run(&r);
  struct run refused;
  assert_int_equal(try_to_open(&refused, *state, &setups[0], MN_PLACE_DEVICE, &data, NULL), MN_BAD_DATA);
  assert_null(refused.trainer);
  close_run(&refused);
}

/* The first value that is not finite appears in the backward of the lowest of three blocks: not even the
 * highest one's parameters, whose gradients were known before, have changed. */
static void a_late_overflow_changes_nothing(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct made data = make(0);
  struct mn_model_config config = {.inputs = INPUTS,
                                   .depth = 3,
                                   .hidden = {8, 8, CHANNELS},
                                   .groups = 2,
                                   .eps = 1e-30,
                                   .slope = 0.01,
                                   .loss = MN_LOSS_MSE,
                                   .plan = MN_PLAN_BLOCK};
  struct mn_optimizer_config sgd = {.rule = {.momentum = 0.9}, .accumulate = 1};
  struct mn_trainer_config training = {.batch = 16, .schedule = {.rate = 1e-9, .horizon = 20}};
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
  double *before[MN_MODEL_PARAMETERS];
  /* blocks.0: nearly constant groups, so that 1/σ is huge, and a huge gamma. */
  const double factors[] = {1e-37, 0, 1e22, 1};
  data.scale = 1e8;
  MUST(mn_model_open(&model, device, &config));
  MUST(mn_optimizer_open(&optimizer, model, &sgd));
  MUST(mn_model_initialise(model, 0));
  for (int i = 0; i < model->count; i++) {
    struct mn_tensor *t = model->parameters[i];
    before[i] = zeros(mn_tensor_count(t));
    MUST(mn_tensor_read(device, t, before[i]));
    for (int64_t k = 0; k < mn_tensor_count(t) && i < 4; k++) before[i][k] *= factors[i];
    MUST(mn_tensor_write(device, t, before[i]));
    MUST(mn_tensor_read(device, t, before[i]));
  }
  MUST(mn_trainer_open(&trainer, model, optimizer, &data.base, &training, NULL));
  assert_int_equal(mn_trainer_run(trainer, trainer->progress.step + 1, NULL, NULL), MN_FAILED);
  assert_non_null(strstr(mn_message(), "step 1: a gradient is not finite"));
  for (int i = 0; i < model->count; i++) {
    struct mn_tensor *t = model->parameters[i];
    double *now = zeros(mn_tensor_count(t));
    MUST(mn_tensor_read(device, t, now));
    if (memcmp(now, before[i], (size_t)mn_tensor_count(t) * sizeof *now) != 0)
      fail_msg("%s changed", t->name);
    free(now), free(before[i]);
  }
  mn_trainer_close(trainer);
  mn_optimizer_close(optimizer);
  mn_model_close(model);
  mn_device_close(device);
}

static mn_status refuse(void *to, const double *y, const void *targets, int64_t first, int64_t count) {
  return first < *(int64_t *)to ? MN_OK : mn_fail(MN_IO, "made up: no room for row %ld", (long)first);
}

/* After a divergence, with steps under way, the same device evaluates and trains as if nothing had been. */
static void a_device_goes_on_after_a_divergence(void **state) {
  struct run r, fresh;
  struct made bad = make(0), good = make(0);
  bad.huge = 1234;
  MUST(try_to_open(&r, *state, &setups[0], MN_PLACE_AUTO, &bad, NULL));
  assert_int_equal(mn_trainer_run(r.trainer, 3000, tell, &r), MN_FAILED);
  mn_trainer_close(r.trainer);
  struct mn_evaluator *evaluator;
  double loss[2], accuracy;
  for (int i = 0; i < 2; i++) {
    MUST(mn_evaluator_open(&evaluator, r.model, &good.base, 1000, places[i]));
    for (int k = 0; k < 3; k++) MUST(mn_evaluate(evaluator, &loss[i], &accuracy));
    mn_evaluator_close(evaluator);
  }
  assert_true(isfinite(loss[0]) && loss[0] == loss[1]);
  /* A new run in the same device, from the start, against one in a new device. */
  struct mn_trainer_config training = {
      .schedule = {.kind = MN_SCHEDULE_COSINE, .rate = 0.1, .horizon = 4000, .warmup = 10},
      .batch = setups[0].batch,
      .seed = 9};
  mn_optimizer_close(r.optimizer);
  mn_model_close(r.model);
  struct mn_model_config config = {.inputs = INPUTS,
                                   .depth = 2,
                                   .hidden = {16, CHANNELS},
                                   .groups = 4,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .loss = MN_LOSS_MSE,
                                   .plan = MN_PLAN_BLOCK};
  MUST(mn_model_open(&r.model, r.device, &config));
  MUST(mn_optimizer_open(&r.optimizer, r.model, &setups[0].optimizer));
  MUST(mn_model_initialise(r.model, 9));
  MUST(mn_trainer_open(&r.trainer, r.model, r.optimizer, &good.base, &training, NULL));
  MUST(mn_trainer_run(r.trainer, 60, NULL, NULL));
  open_run(&fresh, *state, &setups[0], MN_PLACE_AUTO, NULL);
  train(&fresh, 60);
  assert_same(&fresh, &r);
  close_run(&fresh);
  close_run(&r);
}

/* A run that ended inside an accumulated step goes on, with the same optimizer, from that step's start. */
static void half_a_step_is_dropped(void **state) {
  const struct setup *setup = &setups[4];
  struct run r, whole;
  struct made bad = make(1), good = make(1);
  for (bad.bad = 0; position_of(bad.bad) < MN_ORDER_WINDOW_ROWS || is_sampled(bad.bad); bad.bad++)
    continue; /* in the second window */
  MUST(try_to_open(&r, *state, setup, MN_PLACE_FILE, &bad, NULL));
  assert_int_equal(mn_trainer_run(r.trainer, 3000, tell, &r), MN_BAD_DATA);
  assert_true(MN_ORDER_WINDOW_ROWS / setup->batch % setup->optimizer.accumulate !=
              0); /* or it was no half step */
  struct mn_progress progress = r.trainer->progress;
  struct mn_trainer_config training = {.schedule = r.trainer->schedule, .batch = setup->batch};
  mn_trainer_close(r.trainer);
  MUST(mn_trainer_open(&r.trainer, r.model, r.optimizer, &good.base, &training, &progress));
  MUST(mn_trainer_run(r.trainer, progress.step + 7, NULL, NULL));
  open_run(&whole, *state, setup, MN_PLACE_AUTO, NULL);
  train(&whole, progress.step + 7);
  assert_same(&whole, &r);
  close_run(&whole);
  close_run(&r);
}

/* The trainer's memory is not used once it is closed: its optimizer works on by itself. */
static void an_optimizer_outlives_its_trainer(void **state) {
  struct run r;
  struct mn_pass *pass;
  double loss;
  open_run(&r, *state, &setups[3], MN_PLACE_AUTO, NULL);
  train(&r, 3);
  mn_trainer_close(r.trainer);
  r.trainer = NULL;
  int64_t batch = setups[3].batch;
  float *x = calloc((size_t)batch * INPUTS, sizeof *x);
  int32_t *y = calloc((size_t)batch, sizeof *y);
  assert_true(x && y);
  MUST(made_read(&r.data.base, 0, batch, 4, x, y));
  MUST(mn_pass_open(&pass, r.model, MN_PASS_TRAIN, batch, 1, 0));
  MUST(mn_optimizer_rate(r.optimizer, 0.01, 0));
  for (int i = 0; i < 3; i++) {
    MUST(pass_load(pass, x, y));
    MUST(mn_tape_step(pass->tape));
    MUST(mn_optimizer_step(r.optimizer, pass->tape));
    MUST(mn_tape_results(pass->tape, &loss, NULL));
    assert_true(isfinite(loss));
  }
  mn_pass_close(pass);
  free(x), free(y);
  close_run(&r);
}

/* A prediction reads no targets; an evaluation that failed is not taken up again in the middle. */
static void predictions_read_inputs_alone(void **state) {
  for (int p = 0; p < 3; p++) {
    struct run r;
    struct mn_evaluator *evaluator;
    struct mn_predictor *predictor;
    struct made data = make(0);
    int64_t limit = ROWS;
    double *y, loss, accuracy;
    data.bad_y = 1;
    open_run(&r, *state, &setups[0], MN_PLACE_AUTO, NULL);
    y = malloc(1000 * (size_t)mn_model_outputs(&r.model->config) * sizeof *y);
    MUST(mn_predictor_open(&predictor, r.model, 1000));
    MUST(mn_predict_rows(predictor, &data.base, ROWS - 1000, 1000, y));
    mn_predictor_close(predictor);
    free(y);
    assert_int_equal(mn_evaluator_open(&evaluator, r.model, &data.base, 1000, MN_PLACE_DEVICE), MN_BAD_DATA);
    data.bad_y = 0;
    MUST(mn_evaluator_open(&evaluator, r.model, &data.base, 1000, places[p]));
    MUST(mn_evaluator_watch(evaluator, refuse, &limit));
    MUST(mn_evaluate(evaluator, &loss, &accuracy));
    MUST(mn_evaluate(evaluator, &loss, &accuracy));
    for (limit = 2000; limit <= ROWS; limit += ROWS) {
      assert_int_equal(mn_evaluate(evaluator, &loss, &accuracy), MN_IO);
      assert_string_equal(mn_message(), "made up: no room for row 2000");
    }
    limit = ROWS;
    assert_int_equal(mn_evaluate(evaluator, &loss, &accuracy), MN_IO);
    mn_evaluator_close(evaluator);
    close_run(&r);
  }
}

int main(void) {
#define EACH(test) ON("cpu", test), ON("cuda", test)
  const struct CMUnitTest tests[] = {
      EACH(divergence_is_named_exactly),     EACH(rows_that_fail_come_after_the_steps_before),
      EACH(a_late_overflow_changes_nothing), EACH(a_device_goes_on_after_a_divergence),
      EACH(half_a_step_is_dropped),          EACH(an_optimizer_outlives_its_trainer),
      EACH(predictions_read_inputs_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
