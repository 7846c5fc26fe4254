/* The trainer gives steps ahead, several at a time, from rows that wait in one place or another: none of that
 * may show in what training leads to, nor in what is told of it. */
#include "tests/check.h"

#include "data/order.h"
#include "train/trainer.h"

/* ---- a dataset made up ---- */

enum { ROWS = 4500, INPUTS = 16, CHANNELS = 32 };

struct made {
  struct mn_dataset base;
  int64_t huge; /* this row's inputs are infinite; −1: none's */
  int64_t bad;  /* reading this row fails; −1: none */
};

static mn_status made_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                           void *y) {
  const struct made *m = (const struct made *)dataset;
  if (m->bad >= first && m->bad < first + count)
    return mn_fail(MN_BAD_DATA, "made up: row %ld is bad", (long)m->bad);
  for (int64_t i = 0; i < count * INPUTS; i++) {
    double value = (mn_random_word(3, 1, (uint64_t)(first * INPUTS + i)) >> 8) * 0x1p-23 - 1;
    if (first + i / INPUTS == m->huge) value = INFINITY;
    if (real == 8)
      ((double *)x)[i] = value;
    else
      ((float *)x)[i] = (float)value;
  }
  for (int64_t i = 0; i < count * dataset->outputs && !dataset->classes; i++) {
    double value = (mn_random_word(4, 1, (uint64_t)(first * dataset->outputs + i)) >> 8) * 0x1p-23 - 1;
    if (real == 8)
      ((double *)y)[i] = value;
    else
      ((float *)y)[i] = (float)value;
  }
  for (int64_t i = 0; i < count && dataset->classes; i++)
    ((int32_t *)y)[i] = (int32_t)((first + i) % dataset->outputs);
  return MN_OK;
}

static struct made make(int classes) {
  return (struct made){.base = {.rows = ROWS,
                                .inputs = INPUTS,
                                .outputs = classes ? 5 : CHANNELS,
                                .classes = classes,
                                .floor = NAN,
                                .read = made_read},
                       .huge = -1,
                       .bad = -1};
}

/* ---- a run ---- */

struct setup {
  const char *precision;
  int classes;
  int64_t batch;
  struct mn_sgd_config sgd;
};

struct run {
  const struct setup *setup;
  struct mn_context *context;
  struct made data;
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
  double losses[4000], norms[4000]; /* as told, by step */
  int64_t told, stop_at;            /* tell asks to stop after this step; 0: never */
};

static mn_status try_to_open(struct run *r, const char *device, const struct setup *setup,
                             enum mn_place place, const struct made *data, const struct run *from) {
  struct mn_model_config config = {.inputs = INPUTS,
                                   .depth = 2,
                                   .hidden = {16, CHANNELS},
                                   .groups = 4,
                                   .head = setup->classes ? 5 : 0,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .loss = setup->classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE,
                                   .plan = MN_PLAN_BLOCK};
  struct mn_trainer_config training = {
      .schedule = {.kind = MN_SCHEDULE_COSINE, .rate = 0.1, .horizon = 4000, .warmup = 10},
      .batch = setup->batch,
      .seed = 9,
      .place = place};
  *r = (struct run){.setup = setup, .data = *data, .context = open_or_skip(device, setup->precision)};
  MUST(mn_model_open(&r->model, r->context, &config));
  MUST(mn_optimizer_open(&r->optimizer, r->model, &setup->sgd));
  MUST(mn_model_initialise(r->model, 9));
  for (int i = 0; from && i < r->model->count; i++) {
    const struct mn_tensor *saved = from->model->parameters[i];
    int64_t count = mn_tensor_count(saved);
    double *values = zeros(count);
    MUST(mn_tensor_read(from->context, saved, values));
    MUST(mn_tensor_write(r->context, r->model->parameters[i], values));
    MUST(mn_context_read(from->context, values, saved->momentum, count));
    MUST(mn_context_write(r->context, r->model->parameters[i]->momentum, values, count));
    free(values);
  }
  return mn_trainer_open(&r->trainer, r->model, r->optimizer, &r->data.base, &training,
                         from ? &from->trainer->progress : NULL);
}

static void open_run(struct run *r, const char *device, const struct setup *setup, enum mn_place place,
                     const struct run *from) {
  struct made data = make(setup->classes);
  MUST(try_to_open(r, device, setup, place, &data, from));
}

static void close_run(struct run *r) {
  mn_trainer_close(r->trainer);
  mn_optimizer_close(r->optimizer);
  mn_model_close(r->model);
  mn_context_close(r->context);
}

static int tell(void *to, const struct mn_trainer *t) {
  struct run *r = to;
  int64_t step = t->progress.step;
  assert_int_equal(t->progress.samples, step * r->setup->batch * r->setup->sgd.accumulate);
  assert_int_equal(t->progress.epoch, t->progress.samples / ROWS);
  assert_int_equal(t->progress.position, t->progress.samples % ROWS);
  assert_true(t->rate == mn_schedule_rate(&t->schedule, step - 1));
  assert_true(isnan(t->norm) == (r->setup->sgd.clip == 0));
  if (r->told) assert_int_equal(step, r->told + 1);
  r->told = step;
  r->losses[step] = t->loss;
  r->norms[step] = t->norm;
  return step == r->stop_at;
}

static void train(struct run *r, int64_t until) {
  MUST(mn_trainer_run(r->trainer, until, tell, r));
  assert_int_equal(r->trainer->progress.step, until);
}

static void assert_same_values(const struct run *a, const struct run *b, const void *of_a, const void *of_b,
                               const struct mn_tensor *t) {
  int64_t count = mn_tensor_count(t);
  double *x = zeros(count), *y = zeros(count);
  MUST(mn_context_read(a->context, x, of_a, count));
  MUST(mn_context_read(b->context, y, of_b, count));
  if (memcmp(x, y, (size_t)count * sizeof *x) != 0) fail_msg("%s differs", t->name);
  free(x), free(y);
}

static void assert_same(const struct run *a, const struct run *b) {
  for (int i = 0; i < a->model->count; i++) {
    const struct mn_tensor *t = a->model->parameters[i], *u = b->model->parameters[i];
    assert_same_values(a, b, t->value.real, u->value.real, t);
    assert_same_values(a, b, t->momentum, u->momentum, t);
  }
}

static const struct setup setups[] = {
    {"fp32", 0, 64, {.momentum = 0.9, .accumulate = 1}},
    {"bf16", 0, 64, {.momentum = 0.9, .accumulate = 1}},
    {"fp64", 1, 100, {.momentum = 0.9, .nesterov = 1, .accumulate = 1}},
    {"fp32", 1, 64, {.momentum = 0.9, .clip = 0.5, .accumulate = 1}},
    {"bf16", 1, 33, {.momentum = 0.9, .clip = 0.5, .accumulate = 3}},
};
static const enum mn_place places[] = {MN_PLACE_DEVICE, MN_PLACE_HOST, MN_PLACE_FILE};

/* ---- the tests ---- */

/* One run at one go from memory; others step by step, in strides, from other places, resumed in another. */
static void how_steps_are_given_does_not_show(void **state) {
  for (size_t s = 0; s < COUNT(setups); s++) {
    struct run whole, other, resumed;
    open_run(&whole, *state, &setups[s], MN_PLACE_DEVICE, NULL);
    train(&whole, 150);
    for (size_t p = 0; p < COUNT(places); p++) {
      open_run(&other, *state, &setups[s], places[p], NULL);
      for (int64_t step = 0, stride = p == 0 ? 1 : 3; step < 90; stride = stride % 40 + 7) {
        step = step + stride < 90 ? step + stride : 90;
        train(&other, step);
      }
      open_run(&resumed, *state, &setups[s], places[(p + 1) % COUNT(places)], &other);
      train(&resumed, 150);
      assert_same(&whole, &resumed);
      for (int64_t i = 1; i <= 150; i++) {
        const struct run *told = i <= 90 ? &other : &resumed;
        assert_true(told->losses[i] == whole.losses[i]);
        if (setups[s].sgd.clip > 0) assert_true(told->norms[i] > 0 && told->norms[i] == whole.norms[i]);
      }
      close_run(&resumed);
      close_run(&other);
    }
    close_run(&whole);
  }
}

/* What a step leaves is what its batch gives: against a pass over those rows, taken by hand. */
static void a_step_is_that_of_its_rows(void **state) {
  struct run r;
  open_run(&r, *state, &setups[0], MN_PLACE_AUTO, NULL);
  struct mn_order *order;
  int64_t extents[MN_ORDER_WINDOW], count, samples[MN_ORDER_WINDOW_ROWS], total, batch = setups[0].batch;
  MUST(mn_order_open(&order, ROWS, 9));
  mn_order_window(order, 0, 0, extents, &count, samples, &total);
  float *x = malloc((size_t)batch * INPUTS * sizeof *x), *y = malloc((size_t)batch * CHANNELS * sizeof *y);
  assert_true(x && y);
  for (int64_t i = 0; i < batch; i++) {
    int64_t row = extents[samples[i] / MN_ORDER_EXTENT] * MN_ORDER_EXTENT + samples[i] % MN_ORDER_EXTENT;
    MUST(made_read(&r.data.base, row, 1, 4, x + i * INPUTS, y + i * CHANNELS));
  }
  struct mn_pass *pass;
  double loss;
  MUST(mn_pass_open(&pass, r.model, MN_PASS_EVALUATE, batch, 1, 0));
  MUST(mn_pass_load(pass, x, y));
  MUST(mn_tape_forward(pass->tape));
  MUST(mn_tape_results(pass->tape, &loss, NULL));
  mn_pass_close(pass);
  MUST(mn_trainer_step(r.trainer));
  assert_true(fabs(r.trainer->loss - loss) <= 1e-6 * loss);
  assert_int_equal(r.trainer->progress.step, 1);
  assert_true(r.trainer->rate == 0.1 / 10);
  free(x), free(y);
  mn_order_close(order);
  close_run(&r);
}

/* Whoever is told may ask for the end: it comes soon, after whole steps, all of them told. */
static void a_run_ends_when_it_is_asked_to(void **state) {
  for (size_t s = 0; s < COUNT(setups); s++) {
    struct run r, whole;
    open_run(&r, *state, &setups[s], MN_PLACE_AUTO, NULL);
    r.stop_at = 40;
    MUST(mn_trainer_run(r.trainer, 3000, tell, &r));
    int64_t end = r.trainer->progress.step;
    assert_in_range(end, 40, 40 + 3 * 16);
    assert_int_equal(r.told, end);
    open_run(&whole, *state, &setups[s], MN_PLACE_AUTO, NULL);
    train(&whole, end);
    assert_same(&whole, &r);
    MUST(mn_trainer_run(r.trainer, end, tell, &r)); /* nothing to do */
    assert_int_equal(r.told, end);
    train(&r, end + 5); /* and it goes on */
    close_run(&whole);
    close_run(&r);
  }
}

/* The step, counted from 1, whose batches hold sample `position`. */
static int64_t step_of(const struct setup *s, int64_t position) {
  return position / (s->batch * s->sgd.accumulate) + 1;
}

/* Position of `row` in the first epoch. */
static int64_t position_of(int64_t row) {
  int64_t extents[MN_ORDER_WINDOW], count, samples[MN_ORDER_WINDOW_ROWS], total, at = 0, found = -1;
  struct mn_order *order;
  MUST(mn_order_open(&order, ROWS, 9));
  for (int64_t w = 0; w < mn_order_windows(order); w++) {
    mn_order_window(order, 0, w, extents, &count, samples, &total);
    for (int64_t i = 0; i < total; i++, at++)
      if (extents[samples[i] / MN_ORDER_EXTENT] * MN_ORDER_EXTENT + samples[i] % MN_ORDER_EXTENT == row)
        found = at;
  }
  mn_order_close(order);
  assert_true(found >= 0);
  return found;
}

/* A row that makes a value infinite, which steps given ahead go past: the step is named, those before it are
 * told, and parameters and momentum are theirs. */
static void divergence_is_named_exactly(void **state) {
  for (size_t s = 0; s < COUNT(setups); s++)
    for (int64_t row = 17; row < ROWS; row += 1111) {
      struct run r, before;
      struct made data = make(setups[s].classes);
      char words[64];
      data.huge = row;
      int64_t step = step_of(&setups[s], position_of(row));
      MUST(try_to_open(&r, *state, &setups[s], MN_PLACE_AUTO, &data, NULL));
      for (int again = 0; again < 2; again++) {
        mn_fail(MN_OK, "another");
        assert_int_equal(mn_trainer_run(r.trainer, 3000, tell, &r), MN_FAILED);
        snprintf(words, sizeof words, "training diverged at step %ld: ", (long)step);
        if (!strstr(mn_message(), words)) fail_msg("%s, not %s", mn_message(), words);
        assert_non_null(strstr(mn_message(), "the output of blocks.0, row"));
      }
      assert_int_equal(r.told, step - 1);
      assert_int_equal(r.trainer->progress.step, step - 1);
      open_run(&before, *state, &setups[s], MN_PLACE_AUTO, NULL);
      train(&before, step - 1);
      assert_same(&before, &r);
      close_run(&before);
      close_run(&r);
    }
}

/* A row that cannot be read ends the run after the steps that do not need its window. */
static void rows_that_fail_come_after_the_steps_before(void **state) {
  struct run r;
  struct made data = make(0);
  data.bad = 70;
  int64_t window =
      position_of(70) / MN_ORDER_WINDOW_ROWS; /* 0 or 1: windows have 4096 rows here, or the rest */
  MUST(try_to_open(&r, *state, &setups[0], MN_PLACE_FILE, &data, NULL));
  for (int again = 0; again < 2; again++) {
    assert_int_equal(mn_trainer_run(r.trainer, 3000, tell, &r), MN_BAD_DATA);
    assert_string_equal(mn_message(), "made up: row 70 is bad");
  }
  if (window == 0) assert_int_equal(r.trainer->progress.step, 0);
  if (window == 1) assert_true(r.told > 0 && r.trainer->progress.step == r.told);
  close_run(&r);
  struct run refused;
  assert_int_equal(try_to_open(&refused, *state, &setups[0], MN_PLACE_DEVICE, &data, NULL), MN_BAD_DATA);
  assert_null(refused.trainer);
  close_run(&refused);
}

/* The times are those of what was done. */
static void times_add_up(void **state) {
  struct run r;
  open_run(&r, *state, &setups[0], MN_PLACE_AUTO, NULL);
  assert_true(isnan(mn_trainer_speed(r.trainer).samples));
  train(&r, 100);
  const struct mn_trainer_times *times = &r.trainer->times;
  struct mn_trainer_speed speed = mn_trainer_speed(r.trainer);
  assert_int_equal(times->steps, 100);
  assert_true(times->running > 0 && times->waiting >= 0 && times->waiting <= times->running);
  assert_true(times->reading == 0);
  assert_true(fabs(speed.samples - 6400 / times->running) <= 1e-9 * speed.samples);
  /* blocks.0 has no dx: 4·16·16, and 6·16·32. */
  assert_true(fabs(speed.flops - speed.samples * (4 * 16 * 16 + 6 * 16 * 32)) <= 1e-9 * speed.flops);
  close_run(&r);
}

int main(void) {
#define EACH(test) ON("cpu", test), ON("cuda", test)
  const struct CMUnitTest tests[] = {
      EACH(how_steps_are_given_does_not_show),
      EACH(a_step_is_that_of_its_rows),
      EACH(a_run_ends_when_it_is_asked_to),
      EACH(divergence_is_named_exactly),
      EACH(rows_that_fail_come_after_the_steps_before),
      EACH(times_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
