/* Scaled planes in training: a batch whose values outgrow a factor is taken again, wherever in a launch or a
 * step it is, and nothing of it is lost; what a run leads to is the same when it was stopped and resumed. */
#include "kernels/planes.h"
#include "tests/pass_load.h"
#include "tests/trainer_run.h"

#include "train/evaluate.h"

static const struct setup scaled[] = {
    {"fp16", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp16", 0, CHANNELS, 33, {.rule = {.momentum = 0.9, .nesterov = 1}, .clip = 0.5, .accumulate = 1}},
    {"fp16", 0, 0, 25, {.rule = {.momentum = 0.9, .weight_decay = 1e-3}, .accumulate = 2}},
    {"fp16", 0, CHANNELS, 20, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 3}},
    {"fp16", 1, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp16", 1, 0, 20, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 3}},
};

static void open_jumping(struct run *r, const char *device, const struct setup *setup, int64_t jump,
                         int64_t apart, const struct run *from) {
  struct made data = make(setup->classes);
  data.jump = jump;
  data.apart = apart;
  MUST(try_to_open(r, device, setup, MN_PLACE_AUTO, &data, from));
}

/* What a trainer does with a batch that it takes again, or with the first one of a new run. */
static void measure(struct run *r) {
  MUST(mn_model_measure(r->model));
  r->trainer->pass->tape->measure = 1;
}

/* ---- against steps taken by hand ---- */

/* The run's next step from plain passes, of which that of batch `measured` measures. */
static void step_by_hand(struct run *r, int64_t measured) {
  static int64_t rows[ROWS];
  const struct setup *s = r->setup;
  const struct mn_trainer *t = r->trainer;
  int64_t each = s->optimizer.accumulate, first = t->progress.step * s->batch * each,
          width = r->data.base.outputs;
  float *x = malloc((size_t)s->batch * INPUTS * sizeof *x),
        *y = malloc((size_t)(s->batch * width) * sizeof *y);
  struct mn_pass *pass;
  int raised;
  assert_true(x && y && first + each * s->batch <= ROWS);
  order_rows(rows);
  MUST(mn_optimizer_reset(r->optimizer));
  MUST(mn_optimizer_rate(r->optimizer, mn_schedule_rate(&t->schedule, t->progress.step), t->progress.step));
  MUST(mn_pass_open(&pass, r->model, MN_PASS_TRAIN, s->batch, 1 / (double)each, 0));
  for (int64_t k = 0; k < each; k++) {
    for (int64_t i = 0; i < s->batch; i++)
      MUST(made_read(&r->data.base, rows[first + k * s->batch + i], 1, 4, x + i * INPUTS,
                     y + i * (s->classes ? 1 : width)));
    MUST(pass_load(pass, x, y));
    if (k == measured) MUST(mn_model_measure(r->model));
    pass->tape->measure = k == measured;
    MUST(mn_tape_step(pass->tape));
    MUST(r->device->kernels->synchronize(r->device));
  }
  MUST(mn_optimizer_step(r->optimizer, pass->tape));
  MUST(mn_tape_nonfinite(pass->tape, &raised));
  assert_int_equal(raised, 0);
  mn_pass_close(pass);
  free(x), free(y);
}

/* A row that comes some steps after the first, in batch `number` of its step. */
static int64_t row_in_batch(const struct setup *s, int64_t number) {
  static int64_t rows[ROWS];
  order_rows(rows);
  return rows[(7 * s->optimizer.accumulate + number) * s->batch + s->batch / 2];
}

/* A jump in each batch of a step: those before it keep their sums, those after it add theirs. */
static void a_batch_that_overflows_is_taken_again(void **state) {
  for (size_t i = 0; i < COUNT(scaled); i++)
    for (int64_t k = 0; k < scaled[i].optimizer.accumulate && !scaled[i].classes; k++) {
      struct run before, after, hand;
      int64_t row = row_in_batch(&scaled[i], k);
      assert_int_equal(step_of(&scaled[i], position_of(row)), 8);
      open_jumping(&before, *state, &scaled[i], row, ROWS, NULL);
      train(&before, 7);
      assert_int_equal(before.trainer->retaken, 0);
      open_jumping(&hand, *state, &scaled[i], row, ROWS, &before);
      step_by_hand(&hand, k);
      open_jumping(&after, *state, &scaled[i], row, ROWS, NULL);
      train(&after, 8);
      assert_int_equal(after.trainer->retaken, 1);
      assert_same(&after, &hand);
      train(&before, 8); /* the same in a launch of its own */
      assert_int_equal(before.trainer->retaken, 1);
      assert_same(&before, &after);
      close_run(&hand);
      close_run(&after);
      close_run(&before);
    }
}

/* ---- stopped and resumed ---- */

/* One run at one go, with batches taken again in many of its launches; others stopped before, after and among
 * them. */
static void stopping_among_overflows_does_not_show(void **state) {
  enum { END = 60 };
  for (size_t i = 0; i < COUNT(scaled); i++) {
    const struct setup *s = &scaled[i];
    struct run whole;
    int64_t row = row_in_batch(s, 0);
    if (s->classes) continue;
    open_jumping(&whole, *state, s, row, 300, NULL);
    train(&whole, END);
    assert_true(whole.trainer->retaken >= 3);
    for (int64_t stop = 1; stop < END; stop += stop < 6 || stop > 10 ? 5 : 1) {
      struct run first, second;
      open_jumping(&first, *state, s, row, 300, NULL);
      first.stop_at = stop;
      MUST(mn_trainer_run(first.trainer, stop % 2 ? stop : END, tell, &first));
      int64_t end = first.trainer->progress.step;
      assert_true(first.told == end && end >= stop);
      open_from_file(&second, *state, &first);
      assert_int_equal(second.trainer->pass->tape->measure, 0);
      train(&second, END);
      assert_same(&whole, &second);
      assert_int_equal(first.trainer->retaken + second.trainer->retaken, whole.trainer->retaken);
      for (int64_t step = 1; step <= END; step++) {
        const struct run *told = step <= end ? &first : &second;
        assert_true(told->losses[step] == whole.losses[step]);
        if (s->optimizer.clip > 0) assert_true(told->norms[step] == whole.norms[step]);
      }
      close_run(&second);
      close_run(&first);
    }
    close_run(&whole);
  }
}

/* ---- factors that no longer suit ---- */

static void set_factor(struct run *r, int parameter, double times) {
  struct mn_scale *scales = r->model->parameters[parameter]->scales, dz;
  if (!scales) return;
  MUST(r->device->kernels->download(r->device, &dz, &scales[1], sizeof dz));
  dz = (struct mn_scale){(float)(times * (double)mn_scale_next(&dz)), 0};
  MUST(r->device->kernels->copy(r->device, &scales[1], &dz, sizeof dz));
  MUST(r->device->kernels->synchronize(r->device));
}

/* dz's factor is far too large, in every layer or in one: the next batch is taken again, and is what it is in
 * a run that measures it to begin with. */
static void a_factor_of_any_layer_may_be_too_large(void **state) {
  for (size_t i = 0; i < COUNT(scaled); i++) {
    struct run before, measured;
    open_run(&before, *state, &scaled[i], MN_PLACE_AUTO, NULL);
    train(&before, 20);
    open_run(&measured, *state, &scaled[i], MN_PLACE_AUTO, &before);
    measure(&measured);
    train(&measured, 45);
    for (int only = -1; only < before.model->count; only++) {
      struct run after;
      if (only >= 0 && !before.model->parameters[only]->scales) continue;
      open_run(&after, *state, &scaled[i], MN_PLACE_AUTO, &before);
      for (int p = 0; p < after.model->count; p++)
        if (only < 0 || p == only) set_factor(&after, p, 0x1p20);
      train(&after, 45);
      assert_int_equal(after.trainer->retaken, measured.trainer->retaken + 1);
      assert_same(&measured, &after);
      for (int64_t step = 21; step <= 45; step++) assert_true(after.losses[step] == measured.losses[step]);
      close_run(&after);
    }
    close_run(&measured);
    close_run(&before);
  }
}

/* How large a weight is beside what its plane can hold. */
static double fullness(const struct run *r, int parameter) {
  const struct mn_tensor *t = r->model->parameters[parameter];
  int64_t count = mn_tensor_count(t);
  double *values = zeros(count), largest = 0;
  struct mn_scale scale;
  MUST(mn_tensor_read(r->device, t, values));
  MUST(r->device->kernels->download(r->device, &scale, t->value.scale, sizeof scale));
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
  free(values);
  return largest * (double)scale.factor / (double)MN_FP16_MOST;
}

static double loss_of(struct run *r) {
  struct mn_evaluator *evaluator;
  double loss, again, accuracy;
  MUST(mn_evaluator_open(&evaluator, r->model, &r->data.base, 1000, MN_PLACE_AUTO));
  MUST(mn_evaluate(evaluator, &loss, &accuracy));
  MUST(mn_evaluate(evaluator, &again, &accuracy));
  assert_true(loss == again);
  mn_evaluator_close(evaluator);
  return loss;
}

static double sum_of_outputs(struct run *r) {
  struct mn_predictor *predictor;
  static double y[1000 * CHANNELS];
  double sum = 0;
  MUST(mn_predictor_open(&predictor, r->model, 1000));
  for (int64_t first = 0, count; first < r->data.base.rows; first += count) {
    count = r->data.base.rows - first < 1000 ? r->data.base.rows - first : 1000;
    MUST(mn_predict_rows(predictor, &r->data.base, first, count, y));
    for (int64_t i = 0; i < count * CHANNELS; i++) sum += y[i];
  }
  mn_predictor_close(predictor);
  return sum;
}

/* One step at an enormous rate leaves weights that their planes cannot hold. */
static void train_beyond_the_planes(struct run *r) {
  train(r, 20);
  double rate = r->trainer->schedule.rate;
  r->trainer->schedule.rate = 1e7;
  train(r, 21);
  r->trainer->schedule.rate = rate;
  r->trainer->retaken = 0;
  assert_true(fullness(r, 0) > 2);
}

/* Then the step after it is taken again; also when the run was resumed, with the same planes, in between. */
static void weights_may_outgrow_their_planes(void **state) {
  for (size_t i = 0; i < COUNT(scaled); i++) {
    struct run whole, resumed, reloaded, measured;
    if (scaled[i].optimizer.clip > 0) continue;
    open_run(&whole, *state, &scaled[i], MN_PLACE_AUTO, NULL);
    train_beyond_the_planes(&whole);
    open_run(&resumed, *state, &scaled[i], MN_PLACE_AUTO, &whole);
    open_from_file(&reloaded, *state, &whole);
    open_run(&measured, *state, &scaled[i], MN_PLACE_AUTO, &whole);
    measure(&measured);
    train(&whole, 50);
    train(&reloaded, 50);
    train(&resumed, 50);
    train(&measured, 50);
    assert_int_equal(resumed.trainer->retaken, measured.trainer->retaken + 1);
    assert_int_equal(reloaded.trainer->retaken, measured.trainer->retaken + 1);
    assert_int_equal(whole.trainer->retaken, measured.trainer->retaken + 1);
    assert_true(fullness(&whole, 0) < 0.1 && fullness(&whole, 0) > 1e-4);
    assert_same(&whole, &resumed);
    assert_same(&whole, &reloaded);
    assert_same(&whole, &measured);
    close_run(&measured);
    close_run(&reloaded);
    close_run(&resumed);
    close_run(&whole);
  }
}

/* What the weights give does not depend on the factors that training has come to, and training does not
 * depend on being looked at, not even where a plane holds infinities. */
static void looking_at_a_model_changes_nothing(void **state) {
  struct run seen, fresh;
  open_run(&seen, *state, &scaled[0], MN_PLACE_AUTO, NULL);
  open_run(&fresh, *state, &scaled[0], MN_PLACE_AUTO, NULL);
  train_beyond_the_planes(&seen);
  train_beyond_the_planes(&fresh);
  MUST(mn_model_measure(fresh.model));
  double loss = loss_of(&seen), sum = sum_of_outputs(&seen);
  assert_true(isfinite(loss) && loss == loss_of(&fresh));
  assert_true(isfinite(sum) && sum == sum_of_outputs(&fresh));
  assert_true(fullness(&seen, 0) > 2);
  close_run(&fresh);
  open_run(&fresh, *state, &scaled[0], MN_PLACE_AUTO, NULL);
  train_beyond_the_planes(&fresh);
  for (int64_t step = 22; step < 30; step++) {
    train(&seen, step);
    (void)loss_of(&seen);
  }
  train(&fresh, 29);
  assert_true(seen.trainer->retaken >= 1 && seen.trainer->retaken == fresh.trainer->retaken);
  assert_same(&seen, &fresh);
  close_run(&fresh);
  close_run(&seen);
}

/* Outputs between blocks that float16 itself could not hold. */
static void large_outputs_fit(void **state) {
  double losses[2];
  for (int half = 0; half < 2; half++) {
    struct setup setup = {half ? "fp16" : "fp32", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}};
    struct run r;
    open_run(&r, *state, &setup, MN_PLACE_AUTO, NULL);
    struct mn_tensor *gamma = r.model->parameters[MN_BLOCK_GAMMA];
    double *values = zeros(mn_tensor_count(gamma));
    for (int64_t i = 0; i < mn_tensor_count(gamma); i++) values[i] = 1e5 * (double)(i % 5 + 1);
    MUST(mn_tensor_write(r.device, gamma, values));
    free(values);
    train(&r, 3);
    assert_int_equal(r.trainer->retaken, 0);
    losses[half] = loss_of(&r);
    close_run(&r);
  }
  assert_true(fabs(losses[1] - losses[0]) < 1e-3 * losses[0]);
}

/* ---- the first step, and the smallest ---- */

/* Who measures the first step: a new run, and one that has no factor for some dz. */
static void a_run_without_factors_measures(void **state) {
  for (size_t s = 0; s < COUNT(setups); s++) {
    struct run first, second;
    int has_scales = strcmp(setups[s].precision, "fp16") == 0;
    open_run(&first, *state, &setups[s], MN_PLACE_AUTO, NULL);
    assert_int_equal(first.trainer->pass->tape->measure, has_scales);
    open_run(&second, *state, &setups[s], MN_PLACE_AUTO, &first); /* nothing was trained */
    assert_int_equal(second.trainer->pass->tape->measure, has_scales);
    close_run(&second);
    train(&first, 3);
    assert_int_equal(first.trainer->retaken, 0);
    open_run(&second, *state, &setups[s], MN_PLACE_AUTO, &first);
    assert_int_equal(second.trainer->pass->tape->measure, 0);
    close_run(&second);
    /* Another trainer of the same model, from the start. */
    struct mn_trainer *another;
    struct mn_trainer_config config = {.schedule = first.trainer->schedule, .batch = setups[s].batch};
    MUST(mn_trainer_open(&another, first.model, first.optimizer, &first.data.base, &config, NULL));
    assert_int_equal(another->pass->tape->measure, has_scales);
    mn_trainer_close(another);
    close_run(&first);
  }
}

/* Targets and outputs of 1e-4, so that dz is some 1e-11, and a rate to match for the weights; the vectors
 * stay. Without a factor float16 would make every dz 0. The losses before and after. */
static void train_on_little(const char *name, const char *precision, double *before, double *after) {
  const double small = 1e-4;
  struct setup setup = {precision, 0, 0, 100, {.rule = {.momentum = 0.9}, .accumulate = 1}};
  struct run r = {.setup = &setup, .device = open_or_skip(name, precision), .data = make(0)};
  struct mn_model_config config = {.inputs = INPUTS,
                                   .depth = 1,
                                   .hidden = {CHANNELS},
                                   .groups = 2,
                                   .eps = 1e-5,
                                   .slope = 0.1,
                                   .loss = MN_LOSS_MSE,
                                   .plan = MN_PLAN_BLOCK};
  struct mn_trainer_config training = {.batch = setup.batch,
                                       .schedule = {.rate = 1 / (small * small), .horizon = 1000}};
  r.data.scale = small;
  MUST(mn_model_open(&r.model, r.device, &config));
  MUST(mn_optimizer_open(&r.optimizer, r.model, &setup.optimizer));
  MUST(mn_model_initialise(r.model, 3));
  for (int i = 1; i < r.model->count; i++) {
    struct mn_tensor *t = r.model->parameters[i];
    double *values = zeros(mn_tensor_count(t));
    for (int64_t k = 0; k < mn_tensor_count(t) && i == MN_BLOCK_GAMMA; k++) values[k] = small;
    MUST(mn_tensor_write(r.device, t, values));
    t->needs_gradient = 0;
    free(values);
  }
  MUST(mn_trainer_open(&r.trainer, r.model, r.optimizer, &r.data.base, &training, NULL));
  *before = loss_of(&r);
  for (int64_t step = 1; step <= 150; step++) {
    struct mn_scale dz;
    MUST(mn_trainer_run(r.trainer, r.trainer->progress.step + 1, NULL, NULL));
    if (!r.model->parameters[0]->scales) continue;
    MUST(r.device->kernels->download(r.device, &dz, &r.model->parameters[0]->scales[1], sizeof dz));
    assert_true(dz.largest > 0 && dz.largest < 1e-8f);
  }
  *after = loss_of(&r);
  close_run(&r);
}

static void the_smallest_gradients_train(void **state) {
  double before[2], after[2];
  train_on_little(*state, "fp32", &before[0], &after[0]);
  train_on_little(*state, "fp16", &before[1], &after[1]);
  print_message("the loss falls from %g to %g in fp32, to %g in fp16\n", before[0], after[0], after[1]);
  assert_true(fabs(before[1] - before[0]) < 1e-4 * before[0]);
  assert_true(before[0] - after[0] > 0.02 * before[0]);
  assert_true(fabs(after[1] - after[0]) < 0.1 * (before[0] - after[0]));
}

int main(void) {
#define EACH(test) ON("cpu", test), ON("cuda", test)
  const struct CMUnitTest tests[] = {
      EACH(a_batch_that_overflows_is_taken_again),  EACH(stopping_among_overflows_does_not_show),
      EACH(a_factor_of_any_layer_may_be_too_large), EACH(weights_may_outgrow_their_planes),
      EACH(looking_at_a_model_changes_nothing),     EACH(large_outputs_fit),
      EACH(a_run_without_factors_measures),         EACH(the_smallest_gradients_train),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
