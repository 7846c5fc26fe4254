/* Timing. Every figure is the median of several intervals between two marks on the device's clock. The bare
 * GEMMs (the library's, and our own beside them) and the copy that a step is compared with are measured in
 * the same run, on data of the same sizes.
 *
 * Each figure has a model of its own, closed before the next one's is opened, so that the memory reported
 * is the memory of one training run. Matrices are random, because products of constant matrices run faster.
 * Labels are 0. All runs are of one batch, which may stay in the L2 cache: with others by turns a step took
 * up to 3 % longer (tests/RESULTS.md). */
#include "train/check/check.h"
#include "train/speed.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/clock.h"
#include "kernels/device.h"
#include "layers/stack.h"
#include "train/json.h"

enum { MOST_REPETITIONS = 200 };

/* How a device is timed. */
struct protocol {
  double warm_up_ms;   /* run this long first: clocks rise, caches and libraries settle */
  double interval_ms;  /* the least time between two marks: shorter runs are timed several together */
  double budget_ms;    /* for all repetitions of a figure */
  int repetitions;     /* at least */
  size_t copied_bytes; /* larger than any cache */
};
static const struct protocol protocols[] = {
    [MN_DEVICE_CPU] = {50, 2, 300, 5, (size_t)64 << 20},
    [MN_DEVICE_CUDA] = {200, 0.5, 1000, 30, (size_t)512 << 20},
};
_Static_assert(sizeof protocols / sizeof *protocols == MN_DEVICE_TYPES, "a protocol for each device");

enum figure { FORWARD, FORWARD_BACKWARD, STEP, FIGURES };
static const char *const figures[] = {
    [FORWARD] = "forward_ms", [FORWARD_BACKWARD] = "forward_backward_ms", [STEP] = "step_ms"};
_Static_assert(sizeof figures / sizeof *figures == FIGURES, "a name for each figure");

/* The three products of the first block. */
enum { X, WEIGHT, DZ, OPERANDS, PRODUCTS = 3 };
static const struct product_kind {
  enum mn_form form;
  int left, right;
  const char *key;
} products[PRODUCTS] = {
    {MN_NT, X, WEIGHT, "gemm_forward_ms"}, {MN_NN, DZ, WEIGHT, "gemm_dx_ms"}, {MN_TN, DZ, X, "gemm_dw_ms"}};

/* The plans are compared on the library's path, the stack in its own kernel; the last row is the block again,
 * each product and its epilogue in one kernel. */
enum { FUSED_GEMM = MN_PLANS, PLAN_ROWS };

struct bench {
  struct mn_device *device;
  const struct mn_check_config *config;
  int figure, figures; /* the number of the one that is timed, and how many there are */
  int own_products;    /* whether products in a GEMM of our own are timed beside the library's */
  int stacks;          /* MN_PLAN_STACK is not MN_PLAN_BLOCK here */
  size_t held;         /* device memory while a step runs */
  double flops;        /* of a step */
  double ms[FIGURES], copy;
  double products[2][PRODUCTS]; /* the library's alone; with our own GEMM */
  double plans[PLAN_ROWS][FIGURES];
};

typedef mn_status work(void *state); /* to be timed, again and again */

static int has_row(const struct bench *b, int row) {
  return b->config->plans && (row != MN_PLAN_STACK || b->stacks) &&
         (row != FUSED_GEMM || b->device->has_own_gemm);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The milliseconds of one of `count` runs between two marks. */
static mn_status interval(struct mn_device *device, work *run, void *state, int64_t count, double *ms) {
  MN_TRY(mn_stamp(device, 0));
  for (int64_t i = 0; i < count; i++) MN_TRY(run(state));
  MN_TRY(mn_stamp(device, 1));
  MN_TRY(mn_elapsed(device, ms));
  *ms /= (double)count;
  return MN_OK;
}

/* The median of the milliseconds of one run. */
static mn_status measure(struct bench *b, const char *name, work *run, void *state, double *median) {
  struct mn_device *device = b->device;
  char what[80];
  snprintf(what, sizeof what, "figure %d of %d, %s: run", ++b->figure, b->figures, name);
  const struct protocol *p = &protocols[device->type];
  double ms = 0, times[MOST_REPETITIONS];
  int64_t count = 1;
  MN_TRY(interval(device, run, state, 1, &ms)); /* not counted: the first run allocates and records */
  for (double spent = 0; spent < p->warm_up_ms; spent += fmax(ms, 1e-3) * (double)count) {
    MN_TRY(interval(device, run, state, count, &ms));
    mn_heartbeat_of(what, 0, p->repetitions);
    if (ms * (double)count < p->interval_ms) count *= 2;
  }
  double fitting = p->budget_ms / fmax(ms * (double)count, 1e-3);
  int repetitions = (int)fmin(MOST_REPETITIONS, fmax(p->repetitions, fitting));
  for (int i = 0; i < repetitions; i++) {
    MN_TRY(interval(device, run, state, count, &times[i]));
    mn_heartbeat_of(what, i + 1, repetitions);
  }
  qsort(times, (size_t)repetitions, sizeof *times, ascending);
  *median = (times[(repetitions - 1) / 2] + times[repetitions / 2]) / 2;
  return MN_OK;
}

static mn_status fill_uniform(struct bench *b, struct mn_tensor *tensor, uint32_t which) {
  return mn_tensor_uniform(b->device, tensor, b->config->seed, MN_RANDOM_CHECK + which, 0, 1);
}

/* A model and the pass that a figure is of. */
struct subject {
  struct mn_model *model;
  struct mn_optimizer *optimizer; /* STEP only */
  struct mn_pass *pass;
  enum figure figure;
};

static mn_status run_subject(void *state) {
  struct subject *s = state;
  MN_TRY(mn_tape_replay(s->pass->tape, 0));
  return s->figure == STEP ? mn_optimizer_step(s->optimizer, s->pass->tape) : MN_OK;
}

/* The learning rate is so small that the weights stay finite however often the step is repeated. */
static mn_status open_subject(struct bench *b, struct subject *s, enum mn_plan plan) {
  struct mn_model_config config = b->config->model;
  config.plan = plan;
  MN_TRY(mn_model_open(&s->model, b->device, &config));
  MN_TRY(mn_model_initialise(s->model, b->config->seed));
  if (s->figure == FORWARD_BACKWARD) MN_TRY(mn_model_train(s->model, MN_STORE, NULL));
  if (s->figure == STEP) {
    MN_TRY(mn_optimizer_open(&s->optimizer, s->model, &b->config->optimizer));
    MN_TRY(mn_optimizer_rate(s->optimizer, 1e-6, 0));
  }
  enum mn_pass_kind kind = s->figure == FORWARD ? MN_PASS_FORWARD : MN_PASS_TRAIN;
  MN_TRY(mn_pass_open(&s->pass, s->model, kind, b->config->batch, 1, 0));
  if (plan == MN_PLAN_STACK)
    b->stacks |=
        mn_stack_fits(s->pass->tape, s->pass->x, s->model->layers, s->model->depth, !s->pass->target);
  MN_TRY(fill_uniform(b, s->pass->x, 0));
  if (s->pass->labels) return mn_zero(b->device, s->pass->labels, (size_t)s->pass->rows * sizeof(int32_t));
  return s->pass->target ? fill_uniform(b, s->pass->target, 1) : MN_OK;
}

/* A value that is not finite stops the updates, and the step then looks faster than it is. */
static mn_status check_finite(struct mn_tape *tape) {
  int nonfinite;
  MN_TRY(mn_tape_nonfinite(tape, &nonfinite));
  return nonfinite ? mn_fail(MN_FAILED, "values that are not finite: these times mean nothing") : MN_OK;
}

/* Times a figure under a plan; with `library` every product takes the library's path. */
static mn_status time_figure(struct bench *b, enum figure figure, enum mn_plan plan, int library,
                             double *ms) {
  struct subject subject = {.figure = figure};
  b->device->force_cublas = library;
  mn_status status = open_subject(b, &subject, plan);
  if (status == MN_OK && figure == STEP && !b->held) { /* of the chosen plan */
    b->held = b->device->bytes;
    b->flops = (double)b->config->batch * mn_model_step_flops(subject.model);
  }
  if (status == MN_OK) status = measure(b, figures[figure], run_subject, &subject, ms);
  if (status == MN_OK) status = check_finite(subject.pass->tape);
  mn_pass_close(subject.pass);
  mn_optimizer_close(subject.optimizer);
  mn_model_close(subject.model);
  return status;
}

/* A GEMM without an epilogue. */
struct product {
  struct mn_device *device;
  enum mn_form form;
  const struct mn_operand *a, *b;
  struct mn_epilogue store;
};

static mn_status run_product(void *state) {
  struct product *p = state;
  return mn_gemm(p->device, p->form, p->a, p->b, &p->store);
}

static mn_status time_product(struct bench *b, const struct product_kind *kind,
                              struct mn_tensor *const *operands, double *ms) {
  const struct mn_operand *left = &operands[kind->left]->value, *right = &operands[kind->right]->value;
  int64_t rows = kind->form == MN_TN ? left->cols : left->rows;
  int64_t count = rows * (kind->form == MN_NT ? right->rows : right->cols);
  void *into;
  MN_TRY(mn_device_allocate(b->device, &into, count, b->device->real));
  struct product product = {b->device, kind->form, left, right, {.kind = MN_STORE, .into = into}};
  mn_status status = measure(b, kind->key, run_product, &product, ms);
  mn_device_release(b->device, into, count, b->device->real);
  return status;
}

static mn_status time_products(struct bench *b, int library, double ms[PRODUCTS]) {
  int64_t rows = b->config->batch, inputs = b->config->model.inputs, channels = b->config->model.hidden[0];
  const int64_t shapes[OPERANDS][2] = {
      [X] = {rows, inputs}, [WEIGHT] = {channels, inputs}, [DZ] = {rows, channels}};
  struct mn_tensor *operands[OPERANDS] = {NULL};
  mn_status status = MN_OK;
  b->device->force_cublas = library;
  for (int i = 0; i < OPERANDS && status == MN_OK; i++) {
    status = mn_tensor_parameter(b->device, &operands[i], "operand", 2, shapes[i][0], shapes[i][1], 0, 0);
    if (status == MN_OK) status = fill_uniform(b, operands[i], 2 + (uint32_t)i);
  }
  for (int i = 0; i < PRODUCTS && status == MN_OK; i++)
    status = time_product(b, &products[i], operands, &ms[i]);
  for (int i = 0; i < OPERANDS; i++) mn_tensor_free(b->device, operands[i]);
  return status;
}

struct copy {
  struct mn_device *device;
  char *memory; /* the second half is a copy of the first */
  size_t bytes;
};

static mn_status run_copy(void *state) {
  struct copy *c = state;
  return mn_copy(c->device, c->memory + c->bytes, c->memory, c->bytes);
}

/* Sets b->copy to the GB/s read and written. */
static mn_status time_copy(struct bench *b) {
  struct mn_device *device = b->device;
  size_t bytes = protocols[device->type].copied_bytes;
  int64_t count = (int64_t)(bytes / device->real);
  struct copy copy = {.device = device, .bytes = bytes};
  double ms = 0;
  MN_TRY(mn_device_allocate(device, (void **)&copy.memory, 2 * count, device->real));
  mn_status status = mn_uniform(device, copy.memory, count, b->config->seed, MN_RANDOM_CHECK + 6, 0, 1);
  if (status == MN_OK) status = measure(b, "copy_gb_per_s", run_copy, &copy, &ms);
  mn_device_release(device, copy.memory, 2 * count, device->real);
  b->copy = 2 * (double)bytes / ms * 1e-6;
  return status;
}

static double tflops(double operations, double ms) {
  return operations / ms * 1e-9;
}

/* Operations of one product of the first block, a multiply-add as two. Epilogues are not counted: they have
 * some thousandths of the operations. */
static double product_flops(const struct bench *b) {
  return 2 * (double)b->config->batch * (double)b->config->model.inputs * (double)b->config->model.hidden[0];
}

/* The time of the bare GEMMs that a figure needs; only for one block, whose GEMMs are the ones measured. */
static double bare(const struct bench *b, enum figure figure) {
  if (b->config->model.depth > 1 || b->config->model.head > 0) return NAN;
  return b->products[0][0] + (figure == FORWARD ? 0 : b->products[0][2]);
}

static void show(FILE *out, const struct bench *b, int as_json) {
  const struct mn_model_config *m = &b->config->model;
  struct mn_json writer, *json = &writer;
  mn_json_begin(json, out, !as_json);
  mn_json_open(json, NULL);
  mn_json_string(json, "device", b->device->name);
  mn_json_string(json, "precision", mn_precision_name(b->device->precision));
  mn_json_integer(json, "batch", b->config->batch);
  mn_json_integer(json, "in", m->inputs);
  mn_json_array_open(json, "hidden");
  for (int i = 0; i < m->depth; i++) mn_json_integer(json, NULL, m->hidden[i]);
  mn_json_close(json);
  mn_json_integer(json, "groups", m->groups);
  mn_json_integer(json, "head", m->head);
  mn_json_string(json, "loss", mn_loss_name(m->loss));
  mn_json_string(json, "plan",
                 mn_plan_name(m->plan == MN_PLAN_STACK && !b->stacks ? MN_PLAN_BLOCK : m->plan));
  for (int i = 0; i < FIGURES; i++) mn_json_number(json, figures[i], b->ms[i]);
  for (int own = 0; own <= b->own_products; own++)
    for (int i = 0; i < PRODUCTS; i++) {
      char key[32];
      snprintf(key, sizeof key, "%s%s", own ? "own_" : "", products[i].key);
      mn_json_number(json, key, b->products[own][i]);
    }
  const double *library = b->products[0];
  mn_json_number(json, "gemm_tflops", tflops(3 * product_flops(b), library[0] + library[1] + library[2]));
  /* A step has three products a layer, except that x's gradient is not computed. */
  mn_json_number(json, "forward_tflops", tflops((b->flops + product_flops(b)) / 3, b->ms[FORWARD]));
  mn_json_number(json, "step_tflops", tflops(b->flops, b->ms[STEP]));
  mn_json_number(json, "forward_per_gemm", b->ms[FORWARD] / bare(b, FORWARD));
  mn_json_number(json, "step_per_gemms", b->ms[STEP] / bare(b, STEP));
  mn_json_number(json, "copy_gb_per_s", b->copy);
  mn_json_bytes(json, "device_bytes", (double)b->held);
  if (b->config->plans) {
    mn_json_array_open(json, "plans");
    for (int row = 0; row < PLAN_ROWS; row++) {
      if (!has_row(b, row)) continue;
      mn_json_open(json, NULL);
      mn_json_string(json, "plan", row == FUSED_GEMM ? "block, fused GEMM" : mn_plan_name((enum mn_plan)row));
      for (int i = 0; i < FIGURES; i++) mn_json_number(json, figures[i], b->plans[row][i]);
      mn_json_close(json);
    }
    mn_json_close(json);
  }
  mn_json_close(json);
}

static mn_status time_all(struct bench *b) {
  for (enum figure i = 0; i < FIGURES; i++) MN_TRY(time_figure(b, i, b->config->model.plan, 0, &b->ms[i]));
  if (has_row(b, MN_PLAN_STACK)) b->figures += FIGURES; /* known now */
  for (int own = 0; own <= b->own_products; own++) MN_TRY(time_products(b, !own, b->products[own]));
  MN_TRY(time_copy(b));
  for (int row = 0; row < PLAN_ROWS; row++) {
    if (!has_row(b, row)) continue;
    for (enum figure i = 0; i < FIGURES; i++) {
      enum mn_plan plan = row == FUSED_GEMM ? MN_PLAN_BLOCK : (enum mn_plan)row;
      MN_TRY(time_figure(b, i, plan, row != FUSED_GEMM, &b->plans[row][i]));
    }
  }
  return MN_OK;
}

mn_status mn_bench(FILE *out, struct mn_device *device, const struct mn_check_config *config, int as_json) {
  struct bench b = {.device = device, .config = config};
  b.own_products = device->has_own_gemm && device->planes == 1; /* no library takes two planes */
  int rows = 1;
  for (int row = 0; row < PLAN_ROWS; row++) rows += has_row(&b, row);
  b.figures = FIGURES * rows + PRODUCTS * (1 + b.own_products) + 1;
  mn_status status = time_all(&b);
  device->force_cublas = 0;
  if (status == MN_OK) show(out, &b, as_json);
  return status;
}
