/* The log of a run: what resuming keeps of it, and that a log that cannot be read is left as it is. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/skip.h"
#include "train/command/log.h"
#include "train/optimizer.h"
#include "train/speed.h"

static char folder[] = "/tmp/minnow-log-XXXXXX", path[64];

/* In place of the C library's getline and what its header turns that into: `refusing` lets it find no memory.
 */
static int refusing;
ssize_t __getdelim(char **restrict text, size_t *restrict room, int end, FILE *restrict file) {
  if (!refusing) return getdelim(text, room, end, file);
  errno = ENOMEM;
  return -1;
}
ssize_t getline(char **restrict text, size_t *restrict room, FILE *restrict file) {
  return __getdelim(text, room, '\n', file);
}

static const struct mn_text config[] = {{"data", "d.h5"}, {"seed", "7"}};

static int set_up(void **state) {
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/run.jsonl", folder);
  return 0;
}

static int tear_down(void **state) {
  return unlink(path) == 0 && rmdir(folder) == 0 ? 0 : -1;
}

/* resumed −1: a new run, else one that goes on from a checkpoint of that step. */
static mn_status open_log(struct mn_log *log, int64_t resumed) {
  static struct mn_checkpoint from = {.option_count = 2};
  static struct mn_device device = {.name = "CPU"};
  static struct mn_model model;
  static struct mn_session session = {.device = &device, .model = &model, .logged = 2};
  session.from = resumed < 0 ? NULL : &from;
  from.progress.step = resumed;
  memcpy(from.options, config, sizeof config);
  memcpy(session.config, config, sizeof config);
  return mn_log_open(log, path, &session);
}

/* A trainer that has come to this step, of a model without layers. */
static struct mn_trainer at_step(int64_t step) {
  static struct mn_device device = {.bytes = 4096};
  static struct mn_model model = {.device = &device};
  return (struct mn_trainer){.model = &model,
                             .progress = {.step = step, .samples = 10 * step},
                             .schedule.horizon = 6,
                             .loss = 1 / (double)step,
                             .rate = 0.05,
                             .norm = NAN,
                             .finished = mn_seconds()};
}

/* A log of steps first … last, an evaluation after the last, and the end. */
static void write_log(int64_t resumed, int64_t first, int64_t last) {
  struct mn_log log;
  assert_int_equal(open_log(&log, resumed), MN_OK);
  for (int64_t i = first; i <= last; i++) {
    const struct mn_trainer done = at_step(i);
    mn_log_step(&log, &done);
  }
  mn_log_eval(&log, last, 0, NAN, 0.5, NAN, NAN);
  const struct mn_trainer ended = at_step(last);
  mn_log_end(&log, &ended, "horizon");
  assert_int_equal(log.error, 0);
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
}

static void append(const char *text) {
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

/* The file without what depends on the clock, as one string. */
static char *read_log(void) {
  char *line = NULL, *text = NULL;
  size_t room = 0, size;
  FILE *file = fopen(path, "r"), *out = open_memstream(&text, &size);
  assert_true(file && out);
  while (getline(&line, &room, file) > 0) {
    json_t *object = json_loads(line, 0, NULL);
    assert_true(json_is_object(object));
    if (!json_object_get(object, "config")) assert_int_equal(json_object_del(object, "time"), 0);
    assert_int_equal(json_dumpf(object, out, 0), 0);
    fputc('\n', out);
    json_decref(object);
  }
  free(line);
  fclose(file);
  fclose(out);
  return text;
}

/* What an event's last line says under `time`; NaN: nothing. */
static double clocked(const char *event, const char *name) {
  char *line = NULL;
  size_t room = 0;
  double found = NAN;
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (getline(&line, &room, file) > 0) {
    json_t *object = json_loads(line, 0, NULL),
           *value = json_object_get(json_object_get(object, "time"), name);
    if (strcmp(json_string_value(json_object_get(object, "event")), event) == 0)
      found = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(object);
  }
  free(line);
  fclose(file);
  return found;
}

/* 8 samples in the second before a step, and a run of four steps in two seconds. */
static void rates_and_memory(void **state) {
  struct mn_log log;
  struct mn_device *device;
  struct mn_model *model;
  struct mn_optimizer optimizer = {.config.accumulate = 1};
  const struct mn_model_config sizes = {
      .inputs = 2, .depth = 1, .hidden = {4}, .groups = 2, .eps = 1e-5, .plan = MN_PLAN_BLOCK};
  assert_int_equal(mn_device_open(&device, "cpu", "fp64", 0), MN_OK);
  assert_int_equal(mn_model_open(&model, device, &sizes), MN_OK);
  struct mn_trainer t = {.model = model, .norm = NAN, .progress = {.step = 1, .samples = 2}};
  assert_int_equal(open_log(&log, -1), MN_OK);
  t.finished = log.start + 1;
  mn_log_step(&log, &t);
  assert_true(clocked("step", "seconds") == 1 && isnan(clocked("step", "flops_per_second")));
  t.progress.step = 2, t.progress.samples = 10, t.finished += 1;
  mn_log_step(&log, &t);
  assert_float_equal(clocked("step", "samples_per_second"), 8, 1e-9);
  assert_float_equal(clocked("step", "flops_per_second"), 8 * mn_model_step_flops(model), 1e-6);
  mn_log_end(&log, &t, "horizon");
  assert_true(isnan(clocked("end", "flops_per_second"))); /* no step was timed */
  t.batch = 5, t.optimizer = &optimizer;
  t.times.steps = 4, t.times.running = 2, t.times.waiting = t.times.reading = 0.5;
  mn_log_end(&log, &t, "horizon");
  assert_float_equal(clocked("end", "samples_per_second"), 10, 1e-9);
  assert_float_equal(clocked("end", "flops_per_second"), 10 * mn_model_step_flops(model), 1e-6);
  assert_float_equal(clocked("end", "waiting"), 0.25, 1e-9);
  assert_true(device->bytes > 0 && clocked("end", "device_bytes") == (double)device->bytes);
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
  assert_int_equal(unlink(path), 0);
  mn_model_close(model);
  mn_device_close(device);
}

static void a_resumed_log_is_that_of_one_run(void **state) {
  write_log(-1, 1, 6);
  char *whole = read_log();
  assert_non_null(strstr(whole, "\"rate\": 0.05"));
  assert_non_null(strstr(whole, "\"test_loss\": null"));
  const char *end = strstr(whole, "{\"event\": \"end\", \"step\": 6, \"horizon\": 6, \"loss\": 0.16");
  assert_true(end && strchr(end, '\n')[1] == 0);
  /* From step 4, after a crash in step 7 that left half a line; and from no line at all. */
  append("{\"event\":\"step\",\"step\":7,\"epo");
  write_log(4, 5, 6);
  char *again = read_log();
  assert_string_equal(again, whole);
  free(again);
  assert_int_equal(truncate(path, 0), 0);
  write_log(0, 1, 6);
  again = read_log();
  assert_string_equal(again, whole);
  free(again);
  /* From the last step, with nothing left to do. */
  struct mn_log log;
  assert_int_equal(open_log(&log, 6), MN_OK);
  const struct mn_trainer ended = at_step(6);
  mn_log_end(&log, &ended, "horizon");
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
  again = read_log();
  assert_string_equal(again, whole);
  free(again);
  free(whole);
}

/* Puts `first` in place of the first letter of the log's second line. */
static void begin_second_line(char first) {
  char line[4096];
  FILE *file = fopen(path, "r+");
  assert_true(file && fgets(line, sizeof line, file) && fseek(file, 0, SEEK_CUR) == 0);
  assert_true(fputc(first, file) == first && fclose(file) == 0);
}

static void what_is_no_log_stays(void **state) {
  char *whole = read_log();
  struct mn_log log;
  assert_int_equal(open_log(&log, -1), MN_NO_CREATE);
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
  /* A whole line that is no JSON is in the middle of the log: cut off there, it would lose steps. */
  begin_second_line('x');
  assert_int_equal(open_log(&log, 6), MN_NO_CREATE);
  assert_non_null(strstr(mn_message(), "is no log of minnow train"));
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
  begin_second_line('{');
  refusing = 1;
  assert_int_equal(open_log(&log, 4), MN_NO_MEMORY);
  assert_int_equal(mn_log_close(&log, MN_NO_MEMORY), MN_NO_MEMORY);
  refusing = 0;
  char *again = read_log();
  assert_string_equal(again, whole);
  free(again);
  free(whole);
}

static void what_is_of_another_program_stays(void **state) {
  static const char line[] = "{\"event\":\"step\",\"step\":1}\n";
  struct mn_log log;
  char text[64] = "", kept[] = "/tmp/minnow-kept-XXXXXX";
  const int fd = mkstemp(kept);
  assert_true(fd >= 0 && close(fd) == 0 && rename(path, kept) == 0);
  append(line);
  assert_int_equal(open_log(&log, 4), MN_NO_CREATE);
  assert_non_null(strstr(mn_message(), "is no log of minnow train"));
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
  FILE *file = fopen(path, "r");
  assert_true(file && fread(text, 1, sizeof text - 1, file) == strlen(line) && fclose(file) == 0);
  assert_string_equal(text, line);
  assert_int_equal(rename(kept, path), 0);
}

/* Saves go on between two lines of a log, so a run may have been stopped anywhere behind the last of them, by
 * an end that has its line or by a kill. It goes on to the log of a run that never stopped. */
static void a_log_that_is_behind_is_gone_on_in(void **state) {
  enum { LAST = 6, EACH = 3 }; /* steps, and steps a line */
  char *whole = NULL;
  for (int stops = 0; stops < 1 << LAST; stops++) /* a bit a step after which the process ends */
    for (int killed = 0; killed < 2; killed++) {
      struct mn_log log;
      assert_true(unlink(path) == 0 || errno == ENOENT);
      assert_int_equal(open_log(&log, -1), MN_OK);
      for (int step = 1; step <= LAST; step++) {
        const struct mn_trainer done = at_step(step);
        if (step % EACH == 0) mn_log_step(&log, &done);
        if (!(stops >> (step - 1) & 1) && step < LAST) continue;
        if (!killed || step == LAST) mn_log_end(&log, &done, step < LAST ? "signal" : "horizon");
        assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
        if (step == LAST) break;
        assert_int_equal(open_log(&log, step), MN_OK);
        assert_int_equal(log.step, step / EACH * EACH);
        mn_log_resume(&log, &(struct mn_session){.changes = 0});
      }
      char *text = read_log();
      if (whole) assert_string_equal(text, whole);
      if (whole) free(text);
      if (!whole) whole = text;
    }
  free(whole);
  assert_int_equal(unlink(path), 0);
  write_log(-1, 1, LAST);
}

/* Limits how long a file may be, as a full disk does: `more` bytes than the log has; without a limit for −1.
 */
static void limit(const struct mn_log *log, int more) {
  struct rlimit size;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &size), 0);
  size.rlim_cur = more < 0 ? size.rlim_max : (rlim_t)log->end + (rlim_t)more;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &size), 0);
}

/* The fourth of six steps meets a file that may not grow by more than three bytes: the log ends before its
 * line. A run that is resumed from the third step completes the log. */
static void a_line_that_does_not_fit_is_not_there(void **state) {
  char *whole = read_log();
  struct mn_log log;
  assert_int_equal(unlink(path), 0);
  assert_int_equal(open_log(&log, -1), MN_OK);
  signal(SIGXFSZ, SIG_IGN);
  for (int64_t i = 1; i <= 6; i++) {
    const struct mn_trainer done = at_step(i);
    if (i == 4) limit(&log, 3);
    mn_log_step(&log, &done);
    assert_int_equal(log.error, i < 4 ? 0 : EFBIG);
    if (i == 5) limit(&log, -1);
  }
  mn_log_eval(&log, 6, 0, NAN, 0.5, NAN, NAN);
  const struct mn_trainer ended = at_step(6);
  mn_log_end(&log, &ended, "signal");
  assert_int_equal(mn_log_close(&log, MN_OK), MN_IO);
  assert_non_null(strstr(mn_message(), "File too large"));
  free(read_log()); /* part of a line would fail here */
  write_log(3, 4, 6);
  char *again = read_log();
  assert_string_equal(again, whole);
  free(again);
  free(whole);
}

/* A run that was killed after its last step was saved, and goes on with nothing to do. */
static void an_end_without_a_step_has_the_last_loss(void **state) {
  char *whole = read_log();
  struct mn_log log;
  assert_int_equal(unlink(path), 0);
  write_log(-1, 1, 6);
  char *end = NULL;
  size_t room = 0;
  FILE *file = fopen(path, "r");
  off_t before = 0;
  assert_non_null(file);
  while (getline(&end, &room, file) > 0 && !strstr(end, "\"end\"")) before = ftello(file);
  free(end);
  fclose(file);
  assert_int_equal(truncate(path, before), 0);
  assert_int_equal(open_log(&log, 6), MN_OK);
  struct mn_trainer t = at_step(6);
  t.loss = NAN;
  mn_log_end(&log, &t, "horizon");
  assert_int_equal(mn_log_close(&log, MN_OK), MN_OK);
  char *again = read_log();
  assert_string_equal(again, whole);
  free(again);
  free(whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rates_and_memory),
      cmocka_unit_test(a_resumed_log_is_that_of_one_run),
      cmocka_unit_test(what_is_no_log_stays),
      cmocka_unit_test(what_is_of_another_program_stays),
      cmocka_unit_test(a_log_that_is_behind_is_gone_on_in),
      cmocka_unit_test(a_line_that_does_not_fit_is_not_there),
      cmocka_unit_test(an_end_without_a_step_has_the_last_loss),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
