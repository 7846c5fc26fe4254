/* Resuming as a contract: in every way of training, a run that was stopped after any step, and went on from
 * its checkpoint with its rows waiting elsewhere, leaves what an undisturbed run leaves: parameters, what the
 * optimizer keeps, progress and log, to the bit. What may change the last bits is named: another device,
 * other products, other versions. From the CPU to a GPU and back a run keeps its samples, and comes
 * out near. The runs are in this process, and fsync does nothing, so that the many saves cost no disk's time.
 */
#include "tests/checkpoint_make.h"

#include "tests/check.h"
#include "tests/command_call.h"
#include "tests/log_read.h"
#include "train/checkpoint/checkpoint.h"

int fsync(int fd) {
  return 0;
}

enum { STEPS = 12, COUNT_ROWS = 40, WIDTH = 8, OUTPUTS = 8 }; /* 5 batches of 8 rows an epoch */

/* ---- rows ---- */

/* `over`: one row has inputs that no product can hold. */
static void write_rows(const char *name, int labels, int over) {
  static float x[COUNT_ROWS * WIDTH], y[COUNT_ROWS * OUTPUTS];
  int classes[COUNT_ROWS];
  const hsize_t shape[] = {COUNT_ROWS, WIDTH};
  hid_t file = create_file(in_folder(name));
  for (int p = 0; p < 2; p++) {
    for (int i = 0; i < COUNT_ROWS * WIDTH; i++) x[i] = (float)((i * 37 + i * i % 11 + p) % 23) / 11 - 1;
    for (int i = 0; i < COUNT_ROWS * OUTPUTS; i++) y[i] = (float)((i * 13 + i * i % 7) % 17) / 8 - 1;
    for (int i = 0; i < WIDTH && over && p == 0; i++) x[17 * WIDTH + i] = 3.3e38f;
    for (int i = 0; i < COUNT_ROWS; i++) classes[i] = (i + p) % 3;
    put_dataset(file, p ? "test/x" : "train/x", H5T_NATIVE_FLOAT, 2, shape, H5P_DEFAULT, H5T_NATIVE_FLOAT, x);
    const hid_t type = labels ? H5T_NATIVE_INT : H5T_NATIVE_FLOAT;
    put_dataset(file, p ? "test/y" : "train/y", type, labels ? 1 : 2, shape, H5P_DEFAULT, type,
                labels ? (const void *)classes : y);
  }
  assert_true(H5Fclose(file) >= 0);
}

static int set_up_rows(void **state) {
  const int status = setup(state);
  write_rows("numbers.h5", 0, 0);
  write_rows("labels.h5", 1, 0);
  write_rows("over-numbers.h5", 0, 1);
  write_rows("over-labels.h5", 1, 1);
  return status;
}

/* ---- runs ---- */

static const struct way {
  const char *rows, *options;
} ways[] = {
    {"numbers", "--precision fp64 --nesterov --schedule cosine --warmup 3"},
    {"labels", "--precision fp64 --optimizer adamw --weight-decay 0.01 --clip 0.5"},
    {"numbers", "--precision fp32 --momentum 0 --schedule step --step-every 4 --clip 0.5"},
    {"labels", "--precision fp32 --momentum 0.9 --accumulate 3 --plan none"},
    {"numbers", "--precision fp32 --optimizer adamw --head 8 --schedule cosine --best"},
    {"numbers", "--precision tf32 --momentum 0.9 --weight-decay 0.01"},
    {"numbers", "--precision bf16 --momentum 0.9 --schedule step --best"},
    {"labels", "--precision bf16 --optimizer adamw --beta2 0.9 --clip 0.5 --accumulate 3"},
    {"numbers", "--precision fp16 --momentum 0.9 --lr 1 --standardize no"},
    {"labels", "--precision fp16 --optimizer adamw --lr 0.1 --clip 0.5 --accumulate 2 --warmup 4"},
    {"numbers", "--precision fp16x3 --momentum 0.9 --nesterov --clip 0.5"},
    {"labels", "--precision fp16x3 --optimizer adamw --accumulate 3 --schedule cosine"},
    {"over-numbers", "--precision fp32 --momentum 0.9 --on-nonfinite skip --standardize no"},
    {"over-labels",
     "--precision fp32 --optimizer adamw --clip 0.5 --accumulate 2 --on-nonfinite skip --standardize no"},
    {"over-numbers",
     "--precision fp16 --momentum 0.9 --head 8 --accumulate 3 --on-nonfinite skip --standardize no"},
    {"over-labels", "--precision fp16 --momentum 0.9 --on-nonfinite skip --standardize no"},
    {"over-numbers",
     "--precision bf16 --optimizer adamw --schedule cosine --on-nonfinite skip --standardize no"},
};
static const char *const places[] = {"device", "host", "file"};

/* Runs "train …", split at blanks, on this device, with this checkpoint and its log. */
static void train(const char *device, const char *name, const char *options) {
  mn_status status = call_command("train --quiet --device %s --run %s/%s %s", device, folder, name, options);
  if (status != MN_OK) fail_msg("%s: %s", options, mn_message());
}

static void begin(const char *device, const char *name, const struct way *way, const char *more) {
  char options[800];
  assert_true(
      snprintf(options, sizeof options,
               "--data %.500s/%s.h5 --hidden 16,8 --groups 2 --batch 8 --steps %d --log-every 1 %s %s",
               folder, way->rows, STEPS, way->options, more) < (int)sizeof options);
  train(device, name, options);
}

/* A run that is stopped after each of these steps (up to a 0), and ends at the last. */
static void train_in_parts(const char *const *devices, const char *name, const struct way *way,
                           const int64_t *stops) {
  char more[128];
  for (int i = 0; stops[i]; i++) {
    snprintf(more, sizeof more, "--place %s --stop-at %ld%s", places[i % 3], (long)stops[i],
             i > 0 ? " --resume" : "");
    if (i == 0)
      begin(devices[0], name, way, more);
    else
      train(devices[i], name, more);
  }
}

/* ---- what they leave ---- */

static struct mn_checkpoint *load(const char *name) {
  struct mn_checkpoint *loaded;
  char file[64];
  snprintf(file, sizeof file, "%s/checkpoint.h5", name);
  MUST(mn_checkpoint_load(&loaded, in_folder(file)));
  return loaded;
}

static void assert_same_checkpoints(const char *a, const char *b, const char *which) {
  struct mn_checkpoint *x = load(a), *y = load(b);
  assert_int_equal(x->tensor_count, y->tensor_count);
  for (int i = 0; i < x->tensor_count; i++) {
    const struct mn_checkpoint_tensor *t = &x->tensors[i], *u = &y->tensors[i];
    const size_t size = (size_t)(t->rows * t->cols) * t->real;
    const void *const of_t[] = {t->value, t->momentum, t->exp_avg, t->exp_avg_sq}, *const of_u[] = {
                                                                                       u->value, u->momentum,
                                                                                       u->exp_avg,
                                                                                       u->exp_avg_sq};
    for (int k = 0; k < 4; k++)
      if (!of_t[k] != !of_u[k] || (of_t[k] && memcmp(of_t[k], of_u[k], size) != 0))
        fail_msg("%s: %s differs (%d)", which, t->name, k);
    if (t->factor != u->factor || t->gradient_factor != u->gradient_factor)
      fail_msg("%s: factors of %s differ", which, t->name);
  }
  if (memcmp(&x->progress, &y->progress, sizeof x->progress) != 0) fail_msg("%s: progress differs", which);
  mn_checkpoint_free(x);
  mn_checkpoint_free(y);
}

static void forget_runs(void) {
  static const char *const names[] = {"whole", "parts"};
  for (int i = 0; i < 2; i++)
    if (access(in_folder(names[i]), F_OK) == 0) remove_folder(in_folder(names[i]));
}

/* ---- the contract ---- */

static void assert_parts_leave_the_whole(const char *device, const struct way *way, const int64_t *stops) {
  const char *devices[STEPS];
  for (int i = 0; i < STEPS; i++) devices[i] = device;
  train_in_parts(devices, "parts", way, stops);
  assert_same_checkpoints("whole", "parts", way->options);
  assert_same_logs(in_folder("whole/log.jsonl"), in_folder("parts/log.jsonl"));
  remove_folder(in_folder("parts"));
}

/* After every third step, from another one on in each way; and on the CPU, where opening a run takes no time,
 * after every step. */
static void stopped_at_any_step(void **state) {
  const char *device = *state;
  static const int64_t each[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0};
  int skipped = 0;
  mn_device_close(open_or_skip(device, "fp32"));
  for (size_t w = 0; w < COUNT(ways); w++) {
    const int64_t first = 1 + (int64_t)w % 3,
                  some[] = {first, first + 3, first + 6, first == 3 ? 10 : first + 9, STEPS, 0};
    begin(device, "whole", &ways[w], "");
    assert_parts_leave_the_whole(device, &ways[w], some);
    if (strcmp(device, "cpu") == 0) assert_parts_leave_the_whole(device, &ways[w], each);
    struct mn_checkpoint *whole = load("whole");
    assert_int_equal(whole->progress.step, STEPS);
    assert_true((whole->progress.skipped > 0) == (strncmp(ways[w].rows, "over", 4) == 0));
    skipped += whole->progress.skipped > 0;
    mn_checkpoint_free(whole);
    forget_runs();
  }
  assert_int_equal(skipped, 5);
}

/* ---- what it does not hold for is named ---- */

/* Each item of the device's fingerprint is in the checkpoint, among them the device, whether its products are
 * fused multiply-adds, and the libraries' versions. */
static void what_may_change_the_bits_is_in_the_checkpoint(void **state) {
  static const char *const wanted[] = {"version", "device", "precision", "hdf5"};
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_text here[MN_CHECKPOINT_FINGERPRINT];
  begin(*state, "whole", &ways[2], "");
  struct mn_checkpoint *c = load("whole");
  assert_int_equal(mn_describe_fingerprint(device, here), c->fingerprint_count);
  for (int i = 0; i < c->fingerprint_count; i++) {
    assert_string_equal(c->fingerprint[i].name, here[i].name);
    assert_string_equal(c->fingerprint[i].value, here[i].value);
  }
  for (size_t i = 0; i < COUNT(wanted); i++)
    assert_non_null(mn_text_find(c->fingerprint, c->fingerprint_count, wanted[i]));
  assert_int_equal(device->type == MN_DEVICE_CPU,
                   mn_text_find(c->fingerprint, c->fingerprint_count, "products") != NULL);
  mn_checkpoint_free(c);
  mn_device_close(device);
}

/* ---- from one device to another and back ---- */

/* ‖a − b‖/‖b‖ over all parameters. */
static double apart(const struct mn_checkpoint *a, const struct mn_checkpoint *b) {
  double difference = 0, size = 0;
  for (int i = 0; i < a->tensor_count; i++)
    for (int64_t k = 0; k < a->tensors[i].rows * a->tensors[i].cols; k++) {
      const int wide = a->tensors[i].real == sizeof(double);
      const double x = wide ? ((double *)a->tensors[i].value)[k] : (double)((float *)a->tensors[i].value)[k];
      const double y = wide ? ((double *)b->tensors[i].value)[k] : (double)((float *)b->tensors[i].value)[k];
      difference += (x - y) * (x - y), size += y * y;
    }
  return sqrt(difference / size);
}

/* Behind the next loss or norm of a gradient; NULL: there is none. */
static char *next_number(char *text) {
  static const char *const keys[] = {"loss\":", "norm\":", "r2\":"};
  char *first = NULL;
  for (int i = 0; i < 3; i++) {
    char *found = strstr(text, keys[i]);
    if (found && (!first || found + strlen(keys[i]) < first)) first = found + strlen(keys[i]);
  }
  return first;
}

/* The same lines but for these numbers, and those close: each step had the same samples. */
static void assert_near_logs(const char *a, const char *b, double tolerance) {
  char *one = read_log(a), *two = read_log(b), *x = one, *y = two;
  for (;;) {
    char *p = next_number(x), *q = next_number(y);
    assert_true(!p == !q);
    if (!p) break;
    assert_true(p - x == q - y && strncmp(x, y, (size_t)(p - x)) == 0);
    const double number = strtod(p, &x), other = strtod(q, &y);
    const double of = strncmp(q - 4, "r2", 2) == 0 ? 1 - other : other; /* R² is 1 less a ratio of squares */
    if (!(fabs(number - other) <= tolerance * fabs(of))) fail_msg("%g and %g", number, other);
  }
  assert_string_equal(x, y);
  free(one), free(two);
}

/* Every step of two thirds of the run is the other device's. Bounds: 12 steps of float32 arithmetic in
 * another order, and of float64. */
static void another_device_keeps_the_samples(void **state) {
  static const struct {
    struct way way;
    double bound;
  } cases[] = {{{"numbers", "--precision fp64 --momentum 0.9 --schedule cosine"}, 1e-12},
               {{"labels", "--precision fp64 --optimizer adamw --clip 0.5 --accumulate 3"}, 1e-12},
               {{"numbers", "--precision fp32 --momentum 0.9 --nesterov"}, 1e-5},
               {{"labels", "--precision fp32 --momentum 0.9 --clip 0.5"}, 1e-5},
               {{"numbers", "--precision fp16x3 --momentum 0.9"}, 1e-5}};
  static const int64_t stops[] = {4, 8, 12, 0};
  static const char *const devices[] = {"cpu", "cuda", "cpu"};
  mn_device_close(open_or_skip("cuda", "fp32"));
  for (size_t i = 0; i < COUNT(cases); i++) {
    begin("cpu", "whole", &cases[i].way, "");
    train_in_parts(devices, "parts", &cases[i].way, stops);
    struct mn_checkpoint *whole = load("whole"), *parts = load("parts");
    const double error = apart(parts, whole);
    print_message("%s: %.2g apart\n", cases[i].way.options, error);
    if (!(error <= cases[i].bound)) fail_msg("more than %g apart", cases[i].bound);
    assert_int_equal(parts->progress.samples, whole->progress.samples);
    assert_int_equal(parts->progress.position, whole->progress.position);
    assert_near_logs(in_folder("parts/log.jsonl"), in_folder("whole/log.jsonl"), 10 * cases[i].bound);
    mn_checkpoint_free(whole);
    mn_checkpoint_free(parts);
    forget_runs();
  }
}

int main(void) {
#define IN_FOLDER(device, test)                                                                              \
  { #test ", " device, test, set_up_rows, teardown, (void *)(uintptr_t)(device) }
  const struct CMUnitTest tests[] = {
      IN_FOLDER("cpu", stopped_at_any_step),
      IN_FOLDER("cuda", stopped_at_any_step),
      IN_FOLDER("cpu", what_may_change_the_bits_is_in_the_checkpoint),
      IN_FOLDER("cuda", what_may_change_the_bits_is_in_the_checkpoint),
      IN_FOLDER("cuda", another_device_keeps_the_samples),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
