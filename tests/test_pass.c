/* What the passes over a model save and leave. */
#include "tests/training.h"

#include "layers/layer.h"

/* What a plan with fewer ops saves is what the single operations say: mean and rstd of the block, from
 * outside. */
static void the_block_saves_its_statistics(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
  struct mn_pass *pass;
  struct memory m = {.device = device};
  MUST(mn_pass_open(&pass, model, MN_PASS_SEEDED, 3, 1, 1));
  load(pass, 1);
  MUST(mn_tape_forward(pass->tape));
  const struct mn_block *saved = mn_block_saved(pass->y, pass->tape);
  double *z = read_reals(&m, saved->z, 3 * 8), mean[12], rstd[12];
  for (int i = 0; i < 12; i++) {
    mean[i] = (z[2 * i] + z[2 * i + 1]) / 2;
    rstd[i] = 1 / sqrt((z[2 * i] - mean[i]) * (z[2 * i] - mean[i]) + 1e-3);
  }
  assert_reals(&m, "mean", saved->mean, mean, 12, 1e-12);
  assert_reals(&m, "rstd", saved->rstd, rstd, 12, 1e-12);
  free(z);
  mn_pass_close(pass);
  mn_model_close(model);
  mn_device_close(device);
}

/* Only a tape that trains saves them; y is the same bytes all the same. */
static void passes_that_do_not_train_save_nothing(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
    struct memory m = {.device = device};
    double *y[2];
    for (int trains = 0; trains < 2; trains++) {
      struct mn_pass *pass;
      MUST(mn_pass_open(&pass, model, trains ? MN_PASS_SEEDED : MN_PASS_PREDICT, 37, 1, trains));
      load(pass, 1);
      MUST(mn_tape_forward(pass->tape));
      const struct mn_block *saved = mn_block_saved(pass->y, pass->tape);
      assert_true(trains ? saved->z && saved->mean && saved->rstd
                         : !saved->z && !saved->mean && !saved->rstd);
      y[trains] = read_reals(&m, pass->y->value.real, mn_tensor_count(pass->y));
      mn_pass_close(pass);
    }
    assert_memory_equal(y[0], y[1], 37 * 8 * sizeof(double));
    free(y[0]);
    free(y[1]);
    mn_model_close(model);
    mn_device_close(device);
  }
}

/* Where GEMMs read another form than the real one, y comes in that form alone: the real one's values,
 * rounded.
 */
static void forward_gives_what_a_gemm_reads(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
    struct memory m = {.device = device};
    struct mn_pass *forward, *predict;
    MUST(mn_pass_open(&forward, model, MN_PASS_FORWARD, 37, 1, 0));
    MUST(mn_pass_open(&predict, model, MN_PASS_PREDICT, 37, 1, 0));
    load(forward, 1);
    load(predict, 1);
    MUST(mn_tape_forward(forward->tape));
    MUST(mn_tape_forward(predict->tape));
    struct mn_operand *given = &forward->y->value, *y = &predict->y->value;
    size_t size = device->plane, bytes = 37 * 8 * (size ? size : device->real);
    assert_int_equal(given->real != NULL, size == 0);
    assert_int_equal(given->planes[0] != NULL, size != 0);
    if (size) {
      y->planes[0] = take_bytes(&m, 37 * 8, size);
      y->scale = given->scale;
      MUST(device->kernels->round(device, y, 0));
    }
    char found[37 * 8 * 8], expected[sizeof found];
    MUST(device->kernels->download(device, found, size ? given->planes[0] : given->real, bytes));
    MUST(device->kernels->download(device, expected, size ? y->planes[0] : y->real, bytes));
    assert_memory_equal(found, expected, bytes);
    y->planes[0] = NULL, y->scale = NULL; /* m's, and the other tape's */
    release_all(&m);
    mn_pass_close(forward);
    mn_pass_close(predict);
    mn_model_close(model);
    mn_device_close(device);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(the_block_saves_its_statistics),
      BOTH(passes_that_do_not_train_save_nothing),
      BOTH(forward_gives_what_a_gemm_reads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
