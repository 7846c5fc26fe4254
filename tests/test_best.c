/* train --best and --patience: which epoch's checkpoint is kept as the best, and at which epoch a run ends,
 * each against the evaluations in the log of a run without them; that a resumed run does the same to the
 * byte; and what is refused. */
#include <jansson.h>

#include "tests/command_run.h"
#include "tests/files_same.h"
#include "train/checkpoint/checkpoint.h"

enum { EPOCHS = 12, ROWS = 60, TO_TEST = 30, STEPS_AN_EPOCH = 10 };

/* Rows whose labels are nearly noise, so that the accuracy of the test rows goes up and down. */
static void write_rows(const char *name, uint32_t word) {
  static float x[ROWS * I];
  int labels[ROWS];
  hsize_t sizes[2] = {ROWS, I};
  for (int i = 0; i < ROWS * I; i++) x[i] = (float)((word = word * 1664525 + 1013904223) >> 8) / 8388608 - 1;
  for (int i = 0; i < ROWS; i++) labels[i] = (int)((word = word * 1664525 + 1013904223) >> 30) % 3;
  hid_t file = create_file(name);
  put(file, "train/x", H5T_NATIVE_FLOAT, 2, sizes, x);
  put(file, "train/y", H5T_NATIVE_INT, 1, sizes, labels);
  sizes[0] = TO_TEST;
  put(file, "test/x", H5T_NATIVE_FLOAT, 2, sizes, x + 7);
  put(file, "test/y", H5T_NATIVE_INT, 1, sizes, labels + 3);
  H5Fclose(file);
}

#define CLASSES                                                                                              \
  "train --quiet --device cpu --data rows.h5 --hidden 8 --groups 2 --batch 6 --epochs 12 --optimizer sgd "   \
  "--lr 0.2 "
#define NUMBERS                                                                                              \
  "train --quiet --device cpu --synthetic 60 --in 4 --hidden 8 --groups 2 --batch 6 --epochs 12 "            \
  "--optimizer sgd --lr 0.3 "

static int falls; /* less of a --metric that a log has is better */

/* The metric of each epoch, of a log; returns how many there are. *ended: by what the run did. */
static int read_metrics(const char *name, double metric[EPOCHS], char ended[32]) {
  static char line[1 << 14];
  FILE *file = fopen(name, "r");
  int count = 0;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    json_t *object = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    const json_t *accuracy = json_object_get(object, "test_accuracy"),
                 *named = json_object_get(object, "test_metric");
    if (strcmp(event, "eval") == 0)
      metric[count++] = named      ? (falls ? -1 : 1) * json_number_value(named)
                        : accuracy ? json_number_value(accuracy)
                                   : -json_number_value(json_object_get(object, "test_loss"));
    if (strcmp(event, "end") == 0)
      snprintf(ended, 32, "%s", json_string_value(json_object_get(object, "ended")));
    json_decref(object);
  }
  fclose(file);
  return count;
}

/* The first epoch, from 1, of the best of so many. */
static int best_of(const double *metric, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (metric[i] > metric[best]) best = i;
  return best + 1;
}

static struct mn_checkpoint *loaded(const char *name) {
  struct mn_checkpoint *c;
  if (mn_checkpoint_load(&c, name) != MN_OK) fail_msg("%s: %s", name, mn_message());
  return c;
}

static const struct result *run_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const struct result *run_line(const char *format, ...) {
  static char line[1024];
  va_list arguments;
  va_start(arguments, format);
  assert_true(vsnprintf(line, sizeof line, format, arguments) < (int)sizeof line);
  va_end(arguments);
  const struct result *r = run(line);
  if (r->status != 0) fail_msg("'%s' exits with %d: %s", line, r->status, r->err);
  return r;
}

/* A file's bytes, in one number. */
static uint64_t seen_of(const char *name) {
  struct stat status;
  assert_int_equal(stat(name, &status), 0);
  seen = 0;
  see(name, &status, FTW_F, NULL);
  return seen;
}

static void remove_runs(void) {
  forget("b"), forget("s"), forget("copy");
}

/* What a run stopped at the end of the best epoch has saved is what a whole one has kept, byte for byte. */
static void keeps_the_best(const char *options) {
  double metric[EPOCHS];
  char ended[32];
  remove_runs();
  run_line("%s --best --run b --save-every 7", options);
  assert_int_equal(read_metrics("b/log.jsonl", metric, ended), EPOCHS);
  assert_string_equal(ended, "horizon");
  int best = best_of(metric, EPOCHS);
  if (best < 2 || best == EPOCHS) /* the last bits of products differ among processors */
    SKIP("the best epoch is the first or the last: %d", best);
  struct mn_checkpoint *c = loaded("b/best.h5");
  assert_int_equal(c->progress.epoch, best);
  assert_int_equal(c->progress.best_epoch, best);
  assert_true(c->progress.best == metric[best - 1]);
  mn_checkpoint_free(c);
  c = loaded("b/checkpoint.h5");
  assert_int_equal(c->progress.epoch, EPOCHS);
  assert_int_equal(c->progress.best_epoch, best);
  mn_checkpoint_free(c);
  run_line("%s --best --run s --save-every 7 --stop-at %d", options, best * STEPS_AN_EPOCH);
  assert_same("s/checkpoint.h5", "b/best.h5");
  assert_same("s/best.h5", "b/best.h5");
  /* Stopped before the best and in the midst of an epoch; and after it. */
  remove_runs();
  run_line("%s --best --run b", options);
  for (int stop = best * STEPS_AN_EPOCH - 4; stop < EPOCHS * STEPS_AN_EPOCH; stop += 14) {
    forget("s");
    run_line("%s --best --run s --stop-at %d", options, stop);
    run_line("train --quiet --device cpu --run s --resume");
    assert_same("s/checkpoint.h5", "b/checkpoint.h5");
    assert_same("s/best.h5", "b/best.h5");
  }
}

static void the_best_accuracy_is_kept(void **state) {
  keeps_the_best(CLASSES);
}

static void the_least_loss_is_kept(void **state) {
  keeps_the_best(NUMBERS);
}

/* Runs that end anywhere in an epoch, the first too: the best is that of all evaluations, at the end too, and it is kept
 * to the same byte by a run that was stopped and resumed. */
static void the_best_of_a_metric_is_kept(void **state) {
  static const struct {
    const char *options, *name, *key;
    int falls;
  } cases[] = {{CLASSES, "log-loss", "\"log_loss\":", 1},
               {CLASSES, "roc-auc", "\"roc_auc\":", 0},
               {CLASSES, "balanced-accuracy", "\"balanced_accuracy\":", 0},
               {NUMBERS "--test-rows 30 ", "mae", NULL, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double metric[EPOCHS];
    char ended[32];
    falls = cases[i].falls;
    remove_runs();
    run_line("%s --metric %s --best --run b", cases[i].options, cases[i].name);
    assert_int_equal(read_metrics("b/log.jsonl", metric, ended), EPOCHS);
    struct mn_checkpoint *c = loaded("b/best.h5");
    assert_int_equal(c->progress.best_epoch, best_of(metric, EPOCHS));
    assert_true(c->progress.best == metric[c->progress.best_epoch - 1]);
    if (cases[i].key) { /* which eval finds too */
      const char *out = run_well("eval --quiet --device cpu --run b/best.h5 --data rows.h5 --json")->out;
      const double there = strtod(strstr(out, cases[i].key) + strlen(cases[i].key), NULL);
      assert_true(there == (falls ? -1 : 1) * c->progress.best);
    }
    mn_checkpoint_free(c);
  }
  falls = 0;
}

static void each_evaluation_counts(void **state) {
  uint32_t word = 11;
  int late = 0;
  for (int k = 0; k < 16; k++) {
    double metric[EPOCHS];
    char ended[32];
    const int steps = 2 + (int)((word = word * 1664525 + 1013904223) >> 8) % 44,
              seed = (int)(word >> 20) % 50;
    const int stop = 1 + (int)((word = word * 1664525 + 1013904223) >> 8) % (steps - 1);
    const char *options = k % 2 ? "--synthetic 60 --in 4 --test-rows 20" : "--data rows.h5";
    remove_runs();
    run_line("train --quiet --device cpu %s --hidden 8 --groups 2 --batch 6 --steps %d --seed %d --optimizer "
             "sgd --lr 0.1 "
             "--best --run b",
             options, steps, seed);
    const int count = read_metrics("b/log.jsonl", metric, ended), best = best_of(metric, count) - 1;
    assert_int_equal(count, (steps + STEPS_AN_EPOCH - 1) / STEPS_AN_EPOCH);
    struct mn_checkpoint *c = loaded("b/best.h5");
    assert_true(c->progress.best == metric[best]);
    assert_int_equal(c->progress.step, best < count - 1 ? (best + 1) * STEPS_AN_EPOCH : steps);
    late += c->progress.step % STEPS_AN_EPOCH != 0;
    mn_checkpoint_free(c);
    run_line("train --quiet --device cpu %s --hidden 8 --groups 2 --batch 6 --steps %d --seed %d --optimizer "
             "sgd --lr 0.1 "
             "--best --run s --stop-at %d",
             options, steps, seed, stop);
    run_line("train --quiet --device cpu --run s --resume");
    assert_same("s/checkpoint.h5", "b/checkpoint.h5");
    assert_same("s/best.h5", "b/best.h5");
  }
  assert_true(late > 3);
  remove_runs();
  const struct result *r =
      run("train --device cpu --synthetic 60 --in 4 --hidden 8 --batch 6 --steps 7 --best --run b");
  assert_non_null(strstr(r->err, " after step 7, in b/best.h5"));
}

/* eval finds in the best file what the run had found. */
static void the_best_evaluates_as_it_did(void **state) {
  char words[64];
  remove_runs();
  const struct result *r = run(CLASSES "--best --run b");
  assert_succeeds("train", r);
  struct mn_checkpoint *c = loaded("b/best.h5");
  r = run_line("eval --device cpu --data rows.h5 --run b/best.h5");
  snprintf(words, sizeof words, "accuracy: %.6g\n", c->progress.best);
  assert_non_null(strstr(r->out, words));
  mn_checkpoint_free(c);
}

/* The epoch at which a run of that patience ends. */
static int end_of(const double *metric, int patience) {
  for (int epoch = 1; epoch <= EPOCHS; epoch++)
    if (epoch - best_of(metric, epoch) >= patience) return epoch;
  return EPOCHS;
}

/* Copies the part of a log's last line that does not depend on the clock, and with `cut` removes the line. */
static void take_last(char out[256], const char *log, int cut) {
  static char text[TEXT];
  FILE *file = fopen(log, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  text[strlen(text) - 1] = 0;
  char *last = strrchr(text, '\n') + 1;
  assert_non_null(strstr(last, ",\"time\""));
  snprintf(out, 256, "%.*s", (int)(strstr(last, ",\"time\"") - last), last);
  if (cut) assert_int_equal(truncate(log, last - text), 0);
}

static void patience_ends_a_run(const char *options) {
  double metric[EPOCHS], until[EPOCHS];
  char ended[32], words[64];
  int early = 0;
  remove_runs();
  run_line("%s --run b", options);
  assert_int_equal(read_metrics("b/log.jsonl", metric, ended), EPOCHS);
  for (int patience = 1; patience < 5; patience++) {
    int last = end_of(metric, patience);
    remove_runs();
    run_line("%s --patience %d --run b", options, patience);
    assert_int_equal(read_metrics("b/log.jsonl", until, ended), last);
    assert_memory_equal(until, metric, (size_t)last * sizeof *until);
    assert_string_equal(ended, last < EPOCHS ? "patience" : "horizon");
    if (last == EPOCHS) continue;
    early++;
    /* To be resumed there does nothing, and says why. */
    uint64_t before = snapshot();
    const struct result *r = run_line("train --device cpu --run b --resume");
    snprintf(words, sizeof words, "ended by --patience %d after epoch %d", patience, last);
    assert_non_null(strstr(r->err, words));
    assert_non_null(strstr(r->err, "--resume with more patience"));
    assert_true(snapshot() == before);
    /* Killed before the last line, which a resume writes, though no other line is of the last step. */
    char whole[256], again[256];
    forget("s");
    run_line("%s --patience %d --run s --log-every 100000", options, patience);
    take_last(whole, "s/log.jsonl", 1);
    run_line("train --quiet --device cpu --run s --resume");
    take_last(again, "s/log.jsonl", 0);
    assert_string_equal(again, whole);
    forget("s");
    /* The epochs without a better one are counted on in a resumed run. */
    run_line("%s --patience %d --run s --stop-at %d", options, patience, last * STEPS_AN_EPOCH - 3);
    run_line("train --quiet --device cpu --run s --resume");
    assert_same("s/checkpoint.h5", "b/checkpoint.h5");
    /* With more patience it goes on. */
    run_line("train --quiet --device cpu --run b --resume --patience 100");
    assert_int_equal(read_metrics("b/log.jsonl", until, ended), EPOCHS);
    assert_memory_equal(until, metric, sizeof metric);
  }
  assert_true(early > 1); /* else this shows nothing */
  const struct result *r =
      run_line("train %s --patience 1", strstr(options, "--quiet ") + strlen("--quiet "));
  assert_true(strstr(r->err, "was not bettered") && !strstr(r->err, "--resume"));
}

static void patience_with_accuracy(void **state) {
  patience_ends_a_run(CLASSES);
}

static void patience_with_loss(void **state) {
  patience_ends_a_run(NUMBERS);
}

/* The checkpoint is one of before there was a best epoch: patience counts from there. */
static void an_older_checkpoint_is_read(void **state) {
  remove_runs();
  run_line(NUMBERS "--run b --stop-at 55");
  hid_t file = H5Fopen("b/checkpoint.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(H5Adelete(file, "checksums") >= 0);
  assert_true(H5Adelete_by_name(file, "/progress", "best_epoch", H5P_DEFAULT) >= 0);
  H5Fclose(file);
  struct mn_checkpoint *c = loaded("b/checkpoint.h5");
  assert_int_equal(c->progress.epoch, 5);
  assert_int_equal(c->progress.best_epoch, 5);
  mn_checkpoint_free(c);
}

/* On other rows nothing is known to be bettered: patience, which has run out, begins anew. */
static void other_rows_are_given_patience(void **state) {
  remove_runs();
  run_line(CLASSES "--patience 1 --run b");
  struct mn_checkpoint *c = loaded("b/checkpoint.h5");
  const int64_t before = c->progress.epoch;
  mn_checkpoint_free(c);
  assert_true(before < EPOCHS);
  run_line("train --quiet --device cpu --run b --resume --data other.h5");
  c = loaded("b/checkpoint.h5");
  assert_true(c->progress.epoch > before && c->progress.best_epoch > before);
  mn_checkpoint_free(c);
}

/* The best, copied to a folder of its own, goes on there and keeps a best of its own. */
static void a_copy_of_the_best_goes_on(void **state) {
  remove_runs();
  run_line(CLASSES "--best --run b");
  assert_int_equal(mkdir("s", 0777), 0);
  assert_int_equal(rename("b/best.h5", "s/checkpoint.h5"), 0);
  const uint64_t before = seen_of("b/checkpoint.h5") + seen_of("b/log.jsonl");
  run_line("train --quiet --device cpu --run s --resume");
  assert_true(seen_of("b/checkpoint.h5") + seen_of("b/log.jsonl") == before);
  assert_int_equal(access("s/best.h5", F_OK), 0);
}

/* A run that was killed between its first best and its first newest goes on from the best. */
static void the_best_alone_is_resumed(void **state) {
  remove_runs();
  run_line(CLASSES "--best --run b");
  assert_int_equal(rename("b/checkpoint.h5", "whole.h5"), 0);
  const char *again = CLASSES "--best --run b";
  assert_complains(again, run(again), 73, "--run b holds best.h5|--resume|: rm -r b");
  run_line("train --quiet --device cpu --run b --resume");
  assert_same("b/checkpoint.h5", "whole.h5");
}

/* --best that is first named in a resumed run: what was better before was not kept. */
static void the_best_from_now_on(void **state) {
  remove_runs();
  run_line(CLASSES "--run s --stop-at 100");
  run_line("train --quiet --device cpu --run s --resume --best");
  struct mn_checkpoint *c = loaded("s/best.h5");
  assert_true(c->progress.epoch > 100 / STEPS_AN_EPOCH);
  mn_checkpoint_free(c);
}

/* A checkpoint that was taken out of its folder without its best, and killed behind the first best there: it goes
 * on as if that file were not there. */
static void a_worse_best_is_not_the_best(void **state) {
  remove_runs();
  run_line(NUMBERS "--best --run b --stop-at %d", STEPS_AN_EPOCH);
  assert_int_equal(mkdir("s", 0777) | rename("b/best.h5", "s/best.h5"), 0);
  run_line("train --quiet --device cpu --run b --resume --stop-at %d", 9 * STEPS_AN_EPOCH);
  assert_int_equal(unlink("b/best.h5"), 0);
  assert_int_equal(link("b/checkpoint.h5", "s/checkpoint.h5"), 0);
  struct mn_checkpoint *c = loaded("s/best.h5"), *newest = loaded("s/checkpoint.h5");
  assert_true(c->progress.best < newest->progress.best);
  mn_checkpoint_free(c), mn_checkpoint_free(newest);
  for (int i = 0; i < 2; i++) run_line("train --quiet --device cpu --run %s --resume", i ? "s" : "b");
  assert_same("s/checkpoint.h5", "b/checkpoint.h5");
  assert_same("s/best.h5", "b/best.h5");
  /* One that is damaged is told, and replaced. */
  write_text("b/best.h5", "not whole");
  const struct result *r = run("train --quiet --device cpu --run b --resume --epochs 14");
  assert_succeeds("resume", r);
  assert_non_null(strstr(r->err, "warning: b/best.h5 is no HDF5 file"));
  mn_checkpoint_free(loaded("b/best.h5"));
}

static void what_cannot_be_kept_is_refused(void **state) {
  remove_runs();
  assert_int_equal(mkdir("s", 0777) | mkdir("folder", 0777) | mkdir("folder/best.h5", 0777), 0);
  write_text("s/best.h5", "my notes");
  run_line(CLASSES "--run b --best");
  const struct {
    const char *line;
    int status;
    const char *words;
  } cases[] = {
      {CLASSES "--best", 64, "--best needs --run DIR"},
      {CLASSES "--metric r2 --run n", 64, "--metric r2|classes|log-loss"},
      {NUMBERS "--metric f1 --run n", 64, "--metric f1|numbers|rmse"},
      {LABELS "--metric f1 --run n", 64, "--metric f1|--validation 0.1"},
      {LABELS "--best --run n", 64, "--best compares|--validation 0.1"},
      {LABELS "--patience 2", 64, "--patience compares|--validation 0.1"},
      {NUMBERS "--test-rows 0 --best --run n", 64, "--best compares|--test-rows"},
      {CLASSES "--best --run s", 73, "--run s holds best.h5"},
      {CLASSES "--best --run folder", 73, "--run folder holds best.h5"},
      {CLASSES "--best --run b", 73, "--run b holds best.h5|rm -r b"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t before = snapshot();
    assert_complains(cases[i].line, run(cases[i].line), cases[i].status, cases[i].words);
    if (snapshot() != before) fail_msg("'%s' changes a file", cases[i].line);
  }
}

static void a_metric_without_a_value_is_told(void **state) {
  const char *line = "train --quiet --device cpu --data one.h5 --hidden 8 --metric roc-auc --run n";
  assert_complains(line, run(line), 65, "--metric roc-auc|one class");
  forget("n");
}

static int prepare(void **state) {
  if (set_up(state) != 0) return -1;
  write_rows("rows.h5", 1);
  write_rows("other.h5", 2);
  static float x[ROWS * I];
  int labels[ROWS];
  for (int i = 0; i < ROWS; i++) labels[i] = i < ROWS / 2, x[i] = (float)(i % 7);
  hid_t file = create_file("one.h5"); /* whose test part has one class alone */
  put(file, "train/x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, I}, x);
  put(file, "train/y", H5T_NATIVE_INT, 1, (hsize_t[]){ROWS}, labels);
  put(file, "test/x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){TO_TEST, I}, x);
  put(file, "test/y", H5T_NATIVE_INT, 1, (hsize_t[]){TO_TEST}, labels);
  H5Fclose(file);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_accuracy_is_kept),
      cmocka_unit_test(the_least_loss_is_kept),
      cmocka_unit_test(the_best_of_a_metric_is_kept),
      cmocka_unit_test(each_evaluation_counts),
      cmocka_unit_test(the_best_evaluates_as_it_did),
      cmocka_unit_test(patience_with_accuracy),
      cmocka_unit_test(patience_with_loss),
      cmocka_unit_test(an_older_checkpoint_is_read),
      cmocka_unit_test(other_rows_are_given_patience),
      cmocka_unit_test(a_copy_of_the_best_goes_on),
      cmocka_unit_test(the_best_alone_is_resumed),
      cmocka_unit_test(the_best_from_now_on),
      cmocka_unit_test(a_worse_best_is_not_the_best),
      cmocka_unit_test(what_cannot_be_kept_is_refused),
      cmocka_unit_test(a_metric_without_a_value_is_told),
  };
  return cmocka_run_group_tests(tests, prepare, tear_down);
}
