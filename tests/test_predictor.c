/* Predictors: the model's outputs, whatever the number of rows and of threads, also after it has learned. */
#include "tests/all.h"
#include "tests/check.h"
#include "tests/pass_load.h"
#include "train/evaluate.h"
#include "train/fit.h"

#include <pthread.h>

enum { MOST = 70 };

static uint64_t dice = 1;
static int64_t below(int64_t count) {
  static int64_t drawn;
  return (int64_t)(random01(dice, ++drawn) * (double)count);
}

/* ---- allocations, counted: the program is linked with --wrap ---- */

static int64_t allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes) {
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  return __real_calloc(count, bytes);
}

/* ---- models ---- */

struct drawn {
  struct mn_device *device;
  struct mn_model *model;
  int64_t inputs, outputs;
  float *x, *y, *expected; /* of MOST rows */
};

static mn_status keep(void *to, const double *y, const void *targets, int64_t first, int64_t count) {
  struct drawn *d = to;
  for (int64_t i = 0; i < count * d->outputs; i++) d->expected[first * d->outputs + i] = (float)y[i];
  return MN_OK;
}

/* Sets `expected` to what an evaluator, as the command's, has for all rows. */
static void evaluate(struct drawn *d, int64_t batch) {
  struct mn_dataset *rows;
  struct mn_evaluator *e;
  double loss, accuracy;
  memset(d->y, 0, (size_t)(MOST * d->outputs) * sizeof *d->y);
  MUST(mn_dataset_arrays(&rows, d->x, d->y, MOST, d->inputs, d->outputs));
  MUST(mn_evaluator_open(&e, d->model, rows, batch, MN_PLACE_AUTO));
  MUST(mn_evaluator_watch(e, keep, d));
  MUST(mn_evaluate(e, &loss, &accuracy));
  mn_evaluator_close(e), mn_dataset_close(rows);
}

static struct drawn draw(struct mn_device *device) {
  struct drawn d = {.device = device};
  struct mn_model_config c = mn_model_defaults();
  c.inputs = 1 + below(40), c.depth = 1 + below(3), c.groups = 1 + below(8);
  for (int i = 0; i < c.depth; i++) c.hidden[i] = c.groups * (1 + below(20)) * (device->planes > 1 ? 8 : 1);
  if (device->planes > 1) c.inputs *= 8;
  c.head = below(3) ? 1 + below(40) : 0;
  c.plan = (enum mn_plan)below(MN_PLANS);
  d.inputs = c.inputs, d.outputs = mn_model_outputs(&c);
  MUST(mn_model_open(&d.model, device, &c));
  MUST(mn_model_initialise(d.model, (uint64_t)below(1000)));
  const size_t values = (size_t)(MOST * (d.inputs + 2 * d.outputs));
  d.x = malloc(values * sizeof *d.x);
  assert_non_null(d.x);
  d.y = d.x + MOST * d.inputs, d.expected = d.y + MOST * d.outputs;
  for (int64_t i = 0; i < MOST * d.inputs; i++) d.x[i] = (float)(random01(dice, 1000000 + i) * 4 - 2);
  double numbers[400], ones[400];
  for (int i = 0; i < 400; i++) numbers[i] = 1 + 0.5 * random01(3, i), ones[i] = 0.25;
  if (below(2)) MUST(mn_model_standardize(d.model, ones, numbers));
  if (below(2) && d.outputs <= 400) MUST(mn_model_standardize_targets(d.model, numbers, numbers));
  return d;
}

static void release(struct drawn *d) {
  mn_model_close(d->model);
  free(d->x);
}

/* By rows of any number at a time; on the CPU, but with factors of all rows, to the bit. */
static void assert_predicts(struct drawn *d, struct mn_predictor *p, int exact) {
  for (int64_t first = 0, n; first < MOST; first += n) {
    n = below(2) ? 1 : 1 + below(MOST);
    if (n > MOST - first) n = MOST - first;
    const int64_t before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    MUST(mn_predict(p, d->x + first * d->inputs, n, d->y + first * d->outputs));
    if (d->device->type == MN_DEVICE_CPU && first > 0) /* the first may start threads */
      assert_int_equal(__atomic_load_n(&allocations, __ATOMIC_RELAXED), before);
  }
  for (int64_t i = 0; i < MOST * d->outputs; i++)
    if (exact ? d->y[i] != d->expected[i]
              : !(fabsf(d->y[i] - d->expected[i]) <= 60 * d->device->tolerance * (1 + fabsf(d->expected[i]))))
      fail_msg("row %ld, output %ld: %.9g, expected %.9g", (long)(i / d->outputs), (long)(i % d->outputs),
               (double)d->y[i], (double)d->expected[i]);
}

/* A step of a pass on the first rows, as a program with a loop of its own takes it. */
static void learn(struct drawn *d, struct mn_optimizer *optimizer) {
  struct mn_pass *pass;
  double *x = random_values(8 * d->inputs, 5, 1), *y = random_values(8 * d->outputs, 6, 1);
  float *narrow = malloc((size_t)(8 * (d->inputs + d->outputs)) * sizeof *narrow);
  const int wide = d->device->real == sizeof(double);
  assert_non_null(narrow);
  for (int64_t i = 0; i < 8 * d->inputs; i++) narrow[i] = (float)x[i];
  for (int64_t i = 0; i < 8 * d->outputs; i++) narrow[8 * d->inputs + i] = (float)y[i];
  MUST(mn_pass_open(&pass, d->model, MN_PASS_TRAIN, 8, 1, 0));
  MUST(mn_optimizer_rate(optimizer, 0.1, 0));
  MUST(pass_load(pass, wide ? (void *)x : narrow, wide ? (void *)y : narrow + 8 * d->inputs));
  MUST(mn_tape_step(pass->tape));
  mn_pass_close(pass);
  free(x), free(y), free(narrow);
}

static void predictions_are_an_evaluators(void **state) {
  static const char *const precisions[] = {"fp32", "fp64", "bf16", "fp16", "fp16x3"};
  for (size_t k = 0; k < COUNT(precisions) * (quick() ? 2 : 12); k++) {
    struct mn_device *device = open_or_skip(*state, precisions[k % COUNT(precisions)]);
    if (!device) continue;
    const int exact = device->type == MN_DEVICE_CPU && device->precision != MN_FP16;
    struct drawn d = draw(device);
    struct mn_predictor *p, *other;
    struct mn_optimizer *optimizer;
    const struct mn_optimizer_config sgd = {.rule = {.momentum = below(2) ? 0.9 : 0}, .accumulate = 1};
    MUST(mn_predictor_open(&p, d.model, MOST));
    MUST(mn_predictor_open(&other, d.model, MOST));
    evaluate(&d, 1 + below(MOST));
    assert_predicts(&d, p, exact);
    assert_predicts(&d, other, exact);
    MUST(mn_optimizer_open(&optimizer, d.model, &sgd)); /* they follow the model */
    learn(&d, optimizer);
    const float was = d.expected[0];
    evaluate(&d, MOST);
    assert_true(d.expected[0] != was);
    assert_predicts(&d, other, exact);
    assert_predicts(&d, p, exact);
    MUST(mn_model_initialise(d.model, 77));
    evaluate(&d, MOST);
    mn_predictor_close(other);
    assert_predicts(&d, p, exact);
    mn_predictor_close(p), mn_optimizer_close(optimizer);
    release(&d), mn_device_close(device);
  }
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 300 };

struct thread {
  pthread_t id;
  struct mn_model *model;
  const float *x, *expected;
  int64_t rows, wrong;
  float bound; /* 0 on the CPU; a GPU's library takes other ways for other numbers of rows */
};

/* Opens a predictor of its own, and counts the outputs that are not as expected. */
static void *predict_often(void *data) {
  struct thread *t = data;
  struct mn_predictor *p;
  float y[8 * 3];
  if (mn_predictor_open(&p, t->model, 8) != MN_OK) return t->wrong++, NULL;
  for (int round = 0; round < ROUNDS; round++)
    for (int64_t first = 0, n; first < t->rows; first += n) {
      n = 1 + (first + round) % 8;
      if (n > t->rows - first) n = t->rows - first;
      t->wrong += mn_predict(p, t->x + first * 16, n, y) != MN_OK;
      for (int64_t i = 0; i < n * 3; i++) t->wrong += !(fabsf(y[i] - t->expected[first * 3 + i]) <= t->bound);
    }
  mn_predictor_close(p);
  return NULL;
}

/* Beside each other on one model, and after each step of its training. */
static void threads_predict_beside_each_other(void **state) {
  struct drawn d = {.device = open_or_skip(*state, "fp32"), .inputs = 16, .outputs = 3};
  struct mn_model_config c = mn_model_defaults();
  struct mn_optimizer *optimizer;
  const struct mn_optimizer_config sgd = {.rule = {.momentum = 0}, .accumulate = 1};
  c.inputs = 16, c.depth = 1, c.hidden[0] = 64, c.head = 3;
  MUST(mn_model_open(&d.model, d.device, &c));
  MUST(mn_model_initialise(d.model, 0));
  MUST(mn_optimizer_open(&optimizer, d.model, &sgd));
  d.x = malloc((size_t)(MOST * (16 + 3)) * sizeof *d.x);
  assert_non_null(d.x);
  d.expected = d.x + MOST * 16;
  for (int64_t i = 0; i < MOST * 16; i++) d.x[i] = (float)random01(9, i);
  for (int step = 0; step < 3; step++) {
    struct thread threads[THREADS];
    learn(&d, optimizer);
    MUST(mn_model_predict(d.model, d.x, MOST, d.expected));
    for (int i = 0; i < THREADS; i++) {
      threads[i] = (struct thread){.model = d.model, .x = d.x, .expected = d.expected, .rows = MOST};
      threads[i].bound = d.device->type == MN_DEVICE_CPU ? 0 : 1e-4F;
      assert_int_equal(pthread_create(&threads[i].id, NULL, predict_often, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(threads[i].wrong, 0);
  }
  mn_optimizer_close(optimizer);
  release(&d), mn_device_close(d.device);
}

static void what_cannot_be_is_refused(void **state) {
  struct drawn d = draw(open_or_skip(*state, "fp32"));
  struct mn_predictor *p;
  assert_int_equal(mn_predictor_open(&p, d.model, 0), MN_USAGE);
  assert_null(p);
  MUST(mn_predictor_open(&p, d.model, 5));
  MUST(mn_predict(p, d.x, 0, d.y));
  assert_int_equal(mn_predict(p, d.x, 6, d.y), MN_USAGE);
  assert_non_null(strstr(mn_message(), "6 rows for a predictor of 5"));
  assert_int_equal(mn_predict(p, d.x, -1, d.y), MN_USAGE);
  d.x[3 * d.inputs] = NAN;
  assert_int_equal(mn_predict(p, d.x, 5, d.y), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "row 3, column 0"));
  MUST(mn_predict(p, d.x, 3, d.y)); /* and goes on */
  mn_predictor_close(p), mn_predictor_close(NULL);
  release(&d), mn_device_close(d.device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(predictions_are_an_evaluators),
      BOTH(threads_predict_beside_each_other),
      BOTH(what_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
