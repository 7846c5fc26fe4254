/* Training steps in bf16, fp16 and fp16x3, over blocks and stacks of them whose products end in one another's
 * epilogues: against fp64, the same bytes every time, nothing written after a value that is not finite or
 * that its planes cannot hold, and the memory that a step holds. Products by themselves: test_fused. */
#include "tests/planes_read.h"
#include "tests/training.h"

#include "train/check/check.h"

/* One block, or a stack of equal ones. */
struct stack_case {
  int64_t rows, inputs, groups, width; /* N, I, G, D */
  int blocks, nesterov, adamw;
  enum mn_plan plan; /* 0: MN_PLAN_BLOCK */
  int head, labels;  /* outputs of a linear head, whose loss is the cross-entropy */
};

/* ---- a training, with the same random values in every precision ---- */

/* A power of two about 1/√I, so that z is about 1. */
static double weight_bound(const struct stack_case *c) {
  return exp2(-floor(log2(sqrt((double)c->inputs))));
}

enum { SEED_X = 1, SEED_TARGET = 3, SEED_PARAMETER = 100, SEED_MOMENTUM = 1000 };

/* gamma lies on both sides of 0. beta keeps v off the kink, so that rounding y moves no v across it: behind
 * several blocks nobody could say any more what to expect. */
static struct mn_model *open_stack(struct mn_device *device, const struct stack_case *c) {
  struct mn_model_config config = {.inputs = c->inputs,
                                   .depth = c->blocks,
                                   .groups = c->groups,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .head = c->head,
                                   .loss = c->labels ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE,
                                   .plan = c->plan ? c->plan : MN_PLAN_BLOCK};
  const double bounds[] = {weight_bound(c), 1, 2, 1};
  struct mn_model *model;
  for (int i = 0; i < config.depth; i++) config.hidden[i] = c->groups * c->width;
  MUST(mn_model_open(&model, device, &config));
  for (int i = 0; i < model->count; i++) {
    struct mn_tensor *t = model->parameters[i];
    double *values = random_values(mn_tensor_count(t), (uint64_t)(SEED_PARAMETER + i), bounds[i % 4]);
    for (int64_t k = 0; i % 4 == 3 && k < mn_tensor_count(t); k++) values[k] += values[k] < 0 ? -8 : 8;
    MUST(mn_tensor_write(device, t, values));
    free(values);
  }
  return model;
}

/* AdamW's rate is the size of its steps. Its v is far enough from 0 for small gradients' errors to stay
 * small. */
static void open_optimizer(struct training *t, const struct stack_case *c) {
  const double size = weight_bound(c);
  const struct mn_optimizer_config sgd = {
      .rule = {.momentum = 0.9, .weight_decay = 0.01, .nesterov = c->nesterov}, .accumulate = 1};
  const struct mn_optimizer_config adamw = {
      .rule = {.kind = MN_ADAMW, .beta1 = 0.5, .beta2 = 0.5, .eps = size / 16, .weight_decay = 0.01},
      .accumulate = 1};
  MUST(mn_optimizer_open(&t->optimizer, t->model, c->adamw ? &adamw : &sgd));
  MUST(mn_optimizer_rate(t->optimizer, c->adamw ? size / 4 : 0.5, 2));
  for (int i = 0; i < 2 * t->model->count; i++) {
    const struct mn_tensor *p = t->model->parameters[i / 2];
    void *const kept_by_rule = i % 2 ? p->update.v : p->update.m;
    if (!kept_by_rule) continue;
    double *values =
        random_values(mn_tensor_count(p), (uint64_t)(SEED_MOMENTUM + i), i % 2 ? size * size / 4 : size);
    for (int64_t k = 0; i % 2 && k < mn_tensor_count(p); k++) values[k] += size * size / 2;
    MUST(mn_device_write(t->model->device, kept_by_rule, values, mn_tensor_count(p)));
    free(values);
  }
}

/* With a gradient, a momentum and a rate of such sizes that each moves W by about itself. */
static struct training train_stack(struct mn_device *device, const struct stack_case *c) {
  struct training t = {.model = open_stack(device, c)};
  const double scale = weight_bound(c) / 16 * (double)(c->groups * c->width) * sqrt((double)c->rows);
  open_optimizer(&t, c);
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, c->rows, scale, 0));
  randomise(device, t.pass->x, SEED_X);
  if (t.pass->target) randomise_to(device, t.pass->target, SEED_TARGET, 16);
  if (t.pass->labels) {
    int32_t *labels = malloc((size_t)c->rows * sizeof *labels);
    assert_non_null(labels);
    for (int64_t n = 0; n < c->rows; n++)
      labels[n] = (int32_t)(mn_random_word(SEED_TARGET, 2, (uint64_t)n) % (uint64_t)c->head);
    MUST(device->kernels->copy(device, t.pass->labels, labels, (size_t)c->rows * sizeof *labels));
    MUST(device->kernels->synchronize(device));
    free(labels);
  }
  return t;
}

static double loss_of(const struct training *t) {
  double loss;
  MUST(mn_tape_results(t->pass->tape, &loss, NULL));
  return loss;
}

static int raised(const struct training *t) {
  int flag = -1;
  MUST(mn_tape_nonfinite(t->pass->tape, &flag));
  return flag;
}

/* ---- all that a step moves ---- */

struct part {
  char *device;
  size_t bytes;
};

/* A training, and the bytes that it starts from. */
struct trial_run {
  struct mn_device *device;
  struct training t;
  struct part parts[64];
  int count;
  size_t size;
  char *start;
};

static char *download(const struct trial_run *r) {
  char *out = malloc(r->size), *to = out;
  assert_non_null(out);
  for (int i = 0; i < r->count; to += r->parts[i++].bytes)
    MUST(r->device->kernels->download(r->device, to, r->parts[i].device, r->parts[i].bytes));
  return out;
}

/* Back to the start. */
static void restart(const struct trial_run *r) {
  const char *from = r->start;
  for (int i = 0; i < r->count; from += r->parts[i++].bytes)
    MUST(r->device->kernels->copy(r->device, r->parts[i].device, from, r->parts[i].bytes));
  MUST(r->device->kernels->synchronize(r->device));
}

/* The bytes are parameters, their planes, what the rule keeps and the planes' scales. With `all` they have dz's
 * scales too, which a step writes even where a value is not finite; where planes are scaled, a step from
 * elsewhere then chooses the factors of dz first, which are a part of the start. */
static struct trial_run open_run(struct mn_device *device, const struct stack_case *c, int all) {
  struct trial_run r = {.device = device, .t = train_stack(device, c)};
  for (int i = 0; i < r.t.model->count; i++) {
    const struct mn_tensor *p = r.t.model->parameters[i];
    const size_t count = (size_t)mn_tensor_count(p);
    const struct part parts[] = {{p->value.real, count * device->real},
                                 {p->value.planes[0], count * device->plane},
                                 {p->value.planes[1], count * device->plane},
                                 {(char *)p->value.low, count * sizeof *p->value.low},
                                 {p->update.m, count * device->real},
                                 {p->update.v, count * device->real},
                                 {(char *)p->scales, (size_t)(all ? 2 : 1) * sizeof *p->scales}};
    for (size_t k = 0; k < COUNT(parts); k++) {
      if (!parts[k].device) continue;
      assert_true(r.count < (int)COUNT(r.parts));
      r.parts[r.count++] = parts[k];
      r.size += parts[k].bytes;
    }
  }
  if (all && device->scaled) {
    MUST(mn_tape_step(r.t.pass->tape));
    MUST(mn_model_measure(r.t.model)); /* which such a large step may have moved past its planes' range */
  }
  r.start = download(&r);
  return r;
}

static void close_run(struct trial_run *r) {
  free(r->start);
  close_training(&r->t);
}

/* ---- against fp64 ---- */

/* Prints a tensor's error and holds it against its bound; what nobody wrote is NaN, and fails. */
static void report(const struct mn_device *device, const struct stack_case *c, const char *tensor,
                   double error) {
  const double bound = device->tolerance;
  print_message("%-6s %5ld x %4ld -> %4ld /%3ld, %d blocks  %-28s %9.2e %s %8.2e\n",
                mn_precision_name(device->precision), (long)c->rows, (long)c->inputs,
                (long)(c->groups * c->width), (long)c->groups, c->blocks, tensor, error,
                error <= bound ? "<=" : "> ", bound);
  if (!(error <= bound)) fail_msg("%s: an error of %g is past %g", tensor, error, bound);
}

/* Each block rounds its input, its weight and its dz once more; three of them stay within the bound of one
 * (train/check/check.h), which has room for eight roundings. Two planes round as little as floats do. */
static void compare_steps(const struct stack_case *c, const struct training *exact,
                          const struct training *t) {
  struct mn_device *const on[2] = {exact->model->device, t->model->device};
  assert_int_equal(raised(t), 0);
  report(on[1], c, "loss", fabs(loss_of(t) / loss_of(exact) - 1));
  for (int i = 0; i < t->model->count; i++) {
    const struct mn_tensor *const p[2] = {exact->model->parameters[i], t->model->parameters[i]};
    const int64_t count = mn_tensor_count(p[0]);
    for (int k = 0; k < 2 + c->adamw; k++) {
      static const char *const names[] = {"", ", m", ", v"};
      double *values[2];
      char what[80];
      for (int s = 0; s < 2; s++)
        values[s] =
            k ? read_reals(&(struct memory){.device = on[s]}, k == 1 ? p[s]->update.m : p[s]->update.v, count)
              : read_values(on[s], p[s]);
      snprintf(what, sizeof what, "%s%s", p[0]->name, names[k]);
      report(on[1], c, what, distance(values[1], values[0], count));
      free(values[0]), free(values[1]);
    }
    if (p[1]->value.planes[0]) assert_planes(on[1], "a weight", &p[1]->value);
  }
}

/* As if the largest |dz| of the last step had been so many times what it was. */
static void pretend_dz(struct mn_device *device, const struct mn_tensor *w, double times) {
  struct mn_scale dz = get_scale(device, &w->scales[1]);
  dz.largest = (float)(dz.largest * times);
  put_scale(device, &w->scales[1], dz);
}

/* A step, and, where planes are scaled, the same from the same start under the factors that the last step's
 * dz give, given one by one and as a graph; of one block then under that of a dz sixteen times smaller. */
static void check_stack(struct memory *m, const struct stack_case *c) {
  struct mn_device *wide = open_or_skip(is_cuda(m) ? "cuda" : "cpu", "fp64");
  struct training exact = train_stack(wide, c);
  struct trial_run r = open_run(m->device, c, 0);
  struct mn_tape *tape = r.t.pass->tape;
  const struct mn_tensor *w = r.t.model->parameters[0];
  if (c->plan == MN_PLAN_STACK && is_cuda(m)) assert_ptr_equal(tape->first, tape->last);
  MUST(mn_tape_replay(exact.pass->tape, 0));
  MUST(mn_tape_replay(tape, 0));
  compare_steps(c, &exact, &r.t);
  for (int turn = 0; turn < (c->blocks == 1 && w->scales ? 3 : 2) && m->device->scaled; turn++) {
    restart(&r);
    if (turn == 2) pretend_dz(m->device, w, 0x1p-4);
    MUST(turn ? mn_tape_replay(tape, 0) : mn_tape_step(tape));
    compare_steps(c, &exact, &r.t);
  }
  close_run(&r);
  close_training(&exact);
  mn_device_close(wide);
}

/* The third stack has a first weight without planes in fp16x3, and others with them. */
static const struct stack_case small_stacks[] = {{40, 24, 4, 8, .blocks = 3},
                                                 {70, 48, 3, 32, .blocks = 3, .nesterov = 1},
                                                 {40, 37, 3, 8, .blocks = 3},
                                                 {40, 24, 4, 8, .blocks = 3, .adamw = 1},
                                                 {40, 24, 6, 8, .blocks = 1},
                                                 {33, 37, 3, 8, .blocks = 1, .nesterov = 1},
                                                 {33, 72, 5, 16, .blocks = 1, .adamw = 1}};
static const struct stack_case large_stacks[] = {{2048, 1024, 128, 16, .blocks = 3},
                                                 {1000, 1032, 505, 8, .blocks = 3},
                                                 {1000, 520, 60, 64, .blocks = 3, .nesterov = 1},
                                                 {520, 264, 18, 256, .blocks = 3},
                                                 {128, 512, 8, 32, .blocks = 3},
                                                 {500, 1000, 20, 24, .blocks = 3},
                                                 {2048, 1024, 128, 16, .blocks = 3, .adamw = 1},
                                                 {1024, 1024, 256, 16, .blocks = 1, .nesterov = 1},
                                                 {1024, 512, 4, 512, .blocks = 1, .adamw = 1},
                                                 {1024, 8192, 512, 16, .blocks = 1}};

static void stacks_match_fp64(struct memory *m) {
  for (size_t i = 0; i < COUNT(small_stacks); i++) check_stack(m, &small_stacks[i]);
  for (size_t i = 0; i < COUNT(large_stacks) && is_cuda(m) && !quick(); i++) check_stack(m, &large_stacks[i]);
}

/* A GPU takes each as one kernel: tiles of 256, 64 and 16 rows, the last of them not full; inputs narrower
 * than the blocks; groups in one to four lanes; heads. */
static const struct stack_case narrow_stacks[] = {
    {17003, 64, 8, 8, .blocks = 5, .plan = MN_PLAN_STACK},
    {17003, 48, 8, 8, .blocks = 2, .plan = MN_PLAN_STACK, .adamw = 1},
    {5001, 64, 16, 4, .blocks = 4, .plan = MN_PLAN_STACK, .nesterov = 1},
    {17003, 40, 4, 16, .blocks = 3, .plan = MN_PLAN_STACK, .head = 1},
    {1000, 64, 8, 8, .blocks = 3, .plan = MN_PLAN_STACK},
    {70, 32, 8, 8, .blocks = 1, .plan = MN_PLAN_STACK},
    {1, 8, 2, 32, .blocks = 2, .plan = MN_PLAN_STACK},
    {70, 64, 16, 4, .blocks = 2, .plan = MN_PLAN_STACK, .head = 10, .labels = 1},
    {5001, 128, 16, 8, .blocks = 4, .plan = MN_PLAN_STACK},
    {100, 64, 8, 16, .blocks = 2, .plan = MN_PLAN_STACK, .head = 10, .labels = 1, .adamw = 1},
    {5001, 64, 4, 32, .blocks = 1, .plan = MN_PLAN_STACK, .head = 16, .labels = 1},
};

static int is_tried(size_t narrow) {
  return !quick() || narrow_stacks[narrow].rows <= 1000;
}

static void narrow_stacks_match_fp64(struct memory *m) {
  for (size_t i = 0; i < COUNT(narrow_stacks); i++)
    if (is_tried(i)) check_stack(m, &narrow_stacks[i]);
}

/* The outputs of a forward alone, by their planes if there are any: y is handed on in one form. */
static double *outputs_of(struct mn_device *device, const struct stack_case *c) {
  struct training t = {.model = open_stack(device, c)};
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_FORWARD, c->rows, 1, 0));
  randomise(device, t.pass->x, SEED_X);
  for (int turn = 0; turn < 2; turn++) MUST(mn_tape_replay(t.pass->tape, 0));
  assert_int_equal(raised(&t), 0);
  const struct mn_operand *y = &t.pass->y->value;
  assert_true(c->head || !y->real != !y->planes[0]);
  assert_true(c->head || y->planes[0] || device->planes != 1);
  double *values = y->planes[0] ? zeros(mn_tensor_count(t.pass->y)) : read_values(device, t.pass->y);
  struct planes p = get_planes(device, y);
  for (int64_t i = 0; y->planes[0] && i < p.count; i++) values[i] = planes_value(&p, i);
  free_planes(&p);
  close_training(&t);
  return values;
}

static void check_outputs(struct memory *m, const struct stack_case *c) {
  struct mn_device *wide = open_or_skip(is_cuda(m) ? "cuda" : "cpu", "fp64");
  double *exact = outputs_of(wide, c), *y = outputs_of(m->device, c);
  report(m->device, c, "y", distance(y, exact, c->rows * (c->head ? c->head : c->groups * c->width)));
  free(exact), free(y);
  mn_device_close(wide);
}

static void forwards_match_fp64(struct memory *m) {
  for (size_t i = 0; i < COUNT(small_stacks); i++) check_outputs(m, &small_stacks[i]);
  for (size_t i = 0; i < COUNT(narrow_stacks) && m->device->precision != MN_FP16X3; i++)
    if (is_tried(i)) check_outputs(m, &narrow_stacks[i]);
}

/* ---- bytes ---- */

static struct stack_case stack_for(const struct memory *m) {
  return is_cuda(m) && !quick() ? large_stacks[0] : small_stacks[0];
}

static struct stack_case by_adamw(struct stack_case c) {
  c.adamw = 1;
  return c;
}

/* From one start, again and again, on CUDA all but the first as a graph; or a step that measures its dz. */
static void check_bytes(struct memory *m, struct stack_case c, int runs, int measures) {
  struct trial_run r = open_run(m->device, &c, 1);
  char *first = NULL;
  double loss = NAN;
  for (int run = 0; run < runs; run++) {
    restart(&r);
    r.t.pass->tape->measure = measures;
    MUST(measures ? mn_tape_step(r.t.pass->tape) : mn_tape_replay(r.t.pass->tape, 0));
    assert_int_equal(r.t.pass->tape->measure, 0);
    char *end = download(&r);
    if (run == 0) {
      loss = loss_of(&r.t);
      if (!isfinite(loss) || memcmp(r.start, end, r.size) == 0)
        fail_msg("%ld rows: loss %g, flag %d, and %s", (long)c.rows, loss, raised(&r.t),
                 memcmp(r.start, end, r.size) ? "bytes move" : "nothing moves");
    }
    assert_true(loss_of(&r.t) == loss);
    if (first && memcmp(first, end, r.size) != 0) fail_msg("run %d leaves other bytes than the first", run);
    free(first);
    first = end;
  }
  assert_int_equal(raised(&r.t), 0);
  free(first);
  close_run(&r);
}

static void steps_repeat_their_bytes(struct memory *m) {
  const int many = quick() ? 3 : 100;
  check_bytes(m, stack_for(m), many, 0);
  check_bytes(m, by_adamw(stack_for(m)), many, 0);
  check_bytes(m, stack_for(m), quick() ? 3 : 20, 1);
  for (size_t i = 0; i < COUNT(narrow_stacks); i += 4)
    if (is_tried(i)) check_bytes(m, narrow_stacks[i], 3, 0);
  if (!is_cuda(m) || quick()) return;
  check_bytes(m, large_stacks[4], 100, 0);
  check_bytes(m, large_stacks[COUNT(large_stacks) - 1], 10, 0);
}

/* ---- values that are not finite, or more than planes hold ---- */

static void write_x(struct training *t, int64_t at, double value) {
  const int64_t count = mn_tensor_count(t->pass->x);
  double *x = random_values(count, SEED_X, 1);
  if (at >= 0) x[at] = value;
  MUST(mn_tensor_write(t->model->device, t->pass->x, x));
  free(x);
}

/* Takes back the flag of a step that should have raised it, and moved nothing. */
static void must_have_stopped(struct trial_run *r, const char *what) {
  char *end = download(r);
  assert_int_equal(raised(&r->t), 1);
  if (memcmp(r->start, end, r->size) != 0) fail_msg("%s moved something", what);
  free(end);
  MUST(mn_tape_clear_nonfinite(r->t.pass->tape));
}

static void must_go_on(const struct trial_run *r) {
  char *end = download(r);
  assert_int_equal(raised(&r->t), 0);
  assert_true(isfinite(loss_of(&r->t)) && memcmp(r->start, end, r->size) != 0);
  free(end);
}

static void check_nonfinite(struct memory *m, struct stack_case c) {
  /* The last is finite as z is, but not its variance. */
  static const double bad[] = {INFINITY, -INFINITY, NAN, 1e22};
  struct trial_run r = open_run(m->device, &c, 0);
  char what[64];
  const int64_t count = mn_tensor_count(r.t.pass->x), places[] = {0, count / 2 + 5, count - 1};
  /* Under a factor of its row's the stack's variance does not overflow either. */
  const int stack = c.plan == MN_PLAN_STACK && is_cuda(m) && m->device->scaled;
  for (int i = 0; i < (stack ? 9 : 12); i++) {
    write_x(&r.t, places[i % 3], bad[i / 3]);
    MUST(mn_tape_replay(r.t.pass->tape, 0));
    snprintf(what, sizeof what, "%g at %ld", bad[i / 3], (long)places[i % 3]);
    must_have_stopped(&r, what);
  }
  write_x(&r.t, -1, 0);
  MUST(mn_tape_replay(r.t.pass->tape, 0));
  must_go_on(&r);
  close_run(&r);
}

static void nonfinite_steps_write_nothing(struct memory *m) {
  for (int blocks = 1; blocks <= 3; blocks += 2) {
    struct stack_case c = stack_for(m);
    c.blocks = blocks;
    check_nonfinite(m, c);
    check_nonfinite(m, by_adamw(c));
    check_nonfinite(m, narrow_stacks[is_cuda(m) ? blocks : 4 + blocks / 2]); /* a CPU's have fewer rows */
  }
}

/* Each block's dz in turn is too large for the factor that the last step's chose: by a graph, and, the second
 * time around, by kernels given one by one. Then the step is taken again, and measures. */
static void check_overflow(struct memory *m, struct stack_case c) {
  struct trial_run r = open_run(m->device, &c, 0);
  struct mn_tape *tape = r.t.pass->tape;
  MUST(mn_tape_replay(tape, 0));
  for (int i = 0; i < 2 * r.t.model->depth; i++) {
    const struct mn_tensor *w = r.t.model->layers[i / 2].parameters[MN_BLOCK_WEIGHT];
    if (!w->scales) continue;
    restart(&r);
    pretend_dz(m->device, w, 0x1p-12);
    MUST(i % 2 ? mn_tape_step(tape) : mn_tape_replay(tape, 0));
    must_have_stopped(&r, w->name);
    tape->measure = 1;
    MUST(mn_tape_step(tape));
    must_go_on(&r);
    for (int k = 0; k < r.t.model->depth; k++)
      assert_planes(m->device, "a weight", &r.t.model->layers[k].parameters[MN_BLOCK_WEIGHT]->value);
  }
  close_run(&r);
}

static void an_overflow_writes_nothing(struct memory *m) {
  check_overflow(m, stack_for(m));
  check_overflow(m, by_adamw(stack_for(m)));
  check_overflow(m, small_stacks[2]);
  check_overflow(m, narrow_stacks[4]);
}

/* ---- memory ---- */

static double mib(double bytes) {
  return bytes / 1048576;
}

/* One block under mse at the reference shape: masters, momentum and planes of W, x with its planes, one
 * matrix for the product, dz's planes, the target; 10 MiB for all else: in bf16 650 MiB on a GPU.
 * Nothing is run: the buffers stand when the tape is finished. */
static void a_step_holds_little_more_than_its_data(struct memory *m) {
  enum { ROWS = 1024, INPUTS = 8192, CHANNELS = 8192, GROUPS = 512 };
  /* A device of its own, since m's writes all memory that it takes. */
  struct mn_device *device =
      open_or_skip(is_cuda(m) ? "cuda" : "cpu", mn_precision_name(m->device->precision));
  struct mn_model_config config = {
      .inputs = INPUTS, .depth = 1, .hidden = {CHANNELS}, .groups = GROUPS, .eps = 1e-5, .slope = 0.01};
  struct mn_optimizer_config sgd = {.rule = {.momentum = 0.9}, .accumulate = 1};
  struct training t;
  config.plan = MN_PLAN_BLOCK;
  MUST(mn_model_open(&t.model, device, &config));
  MUST(mn_optimizer_open(&t.optimizer, t.model, &sgd));
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, ROWS, 1, 0));
  const double real = (double)device->real, planes = device->planes * (double)device->plane;
  const double weight = (double)CHANNELS * INPUTS, x = (double)ROWS * INPUTS, z = (double)ROWS * CHANNELS;
  const double held = (double)device->bytes;
  const int split = t.model->parameters[0]->value.low != NULL; /* the planes are a part of the masters */
  const double limit = weight * (2 * real + (split ? 0 : planes)) + x * (real + planes) +
                       z * (2 * real + planes) + 10 * 1048576.0;
  print_message("%.1f MiB held; the limit is %.1f\n", mib(held), mib(limit));
  if (!(held <= limit)) fail_msg("%.1f MiB are more than %.1f", mib(held), mib(limit));
  close_training(&t);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_EACH(PLANES, stacks_match_fp64),
      IN_EACH(BF16 | FP16, narrow_stacks_match_fp64),
      IN_EACH(PLANES, forwards_match_fp64),
      IN_EACH(PLANES, steps_repeat_their_bytes),
      IN_EACH(PLANES, nonfinite_steps_write_nothing),
      IN_EACH(SCALED, an_overflow_writes_nothing),
      IN_EACH(PLANES, a_step_holds_little_more_than_its_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
