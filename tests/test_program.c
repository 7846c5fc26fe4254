/* A program of 40 lines trains what `minnow train` trains: from the same defaults, to the same bytes, on tables
 * of numbers, of classes and of words, whatever their sizes and the widths of the blocks. */
#include "tests/all.h"
#include "tests/command_run.h"

/* ---- the program ---- */

static mn_status train(const char *rows, const int64_t *hidden, int depth, int64_t epochs, int64_t batch,
                       const char *to) {
  struct mn_device *device = NULL;
  struct mn_dataset *table = NULL;
  struct mn_model *model = NULL;
  struct mn_optimizer *optimizer = NULL;
  struct mn_trainer *trainer = NULL;
  struct mn_defaults by;
  mn_status status = mn_device_open(&device, "cpu", "fp32", 0);
  if (!status) status = mn_dataset_open(&table, rows, MN_PART_TRAIN, NULL, NULL, MN_Y_REQUIRED);
  if (!status) status = mn_defaults(&by, table, hidden, depth, epochs, batch);
  if (!status) status = mn_model_open(&model, device, &by.model);
  if (!status) status = mn_model_initialise(model, 0);
  if (!status) status = mn_model_standardize_by(model, table);
  if (!status) status = mn_optimizer_open(&optimizer, model, &by.optimizer);
  if (!status) status = mn_trainer_open(&trainer, model, optimizer, table, &by.trainer, NULL);
  if (!status) status = mn_trainer_run(trainer, by.steps, NULL, NULL);
  if (!status) status = mn_model_save(model, to);
  mn_trainer_close(trainer), mn_optimizer_close(optimizer), mn_model_close(model);
  mn_dataset_close(table), mn_device_close(device);
  return status;
}

/* ---- tables ---- */

static uint64_t word = 3;

static double uniform(void) {
  word = word * 6364136223846793005u + 1442695040888963407u;
  return (double)(word >> 11) / 9007199254740992.0;
}

static int64_t below(int64_t count) {
  return (int64_t)(uniform() * (double)count);
}

/* kind 0: y [n, K] of floats; 1: labels; 2: labels that are words. */
static void write_table(const char *name, int kind, int64_t rows, int64_t cols, int64_t outputs) {
  static const char words[5][8] = {"ash", "birch", "cedar", "elm", "oak"};
  const hsize_t of_x[2] = {(hsize_t)rows, (hsize_t)cols}, of_y[2] = {(hsize_t)rows, (hsize_t)outputs};
  float *x = malloc((size_t)(rows * cols) * sizeof *x), *y = malloc((size_t)(rows * outputs) * sizeof *y);
  int32_t *labels = malloc((size_t)rows * sizeof *labels);
  char(*texts)[8] = calloc((size_t)rows, sizeof *texts);
  assert_true(x && y && labels && texts);
  for (int64_t i = 0; i < rows * cols; i++)
    x[i] = (float)((uniform() - 0.3) * pow(10, (double)(i % cols % 4)));
  for (int64_t i = 0; i < rows * outputs; i++) y[i] = (float)(100 + 30 * uniform()) + x[i / outputs * cols];
  for (int64_t n = 0; n < rows; n++) {
    labels[n] = (int32_t)(n < outputs ? n : below(outputs));
    memcpy(texts[n], words[labels[n] % 5], sizeof *texts);
  }
  const hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, sizeof *texts);
  put(file, "x", H5T_NATIVE_FLOAT, 2, of_x, x);
  if (kind == 0) put(file, "y", H5T_NATIVE_FLOAT, 2, of_y, y);
  if (kind == 1) put(file, "y", H5T_NATIVE_INT32, 1, of_y, labels);
  if (kind == 2) put(file, "y", text, 1, of_y, texts);
  H5Tclose(text), H5Fclose(file);
  free(x), free(y), free(labels), free(texts);
}

static void assert_same_values(const struct mn_checkpoint_tensor *a, const struct mn_checkpoint_tensor *b) {
  assert_string_equal(a->name, b->name);
  assert_int_equal(a->value != NULL, b->value != NULL);
  if (a->value) assert_memory_equal(a->value, b->value, (size_t)(a->rows * a->cols) * a->real);
}

static void assert_same_model(const char *run, const char *alone) {
  struct mn_checkpoint *a, *b;
  assert_int_equal(mn_checkpoint_load(&a, run), MN_OK);
  assert_int_equal(mn_checkpoint_load(&b, alone), MN_OK);
  assert_int_equal(a->tensor_count, b->tensor_count);
  for (int i = 0; i < a->tensor_count; i++) assert_same_values(&a->tensors[i], &b->tensors[i]);
  for (int i = 0; i < MN_SIDES * 2; i++)
    assert_same_values(&a->standard[i / 2][i % 2], &b->standard[i / 2][i % 2]);
  assert_int_equal(a->class_names.count, b->class_names.count);
  assert_int_equal(a->model.groups, b->model.groups);
  mn_checkpoint_free(a), mn_checkpoint_free(b);
}

static void a_program_ends_in_the_commands_bytes(void **state) {
  static const int64_t widths[] = {64, 24, 8, 7, 48, 128, 10};
  for (int i = 0; i < 12; i++) {
    const int kind = i % 3, depth = 1 + (int)below(2);
    const int64_t rows = i == 0 ? 17000 : 6 + below(300), epochs = i % 2 ? 1 + below(4) : 0,
                  batch = i % 4 == 1 ? 1 + below(rows) : 0;
    const int64_t hidden[] = {widths[below(7)], widths[below(7)]};
    char line[300], limit[80] = "", run[60], alone[20];
    write_table("table.h5", kind, rows, 1 + below(9), kind == 2 ? 5 : 1 + below(4) + (kind == 1));
    if (epochs) snprintf(limit, sizeof limit, "--epochs %ld", (long)epochs);
    if (batch) snprintf(limit + strlen(limit), 30, " --batch %ld", (long)batch);
    snprintf(alone, sizeof alone, "alone-%d.h5", i), snprintf(run, sizeof run, "run-%d/checkpoint.h5", i);
    snprintf(line, sizeof line, "train --quiet --device cpu --data table.h5 --run run-%d %s --hidden %ld", i,
             limit, (long)hidden[0]);
    if (depth > 1) snprintf(line + strlen(line), 20, ",%ld", (long)hidden[1]);
    run_well(line);
    assert_int_equal(train("table.h5", hidden, depth, epochs, batch, alone), MN_OK);
    assert_same_model(run, alone);
  }
}

/* What the defaults are for: without them nothing was learned (R² −0.475). */
static void what_has_no_defaults_is_refused(void **state) {
  struct mn_dataset *d;
  struct mn_defaults by;
  static const float x[4] = {0};
  const int64_t hidden[] = {8};
  assert_int_equal(mn_dataset_arrays(&d, x, NULL, 2, 2, 0), MN_OK);
  assert_int_equal(mn_defaults(&by, d, hidden, 1, 0, 0), MN_USAGE);
  mn_dataset_close(d);
  assert_int_equal(mn_dataset_arrays(&d, x, x, 2, 2, 1), MN_OK);
  assert_int_equal(mn_defaults(&by, d, hidden, 0, 0, 0), MN_USAGE);
  assert_int_equal(mn_defaults(&by, d, hidden, 1, -1, 0), MN_USAGE);
  assert_int_equal(mn_defaults(&by, d, hidden, 1, INT64_MAX / 2, 0), MN_USAGE);
  assert_int_equal(mn_defaults(&by, d, hidden, 1, 0, 3), MN_USAGE);
  assert_int_equal(mn_defaults(&by, d, hidden, 1, 0, -1), MN_USAGE);
  assert_int_equal(mn_defaults(&by, d, hidden, 1, 0, 0), MN_OK);
  assert_true(by.trainer.batch == 2 && by.steps == 100 && by.model.groups == 2);
  mn_dataset_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_program_ends_in_the_commands_bytes),
      cmocka_unit_test(what_has_no_defaults_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
