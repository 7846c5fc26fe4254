/* train standardises x and real y by default: columns are measured as they are, whatever their scale, and a
 * run on raw rows ends in the same bytes as one on rows that were standardised before; eval, predict and the
 * library apply what the checkpoint keeps, and undo it. */
#include "data/columns.h"
#include "data/dataset_file.h"
#include "tests/command_run.h"
#include "tests/files_same.h"
#include "train/checkpoint/checkpoint.h"
#include "train/evaluate.h"
#include "train/fit.h"

enum { ROWS = 700, COLS = 5 };

/* Scales over 10⁵, a mean of 10⁵ deviations, and a constant. */
static double raw[ROWS][COLS];
static double y[ROWS]; /* of a mean that is 10⁹ deviations */

static void fill(void) {
  uint32_t word = 7;
  for (int n = 0; n < ROWS; n++) {
    double u[COLS];
    for (int c = 0; c < COLS; c++) u[c] = (double)((word = word * 1664525 + 1013904223) >> 8) / 8388608 - 1;
    raw[n][0] = 1e-3 * u[0];
    raw[n][1] = 1e5 + u[1];
    raw[n][2] = 100 * u[2] - 40;
    raw[n][3] = 7.3;
    raw[n][4] = u[4];
    y[n] = 1e6 + 1e-3 * (sin(3 * u[0]) + u[1] * u[2]);
  }
}

static void write_rows(const char *name, hid_t type, const void *x, hid_t y_type, const void *targets) {
  const hsize_t sizes[] = {ROWS, COLS};
  hid_t file = create_file(name);
  put(file, "x", type, 2, sizes, x);
  put(file, "y", y_type, 1, sizes, targets);
  H5Fclose(file);
}

static void write_raw(const char *name, int as_float) {
  static float narrow[ROWS][COLS];
  for (int n = 0; n < ROWS; n++)
    for (int c = 0; c < COLS; c++) narrow[n][c] = (float)raw[n][c];
  write_rows(name, as_float ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, as_float ? (void *)narrow : raw,
             H5T_NATIVE_DOUBLE, y);
}

/* Compares with sums in long double, in two passes over the first and last `half` rows. */
static void assert_columns(const struct mn_columns *c, int half) {
  assert_int_equal(c->rows, 2 * half);
  assert_int_equal(c->cols, COLS);
  for (int i = 0; i < COLS; i++) {
    long double sum = 0, squares = 0;
    double least = raw[0][i], most = raw[0][i];
    for (int k = 0; k < 2 * half; k++) {
      const double value = raw[k < half ? k : ROWS - 2 * half + k][i];
      sum += value, least = fmin(least, value), most = fmax(most, value);
    }
    const long double mean = sum / (2 * half);
    for (int k = 0; k < 2 * half; k++) {
      const long double apart = raw[k < half ? k : ROWS - 2 * half + k][i] - mean;
      squares += apart * apart;
    }
    const double deviation = i == 3 ? 0 : (double)sqrtl(squares / (2 * half));
    assert_true(fabs(c->mean[i] - (double)mean) <= 1e-14 * fmax(fabs(least), fabs(most)));
    assert_true(fabs(c->deviation[i] - deviation) <= 1e-9 * deviation);
    assert_true(c->smallest[i] == least && c->largest[i] == most);
    assert_true(c->scale[i] == (i == 3 ? 1 : c->deviation[i]));
  }
}

/* All rows; and a sample, stretches of 64 that are spread over the rows, the first and the last among them.
 */
static void columns_are_measured(void **state) {
  struct mn_dataset *d;
  struct mn_columns c;
  assert_int_equal(mn_dataset_open(&d, "raw.h5", MN_PART_TRAIN, NULL, NULL, 1), MN_OK);
  assert_int_equal(mn_columns_measure(&c, d, MN_X, ROWS, NULL), MN_OK);
  assert_columns(&c, ROWS / 2);
  mn_columns_free(&c);
  assert_int_equal(mn_columns_measure(&c, d, MN_X, 128, NULL), MN_OK);
  assert_columns(&c, 64);
  mn_columns_free(&c);
  const int stop = 1;
  assert_int_equal(mn_columns_measure(&c, d, MN_X, ROWS, &stop), MN_INTERRUPTED);
  mn_columns_free(&c);
  mn_dataset_close(d);
}

/* ---- columns of any size, drawn ---- */

static uint32_t seed = 3;
static double draw(void) {
  return (double)((seed = seed * 1664525 + 1013904223) >> 8) / 8388608 - 1;
}

struct doubles {
  struct mn_dataset base;
  double *x; /* [rows, COLS] */
};

static mn_status read_doubles(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                              void *unused) {
  assert_int_equal(real, sizeof(double));
  memcpy(x, ((struct doubles *)dataset)->x + first * COLS, (size_t)count * COLS * sizeof(double));
  return MN_OK;
}

/* A column times a power of two has the mean, the deviation and the scale times that power, to the bit, as long as
 * they are normal numbers; pooled columns likewise. Later rows may be far larger than those before. */
static void columns_of_any_size(void **state) {
  enum { MANY = 60000 };
  double *before = malloc(MANY * COLS * sizeof *before), *after = malloc(MANY * COLS * sizeof *after);
  assert_true(before && after);
  for (int k = 0; k < 6; k++) {
    int power[COLS], grows = (int)(500 * (draw() + 1));
    for (int c = 0; c < COLS; c++) power[c] = k == 5 ? 900 : (int)(950 * draw());
    for (int n = 0; n < MANY; n++)
      for (int c = 0; c < COLS; c++) {
        const double value = c == 2 ? 1e6 + draw() : c == 3 ? -0.75 : draw();
        before[n * COLS + c] = c == 4 && k < 5 && n < MANY / 2 ? ldexp(value, -grows) : value;
        after[n * COLS + c] = ldexp(before[n * COLS + c], power[c]);
      }
    struct mn_columns c[2];
    for (int scaled = 0; scaled < 2; scaled++) {
      struct doubles d = {{.rows = MANY, .inputs = COLS, .read = read_doubles, .parallel = 8},
                          scaled ? after : before};
      assert_int_equal(mn_columns_measure(&c[scaled], &d.base, MN_X, MANY, NULL), MN_OK);
      if (k == 5) mn_columns_pool(&c[scaled]);
    }
    for (int i = 0; i < COLS; i++) {
      if (c[1].mean[i] != ldexp(c[0].mean[i], power[i]) ||
          c[1].deviation[i] != ldexp(c[0].deviation[i], power[i]) ||
          c[1].scale[i] != (i == 3 && k < 5 ? 1 : ldexp(c[0].scale[i], power[i])))
        fail_msg("draw %d, column %d, times 2^%d: mean %g, deviation %g, scale %g of %g, %g, %g", k, i,
                 power[i], c[1].mean[i], c[1].deviation[i], c[1].scale[i], c[0].mean[i], c[0].deviation[i],
                 c[0].scale[i]);
    }
    mn_columns_free(&c[0]), mn_columns_free(&c[1]);
  }
  free(before), free(after);
}

#define TRAIN                                                                                                \
  "train --quiet --device cpu --hidden 8 --groups 2 --head 1 --batch 20 --lr 0.01 --weight-decay 0 --steps " \
  "60 "

/* Data times powers of two train the same weights, and have the same R2 and predictions times that power. */
static void runs_on_data_of_any_size(void **state) {
  static double x[ROWS][COLS], targets[ROWS];
  static const int powers[][2] = {{0, 0}, {-560, 0}, {530, -566}, {1000, 1015}, {-990, -1000}, {1015, 3}};
  char line[300], r2[32] = "";
  struct mn_checkpoint *first = NULL;
  double predicted[ROWS], wanted[ROWS];
  for (int k = 0; k < 6; k++) {
    for (int n = 0; n < ROWS; n++) {
      for (int c = 0; c < COLS; c++) x[n][c] = ldexp(raw[n][c == 1 ? 4 : c], powers[k][0]);
      targets[n] = ldexp(1e3 * (y[n] - 1e6) + 2, powers[k][1]);
    }
    write_rows("sized.h5", H5T_NATIVE_DOUBLE, x, H5T_NATIVE_DOUBLE, targets);
    snprintf(line, sizeof line, TRAIN "--data sized.h5 --run sized-%d", k);
    run_well(line);
    snprintf(line, sizeof line, "sized-%d/checkpoint.h5", k);
    struct mn_checkpoint *c;
    assert_int_equal(mn_checkpoint_load(&c, line), MN_OK);
    if (!first) first = c;
    for (int i = 0; i < c->tensor_count; i++)
      assert_memory_equal(c->tensors[i].value, first->tensors[i].value,
                          (size_t)(c->tensors[i].rows * c->tensors[i].cols) * c->tensors[i].real);
    if (c != first) mn_checkpoint_free(c);
    snprintf(line, sizeof line, "eval --quiet --device cpu --data sized.h5 --run sized-%d", k);
    const struct result *r = run_well(line);
    char *at = strstr(r->out, "r2: ");
    assert_non_null(at);
    if (k == 0) snprintf(r2, sizeof r2, "%.15s", at);
    if (strncmp(at, r2, strlen("r2: 0.123456")) != 0 || strstr(r->out, "loss: 0\n") || strstr(r->out, "inf"))
      fail_msg("times 2^%d, 2^%d: %s, not %s", powers[k][0], powers[k][1], r->out, r2);
    snprintf(line, sizeof line,
             "predict --quiet --device cpu --data sized.h5 --force --out sized-out.h5 --run sized-%d", k);
    run_well(line);
    hid_t file = H5Fopen("sized-out.h5", H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "y", H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, predicted) >= 0);
    H5Dclose(set), H5Fclose(file);
    if (k == 0) memcpy(wanted, predicted, sizeof wanted);
    for (int n = 0; n < ROWS; n++) assert_true(predicted[n] == ldexp(wanted[n], powers[k][1]));
  }
  mn_checkpoint_free(first);
}

/* Deviations that are no normal number, or six of which are none, in x and in y. */
static void columns_that_cannot_be_held_are_named(void **state) {
  static double x[ROWS][COLS], targets[ROWS];
  for (int k = 0; k < 4; k++) {
    for (int n = 0; n < ROWS; n++) {
      for (int c = 0; c < COLS; c++) x[n][c] = raw[n][4] * (c == 2 && k < 2 ? (k ? 1e-310 : 1.7e308) : 1);
      targets[n] = raw[n][4] * (k == 2 ? 2e-311 : k == 3 ? 1e-322 : 1);
    }
    write_rows("beyond.h5", H5T_NATIVE_DOUBLE, x, H5T_NATIVE_DOUBLE, targets);
    assert_complains("beyond", run(TRAIN "--data beyond.h5"), 65,
                     k < 2 ? "beyond.h5: input 2 |another unit" : "beyond.h5: target 0 |another unit");
  }
}

/* Rows that were standardised before, in double and rounded once, by what the checkpoint keeps. */
static void write_standardized(const char *name, const struct mn_checkpoint *c, int from_float) {
  static float x[ROWS][COLS], targets[ROWS];
  const double *mean = c->standard[MN_X][0].value, *scale = c->standard[MN_X][1].value;
  const double *y_mean = c->standard[MN_Y][0].value, *y_scale = c->standard[MN_Y][1].value;
  assert_true(mean && scale && y_mean && y_scale);
  for (int n = 0; n < ROWS; n++) targets[n] = (float)((y[n] - *y_mean) * (1 / *y_scale));
  for (int n = 0; n < ROWS; n++)
    for (int i = 0; i < COLS; i++)
      x[n][i] = (float)(((from_float ? (double)(float)raw[n][i] : raw[n][i]) - mean[i]) * (1 / scale[i]));
  write_rows(name, H5T_NATIVE_FLOAT, x, H5T_NATIVE_FLOAT, targets);
}

/* Rows are stored as doubles or as floats, and x waits in every form that the CPU has. */
static void a_run_is_that_on_standardized_rows(void **state) {
  static const char *const precisions[] = {"fp32", "fp16", "bf16"};
  for (int as_float = 0; as_float < 2; as_float++)
    for (int p = 0; p < 3; p++) {
      char line[400];
      struct mn_checkpoint *a, *b;
      snprintf(line, sizeof line, TRAIN "--precision %s --data %s %s --run a", precisions[p],
               as_float ? "raw4.h5" : "raw.h5", as_float ? "--standardize" : "");
      run_well(line);
      assert_int_equal(mn_checkpoint_load(&a, "a/checkpoint.h5"), MN_OK);
      write_standardized("before.h5", a, as_float);
      snprintf(line, sizeof line, TRAIN "--precision %s --data before.h5 --standardize no --run b",
               precisions[p]);
      run_well(line);
      assert_int_equal(mn_checkpoint_load(&b, "b/checkpoint.h5"), MN_OK);
      assert_null(b->standard[MN_X][0].value);
      for (int i = 0; i < a->tensor_count; i++)
        assert_memory_equal(a->tensors[i].value, b->tensors[i].value,
                            (size_t)(a->tensors[i].rows * a->tensors[i].cols) * a->tensors[i].real);
      mn_checkpoint_free(a), mn_checkpoint_free(b);
      const struct result *r = run("diff a/checkpoint.h5 b/checkpoint.h5");
      assert_int_equal(r->status, 1);
      assert_non_null(strstr(r->out, "name /input/mean         a float64 [5]  "));
      assert_non_null(strstr(r->out, "name /output/mean        a float64 [1]  "));
      assert_true(lines(r->out) == 9 && strstr(r->out, "/input/scale") && strstr(r->out, "/output/scale"));
      forget("a"), forget("b");
    }
}

static void places_and_stops_change_nothing(void **state) {
  run_well(TRAIN "--data raw.h5 --standardize --run whole");
  run_well(TRAIN "--data raw.h5 --standardize --run file --place file");
  run_well("diff whole/checkpoint.h5 file/checkpoint.h5"); /* but for --place, which /config keeps */
  run_well(TRAIN "--data raw.h5 --standardize --run stopped --stop-at 25");
  run_well("train --quiet --device cpu --run stopped --resume");
  assert_same("whole/checkpoint.h5", "stopped/checkpoint.h5");
  const char *line = "train --device cpu --quiet --run plain --resume --standardize --steps 70";
  run_well(TRAIN "--data raw.h5 --standardize no --run plain");
  assert_complains(line, run(line), 64, "--standardize|plain/checkpoint.h5");
}

static double loss_of(const char *line) {
  const char *at = strstr(run_well(line)->out, "\"loss\":");
  assert_non_null(at);
  return strtod(at + 7, NULL);
}

/* As predict and the library write them: the mean error is eval's loss, and much less than that of the mean.
 */
static void predictions_have_the_targets_units(struct mn_model *model) {
  static double out[ROWS];
  static float x[ROWS][COLS], narrow[ROWS];
  double error = 0;
  run_well("predict --quiet --device cpu --data raw.h5 --run whole --out out.h5 --force");
  hid_t file = H5Fopen("out.h5", H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "y", H5P_DEFAULT);
  assert_true(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0);
  H5Dclose(set), H5Fclose(file);
  for (int n = 0; n < ROWS; n++) error += (out[n] - y[n]) * (out[n] - y[n]) / ROWS;
  const double loss = loss_of("eval --quiet --json --device cpu --data raw.h5 --run whole");
  double mean = 0, spread = 0;
  for (int n = 0; n < ROWS; n++) mean += (y[n] - 1e6) / ROWS;
  for (int n = 0; n < ROWS; n++) spread += (y[n] - 1e6 - mean) * (y[n] - 1e6 - mean) / ROWS;
  if (!(fabs(error - loss) < 1e-5 * loss && loss < 0.95 * spread)) fail_msg("%g %g %g", error, loss, spread);
  for (int i = 0; i < ROWS * COLS; i++) x[i / COLS][i % COLS] = (float)raw[i / COLS][i % COLS];
  assert_int_equal(mn_model_predict(model, x[0], ROWS, narrow), MN_OK);
  for (int n = 0; n < ROWS; n++) assert_true(fabs((double)narrow[n] - out[n]) <= 0.07);
}

/* By eval, by the weights that --init takes, by weights that were copied, and by the library. */
static void the_model_keeps_it(void **state) {
#define EVAL "eval --quiet --json --device cpu --data raw.h5 --run "
  const double loss = loss_of(EVAL "whole/checkpoint.h5");
  struct mn_checkpoint *c;
  assert_int_equal(mn_checkpoint_load(&c, "whole/checkpoint.h5"), MN_OK);
  write_standardized("before.h5", c, 0);
  run_well(TRAIN "--data before.h5 --standardize no --run before-run");
  const double scale = *(double *)c->standard[MN_Y][1].value,
               before = loss_of("eval --quiet --json --device cpu --data before.h5 --run before-run");
  assert_true(loss == before * (scale * scale));
  /* A rate so small that a step changes next to nothing. */
  run_well("train --quiet --device cpu --hidden 8 --groups 2 --head 1 --batch 20 --lr 1e-9 --steps 1 --data "
           "raw.h5 "
           "--init whole/checkpoint.h5 --run tuned");
  assert_true(fabs(loss_of(EVAL "tuned/checkpoint.h5") - loss) < 1e-4 * loss);
  struct mn_device *device;
  struct mn_model *model;
  assert_int_equal(mn_device_open(&device, "cpu", "fp32", 0), MN_OK);
  assert_int_equal(mn_model_load(&model, device, "whole/checkpoint.h5"), MN_OK);
  assert_memory_equal(model->standard[MN_X].mean, c->standard[MN_X][0].value, COLS * sizeof(double));
  assert_memory_equal(model->standard[MN_X].scale, c->standard[MN_X][1].value, COLS * sizeof(double));
  assert_int_equal(mn_model_save(model, "alone.h5"), MN_OK);
  assert_true(loss_of(EVAL "alone.h5") == loss);
  double zero[COLS] = {0};
  assert_int_equal(mn_model_standardize(model, zero, zero), MN_USAGE);
  assert_int_equal(mn_model_standardize_targets(model, zero, zero), MN_USAGE);
  predictions_have_the_targets_units(model);
  mn_model_close(model);
  mn_device_close(device);
  mn_checkpoint_free(c);
}

/* Pixels of constant edges have one unit, so have 8-bit integers; one column with another scale has not. */
static void columns_of_one_unit_are_found(void **state) {
  double least[] = {0, 0, 0, 0}, most[] = {16, 16, 0, 3}, deviation[] = {5, 5, 0, 1}, mean[] = {8, 6, 0, 1};
  double scale[4];
  struct mn_columns c = {.rows = 9,
                         .cols = 4,
                         .smallest = least,
                         .largest = most,
                         .deviation = deviation,
                         .mean = mean,
                         .scale = scale};
  assert_true(mn_columns_alike(&c, "float32"));
  mn_columns_pool(&c);
  assert_true(fabs(mean[3] - 3.75) < 1e-12 &&
              fabs(scale[0] * scale[0] - (51 / 4.0 + 101 / 4.0 - 3.75 * 3.75)) < 1e-12);
  least[3] = 1;
  assert_false(mn_columns_alike(&c, "float32"));
  assert_true(mn_columns_alike(&c, "uint8"));
  least[3] = 0, most[1] = 15;
  assert_false(mn_columns_alike(&c, NULL));
}

/* Two targets of other units: no number turns the loss into theirs, and eval has both. */
static void targets_have_units_of_their_own(void **state) {
  static double two[ROWS][2];
  const hsize_t sizes[] = {ROWS, 2};
  for (int n = 0; n < ROWS; n++) two[n][0] = y[n], two[n][1] = 1e5 * raw[n][4];
  write_raw("two.h5", 0);
  hid_t file = H5Fopen("two.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put(file, "two", H5T_NATIVE_DOUBLE, 2, sizes, two);
  H5Fclose(file);
  const struct result *r =
      run_well("train --device cpu --hidden 8 --groups 2 --batch 20 --lr 0.01 --steps 200 "
               "--validation 0.3 --data two.h5 --y two --run two-run --json");
  assert_non_null(strstr(r->err, "loss: of standardised y, "));
  const double r2 = strtod(strstr(r->out, "\"test_r2\":") + 10, NULL);
  const double loss = loss_of("eval --quiet --json --device cpu --data two.h5 --y two --run two-run");
  r = run_well("eval --quiet --json --device cpu --data two.h5 --y two --run two-run");
  char *end;
  const double first = strtod(strstr(r->out, "\"r2\":[") + 6, &end), second = strtod(end + 1, NULL);
  assert_true(second > 0.9 && fabs(r2 - (first + second) / 2) < 0.1);
  const double small = strtod(strstr(r->out, "\"rmse\":[") + 8, &end), large = strtod(end + 1, NULL);
  assert_true(small < 1e-3 && large > 1 && fabs(loss - (small * small + large * large) / 2) < 1e-9 * loss);
}

static void columns_that_differ_are_told(void **state) {
#define LOUD "train --device cpu --hidden 8 --groups 2 --head 1 --batch 20 --lr 0.01 --steps 2 "
  const struct result *r = run_well("info raw.h5");
  assert_non_null(
      strstr(r->out, "column 3            mean 7.3          deviation 0            smallest 7.3"));
  r = run_well(LOUD "--data raw.h5");
  assert_null(strstr(r->err, "--standardize"));
  assert_non_null(strstr(r->err, "standardised: x by column; y by mean 1e+06 and deviation 0.0"));
  assert_non_null(strstr(r->err, "note: x, column 3 (from 0): one value"));
}

/* A number that stands for missing ones is told however large it is and however few rows there are; two values, or a long
 * tail, are not. */
static void values_far_from_others_are_told(void **state) {
  static const struct {
    int rows;
    double odd;
    int told;
  } cases[] = {{5000, 1e20, 1}, {5000, -9.99e33, 1}, {5000, 1e12, 1}, {40, -999, 1}, {40, 9999, 1},
               {401, 1e6, 1},   {5000, 3, 0},        {40, 3, 0},      {12, 0.5, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FILE *csv = fopen("far.csv", "w");
    fputs("tail,value,two,y\n", csv);
    for (int n = 0; n < cases[i].rows; n++) {
      const double tail = exp(3. * (n * 37 % cases[i].rows) / cases[i].rows);
      fprintf(csv, "%g,%g,%d,%d\n", tail, n % 30 == 11 ? cases[i].odd : n * 17 % 101 / 101., n % 211 == 3,
              n % 2);
    }
    fclose(csv);
    const struct result *r = run_well("train --device cpu --hidden 8 --groups 2 --steps 1 --data far.csv");
    if (cases[i].told != (strstr(r->err, "note: x, column value: values far from all others") != NULL) ||
        strstr(r->err, "column tail") || strstr(r->err, "column two: values"))
      fail_msg("%d rows, %g: %s", cases[i].rows, cases[i].odd, r->err);
  }
}

static int set_up_rows(void **state) {
  if (set_up(state) != 0) return -1;
  fill();
  write_raw("raw.h5", 0);
  write_raw("raw4.h5", 1);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_are_measured),
      cmocka_unit_test(columns_of_any_size),
      cmocka_unit_test(runs_on_data_of_any_size),
      cmocka_unit_test(columns_that_cannot_be_held_are_named),
      cmocka_unit_test(a_run_is_that_on_standardized_rows),
      cmocka_unit_test(places_and_stops_change_nothing),
      cmocka_unit_test(the_model_keeps_it),
      cmocka_unit_test(columns_of_one_unit_are_found),
      cmocka_unit_test(targets_have_units_of_their_own),
      cmocka_unit_test(columns_that_differ_are_told),
      cmocka_unit_test(values_far_from_others_are_told),
  };
  return cmocka_run_group_tests(tests, set_up_rows, tear_down);
}
