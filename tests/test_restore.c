/* What mn_snapshot_restore and mn_saver_start refuse: checkpoints of other sizes, with values missing, of
 * another order of samples; more texts than a checkpoint has room for. */
#include "tests/checkpoint_make.h"
#include "tests/saving.h"
#include "train/runs/runs.h"

static struct mn_device *device;
static struct mn_model *model;
static struct mn_checkpoint *made;

static int open_both(void **state) {
  struct mn_model_config config = {.inputs = 6,
                                   .depth = 2,
                                   .hidden = {4, 4},
                                   .groups = 2,
                                   .head = 3,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .loss = MN_LOSS_CROSS_ENTROPY};
  made = make_checkpoint(6, 4, 1, 4, 0, 3);
  return setup(state) || mn_device_open(&device, "cpu", "fp32", 0) != MN_OK ||
         mn_model_open(&model, device, &config) != MN_OK;
}

static int close_both(void **state) {
  mn_checkpoint_free(made);
  mn_model_close(model);
  mn_device_close(device);
  return teardown(state);
}

static void refuses(struct mn_progress *progress, const char *words) {
  assert_int_equal(mn_snapshot_restore(made, model, NULL, progress), MN_BAD_DATA);
  assert_says(words);
}

static void other_tensors(void **state) {
  assert_int_equal(mn_snapshot_restore(made, model, NULL, NULL), MN_OK);
  made->tensor_count = 11;
  refuses(NULL, "the checkpoint has 11 tensors, and the model 10; one of its own sizes works");
  made->tensor_count = 10;
  struct mn_checkpoint_tensor *tensor = &made->tensors[4];
  tensor->rows = 2;
  refuses(NULL, "the checkpoint has no blocks.1.fc.weight of [4, 4], which this model has");
  tensor->rows = 4;
  strcpy(tensor->name, "another");
  refuses(NULL, "the checkpoint has no blocks.1.fc.weight of [4, 4], which this model has");
}

static void another_order(void **state) {
  struct mn_progress progress;
  refuses(&progress, "the checkpoint's train_rows is missing");
  made->option_count = 1;
  strcpy(made->options[0].name, "train_rows");
  strcpy(made->options[0].value, "100");
  refuses(&progress, "the checkpoint's order_block is missing");
  made->option_count = 2;
  strcpy(made->options[1].name, "order_block");
  strcpy(made->options[1].value, "7");
  refuses(&progress, "the checkpoint's order_block is 7, but here it is ");
  /* A run of 0.3, which named no order, goes on from an epoch's start alone. */
  made->option_count = 3;
  strcpy(made->options[1].value, "64");
  strcpy(made->options[2].name, "order_window"), strcpy(made->options[2].value, "64");
  made->progress.position = 7;
  refuses(&progress, "the checkpoint is 7 rows into an epoch that minnow 0.3.0 shuffled");
  made->progress.position = 0;
  assert_int_equal(mn_snapshot_restore(made, model, NULL, &progress), MN_OK);
  made->option_count = 4;
  strcpy(made->options[3].name, "order"), strcpy(made->options[3].value, "another");
  refuses(&progress, "the checkpoint's order is another, but here it is swap-or-not");
}

static void too_many_texts(void **state) {
  static const struct mn_text texts[MN_CHECKPOINT_OPTIONS];
  const struct mn_progress progress = {.rows = 100};
  assert_int_equal(save_and_wait(path, model, NULL, &progress, texts, MN_CHECKPOINT_OPTIONS), MN_USAGE);
  assert_says("80 texts for a checkpoint's /config: 0 to 76 work");
  assert_int_equal(count_files(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(other_tensors), TEST(another_order), TEST(too_many_texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
