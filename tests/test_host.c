/* The program around the library: its settings of OpenMP, HDF5 and signals stay as they were, its forked
 * children can use devices, and it chooses how many threads compute. */
#include "tests/all.h"
#include "tests/check.h"

#include <fenv.h>
#include <hdf5.h>
#include <locale.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 512, INPUTS = 64, WIDTH = 256, OUTPUTS = 3, SIGNALS = 65 };
static float x[ROWS][INPUTS], y[ROWS][OUTPUTS], out[ROWS][OUTPUTS];

/* ---- what the program has set ---- */

struct settings {
  int threads, dynamic, levels, chunk, rounding, directory, signals[SIGNALS][2];
  omp_sched_t schedule;
  sigset_t blocked;
  H5E_auto2_t print;
  void *data;
  mode_t mask;
  char locale[256], folder[256];
};

static struct settings now(void) {
  struct settings s;
  memset(&s, 0, sizeof s); /* padding too */
  s.threads = omp_get_max_threads(), s.dynamic = omp_get_dynamic(), s.levels = omp_get_max_active_levels();
  omp_get_schedule(&s.schedule, &s.chunk);
  s.rounding = fegetround();
  for (int i = 1; i < SIGNALS; i++) {
    struct sigaction action;
    if (sigaction(i, NULL, &action) != 0) continue;
    s.signals[i][0] = (int)(uintptr_t)action.sa_handler, s.signals[i][1] = action.sa_flags;
  }
  assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &s.blocked), 0);
  assert_true(H5Eget_auto2(H5E_DEFAULT, &s.print, &s.data) >= 0);
  umask(s.mask = umask(0));
  snprintf(s.locale, sizeof s.locale, "%s", setlocale(LC_ALL, NULL));
  assert_non_null(getcwd(s.folder, sizeof s.folder));
  return s;
}

static int children; /* that ended: SIGCHLD is the program's */
static void count_child(int number) {
  children++;
}

static herr_t silent(hid_t stack, void *data) {
  return 0;
}

static void set_what_nobody_would(void) {
  omp_set_num_threads(3), omp_set_dynamic(1), omp_set_max_active_levels(2),
      omp_set_schedule(omp_sched_guided, 7);
  signal(SIGCHLD, count_child), signal(SIGPIPE, SIG_DFL), signal(SIGUSR1, count_child);
  assert_true(H5Eset_auto2(H5E_DEFAULT, silent, x) >= 0);
}

#define LEAVES(call)                                                                                         \
  do {                                                                                                       \
    const struct settings before = now();                                                                    \
    const mn_status made = (call);                                                                           \
    const struct settings after = now();                                                                     \
    if (memcmp(&before, &after, sizeof after) != 0)                                                          \
      fail_msg("%s changes a setting of the program's", #call);                                              \
    if (made != MN_OK) fail_msg("%s: %s", #call, mn_message());                                              \
  } while (0)

struct run {
  struct mn_device *device;
  struct mn_dataset *rows;
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
};

static mn_status open_run(struct run *r, const char *where, int threads) {
  struct mn_model_config sizes = mn_model_defaults();
  struct mn_optimizer_config adamw = mn_optimizer_defaults(MN_ADAMW);
  struct mn_trainer_config training = mn_trainer_defaults(MN_ADAMW, 100);
  sizes.inputs = INPUTS, sizes.depth = 2, sizes.hidden[0] = sizes.hidden[1] = WIDTH, sizes.head = OUTPUTS;
  training.batch = ROWS;
  MN_TRY(mn_device_open(&r->device, where, "fp32", threads));
  MN_TRY(mn_dataset_arrays(&r->rows, x[0], y[0], ROWS, INPUTS, OUTPUTS));
  MN_TRY(mn_model_open(&r->model, r->device, &sizes));
  MN_TRY(mn_model_initialise(r->model, 0));
  MN_TRY(mn_optimizer_open(&r->optimizer, r->model, &adamw));
  return mn_trainer_open(&r->trainer, r->model, r->optimizer, r->rows, &training, NULL);
}

static void close_run(struct run *r) {
  mn_trainer_close(r->trainer), mn_optimizer_close(r->optimizer), mn_model_close(r->model);
  mn_dataset_close(r->rows), mn_device_close(r->device);
}

static mn_status close_all(struct run *r) {
  close_run(r);
  return MN_OK;
}

static void nothing_of_the_program_changes(void **state) {
  char path[] = "/tmp/minnow-XXXXXX";
  struct run r = {0};
  struct mn_model *loaded = NULL, *missing = NULL;
  struct mn_dataset *file = NULL, *trusted = NULL;
  const int fd = mkstemp(path);
  assert_int_equal(unlink(path), 0);
  set_what_nobody_would();
  children = 0;
  mn_device_close(open_or_skip(*state, "fp32"));
  LEAVES(open_run(&r, *state, 2));
  LEAVES(mn_trainer_run(r.trainer, 2, NULL, NULL));
  LEAVES(mn_model_save(r.model, path));
  LEAVES(mn_model_load(&loaded, r.device, path));
  assert_int_equal(children, 0); /* minnow's own files are read by this process */
  LEAVES(mn_dataset_open(&trusted, "data/digits.h5", MN_PART_TRAIN, NULL, NULL, MN_Y_REQUIRED | MN_TRUSTED));
  assert_int_equal(children, 0);
  LEAVES(mn_dataset_open(&file, "data/digits.h5", MN_PART_TRAIN, NULL, NULL, MN_Y_REQUIRED));
  assert_true(children > 0);
  LEAVES(mn_model_predict(loaded, x[0], ROWS, out[0]));
  LEAVES(mn_model_load(&missing, r.device, "/nowhere") == MN_NO_INPUT ? MN_OK : MN_FAILED);
  mn_model_close(loaded);
  LEAVES(close_all(&r));
  mn_dataset_close(file), mn_dataset_close(trusted);
  assert_int_equal(close(fd), 0), assert_int_equal(unlink(path), 0);
}

/* ---- children ---- */

/* Trains in a child, and says by its exit code whether that is as it was. */
static int in_child(struct run *opened, const float *expected) {
  struct run own = {0};
  alarm(60); /* a child that waits for threads which it has not is ended */
  if (opened ? mn_trainer_run(opened->trainer, 2, NULL, NULL) : open_run(&own, "cpu", 2)) return 1;
  if (!opened && mn_trainer_run(own.trainer, 2, NULL, NULL)) return 2;
  if (mn_model_predict(opened ? opened->model : own.model, x[0], ROWS, out[0])) return 3;
  return memcmp(out, expected, sizeof out) ? 4 : 0;
}

static void *run_in_thread(void *expected) {
  return (void *)(intptr_t)in_child(NULL, expected);
}

static void assert_child(int (*work)(struct run *, const float *), struct run *run, const float *expected) {
  int how;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(work(run, expected));
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how));
  assert_int_equal(WEXITSTATUS(how), 0);
}

static int in_thread_of_child(struct run *unused, const float *expected) {
  pthread_t thread;
  void *code;
  if (pthread_create(&thread, NULL, run_in_thread, (void *)(uintptr_t)expected) != 0) return 10;
  return pthread_join(thread, &code) != 0 ? 11 : (int)(intptr_t)code;
}

static int opens_three(struct run *unused, const float *expected) {
  struct mn_device *device = NULL;
  return mn_device_open(&device, "cpu", "fp32", 3) || strcmp(device->name, "CPU (3 threads)") != 0;
}

static int opens_one(struct run *unused, const float *expected) {
  struct mn_device *device = NULL;
  return mn_device_open(&device, "cpu", "fp32", 3) || strcmp(device->name, "CPU (1 threads)") != 0;
}

/* The first test: a parent without threads leaves none behind. */
static void a_daemon_has_all_threads(void **state) {
  assert_child(opens_three, NULL, NULL);
}

/* A parent whose OpenMP has started threads, its own or the library's. */
static void forked_children_compute(void **state) {
  static float expected[ROWS][OUTPUTS];
  struct run r = {0}, other = {0};
  int started = 0;
  omp_set_dynamic(0);
#pragma omp parallel num_threads(3) reduction(+ : started)
  started++;
  assert_int_equal(started, 3);
  signal(SIGCHLD, SIG_DFL);
  MUST(open_run(&r, "cpu", 2));
  MUST(mn_trainer_run(r.trainer, 2, NULL, NULL));
  MUST(mn_model_predict(r.model, x[0], ROWS, expected[0]));
  assert_child(opens_one, NULL, NULL);
  assert_child(in_child, NULL, expected[0]);           /* which opens a device */
  assert_child(in_thread_of_child, NULL, expected[0]); /* in a thread of its own */
  MUST(open_run(&other, "cpu", 2));
  assert_child(in_child, &other, expected[0]); /* with the parent's */
  MUST(mn_trainer_run(other.trainer, 2, NULL, NULL));
  MUST(mn_model_predict(other.model, x[0], ROWS, out[0]));
  assert_memory_equal(out, expected, sizeof out); /* the parent goes on */
  close_run(&r), close_run(&other);
}

static void threads_are_chosen(void **state) {
  struct mn_device *device = NULL;
  omp_set_num_threads(1);
  for (int threads = 1; threads <= 5; threads += 2) {
    MUST(mn_device_open(&device, "cpu", "fp32", threads));
    char name[32];
    snprintf(name, sizeof name, "CPU (%d threads)", threads);
    assert_string_equal(device->name, name);
    mn_device_close(device);
  }
  MUST(mn_device_open(&device, "cpu", "fp32", 0));
  assert_string_equal(device->name, "CPU (1 threads)");
  mn_device_close(device);
  assert_int_equal(mn_device_open(&device, "cpu", "fp32", -1), MN_USAGE);
  assert_int_equal(mn_device_open(&device, "cpu", "fp32", 2000000000), MN_USAGE);
  assert_non_null(strstr(mn_message(), "2000000000 is no number of threads"));
}

int main(void) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < INPUTS; j++)
      x[i][j] = (float)random01(1, i * INPUTS + j), y[i][j % OUTPUTS] += x[i][j];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_daemon_has_all_threads),
      BOTH(nothing_of_the_program_changes),
      cmocka_unit_test(forked_children_compute),
      cmocka_unit_test(threads_are_chosen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
