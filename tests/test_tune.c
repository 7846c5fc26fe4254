/* train --tune and --folds: the folds, that the choice is what its options give, and a run that is stopped while
 * it chooses. */
#include <signal.h>
#include <time.h>

#include "data/held_out.h"
#include "tests/command_run.h"
#include "tests/files_same.h"

enum { ROWS = 300 };

/* y is a sum of squares, and noise of `share` of it; classes are its signs. */
static void write_rows(const char *name, int rows, double noise, int classes) {
  static float x[ROWS * I], y[ROWS];
  static int32_t label[ROWS];
  const hsize_t sizes[2] = {(hsize_t)rows, I};
  uint32_t word = 5;
  for (int i = 0; i < rows * I; i++) x[i] = (float)((word = word * 1664525 + 1013904223) >> 8) / 8388608 - 1;
  for (int i = 0; i < rows; i++) {
    y[i] = x[i * I] * x[i * I] + x[i * I + 1] - 0.3f;
    if (noise < 0) y[i] = 3;
    if (noise > 0) y[i] += (float)(noise * (((word = word * 1664525 + 1013904223) >> 8) / 8388608. - 1));
    label[i] = y[i] > 0;
  }
  hid_t file = create_file(name);
  put(file, "x", H5T_NATIVE_FLOAT, 2, sizes, x);
  if (classes)
    put(file, "y", H5T_NATIVE_INT32, 1, sizes, label);
  else
    put(file, "y", H5T_NATIVE_FLOAT, 1, sizes, y);
  H5Fclose(file);
}

/* ---- folds ---- */

/* Each row is in one fold; folds, and each class's rows in them, are as many as in the others, or one more. */
static void folds_divide_rows_and_classes(void **state) {
  static const int sizes[][3] = {{10, 2, 2}, {10, 10, 3}, {97, 3, 5}, {5000, 7, 4}, {64, 5, 1}};
  for (size_t t = 0; t < sizeof sizes / sizeof *sizes; t++) {
    const int rows = sizes[t][0], folds = sizes[t][1], classes = sizes[t][2];
    float *x = calloc((size_t)rows, sizeof *x);
    int32_t *labels = calloc((size_t)rows, sizeof *labels);
    unsigned char *fold = malloc((size_t)rows), *other = malloc((size_t)rows);
    assert_true(x && labels && fold && other);
    for (int i = 0; i < rows; i++) x[i] = (float)i, labels[i] = i * i % 7 % classes;
    struct mn_dataset *whole;
    assert_int_equal(mn_dataset_labelled(&whole, x, labels, rows, 1), MN_OK);
    assert_int_equal(mn_dataset_deal(fold, whole, folds, t), MN_OK);
    assert_int_equal(mn_dataset_deal(other, whole, folds, t + 1), MN_OK);
    assert_true(memcmp(fold, other, (size_t)rows) != 0);
    int least = rows, most = 0, all = 0;
    for (int k = 0; k < folds; k++) {
      struct mn_dataset *in, *out;
      assert_int_equal(mn_dataset_fold(&in, whole, fold, k, MN_PART_TEST), MN_OK);
      assert_int_equal(mn_dataset_fold(&out, whole, fold, k, MN_PART_TRAIN), MN_OK);
      assert_int_equal(in->rows + out->rows, rows);
      for (int64_t i = 0; i < in->rows; i++) {
        float value;
        int32_t label;
        assert_int_equal(in->read(in, i, 1, sizeof value, &value, &label), MN_OK);
        assert_true(fold[(int)value] == k && labels[(int)value] == label);
      }
      all += (int)in->rows;
      least = in->rows < least ? (int)in->rows : least, most = in->rows > most ? (int)in->rows : most;
      mn_dataset_close(in), mn_dataset_close(out);
    }
    assert_true(all == rows && most - least <= 1);
    for (int c = 0; c < classes; c++) {
      int count[10] = {0};
      for (int i = 0; i < rows; i++) count[fold[i]] += labels[i] == c;
      for (int k = 1; k < folds; k++) assert_true(abs(count[k] - count[0]) <= 1);
    }
    mn_dataset_close(whole);
    free(x), free(labels), free(fold), free(other);
  }
}

/* ---- the choice ---- */

static const char *text_after(const char *text, const char *word) {
  const char *at = strstr(text, word);
  if (!at) fail_msg("no '%s' in '%s'", word, text);
  return at + strlen(word);
}

/* /config as info shows it. */
static void config_of(const char *run_folder, const char *name, char out[64]) {
  char line[128], key[64];
  snprintf(line, sizeof line, "info %s --json", run_folder);
  snprintf(key, sizeof key, "\"%s\":\"", name);
  snprintf(out, 64, "%s", text_after(run_well(line)->out, key));
  out[strcspn(out, "\"")] = 0;
}

/* A fold's score is that of a training on a file of the other rows, tested on these. */
static void scores_are_those_of_files(void **state) {
  enum { FOLDS = 3 };
  static float x[ROWS * I], y[ROWS];
  static int32_t label[ROWS];
  for (int classes = 0; classes < 2; classes++) {
    char line[256], text[256];
    unsigned char fold[ROWS];
    struct mn_dataset *whole;
    snprintf(line, sizeof line,
             "train --device cpu --quiet --data %s --hidden 16 --epochs 5 --batch 10 --seed 4 --folds %d "
             "--run folds%d",
             classes ? "classes.h5" : "numbers.h5", FOLDS, classes);
    run_well(line);
    snprintf(line, sizeof line, "info folds%d --json", classes);
    snprintf(text, sizeof text, "%s", text_after(run_well(line)->out, "\"fold_1\":\""));
    hid_t file = H5Fopen(classes ? "classes.h5" : "numbers.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "x", H5P_DEFAULT), of_y = H5Dopen2(file, "y", H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    if (classes) assert_true(H5Dread(of_y, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, label) >= 0);
    if (!classes) assert_true(H5Dread(of_y, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
    H5Dclose(set), H5Dclose(of_y), H5Fclose(file);
    if (classes)
      assert_int_equal(mn_dataset_labelled(&whole, x, label, ROWS, I), MN_OK);
    else
      assert_int_equal(mn_dataset_arrays(&whole, x, y, ROWS, I, 1), MN_OK);
    assert_int_equal(mn_dataset_deal(fold, whole, FOLDS, 4), MN_OK);
    mn_dataset_close(whole);
    char *scores = text;
    for (int k = 0; k < FOLDS; k++) {
      file = create_file("parts.h5");
      for (int test = 0; test < 2; test++) {
        static float some_x[ROWS * I], some_y[ROWS];
        static int32_t some_label[ROWS];
        hsize_t count = 0;
        for (int n = 0; n < ROWS; n++) {
          if ((fold[n] == k) != test) continue;
          memcpy(some_x + count * I, x + n * I, I * sizeof *x);
          some_y[count] = y[n], some_label[count++] = label[n];
        }
        put(file, test ? "test/x" : "train/x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){count, I}, some_x);
        put(file, test ? "test/y" : "train/y", classes ? H5T_NATIVE_INT32 : H5T_NATIVE_FLOAT, 1, &count,
            classes ? (void *)some_label : some_y);
      }
      H5Fclose(file);
      const char *out =
          run_well("train --device cpu --quiet --data parts.h5 --hidden 16 --epochs 5 --batch 10 "
                   "--seed 4 --json")
              ->out;
      const double loss = strtod(text_after(out, "\"test_loss\":"), NULL);
      const double score = strtod(text_after(out, classes ? "\"test_accuracy\":" : "\"test_r2\":"), NULL);
      assert_true(fabs(strtod(scores, &scores) - loss) < 1e-5 * loss);
      assert_true(fabs(strtod(scores, &scores) - score) < 1e-3);
    }
  }
}

/* The run that --tune chose is the run that its options give. */
static void the_choice_is_its_options(void **state) {
  static const char *const files[] = {"numbers.h5", "classes.h5"};
  for (int t = 0; t < 2; t++) {
    char line[512], steps[64], clip[64], decay[64];
    snprintf(line, sizeof line, "train --device cpu --data %s --hidden 16 --tune --run tuned%d", files[t], t);
    const struct result *r = run_well(line);
    assert_non_null(strstr(r->err, t ? "accuracy " : "R2 "));
    assert_non_null(strstr(r->err, " over 3 folds"));
    snprintf(line, sizeof line, "tuned%d", t);
    config_of(line, "steps", steps), config_of(line, "clip", clip), config_of(line, "weight-decay", decay);
    if (strcmp(steps, "0") == 0) strcpy(steps, "104"); /* the default: 300 rows in batches of 32 */
    snprintf(line, sizeof line,
             "train --device cpu --quiet --data %s --hidden 16 --steps %s --clip %s --weight-decay %s --run "
             "same%d",
             files[t], steps, clip, decay, t);
    run_well(line);
    snprintf(line, sizeof line, "eval --device cpu --run same%d --data %s --json --quiet", t, files[t]);
    char *const first = strdup(run_well(line)->out);
    snprintf(line, sizeof line, "eval --device cpu --run tuned%d --data %s --json --quiet", t, files[t]);
    assert_string_equal(first, run_well(line)->out);
    free(first);
  }
}

/* Threads change nothing, nor does a second time. */
static void the_same_bytes(void **state) {
  run_well("train --device cpu --quiet --data classes.h5 --hidden 16 --tune --threads 1 --run one");
  run_well("train --device cpu --quiet --data classes.h5 --hidden 16 --tune --threads 2 --run two");
  assert_same_but("threads", "one/checkpoint.h5", "two/checkpoint.h5");
}

/* What the user names stays; what it leaves nothing to choose from is tried once. */
static void named_options_stay(void **state) {
  char value[64];
  run_well("train --device cpu --quiet --data numbers.h5 --hidden 16 --tune --clip 0.25 --epochs 3 "
           "--weight-decay 0.125 --run named");
  config_of("named", "epochs", value), assert_string_equal(value, "3");
  config_of("named", "clip", value), assert_string_equal(value, "0.25");
  config_of("named", "weight-decay", value), assert_string_equal(value, "0.125");
  const struct result *r = run_well("info named --json");
  assert_null(strstr(r->out, "fold_2"));
  /* --folds alone chooses nothing. */
  run_well("train --device cpu --quiet --data numbers.h5 --hidden 16 --epochs 3 --run plain");
  r = run_well("train --device cpu --data numbers.h5 --hidden 16 --epochs 3 --folds 4 --run folds --json");
  assert_non_null(strstr(r->err, "folds: R2 "));
  assert_non_null(strstr(r->out, "\"folds\":{\"folds\":4,\"loss\":"));
  r = run_well("diff plain folds --json");
  assert_non_null(strstr(r->out, "\"tensors\":[]"));
}

/* Whatever is named, what is left open is chosen. */
static void little_may_be_left_open(void **state) {
  static const char *const named[] = {"--steps 30",
                                      "--weight-decay 0",
                                      "--steps 30 --weight-decay 0",
                                      "--clip 1",
                                      "--steps 30 --clip 1 --weight-decay 0",
                                      "--optimizer sgd --lr 0.02",
                                      "--optimizer sgd --lr 0.02 --epochs 4"};
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    char line[256];
    snprintf(line, sizeof line, "train --device cpu --data numbers.h5 --hidden 16 --tune --json %s",
             named[i]);
    const struct result *r = run_well(line);
    assert_non_null(strstr(r->err, "tune: --steps "));
    assert_non_null(strstr(r->out, "\"folds\":{\"folds\":3,\"loss\":"));
    if (strstr(named[i], "--steps")) assert_non_null(strstr(r->err, "tune: --steps 30 "));
    if (!strstr(named[i], "--clip")) assert_non_null(strstr(r->err, " --clip 1 "));
  }
}

/* Targets that are all equal have no R2; where all settings diverge there is none to choose. */
static void what_has_no_score_is_told(void **state) {
  const struct result *r = run_well("train --device cpu --data equal.h5 --hidden 8 --folds 3 --json");
  assert_non_null(strstr(r->err, "folds: loss "));
  assert_non_null(strstr(r->out, "\"r2\":null,\"deviation\":null"));
  r = run("train --device cpu --data numbers.h5 --hidden 8 --tune --lr 1e30 --run diverged");
  assert_int_equal(r->status, MN_FAILED);
  assert_non_null(strstr(r->err, "--tune: training diverged at --lr 1e+30"));
}

static void what_cannot_be_is_refused(void **state) {
  const struct result *r = run("train --device cpu --data two.h5 --hidden 8 --tune --run x");
  assert_int_equal(r->status, MN_USAGE);
  assert_non_null(strstr(r->err, "3 folds of 2 rows"));
  r = run("train --device cpu --data numbers.h5 --hidden 8 --tune --init numbers.h5 --run x");
  assert_int_equal(r->status, MN_USAGE);
  assert_non_null(strstr(r->err, "--tune"));
  r = run("train --device cpu --data numbers.h5 --hidden 8 --folds 1");
  assert_int_equal(r->status, MN_USAGE);
}

/* ---- stopped ---- */

/* Stopped at a moment that is drawn, a run goes on to the same end. */
static void a_stopped_choice_goes_on(void **state) {
  run_well("train --device cpu --quiet --data numbers.h5 --hidden 64,64 --tune --folds 5 --run whole");
  int stopped = 0;
  for (int i = 0; i < 12 && stopped < 4; i++) {
    const int out = temporary_file(), err = temporary_file();
    static char text[1 << 16];
    pid_t pid = start("train --device cpu --data numbers.h5 --hidden 64,64 --tune --folds 5 --run part", out,
                      err, &(struct circumstances){0});
    nanosleep(&(struct timespec){.tv_nsec = 20000000 + 35000000 * i}, NULL);
    kill(pid, SIGINT);
    const int status = wait_for(pid);
    read_all(text, err);
    close(out), close(err);
    if (status == MN_INTERRUPTED && strstr(text, "after step 0 of")) {
      stopped++;
      assert_int_equal(system("rm -rf other && cp -r part other"), 0);
      run_well("train --device cpu --quiet --run part --resume");
      assert_same_but("threads", "whole/checkpoint.h5", "part/checkpoint.h5");
      /* Other rows or options are scored anew. */
      const char *const anew =
          run_well("train --device cpu --run other --resume --lr 0.02 --data less.h5")->err;
      char *const said = strdup(text_after(anew, "tune: "));
      forget("other");
      assert_non_null(
          strstr(run_well("train --device cpu --data less.h5 --hidden 64,64 --tune --folds 5 --lr 0.02 "
                          "--run other")
                     ->err,
                 strtok(said, "\n")));
      free(said);
      forget("other");
    }
    forget("part");
  }
  assert_true(stopped > 0);
}

static int prepare(void **state) {
  if (set_up(state) != 0) return -1;
  write_rows("numbers.h5", ROWS, 0.1, 0);
  write_rows("classes.h5", ROWS, 0.3, 1);
  write_rows("two.h5", 2, 0, 0);
  write_rows("less.h5", ROWS - 50, 0.1, 0);
  write_rows("equal.h5", 30, -1, 0);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(folds_divide_rows_and_classes),
      cmocka_unit_test(scores_are_those_of_files),
      cmocka_unit_test(the_choice_is_its_options),
      cmocka_unit_test(the_same_bytes),
      cmocka_unit_test(named_options_stay),
      cmocka_unit_test(little_may_be_left_open),
      cmocka_unit_test(what_has_no_score_is_told),
      cmocka_unit_test(what_cannot_be_is_refused),
      cmocka_unit_test(a_stopped_choice_goes_on),
  };
  return cmocka_run_group_tests(tests, prepare, tear_down);
}
