/* What predict writes beside the outputs, and what eval tells beside the loss: each compared with the file's
 * own rows, or computed anew from the outputs and targets that predict wrote. */
#include <jansson.h>

#include "tests/command_run.h"

enum { ROWS = 300, TARGETS = 10, CONSTANT = 1, HELD = 30, MOST = 25 };

static float x[ROWS * I], numbers[ROWS * TARGETS];
static int labels[ROWS], many[ROWS];

/* What an output file holds. */
static float y[ROWS * MOST], target[ROWS * TARGETS];
static int label[ROWS], class[ROWS];
static int64_t row[ROWS];

static float next(void) {
  static uint32_t word = 5;
  return (float)((word = word * 1664525 + 1013904223) >> 8) / 8388608 - 1;
}

/* Reads a dataset into `to`; returns its rows, and −1 if there is none of that name. */
static int get(const char *name, const char *set, hid_t memory, int rank, void *to) {
  hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
  hsize_t sizes[2] = {0};
  assert_true(file >= 0);
  if (H5Lexists(file, set, H5P_DEFAULT) > 0) {
    hid_t data = H5Dopen2(file, set, H5P_DEFAULT), space = H5Dget_space(data);
    assert_int_equal(H5Sget_simple_extent_ndims(space), rank);
    H5Sget_simple_extent_dims(space, sizes, NULL);
    assert_true(sizes[0] <= ROWS && sizes[1] <= MOST);
    assert_true(H5Dread(data, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0);
    H5Sclose(space), H5Dclose(data);
  }
  H5Fclose(file);
  return sizes[0] ? (int)sizes[0] : -1;
}

#define TRAIN "train --quiet --device cpu --hidden 8 --groups 2 --batch 10 --epochs 3 --seed 3 "
#define PREDICT "predict --device cpu --force --out out.h5 "
#define EVAL "eval --quiet --device cpu "

static void rows_have_their_number_and_target(void **state) {
  static const char *const parts[] = {"all", "train", "test", "auto"};
  const int counts[] = {ROWS, ROWS - HELD, HELD, HELD};
  static float all[ROWS * TARGETS];
  int taken[ROWS] = {0};
  run_well(TRAIN "--data numbers.h5 --validation 0.1 --run v");
  for (int p = 0; p < 4; p++) {
    char line[300];
    snprintf(line, sizeof line, PREDICT "--run v --data numbers.h5 --part %s", parts[p]);
    const struct result *r = run_well(line);
    assert_int_equal(strstr(r->err, "30 of 300, those that the run held out") != NULL, p >= 2);
    assert_int_equal(get("out.h5", "row", H5T_NATIVE_INT64, 1, row), counts[p]);
    assert_int_equal(get("out.h5", "y", H5T_NATIVE_FLOAT, 2, y), counts[p]);
    assert_int_equal(get("out.h5", "target", H5T_NATIVE_FLOAT, 2, target), counts[p]);
    assert_int_equal(get("out.h5", "label", H5T_NATIVE_INT, 1, label), -1);
    if (p == 0) memcpy(all, y, sizeof all);
    for (int n = 0; n < counts[p]; n++) {
      assert_true(row[n] >= 0 && row[n] < ROWS && (n == 0 || row[n] > row[n - 1]));
      assert_memory_equal(target + n * TARGETS, numbers + row[n] * TARGETS, TARGETS * sizeof *target);
      for (int k = 0; k < TARGETS; k++)
        assert_true(fabsf(y[n * TARGETS + k] - all[row[n] * TARGETS + k]) < 1e-5f);
      taken[row[n]] += p == 1 || p == 2;
    }
  }
  for (int n = 0; n < ROWS; n++) assert_int_equal(taken[n], 1);
}

static void classes_are_targets_too(void **state) {
  run_well(TRAIN "--data classes.h5 --run c");
  for (int named = 0; named < 2; named++) {
    run_well(named ? PREDICT "--run c --data classes.h5 --y names/many"
                   : PREDICT "--run c --data classes.h5");
    assert_int_equal(get("out.h5", "target", H5T_NATIVE_INT, 1, class), ROWS);
    assert_memory_equal(class, named ? many : labels, sizeof class);
  }
  const char *line = PREDICT "--run c --data classes.h5 --y names/none";
  assert_complains(line, run(line), 65, "names/none");
}

/* Rows without targets are all predicted, be they as many as the run's; and so are those of unknown target.
 */
static void targets_may_be_missing(void **state) {
  static float known[ROWS * TARGETS];
  run_well(TRAIN "--data numbers.h5 --validation 0.1 --run m");
  run_well(PREDICT "--run m --data numbers.h5 --part all");
  assert_int_equal(get("out.h5", "y", H5T_NATIVE_FLOAT, 2, known), ROWS);
  for (int unknown = 0; unknown < 2; unknown++) {
    const struct result *r = run_well(unknown ? PREDICT "--run m --data unknown.h5 --part all"
                                              : PREDICT "--run m --data unlabeled.h5");
    assert_int_equal(strstr(r->err, "warning: ") && strstr(r->err, "row 7, column 2"), unknown);
    assert_null(strstr(r->out, "target"));
    assert_int_equal(get("out.h5", "target", H5T_NATIVE_FLOAT, 2, target), -1);
    assert_int_equal(get("out.h5", "y", H5T_NATIVE_FLOAT, 2, y), ROWS);
    assert_memory_equal(y, known, sizeof known);
    assert_int_equal(get("out.h5", "row", H5T_NATIVE_INT64, 1, row), ROWS);
    for (int n = 0; n < ROWS; n++) assert_int_equal(row[n], n);
  }
}

/* The weights of a run whose first output is larger by far than exp can take. */
static void write_steep(const char *name, const char *from) {
  float bias[5];
  hid_t run = H5Fopen(from, H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t file = create_file(name);
  assert_true(H5Ocopy(run, "model", file, "model", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  hid_t set = H5Dopen2(file, "model/head.bias", H5P_DEFAULT);
  assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, bias) >= 0);
  for (int k = 0; k < 5; k++) bias[k] += 5000;
  assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, bias) >= 0);
  H5Dclose(set), H5Fclose(file), H5Fclose(run);
}

static void probabilities_are_the_softmax(void **state) {
  static float logits[ROWS * 5];
  static int of_logits[ROWS];
  run_well(TRAIN "--data classes.h5 --run p");
  write_steep("steep.h5", "p/checkpoint.h5");
  static const char *const models[] = {"p/checkpoint.h5", "p/checkpoint.h5 --precision fp64",
                                       "steep.h5 --groups 2"};
  for (int m = 0; m < 3; m++) {
    char line[300];
    snprintf(line, sizeof line, PREDICT "--data classes.h5 --run %s", models[m]);
    assert_null(strstr(run_well(line)->out, "probabilities"));
    assert_int_equal(get("out.h5", "y", H5T_NATIVE_FLOAT, 2, logits), ROWS);
    assert_int_equal(get("out.h5", "label", H5T_NATIVE_INT, 1, of_logits), ROWS);
    snprintf(line, sizeof line, PREDICT "--data classes.h5 --probabilities --run %s", models[m]);
    assert_non_null(strstr(run_well(line)->out, "probabilities"));
    assert_int_equal(get("out.h5", "y", H5T_NATIVE_FLOAT, 2, y), ROWS);
    assert_int_equal(get("out.h5", "label", H5T_NATIVE_INT, 1, label), ROWS);
    assert_memory_equal(label, of_logits, sizeof label);
    for (int n = 0; n < ROWS; n++)
      for (int k = 0; k < 5; k++) {
        double sum = 0;
        for (int j = 0; j < 5; j++) sum += exp((double)logits[n * 5 + j] - (double)logits[n * 5 + k]);
        assert_true(fabs((double)y[n * 5 + k] - 1 / sum) < 1e-6);
      }
  }
  run_well(TRAIN "--data numbers.h5 --run mse");
  const char *line = "predict --device cpu --out none.h5 --probabilities --run mse --data numbers.h5";
  assert_complains(line, run(line), 64, "--probabilities|mse/checkpoint.h5|leave");
  assert_int_equal(access("none.h5", F_OK), -1);
}

static json_t *eval(const char *line) {
  json_t *object = json_loads(run_well(line)->out, 0, NULL);
  assert_non_null(object);
  return object;
}

static double at(const json_t *object, const char *key, size_t k) {
  const json_t *array = json_object_get(object, key), *value = json_array_get(array, k);
  if (!value) fail_msg("no %s[%zu]", key, k);
  return json_is_null(value) ? NAN : json_number_value(value);
}

/* Scores from outputs and targets as predict wrote them. */
static void numbers_are_scored(void **state) {
  run_well(TRAIN "--data numbers.h5 --run n");
  run_well(PREDICT "--run n --data numbers.h5");
  static double wide[ROWS * TARGETS];
  assert_int_equal(get("out.h5", "y", H5T_NATIVE_DOUBLE, 2, wide), ROWS);
  json_t *object = eval(EVAL "--json --run n --data numbers.h5");
  double all = 0;
  assert_int_equal(json_array_size(json_object_get(object, "r2")), TARGETS);
  assert_int_equal(json_array_size(json_object_get(object, "rmse")), TARGETS);
  for (size_t k = 0; k < TARGETS; k++) {
    double mean = 0, spread = 0, error = 0;
    for (int n = 0; n < ROWS; n++) mean += (double)numbers[n * TARGETS + k] / ROWS;
    for (int n = 0; n < ROWS; n++) {
      spread += pow((double)numbers[n * TARGETS + k] - mean, 2);
      error += pow((double)numbers[n * TARGETS + k] - wide[n * TARGETS + k], 2);
    }
    const double r2 = at(object, "r2", k), rmse = at(object, "rmse", k);
    /* Targets are rounded to floats when they are standardised. */
    assert_true(fabs(rmse - sqrt(error / ROWS)) < 1e-7 * rmse);
    if (k == CONSTANT) assert_true(isnan(r2));
    if (k != CONSTANT) assert_true(fabs(r2 - (1 - error / spread)) < 1e-7);
    all += error;
  }
  /* The loss is the device's, of floats. */
  const double loss = json_number_value(json_object_get(object, "loss"));
  assert_true(fabs(loss - all / ROWS / TARGETS) < 1e-5 * loss);
  assert_true(json_is_null(json_object_get(object, "accuracy")));
  json_decref(object);
  const char *out = run_well(EVAL "--run n --data numbers.h5")->out;
  assert_int_equal(strncmp(out, "rows: 300\nloss: ", 16), 0);
  assert_int_equal(lines(out), 5);
  assert_non_null(strstr(out, " none ")); /* the R2 of a constant target */
  assert_non_null(strstr(out, " … (--json has all)\n"));
}

/* Datasets side by side are what one of all their columns is, floats and integers. */
static void targets_may_be_several(void **state) {
  static float first[ROWS], both[ROWS * 2], all[ROWS * 4];
  static int32_t whole[ROWS];
  hid_t file = create_file("several.h5");
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, I}, x);
  for (int n = 0; n < ROWS; n++) {
    all[n * 4] = first[n] = numbers[n * TARGETS] + 7, all[n * 4 + 1] = (float)(whole[n] = n % 5);
    for (int k = 0; k < 2; k++) all[n * 4 + 2 + k] = both[n * 2 + k] = numbers[n * TARGETS + 2 + k];
  }
  put(file, "part/a", H5T_NATIVE_FLOAT, 1, (hsize_t[]){ROWS}, first);
  put(file, "b", H5T_NATIVE_INT32, 1, (hsize_t[]){ROWS}, whole);
  put(file, "c", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, 2}, both);
  put(file, "y", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, 4}, all);
  H5Fclose(file);
  run_well(TRAIN "--data several.h5 --validation 0.1 --run one");
  run_well(TRAIN "--data several.h5 --y part/a,b,c --validation 0.1 --run several");
  const struct result *r = run_well("diff one several --json");
  assert_non_null(strstr(r->out, "\"tensors\":[]"));
  char *const scores = strdup(run_well(EVAL "--run one --data several.h5 --json")->out);
  assert_string_equal(scores, run_well(EVAL "--run several --data several.h5 --json")->out);
  free(scores);
  run_well(PREDICT "--run several --data several.h5");
  assert_int_equal(get("out.h5", "target", H5T_NATIVE_FLOAT, 2, target), HELD);
  assert_int_equal(get("out.h5", "row", H5T_NATIVE_LLONG, 1, row), HELD);
  for (int n = 0; n < HELD; n++) assert_memory_equal(target + n * 4, all + row[n] * 4, 4 * sizeof *target);
  /* To predict none is needed; to train all are. */
  r = run_well("predict --device cpu --force --out out.h5 --run several --data numbers.h5 --part all");
  assert_null(strstr(r->out, "target"));
  assert_complains("lacks one", run(TRAIN "--data several.h5 --y c,nope"), 65, "several.h5|nope");
}

/* With --y-scale log predictions and scores are in the units of y, in HDF5 and CSV, also of rows held out. */
static void logarithms_are_undone(void **state) {
  static float prices[ROWS];
  FILE *csv = fopen("prices.csv", "w");
  hid_t file = create_file("prices.h5");
  fprintf(csv, "a,b,c,d,price\n");
  for (int n = 0; n < ROWS; n++) {
    prices[n] = expf(3 * x[n * I] + x[n * I + 1]);
    for (int i = 0; i < I; i++) fprintf(csv, "%.9g,", (double)x[n * I + i]);
    fprintf(csv, "%.9g\n", (double)prices[n]);
  }
  fclose(csv);
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, I}, x);
  put(file, "y", H5T_NATIVE_FLOAT, 1, (hsize_t[]){ROWS}, prices);
  H5Fclose(file);
  for (int t = 0; t < 2; t++) {
    static double outputs[HELD];
    const char *const data = t ? "prices.csv" : "prices.h5";
    char line[256];
    double mean = 0, error = 0, spread = 0;
    forget("log");
    snprintf(line, sizeof line,
             TRAIN "--epochs 20 --y-scale log --loss mse --validation 0.1 --run log --data %s", data);
    run_well(line);
    snprintf(line, sizeof line, PREDICT "--run log --data %s", data);
    run_well(line);
    assert_int_equal(get("out.h5", "y", H5T_NATIVE_DOUBLE, 2, outputs), HELD);
    assert_int_equal(get("out.h5", "row", H5T_NATIVE_LLONG, 1, row), HELD);
    assert_int_equal(get("out.h5", "target", H5T_NATIVE_FLOAT, t ? 2 : 2, target), HELD);
    for (int n = 0; n < HELD; n++) assert_true(fabsf(target[n] - prices[row[n]]) <= 1e-6f * target[n]);
    for (int n = 0; n < HELD; n++)
      mean += (double)target[n] / HELD, error += pow(outputs[n] - (double)target[n], 2);
    for (int n = 0; n < HELD; n++) spread += pow((double)target[n] - mean, 2);
    snprintf(line, sizeof line, EVAL "--json --run log --data %s", data);
    json_t *object = eval(line);
    assert_true(fabs(at(object, "r2", 0) - (1 - error / spread)) < 1e-6);
    assert_true(at(object, "r2", 0) > 0.5 && outputs[0] > 0);
    snprintf(line, sizeof line, PREDICT "--run log --data %s %s", data, t ? "" : "--y y"); /* named again */
    run_well(line);
    assert_int_equal(get("out.h5", "target", H5T_NATIVE_FLOAT, 2, target), HELD);
    for (int n = 0; n < HELD; n++) assert_true(fabsf(target[n] - prices[row[n]]) <= 1e-6f * target[n]);
    json_decref(object);
    run_well("train --quiet --device cpu --run log --resume --epochs 25");
  }
  assert_complains("classes", run(TRAIN "--y-scale log --data classes.h5"), 64, "--y-scale log|classes.h5");
  run_well(
      TRAIN
      "--y-scale log --standardize no --lr 0.001 --folds 3 --validation 0.1 --data prices.h5 --run plain");
  assert_complains("no means", run(PREDICT "--run plain --data prices.h5 --outside"), 64, "--outside|plain");
  assert_complains("linear", run(TRAIN "--init log --loss mse --data prices.csv"), 64,
                   "--init log|--y-scale log");
  run_well(TRAIN "--data prices.h5 --run linear");
  assert_complains("log", run(TRAIN "--init linear --y-scale log --data prices.h5"), 64, "--y-scale linear");
  assert_complains("below 0", run(TRAIN "--y-scale log --data numbers.h5"), 65, "row|above 0");
}

static void classes_are_counted(void **state) {
  static const char *const precisions[] = {"fp32", "fp64"};
  run_well(TRAIN "--data classes.h5 --run k");
  for (int p = 0; p < 2; p++) {
    char line[300];
    long counts[5][5] = {0}, in_text;
    snprintf(line, sizeof line, PREDICT "--run k --data classes.h5 --precision %s", precisions[p]);
    run_well(line);
    assert_int_equal(get("out.h5", "label", H5T_NATIVE_INT, 1, label), ROWS);
    for (int n = 0; n < ROWS; n++) counts[labels[n]][label[n]]++;
    snprintf(line, sizeof line, EVAL "--json --run k --data classes.h5 --precision %s", precisions[p]);
    json_t *object = eval(line), *matrix = json_object_get(object, "confusion");
    double right = 0;
    assert_int_equal(json_array_size(matrix), 5);
    for (size_t c = 0; c < 5; c++) {
      long of_class = 0;
      for (size_t k = 0; k < 5; k++) {
        assert_int_equal(json_integer_value(json_array_get(json_array_get(matrix, c), k)), counts[c][k]);
        of_class += counts[c][k];
      }
      assert_true(at(object, "class_rows", c) == (double)of_class);
      if (c == 3) assert_true(isnan(at(object, "recall", c))); /* it has no rows */
      if (c != 3) assert_true(at(object, "recall", c) == (double)counts[c][c] / (double)of_class);
      right += (double)counts[c][c];
    }
    assert_true(fabs(json_number_value(json_object_get(object, "accuracy")) - right / ROWS) < 1e-12);
    json_decref(object);
    snprintf(line, sizeof line, EVAL "--run k --data classes.h5 --precision %s", precisions[p]);
    char *text = (char *)run_well(line)->out;
    assert_int_equal(strncmp(text, "rows: 300\nloss: ", 16), 0);
    assert_int_equal(lines(text), 10 + 2 + 5);
    assert_non_null(strstr(text, " none ")); /* the recall of class 3 */
    text = strstr(text, "truth   predicted\n");
    for (int c = -1; c < 5; c++) /* the first line has the classes, as each line has its own */
      for (int k = c < 0 ? 0 : -1; k < 5; k++) {
        text = strpbrk(text, "0123456789");
        in_text = strtol(text, &text, 10);
        assert_int_equal(in_text, c < 0 ? k : k < 0 ? c : counts[c][k]);
      }
  }
}

static void many_classes_have_no_matrix(void **state) {
  run_well(TRAIN "--data classes.h5 --y names/many --run many");
  json_t *object = eval(EVAL "--json --run many --data classes.h5"); /* whose y is the run's */
  assert_int_equal(json_array_size(json_object_get(object, "recall")), MOST);
  assert_null(json_object_get(object, "confusion"));
  assert_true(json_is_null(json_object_get(object, "roc_auc")));
  json_decref(object);
  const char *out = run_well(EVAL "--run many --data classes.h5 --y names/many")->out;
  assert_int_equal(lines(out), 9);
  assert_null(strstr(out, "confusion"));
}

static void write_rows(const char *name, const char *of_y, hid_t type, int cols, const void *values) {
  hid_t file = create_file(name);
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, I}, x);
  if (values) put(file, of_y, type, cols > 1 ? 2 : 1, (hsize_t[]){ROWS, (hsize_t)cols}, values);
  if (type == H5T_NATIVE_INT) put(file, "names/many", type, 1, (hsize_t[]){ROWS}, many);
  H5Fclose(file);
}

static int prepare(void **state) {
  if (set_up(state) != 0) return -1;
  for (int i = 0; i < ROWS * I; i++) x[i] = next();
  for (int n = 0; n < ROWS; n++) {
    const float *of = x + n * I;
    for (int k = 0; k < TARGETS; k++)
      numbers[n * TARGETS + k] = k == CONSTANT ? 0.1f : of[k % I] * of[(k + 1) % I] + 0.3f * next();
    labels[n] = next() > 0.5f ? 2 : of[0] > 0.5f ? 4 : of[1] > of[2];
    many[n] = n % MOST;
  }
  write_rows("numbers.h5", "y", H5T_NATIVE_FLOAT, TARGETS, numbers);
  write_rows("unlabeled.h5", "y", H5T_NATIVE_FLOAT, 1, NULL);
  write_rows("classes.h5", "y", H5T_NATIVE_INT, 1, labels);
  static float unknown[ROWS * TARGETS];
  memcpy(unknown, numbers, sizeof unknown);
  unknown[7 * TARGETS + 2] = nanf("");
  write_rows("unknown.h5", "y", H5T_NATIVE_FLOAT, TARGETS, unknown);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_have_their_number_and_target),
      cmocka_unit_test(classes_are_targets_too),
      cmocka_unit_test(targets_may_be_missing),
      cmocka_unit_test(probabilities_are_the_softmax),
      cmocka_unit_test(numbers_are_scored),
      cmocka_unit_test(targets_may_be_several),
      cmocka_unit_test(logarithms_are_undone),
      cmocka_unit_test(classes_are_counted),
      cmocka_unit_test(many_classes_have_no_matrix),
  };
  return cmocka_run_group_tests(tests, prepare, tear_down);
}
