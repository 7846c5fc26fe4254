/* train --standardize: columns are measured as they are, whatever their scale, and a run on raw rows ends in the
 * same bytes as one on rows that were standardised before; eval, predict and the library apply what the
 * checkpoint keeps. */
#include "data/columns.h"
#include "tests/command_run.h"
#include "tests/files_same.h"
#include "train/checkpoint/checkpoint.h"

enum { ROWS = 700, COLS = 5 };

/* Scales over 10⁵, a mean of 10⁵ deviations, and a constant. */
static double raw[ROWS][COLS];
static float y[ROWS];

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
    y[n] = (float)(sin(3 * u[0]) + u[1] * u[2]);
  }
}

static void write_rows(const char *name, hid_t type, const void *x) {
  const hsize_t sizes[] = {ROWS, COLS};
  hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  put(file, "x", type, 2, sizes, x);
  put(file, "y", H5T_NATIVE_FLOAT, 1, sizes, y);
  H5Fclose(file);
}

static void write_raw(const char *name, int as_float) {
  static float narrow[ROWS][COLS];
  for (int n = 0; n < ROWS; n++)
    for (int c = 0; c < COLS; c++) narrow[n][c] = (float)raw[n][c];
  write_rows(name, as_float ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, as_float ? (void *)narrow : raw);
}

static const struct result *run_well(const char *line) {
  const struct result *r = run(line);
  assert_succeeds(line, r);
  return r;
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

/* All rows; and a sample, stretches of 64 that are spread over the rows, the first and the last among them. */
static void columns_are_measured(void **state) {
  struct mn_dataset *d;
  struct mn_columns c;
  assert_int_equal(mn_dataset_open(&d, "raw.h5", MN_PART_TRAIN, NULL, NULL, 1), MN_OK);
  assert_int_equal(mn_columns_measure(&c, d, ROWS, NULL), MN_OK);
  assert_columns(&c, ROWS / 2);
  mn_columns_free(&c);
  assert_int_equal(mn_columns_measure(&c, d, 128, NULL), MN_OK);
  assert_columns(&c, 64);
  mn_columns_free(&c);
  const int stop = 1;
  assert_int_equal(mn_columns_measure(&c, d, ROWS, &stop), MN_INTERRUPTED);
  mn_columns_free(&c);
  mn_dataset_close(d);
}

#define TRAIN "train --quiet --device cpu --hidden 8 --groups 2 --head 1 --batch 20 --lr 0.01 --steps 60 "

/* Rows that were standardised before, in double and rounded once, by what the checkpoint keeps. */
static void write_standardized(const char *name, const struct mn_checkpoint *c, int from_float) {
  static float x[ROWS][COLS];
  const double *mean = c->input[0].value, *scale = c->input[1].value;
  assert_true(mean && scale);
  for (int n = 0; n < ROWS; n++)
    for (int i = 0; i < COLS; i++)
      x[n][i] = (float)(((from_float ? (double)(float)raw[n][i] : raw[n][i]) - mean[i]) * (1 / scale[i]));
  write_rows(name, H5T_NATIVE_FLOAT, x);
}

/* Rows are stored as doubles or as floats, and x waits in every form that the CPU has. */
static void a_run_is_that_on_standardized_rows(void **state) {
  static const char *const precisions[] = {"fp32", "fp16", "bf16"};
  for (int as_float = 0; as_float < 2; as_float++)
    for (int p = 0; p < 3; p++) {
      char line[400];
      struct mn_checkpoint *a, *b;
      snprintf(line, sizeof line, TRAIN "--precision %s --data %s --standardize --checkpoint a.h5",
               precisions[p], as_float ? "raw4.h5" : "raw.h5");
      run_well(line);
      assert_int_equal(mn_checkpoint_load(&a, "a.h5"), MN_OK);
      write_standardized("before.h5", a, as_float);
      snprintf(line, sizeof line, TRAIN "--precision %s --data before.h5 --checkpoint b.h5", precisions[p]);
      run_well(line);
      assert_int_equal(mn_checkpoint_load(&b, "b.h5"), MN_OK);
      assert_null(b->input[0].value);
      for (int i = 0; i < a->tensor_count; i++)
        assert_memory_equal(a->tensors[i].value, b->tensors[i].value,
                            (size_t)(a->tensors[i].rows * a->tensors[i].cols) * a->tensors[i].real);
      mn_checkpoint_free(a), mn_checkpoint_free(b);
      const struct result *r = run("diff a.h5 b.h5");
      assert_int_equal(r->status, 1);
      assert_non_null(strstr(r->out, "name /input/mean         a float64 [5]  "));
      assert_true(lines(r->out) == 7 && strstr(r->out, "/input/scale"));
      assert_int_equal(unlink("a.h5") | unlink("b.h5"), 0);
    }
}

static void places_and_stops_change_nothing(void **state) {
  run_well(TRAIN "--data raw.h5 --standardize --checkpoint whole.h5");
  run_well(TRAIN "--data raw.h5 --standardize --checkpoint file.h5 --place file");
  run_well("diff whole.h5 file.h5"); /* but for --place, which /config keeps */
  run_well(TRAIN "--data raw.h5 --standardize --checkpoint stopped.h5 --stop-at 25");
  run_well("train --quiet --device cpu --checkpoint stopped.h5 --resume");
  assert_same("whole.h5", "stopped.h5");
  const char *line = "train --device cpu --quiet --checkpoint plain.h5 --resume --standardize --steps 70";
  run_well(TRAIN "--data raw.h5 --checkpoint plain.h5");
  assert_complains(line, run(line), 64, "--standardize|plain.h5");
}

static double loss_of(const char *line) {
  const char *at = strstr(run_well(line)->out, "\"loss\":");
  assert_non_null(at);
  return strtod(at + 7, NULL);
}

/* By eval, by the weights that --init takes, by weights that were copied, and by the library. */
static void the_model_keeps_it(void **state) {
#define EVAL "eval --quiet --json --device cpu --data raw.h5 --checkpoint "
  const double loss = loss_of(EVAL "whole.h5");
  struct mn_checkpoint *c;
  assert_int_equal(mn_checkpoint_load(&c, "whole.h5"), MN_OK);
  write_standardized("before.h5", c, 0);
  run_well(TRAIN "--data before.h5 --checkpoint before-run.h5");
  assert_true(loss ==
              loss_of("eval --quiet --json --device cpu --data before.h5 --checkpoint before-run.h5"));
  /* A rate so small that a step changes next to nothing. */
  run_well("train --quiet --device cpu --hidden 8 --groups 2 --head 1 --batch 20 --lr 1e-9 --steps 1 --data "
           "raw.h5 "
           "--init whole.h5 --checkpoint tuned.h5");
  assert_true(fabs(loss_of(EVAL "tuned.h5") - loss) < 1e-4 * loss);
  struct mn_device *device;
  struct mn_model *model;
  assert_int_equal(mn_device_open(&device, "cpu", "fp32"), MN_OK);
  assert_int_equal(mn_model_load(&model, device, "whole.h5"), MN_OK);
  assert_memory_equal(model->mean, c->input[0].value, COLS * sizeof(double));
  assert_memory_equal(model->scale, c->input[1].value, COLS * sizeof(double));
  assert_int_equal(mn_model_save(model, "alone.h5"), MN_OK);
  assert_true(loss_of(EVAL "alone.h5") == loss);
  double zero[COLS] = {0};
  assert_int_equal(mn_model_standardize(model, zero, zero), MN_USAGE);
  mn_model_close(model);
  mn_device_close(device);
  mn_checkpoint_free(c);
}

static void columns_that_differ_are_told(void **state) {
#define LOUD "train --device cpu --hidden 8 --groups 2 --head 1 --batch 20 --lr 0.01 --steps 2 "
  const struct result *r = run_well(LOUD "--data raw.h5");
  assert_non_null(strstr(r->err, "(column 0)"));
  assert_non_null(strstr(r->err, "(column 2), column 1 a mean of"));
  assert_non_null(strstr(r->err, "--standardize"));
  r = run_well("info raw.h5");
  assert_non_null(
      strstr(r->out, "column 3            mean 7.3          deviation 0            smallest 7.3"));
  r = run_well(LOUD "--data raw.h5 --standardize");
  assert_null(strstr(r->err, "--standardize"));
  r = run_well(LOUD "--data before.h5");
  assert_null(strstr(r->err, "--standardize"));
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
      cmocka_unit_test(a_run_is_that_on_standardized_rows),
      cmocka_unit_test(places_and_stops_change_nothing),
      cmocka_unit_test(the_model_keeps_it),
      cmocka_unit_test(columns_that_differ_are_told),
  };
  return cmocka_run_group_tests(tests, set_up_rows, tear_down);
}
