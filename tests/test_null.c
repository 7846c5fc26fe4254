/* What programs call, by train/minnow.h alone: an argument that is NULL is an error by name, each `out` is NULL
 * then, and every close takes NULL. */
#include "train/minnow.h"

#include "tests/skip.h"

#include <string.h>

/* The call lacks `name`; what it opens is NULL, whatever stood there. */
#define LACKS(name, call)                                                                                    \
  do {                                                                                                       \
    assert_int_equal((call), MN_USAGE);                                                                      \
    if (!strstr(mn_message(), ": " name " is NULL")) fail_msg("%s: %s", #call, mn_message());                \
  } while (0)
#define OPENS(type, out, name, call)                                                                         \
  do {                                                                                                       \
    struct type *out = (struct type *)(uintptr_t)1;                                                          \
    LACKS(name, call);                                                                                       \
    assert_null(out);                                                                                        \
  } while (0)

static float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[4] = {1, 2, 3, 4};
static const double mean[2] = {0}, scale[2] = {1, 1};
static const int64_t hidden[1] = {8};

static void what_opens(void **state) {
  struct mn_device *d = NULL;
  struct mn_dataset *rows = NULL;
  struct mn_model *m = NULL;
  struct mn_optimizer *o = NULL;
  struct mn_defaults by;
  const struct mn_csv_config csv = {0};
  char used[MN_CHECKPOINT_PATH], skipped[16];
  LACKS("out", mn_device_open(NULL, "cpu", "fp32", 1));
  OPENS(mn_device, out, "name", mn_device_open(&out, NULL, "fp32", 1));
  OPENS(mn_device, out, "precision", mn_device_open(&out, "cpu", NULL, 1));
  assert_int_equal(mn_device_open(&d, "cpu", "fp32", 1), MN_OK);
  LACKS("out", mn_dataset_arrays(NULL, x, y, 4, 2, 1));
  LACKS("out", mn_dataset_labelled(NULL, x, NULL, 4, 2));
  LACKS("out", mn_dataset_open(NULL, "f.h5", MN_PART_TRAIN, NULL, NULL, 0));
  OPENS(mn_dataset, out, "path", mn_dataset_open(&out, NULL, MN_PART_TRAIN, NULL, NULL, 0));
  OPENS(mn_csv, out, "path", mn_csv_open(&out, NULL, &csv));
  OPENS(mn_csv, out, "config", mn_csv_open(&out, "f.csv", NULL));
  OPENS(mn_dataset, out, "csv", mn_csv_rows(&out, NULL, 1));
  LACKS("csv", mn_csv_fill(NULL, rows));
  assert_int_equal(mn_dataset_arrays(&rows, x, y, 4, 2, 1), MN_OK);
  LACKS("out", mn_defaults(NULL, rows, hidden, 1, 1, 0));
  LACKS("rows", mn_defaults(&by, NULL, hidden, 1, 1, 0));
  LACKS("hidden", mn_defaults(&by, rows, NULL, 1, 1, 0));
  assert_int_equal(mn_defaults(&by, rows, hidden, 1, 1, 0), MN_OK);
  LACKS("out", mn_model_open(NULL, d, &by.model));
  OPENS(mn_model, out, "device", mn_model_open(&out, NULL, &by.model));
  OPENS(mn_model, out, "config", mn_model_open(&out, d, NULL));
  assert_int_equal(mn_model_open(&m, d, &by.model), MN_OK);
  OPENS(mn_model, out, "from", mn_model_copy(&out, NULL));
  OPENS(mn_optimizer, out, "model", mn_optimizer_open(&out, NULL, &by.optimizer));
  OPENS(mn_optimizer, out, "config", mn_optimizer_open(&out, m, NULL));
  assert_int_equal(mn_optimizer_open(&o, m, &by.optimizer), MN_OK);
  OPENS(mn_trainer, out, "model", mn_trainer_open(&out, NULL, o, rows, &by.trainer, NULL));
  OPENS(mn_trainer, out, "optimizer", mn_trainer_open(&out, m, NULL, rows, &by.trainer, NULL));
  OPENS(mn_trainer, out, "dataset", mn_trainer_open(&out, m, o, NULL, &by.trainer, NULL));
  OPENS(mn_trainer, out, "config", mn_trainer_open(&out, m, o, rows, NULL, NULL));
  OPENS(mn_pass, out, "model", mn_pass_open(&out, NULL, MN_PASS_TRAIN, 1, 1, 0));
  OPENS(mn_evaluator, out, "model", mn_evaluator_open(&out, NULL, rows, 1, MN_PLACE_AUTO));
  OPENS(mn_evaluator, out, "dataset", mn_evaluator_open(&out, m, NULL, 1, MN_PLACE_AUTO));
  OPENS(mn_predictor, out, "model", mn_predictor_open(&out, NULL, 1));
  OPENS(mn_model, out, "device", mn_model_load(&out, NULL, "f.h5"));
  OPENS(mn_model, out, "path", mn_model_load(&out, d, NULL));
  OPENS(mn_saver, out, "path", mn_saver_open(&out, NULL, 1, m, NULL));
  OPENS(mn_saver, out, "model", mn_saver_open(&out, "f.h5", 1, NULL, NULL));
  OPENS(mn_checkpoint, out, "path", mn_checkpoint_load(&out, NULL));
  OPENS(mn_checkpoint, out, "path", mn_checkpoint_load_newest(&out, NULL, used, skipped, sizeof skipped));
  mn_optimizer_close(o), mn_model_close(m), mn_dataset_close(rows), mn_device_close(d);
}

static void what_works(void **state) {
  const char *name = "a";
  struct mn_device *d = NULL;
  struct mn_dataset *rows = NULL, *none = NULL;
  struct mn_model *m = NULL;
  struct mn_pass *pass = NULL;
  struct mn_predictor *p = NULL;
  struct mn_defaults by;
  double loss;
  float out[8];
  assert_int_equal(mn_device_open(&d, "cpu", "fp32", 1), MN_OK);
  assert_int_equal(mn_dataset_arrays(&rows, x, y, 4, 2, 1), MN_OK);
  assert_int_equal(mn_defaults(&by, rows, hidden, 1, 1, 0), MN_OK);
  assert_int_equal(mn_model_open(&m, d, &by.model), MN_OK);
  assert_int_equal(mn_model_initialise(m, 0), MN_OK);
  assert_int_equal(mn_pass_open(&pass, m, MN_PASS_EVALUATE, 4, 1, 0), MN_OK);
  assert_int_equal(mn_predictor_open(&p, m, 4), MN_OK);
  LACKS("dataset", mn_dataset_hold_out(NULL, MN_PART_TEST, 0.5, 0, 1));
  assert_int_equal(mn_dataset_hold_out(&none, MN_PART_TEST, 0.5, 0, 1), MN_USAGE);
  LACKS("model", mn_model_initialise(NULL, 0));
  LACKS("model", mn_model_get(NULL, "head.bias", out, 1));
  LACKS("name", mn_model_get(m, NULL, out, 1));
  LACKS("values", mn_model_set(m, "head.bias", NULL, 1));
  LACKS("to", mn_model_blend(NULL, m, 1));
  LACKS("from", mn_model_blend(m, NULL, 1));
  LACKS("model", mn_model_standardize(NULL, mean, scale));
  LACKS("scale", mn_model_standardize(m, mean, NULL));
  LACKS("scale", mn_model_standardize_targets(m, mean, NULL));
  LACKS("rows", mn_model_standardize_by(m, NULL));
  LACKS("csv", mn_model_columns(m, NULL));
  LACKS("trainer", mn_trainer_run(NULL, 1, NULL, NULL));
  LACKS("optimizer", mn_optimizer_rate(NULL, 1, 0));
  LACKS("pass", mn_pass_arrays(NULL, x, y));
  LACKS("pass", mn_pass_labelled(NULL, x, NULL));
  LACKS("pass", mn_pass_step(NULL, &loss, NULL));
  LACKS("loss", mn_pass_step(pass, NULL, NULL));
  LACKS("y", mn_pass_forward(pass, NULL));
  LACKS("dy", mn_pass_backward(pass, NULL, NULL));
  LACKS("pass", mn_pass_update(NULL));
  LACKS("evaluator", mn_evaluate(NULL, &loss, &loss));
  LACKS("predictor", mn_predict(NULL, x, 1, out));
  LACKS("x", mn_predict(p, NULL, 1, out));
  LACKS("y", mn_predict(p, x, 1, NULL));
  LACKS("predictor", mn_predict_rows(NULL, rows, 0, 1, &loss));
  LACKS("rows", mn_predict_rows(p, NULL, 0, 1, &loss));
  LACKS("y", mn_predict_rows(p, rows, 0, 1, NULL));
  LACKS("model", mn_model_classes(NULL, &name, 1));
  LACKS("names", mn_model_classes(m, NULL, 1));
  LACKS("out", mn_dataset_doubles(NULL, NULL, NULL, NULL, 1, 1, 0));
  LACKS("model", mn_model_predict(NULL, x, 1, out));
  LACKS("path", mn_model_save(m, NULL));
  LACKS("path", mn_snapshot_load_weights(NULL, m));
  LACKS("from", mn_snapshot_restore(NULL, m, NULL, NULL));
  LACKS("saver", mn_saver_start(NULL, MN_SAVE_NEWEST, NULL, NULL, 0));
  LACKS("saver", mn_saver_wait(NULL, NULL));
  mn_predictor_close(p), mn_pass_close(pass), mn_model_close(m), mn_dataset_close(rows), mn_device_close(d);
}

static void every_close_takes_it(void **state) {
  mn_device_close(NULL), mn_dataset_close(NULL), mn_csv_close(NULL), mn_model_close(NULL);
  mn_optimizer_close(NULL), mn_trainer_close(NULL), mn_pass_close(NULL), mn_evaluator_close(NULL);
  mn_predictor_close(NULL), mn_saver_close(NULL), mn_checkpoint_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_opens),
      cmocka_unit_test(what_works),
      cmocka_unit_test(every_close_takes_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
