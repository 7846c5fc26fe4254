/* train --on-nonfinite: what the command says of steps that it skips, and of an evaluation that is not
 * finite; eval and predict, which have no result then. */
#include "tests/files_same.h"

#include "tests/check.h"

enum { COUNT_ROWS = 96, WIDTH = 8 };

/* Rows of labels, in a part for training and one to test on; this row of each (−1: none) has inputs that no
 * float can hold a product of. */
static void write_rows(const char *name, int train, int test) {
  static float x[COUNT_ROWS * WIDTH];
  int labels[COUNT_ROWS];
  const hsize_t shape[] = {COUNT_ROWS, WIDTH};
  const char *const parts[] = {"train", "test"};
  hid_t file = create_file(name);
  for (int p = 0; p < 2; p++) {
    char path[32];
    const int over = p ? test : train;
    for (int i = 0; i < COUNT_ROWS * WIDTH; i++) x[i] = (float)((i * 37 + i * i % 11) % 23) / 11 - 1;
    for (int i = 0; i < WIDTH && over >= 0; i++) x[over * WIDTH + i] = 3.3e38f;
    for (int i = 0; i < COUNT_ROWS; i++) labels[i] = i % 3;
    H5Gclose(H5Gcreate2(file, parts[p], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    snprintf(path, sizeof path, "%s/x", parts[p]);
    put(file, path, H5T_NATIVE_FLOAT, 2, shape, x);
    snprintf(path, sizeof path, "%s/y", parts[p]);
    put(file, path, H5T_NATIVE_INT, 1, shape, labels);
  }
  assert_true(H5Fclose(file) >= 0);
}

#define MODEL "--device cpu --hidden 16 --groups 2 --batch 16 --epochs 2 --standardize no "
#define OVER "train " MODEL "--optimizer sgd --warmup 0 --data over.h5 "

static int set_up_rows(void **state) {
  if (set_up(state) != 0) return -1;
  write_rows("fine.h5", -1, -1);
  write_rows("over.h5", 40, -1);
  write_rows("test.h5", -1, 70);
  assert_succeeds("train", run("train " MODEL "--quiet --data fine.h5 --run fine-run"));
  return 0;
}

static void assert_has(const char *text, const char *word) {
  if (!strstr(text, word)) fail_msg("'%s', without '%s'", text, word);
}

static int times_in(const char *text, const char *word) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, word)); at++) count++;
  return count;
}

static const char *read_text(const char *name) {
  static char text[TEXT];
  FILE *file = fopen(name, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  assert_int_equal(fclose(file), 0);
  return text;
}

/* 6 steps an epoch, in one of which is the row: each is told of, in the log and in the sums. */
static void skipped_steps_are_told(void **state) {
  const struct result *r = run(OVER "--on-nonfinite skip --json --run told");
  assert_succeeds("train", r);
  assert_has(r->out, "\"skipped\":2,");
  assert_int_equal(times_in(r->err, " was skipped, and updated nothing: the output of blocks.0, row "), 2);
  assert_int_equal(times_in(r->err, " (steps skipped: 1), test loss "), 2);
  assert_has(r->err, "steps skipped for values that were not finite: 2 of the run's 12");
  assert_has(run("info told/checkpoint.h5")->out, "  skipped: 2\n");
  const char *log = read_text("told/log.jsonl");
  assert_int_equal(times_in(log, "\"loss\":null,\"rate\":0.05,\"skipped\":\"the output of blocks.0, row "),
                   2);
  assert_has(log, "\"ended\":\"horizon\",\"skipped\":2,");
  r = run(OVER "--on-nonfinite skip --quiet");
  assert_string_equal(r->err, "");
  assert_has(r->out, "skipped: 2\n");
  if (system("command -v gnuplot >/dev/null 2>&1") == 0)
    assert_succeeds("plot", run("plot told/log.jsonl --out told.svg"));
  r = run("train " MODEL "--data fine.h5 --json --run fine");
  assert_has(r->out, "\"skipped\":0,");
  assert_int_equal(times_in(r->err, "skipped") + times_in(read_text("fine/log.jsonl"), "\"skipped\""), 0);
}

/* Whatever is fused, the line names the block in which the value is. */
static void every_plan_names_the_block(void **state) {
  static const char *const plans[] = {"none",  "activation", "norm-activation", "tail", "linear-norm",
                                      "block", "stack"};
  for (int i = 0; i < 7; i++) {
    char line[256];
    snprintf(
        line, sizeof line,
        "train --quiet --device cpu --synthetic 100 --in 4 --hidden 8,8 --optimizer sgd --lr 1e30 --plan %s",
        plans[i]);
    const struct result *r = run(line);
    assert_int_equal(r->status, 1);
    if (!strstr(r->err, " blocks.0, row ") && !strstr(r->err, ": blocks.0, row "))
      fail_msg("%s: %s", plans[i], r->err);
  }
}

/* To stop is the default; who then resumes with skip goes on beyond that step. */
static void a_diverged_run_may_skip(void **state) {
  const char *stops = OVER "--quiet --save-every 1 --run stops";
  assert_complains(stops, run(stops), 1, "training diverged at step |: the output of blocks.0, row ");
  assert_complains("again", run("train --quiet --device cpu --run stops --resume"), 1,
                   "training diverged at step |: the output of blocks.0, row ");
  const struct result *r = run("train --device cpu --run stops --resume --on-nonfinite skip");
  assert_succeeds("resumed", r);
  assert_has(r->err, "resumed with --on-nonfinite skip (was stop)");
  assert_has(r->out, "step: 12\nhorizon: 12\n");
  assert_has(run("info stops/checkpoint.h5")->out, "--on-nonfinite");
  const char *other = OVER "--on-nonfinite ignore";
  assert_complains(other, run(other), 64, "--on-nonfinite 'ignore'|stop or skip");
}

/* Rows to test on are not training's: they are named, and nothing they give is the best. */
static void test_rows_blame_no_training(void **state) {
  const struct result *r = run("train " MODEL "--data test.h5 --best --run test-run");
  assert_succeeds("train", r);
  assert_int_equal(
      times_in(r->err, ": no test loss: the output of blocks.0, row 70 of the test rows is not finite (so in "
                       "1 of 1 batches to test on); training goes on\n"),
      2);
  assert_int_equal(times_in(r->err, "diverged"), 0);
  assert_int_equal(access("test-run/best.h5", F_OK), -1);
  assert_int_equal(times_in(read_text("test-run/log.jsonl"), "\"test_loss\":null,\"time\""), 2);
  /* Where there is no best yet, a resume changes nothing. */
  assert_succeeds("stopped", run("train " MODEL
                                 "--data test.h5 --best --quiet --run test-stop --save-every 1 --stop-at 8"));
  assert_succeeds("resumed", run("train --device cpu --quiet --run test-stop --resume"));
  assert_succeeds("whole",
                  run("train " MODEL "--data test.h5 --best --quiet --save-every 1 --run test-whole"));
  assert_same("test-whole/checkpoint.h5", "test-stop/checkpoint.h5");
  assert_succeeds("the same training", run("train " MODEL "--data fine.h5 --quiet --run same"));
  assert_same("fine-run/checkpoint.h5", "same/checkpoint.h5");
}

static void eval_and_predict_name_the_row(void **state) {
  const char *lines[] = {"eval --device cpu --run fine-run --data test.h5 --json",
                         "predict --device cpu --run fine-run --data test.h5 --part test --out o.h5"};
  for (int i = 0; i < 2; i++)
    assert_complains(lines[i], run(lines[i]), 1,
                     "the output of blocks.0, row 70 is not finite|leave such rows out");
  assert_int_equal(access("o.h5", F_OK), -1);
  assert_succeeds("train part", run("predict --device cpu --run fine-run --data test.h5 --part train "
                                    "--out o.h5"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(skipped_steps_are_told),        cmocka_unit_test(every_plan_names_the_block),
      cmocka_unit_test(a_diverged_run_may_skip),       cmocka_unit_test(test_rows_blame_no_training),
      cmocka_unit_test(eval_and_predict_name_the_row),
  };
  return cmocka_run_group_tests(tests, set_up_rows, tear_down);
}
