/* Progress where stderr is no terminal, by a clock that the test moves: a plain line each ten seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/clock.h"
#include "tests/skip.h"
#include "train/command/announce.h"

/* In place of the system's clock. */
static double now;
int clock_gettime(clockid_t clock, struct timespec *time) {
  *time = (struct timespec){(time_t)now, (long)((now - (double)(time_t)now) * 1e9)};
  return 0;
}

/* What is said on stderr by steps 1 … `last` of 1000, each `each` seconds after the one before. */
static const char *said(int64_t last, double each, int quiet) {
  static char text[4096];
  static struct mn_device device;
  static struct mn_model model = {.device = &device};
  static struct mn_optimizer optimizer;
  FILE *caught = tmpfile();
  int terminal = dup(STDERR_FILENO);
  assert_true(caught && terminal >= 0 && dup2(fileno(caught), STDERR_FILENO) >= 0);
  now = 500;
  mn_progress_open(0, quiet);
  for (int64_t step = 1; step <= last; step++) {
    now += each;
    const struct mn_trainer trainer = {.model = &model,
                                       .optimizer = &optimizer,
                                       .progress.step = step,
                                       .schedule.horizon = 1000,
                                       .loss = 0.25};
    mn_progress_step(&trainer);
  }
  mn_progress_clear();
  assert_true(dup2(terminal, STDERR_FILENO) >= 0 && close(terminal) == 0);
  rewind(caught);
  text[fread(text, 1, sizeof text - 1, caught)] = 0;
  fclose(caught);
  return text;
}

static void a_line_each_ten_seconds(void **state) {
  /* 35 seconds of half a second a step: three lines, at steps 20, 40 and 60, of which 0:08:00 is left. */
  const char *text = said(70, 0.5, 0), *at = text;
  for (int step = 20; step <= 60; step += 20) {
    char start[64];
    snprintf(start, sizeof start, "step %d of 1000  loss 0.2500  0:0%d:%02d left  ", step,
             (1000 - step) / 2 / 60, (1000 - step) / 2 % 60);
    if (strncmp(at, start, strlen(start)) != 0) fail_msg("'%s' instead of '%s'", at, start);
    at = strchr(at, '\n');
    assert_non_null(at++);
  }
  assert_string_equal(at, "");
  assert_true(!strchr(text, '\r') && !strchr(text, '\033') && !strchr(text, '['));
  /* Steps that take longer have a line each; less than ten seconds have none, nor has a quiet run. */
  text = said(2, 12, 0);
  assert_true(strncmp(text, "step 1 of", 9) == 0 && strstr(text, "\nstep 2 of"));
  assert_string_equal(said(19, 0.5, 0), "");
  assert_string_equal(said(70, 0.5, 1), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_line_each_ten_seconds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
