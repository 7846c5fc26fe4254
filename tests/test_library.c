/* A whole run by the library alone, as a C program has it: a dataset opened, training with a schedule, a
 * checkpoint saved and resumed, evaluation, prediction. Nothing of the command is included. */
#include "tests/all.h"
#include "tests/saving.h"
#include "tests/skip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 32, HALF = 12, STEPS = 24 };
static const char data[] = "data/digits.h5";

struct run {
  struct mn_device *device;
  struct mn_dataset *train, *test;
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
};

/* A new run, or one resumed from the checkpoint `from`. */
static struct run open_run(const char *name, const char *from) {
  struct run r = {0};
  struct mn_checkpoint *checkpoint = NULL;
  struct mn_progress progress;
  struct mn_optimizer_config sgd = {.rule = {.momentum = 0.9, .nesterov = 1}, .clip = 5, .accumulate = 2};
  struct mn_schedule schedule = {.kind = MN_SCHEDULE_COSINE, .rate = 0.1, .horizon = STEPS, .warmup = 3};
  mn_status opened = mn_device_open(&r.device, name, "fp32", 0);
  if (opened == MN_NO_DEVICE) SKIP("%s", mn_message());
  MUST(opened);
  MUST(mn_dataset_open(&r.train, data, MN_PART_TRAIN, NULL, NULL, 1));
  MUST(mn_dataset_open(&r.test, data, MN_PART_TEST, NULL, NULL, 1));
  struct mn_model_config config = {.inputs = r.train->inputs,
                                   .depth = 2,
                                   .hidden = {32, 16},
                                   .groups = 4,
                                   .head = r.train->outputs,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .loss = MN_LOSS_CROSS_ENTROPY,
                                   .plan = MN_PLAN_BLOCK};
  if (from) {
    MUST(mn_checkpoint_load(&checkpoint, from));
    config = checkpoint->model;
  }
  MUST(mn_model_open(&r.model, r.device, &config));
  MUST(mn_optimizer_open(&r.optimizer, r.model, &sgd));
  MUST(from ? mn_snapshot_restore(checkpoint, r.model, r.optimizer, &progress)
            : mn_model_initialise(r.model, 7));
  struct mn_trainer_config training = {.schedule = schedule, .batch = BATCH, .seed = 7};
  MUST(mn_trainer_open(&r.trainer, r.model, r.optimizer, r.train, &training, from ? &progress : NULL));
  mn_checkpoint_free(checkpoint);
  return r;
}

static void close_run(struct run *r) {
  mn_trainer_close(r->trainer);
  mn_optimizer_close(r->optimizer);
  mn_model_close(r->model);
  mn_dataset_close(r->train);
  mn_dataset_close(r->test);
  mn_device_close(r->device);
}

/* Each step has its own rate, and the mean loss of its batches, which no guessing of ten classes exceeds. */
static void train_to(struct run *r, int64_t step) {
  const struct mn_trainer *t = r->trainer;
  while (t->progress.step < step) {
    double rate = mn_schedule_rate(&t->schedule, t->progress.step);
    MUST(mn_trainer_run(r->trainer, r->trainer->progress.step + 1, NULL, NULL));
    assert_true(t->rate == rate);
    assert_true(t->loss > 0 && t->loss < 3);
  }
}

static void assert_same_parameters(const struct run *a, const struct run *b) {
  for (int i = 0; i < a->model->count; i++) {
    const struct mn_tensor *pair[] = {a->model->parameters[i], b->model->parameters[i]};
    size_t size = (size_t)mn_tensor_count(pair[0]) * sizeof(double);
    double *values[2];
    for (int k = 0; k < 2; k++) {
      values[k] = malloc(size);
      assert_non_null(values[k]);
      MUST(mn_tensor_read(k ? b->device : a->device, pair[k], values[k]));
    }
    assert_memory_equal(values[0], values[1], size);
    free(values[0]), free(values[1]);
  }
}

/* The same whatever the batches, be it with rows that remain or without, and a second time. */
static double accuracy_of(const struct run *r) {
  static const int64_t batches[] = {360, 100, 90, 7, 1000};
  double loss, accuracy, first_loss = NAN, first_accuracy = NAN;
  for (int b = 0; b < 5; b++) {
    struct mn_evaluator *evaluator;
    MUST(mn_evaluator_open(&evaluator, r->model, r->test, batches[b], b % 4));
    for (int again = 0; again < 2; again++) {
      MUST(mn_evaluate(evaluator, &loss, &accuracy));
      if (b == 0) first_loss = loss, first_accuracy = accuracy;
      assert_true(fabs(loss - first_loss) <= 1e-5 * first_loss);
      assert_true(fabs(accuracy - first_accuracy) <= 1e-9);
    }
    mn_evaluator_close(evaluator);
  }
  return accuracy;
}

/* Saved half way and resumed, a run ends in the same bytes; and what it learned can be evaluated and used. */
static void a_program_trains_saves_and_resumes(void **state) {
  char folder[] = "/tmp/minnow-XXXXXX", path[64];
  struct run whole = open_run(*state, NULL);
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/run.h5", folder);
  double before = accuracy_of(&whole);
  train_to(&whole, HALF);
  MUST(save_and_wait(path, whole.model, whole.optimizer, &whole.trainer->progress, NULL, 0));
  train_to(&whole, STEPS);
  struct run resumed = open_run(*state, path);
  assert_int_equal(resumed.trainer->progress.step, HALF);
  assert_int_equal(resumed.trainer->progress.samples, HALF * 2 * BATCH);
  train_to(&resumed, STEPS);
  assert_same_parameters(&whole, &resumed);
  assert_true(accuracy_of(&resumed) > before + 0.3);
  struct mn_predictor *predictor;
  double y[100];
  MUST(mn_predictor_open(&predictor, resumed.model, 10));
  MUST(mn_predict_rows(predictor, resumed.test, 3, 10, y));
  for (int i = 0; i < 100; i++) assert_true(isfinite(y[i]));
  mn_predictor_close(predictor);
  close_run(&resumed);
  close_run(&whole);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
}

/* The sizes that a program asks for are checked where they are used, in words that name no option. */
static void what_cannot_be_is_refused(void **state) {
  struct run r = open_run(*state, NULL);
  struct mn_trainer *trainer;
  struct mn_trainer_config endless = {
      .schedule = {.kind = MN_SCHEDULE_CONSTANT, .rate = 0.1, .horizon = INT64_MAX / 4}, .batch = BATCH};
  assert_int_equal(mn_trainer_open(&trainer, r.model, r.optimizer, r.train, &endless, NULL), MN_USAGE);
  assert_null(trainer);
  struct mn_trainer_config drops = {.schedule = {.kind = MN_SCHEDULE_STEP, .rate = 0.1, .horizon = 5},
                                    .batch = BATCH};
  assert_int_equal(mn_trainer_open(&trainer, r.model, r.optimizer, r.train, &drops, NULL), MN_USAGE);
  struct mn_progress other = {.rows = r.train->rows - 1};
  endless.schedule.horizon = 5;
  assert_int_equal(mn_trainer_open(&trainer, r.model, r.optimizer, r.train, &endless, &other), MN_BAD_DATA);
  endless.batch = r.train->rows + 1;
  assert_int_equal(mn_trainer_open(&trainer, r.model, r.optimizer, r.train, &endless, NULL), MN_USAGE);
  assert_null(strstr(mn_message(), "--"));
  assert_int_equal(mn_block_check_groups(128, 7), MN_USAGE);
  assert_non_null(strstr(mn_message(), "; 4 and 8 do"));
  assert_int_equal(mn_block_check_groups(720720, 17), MN_USAGE);
  assert_non_null(strstr(mn_message(), "; 16 and 18 do"));
  assert_int_equal(mn_block_check_groups(36, 5), MN_USAGE);
  assert_non_null(strstr(mn_message(), "; 4 and 6 do"));
  /* Sizes and constants that no model has, and no search through all of them. */
  struct mn_model_config config = r.model->config;
  struct mn_model *model;
  config.hidden[0] = INT64_MAX / 2;
  assert_int_equal(mn_model_open(&model, r.device, &config), MN_USAGE);
  config.hidden[0] = 32;
  config.eps = NAN;
  assert_int_equal(mn_model_open(&model, r.device, &config), MN_USAGE);
  close_run(&r);
}

/* Rows of another width, or targets of another kind, would be read and written past the ends of buffers. */
static void rows_that_do_not_fit_the_model_are_refused(void **state) {
  struct run r = open_run(*state, NULL);
  struct mn_trainer *trainer;
  struct mn_evaluator *evaluator;
  struct mn_predictor *predictor;
  double y[100];
  struct mn_dataset *wide, *numbers;
  struct mn_trainer_config config = {.schedule = {.kind = MN_SCHEDULE_CONSTANT, .rate = 0.1, .horizon = 5},
                                     .batch = BATCH};
  MUST(mn_dataset_synthetic(&wide, MN_PART_TRAIN, 100, r.train->inputs + 1, 10, 2, 0, 0, r.device));
  MUST(mn_dataset_synthetic(&numbers, MN_PART_TRAIN, 100, r.train->inputs, 10, 2, 0, 0, r.device));
  assert_int_equal(mn_trainer_open(&trainer, r.model, r.optimizer, wide, &config, NULL), MN_BAD_DATA);
  assert_string_equal(mn_message(), "the model takes 64 inputs, but the data has 65");
  assert_int_equal(mn_trainer_open(&trainer, r.model, r.optimizer, numbers, &config, NULL), MN_BAD_DATA);
  assert_string_equal(
      mn_message(),
      "the model gives 10 classes, but the data has 10 numbers; cross-entropy is the loss of classes, "
      "mse of numbers");
  MUST(mn_predictor_open(&predictor, r.model, 10));
  assert_int_equal(mn_predict_rows(predictor, wide, 0, 10, y), MN_BAD_DATA);
  assert_int_equal(mn_predict_rows(predictor, numbers, 0, 11, y), MN_USAGE);
  assert_int_equal(mn_predict_rows(predictor, numbers, 95, 10, y), MN_USAGE);
  MUST(mn_predict_rows(predictor, numbers, 90, 10, y));
  mn_predictor_close(predictor);
  assert_int_equal(mn_evaluator_open(&evaluator, r.model, numbers, BATCH, MN_PLACE_AUTO), MN_BAD_DATA);
  assert_int_equal(mn_evaluator_open(&evaluator, r.model, r.test, 0, MN_PLACE_AUTO), MN_USAGE);
  mn_dataset_close(wide);
  mn_dataset_close(numbers);
  close_run(&r);
}

#define REFUSED(call, code, words)                                                                           \
  do {                                                                                                       \
    assert_int_equal(call, code);                                                                            \
    assert_string_equal(mn_message(), words);                                                                \
  } while (0)

/* Another size would be read past its end. */
static void batches_of_another_size_are_refused(void **state) {
  struct run r = open_run(*state, NULL);
  close_run(&r);
}

/* A loss reads a row of outputs at the label. */
static void labels_out_of_range_are_refused(void **state) {
  struct run r = open_run(*state, NULL);
  struct mn_pass *pass;
  struct mn_evaluator *evaluator;
  struct mn_trainer *trainer;
  struct mn_trainer_config config = {.schedule = {.kind = MN_SCHEDULE_CONSTANT, .rate = 0.1, .horizon = 5},
                                     .batch = BATCH};
  float x[2 * 64] = {0};
  int32_t beyond[2] = {9, 10}, below[2] = {-1, 9};
  MUST(mn_pass_open(&pass, r.model, MN_PASS_EVALUATE, 2, 1, 0));
  REFUSED(
      mn_pass_labelled(pass, x, beyond), MN_BAD_DATA,
      "row 1 (from 0) of the batch has the label 10, but the model has 10 classes, 0 to 9: correct it, or "
      "leave out the row");
  assert_int_equal(mn_pass_labelled(pass, x, below), MN_BAD_DATA);
  mn_pass_close(pass);
  /* A model of fewer classes than the data: the first 9 of the digits' test part is row 1. */
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_model_config nine = r.model->config;
  nine.head = 9;
  MUST(mn_model_open(&model, r.device, &nine));
  MUST(mn_optimizer_open(&optimizer, model, &r.optimizer->config));
  assert_int_equal(mn_trainer_open(&trainer, model, optimizer, r.train, &config, NULL), MN_BAD_DATA);
  REFUSED(mn_evaluator_open(&evaluator, model, r.test, BATCH, MN_PLACE_AUTO), MN_BAD_DATA,
          "row 1 (from 0) of the data has the label 9, but the model has 9 classes, 0 to 8: correct it, or "
          "leave out the row");
  mn_optimizer_close(optimizer);
  mn_model_close(model);
  close_run(&r);
}

/* Of a program's own dataset nobody but the program has seen the labels before they are read. */
static mn_status read_seven(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                            void *y) {
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  for (int64_t i = 0; x && i < count * dataset->inputs; i++) ((float *)x)[i] = (float)(i % 3);
  for (int64_t i = 0; y && i < count; i++) ((int32_t *)y)[i] = first + i == 77 ? 10 : 0;
  return MN_OK;
}

static void labels_of_any_dataset_are_checked(void **state) {
  struct run r = open_run(*state, NULL);
  struct mn_dataset own = {.rows = 100, .inputs = 64, .outputs = 10, .classes = 1, .read = read_seven};
  struct mn_evaluator *evaluator;
  double loss, accuracy;
  for (int place = MN_PLACE_DEVICE; place <= MN_PLACE_FILE; place++) {
    mn_status status = mn_evaluator_open(&evaluator, r.model, &own, BATCH, place);
    if (status == MN_OK) status = mn_evaluate(evaluator, &loss, &accuracy);
    mn_evaluator_close(evaluator);
    REFUSED(
        status, MN_BAD_DATA,
        "row 77 (from 0) of the data has the label 10, but it has 10 classes, 0 to 9: correct it, or leave "
        "out the row");
  }
  close_run(&r);
}

static void rows_that_are_not_there_are_refused(void **state) {
  struct mn_dataset *digits, *made, *only_x;
  double x[64], y[10];
  MUST(mn_dataset_open(&digits, data, MN_PART_TEST, NULL, NULL, 1));
  MUST(mn_dataset_open(&only_x, data, MN_PART_TEST, NULL, "none", 0));
  MUST(mn_dataset_synthetic(&made, MN_PART_TEST, 360, 64, 10, 2, 0, 0, NULL));
  struct mn_dataset *both[] = {digits, made};
  for (int i = 0; i < 2; i++) {
    MUST(both[i]->read(both[i], 359, 1, 8, x, y));
    REFUSED(both[i]->read(both[i], 359, 2, 8, x, y), MN_USAGE,
            "rows 359 to 360 are asked for, but the data has rows 0 to 359");
    assert_int_equal(both[i]->read(both[i], -1, 1, 8, x, y), MN_USAGE);
    REFUSED(both[i]->read(both[i], 0, 1, 2, x, y), MN_USAGE,
            "reals of 2 bytes are asked for; 4 (float) and 8 (double) work");
  }
  assert_int_equal(only_x->read(only_x, 0, 1, 8, x, y), MN_USAGE);
  mn_dataset_close(digits), mn_dataset_close(made), mn_dataset_close(only_x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      {"a_program_trains_saves_and_resumes, cpu", a_program_trains_saves_and_resumes, NULL, NULL, "cpu"},
      {"a_program_trains_saves_and_resumes, cuda", a_program_trains_saves_and_resumes, NULL, NULL, "cuda"},
      {"rows_that_do_not_fit_the_model_are_refused", rows_that_do_not_fit_the_model_are_refused, NULL, NULL,
       "cpu"},
      {"batches_of_another_size_are_refused", batches_of_another_size_are_refused, NULL, NULL, "cpu"},
      {"labels_out_of_range_are_refused, cpu", labels_out_of_range_are_refused, NULL, NULL, "cpu"},
      {"labels_out_of_range_are_refused, cuda", labels_out_of_range_are_refused, NULL, NULL, "cuda"},
      {"labels_of_any_dataset_are_checked, cpu", labels_of_any_dataset_are_checked, NULL, NULL, "cpu"},
      {"labels_of_any_dataset_are_checked, cuda", labels_of_any_dataset_are_checked, NULL, NULL, "cuda"},
      cmocka_unit_test(rows_that_are_not_there_are_refused),
      {"what_cannot_be_is_refused", what_cannot_be_is_refused, NULL, NULL, "cpu"},
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
