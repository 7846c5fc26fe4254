/* Training steps in bf16, fp16 and fp16x3, over stacks of blocks whose products end in one another's
 * epilogues: against fp64, the same bytes every time, nothing written after a value that is not finite or
 * that its planes cannot hold, and the memory that a step holds. */
#include "tests/fused_bench.h"

#include "train/check/check.h"

/* ---- against fp64 ---- */

/* Each block rounds its input, its weight and its dz once more; three of them stay within the bound of one
 * (train/check/check.h), which has room for eight roundings. Two planes round as little as floats do. */
static void compare_steps(const struct fused_case *c, struct mn_device *const on[2],
                          struct training *const t[2]) {
  const double bound = on[1]->tolerance;
  double loss = loss_of(t[0]);
  assert_int_equal(raised(t[1]), 0);
  report(c, "loss", fabs(loss_of(t[1]) / loss - 1), bound);
  for (int i = 0; i < t[0]->model->count; i++) {
    const struct mn_tensor *p[2] = {t[0]->model->parameters[i], t[1]->model->parameters[i]};
    int64_t count = mn_tensor_count(p[0]);
    for (int k = 0; k < 2 + c->adamw; k++) {
      static const char *const names[] = {"", ", m", ", v"};
      double *values[2];
      char what[80];
      for (int s = 0; s < 2; s++)
        values[s] = k ? read_device(on[s], k == 1 ? p[s]->update.m : p[s]->update.v, count)
                      : read_values(on[s], p[s]);
      snprintf(what, sizeof what, "%s%s", p[0]->name, names[k]);
      report(c, what, norm_of_difference(values[1], values[0], count) / norm(values[0], count), bound);
      free(values[0]), free(values[1]);
    }
    if (p[1]->value.planes[0]) assert_planes(on[1], "a weight", &p[1]->value);
  }
}

/* A step, and, where planes are scaled, the same from the same start under the factors that the last step's
 * dz give, given one by one and as a graph. */
static void check_stack(const char *device, const struct fused_case *c) {
  struct mn_device *on[2] = {open_or_skip(device, "fp64"),
                             open_guarded(device, mn_precision_name(c->precision))};
  struct training t[2];
  for (int s = 0; s < 2; s++) t[s] = train_stack(on[s], c);
  const struct mn_tape *tape = t[1].pass->tape;
  if (c->plan == MN_PLAN_STACK && on_cuda(device)) assert_ptr_equal(tape->first, tape->last);
  const struct bytes moved = moved_by(&t[1], 0);
  char *start = download(&t[1], &moved);
  for (int s = 0; s < 2; s++) MUST(mn_tape_replay(t[s].pass->tape, 0));
  compare_steps(c, on, (struct training *const[]){&t[0], &t[1]});
  for (int turn = 0; turn < 2 && on[1]->scaled; turn++) {
    upload(&t[1], &moved, start);
    MUST(turn ? mn_tape_replay(t[1].pass->tape, 0) : mn_tape_step(t[1].pass->tape));
    compare_steps(c, on, (struct training *const[]){&t[0], &t[1]});
  }
  free(start);
  for (int s = 0; s < 2; s++) {
    close_training(&t[s]);
    mn_device_close(on[s]);
  }
  assert_int_equal(guard_count, 0);
}

/* The last has a first weight without planes in fp16x3, and others with them. */
static const struct fused_case small_stacks[] = {{40, 24, 4, 8, .blocks = 3},
                                                 {70, 48, 3, 32, .blocks = 3, .nesterov = 1},
                                                 {40, 37, 3, 8, .blocks = 3},
                                                 {40, 24, 4, 8, .blocks = 3, .adamw = 1}};
static const struct fused_case large_stacks[] = {{2048, 1024, 128, 16, .blocks = 3},
                                                 {1000, 1032, 505, 8, .blocks = 3},
                                                 {1000, 520, 60, 64, .blocks = 3, .nesterov = 1},
                                                 {520, 264, 18, 256, .blocks = 3},
                                                 {128, 512, 8, 32, .blocks = 3},
                                                 {500, 1000, 20, 24, .blocks = 3},
                                                 {2048, 1024, 128, 16, .blocks = 3, .adamw = 1}};

/* A GPU takes each as one kernel: tiles of 256, 64 and 16 rows, the last of them not full; inputs narrower
 * than the blocks; groups in one to four lanes; heads. */
static const struct fused_case narrow_stacks[] = {
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

static void narrow_stacks_match_fp64(void **state) {
  for (size_t p = 0; p < 2; p++) /* not fp16x3 */
    for (size_t i = 0; i < COUNT(narrow_stacks); i++) {
      struct fused_case c = narrow_stacks[i];
      c.precision = fused_precisions[p];
      check_stack(*state, &c);
    }
}

/* The outputs of a forward alone, by their planes if there are any. */
static double *outputs_of(struct mn_device *device, const struct fused_case *c) {
  struct training t = {.model = open_stack(device, c)};
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_FORWARD, c->rows, 1, 0));
  fill_x(t.pass, c);
  for (int turn = 0; turn < 2; turn++) MUST(mn_tape_replay(t.pass->tape, 0));
  assert_int_equal(raised(&t), 0);
  const struct mn_operand *y = &t.pass->y->value;
  double *values = y->planes[0] ? zeros(mn_tensor_count(t.pass->y)) : read_values(device, t.pass->y);
  struct planes p = get_planes(device, y);
  for (int64_t i = 0; y->planes[0] && i < p.count; i++) values[i] = planes_value(&p, i);
  free_planes(&p);
  close_training(&t);
  return values;
}

static void narrow_forwards_match_fp64(void **state) {
  for (size_t p = 0; p < 2; p++)
    for (size_t i = 0; i < COUNT(narrow_stacks); i++) {
      struct fused_case c = narrow_stacks[i];
      c.precision = fused_precisions[p];
      struct mn_device *on[2] = {open_or_skip(*state, "fp64"),
                                 open_guarded(*state, mn_precision_name(c.precision))};
      const int64_t count = c.rows * (c.head ? c.head : channels_of(&c));
      double *y[2];
      for (int s = 0; s < 2; s++) y[s] = outputs_of(on[s], &c);
      report(&c, "y", norm_of_difference(y[1], y[0], count) / norm(y[0], count), on[1]->tolerance);
      for (int s = 0; s < 2; s++) free(y[s]), mn_device_close(on[s]);
    }
}

static void stacks_match_fp64(void **state) {
  for (size_t p = 0; p < COUNT(fused_precisions); p++) {
    for (size_t i = 0; i < COUNT(small_stacks); i++) {
      struct fused_case c = small_stacks[i];
      c.precision = fused_precisions[p];
      check_stack(*state, &c);
    }
    for (size_t i = 0; i < COUNT(large_stacks) && on_cuda(*state) && !quick(); i++) {
      struct fused_case c = large_stacks[i];
      c.precision = fused_precisions[p];
      check_stack(*state, &c);
    }
  }
}

/* ---- bytes ---- */

static struct fused_case stack_for(const char *device, enum mn_precision precision) {
  struct fused_case c = on_cuda(device) && !quick() ? large_stacks[0] : small_stacks[0];
  c.precision = precision;
  return c;
}

/* From one start, again and again; on CUDA all but the first as a graph. Where planes are scaled a step from
 * elsewhere has chosen the factors of dz before, which are a part of the start. */
static void check_bytes(const char *name, const struct fused_case *c, int runs) {
  struct mn_device *device = open_guarded(name, mn_precision_name(c->precision));
  struct training t = train_stack(device, c);
  if (device->scaled) {
    MUST(mn_tape_step(t.pass->tape));
    MUST(mn_model_measure(t.model)); /* which such a large step may have moved past its planes' range */
  }
  struct bytes moved = moved_by(&t, 1);
  char *start = download(&t, &moved), *first = NULL;
  double loss = NAN;
  for (int run = 0; run < runs; run++) {
    upload(&t, &moved, start);
    MUST(mn_tape_replay(t.pass->tape, 0));
    char *end = download(&t, &moved);
    if (run == 0) {
      loss = loss_of(&t);
      first = end;
      if (!isfinite(loss) || memcmp(start, end, moved.size) == 0)
        fail_msg("%s, %ld rows: loss %g, flag %d, and %s", mn_precision_name(c->precision), (long)c->rows,
                 loss, raised(&t), memcmp(start, end, moved.size) ? "bytes move" : "nothing moves");
      continue;
    }
    assert_true(loss_of(&t) == loss);
    if (memcmp(first, end, moved.size) != 0) fail_msg("run %d leaves other bytes than the first", run);
    free(end);
  }
  assert_int_equal(raised(&t), 0);
  free(start), free(first);
  close_training(&t);
  mn_device_close(device);
}

static void steps_repeat_their_bytes(void **state) {
  struct fused_case reference = {1024, 8192, 512, .width = 16};
  for (size_t p = 0; p < COUNT(fused_precisions); p++) {
    struct fused_case c = stack_for(*state, fused_precisions[p]);
    check_bytes(*state, &c, quick() ? 3 : 100);
    c.adamw = 1;
    check_bytes(*state, &c, quick() ? 3 : 100);
    for (size_t i = 0; i < COUNT(narrow_stacks); i += 4) {
      c = narrow_stacks[i], c.precision = fused_precisions[p];
      check_bytes(*state, &c, 3);
    }
    if (!on_cuda(*state) || quick()) continue;
    c = large_stacks[4], c.precision = fused_precisions[p];
    check_bytes(*state, &c, 100);
    reference.precision = fused_precisions[p];
    check_bytes(*state, &reference, 10);
  }
}

/* A step that measures its dz, from one start. */
static void measured_steps_repeat_their_bytes(void **state) {
  for (size_t p = 0; p < COUNT(fused_precisions); p++) {
    const struct fused_case c = stack_for(*state, fused_precisions[p]);
    struct mn_device *device = open_guarded(*state, mn_precision_name(c.precision));
    struct training t = train_stack(device, &c);
    struct bytes moved = moved_by(&t, 1);
    char *start = download(&t, &moved), *first = NULL;
    for (int run = 0; run < (quick() ? 3 : 20); run++) {
      upload(&t, &moved, start);
      t.pass->tape->measure = 1;
      MUST(mn_tape_step(t.pass->tape));
      assert_int_equal(t.pass->tape->measure, 0);
      char *end = download(&t, &moved);
      if (first && memcmp(first, end, moved.size) != 0) fail_msg("run %d leaves other bytes", run);
      if (first) free(end);
      if (!first) first = end;
    }
    assert_true(memcmp(start, first, moved.size) != 0);
    free(start), free(first);
    close_training(&t);
    mn_device_close(device);
  }
}

/* ---- values that are not finite, or more than planes hold ---- */

static void write_x(struct training *t, const struct fused_case *c, int64_t at, double value) {
  int64_t count = mn_tensor_count(t->pass->x);
  double *x = numbers(count, SEED_X, (struct range){0, 1, planes_of(c)});
  if (at >= 0) x[at] = value;
  MUST(mn_tensor_write(t->model->device, t->pass->x, x));
  free(x);
}

/* Takes back the flag of a step that should have raised it, and moved nothing. */
static void must_have_stopped(struct training *t, const struct bytes *moved, const char *start,
                              const char *what) {
  char *end = download(t, moved);
  assert_int_equal(raised(t), 1);
  if (memcmp(start, end, moved->size) != 0) fail_msg("%s moved something", what);
  free(end);
  MUST(mn_tape_clear_nonfinite(t->pass->tape));
}

static void must_go_on(struct training *t, const struct bytes *moved, const char *start) {
  char *end = download(t, moved);
  assert_int_equal(raised(t), 0);
  assert_true(isfinite(loss_of(t)) && memcmp(start, end, moved->size) != 0);
  free(end);
}

static void check_nonfinite(const char *name, const struct fused_case *c) {
  /* The last is finite as z is, but not its variance. */
  static const double bad[] = {INFINITY, -INFINITY, NAN, 1e22};
  struct mn_device *device = open_guarded(name, mn_precision_name(c->precision));
  struct training t = train_stack(device, c);
  struct bytes moved = moved_by(&t, 0);
  char *start = download(&t, &moved), what[64];
  int64_t count = mn_tensor_count(t.pass->x);
  const int64_t places[] = {0, count / 2 + 5, count - 1};
  /* Under a factor of its row's the stack's variance does not overflow either. */
  const int stack = c->plan == MN_PLAN_STACK && on_cuda(name) && device->scaled;
  for (int i = 0; i < (stack ? 9 : 12); i++) {
    write_x(&t, c, places[i % 3], bad[i / 3]);
    MUST(mn_tape_replay(t.pass->tape, 0));
    snprintf(what, sizeof what, "%g at %ld", bad[i / 3], (long)places[i % 3]);
    must_have_stopped(&t, &moved, start, what);
  }
  write_x(&t, c, -1, 0);
  MUST(mn_tape_replay(t.pass->tape, 0));
  must_go_on(&t, &moved, start);
  free(start);
  close_training(&t);
  mn_device_close(device);
}

static void nonfinite_steps_write_nothing(void **state) {
  for (size_t p = 0; p < COUNT(fused_precisions); p++)
    for (int blocks = 1; blocks <= 3; blocks += 2) {
      struct fused_case c = stack_for(*state, fused_precisions[p]);
      c.blocks = blocks;
      check_nonfinite(*state, &c);
      c.adamw = 1;
      check_nonfinite(*state, &c);
      c = narrow_stacks[blocks], c.precision = fused_precisions[p];
      check_nonfinite(*state, &c);
    }
}

/* Each block's dz in turn is too large for the factor that the last step's chose: by a graph, and, the second
 * time around, by kernels given one by one. Then the step is taken again, and measures. */
static void check_overflow(const char *where, const struct fused_case *c) {
  struct mn_device *device = open_guarded(where, mn_precision_name(c->precision));
  struct training t = train_stack(device, c);
  struct mn_tape *tape = t.pass->tape;
  struct bytes moved = moved_by(&t, 0);
  char *start = download(&t, &moved);
  MUST(mn_tape_replay(tape, 0));
  for (int i = 0; i < 2 * t.model->depth; i++) {
    const struct mn_tensor *w = t.model->layers[i / 2].parameters[MN_BLOCK_WEIGHT];
    if (!w->scales) continue;
    upload(&t, &moved, start);
    pretend_dz(&t, w, 0x1p-12);
    MUST(i % 2 ? mn_tape_step(tape) : mn_tape_replay(tape, 0));
    must_have_stopped(&t, &moved, start, w->name);
    tape->measure = 1;
    MUST(mn_tape_step(tape));
    must_go_on(&t, &moved, start);
    for (int k = 0; k < t.model->depth; k++)
      assert_planes(device, "a weight", &t.model->layers[k].parameters[MN_BLOCK_WEIGHT]->value);
  }
  free(start);
  close_training(&t);
  mn_device_close(device);
}

static void an_overflow_writes_nothing(void **state) {
  const enum mn_precision scaled[] = {MN_FP16, MN_FP16X3};
  for (size_t p = 0; p < COUNT(scaled); p++) {
    struct fused_case c = stack_for(*state, scaled[p]);
    check_overflow(*state, &c);
    c.adamw = 1;
    check_overflow(*state, &c);
    c = small_stacks[2], c.precision = scaled[p];
    check_overflow(*state, &c);
    c = narrow_stacks[4], c.precision = scaled[p];
    check_overflow(*state, &c);
  }
}

/* ---- memory ---- */

static double mib(double bytes) {
  return bytes / 1048576;
}

/* One block under mse at the reference shape: masters, momentum and planes of W, x with its planes, one
 * matrix for the product, dz's planes, the target; 10 MiB for all else: in bf16 650 MiB on a GPU.
 * Nothing is run: the buffers stand when the tape is finished. */
static void check_held(const char *name, const char *precision) {
  enum { ROWS = 1024, INPUTS = 8192, CHANNELS = 8192, GROUPS = 512 };
  struct mn_device *device = open_or_skip(name, precision);
  struct mn_model_config config = {
      .inputs = INPUTS, .depth = 1, .hidden = {CHANNELS}, .groups = GROUPS, .eps = 1e-5, .slope = 0.01};
  struct mn_optimizer_config sgd = {.rule = {.momentum = 0.9}, .accumulate = 1};
  struct training t;
  config.plan = MN_PLAN_BLOCK;
  MUST(mn_model_open(&t.model, device, &config));
  MUST(mn_optimizer_open(&t.optimizer, t.model, &sgd));
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, ROWS, 1, 0));
  const struct mn_device *d = device;
  const double real = (double)d->real, planes = d->planes * (double)d->plane;
  const double weight = (double)CHANNELS * INPUTS, x = (double)ROWS * INPUTS, z = (double)ROWS * CHANNELS;
  const double held = (double)device->bytes;
  const int split = t.model->parameters[0]->value.low != NULL; /* the planes are a part of the masters */
  const double limit = weight * (2 * real + (split ? 0 : planes)) + x * (real + planes) +
                       z * (2 * real + planes) + 10 * 1048576.0;
  print_message("%s: %.1f MiB held; the limit is %.1f\n", precision, mib(held), mib(limit));
  if (!(held <= limit)) fail_msg("%.1f MiB are more than %.1f", mib(held), mib(limit));
  close_training(&t);
  mn_device_close(device);
}

static void a_step_holds_little_more_than_its_data(void **state) {
  for (size_t p = 0; p < COUNT(fused_precisions); p++)
    check_held(*state, mn_precision_name(fused_precisions[p]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(stacks_match_fp64),
      BOTH(narrow_stacks_match_fp64),
      BOTH(narrow_forwards_match_fp64),
      BOTH(steps_repeat_their_bytes),
      BOTH(measured_steps_repeat_their_bytes),
      BOTH(nonfinite_steps_write_nothing),
      BOTH(an_overflow_writes_nothing),
      BOTH(a_step_holds_little_more_than_its_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
