/* Timing. Every figure is the median of several intervals between two marks on the device's clock. The bare
 * GEMMs (the library's, and our own beside them) and the copy that a step is compared with are measured in
 * the same run, on data of the same sizes.
 *
 * Each figure has a model of its own, closed before the next one's is opened, so that the memory reported is
 * that of one training run. All data are random, because constant data run faster. */
#include "train/check/bench.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/device.h"
#include "train/json.h"
#include "train/optimizer.h"

enum { MOST_REPETITIONS = 200 };

/* What a device needs to be timed well. */
struct protocol {
  double warm_up_ms;   /* run this long first: clocks rise, caches and libraries settle */
  double interval_ms;  /* shortest time between two marks: short steps are timed several at once */
  double budget_ms;    /* for all repetitions of a figure */
  int repetitions;     /* at least */
  size_t copied_bytes; /* larger than any cache */
};
static const struct protocol protocols[] = {
    [MN_DEVICE_CPU] = {100, 2, 1200, 5, (size_t)64 << 20},
    [MN_DEVICE_CUDA] = {200, 0.5, 1000, 30, (size_t)512 << 20},
};
_Static_assert(sizeof protocols / sizeof *protocols == MN_DEVICE_TYPES, "a protocol for each device");

struct bench {
  FILE *out;
  struct mn_json *json; /* NULL: text */
  struct mn_context *context;
  const struct mn_bench_config *config;
  size_t held; /* device memory while a step runs */
};

/* A thing to be timed, again and again. */
struct work {
  mn_status (*run)(void *state);
  void *state;
};

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The milliseconds of one of `count` runs between two marks. */
static mn_status interval(struct mn_context *context, const struct work *work, int64_t count, double *ms) {
  const struct mn_kernels *k = context->kernels;
  MN_TRY(k->mark(context->device, 0));
  for (int64_t i = 0; i < count; i++) MN_TRY(work->run(work->state));
  MN_TRY(k->mark(context->device, 1));
  MN_TRY(k->elapsed(context->device, ms));
  *ms /= (double)count;
  return MN_OK;
}

/* The median. */
static mn_status measure(struct mn_context *context, struct work work, double *median) {
  const struct protocol *p = &protocols[context->device->type];
  double ms = 0, times[MOST_REPETITIONS];
  int64_t count = 1;
  MN_TRY(interval(context, &work, 1, &ms)); /* what the first run sets up is nobody's time */
  for (double spent = 0; spent < p->warm_up_ms; spent += fmax(ms, 1e-3) * (double)count) {
    MN_TRY(interval(context, &work, count, &ms));
    if (ms * (double)count < p->interval_ms) count *= 2;
  }
  double fitting = p->budget_ms / fmax(ms * (double)count, 1e-3);
  int repetitions = (int)fmin(MOST_REPETITIONS, fmax(p->repetitions, fitting));
  for (int i = 0; i < repetitions; i++) MN_TRY(interval(context, &work, count, &times[i]));
  qsort(times, (size_t)repetitions, sizeof *times, ascending);
  *median = (times[(repetitions - 1) / 2] + times[repetitions / 2]) / 2;
  return MN_OK;
}

/* Whether some products run in a GEMM of our own, so that there are two paths to compare. At sizes that do
 * not suit it both are the library's. */
static int has_own_gemm(const struct bench *b) {
  return b->context->device->fuses;
}

static mn_status fill(struct bench *b, struct mn_operand *operand, uint32_t which) {
  MN_TRY(b->context->kernels->uniform(b->context->device, operand->real, operand->rows * operand->cols,
                                      b->config->seed, MN_RANDOM_CHECK + which, 0, 1));
  operand->stale = 1;
  return mn_operand_prepare(b->context, operand);
}

/* Forward, forward and backward, the whole step. */
enum figure { FORWARD, FORWARD_BACKWARD, STEP, FIGURES };

/* A model and the pass that a figure is of. */
struct subject {
  struct mn_model *model;
  struct mn_optimizer *optimizer; /* STEP only */
  struct mn_pass *pass;
  enum figure figure;
};

static mn_status run_subject(void *state) {
  struct subject *s = state;
  if (s->figure == FORWARD) return mn_tape_forward(s->pass->tape);
  MN_TRY(mn_tape_step(s->pass->tape));
  return s->figure == STEP ? mn_optimizer_step(s->optimizer, s->pass->tape) : MN_OK;
}

static mn_status load_labels(struct bench *b, struct mn_pass *pass) {
  int32_t *labels = malloc((size_t)pass->rows * sizeof *labels);
  if (!labels) return mn_fail(MN_NO_MEMORY, "no memory for %ld labels", (long)pass->rows);
  uint64_t classes = (uint64_t)mn_model_outputs(&b->config->model);
  for (int64_t n = 0; n < pass->rows; n++)
    labels[n] = (int32_t)(mn_random_word(b->config->seed, MN_RANDOM_CHECK + 5, (uint64_t)n) % classes);
  const struct mn_kernels *k = b->context->kernels;
  mn_status status = k->upload(b->context->device, pass->labels, labels, (size_t)pass->rows * sizeof *labels);
  if (status == MN_OK) status = k->synchronize(b->context->device);
  free(labels);
  return status;
}

/* The rate is so small that no number of repetitions leads the weights anywhere. */
static mn_status open_subject(struct bench *b, struct subject *s, enum mn_plan plan) {
  struct mn_model_config config = b->config->model;
  config.plan = plan;
  MN_TRY(mn_model_open(&s->model, b->context, &config));
  MN_TRY(mn_model_initialise(s->model, b->config->seed));
  if (s->figure == FORWARD_BACKWARD) MN_TRY(mn_model_train(s->model, MN_TRAIN_STORE, NULL));
  if (s->figure == STEP) {
    struct mn_sgd_config sgd = {
        .momentum = b->config->momentum, .weight_decay = b->config->weight_decay, .accumulate = 1};
    MN_TRY(mn_optimizer_open(&s->optimizer, s->model, &sgd));
    MN_TRY(mn_optimizer_rate(s->optimizer, 1e-6));
  }
  enum mn_pass_kind kind = s->figure == FORWARD ? MN_PASS_FORWARD : MN_PASS_TRAIN;
  MN_TRY(mn_pass_open(&s->pass, s->model, kind, b->config->batch, 1, 0));
  MN_TRY(fill(b, &s->pass->x->value, 0));
  if (s->pass->target) MN_TRY(fill(b, &s->pass->target->value, 1));
  return s->pass->labels ? load_labels(b, s->pass) : MN_OK;
}

/* A value that is not finite makes updates do nothing, and a step look faster than it is. */
static mn_status check_finite(struct mn_tape *tape) {
  int nonfinite;
  MN_TRY(mn_tape_nonfinite(tape, &nonfinite));
  return nonfinite ? mn_fail(MN_FAILED, "values that are not finite: these times mean nothing") : MN_OK;
}

/* library: every product takes the library's path. */
static mn_status time_figure(struct bench *b, enum figure figure, enum mn_plan plan, int library,
                             double *ms) {
  struct subject subject = {.figure = figure};
  b->context->device->library = library;
  mn_status status = open_subject(b, &subject, plan);
  if (status == MN_OK && figure == STEP && !b->held) b->held = b->context->bytes; /* the plan asked for */
  if (status == MN_OK) status = measure(b->context, (struct work){run_subject, &subject}, ms);
  if (status == MN_OK) status = check_finite(subject.pass->tape);
  mn_pass_close(subject.pass);
  mn_optimizer_close(subject.optimizer);
  mn_model_close(subject.model);
  b->context->device->library = 0;
  return status;
}

/* A GEMM and nothing else. */
struct product {
  struct mn_device *device;
  enum mn_form form;
  const struct mn_operand *a, *b;
  struct mn_epilogue store;
};

static mn_status run_product(void *state) {
  struct product *p = state;
  return p->device->kernels->gemm(p->device, p->form, p->a, p->b, &p->store);
}

static mn_status time_product(struct bench *b, enum mn_form form, const struct mn_tensor *left,
                              const struct mn_tensor *right, double *ms) {
  int64_t rows = form == MN_TN ? left->value.cols : left->value.rows;
  int64_t count = rows * (form == MN_NT ? right->value.rows : right->value.cols);
  void *into;
  MN_TRY(mn_context_allocate(b->context, &into, count, b->context->device->real));
  struct product product = {b->context->device, form, &left->value, &right->value, {MN_STORE, into, 0, 0}};
  mn_status status = measure(b->context, (struct work){run_product, &product}, ms);
  mn_context_release(b->context, into, count, b->context->device->real);
  return status;
}

/* The three products of the first block: x·Wᵀ, dz·W, dzᵀ·x. */
static mn_status time_products(struct bench *b, int library, double ms[3]) {
  const struct mn_model_config *config = &b->config->model;
  int64_t rows = b->config->batch, inputs = config->inputs, channels = config->hidden[0];
  struct mn_tensor *x = NULL, *weight = NULL, *dz = NULL;
  b->context->device->library = library;
  mn_status status = mn_tensor_parameter(b->context, &x, "x", 2, rows, inputs);
  if (status == MN_OK) status = mn_tensor_parameter(b->context, &weight, "W", 2, channels, inputs);
  if (status == MN_OK) status = mn_tensor_parameter(b->context, &dz, "dz", 2, rows, channels);
  if (status == MN_OK) status = fill(b, &x->value, 2);
  if (status == MN_OK) status = fill(b, &weight->value, 3);
  if (status == MN_OK) status = fill(b, &dz->value, 4);
  if (status == MN_OK) status = time_product(b, MN_NT, x, weight, &ms[0]);
  if (status == MN_OK) status = time_product(b, MN_NN, dz, weight, &ms[1]);
  if (status == MN_OK) status = time_product(b, MN_TN, dz, x, &ms[2]);
  mn_tensor_free(b->context, x);
  mn_tensor_free(b->context, weight);
  mn_tensor_free(b->context, dz);
  b->context->device->library = 0;
  return status;
}

struct copy {
  struct mn_device *device;
  void *to, *from;
  size_t bytes;
};

static mn_status run_copy(void *state) {
  struct copy *c = state;
  return c->device->kernels->copy(c->device, c->to, c->from, c->bytes);
}

/* GB/s on the device: what is read and what is written. */
static mn_status time_copy(struct bench *b, double *rate) {
  size_t real = b->context->device->real, bytes = protocols[b->context->device->type].copied_bytes;
  int64_t count = (int64_t)(bytes / real);
  struct copy copy = {.device = b->context->device, .bytes = bytes};
  double ms = 0;
  mn_status status = mn_context_allocate(b->context, &copy.from, count, real);
  if (status == MN_OK) status = mn_context_allocate(b->context, &copy.to, count, real);
  struct mn_operand source = {.rows = 1, .cols = count, .real = copy.from};
  if (status == MN_OK) status = fill(b, &source, 6);
  if (status == MN_OK) status = measure(b->context, (struct work){run_copy, &copy}, &ms);
  mn_context_release(b->context, copy.from, count, real);
  mn_context_release(b->context, copy.to, count, real);
  *rate = 2 * (double)bytes / ms * 1e-6;
  return status;
}

/* Multiply-adds count as two; only the GEMMs': the epilogues' own are some thousandths of them. */
static double flops(const struct mn_bench_config *config, enum figure figure) {
  const struct mn_model_config *m = &config->model;
  double total = 0, inputs = (double)m->inputs;
  for (int i = 0; i < m->depth + (m->head > 0); i++) {
    double outputs = (double)(i < m->depth ? m->hidden[i] : m->head);
    int products = figure == FORWARD ? 1 : i ? 3 : 2; /* x's gradient is not computed */
    total += products * 2 * (double)config->batch * inputs * outputs;
    inputs = outputs;
  }
  return total;
}

/* The plans are compared on the library's path; the last row is the block again, each product and its
 * epilogue in one kernel. */
enum { FUSED_GEMM = MN_PLANS, PLAN_ROWS };

struct figures {
  double ms[FIGURES], products[3], own_products[3], copy;
  double plans[PLAN_ROWS][FIGURES];
};

static const char *row_name(int row) {
  return row == FUSED_GEMM ? "block, fused GEMM" : mn_plan_name((enum mn_plan)row);
}

static int rows_of_plans(const struct bench *b) {
  return !b->config->plans ? 0 : has_own_gemm(b) ? PLAN_ROWS : MN_PLANS;
}

static const char *const figure_keys[FIGURES] = {"forward_ms", "forward_backward_ms", "step_ms"};
static const char *const product_keys[3] = {"gemm_forward_ms", "gemm_dx_ms", "gemm_dw_ms"};
static const char *const own_product_keys[3] = {"own_gemm_forward_ms", "own_gemm_dx_ms", "own_gemm_dw_ms"};

static double tflops(double operations, double ms) {
  return operations / ms * 1e-9;
}

static double product_flops(const struct mn_bench_config *config) {
  return 2 * (double)config->batch * (double)config->model.inputs * (double)config->model.hidden[0];
}

static double product_rate(const struct mn_bench_config *config, const struct figures *f) {
  return tflops(3 * product_flops(config), f->products[0] + f->products[1] + f->products[2]);
}

/* The time of the bare GEMMs that a figure needs; only for one block, whose GEMMs are the ones measured. */
static double bare(const struct mn_bench_config *config, const struct figures *f, enum figure figure) {
  if (config->model.depth > 1 || config->model.head) return NAN;
  return f->products[0] + (figure == FORWARD ? 0 : f->products[2]);
}

static void write_model(struct mn_json *json, const struct mn_bench_config *config) {
  mn_json_integer(json, "batch", config->batch);
  mn_json_integer(json, "in", config->model.inputs);
  mn_json_array_open(json, "hidden");
  for (int i = 0; i < config->model.depth; i++) mn_json_integer(json, NULL, config->model.hidden[i]);
  mn_json_close(json);
  mn_json_integer(json, "groups", config->model.groups);
  mn_json_integer(json, "head", config->model.head);
  mn_json_string(json, "loss", mn_loss_name(config->model.loss));
  mn_json_string(json, "plan", mn_plan_name(config->model.plan));
}

static void write_json(struct bench *b, const struct figures *f) {
  struct mn_json *json = b->json;
  mn_json_begin(json, b->out);
  mn_json_open(json, NULL);
  mn_json_string(json, "device", b->context->name);
  mn_json_string(json, "precision", mn_precision_name(b->context->precision));
  write_model(json, b->config);
  for (int i = 0; i < FIGURES; i++) mn_json_number(json, figure_keys[i], f->ms[i]);
  for (int i = 0; i < 3; i++) mn_json_number(json, product_keys[i], f->products[i]);
  for (int i = 0; i < 3 && has_own_gemm(b); i++)
    mn_json_number(json, own_product_keys[i], f->own_products[i]);
  mn_json_number(json, "gemm_tflops", product_rate(b->config, f));
  mn_json_number(json, "forward_tflops", tflops(flops(b->config, FORWARD), f->ms[FORWARD]));
  mn_json_number(json, "step_tflops", tflops(flops(b->config, STEP), f->ms[STEP]));
  mn_json_number(json, "forward_per_gemm", f->ms[FORWARD] / bare(b->config, f, FORWARD));
  mn_json_number(json, "step_per_gemms", f->ms[STEP] / bare(b->config, f, STEP));
  mn_json_number(json, "copy_gb_per_s", f->copy);
  mn_json_integer(json, "device_bytes", (int64_t)b->held);
  if (b->config->plans) {
    mn_json_array_open(json, "plans");
    for (int row = 0; row < rows_of_plans(b); row++) {
      mn_json_open(json, NULL);
      mn_json_string(json, "plan", row_name(row));
      for (int i = 0; i < FIGURES; i++) mn_json_number(json, figure_keys[i], f->plans[row][i]);
      mn_json_close(json);
    }
    mn_json_close(json);
  }
  mn_json_close(json);
}

static void write_row(FILE *out, const char *what, double ms, double operations, double beside) {
  fprintf(out, "  %-22s %10.4f ms %8.3g TFLOP/s", what, ms, tflops(operations, ms));
  if (beside == beside) fprintf(out, "   %5.2f x its bare GEMMs", ms / beside);
  fputc('\n', out);
}

static void write_text(struct bench *b, const struct figures *f) {
  static const char *const figures[] = {"forward", "forward + backward", "training step"};
  static const char *const products[] = {"GEMM x*W^T", "GEMM dz*W", "GEMM dz^T*x"};
  static const char *const own[] = {"own GEMM x*W^T", "own GEMM dz*W", "own GEMM dz^T*x"};
  const struct mn_model_config *m = &b->config->model;
  fprintf(b->out, "%s, %s: batch %ld, %ld", b->context->name, mn_precision_name(b->context->precision),
          (long)b->config->batch, (long)m->inputs);
  for (int i = 0; i < m->depth; i++) fprintf(b->out, " -> %ld", (long)m->hidden[i]);
  fprintf(b->out, " in %ld groups", (long)m->groups);
  if (m->head) fprintf(b->out, " -> head %ld", (long)m->head);
  fprintf(b->out, ", %s, plan %s; medians\n", mn_loss_name(m->loss), mn_plan_name(m->plan));
  for (int i = 0; i < FIGURES; i++)
    write_row(b->out, figures[i], f->ms[i], flops(b->config, (enum figure)i),
              bare(b->config, f, (enum figure)i));
  for (int i = 0; i < 3; i++) write_row(b->out, products[i], f->products[i], product_flops(b->config), NAN);
  for (int i = 0; i < 3 && has_own_gemm(b); i++)
    write_row(b->out, own[i], f->own_products[i], product_flops(b->config), NAN);
  fprintf(b->out, "  %-22s %10.1f GB/s\n", "copy, read + written", f->copy);
  fprintf(b->out, "  %-22s %10.1f MiB\n", "device memory, a step", (double)b->held / 1048576);
  if (!b->config->plans) return;
  fprintf(b->out, "  %-18s %14s %20s %14s\n", "plan", "forward ms", "forward+backward ms", "step ms");
  for (int row = 0; row < rows_of_plans(b); row++)
    fprintf(b->out, "  %-18s %14.4f %20.4f %14.4f\n", row_name(row), f->plans[row][FORWARD],
            f->plans[row][FORWARD_BACKWARD], f->plans[row][STEP]);
}

mn_status mn_bench(FILE *out, struct mn_context *context, const struct mn_bench_config *config, int as_json) {
  struct mn_json json;
  struct figures f = {0};
  struct bench b = {.out = out, .json = as_json ? &json : NULL, .context = context, .config = config};
  for (int i = 0; i < FIGURES; i++) MN_TRY(time_figure(&b, (enum figure)i, config->model.plan, 0, &f.ms[i]));
  MN_TRY(time_products(&b, 1, f.products));
  if (has_own_gemm(&b)) MN_TRY(time_products(&b, 0, f.own_products));
  MN_TRY(time_copy(&b, &f.copy));
  for (int row = 0; row < rows_of_plans(&b); row++)
    for (int i = 0; i < FIGURES; i++) {
      enum mn_plan plan = row == FUSED_GEMM ? MN_PLAN_BLOCK : (enum mn_plan)row;
      MN_TRY(time_figure(&b, (enum figure)i, plan, row != FUSED_GEMM, &f.plans[row][i]));
    }
  if (as_json)
    write_json(&b, &f);
  else
    write_text(&b, &f);
  return MN_OK;
}
