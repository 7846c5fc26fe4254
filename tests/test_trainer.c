/* The trainer gives steps ahead, several at a time, from rows that wait in one place or another: none of that
 * may show in what training leads to, nor in what is told of it. */
#include "tests/pass_load.h"
#include "tests/trainer_run.h"
#include "train/speed.h"

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
        if (setups[s].optimizer.clip > 0) assert_true(told->norms[i] > 0 && told->norms[i] == whole.norms[i]);
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
  static int64_t rows[ROWS];
  const int64_t batch = setups[0].batch;
  order_rows(rows);
  float *x = malloc((size_t)batch * INPUTS * sizeof *x), *y = malloc((size_t)batch * CHANNELS * sizeof *y);
  assert_true(x && y);
  for (int64_t i = 0; i < batch; i++) {
    MUST(made_read(&r.data.base, rows[i], 1, 4, x + i * INPUTS, y + i * CHANNELS));
  }
  struct mn_pass *pass;
  double loss;
  MUST(mn_pass_open(&pass, r.model, MN_PASS_EVALUATE, batch, 1, 0));
  MUST(pass_load(pass, x, y));
  MUST(mn_tape_forward(pass->tape));
  MUST(mn_tape_results(pass->tape, &loss, NULL));
  mn_pass_close(pass);
  MUST(mn_trainer_run(r.trainer, r.trainer->progress.step + 1, NULL, NULL));
  assert_true(fabs(r.trainer->loss - loss) <= 1e-6 * loss);
  assert_int_equal(r.trainer->progress.step, 1);
  assert_true(r.trainer->rate == 0.1 / 10);
  free(x), free(y);
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

/* The times are those of what was done. */
static void times_add_up(void **state) {
  struct run r;
  open_run(&r, *state, &setups[0], MN_PLACE_AUTO, NULL);
  assert_true(isnan(mn_trainer_speed(r.trainer).samples));
  train(&r, 100);
  struct mn_trainer_speed speed = mn_trainer_speed(r.trainer);
  assert_int_equal(r.trainer->times.steps, 100);
  assert_true(r.trainer->times.running > 0 && r.trainer->times.waiting >= 0 &&
              r.trainer->times.waiting <= r.trainer->times.running);
  assert_true(r.trainer->times.reading == 0);
  assert_true(fabs(speed.samples - 6400 / r.trainer->times.running) <= 1e-9 * speed.samples);
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
      EACH(times_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
