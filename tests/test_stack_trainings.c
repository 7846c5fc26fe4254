/* Trainings drawn at random, by the narrow stack's kernel and by single blocks: both are held against fp64, and
 * the stack is as near to it as the blocks are. */
#include "tests/training.h"

#include "train/model.h"

enum { TRAININGS = 100, STEPS = 20 };

struct drawn {
  struct mn_model_config model;
  struct mn_optimizer_config optimizer;
  int64_t rows;
  int weighted;
};

static int64_t any(uint64_t seed, int which, int64_t least, int64_t most) {
  return least + (int64_t)(random01(seed, which) * (double)(most - least + 1));
}

/* Widths, depths, rows, groups, heads, losses, slopes, weights of rows and optimizers of all kinds. */
static struct drawn draw(uint64_t seed) {
  static const double slopes[] = {0.01, -0.5, 0, 1};
  struct drawn d = {.model = mn_model_defaults(),
                    .optimizer = settings[any(seed, 0, 0, COUNT(settings) - 1)]};
  const int64_t width = 64 * any(seed, 1, 1, 2), head = any(seed, 2, 0, 2);
  d.model.depth = any(seed, 3, 1, width == 64 ? 5 : 4);
  for (int l = 0; l < d.model.depth; l++) d.model.hidden[l] = width;
  d.model.inputs = 8 * any(seed, 4, 1, width / 8);
  d.model.groups = any(seed, 5, 0, 1) ? 8 : 4;
  d.model.slope = slopes[any(seed, 6, 0, 3)];
  d.model.head = head ? any(seed, 7, head, 16) : 0;
  d.model.loss = head == 2 ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
  d.weighted = random01(seed, 9) < 0.5;
  d.rows = (int64_t)exp(log(8) + random01(seed, 8) * log(4000 / 8));
  return d;
}

/* The parameters after the steps, one after the other; and before them, in `start`. */
static double *trained(struct mn_device *device, const struct drawn *d, enum mn_plan plan, double *start,
                       int *nodes) {
  struct mn_model_config config = d->model;
  struct mn_model *model;
  config.plan = plan;
  MUST(mn_model_open(&model, device, &config));
  MUST(mn_model_initialise(model, 7));
  struct training t = train_model(model, d->optimizer, d->rows);
  if (d->weighted) {
    void *weights;
    MUST(mn_tape_device(t.pass->tape, &weights, d->rows, device->real));
    t.pass->tape->weights = weights;
  }
  double *end = zeros(mn_model_size(&config)), *const into[] = {start, end};
  for (int when = 0; when < 2; when++) {
    for (int k = 0; k < STEPS && when; k++) (void)step(&t, (uint64_t)k);
    double *at = into[when];
    for (int i = 0; i < model->count; at += mn_tensor_count(model->parameters[i++]))
      MUST(mn_tensor_read(device, model->parameters[i], at));
  }
  *nodes = 0;
  for (const struct mn_node *node = t.pass->tape->first; node; node = node->next) ++*nodes;
  int flag;
  MUST(mn_tape_nonfinite(t.pass->tape, &flag));
  assert_int_equal(flag, 0);
  close_training(&t);
  return end;
}

/* The error of the movement from start to end, relative to its size. */
static double error_of(const double *end, const double *exact, const double *start, int64_t count) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < count; i++) {
    off += (end[i] - exact[i]) * (end[i] - exact[i]);
    all += (exact[i] - start[i]) * (exact[i] - start[i]);
  }
  return sqrt(off / all);
}

static void trainings_end_as_near_to_fp64_as_the_blocks(void **state) {
  struct mn_device *wide = open_or_skip(*state, "fp64");
  static const char *const narrow[] = {"bf16", "fp16"};
  for (int p = 0; p < 2; p++) {
    struct mn_device *device = open_or_skip(*state, narrow[p]);
    double logs = 0;
    int stacks = 0;
    const int trainings = quick() ? 12 : TRAININGS;
    for (int n = 0; n < trainings; n++) {
      const struct drawn d = draw((uint64_t)n + 1);
      const int64_t count = mn_model_size(&d.model);
      double *start = zeros(count), *end[3];
      int nodes[3];
      end[0] = trained(wide, &d, MN_PLAN_BLOCK, start, &nodes[0]);
      end[1] = trained(device, &d, MN_PLAN_BLOCK, start, &nodes[1]);
      end[2] = trained(device, &d, MN_PLAN_STACK, start, &nodes[2]);
      const double block = error_of(end[1], end[0], start, count),
                   stack = error_of(end[2], end[0], start, count);
      print_message("%s, %ld x %ld -> %ld x%ld, %ld groups, head %ld, slope %g, optimizer %d: "
                    "stack %.2e block %.2e ratio %.2f%s\n",
                    narrow[p], (long)d.rows, (long)d.model.inputs, (long)d.model.hidden[0],
                    (long)d.model.depth, (long)d.model.groups, (long)d.model.head, d.model.slope,
                    (int)d.optimizer.rule.kind, stack, block, stack / block,
                    nodes[2] == 1 ? "" : ", as blocks");
      assert_true(stack <= 1.5 * block);
      if (nodes[2] == 1) logs += log(stack / block), stacks++;
      free(start);
      for (int k = 0; k < 3; k++) free(end[k]);
    }
    print_message("%s: %d by the stack, whose errors are %.3f of the blocks' in the mean\n", narrow[p],
                  stacks, exp(logs / stacks));
    assert_true(2 * stacks > trainings); /* one block is one node too, but few are drawn */
    mn_device_close(device);
  }
  mn_device_close(wide);
}

/* Each is a stack but for one thing, and trains as blocks: more than one node. */
static void what_no_stack_takes_runs_as_blocks(void **state) {
  static const struct {
    int64_t inputs, width, head;
    double slope;
    int blocks;
  } cases[] = {{64, 64, 0, 0.01, 0}, {64, 64, 0, -1, 1},    {64, 64, 0, -2, 1},    {64, 64, 0, 1.5, 1},
               {64, 96, 0, 0.01, 1}, {60, 64, 0, 0.01, 1},  {128, 64, 0, 0.01, 1}, {64, 64, 17, 0.01, 1},
               {56, 64, 16, 1, 0},   {64, 64, 0, -0.999, 0}};
  struct mn_device *device = open_or_skip(*state, "bf16");
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct drawn d = {.model = mn_model_defaults(), .optimizer = settings[0], .rows = 40};
    d.model.inputs = cases[i].inputs, d.model.head = cases[i].head, d.model.slope = cases[i].slope;
    d.model.depth = 3, d.model.groups = 8, d.model.loss = MN_LOSS_MSE;
    for (int l = 0; l < 3; l++) d.model.hidden[l] = cases[i].width;
    double *start = zeros(mn_model_size(&d.model));
    int nodes;
    free(trained(device, &d, MN_PLAN_STACK, start, &nodes));
    if ((nodes > 1) != cases[i].blocks) fail_msg("case %zu has %d nodes", i, nodes);
    free(start);
  }
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {ON("cuda", trainings_end_as_near_to_fp64_as_the_blocks),
                                     ON("cuda", what_no_stack_takes_runs_as_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
