/* Training end to end, through the command: the demo's accuracy, a run that is killed, divergence,
 * predictions. On the CPU, and on CUDA where there is a GPU. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tests/hdf5_made.h"
#include "tests/skip.h"

static char folder[64]; /* of this process's files */

/* Runs a shell command with MINNOW and DIR set; returns its exit code. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...) {
  char command[2048];
  va_list arguments;
  va_start(arguments, format);
  assert_true(vsnprintf(command, sizeof command, format, arguments) < (int)sizeof command);
  va_end(arguments);
  int status = system(command);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int have_cuda(void) {
  struct mn_device *device;
  int have = mn_device_open(&device, "cuda", "fp64", 0) == MN_OK;
  if (have) mn_device_close(device);
  return have;
}

static double read_number(const char *file, const char *key) {
  char path[128], line[4096] = "";
  snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE *in = fopen(path, "r");
  assert_non_null(in);
  double value = NAN;
  while (fgets(line, sizeof line, in)) {
    const char *at = strstr(line, key);
    if (at) value = strtod(at + strlen(key), NULL);
  }
  fclose(in);
  return value;
}

/* The mean over five seeds. */
static void demo_reaches_98_percent(const char *precision) {
  double sum = 0;
  for (int seed = 0; seed < 5; seed++) {
    assert_int_equal(
        run("$MINNOW train --device cpu --data data/digits.h5 --hidden 128 --groups 8 --epochs 20 --batch 64 "
            "--lr 0.05 --momentum 0.9 --precision %s --seed %d --quiet --json >$DIR/demo",
            precision, seed),
        0);
    double accuracy = read_number("demo", "\"test_accuracy\":");
    print_message("%s, seed %d: %.4f\n", precision, seed, accuracy);
    sum += accuracy;
  }
  assert_true(sum / 5 >= 0.98);
}

static void demo_in_fp32(void **state) {
  demo_reaches_98_percent("fp32");
}

static void demo_in_fp16(void **state) {
  demo_reaches_98_percent("fp16");
}

/* A GPU tests behind the steps that it was given, unless an option decides by the test: with the same losses. */
static void tests_do_not_show(void **state) {
  static const char *const drawn[] = {"--batch 64 --precision bf16 --hidden 128",
                                      "--batch 7 --precision fp32 --hidden 32,16 --log-every 1",
                                      "--batch 500 --accumulate 3 --precision fp64 --hidden 24",
                                      "--batch 1437 --precision tf32 --hidden 64,64",
                                      "--batch 96 --precision bf16 --hidden 64 --save-every 5"};
  if (!have_cuda()) SKIP("%s", mn_message());
  for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
    run("rm -rf $DIR/*");
    for (int waits = 0; waits < 2; waits++)
      if (run("$MINNOW train --device cuda --data data/digits.h5 --epochs 9 --quiet %s %s --run $DIR/run%d "
              ">$DIR/out 2>&1",
              drawn[i], waits ? "--patience 100000" : "", waits) != 0)
        fail_msg("%s: %d", drawn[i], run("cat $DIR/out"));
    assert_int_equal(run("for i in 0 1; do grep -E '\"event\":\"(step|eval)\"' $DIR/run$i/log.jsonl | sed "
                         "'s/\"time\":{[^}]*}//' "
                         ">$DIR/$i; done; [ $(grep -c test_loss $DIR/0) = 9 ] && cmp $DIR/0 $DIR/1"),
                     0);
  }
}

/* Starts a run, sends it `number` once `ready` (a shell condition) holds, and returns its exit code, or −1 if
 * the signal ended it. */
static int interrupt(int number, const char *ready, const char *options) {
  char command[1024];
  snprintf(command, sizeof command, "exec $MINNOW train %s >/dev/null 2>$DIR/err", options);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  assert_int_equal(run("for i in $(seq 2000); do %s && exit 0; sleep 0.01; done; exit 1", ready), 0);
  assert_int_equal(kill(child, number), 0);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define LONG_RUN "--device cpu --data data/digits.h5 --hidden 32 --groups 4 --batch 64 --steps 3000 --quiet"

static void resume_and_compare(void) {
  assert_int_equal(run("$MINNOW verify $DIR/cut/checkpoint.h5 >/dev/null"), 0);
  assert_int_equal(run("$MINNOW diff $DIR/whole/checkpoint.h5 $DIR/cut/checkpoint.h5 >/dev/null 2>&1"),
                   1); /* or it was not stopped early */
  assert_int_equal(run("$MINNOW train --run $DIR/cut --resume --data data/digits.h5 --quiet "
                       "--device cpu >/dev/null"),
                   0);
  assert_int_equal(run("$MINNOW diff $DIR/whole/checkpoint.h5 $DIR/cut/checkpoint.h5 >/dev/null"), 0);
}

/* A killed run leaves its last save, whole, and resumes from there. */
static void a_killed_run_resumes(void **state) {
  run("rm -rf $DIR/*");
  assert_int_equal(run("$MINNOW train " LONG_RUN " --run $DIR/whole >/dev/null"), 0);
  int code = interrupt(SIGKILL, "[ -s $DIR/cut/checkpoint.1.h5 ]",
                       LONG_RUN " --keep 3 --save-every 20 --run $DIR/cut");
  assert_int_equal(code, -1);
  resume_and_compare();
}

/* What a run says beside its result: where its rows wait and why, its saves, its speed and what bounds it. */
static void a_run_tells_how_it_goes(void **state) {
  run("rm -rf $DIR/*");
  assert_int_equal(run("$MINNOW train --device cpu --data data/digits.h5 --hidden 8 --groups 2 --steps 60 "
                       "--place file --verbose --save-every 7 --run $DIR/run --json >$DIR/out "
                       "2>$DIR/err"),
                   0);
  const char *const lines[] = {
      "^place: file, 0.4 MiB (as asked); to test: file, 0.1 MiB$", "^saved step 60 to .*/run/checkpoint.h5$",
      ("^60 steps in .* samples/s, .*FLOP/s, waiting for rows .* % of the time; bound by "
       "the [a-z]")};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    if (run("grep -q '%s' $DIR/err", lines[i]) != 0) fail_msg("no line '%s'", lines[i]);
  assert_int_equal(run("grep -q '\"time\":{\"samples_per_second\":' $DIR/out"), 0);
}

/* The lines of epochs fit 80 columns. */
static void epochs_fit(void **state) {
  assert_int_equal(run("$MINNOW train --device cpu --data data/digits.h5 --hidden 32 --groups 4 --epochs 12 "
                       "2>$DIR/err >$DIR/out"),
                   0);
  if (run("awk '/^step / { n += length < 80 && /: loss [0-9.]+, test loss [0-9.]+, [0-9.]+ %%, [0-9]+ "
          "samples/ } "
          "END { exit n != 12 }' $DIR/err") != 0) {
    run("cat $DIR/err");
    fail_msg("a line is too wide, or says something else");
  }
}

/* Rows that take seconds to be brought to their place do not keep a run from ending. */
static void signals_end_the_reading_of_rows(void **state) {
  run("rm -rf $DIR/*");
  int code = interrupt(SIGTERM, "[ -e $DIR/cut/lock ] && sleep 0.3",
                       "--device cpu --synthetic 3000000 --in 64 --hidden 64 --groups 8 --batch 64 --quiet "
                       "--run $DIR/cut");
  assert_int_equal(code, 75);
  assert_int_equal(run("grep -q 'stopped by Terminated before the first step' $DIR/err"), 0);
  assert_int_equal(run("[ ! -e $DIR/cut/lock ] && [ ! -e $DIR/cut/checkpoint.h5 ]"), 0);
}

/* x and y, contiguous, both [rows, cols]. */
static void write_rows(const char *path, int rows, int cols) {
  float *x = malloc((size_t)(rows * cols) * sizeof *x), *y = malloc((size_t)(rows * cols) * sizeof *y);
  hsize_t shape[] = {(hsize_t)rows, (hsize_t)cols};
  assert_true(x && y);
  for (int i = 0; i < rows * cols; i++) x[i] = (float)(i % 31) / 15 - 1, y[i] = (float)(i % 17) / 8 - 1;
  hid_t file = create_file(path);
  put_dataset(file, "x", H5T_NATIVE_FLOAT, 2, shape, H5P_DEFAULT, H5T_NATIVE_FLOAT, x);
  put_dataset(file, "y", H5T_NATIVE_FLOAT, 2, shape, H5P_DEFAULT, H5T_NATIVE_FLOAT, y);
  assert_true(H5Fclose(file) >= 0);
  free(x), free(y);
}

/* The most memory, in MiB, that a short run on so many rows in their file takes; 256 inputs, 256 targets. */
static long memory_of(int rows) {
  char path[128];
  snprintf(path, sizeof path, "%s/rows.h5", folder);
  write_rows(path, rows, 256);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c",
          "exec $MINNOW train --device cpu --data $DIR/rows.h5 --place file --hidden 256 --groups 8 --batch "
          "500 "
          "--steps 210 --quiet >/dev/null",
          (char *)NULL);
    _exit(127);
  }
  int status;
  struct rusage used;
  assert_int_equal(wait4(child, &status, 0, &used), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return used.ru_maxrss / 1024;
}

/* Rows that stay in their file take two windows of memory, 16 MiB here, whatever their number. The sanitizers
 * have their own ways with memory. */
static void rows_in_the_file_take_little_memory(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("a sanitizer: it takes memory of its own");
#endif
  run("rm -rf $DIR/*");
  long few = memory_of(10000), many = memory_of(100000);
  print_message("%ld MiB with 20 MiB of rows, %ld with 195\n", few, many);
  assert_true(many < few + 40);
  run("rm -rf $DIR/*");
}

/* The rows' file is cut short under a run that reads it again and again: the run ends with one line, and what
 * it has saved is whole. */
static void a_file_cut_short_ends_the_run(void **state) {
  char path[128], command[512];
  run("rm -rf $DIR/*");
  snprintf(path, sizeof path, "%s/rows.h5", folder);
  write_rows(path, 9000, 8); /* more than two windows */
  snprintf(command, sizeof command,
           "--device cpu --data %s --place file --hidden 8 --groups 2 --batch 64 --steps 2000000 --quiet "
           "--save-every 20 --run $DIR/cut",
           path);
  /* Signal 0 is none: the run ends by itself once it asks for rows that are gone. */
  int code = interrupt(0, "[ -s $DIR/cut/checkpoint.h5 ] && truncate -s 100000 $DIR/rows.h5", command);
  assert_int_equal(code, 65);
  assert_int_equal(run("[ $(wc -l <$DIR/err) = 1 ] && grep -q 'rows.h5.*rows .* cut short' $DIR/err"), 0);
  assert_int_equal(run("$MINNOW verify $DIR/cut/checkpoint.h5 >/dev/null"), 0);
}

static void divergence_is_named_and_leaves_the_checkpoint(void **state) {
  run("rm -rf $DIR/*");
  assert_int_equal(run("$MINNOW train --device cpu --synthetic 256 --in 8 --hidden 8 --head 4 --groups 2 "
                       "--batch 32 --steps 50 --lr "
                       "1e30 --save-every 1 --run $DIR/run >/dev/null 2>$DIR/err"),
                   1);
  assert_int_equal(run("grep -q 'minnow: training diverged at step 2: .* is not finite' $DIR/err"), 0);
  assert_int_equal(run("$MINNOW verify $DIR/run/checkpoint.h5 >/dev/null"), 0);
}

static void synthetic_training_nears_the_floor(void **state) {
  assert_int_equal(run("$MINNOW train --device cpu --synthetic 4000 --in 8 --hidden 16 --groups 4 --batch 50 "
                       "--epochs 40 --noise 0.2 "
                       "--schedule cosine --lr 0.5 --json >$DIR/synthetic 2>$DIR/err"),
                   0);
  assert_int_equal(run("grep -q 'whose noise alone is a loss of 0.04$' $DIR/err"), 0);
  double loss = read_number("synthetic", "\"test_loss\":");
  print_message("test loss %.5f, floor 0.04\n", loss);
  assert_true(loss > 0.03 && loss < 0.06);
}

static void predictions_are_those_that_eval_counts(void **state) {
  run("rm -rf $DIR/*");
  assert_int_equal(run("$MINNOW train --device cpu --data data/digits.h5 --hidden 64 --groups 8 --epochs 3 "
                       "--run $DIR/run "
                       "--quiet --json >$DIR/train"),
                   0);
  assert_int_equal(run("$MINNOW eval --device cpu --run $DIR/run --data data/digits.h5 --quiet "
                       "--json >$DIR/eval"),
                   0);
  double trained = read_number("train", "\"test_loss\":"), evaluated = read_number("eval", "\"loss\":");
  assert_true(fabs(trained - evaluated) <= 1e-6 * fabs(trained));
  assert_int_equal(run("$MINNOW predict --device cpu --run $DIR/run --data data/digits.h5 --out "
                       "$DIR/out.h5 --quiet >/dev/null"),
                   0);
  assert_int_equal(run("$MINNOW info $DIR/out.h5 >$DIR/info && grep -q label $DIR/info"), 0);
}

/* A line says how often float16's scales had to be chosen anew in the middle; other precisions have none. */
static void batches_taken_again_are_counted(void **state) {
  const char *common = "--device cpu --data data/digits.h5 --standardize no --hidden 32,32 --groups 4 "
                       "--batch 48 --steps 75 --lr 1";
  assert_int_equal(run("$MINNOW train %s --momentum 0.9 --precision fp16 >/dev/null 2>$DIR/err", common), 0);
  assert_int_equal(run("grep -Eq '^[1-9][0-9]* batches did not fit the scales of fp16, ' $DIR/err"), 0);
  assert_int_equal(run("$MINNOW train %s --momentum 0.9 --precision bf16 >/dev/null 2>$DIR/err", common), 0);
  assert_int_equal(run("! grep -q 'batches did not fit' $DIR/err"), 0);
  assert_int_equal(run("$MINNOW train %s --precision fp16x3 2>&1 >/dev/null | grep -q "
                       "'^note: fp16x3 runs as fp32 on the CPU$'",
                       common),
                   0);
}

/* A checkpoint is evaluated in the precision that it was trained in, unless another is named. */
static void eval_takes_the_precision_of_training(void **state) {
  run("rm -rf $DIR/*");
  assert_int_equal(run("$MINNOW train --device cpu --data data/digits.h5 --hidden 64 --groups 8 --epochs 2 "
                       "--precision bf16 --run $DIR/run --quiet --json >$DIR/train"),
                   0);
  const char *const named[] = {"", "--precision bf16", "--precision fp32"};
  double loss[3], trained = read_number("train", "\"test_loss\":");
  for (int i = 0; i < 3; i++) {
    assert_int_equal(run("$MINNOW eval --device cpu --run $DIR/run --data data/digits.h5 --quiet "
                         "--json %s >$DIR/eval",
                         named[i]),
                     0);
    loss[i] = read_number("eval", "\"loss\":");
  }
  assert_true(loss[0] == trained && loss[0] == loss[1] && loss[0] != loss[2]);
}

/* A horizon that cannot be counted is refused, not cut to nothing with exit code 0. */
static void an_uncountable_horizon_is_refused(void **state) {
  assert_int_equal(run("$MINNOW train --device cpu --synthetic 1099511627776 --in 1 --hidden 1 --groups 1 "
                       "--batch 1 --epochs 1099511627776 --quiet >/dev/null 2>$DIR/err"),
                   64);
  assert_int_equal(run("grep -q -e '--epochs 1099511627776' $DIR/err"), 0);
}

static int make_folder(void **state) {
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.40s/minnow-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(folder)) return -1;
  if (!getenv("MINNOW")) setenv("MINNOW", "build/minnow", 1);
  return setenv("DIR", folder, 1);
}

static int remove_folder(void **state) {
  return run("rm -rf $DIR");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(demo_in_fp32),
      cmocka_unit_test(demo_in_fp16),
      cmocka_unit_test(tests_do_not_show),
      cmocka_unit_test(a_killed_run_resumes),
      cmocka_unit_test(a_run_tells_how_it_goes),
      cmocka_unit_test(epochs_fit),
      cmocka_unit_test(signals_end_the_reading_of_rows),
      cmocka_unit_test(rows_in_the_file_take_little_memory),
      cmocka_unit_test(a_file_cut_short_ends_the_run),
      cmocka_unit_test(divergence_is_named_and_leaves_the_checkpoint),
      cmocka_unit_test(synthetic_training_nears_the_floor),
      cmocka_unit_test(predictions_are_those_that_eval_counts),
      cmocka_unit_test(batches_taken_again_are_counted),
      cmocka_unit_test(eval_takes_the_precision_of_training),
      cmocka_unit_test(an_uncountable_horizon_is_refused),
  };
  return cmocka_run_group_tests_name("training", tests, make_folder, remove_folder);
}
