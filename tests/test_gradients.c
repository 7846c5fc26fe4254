/* Gradients against differences, in fp64: operations that meet as in no model, through a tape, and whole models (every
 * plan, of which one has each operation by itself, loss, depth and odd size) through the same check that
 * `minnow gradcheck` runs. And the six plans against each other. */
#include "tests/check.h"
#include "tests/pass_load.h"

#include <omp.h>

#include "layers/layer.h"
#include "train/check/check.h"

/* One operation, or a few, with everything they read a parameter whose gradient is stored. */
enum { LEAVES = 6 };
struct graph {
  struct memory *m;
  struct mn_device *device;
  struct mn_tape *tape;
  struct mn_tensor *leaves[LEAVES];
  int count;
  struct mn_tensor *y; /* NULL: the tape ends in a loss */
  struct mn_tensor *target;
  int32_t *labels;
};

static struct mn_tensor *leaf(struct graph *g, int64_t rows, int64_t cols, double bound) {
  struct mn_tensor *t;
  char name[32];
  snprintf(name, sizeof name, "leaf %d", g->count);
  MUST(mn_tensor_parameter(g->device, &t, name, rows > 1 ? 2 : 1, rows, cols, 0, 0));
  double *values = kept_random(g->m, 100 + (uint64_t)g->count, rows * cols, bound);
  /* away from 0, where a leaky ReLU has its kink */
  for (int64_t i = 0; i < rows * cols; i++)
    if (fabs(values[i]) < 0.05) values[i] += 0.1;
  MUST(mn_tensor_write(g->device, t, values));
  MUST(mn_tensor_train(g->device, t, MN_STORE, NULL));
  g->leaves[g->count++] = t;
  return t;
}

static struct mn_layer block_leaves(struct graph *g, int64_t inputs, int64_t channels, int64_t groups) {
  struct mn_layer layer = {.inputs = inputs,
                           .whole = channels,
                           .outputs = channels,
                           .groups = groups,
                           .eps = 1e-3,
                           .slope = 0.1,
                           .plan = MN_PLAN_BLOCK};
  layer.parameters[MN_BLOCK_WEIGHT] = leaf(g, channels, inputs, 1);
  layer.parameters[MN_BLOCK_BIAS] = leaf(g, 1, channels, 1);
  layer.parameters[MN_BLOCK_GAMMA] = leaf(g, 1, channels, 1);
  layer.parameters[MN_BLOCK_BETA] = leaf(g, 1, channels, 1);
  return layer;
}

/* y = x·Wᵀ + b. */
static void linear(struct graph *g, struct mn_tensor **y, struct mn_tensor *x, int64_t outputs) {
  struct mn_tensor *weight = leaf(g, outputs, x->value.cols, 1);
  const struct mn_layer layer = {.parameters = {weight, leaf(g, 1, outputs, 1)}};
  MUST(mn_block_ops_record(g->tape, y, x, &layer, MN_OP_BIAS));
}

/* a leaf with three consumers: itself in a sum, twice, and a linear. */
static void record_leaf_used_three_times(struct graph *g) {
  struct mn_tensor *x = leaf(g, 4, 3, 1), *doubled, *mapped;
  MUST(mn_add_record(g->tape, &doubled, x, x));
  linear(g, &mapped, x, 3);
  MUST(mn_add_record(g->tape, &g->y, doubled, mapped));
}

/* A block's output with three consumers, two of them GEMMs: its own sink then works on the sum. */
static void record_output_used_three_times(struct graph *g) {
  struct mn_tensor *x = leaf(g, 5, 4, 1), *h, *left, *right, *sum;
  struct mn_layer layer = block_leaves(g, 4, 6, 2);
  MUST(mn_block_kind.record(g->tape, &h, x, &layer));
  layer.parameters[MN_BLOCK_WEIGHT] = leaf(g, 6, 6, 1);
  layer.slope = 0.5;
  MUST(mn_block_ops_record(g->tape, &left, h, &layer, MN_OP_BIAS));
  MUST(mn_block_ops_record(g->tape, &right, h, &layer, MN_OP_ACTIVATE));
  MUST(mn_add_record(g->tape, &sum, left, right));
  MUST(mn_add_record(g->tape, &g->y, sum, h));
}

/* What was summed is read on by operations without a GEMM, too. */
static void record_sum_normalised(struct graph *g) {
  struct mn_tensor *a = leaf(g, 5, 8, 1), *b = leaf(g, 5, 8, 1), *sum;
  struct mn_layer layer = {.groups = 2, .eps = 1e-3};
  MUST(mn_add_record(g->tape, &sum, a, b));
  layer.parameters[MN_BLOCK_GAMMA] = leaf(g, 1, 8, 1);
  layer.parameters[MN_BLOCK_BETA] = leaf(g, 1, 8, 1);
  MUST(mn_block_ops_record(g->tape, &g->y, sum, &layer, MN_OP_NORM));
}

/* Losses of what no operation has made. */
static void record_mse(struct graph *g) {
  struct mn_tensor *y = leaf(g, 5, 3, 1);
  MUST(mn_tape_tensor(g->tape, &g->target, "target", 5, 3));
  MUST(mn_loss_record(g->tape, y, g->target, NULL, 1));
}

static void record_cross_entropy(struct graph *g) {
  struct mn_tensor *y = leaf(g, 7, 4, 2);
  MUST(mn_tape_device(g->tape, (void **)&g->labels, 7, sizeof(int32_t)));
  MUST(mn_loss_record(g->tape, y, NULL, &g->labels, 1));
}

static const struct {
  const char *name;
  void (*record)(struct graph *graph);
} operations[] = {
    {"a leaf used three times", record_leaf_used_three_times},
    {"an output used three times", record_output_used_three_times},
    {"a sum, normalised", record_sum_normalised},
    {"mse", record_mse},
    {"cross_entropy", record_cross_entropy},
};

static void open_graph(struct graph *g, struct memory *m, void (*record)(struct graph *)) {
  struct mn_device *device = m->device;
  *g = (struct graph){.m = m, .device = device};
  MUST(mn_tape_open(&g->tape, device, 1));
  record(g);
  MUST(mn_tape_finish(g->tape));
  if (g->target) randomise(device, g->target, 7);
  if (g->labels) {
    int32_t labels[7] = {0, 3, 2, 1, 1, 3, 0};
    MUST(device->kernels->copy(device, g->labels, labels, sizeof labels));
    MUST(device->kernels->synchronize(device));
  }
}

static void close_graph(struct graph *g) {
  mn_tape_close(g->tape);
  for (int i = 0; i < g->count; i++) mn_tensor_free(g->device, g->leaves[i]);
}

/* Σ dy·y, or the loss. */
static double loss_of(struct graph *g, const double *dy) {
  double loss = 0;
  MUST(mn_tape_forward(g->tape));
  if (!g->y) {
    MUST(mn_tape_results(g->tape, &loss, NULL));
    return loss;
  }
  double *y = read_values(g->device, g->y);
  for (int64_t i = 0; i < mn_tensor_count(g->y); i++) loss += dy[i] * y[i];
  free(y);
  return loss;
}

/* Four points, so that the error is h⁴'s. */
static double numeric_at(struct graph *g, struct mn_tensor *t, double *values, int64_t i, const double *dy) {
  const double h = 1e-4, value = values[i];
  static const double steps[] = {1, -1, 2, -2}, weights[] = {8, -8, -1, 1};
  double slope = 0;
  for (int k = 0; k < 4; k++) {
    values[i] = value + steps[k] * h;
    MUST(mn_tensor_write(g->device, t, values));
    slope += weights[k] * loss_of(g, dy);
  }
  values[i] = value;
  MUST(mn_tensor_write(g->device, t, values));
  return slope / (12 * h);
}

static void check_leaf(const char *operation, struct graph *g, struct mn_tensor *t, const double *dy) {
  const int64_t count = mn_tensor_count(t);
  const double *analytic = kept_reals(g->m, t->gradient, count);
  double *values = kept(g->m, read_values(g->device, t)), sum = 0;
  for (int64_t i = 0; i < count; i++) sum += analytic[i] * analytic[i];
  const double rms = sqrt(sum / (double)count);
  assert_true(rms > 1e-6);
  for (int64_t i = 0; i < count; i++) {
    const double a = analytic[i], n = numeric_at(g, t, values, i, dy);
    if (!(fabs(a - n) <= 1e-6 * fmax(rms, fmax(fabs(a), fabs(n)))))
      fail_msg("%s, %s[%ld]: %.12g, by differences %.12g", operation, t->name, (long)i, a, n);
  }
}

static void operations_match_differences(struct memory *m) {
  for (size_t i = 0; i < COUNT(operations); i++) {
    struct graph g;
    open_graph(&g, m, operations[i].record);
    const int64_t count = g.y ? mn_tensor_count(g.y) : 1;
    const double *dy = kept_random(m, 55, count, 1);
    loss_of(&g, dy);
    if (g.y) MUST(mn_device_write(m->device, g.y->gradient, dy, count));
    MUST(mn_tape_backward(g.tape));
    for (int k = 0; k < g.count; k++) check_leaf(operations[i].name, &g, g.leaves[k], dy);
    close_graph(&g);
  }
}

/* Runs mn_gradcheck; its report is shown when it is not `expected`. */
static void check_model(struct mn_device *device, const struct mn_check_config *config, mn_status expected) {
  char *report = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&report, &size);
  assert_non_null(out);
  mn_status status = mn_gradcheck(out, device, config, 0);
  fclose(out);
  if (status != expected) print_message("%s", report);
  free(report);
  if (status != expected) fail_msg("status %d, not %d: %s", status, expected, mn_message());
}

static struct mn_check_config model_of(int depth, int64_t channels, int64_t groups, int64_t head) {
  struct mn_check_config config = {.batch = 5, .seed = 3, .tolerance = 1e-6};
  config.model = (struct mn_model_config){.inputs = 4,
                                          .depth = depth,
                                          .groups = groups,
                                          .head = head,
                                          .eps = 1e-5,
                                          .slope = 0.01,
                                          .plan = MN_PLAN_BLOCK};
  for (int i = 0; i < depth; i++) config.model.hidden[i] = channels + i * groups;
  return config;
}

/* Models of one block and of three, by every plan: seeded, under mse, on a head, and under the cross-entropy. */
static void models_match_differences(struct memory *m) {
  for (int i = 0; i < MN_PLANS * 2 * 5; i++) {
    const int depth = i % 2 ? 3 : 1, kind = i / 2 % 5;
    struct mn_check_config config =
        model_of(depth, depth > 1 ? 6 : 9, depth > 1 ? 2 : 3, kind % 2 || kind == 4 ? 5 : 0);
    config.model.plan = (enum mn_plan)(i / 10);
    config.has_loss = kind > 1;
    config.model.loss = kind == 4 ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
    check_model(m->device, &config, MN_OK);
  }
}

/* One row, one channel, one channel a group, two channels a group, one group, chunks of rows that do not come
 * out even. */
static void odd_sizes_match_differences(struct memory *m) {
  static const struct {
    int64_t batch, inputs, channels, groups;
    int depth;
  } sizes[] = {{1, 5, 6, 2, 1}, {1, 1, 1, 1, 1}, {4, 3, 5, 5, 1},  {4, 3, 5, 5, 3},  {3, 2, 6, 3, 1},
               {2, 3, 4, 2, 2}, {3, 7, 7, 1, 2}, {33, 3, 6, 2, 1}, {67, 2, 3, 1, 1}, {6, 33, 15, 5, 1}};
  for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
    struct mn_check_config config =
        model_of(sizes[i / 2].depth, sizes[i / 2].channels, sizes[i / 2].groups, 0);
    config.batch = sizes[i / 2].batch;
    config.model.inputs = sizes[i / 2].inputs;
    config.has_loss = i % 2;
    check_model(m->device, &config, MN_OK);
  }
}

/* The check itself must be able to fail. */

static mn_gemm_function *right_gemm;
static mn_column_sums_function *right_column_sums;
static double injected;
static int injected_into;

/* dW with one element changed. */
static mn_status wrong_gemm(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                            const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  MN_TRY(right_gemm(device, form, a, b, epilogue));
  if (form == MN_TN && injected_into == 0) ((double *)epilogue->into)[2] *= injected;
  return MN_OK;
}

/* dbias, dgamma or dbeta with one element changed. */
static mn_status wrong_column_sums(struct mn_device *device, void *sums, int64_t chunks, int64_t channels,
                                   const struct mn_epilogue *const sinks[3],
                                   const struct mn_reduction *loss) {
  MN_TRY(right_column_sums(device, sums, chunks, channels, sinks, loss));
  if (injected_into > 0) ((double *)sinks[injected_into - 1]->into)[1] *= injected;
  return MN_OK;
}

static void a_wrong_gradient_is_a_miss(struct memory *m) {
  static const double wrongs[] = {1.01, -1, 0, NAN, INFINITY};
  struct mn_device *device = m->device;
  const struct mn_kernels *const right = device->kernels;
  struct mn_kernels broken = *right;
  right_gemm = broken.gemm, right_column_sums = broken.column_sums;
  broken.gemm = wrong_gemm, broken.column_sums = wrong_column_sums;
  device->kernels = &broken;
  struct mn_check_config config = model_of(1, 6, 2, 0);
  for (injected_into = 0; injected_into < 4; injected_into++)
    for (size_t i = 0; i < COUNT(wrongs); i++) {
      injected = wrongs[i];
      config.has_loss = i % 2 == 0;
      check_model(device, &config, MN_FAILED);
    }
  injected = 1, injected_into = 0;
  check_model(device, &config, MN_OK);
  device->kernels = right;
}

/* The same model by each plan: y, the loss, and all gradients. */

enum { ROWS = 37, TENSORS = 2 + 1 + 4 * 2 };

/* y; the loss; x's gradient; each parameter's. */
static void run_plan(struct memory *m, enum mn_plan plan, double *tensors[TENSORS], int64_t counts[TENSORS]) {
  struct mn_model_config config = model_of(2, 12, 3, 0).model;
  struct mn_model *model;
  struct mn_pass *train, *predict;
  config.plan = plan;
  MUST(mn_model_open(&model, m->device, &config));
  for (int i = 0; i < model->count; i++) randomise(m->device, model->parameters[i], (uint64_t)i);
  MUST(mn_model_train(model, MN_STORE, NULL));
  MUST(mn_pass_open(&train, model, MN_PASS_TRAIN, ROWS, 1, 1));
  MUST(mn_pass_open(&predict, model, MN_PASS_PREDICT, ROWS, 1, 0));
  randomise(m->device, train->x, 50);
  randomise(m->device, predict->x, 50);
  randomise(m->device, train->target, 51);
  MUST(mn_tape_forward(predict->tape));
  MUST(mn_tape_forward(train->tape));
  tensors[1] = kept_zeros(m, counts[1] = 1);
  MUST(mn_tape_results(train->tape, tensors[1], NULL));
  MUST(mn_tape_backward(train->tape));
  for (int i = 0; i < TENSORS; i++) {
    const struct mn_tensor *t = i == 0 ? predict->y : i <= 2 ? train->x : model->parameters[i - 3];
    if (i == 1) continue;
    counts[i] = mn_tensor_count(t);
    tensors[i] = kept_reals(m, i ? t->gradient : t->value.real, counts[i]);
  }
  mn_pass_close(train);
  mn_pass_close(predict);
  mn_model_close(model);
}

static void plans_give_the_same(struct memory *m) {
  double *block[TENSORS], *other[TENSORS];
  int64_t counts[TENSORS];
  run_plan(m, MN_PLAN_BLOCK, block, counts);
  for (int plan = 0; plan < MN_PLANS; plan++) {
    run_plan(m, (enum mn_plan)plan, other, counts);
    for (int i = 0; i < TENSORS; i++) {
      char what[64];
      snprintf(what, sizeof what, "plan %s, tensor %d", mn_plan_name((enum mn_plan)plan), i);
      assert_close(what, other[i], block[i], counts[i], tolerance_of(m->device));
    }
  }
}

/* Two passes scaled by a half, added up, are the gradient of the loss: with the loss fused and without. */
static void scaled_passes_add_up(struct memory *m) {
  for (int kind = 0; kind < 3; kind++) {
    struct mn_model_config config = model_of(2, 6, 2, kind ? 4 : 0).model;
    config.loss = kind == 2 ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
    struct mn_model *model;
    double *once[MN_MODEL_PARAMETERS] = {0};
    double *x = kept_random(m, 1, 6 * 4, 1), *target = kept_random(m, 2, 6 * mn_model_outputs(&config), 1);
    int32_t labels[6] = {0, 1, 2, 3, 0, 1};
    MUST(mn_model_open(&model, m->device, &config));
    MUST(mn_model_initialise(model, 9));
    for (int halves = 0; halves < 2; halves++) {
      struct mn_pass *pass;
      MUST(mn_model_train(model, halves ? MN_ADD : MN_STORE, NULL));
      MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, 6, halves ? 0.5 : 1, 0));
      MUST(pass_load(pass, x, config.loss == MN_LOSS_MSE ? (void *)target : labels));
      MUST(m->device->kernels->synchronize(m->device));
      for (int k = 0; k <= halves; k++) {
        MUST(mn_tape_forward(pass->tape));
        MUST(mn_tape_backward(pass->tape));
      }
      for (int i = 0; i < model->count; i++) {
        const struct mn_tensor *t = model->parameters[i];
        if (halves)
          assert_reals(m, t->name, t->gradient, once[i], mn_tensor_count(t), 1e-13);
        else
          once[i] = kept_reals(m, t->gradient, mn_tensor_count(t));
      }
      mn_pass_close(pass);
    }
    mn_model_close(model);
  }
}

int main(void) {
  omp_set_num_threads(1); /* thousands of forwards, each too small to share */
  const struct CMUnitTest tests[] = {
      IN_EACH(FP64, operations_match_differences), IN_EACH(FP64, models_match_differences),
      IN_EACH(FP64, odd_sizes_match_differences),  IN_EACH_ON("cpu", FP64, a_wrong_gradient_is_a_miss),
      IN_EACH(WIDTHS, plans_give_the_same),        IN_EACH(FP64, scaled_passes_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
