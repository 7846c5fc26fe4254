/* Steps in which a value is not finite, and that are skipped: the whole step updates nothing and the run goes
 * on as if it had never been, wherever in a launch it is and wherever the run is stopped. And rows to test on
 * that are not finite, which are not training's. */
#include "tests/trainer_run.h"

#include "train/evaluate.h"

enum { SPREAD = 601, END = 60 };

static const struct setup skips[] = {
    {"fp32", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp32", 0, 0, 20, {.rule = {.momentum = 0.9, .weight_decay = 1e-3}, .accumulate = 3}},
    {"fp32", 1, 0, 33, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 1}},
    {"fp64", 0, CHANNELS, 64, {.rule = {.momentum = 0.9, .nesterov = 1}, .accumulate = 1}},
    {"fp64", 1, 0, 20, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 3}},
    {"bf16",
     0,
     0,
     64,
     {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, .accumulate = 1}},
    {"fp16", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp16", 0, CHANNELS, 20, {.rule = {.momentum = 0.9}, .accumulate = 3}},
    {"fp16",
     0,
     0,
     14,
     {.rule = {.momentum = 0.9}, .accumulate = 5}}, /* so many that all factors are known again */
    {"fp16",
     1,
     0,
     20,
     {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, .clip = 0.5, .accumulate = 3}},
    {"fp16x3", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp16x3", 1, 0, 20, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 3}},
};

/* over −1: no row does. */
static void open_overflowing(struct run *r, const char *device, const struct setup *setup, int64_t over,
                             int64_t spread, const struct run *from) {
  struct made data = make(setup->classes);
  data.over = over;
  data.spread = spread;
  data.on_nonfinite = MN_NONFINITE_SKIP;
  MUST(try_to_open(r, device, setup, MN_PLACE_AUTO, &data, from));
}

/* The row that is to be named of a step, counted from its batch; −1: all of its rows are finite. */
static int64_t row_of(const struct run *r, int64_t step) {
  static int64_t rows[ROWS];
  const struct setup *s = r->setup;
  const int64_t each = s->batch * s->optimizer.accumulate;
  order_rows(rows);
  for (int64_t i = (step - 1) * each; i < step * each; i++)
    if (overflows(&r->data, rows[i])) return i % s->batch;
  return -1;
}

/* Told in place of tell: whether the steps that are skipped are those with such rows, and what is said. */
static int tell_skips(void *to, const struct mn_trainer *t) {
  const struct run *r = to;
  const int64_t row = row_of(r, t->progress.step);
  assert_true((t->skipped != NULL) == (row >= 0));
  if (row >= 0) {
    assert_string_equal(t->skipped->what, "the output of blocks.0");
    assert_int_equal(t->skipped->row, row);
    assert_false(t->skipped->parameter);
  }
  return tell(to, t);
}

static void train_on(struct run *r, int64_t until) {
  MUST(mn_trainer_run(r->trainer, until, tell_skips, r));
  assert_int_equal(r->trainer->progress.step, until);
}

/* What a run is after a step that was skipped, by hand: it has come a step further, and knows no factor. */
static void leave_out(struct run *r) {
  struct mn_progress *p = &r->trainer->progress;
  p->step++;
  p->skipped++, p->skipped_running++;
  p->samples = p->step * r->setup->batch * r->setup->optimizer.accumulate;
  p->epoch = p->samples / ROWS;
  p->position = p->samples % ROWS;
  MUST(mn_model_measure(r->model));
  for (int i = 0; i < r->model->count; i++) {
    struct mn_scale *scales = r->model->parameters[i]->scales;
    if (scales) MUST(r->device->kernels->zero(r->device, &scales[1], sizeof *scales));
  }
}

/* A run whose steps with such rows are never taken; the one that it has come to is returned. */
static struct run *train_around(struct run r[2], const char *device, const struct setup *setup,
                                int64_t over) {
  int at = 0;
  open_overflowing(&r[0], device, setup, over, SPREAD, NULL);
  for (int64_t step = 1; step <= END; step++) {
    if (row_of(&r[at], step) < 0) continue;
    train(&r[at], step - 1);
    leave_out(&r[at]);
    open_overflowing(&r[!at], device, setup, over, SPREAD, &r[at]);
    memcpy(r[!at].losses, r[at].losses, sizeof r->losses);
    close_run(&r[at]);
    at = !at;
  }
  train(&r[at], END);
  return &r[at];
}

static void assert_finite(const struct run *r) {
  for (int i = 0; i < r->model->count; i++) {
    double *values = read_values(r->device, r->model->parameters[i]);
    for (int64_t k = 0; k < mn_tensor_count(r->model->parameters[i]); k++) assert_true(isfinite(values[k]));
    free(values);
  }
}

static void a_skipped_step_has_never_been(void **state) {
  for (size_t s = 0; s < COUNT(skips); s++)
    for (int64_t over = 0; over < SPREAD; over += 401) {
      struct run skipping, parts[2];
      open_overflowing(&skipping, *state, &skips[s], over, SPREAD, NULL);
      train_on(&skipping, END);
      struct run *around = train_around(parts, *state, &skips[s], over);
      assert_same(around, &skipping);
      assert_finite(&skipping);
      const struct mn_progress *p = &skipping.trainer->progress, *q = &around->trainer->progress;
      assert_true(p->skipped >= 2 && p->skipped == q->skipped && p->skipped_running == q->skipped_running);
      for (int64_t step = 1; step <= END; step++)
        if (row_of(&skipping, step) < 0) assert_true(skipping.losses[step] == around->losses[step]);
      close_run(around);
      close_run(&skipping);
    }
}

/* Every value of the batches is finite, but a sum of their gradients is not, which the norm shows: as if it
 * had overflowed, it is made so here. */
static void a_norm_that_is_not_finite_skips(void **state) {
  for (size_t s = 0; s < COUNT(skips); s++) {
    struct run r, before, around;
    if (skips[s].optimizer.clip == 0 || skips[s].optimizer.accumulate == 1) continue;
    open_overflowing(&r, *state, &skips[s], -1, 1, NULL);
    train(&r, 3);
    struct mn_tensor *weight = r.model->parameters[MN_BLOCK_WEIGHT];
    double *values = zeros(mn_tensor_count(weight));
    values[7] = INFINITY;
    MUST(mn_device_write(r.device, weight->gradient, values, mn_tensor_count(weight)));
    free(values);
    train(&r, 4);
    assert_true(r.trainer->skipped && r.trainer->skipped->row == -1);
    assert_string_equal(r.trainer->skipped->what, "a gradient");
    train(&r, 20);
    assert_int_equal(r.trainer->progress.skipped, 1);
    open_overflowing(&before, *state, &skips[s], -1, 1, NULL);
    train(&before, 3);
    leave_out(&before);
    open_overflowing(&around, *state, &skips[s], -1, 1, &before);
    train(&around, 20);
    assert_same(&around, &r);
    close_run(&around);
    close_run(&before);
    close_run(&r);
  }
}

/* Also right before a step that is skipped, and right after it. */
static void stopping_among_skips_does_not_show(void **state) {
  /* Under compute-sanitizer all of them would take an hour. */
  const size_t count = quick() ? 1 : COUNT(skips);
  for (size_t s = 0; s < count; s++) {
    struct run whole;
    open_overflowing(&whole, *state, &skips[s], 0, SPREAD, NULL);
    train_on(&whole, END);
    for (int64_t stop = 1; stop < END; stop++) {
      struct run first, second;
      if (row_of(&whole, stop) < 0 && row_of(&whole, stop + 1) < 0) continue;
      open_overflowing(&first, *state, &skips[s], 0, SPREAD, NULL);
      first.stop_at = stop;
      MUST(mn_trainer_run(first.trainer, stop % 2 ? stop : END, tell_skips, &first));
      const int64_t end = first.trainer->progress.step;
      open_from_file(&second, *state, &first);
      /* What the batches of a skipped step have measured is of use to neither. */
      const int measures = row_of(&whole, end) >= 0 && first.device->scaled;
      assert_int_equal(first.trainer->pass->tape->measure, measures);
      assert_int_equal(second.trainer->pass->tape->measure, measures);
      train_on(&second, END);
      assert_same(&whole, &second);
      assert_int_equal(second.trainer->progress.skipped, whole.trainer->progress.skipped);
      for (int64_t step = 1; step <= END; step++) {
        const double loss = step <= end ? first.losses[step] : second.losses[step];
        assert_true(loss == whole.losses[step] || row_of(&whole, step) >= 0);
      }
      close_run(&second);
      close_run(&first);
    }
    close_run(&whole);
  }
}

static void assert_ends(struct run *r, const char *words) {
  for (int again = 0; again < 2; again++) {
    mn_fail(MN_OK, "another");
    assert_int_equal(mn_trainer_run(r->trainer, END, tell, r), MN_FAILED);
    if (!strstr(mn_message(), words)) fail_msg("%s, not %s", mn_message(), words);
  }
}

/* Nine in a row are skipped; the tenth is where the run has diverged, also one that was resumed among them. A
 * step that updates something starts the row anew. */
static void ten_in_a_row_are_a_divergence(void **state) {
  for (size_t s = 0; s < COUNT(skips); s++) {
    struct run r, resumed, fresh;
    open_run(&fresh, *state, &skips[s], MN_PLACE_AUTO, NULL);
    open_overflowing(&r, *state, &skips[s], 0, 1, NULL);
    train(&r, 6);
    assert_int_equal(r.trainer->progress.skipped_running, 6);
    open_from_file(&resumed, *state, &r);
    assert_ends(&r, "diverged at step 10: the output of blocks.0, row 0 is not finite, after 9 skipped");
    assert_ends(&resumed,
                "diverged at step 10: the output of blocks.0, row 0 is not finite, after 9 skipped");
    assert_int_equal(resumed.told, 9);
    assert_int_equal(resumed.trainer->progress.step, 9);
    assert_int_equal(resumed.trainer->progress.skipped, 9);
    assert_same_parameters(&r, &fresh);
    assert_same_parameters(&resumed, &fresh);
    close_run(&resumed);
    close_run(&r);
    /* Rows so far apart that a step comes between two of them. */
    const int64_t each = skips[s].batch * skips[s].optimizer.accumulate;
    open_overflowing(&r, *state, &skips[s], 0, 3 * each / 2, NULL);
    train_on(&r, END);
    assert_true(r.trainer->progress.skipped > MN_SKIPPED_MOST);
    close_run(&r);
    close_run(&fresh);
  }
}

/* Skipping mends no parameter: such a run ends at once, by its name. */
static void a_parameter_that_is_not_finite_ends_the_run(void **state) {
  for (size_t s = 0; s < COUNT(skips); s++) {
    struct run r;
    open_overflowing(&r, *state, &skips[s], -1, 1, NULL);
    train(&r, 3);
    struct mn_tensor *bias = r.model->parameters[MN_BLOCK_BIAS];
    double *values = read_values(r.device, bias);
    values[5] = INFINITY;
    MUST(mn_tensor_write(r.device, bias, values));
    free(values);
    assert_ends(&r, "diverged at step 4: blocks.0.fc.bias, row 0 is not finite;");
    assert_int_equal(r.trainer->progress.step, 3);
    close_run(&r);
  }
}

/* The one way to such a parameter: its gradient was finite, but the update was not, which an update that is
 * part of its gradient's product cannot know before it is written. */
static void an_update_may_overflow(void **state) {
  for (size_t s = 0; s < COUNT(skips); s++) {
    struct run r;
    if (strcmp(skips[s].precision, "fp64") == 0) continue;
    open_overflowing(&r, *state, &skips[s], -1, 1, NULL);
    r.trainer->schedule.rate = 1e60;
    train(&r, 1);
    assert_ends(&r, "diverged at step 2: blocks.0.fc.weight, row 0 is not finite;");
    close_run(&r);
  }
}

/* Rows to test on that are not finite are named by their number; training goes on as if nobody had looked. */
static void an_evaluation_names_its_rows(void **state) {
  enum { BATCH = 1000, FIRST = 1800 };
  for (size_t s = 0; s < COUNT(skips); s++) {
    struct run seen, unseen;
    struct made bad = make(skips[s].classes);
    struct mn_evaluator *evaluator;
    double loss, accuracy;
    int64_t batches, all;
    bad.over = FIRST, bad.spread = 2000; /* 1800 and 3800 of 4500 */
    open_run(&seen, *state, &skips[s], MN_PLACE_AUTO, NULL);
    open_run(&unseen, *state, &skips[s], MN_PLACE_AUTO, NULL);
    train(&seen, 5);
    MUST(mn_evaluator_open(&evaluator, seen.model, &bad.base, BATCH, MN_PLACE_AUTO));
    for (int again = 0; again < 3; again++) {
      MUST(mn_evaluate(evaluator, &loss, &accuracy));
      const struct mn_fault *fault = mn_evaluator_fault(evaluator, &batches, &all);
      assert_true(isnan(loss) && isnan(accuracy) && fault);
      assert_string_equal(fault->what, "the output of blocks.0");
      assert_true(fault->row == FIRST && !fault->parameter && batches == 2 && all == 5);
    }
    bad.over = -1;
    mn_evaluator_close(evaluator);
    MUST(mn_evaluator_open(&evaluator, seen.model, &bad.base, BATCH, MN_PLACE_AUTO));
    MUST(mn_evaluate(evaluator, &loss, &accuracy));
    assert_true(isfinite(loss) && isnan(accuracy) == !skips[s].classes);
    assert_null(mn_evaluator_fault(evaluator, NULL, NULL));
    mn_evaluator_close(evaluator);
    if (!skips[s].classes) { /* the loss itself */
      bad.far = FIRST + 1;
      MUST(mn_evaluator_open(&evaluator, seen.model, &bad.base, BATCH, MN_PLACE_AUTO));
      MUST(mn_evaluate(evaluator, &loss, &accuracy));
      const struct mn_fault *fault = mn_evaluator_fault(evaluator, &batches, &all);
      assert_true(isnan(loss) && fault && fault->row == FIRST + 1 && batches == 1);
      assert_string_equal(fault->what, "the loss");
      mn_evaluator_close(evaluator);
    }
    bad.over = FIRST;
    struct mn_predictor *predictor;
    double *y = malloc(BATCH * (size_t)mn_model_outputs(&seen.model->config) * sizeof *y);
    MUST(mn_predictor_open(&predictor, seen.model, BATCH));
    MUST(mn_predict_rows(predictor, &bad.base, 0, BATCH, y));
    assert_int_equal(mn_predict_rows(predictor, &bad.base, BATCH, BATCH, y), MN_FAILED);
    assert_non_null(strstr(mn_message(), "the output of blocks.0, row 1800 is not finite"));
    MUST(mn_predict_rows(predictor, &bad.base, 2 * BATCH, BATCH, y));
    mn_predictor_close(predictor);
    free(y);
    train(&seen, 20);
    train(&unseen, 20);
    assert_int_equal(seen.trainer->progress.skipped, 0);
    assert_same(&seen, &unseen);
    close_run(&unseen);
    close_run(&seen);
  }
}

static void there_is_no_third_way(void **state) {
  struct run r;
  struct made data = make(0);
  data.on_nonfinite = (enum mn_nonfinite)MN_NONFINITES;
  assert_int_equal(try_to_open(&r, *state, &skips[0], MN_PLACE_AUTO, &data, NULL), MN_USAGE);
  assert_null(r.trainer);
  close_run(&r);
  assert_string_equal(mn_nonfinite_name(MN_NONFINITE_STOP), "stop");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(a_skipped_step_has_never_been),
      BOTH(a_norm_that_is_not_finite_skips),
      BOTH(stopping_among_skips_does_not_show),
      BOTH(ten_in_a_row_are_a_divergence),
      BOTH(a_parameter_that_is_not_finite_ends_the_run),
      BOTH(an_update_may_overflow),
      BOTH(an_evaluation_names_its_rows),
      BOTH(there_is_no_third_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
