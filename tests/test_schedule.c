/* The learning rate of every step: warm-up, the three schedules, and their ends. */
#include <math.h>
#include <string.h>

#include "tests/skip.h"
#include "train/optimizer.h"

/* Written so that a NaN fails. */
static void assert_near(double a, double b) {
  if (!(fabs(a - b) <= 1e-15)) fail_msg("%.17g is not %.17g", a, b);
}

static void words_name_schedules(void **state) {
  static const char *const words[] = {"constant", "cosine", "step"};
  for (int i = 0; i < 3; i++) assert_string_equal(mn_schedule_name((enum mn_schedule_kind)i), words[i]);
}

static void constant_after_warm_up(void **state) {
  struct mn_schedule s = {.kind = MN_SCHEDULE_CONSTANT, .rate = 0.4, .horizon = 10, .warmup = 4};
  const double expected[] = {0.1, 0.2, 0.3, 0.4, 0.4, 0.4};
  for (int i = 0; i < 6; i++) assert_near(mn_schedule_rate(&s, i), expected[i]);
  s.warmup = 0;
  assert_near(mn_schedule_rate(&s, 0), 0.4);
}

static void cosine_falls_to_nothing_at_the_horizon(void **state) {
  struct mn_schedule s = {.kind = MN_SCHEDULE_COSINE, .rate = 2, .horizon = 12, .warmup = 4};
  assert_near(mn_schedule_rate(&s, 3), 2);
  assert_near(mn_schedule_rate(&s, 4), 2);
  assert_near(mn_schedule_rate(&s, 6), 1 + sqrt(0.5));
  assert_near(mn_schedule_rate(&s, 8), 1);
  assert_near(mn_schedule_rate(&s, 10), 1 - sqrt(0.5));
  for (int i = 5; i < 12; i++) assert_true(mn_schedule_rate(&s, i) < mn_schedule_rate(&s, i - 1));
  assert_true(mn_schedule_rate(&s, 11) > 0);
  assert_near(mn_schedule_rate(&s, 12), 0);
  assert_near(mn_schedule_rate(&s, 20), 0);
}

static void step_drops_after_the_warm_up(void **state) {
  struct mn_schedule s = {
      .kind = MN_SCHEDULE_STEP, .rate = 1, .horizon = 20, .warmup = 2, .every = 3, .factor = 0.5};
  const double expected[] = {0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125};
  for (int i = 0; i < 12; i++) assert_near(mn_schedule_rate(&s, i), expected[i]);
}

static void warm_up_longer_than_the_run(void **state) {
  struct mn_schedule s = {.kind = MN_SCHEDULE_COSINE, .rate = 1, .horizon = 5, .warmup = 10};
  for (int i = 0; i < 5; i++) assert_near(mn_schedule_rate(&s, i), (i + 1) / 10.0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_name_schedules),
      cmocka_unit_test(constant_after_warm_up),
      cmocka_unit_test(cosine_falls_to_nothing_at_the_horizon),
      cmocka_unit_test(step_drops_after_the_warm_up),
      cmocka_unit_test(warm_up_longer_than_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
