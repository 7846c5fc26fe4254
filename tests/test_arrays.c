/* Rows in a program's own arrays: a run on them ends in the same bytes as one on a file of the same rows, they
 * are checked as a file's are, and mn_model_predict gives an evaluator's outputs. */
#include "tests/all.h"
#include "tests/check.h"

#include <unistd.h>

enum { BATCH = 32, STEPS = 20 };
static const char data[] = "data/digits.h5";

/* All rows of a dataset as arrays; y are labels or floats. free() both. */
struct rows {
  int64_t count, inputs, outputs;
  float *x;
  void *y;
};

static struct rows rows_of(struct mn_dataset *d) {
  struct rows r = {d->rows, d->inputs, d->outputs, NULL, NULL};
  r.x = malloc((size_t)(d->rows * d->inputs) * sizeof *r.x);
  r.y = malloc((size_t)(d->rows * d->outputs) * sizeof(float));
  assert_true(r.x && r.y);
  MUST(d->read(d, 0, d->rows, sizeof(float), r.x, r.y));
  return r;
}

static struct mn_model *open_model(struct mn_device *device, const struct mn_dataset *d) {
  struct mn_model_config config = mn_model_defaults();
  struct mn_model *model;
  config.inputs = d->inputs, config.depth = 1, config.hidden[0] = 32, config.head = d->outputs;
  if (d->classes) config.loss = MN_LOSS_CROSS_ENTROPY;
  MUST(mn_model_open(&model, device, &config));
  MUST(mn_model_initialise(model, 3));
  return model;
}

/* The model after STEPS steps on `rows`. */
static struct mn_model *train(struct mn_device *device, struct mn_dataset *rows, enum mn_rule_kind rule,
                              enum mn_place place) {
  struct mn_model *model = open_model(device, rows);
  struct mn_optimizer_config steps = mn_optimizer_defaults(rule);
  struct mn_trainer_config config = mn_trainer_defaults(rule, STEPS);
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
  config.batch = BATCH, config.place = place;
  MUST(mn_optimizer_open(&optimizer, model, &steps));
  MUST(mn_trainer_open(&trainer, model, optimizer, rows, &config, NULL));
  MUST(mn_trainer_run(trainer, STEPS, NULL, NULL));
  mn_trainer_close(trainer), mn_optimizer_close(optimizer);
  return model;
}

static void assert_same_models(const struct mn_model *a, const struct mn_model *b) {
  for (int i = 0; i < a->count; i++) {
    double *left = read_values(a->device, a->parameters[i]),
           *right = read_values(b->device, b->parameters[i]);
    assert_memory_equal(left, right, (size_t)mn_tensor_count(a->parameters[i]) * sizeof *left);
    free(left), free(right);
  }
}

/* The same rows from a file, or a teacher, and from arrays; in every place, and in double. */
static void a_run_on_arrays_is_the_run_on_a_file(void **state) {
  static const char *const precisions[] = {"fp32", "fp64"};
  for (int i = 0; i < 4; i++) {
    struct mn_device *device = open_or_skip(*state, precisions[i % 2]);
    struct mn_dataset *from, *arrays;
    if (i < 2)
      MUST(mn_dataset_open(&from, data, MN_PART_TRAIN, NULL, NULL, 1));
    else
      MUST(mn_dataset_synthetic(&from, MN_PART_TRAIN, 300, 12, 3, 1, 0.1, 0, NULL));
    struct rows r = rows_of(from);
    MUST(i < 2 ? mn_dataset_labelled(&arrays, r.x, r.y, r.count, r.inputs)
               : mn_dataset_arrays(&arrays, r.x, r.y, r.count, r.inputs, r.outputs));
    assert_true(arrays->rows == r.count && arrays->inputs == r.inputs && arrays->outputs == r.outputs);
    assert_int_equal(arrays->classes, i < 2);
    if (i == 3) {
      mn_dataset_close(from);
      MUST(mn_dataset_arrays(&from, r.x, r.y, r.count, r.inputs, r.outputs));
    }
    for (int place = MN_PLACE_DEVICE; place <= MN_PLACE_FILE; place++) {
      struct mn_model *one = train(device, from, i < 2 ? MN_SGD : MN_ADAMW, MN_PLACE_AUTO);
      struct mn_model *other = train(device, arrays, i < 2 ? MN_SGD : MN_ADAMW, (enum mn_place)place);
      assert_same_models(one, other);
      mn_model_close(one), mn_model_close(other);
    }
    mn_dataset_close(arrays), mn_dataset_close(from), mn_device_close(device);
    free(r.x), free(r.y);
  }
}

/* A part of the arrays, and its columns. */
static void arrays_are_divided_and_measured(void **state) {
  enum { ROWS = 100 };
  float x[ROWS * 2], got[2];
  int32_t labels[ROWS], label;
  struct mn_dataset *test, *train;
  struct mn_columns columns;
  for (int i = 0; i < ROWS; i++) x[2 * i] = (float)i, x[2 * i + 1] = 7, labels[i] = i % 4;
  MUST(mn_dataset_labelled(&test, x, labels, ROWS, 2));
  MUST(mn_dataset_labelled(&train, x, labels, ROWS, 2));
  MUST(mn_columns_measure(&columns, train, MN_X, ROWS, NULL));
  assert_true(fabs(columns.mean[0] - 49.5) < 1e-12 && columns.mean[1] == 7 && columns.deviation[1] == 0);
  mn_columns_free(&columns);
  MUST(mn_dataset_hold_out(&test, MN_PART_TEST, 0.2, 1, 1));
  MUST(mn_dataset_hold_out(&train, MN_PART_TRAIN, 0.2, 1, 0));
  assert_true(test->rows == 20 && train->rows == 80 && test->outputs == 4);
  for (int64_t i = 0; i < test->rows; i++) {
    const int64_t row = mn_dataset_row(test, i);
    MUST(test->read(test, i, 1, sizeof(float), got, &label));
    assert_true(got[0] == (float)row && label == row % 4);
  }
  mn_dataset_close(test), mn_dataset_close(train);
}

#define REFUSED(call, code, words)                                                                           \
  do {                                                                                                       \
    assert_int_equal(call, code);                                                                            \
    assert_string_equal(mn_message(), words);                                                                \
  } while (0)

/* Doubles train the model that their floats do, where these are the same numbers; and where floats would be
 * equal, x is still told apart. */
static void doubles_are_rounded_last(void **state) {
  enum { ROWS = 96 };
  struct mn_device *device = open_or_skip(*state, "fp32");
  float x[ROWS * 12], y[ROWS * 3];
  double wide[ROWS * 12], far[ROWS], out[ROWS], targets[ROWS * 3], mean = 1.6e9, scale = 30;
  struct mn_dataset *floats, *doubles, *days;
  struct mn_predictor *p;
  for (int i = 0; i < ROWS * 12; i++) wide[i] = x[i] = (float)sin(i);
  for (int i = 0; i < ROWS * 3; i++) targets[i] = y[i] = (float)cos(i);
  for (int i = 0; i < ROWS; i++) far[i] = 1.6e9 + i;
  MUST(mn_dataset_arrays(&floats, x, y, ROWS, 12, 3));
  MUST(mn_dataset_doubles(&doubles, wide, targets, NULL, ROWS, 12, 3));
  struct mn_model *one = train(device, floats, MN_ADAMW, MN_PLACE_AUTO),
                  *other = train(device, doubles, MN_ADAMW, MN_PLACE_AUTO), *of_days;
  assert_same_models(one, other);
  MUST(mn_dataset_doubles(&days, far, NULL, NULL, ROWS, 1, 0));
  struct mn_model_config config = mn_model_defaults();
  config.inputs = config.depth = config.groups = config.head = 1, config.hidden[0] = 8;
  MUST(mn_model_open(&of_days, device, &config));
  MUST(mn_model_initialise(of_days, 1));
  MUST(mn_model_standardize(of_days, &mean, &scale));
  MUST(mn_predictor_open(&p, of_days, ROWS));
  MUST(mn_predict_rows(p, days, 0, ROWS, out));
  for (int i = 1; i < ROWS; i++) assert_true(out[i] != out[i - 1]);
  far[7] = 1e300;
  REFUSED(days->read(days, 5, 4, sizeof(float), x, NULL), MN_BAD_DATA,
          "the arrays: dataset x, row 7, column 0 (from 0) is inf (as a float); every value must be finite: "
          "replace it");
  far[7] = NAN;
  assert_int_equal(mn_predict_rows(p, days, 0, ROWS, out), MN_BAD_DATA);
  mn_predictor_close(p);
  mn_model_close(one), mn_model_close(other), mn_model_close(of_days);
  mn_dataset_close(floats), mn_dataset_close(doubles), mn_dataset_close(days), mn_device_close(device);
}

/* A program's names of classes stand in the file, as those of a file of words do. */
static void classes_get_names(void **state) {
  static const char *const good[] = {"ash", "elm", "oak"}, *const unsorted[] = {"ash", "oak", "elm"},
                           *const twice[] = {"ash", "elm", "elm"}, *const empty[] = {"", "elm", "oak"},
                           *const lacks[] = {"ash", NULL, "oak"};
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_model_config config = mn_model_defaults();
  struct mn_model *model;
  config.inputs = config.depth = config.groups = 1, config.hidden[0] = 8, config.head = 3;
  config.loss = MN_LOSS_CROSS_ENTROPY;
  MUST(mn_model_open(&model, device, &config));
  assert_int_equal(mn_model_classes(model, good, 2), MN_USAGE);
  assert_int_equal(mn_model_classes(model, unsorted, 3), MN_USAGE);
  assert_int_equal(mn_model_classes(model, twice, 3), MN_USAGE);
  assert_int_equal(mn_model_classes(model, empty, 3), MN_USAGE);
  REFUSED(mn_model_classes(model, lacks, 3), MN_USAGE,
          "class 1 is called '': 1 to 63 bytes, in order of their bytes and none twice, work");
  assert_null(mn_model_class(model, 0));
  MUST(mn_model_classes(model, good, 3));
  assert_string_equal(mn_model_class(model, 2), "oak");
  mn_model_close(model), mn_device_close(device);
}

static void what_no_arrays_are_is_refused(void **state) {
  float x[6] = {0}, y[3] = {0}, got[6];
  double wide[6];
  int32_t labels[3] = {0, 4, 1};
  struct mn_dataset *d = (struct mn_dataset *)x;
  REFUSED(mn_dataset_arrays(&d, x, y, 0, 2, 1), MN_USAGE,
          "arrays of 0 rows, 2 inputs and 1 outputs: at least 1, 1 and 0 work, and an array that is not NULL "
          "for each");
  assert_null(d);
  assert_int_equal(mn_dataset_arrays(&d, x, y, 3, 0, 1), MN_USAGE);
  assert_int_equal(mn_dataset_arrays(&d, x, y, 3, 2, -1), MN_USAGE);
  assert_int_equal(mn_dataset_labelled(&d, x, labels, -1, 2), MN_USAGE);
  assert_int_equal(mn_dataset_arrays(&d, NULL, y, 3, 2, 1), MN_USAGE);
  assert_int_equal(mn_dataset_arrays(&d, x, NULL, 3, 2, 1), MN_USAGE);
  assert_int_equal(mn_dataset_labelled(&d, x, NULL, 3, 2), MN_USAGE);
  assert_non_null(strstr(mn_message(), "an array that is not NULL"));
  MUST(mn_dataset_arrays(&d, x, NULL, 3, 2, 0));
  MUST(d->read(d, 0, 3, sizeof(float), got, NULL));
  REFUSED(d->read(d, 0, 3, sizeof(float), got, y), MN_USAGE, "y is asked for, but the data has none");
  x[5] = NAN;
  REFUSED(d->read(d, 1, 2, sizeof(float), got, NULL), MN_BAD_DATA,
          "the arrays: dataset x, row 2, column 1 (from 0) is nan; every value must be finite: replace it");
  assert_int_equal(d->read(d, 0, 3, sizeof(double), wide, NULL), MN_BAD_DATA);
  MUST(d->read(d, 0, 2, sizeof(float), got, NULL));
  mn_dataset_close(d);
  y[1] = -INFINITY;
  MUST(mn_dataset_arrays(&d, x, y, 3, 2, 1));
  assert_int_equal(d->read(d, 0, 3, sizeof(float), NULL, got), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "dataset y, row 1, column 0 (from 0) is -inf"));
  mn_dataset_close(d);
  MUST(mn_dataset_labelled(&d, x, labels, 3, 2));
  assert_true(d->classes && d->outputs == 5);
  labels[2] = 5; /* afterwards */
  assert_int_equal(d->read(d, 0, 3, sizeof(float), NULL, got), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "row 2 (from 0) of the arrays has the label 5"));
  mn_dataset_close(d);
  labels[1] = -2;
  REFUSED(mn_dataset_labelled(&d, x, labels, 3, 2), MN_BAD_DATA,
          "row 1 (from 0) of the arrays has the label -2, but a dataset has 2147483648 classes, 0 to "
          "2147483647: correct it, or leave out the row");
  assert_null(d);
}

/* What a predictor gives for the rows of a dataset, 100 at a time. */
static void compare(struct mn_model *model, struct mn_dataset *rows, const float *expected) {
  struct mn_predictor *p;
  double *y = malloc(100 * (size_t)rows->outputs * sizeof *y);
  assert_non_null(y);
  MUST(mn_predictor_open(&p, model, 100));
  for (int64_t first = 0, count; first < rows->rows; first += count) {
    count = rows->rows - first < 100 ? rows->rows - first : 100;
    MUST(mn_predict_rows(p, rows, first, count, y));
    for (int64_t i = 0; i < count * rows->outputs; i++)
      assert_true(fabs((double)expected[first * rows->outputs + i] - y[i]) <= 1e-4 * (1 + fabs(y[i])));
  }
  mn_predictor_close(p);
  free(y);
}

/* Also of a model that standardises, in double, and once it is loaded from a file. */
static void predictions_are_those_of_a_datasets_rows(void **state) {
  static const char *const precisions[] = {"fp32", "fp64"};
  char folder[] = "/tmp/minnow-XXXXXX", path[64];
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/model.h5", folder);
  for (int i = 0; i < 2; i++) {
    struct mn_device *device = open_or_skip(*state, precisions[i]);
    struct mn_dataset *digits;
    struct mn_columns columns;
    MUST(mn_dataset_open(&digits, data, MN_PART_TRAIN, NULL, NULL, 1));
    MUST(mn_columns_measure(&columns, digits, MN_X, digits->rows, NULL));
    struct rows r = rows_of(digits);
    const size_t bytes = (size_t)(r.count * r.outputs) * sizeof(float);
    float *y = malloc(bytes), *again = malloc(bytes);
    struct mn_model *model = open_model(device, digits), *loaded;
    MUST(mn_model_standardize(model, columns.mean, columns.scale));
    MUST(mn_model_predict(model, r.x, r.count, y));
    compare(model, digits, y);
    MUST(mn_model_save(model, path));
    MUST(mn_model_load(&loaded, device, path));
    MUST(mn_model_predict(loaded, r.x, r.count, again));
    assert_memory_equal(y, again, bytes);
    MUST(mn_model_predict(loaded, r.x, 1, again));
    for (int64_t k = 0; k < r.outputs; k++) assert_true(fabsf(y[k] - again[k]) <= 1e-4F * (1 + fabsf(y[k])));
    assert_int_equal(mn_model_predict(loaded, r.x, 0, again), MN_USAGE);
    r.x[65] = NAN;
    assert_int_equal(mn_model_predict(loaded, r.x, 2, again), MN_BAD_DATA);
    r.x[65] = 3e38F;
    assert_int_equal(mn_model_predict(loaded, r.x, 2, again), i ? MN_OK : MN_FAILED);
    if (i == 0) assert_non_null(strstr(mn_message(), "row 1"));
    if (i == 1) { /* finite in double alone */
      const double bias[10] = {1e60};
      MUST(mn_tensor_write(device, loaded->parameters[loaded->count - 1], bias));
      assert_int_equal(mn_model_predict(loaded, r.x, 2, again), MN_FAILED);
    }
    mn_columns_free(&columns);
    mn_model_close(loaded), mn_model_close(model), mn_dataset_close(digits), mn_device_close(device);
    free(y), free(again), free(r.x), free(r.y);
    assert_int_equal(unlink(path), 0);
  }
  assert_int_equal(rmdir(folder), 0);
}

/* What was left 0 in a config that did not begin with the defaults. */
static void a_forgotten_eps_is_refused(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_model_config config = mn_model_defaults();
  struct mn_model *model = (struct mn_model *)device;
  config.inputs = 4, config.depth = 1, config.hidden[0] = 8;
  MUST(mn_model_open(&model, device, &config));
  mn_model_close(model);
  config.eps = 0;
  REFUSED(mn_model_open(&model, device, &config), MN_USAGE,
          "a model's eps is 0: a finite number above 0, such as 1e-5 would do");
  assert_null(model);
  config.eps = 1e-5, config.slope = NAN;
  assert_int_equal(mn_model_open(&model, device, &config), MN_USAGE);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ON("cpu", a_run_on_arrays_is_the_run_on_a_file),
      ON("cuda", a_run_on_arrays_is_the_run_on_a_file),
      cmocka_unit_test(arrays_are_divided_and_measured),
      cmocka_unit_test(what_no_arrays_are_is_refused),
      ON("cpu", doubles_are_rounded_last),
      ON("cuda", doubles_are_rounded_last),
      ON("cpu", classes_get_names),
      ON("cpu", predictions_are_those_of_a_datasets_rows),
      ON("cuda", predictions_are_those_of_a_datasets_rows),
      ON("cpu", a_forgotten_eps_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
