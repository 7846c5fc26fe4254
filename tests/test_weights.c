/* Weights of rows: that they multiply losses and scores, wherever rows wait and whatever computes. */
#include "data/dataset.h"
#include "tests/command_run.h"
#include "tests/files_same.h"

enum { MOST = 9000, WIDE = 8, CLASSES = 3 };

static uint64_t word;
static int below(int n) {
  word = word * 6364136223846793005ULL + 1442695040888963407ULL;
  return (int)((word >> 33) % (uint64_t)n);
}

static struct rows {
  int count, cols;
  float x[MOST * I], y[MOST * WIDE];
  int32_t label[MOST];
  double w[MOST], one[MOST];
} rows;

/* Weights are 0 to 3, halves or, if `whole`, not; a third of them is 0. */
static void draw(int count, int cols, int whole) {
  rows.count = count, rows.cols = cols;
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < I; k++) rows.x[i * I + k] = (float)(below(2049) - 1024) / 1024;
    for (int k = 0; k < cols; k++)
      rows.y[i * cols + k] =
          rows.x[i * I] * rows.x[i * I + 1] + (float)(below(2001) - 1000) / 2000 + (float)k;
    rows.label[i] = i < CLASSES ? i : rows.x[i * I] > 0.3F ? 2 : below(4) == 0;
    rows.w[i] = i < CLASSES ? 1 : below(3) == 0 ? 0 : (below(6) + 1) / (whole ? 1. : 2);
    rows.one[i] = 1;
  }
}

static void write_file(const char *name, int classes) {
  const hsize_t x[2] = {(hsize_t)rows.count, I}, y[2] = {(hsize_t)rows.count, (hsize_t)rows.cols};
  hid_t file = create_file(name);
  put(file, "x", H5T_NATIVE_FLOAT, 2, x, rows.x);
  if (classes)
    put(file, "y", H5T_NATIVE_INT32, 1, x, rows.label);
  else
    put(file, "y", H5T_NATIVE_FLOAT, 2, y, rows.y);
  put(file, "w", H5T_NATIVE_DOUBLE, 1, x, rows.w);
  put(file, "one", H5T_NATIVE_DOUBLE, 1, x, rows.one);
  H5Fclose(file);
}

static double number_after(const char *text, const char *key) {
  const char *at = strstr(text, key);
  if (!at) fail_msg("no %s in %s", key, text);
  return strtod(at + strlen(key), NULL);
}

/* Trains on two files by two ends of a command, and compares what they have learnt. */
static void learn(const char *device, const char *first, const char *second, const char *end, int same) {
  char line[512];
  const char *const names[] = {first, second};
  for (int i = 0; i < 2; i++) {
    forget(i ? "second" : "first");
    snprintf(line, sizeof line, "train --device %s --quiet %s %s --run %s", device, names[i], end,
             i ? "second" : "first");
    const struct result *r = run(line);
    if (r->status == 69 && strcmp(device, "cuda") == 0) SKIP("no GPU");
    assert_succeeds(line, r);
  }
  const struct result *r = run("diff first/checkpoint.h5 second/checkpoint.h5");
  if (r->status != !same)
    fail_msg("%s, %s, --device %s %s: %s", first, second, device, end, same ? r->out : "the same");
}

/* ---- training ---- */

/* Files that differ in the targets of rows with weight 0 alone. */
static void rows_of_weight_0_teach_nothing(void **state) {
  static const char *const kinds[] = {
      "--hidden 16 ",
      "--hidden 8 --standardize no ", /* the loss is fused into the block if there are 8 targets */
      "--hidden 64,64 --precision bf16 ",
      "--hidden 64 --precision fp16 ",
      "--hidden 128 --precision fp16x3 ",
      "--hidden 16,24 --precision fp64 --clip 0.5 ",
      "--hidden 512 --precision bf16 --groups 16 ",
      "--hidden 12 --plan none "};
  static const char *const places[] = {"--place device ", "--place host ", "--place file "};
  static const char *const more[] = {"", "--accumulate 2 ", "--validation 0.2 ", "--optimizer sgd --lr 0.01 ",
                                     "--tune "};
  const char *device = *state;
  for (int n = 0; n < (strcmp(device, "cpu") == 0 ? 60 : 14); n++) {
    char end[256];
    word = (uint64_t)n + 7;
    const int classes = below(2), cols = below(3) ? WIDE : 1;
    draw(below(4) ? 40 + below(300) : MOST - below(1000), cols, 0);
    write_file("a.h5", classes);
    for (int i = 0; i < rows.count; i++) {
      rows.label[i] = rows.w[i] > 0 ? rows.label[i] : below(CLASSES);
      for (int k = 0; k < cols && rows.w[i] == 0; k++) rows.y[i * cols + k] = (float)below(100) / 50;
    }
    write_file("b.h5", classes);
    /* Rows of each class are held out alike, so that other labels mean other rows. */
    snprintf(end, sizeof end, "--standardize no --steps 12 --seed %d --batch %d %s%s%s", below(100),
             8 + below(25), kinds[below(8)], places[below(3)], more[below(classes ? 2 : 5)]);
    if (strstr(end, "--tune")) memcpy(strstr(end, "--steps 12"), "          ", 10);
    char *const twice = strstr(end + 20, "--standardize no");
    if (twice) memset(twice, ' ', 16);
    learn(device, "--data a.h5 --weights w", "--data b.h5 --weights w", end, 1);
    if (n % 8 == 0) learn(device, "--data a.h5", "--data b.h5", end, 0);
  }
}

static void one_everywhere_is_none(void **state) {
  static const char *const ends[] = {"--hidden 16",
                                     "--hidden 8 --standardize no",
                                     "--hidden 64,64 --precision bf16",
                                     "--hidden 64 --precision fp16",
                                     "--hidden 512 --precision bf16",
                                     "--hidden 24 --precision fp64 --validation 0.3 --place file --tune"};
  word = 3;
  draw(200, WIDE, 0);
  for (int classes = 0; classes < 2; classes++) {
    write_file("a.h5", classes);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
      learn(*state, "--data a.h5", "--data a.h5 --weights one", ends[i], 1);
      if (classes) learn(*state, "--data a.h5", "--data a.h5 --class-weight 1,1,1", ends[i], 1);
    }
  }
}

/* Factors of classes are weights of their rows, and multiply those there are. */
static void factors_of_classes_are_weights(void **state) {
  for (int n = 0; n < 6; n++) {
    double by_class[CLASSES] = {0.5, 3, 0};
    char end[96];
    word = (uint64_t)n + 21;
    draw(150 + below(100), 1, 0);
    for (int i = 0; i < rows.count && n == 5; i++)
      rows.label[i] = rows.label[i] ? 2 : 0; /* class 1 has no row */
    write_file("a.h5", 1);
    if (n % 2) {
      int count[CLASSES] = {0};
      for (int i = 0; i < rows.count; i++) count[rows.label[i]]++;
      for (int k = 0; k < CLASSES; k++)
        by_class[k] = (double)rows.count / ((n == 5 ? 2. : CLASSES) * (double)count[k]);
    }
    for (int i = 0; i < rows.count; i++) {
      rows.w[i] *= by_class[rows.label[i]];
      rows.one[i] = by_class[rows.label[i]];
    }
    write_file("b.h5", 1);
    snprintf(end, sizeof end, "--hidden 16 --steps 10 --seed %d --precision %s", n, n % 3 ? "fp32" : "fp64");
    learn(*state, n % 2 ? "--data a.h5 --class-weight balanced" : "--data a.h5 --class-weight 0.5,3,0",
          "--data b.h5 --weights one", end, 1);
    learn(*state,
          n % 2 ? "--data a.h5 --weights w --class-weight balanced"
                : "--data a.h5 --weights w --class-weight 0.5,3,0",
          "--data b.h5 --weights w", end, 1);
  }
}

/* A CSV has a column of weights, which is no input; factors go by the names of classes. */
static void a_csv_has_a_column(void **state) {
  static const char *const names[] = {"ant", "bee", "cow"};
  static char words[120][4];
  const hsize_t size = 120, x[2] = {120, I};
  word = 5;
  draw(120, 1, 0);
  for (int i = 0; i < 120; i++) memcpy(words[i], names[rows.label[i]], 4);
  hid_t h5 = create_file("a.h5"), text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 4);
  put(h5, "x", H5T_NATIVE_FLOAT, 2, x, rows.x);
  put(h5, "y", text, 1, &size, words);
  put(h5, "w", H5T_NATIVE_DOUBLE, 1, &size, rows.w);
  H5Tclose(text), H5Fclose(h5);
  FILE *file = fopen("a.csv", "w");
  assert_non_null(file);
  fprintf(file, "a,b,c,d,kind,w\n");
  for (int i = 0; i < rows.count; i++) {
    for (int k = 0; k < I; k++) fprintf(file, "%.17g,", (double)rows.x[i * I + k]);
    fprintf(file, "%s,%g\n", names[rows.label[i]], rows.w[i]);
  }
  assert_int_equal(fclose(file), 0);
  learn(*state, "--data a.csv --weights w --class-weight 1,2,3",
        "--data a.h5 --weights w --class-weight 1,2,3", "--hidden 16 --steps 10 --standardize columns", 1);
  char line[256];
  snprintf(line, sizeof line, "train --device %s --data a.csv --weights w --class-weight 1,2.5,0 --steps 1",
           (const char *)*state);
  assert_non_null(strstr(run_well(line)->err, "weights of classes: ant 1, bee 2.5, cow 0"));
}

/* ---- tests and scores ---- */

/* A row of weight k is as k such rows. */
static void weights_count_rows(void **state) {
  static const char *const keys[][7] = {{"\"r2\":[", "\"rmse\":[", "\"mae\":["},
                                        {"\"accuracy\":", "\"balanced_accuracy\":", "\"log_loss\":",
                                         "\"roc_auc\":", "\"recall\":[", "\"f1\":[", "\"confusion\":[["}};
  static struct rows once;
  char line[256];
  for (int n = 0; n < 10; n++) {
    const int classes = n % 2;
    word = (uint64_t)n + 99;
    draw(30 + below(200), 1 + n / 2 % 2, 1);
    for (int i = 0; i < rows.count && rows.cols == 2; i++) rows.y[2 * i + 1] *= 100;
    write_file("a.h5", classes);
    snprintf(line, sizeof line,
             "train --device %s --data a.h5 --hidden 16 --steps 30 --precision fp64 --run run --quiet",
             (const char *)*state);
    forget("run");
    const struct result *r = run(line);
    if (r->status == 69 && strcmp(*state, "cuda") == 0) SKIP("no GPU");
    assert_succeeds(line, r);
    char *const weighed = strdup(run_well("eval --quiet --run run --data a.h5 --weights w --json")->out);
    once = rows, rows.count = 0;
    for (int i = 0; i < once.count; i++)
      for (int k = 0; k < once.w[i]; k++, rows.count++) {
        memcpy(rows.x + rows.count * I, once.x + i * I, I * sizeof *rows.x);
        rows.label[rows.count] = once.label[i];
        for (int c = 0; c < rows.cols; c++) rows.y[rows.count * rows.cols + c] = once.y[i * rows.cols + c];
      }
    assert_true(rows.count <= MOST);
    write_file("b.h5", classes);
    const char *const counted = run_well("eval --quiet --run run --data b.h5 --json")->out;
    for (int k = 0; k < 7 && keys[classes][k]; k++) {
      const double a = number_after(weighed, keys[classes][k]), b = number_after(counted, keys[classes][k]);
      if (!(fabs(a - b) <= 1e-9 * fmax(1, fabs(b)))) fail_msg("%s %.15g, not %.15g", keys[classes][k], a, b);
    }
    const double a = number_after(weighed, "\"loss\":") * once.count,
                 b = number_after(counted, "\"loss\":") * rows.count;
    if (!(fabs(a - b) <= 1e-9 * fabs(b))) fail_msg("losses of %.15g, not %.15g", a, b);
    free(weighed);
  }
}

/* Rows to test on have their own weights, and never those of classes: eval finds the same. */
static void tests_have_the_rows_weights(void **state) {
  static const char *const ways[][2] = {{"--weights w", "--weights w"}, {"--class-weight 4,0.5,2", ""}};
  char line[256];
  for (int n = 0; n < 4; n++) {
    word = (uint64_t)n + 300;
    draw(100 + below(100), 1, 0);
    write_file("a.h5", 1);
    forget("run");
    snprintf(line, sizeof line,
             "train --device %s --data a.h5 --hidden 16 --validation 0.3 --quiet --json --run run %s",
             (const char *)*state, ways[n % 2][0]);
    const struct result *r = run(line);
    if (r->status == 69 && strcmp(*state, "cuda") == 0) SKIP("no GPU");
    assert_succeeds(line, r);
    const double loss = number_after(r->out, "\"test_loss\":"),
                 right = number_after(r->out, "\"test_accuracy\":");
    snprintf(line, sizeof line, "eval --device %s --quiet --json --run run --data a.h5 %s",
             (const char *)*state, ways[n % 2][1]);
    const char *const found = run_well(line)->out;
    assert_true(fabs(number_after(found, "\"loss\":") - loss) <= 1e-6 * loss);
    assert_true(fabs(number_after(found, "\"accuracy\":") - right) <= 1e-6);
  }
}

/* Twice the loss and half the rate are the same training, and its folds' rows to test on the same test. */
static void folds_are_not_tested_by_factors_of_classes(void **state) {
  static const char *const ends[] = {"--lr 0.02", "--lr 0.01 --class-weight 2,2,2"};
  char line[256], told[2][TEXT];
  word = 400;
  draw(150, 1, 0);
  write_file("a.h5", 1);
  for (int i = 0; i < 2; i++) {
    snprintf(line, sizeof line,
             "train --device %s --data a.h5 --hidden 16 --optimizer sgd --epochs 3 --folds 3 %s",
             (const char *)*state, ends[i]);
    const char *const at = strstr(run_well(line)->err, "folds: ");
    assert_non_null(at);
    strcpy(told[i], at);
    *strchr(told[i], '\n') = 0;
  }
  assert_string_equal(told[0], told[1]);
}

static void a_resumed_run_keeps_them(void **state) {
  char line[256];
  word = 77;
  draw(90, 1, 0);
  write_file("a.h5", 1);
  static const char whole[] =
      "train --device %s --quiet --data a.h5 --weights w --class-weight balanced --steps 20 --run %s";
  forget("whole"), forget("part");
  snprintf(line, sizeof line, whole, (const char *)*state, "whole");
  const struct result *r = run(line);
  if (r->status == 69 && strcmp(*state, "cuda") == 0) SKIP("no GPU");
  assert_succeeds(line, r);
  snprintf(line, sizeof line, whole, (const char *)*state, "part --stop-at 7");
  run_well(line);
  run_well("train --quiet --run part --resume");
  assert_same_but("threads", "whole/checkpoint.h5", "part/checkpoint.h5");
  /* Other weights are refused unless they are named. */
  rows.w[80] = 2.5;
  write_file("a.h5", 1);
  static const char longer[] = "train --quiet --run part --resume --steps 30";
  assert_complains(longer, run(longer), 65, "a.h5 has other weights|--data a.h5");
  run_well("train --quiet --run part --resume --steps 30 --weights w");
}

/* ---- what cannot be ---- */

static void bad_weights_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *line;
    int status;
    const char *words;
  } wrong[] = {
      {"--data a.h5 --weights wrong", 65, "a.h5: dataset wrong: row 4 (from 0) has the weight -1|1e20"},
      {"--data a.h5 --weights none", 65, "a.h5: dataset none: all weights are 0|above"},
      {"--data a.h5 --weights x", 65, "a.h5: dataset x has several columns|a number for each row"},
      {"--data a.h5 --weights nan", 65, "nan, row 2|is nan"},
      {"--data a.h5 --weights what", 65, "--weights what: a.h5: holds no dataset what"},
      {"--data a.h5 --weights small", 65, "row 0 (from 0) has the weight 1e-30|1e-20"},
      {"--data a.h5 --weights last --validation 0.5 --seed 1", 65, "all rows|have the weight 0"},
      {"--data a.h5 --class-weight 1,2", 64, "--class-weight 1,2|balanced|3 classes"},
      {"--data a.h5 --class-weight 1,2,3,4", 64, "--class-weight 1,2,3,4|3 classes"},
      {"--data a.h5 --class-weight 1,-2,3", 64, "--class-weight 1,-2,3|from 0 on"},
      {"--data a.h5 --class-weight 1,inf,3", 64, "--class-weight 1,inf,3|from 0 on"},
      {"--data a.h5 --class-weight 1,,3", 64, "--class-weight 1,,3|commas"},
      {"--data a.h5 --class-weight 0,0,0", 64, "--class-weight 0,0,0: all weights are 0"},
      {"--data n.h5 --class-weight balanced", 64, "--class-weight is for classes|--weights NAME"},
      {"--synthetic 9 --in 4 --hidden 8 --weights w", 64, "--weights|--data"},
      {"--data b.csv --weights a,y", 64, "--weights a,y: one column works"},
      {"--data b.csv --weights v", 64, "--weights v: v is no column of b.csv|a, w, y"},
      {"--data b.csv --target y --weights y", 64, "--weights y: this column is the target"},
      {"--data b.csv --weights w", 65, "b.csv: row 1 (from 0) of column w is no number"},
  };
  static const double values[4][6] = {
      {1, 1, 1, 1, -1, 1}, {1, 1, NAN, 1, 1, 1}, {1e-30, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 1}};
  word = 1;
  draw(6, 1, 0);
  write_file("n.h5", 0);
  write_file("a.h5", 1);
  const hsize_t size = 6;
  hid_t file = H5Fopen("a.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put(file, "wrong", H5T_NATIVE_DOUBLE, 1, &size, values[0]);
  put(file, "nan", H5T_NATIVE_DOUBLE, 1, &size, values[1]);
  put(file, "small", H5T_NATIVE_DOUBLE, 1, &size, values[2]);
  put(file, "last", H5T_NATIVE_DOUBLE, 1, &size, values[3]);
  put(file, "none", H5T_NATIVE_DOUBLE, 1, &size, (double[6]){0});
  H5Fclose(file);
  FILE *csv = fopen("b.csv", "w");
  assert_non_null(csv);
  fputs("a,w,y\n4,1,0.5\n2,,0.7\n3,2,0.1\n4,1,0.2\n", csv);
  assert_int_equal(fclose(csv), 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[256];
    snprintf(line, sizeof line, "train --quiet --device cpu --steps 2 %s", wrong[i].line);
    assert_complains(line, run(line), wrong[i].status, wrong[i].words);
  }
}

/* Also of rows that are held out of these; NULL takes them back. */
static void the_library_weighs_rows(void **state) {
  (void)state;
  static const float x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, y[10] = {0};
  static const double refused[][10] = {{1, -1}, {INFINITY}, {0}, {1, NAN}, {1e21}, {1e-21}};
  struct mn_dataset *d;
  double weights[10];
  for (int i = 0; i < 10; i++) weights[i] = 10 + i;
  for (int part = MN_PART_TRAIN; part <= MN_PART_TEST; part++) {
    assert_int_equal(mn_dataset_arrays(&d, x, y, 10, 1, 1), MN_OK);
    for (int i = 0; i < 6; i++) assert_int_equal(mn_dataset_weigh(d, refused[i]), MN_USAGE);
    assert_int_equal(mn_dataset_weigh(d, weights), MN_OK);
    assert_int_equal(mn_dataset_hold_out(&d, (enum mn_part)part, 0.3, 1, 1), MN_OK);
    for (int64_t i = 0; i < d->rows; i++) assert_true(d->weights[i] == 10 + (double)mn_dataset_row(d, i));
    assert_int_equal(mn_dataset_weigh(d, NULL), MN_OK);
    assert_null(d->weights);
    mn_dataset_close(d);
  }
}

int main(void) {
  static char cpu[] = "cpu", cuda[] = "cuda";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(rows_of_weight_0_teach_nothing, cpu),
      cmocka_unit_test_prestate(rows_of_weight_0_teach_nothing, cuda),
      cmocka_unit_test_prestate(one_everywhere_is_none, cpu),
      cmocka_unit_test_prestate(one_everywhere_is_none, cuda),
      cmocka_unit_test_prestate(factors_of_classes_are_weights, cpu),
      cmocka_unit_test_prestate(factors_of_classes_are_weights, cuda),
      cmocka_unit_test_prestate(a_csv_has_a_column, cpu),
      cmocka_unit_test_prestate(weights_count_rows, cpu),
      cmocka_unit_test_prestate(weights_count_rows, cuda),
      cmocka_unit_test_prestate(tests_have_the_rows_weights, cpu),
      cmocka_unit_test_prestate(tests_have_the_rows_weights, cuda),
      cmocka_unit_test_prestate(folds_are_not_tested_by_factors_of_classes, cpu),
      cmocka_unit_test_prestate(a_resumed_run_keeps_them, cpu),
      cmocka_unit_test_prestate(a_resumed_run_keeps_them, cuda),
      cmocka_unit_test(bad_weights_are_refused),
      cmocka_unit_test(the_library_weighs_rows),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
