/* Training steps in bf16, over stacks of blocks whose products end in one another's epilogues: against fp64,
 * the same bytes every time, nothing written after a value that is not finite, and the memory that a step
 * holds. */
#include "tests/fused_bench.h"

#include "train/check/parity.h"

/* ---- against fp64 ---- */

/* Each block rounds its input, its weight and its dz once more; three of them stay within the bound of one
 * (train/check/parity.h), which has room for eight roundings. */
static void compare_steps(const struct fused_case *c, struct mn_context *const on[2],
                          struct training *const t[2]) {
  const double bound = mn_parity_tolerance(MN_BF16);
  double loss = loss_of(t[0]);
  report(c, "loss", fabs(loss_of(t[1]) / loss - 1), bound);
  for (int i = 0; i < t[0]->model->count; i++) {
    const struct mn_tensor *p[2] = {t[0]->model->parameters[i], t[1]->model->parameters[i]};
    int64_t count = mn_tensor_count(p[0]);
    for (int momentum = 0; momentum < 2; momentum++) {
      double *values[2];
      char what[80];
      for (int s = 0; s < 2; s++)
        values[s] = read_device(on[s], momentum ? p[s]->momentum : p[s]->value.real, count);
      snprintf(what, sizeof what, "%s%s", p[0]->name, momentum ? ", momentum" : "");
      report(c, what, norm_of_difference(values[1], values[0], count) / norm(values[0], count), bound);
      free(values[0]), free(values[1]);
    }
    if (p[1]->value.planes[0]) assert_rounded(on[1], p[1]);
  }
}

static void check_stack(const char *device, const struct fused_case *c) {
  struct mn_context *on[2] = {open_or_skip(device, "fp64"), open_guarded(device, "bf16")};
  struct training t[2];
  for (int s = 0; s < 2; s++) {
    t[s] = open_training(on[s], c);
    MUST(mn_tape_step(t[s].pass->tape));
  }
  compare_steps(c, on, (struct training *const[]){&t[0], &t[1]});
  for (int s = 0; s < 2; s++) {
    close_training(&t[s]);
    mn_context_close(on[s]);
  }
  assert_int_equal(guard_count, 0);
}

static const struct fused_case small_stacks[] = {{40, 24, 4, 8, .blocks = 3},
                                                 {70, 48, 3, 32, .blocks = 3, .nesterov = 1}};
static const struct fused_case large_stacks[] = {{2048, 1024, 128, 16, .blocks = 3},
                                                 {1000, 1032, 505, 8, .blocks = 3},
                                                 {1000, 520, 60, 64, .blocks = 3, .nesterov = 1},
                                                 {520, 264, 18, 256, .blocks = 3},
                                                 {128, 512, 8, 32, .blocks = 3}};

static void stacks_match_fp64(void **state) {
  for (size_t i = 0; i < COUNT(small_stacks); i++) check_stack(*state, &small_stacks[i]);
  for (size_t i = 0; i < COUNT(large_stacks) && on_cuda(*state) && !quick(); i++)
    check_stack(*state, &large_stacks[i]);
}

/* ---- bytes ---- */

/* Everything that a step moves: parameters, their copies for the GEMMs, momenta. */
struct part {
  char *device;
  size_t bytes, at;
};

struct bytes {
  struct part parts[64];
  int count;
  size_t size;
};

static struct bytes moved_by(const struct training *t) {
  struct bytes b = {.count = 0};
  struct mn_device *device = t->model->context->device;
  for (int i = 0; i < t->model->count; i++) {
    const struct mn_tensor *p = t->model->parameters[i];
    size_t count = (size_t)mn_tensor_count(p);
    const struct part parts[] = {{p->value.real, count * device->real, 0},
                                 {p->value.planes[0], count * device->plane, 0},
                                 {p->momentum, count * device->real, 0}};
    for (int k = 0; k < 3; k++) {
      if (!parts[k].device) continue;
      assert_true(b.count < (int)COUNT(b.parts));
      b.parts[b.count] = parts[k];
      b.parts[b.count++].at = b.size;
      b.size += parts[k].bytes;
    }
  }
  return b;
}

static char *download(const struct training *t, const struct bytes *b) {
  const struct mn_context *context = t->model->context;
  char *out = malloc(b->size);
  assert_non_null(out);
  for (int i = 0; i < b->count; i++)
    MUST(context->kernels->download(context->device, out + b->parts[i].at, b->parts[i].device,
                                    b->parts[i].bytes));
  return out;
}

static void upload(const struct training *t, const struct bytes *b, const char *from) {
  const struct mn_context *context = t->model->context;
  for (int i = 0; i < b->count; i++)
    MUST(context->kernels->upload(context->device, b->parts[i].device, from + b->parts[i].at,
                                  b->parts[i].bytes));
  MUST(context->kernels->synchronize(context->device));
}

static struct fused_case stack_for(const char *device) {
  return on_cuda(device) && !quick() ? large_stacks[0] : small_stacks[0];
}

/* From one start, again and again; on CUDA all but the first as a graph. */
static void steps_repeat_their_bytes(void **state) {
  const struct fused_case c = stack_for(*state);
  struct mn_context *context = open_guarded(*state, "bf16");
  struct training t = open_training(context, &c);
  struct bytes moved = moved_by(&t);
  char *start = download(&t, &moved), *first = NULL;
  double loss = NAN;
  for (int run = 0; run < (quick() ? 3 : 100); run++) {
    upload(&t, &moved, start);
    MUST(mn_tape_step(t.pass->tape));
    char *end = download(&t, &moved);
    if (run == 0) {
      loss = loss_of(&t);
      first = end;
      assert_true(isfinite(loss) && memcmp(start, end, moved.size) != 0);
      continue;
    }
    assert_true(loss_of(&t) == loss);
    if (memcmp(first, end, moved.size) != 0) fail_msg("run %d leaves other bytes than the first", run);
    free(end);
  }
  free(start), free(first);
  close_training(&t);
  mn_context_close(context);
}

/* ---- values that are not finite ---- */

static void write_x(struct training *t, const struct fused_case *c, int64_t at, double value) {
  int64_t count = mn_tensor_count(t->pass->x);
  double *x = numbers(count, SEED_X, (struct range){0, 1, c->bf16});
  if (at >= 0) x[at] = value;
  MUST(mn_tensor_write(t->model->context, t->pass->x, x));
  free(x);
}

static void nonfinite_steps_write_nothing(void **state) {
  static const double bad[] = {INFINITY, -INFINITY, NAN};
  const struct fused_case stack = stack_for(*state);
  for (int blocks = 1; blocks <= 3; blocks += 2) {
    struct fused_case c = stack;
    c.blocks = blocks;
    struct mn_context *context = open_guarded(*state, "bf16");
    struct training t = open_training(context, &c);
    struct bytes moved = moved_by(&t);
    char *start = download(&t, &moved);
    int64_t count = mn_tensor_count(t.pass->x);
    const int64_t places[] = {0, count / 2 + 5, count - 1};
    for (int i = 0; i < 9; i++) {
      int flag = 0;
      write_x(&t, &c, places[i % 3], bad[i / 3]);
      MUST(mn_tape_step(t.pass->tape));
      MUST(mn_tape_nonfinite(t.pass->tape, &flag));
      char *end = download(&t, &moved);
      assert_int_equal(flag, 1);
      if (memcmp(start, end, moved.size) != 0)
        fail_msg("%g at %ld moved something", bad[i / 3], (long)places[i % 3]);
      free(end);
      MUST(mn_tape_clear_nonfinite(t.pass->tape));
    }
    write_x(&t, &c, -1, 0);
    MUST(mn_tape_step(t.pass->tape));
    char *end = download(&t, &moved);
    assert_true(isfinite(loss_of(&t)) && memcmp(start, end, moved.size) != 0);
    free(start), free(end);
    close_training(&t);
    mn_context_close(context);
  }
}

/* ---- memory ---- */

static double mib(double bytes) {
  return bytes / 1048576;
}

/* One block under mse at the reference shape: masters, momentum and the GEMMs' copy of W, x with its copy,
 * one matrix for the product or dz, the target; 64 MiB for all else, the stream's workspaces included.
 * Nothing is run: the buffers stand when the tape is finished. */
static void a_step_holds_little_more_than_its_data(void **state) {
  enum { ROWS = 1024, INPUTS = 8192, CHANNELS = 8192, GROUPS = 512 };
  struct mn_context *context = open_or_skip(*state, "bf16");
  struct mn_model_config config = {
      .inputs = INPUTS, .depth = 1, .hidden = {CHANNELS}, .groups = GROUPS, .eps = 1e-5, .slope = 0.01};
  struct mn_sgd_config sgd = {.momentum = 0.9, .accumulate = 1};
  struct training t;
  config.plan = MN_PLAN_BLOCK;
  MUST(mn_model_open(&t.model, context, &config));
  MUST(mn_optimizer_open(&t.optimizer, t.model, &sgd));
  MUST(mn_pass_open(&t.pass, t.model, MN_PASS_TRAIN, ROWS, 1, 0));
  const double real = (double)context->device->real, bf16 = (double)context->device->plane;
  const double weight = (double)CHANNELS * INPUTS, x = (double)ROWS * INPUTS, z = (double)ROWS * CHANNELS;
  const double workspaces = on_cuda(*state) ? 32 * 1048576.0 : 0; /* cuBLASLt's; no scratch in a fused step */
  const double held = (double)context->bytes + workspaces;
  const double limit = weight * (2 * real + bf16) + x * (real + bf16) + 2 * z * real + 64 * 1048576.0;
  print_message("%.1f MiB held, %.1f of them workspaces; the limit is %.1f\n", mib(held), mib(workspaces),
                mib(limit));
  if (!(held <= limit)) fail_msg("%.1f MiB are more than %.1f", mib(held), mib(limit));
  close_training(&t);
  mn_context_close(context);
}

#define BOTH(test) ON("cpu", test), ON("cuda", test)

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(stacks_match_fp64),
      BOTH(steps_repeat_their_bytes),
      BOTH(nonfinite_steps_write_nothing),
      BOTH(a_step_holds_little_more_than_its_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
