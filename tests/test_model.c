/* A model saved without its training, and opened again: from C, and by the commands that read weights. */
#include "tests/files_same.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "train/checkpoint/checkpoint.h"

/* Another run's checkpoint, which appears under this name while a model is saved. */
static const char *appears;
int fsync(int fd) {
  if (appears) assert_int_equal(link("run/checkpoint.h5", appears), 0);
  appears = NULL;
  return (int)syscall(SYS_fsync, fd);
}

static void assert_same_models(const struct mn_model *a, const struct mn_model *b) {
  double x[64], y[64];
  assert_int_equal(a->count, b->count);
  for (int i = 0; i < a->count; i++) {
    size_t bytes = (size_t)mn_tensor_count(a->parameters[i]) * sizeof *x;
    assert_true(bytes <= sizeof x && mn_tensor_count(b->parameters[i]) == mn_tensor_count(a->parameters[i]));
    MUST(mn_tensor_read(a->device, a->parameters[i], x));
    MUST(mn_tensor_read(b->device, b->parameters[i], y));
    assert_memory_equal(x, y, bytes);
  }
}

/* Every bit and every constant comes back, and from the same model the same bytes are written. */
static void a_model_comes_back(void **state) {
  static const char *const precisions[] = {"fp64", "fp32", "bf16", "fp16"};
  struct mn_model_config config = {.inputs = 4,
                                   .depth = 2,
                                   .hidden = {8, 6},
                                   .groups = 2,
                                   .head = 3,
                                   .eps = 1e-3,
                                   .slope = 0.25,
                                   .loss = MN_LOSS_CROSS_ENTROPY,
                                   .plan = MN_PLAN_STACK};
  for (int i = 0; i < 4; i++) {
    struct mn_device *device;
    struct mn_model *model, *loaded;
    mn_status opened = mn_device_open(&device, *state, precisions[i], 0);
    if (opened == MN_NO_DEVICE) SKIP("%s", mn_message());
    MUST(opened);
    MUST(mn_model_open(&model, device, &config));
    MUST(mn_model_initialise(model, 11));
    unlink("a.h5");
    MUST(mn_model_save(model, "a.h5"));
    MUST(mn_model_load(&loaded, device, "a.h5"));
    assert_memory_equal(&loaded->config, &config, sizeof config);
    assert_same_models(model, loaded);
    MUST(mn_model_save(loaded, "b.h5"));
    assert_same_file("a.h5", "b.h5");
    mn_model_close(loaded);
    mn_model_close(model);
    mn_device_close(device);
  }
}

/* Takes the model out of the checkpoint run/checkpoint.h5. */
static struct mn_model *take_model(struct mn_device **device) {
  struct mn_model *model;
  MUST(mn_device_open(device, "cpu", "fp32", 0));
  MUST(mn_model_load(&model, *device, "run/checkpoint.h5"));
  unlink("model.h5");
  MUST(mn_model_save(model, "model.h5"));
  return model;
}

static void assert_same_answer(const char *a, const char *b) {
  char expected[TEXT];
  const struct result *r = run(a);
  assert_succeeds(a, r);
  strcpy(expected, r->out);
  r = run(b);
  assert_succeeds(b, r);
  assert_string_equal(r->out, expected);
}

static void the_commands_take_it(void **state) {
  struct mn_device *device;
  mn_model_close(take_model(&device));
  mn_device_close(device);
#define OF(file) "--quiet --device cpu --data good.h5 --run " file
  assert_same_answer("eval --json " OF("run/checkpoint.h5"), "eval --json " OF("model.h5"));
  assert_succeeds("predict", run("predict " OF("run/checkpoint.h5") " --out y.h5"));
  assert_succeeds("predict", run("predict " OF("model.h5") " --out z.h5"));
  assert_same_file("y.h5", "z.h5");
  assert_succeeds("train", run(LABELS "--run p --init run/checkpoint.h5"));
  assert_succeeds("train", run(LABELS "--run q --init model.h5"));
  assert_same("p/checkpoint.h5", "q/checkpoint.h5");
  assert_succeeds("verify", run("verify model.h5"));
  const struct result *r = run("info model.h5");
  assert_succeeds("info", r);
  assert_non_null(strstr(r->out, "  head: 3\n"));
  assert_non_null(strstr(r->out, "\nprogress: none\n"));
  assert_non_null(strstr(run("info --json model.h5")->out, "\"progress\":null"));
  assert_true(mkdir("model", 0777) == 0 && link("model.h5", "model/checkpoint.h5") == 0);
  const char *line = "train --quiet --device cpu --run model --resume --data good.h5";
  assert_complains(line, run(line), 65,
                   "model/checkpoint.h5 holds a model without its training|--init model/c");
}

/* Nothing but what mn_model_save has written is replaced. */
static void other_files_stay(void **state) {
  static const char *const others[] = {"run/checkpoint.h5", "good.h5", "cut-run.h5", "words.txt"};
  struct mn_device *device;
  struct mn_model *model = take_model(&device);
  FILE *words = fopen("words.txt", "w");
  assert_true(words && fputs("words", words) >= 0 && fclose(words) == 0);
  for (int i = 0; i < 4; i++) {
    uint64_t before = snapshot();
    assert_int_equal(mn_model_save(model, others[i]), MN_NO_CREATE);
    assert_non_null(strstr(mn_message(), others[i]));
    assert_true(snapshot() == before);
  }
  assert_int_equal(mn_model_save(model, "none/model.h5"), MN_NO_CREATE);
  MUST(mn_model_save(model, "model.h5"));
  appears = "late.h5";
  assert_int_equal(mn_model_save(model, "late.h5"), MN_NO_CREATE);
  assert_null(appears);
  assert_same_file("late.h5", "run/checkpoint.h5");
  mn_model_close(model);
  mn_device_close(device);
}

/* A program that does not know of SIGXFSZ gets an error, and goes on. */
static void a_limit_on_files_is_an_error(void **state) {
  struct mn_device *device;
  struct mn_model *model = take_model(&device);
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit = {2048, 2048};
    int failed = signal(SIGXFSZ, SIG_DFL) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0;
    failed |= mn_model_save(model, "limited.h5") != MN_IO || !strstr(mn_message(), "ulimit -f");
    exit(failed);
  }
  int status;
  assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(access("limited.h5", F_OK), -1);
  mn_model_close(model);
  mn_device_close(device);
}

static void what_holds_no_model_is_refused(void **state) {
  struct mn_device *device;
  struct mn_model *model = take_model(&device), *loaded;
  struct mn_checkpoint *from;
  struct mn_progress progress;
  assert_int_equal(mn_model_load(&loaded, device, "none.h5"), MN_NO_INPUT);
  assert_null(loaded);
  assert_int_equal(mn_model_load(&loaded, device, "good.h5"), MN_BAD_DATA);
  assert_int_equal(mn_model_load(&loaded, device, "cut-run.h5"), MN_BAD_DATA);
  /* There is no training to go on with. */
  MUST(mn_checkpoint_load(&from, "model.h5"));
  assert_int_equal(mn_snapshot_restore(from, model, NULL, &progress), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "without its training"));
  mn_checkpoint_free(from);
  mn_model_close(model);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      {"a_model_comes_back, cpu", a_model_comes_back, NULL, NULL, "cpu"},
      {"a_model_comes_back, cuda", a_model_comes_back, NULL, NULL, "cuda"},
      cmocka_unit_test(the_commands_take_it),
      cmocka_unit_test(other_files_stay),
      cmocka_unit_test(a_limit_on_files_is_an_error),
      cmocka_unit_test(what_holds_no_model_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
