/* A block in bf16 against the same block in fp64: forward, gradients, and a training step, tensor by tensor,
 * at the sizes that products with fused epilogues are for, and at ragged ones; and against the library's
 * path.
 *
 * Bounds, of ‖a − e‖/‖e‖. Where x and W are bfloat16 values the products are exact, and what is left is how
 * floats are added up. A tensor core adds 16 products at a time to its accumulator and cuts the sum off: by
 * half a unit in the last place on the average, 2⁻²⁴ of the sum so far, and always towards zero, so that
 * errors add up: with one more for the bias, unit = 2⁻²⁴·(1 + depth/16) is the bound of z. Normalised, the
 * error of the product is to be seen against the deviation of its group: it grows by κ = ‖product‖·rstd, with
 * z's own rounding, 2⁻²⁴, by ‖z‖·rstd; a gradient meets ẑ more than once, so normalised = 4·(unit·κ +
 * 2⁻²⁴·‖z‖·rstd) + 2⁻²² bounds all that floats are kept of. dz goes to its GEMMs as bfloat16, off by 2⁻⁹ in
 * each element, which is what dx and dW can be off by; doubled, 2⁻⁸ + normalised bounds these, and what an
 * update makes of them. Where x and W are any floats, their own rounding is 2⁻⁹ each: the bound is bf16's of
 * train/check/parity.h.
 *
 * Kinks: where v is so near to 0 that such an error may move it across, no gradient is right on both sides.
 * There dy is 0, or the target is the y expected. */
#include "tests/fused_bench.h"

#include "kernels/device.h"
#include "train/check/parity.h"

enum { EXPECTED, ACTUAL, SIDES };

struct duel {
  struct fused_case c;
  struct mn_context *on[SIDES];
  double unit, normalised, rounded; /* bounds */
  double *y;                        /* as expected; NULL before the forward */
  char *kink;                       /* [N, C] */
};

static void open_duel(struct duel *d, const struct fused_case *c, const char *device, const char *precision) {
  *d = (struct duel){.c = *c};
  d->on[EXPECTED] = open_or_skip(device, precision);
  d->on[ACTUAL] = open_guarded(device, "bf16");
}

static void close_duel(struct duel *d) {
  for (int s = 0; s < SIDES; s++) {
    assert_int_equal(d->on[s]->bytes, 0);
    mn_context_close(d->on[s]);
  }
  assert_int_equal(guard_count, 0);
  free(d->y);
  free(d->kink);
}

/* size: what the error is relative to; 0: the norm of what is expected. */
static void compare_by(const struct duel *d, const char *tensor, const void *const reals[SIDES],
                       int64_t count, double bound, double size) {
  double *values[SIDES];
  for (int s = 0; s < SIDES; s++) values[s] = read_device(d->on[s], reals[s], count);
  if (size == 0) size = norm(values[EXPECTED], count);
  report(&d->c, tensor, norm_of_difference(values[ACTUAL], values[EXPECTED], count) / size, bound);
  for (int s = 0; s < SIDES; s++) free(values[s]);
}

static void compare(const struct duel *d, const char *tensor, const void *expected, const void *actual,
                    int64_t count, double bound) {
  compare_by(d, tensor, (const void *[]){expected, actual}, count, bound, 0);
}

/* ---- bounds and kinks, from the expected side's forward ---- */

/* ‖z‖ and ‖z − bias‖, root mean squares. */
static void sizes_of(const struct duel *d, const double *z, const double *bias, double *whole,
                     double *product) {
  int64_t count = d->c.rows * channels_of(&d->c);
  double a = 0, b = 0;
#pragma omp parallel for reduction(+ : a, b)
  for (int64_t i = 0; i < count; i++) {
    double free_of_bias = z[i] - bias[i % channels_of(&d->c)];
    a += z[i] * z[i];
    b += free_of_bias * free_of_bias;
  }
  *whole = sqrt(a / (double)count);
  *product = sqrt(b / (double)count);
}

/* Groups differ; rstd itself is off by rstd² times an error of z, so the widest of means is the one to take.
 */
static double typical(const double *rstd, int64_t count) {
  double squares = 0, fourths = 0;
  for (int64_t i = 0; i < count; i++) {
    squares += rstd[i] * rstd[i];
    fourths += rstd[i] * rstd[i] * rstd[i] * rstd[i];
  }
  return sqrt(fourths / squares);
}

static void set_bounds(struct duel *d, double whole, double product, double rstd) {
  const double loose = mn_parity_tolerance(MN_BF16);
  int64_t depth = d->c.inputs;
  d->unit = 0x1p-24 * (1 + (double)depth / 16);
  d->normalised = 4 * (d->unit * product + 0x1p-24 * whole) * rstd + 0x1p-22;
  d->rounded = d->normalised + 0x1p-8;
  if (d->c.bf16) return;
  d->unit = loose;
  d->normalised = d->rounded = fmax(loose, 4 * 0x1p-24 * whole * rstd);
}

/* Eight times what z is usually off by, through normalisation and gamma. */
static void find_kinks(struct duel *d, double whole, double product, const double *rstd,
                       const double *gamma) {
  int64_t channels = channels_of(&d->c), count = d->c.rows * channels;
  double z_error = d->c.bf16 ? d->unit * product + 0x1p-24 * whole : 0x1p-9 * product;
  d->kink = malloc((size_t)count);
  assert_non_null(d->kink);
#pragma omp parallel for
  for (int64_t i = 0; i < count; i++) {
    double v = d->y[i] > 0 ? d->y[i] / 2 : d->y[i] / (2 * 0.01);
    d->kink[i] = fabs(v) <= 8 * z_error * rstd[i / d->c.width] * fabs(gamma[i % channels]);
  }
}

static void prepare(struct duel *d, const struct mn_model *model, const struct mn_pass *pass,
                    const void *const saved[3]) {
  struct mn_context *context = d->on[EXPECTED];
  int64_t channels = channels_of(&d->c), count = d->c.rows * channels, statistics = d->c.rows * d->c.groups;
  double *z = read_device(context, saved[0], count), *rstd = read_device(context, saved[2], statistics);
  double *bias = read_device(context, model->layers[0].parameters[MN_BLOCK_BIAS]->value.real, channels);
  double *gamma = read_device(context, model->layers[0].parameters[MN_BLOCK_GAMMA]->value.real, channels);
  double whole, product;
  d->y = read_device(context, pass->y->value.real, count);
  sizes_of(d, z, bias, &whole, &product);
  set_bounds(d, whole, product, typical(rstd, statistics));
  find_kinks(d, whole, product, rstd, gamma);
  free(z), free(rstd), free(bias), free(gamma);
}

/* ---- forward and gradients ---- */

static void compare_forward(struct duel *d, struct mn_model *const model[SIDES],
                            struct mn_pass *const pass[SIDES]) {
  const void *saved[SIDES][3];
  int64_t count = d->c.rows * channels_of(&d->c), statistics = d->c.rows * d->c.groups;
  for (int s = 0; s < SIDES; s++) {
    MUST(mn_tape_forward(pass[s]->tape));
    mn_block_saved(pass[s]->y, pass[s]->tape, &saved[s][0], &saved[s][1], &saved[s][2]);
  }
  prepare(d, model[EXPECTED], pass[EXPECTED], saved[EXPECTED]);
  double *z = read_device(d->on[EXPECTED], saved[EXPECTED][0], count);
  /* A mean may be next to nothing: it is off by what z is off by. */
  double mean_size = norm(z, count) / sqrt((double)d->c.width);
  free(z);
  compare(d, "z", saved[EXPECTED][0], saved[ACTUAL][0], count, d->unit);
  compare_by(d, "mean", (const void *[]){saved[EXPECTED][1], saved[ACTUAL][1]}, statistics, d->unit,
             mean_size);
  compare(d, "rstd", saved[EXPECTED][2], saved[ACTUAL][2], statistics, d->normalised);
  compare(d, "y", pass[EXPECTED]->y->value.real, pass[ACTUAL]->y->value.real, count, d->normalised);
}

/* A block handed on to another block's GEMM leaves nothing but y's bf16 form. */
static void compare_halves(const struct duel *d, struct mn_model *model) {
  struct mn_context *context = d->on[ACTUAL];
  struct mn_pass *pass;
  int64_t count = d->c.rows * channels_of(&d->c);
  size_t size = context->device->plane;
  MUST(mn_pass_open(&pass, model, MN_PASS_FORWARD, d->c.rows, 1, 0));
  fill_x(pass, &d->c);
  MUST(mn_tape_forward(pass->tape));
  assert_null(pass->y->value.real);
  char *bf16 = malloc((size_t)count * size);
  double *y = malloc((size_t)count * sizeof *y);
  assert_true(bf16 && y);
  MUST(context->kernels->download(context->device, bf16, pass->y->value.planes[0], (size_t)count * size));
  for (int64_t i = 0; i < count; i++) {
    float value = 0;
    memcpy((char *)&value + sizeof value - size, bf16 + (size_t)i * size, size);
    y[i] = value;
  }
  report(&d->c, "y, rounded", norm_of_difference(y, d->y, count) / norm(d->y, count), d->rounded);
  free(bf16), free(y);
  mn_pass_close(pass);
}

static void compare_backward(const struct duel *d, struct mn_model *const model[SIDES],
                             struct mn_pass *const pass[SIDES]) {
  static const char *const names[] = {"dW", "db", "dgamma", "dbeta"};
  int64_t count = d->c.rows * channels_of(&d->c);
  double *dy = numbers(count, SEED_DY, (struct range){0, 1, 0});
  for (int64_t i = 0; i < count; i++)
    if (d->kink[i]) dy[i] = 0;
  for (int s = 0; s < SIDES; s++)
    for (int k = 0; k <= d->c.twice; k++) {
      if (k > 0) MUST(mn_tape_forward(pass[s]->tape));
      MUST(mn_context_write(d->on[s], pass[s]->y->gradient, dy, count));
      MUST(mn_tape_backward(pass[s]->tape));
    }
  free(dy);
  compare(d, "dx", pass[EXPECTED]->x->gradient, pass[ACTUAL]->x->gradient, mn_tensor_count(pass[ACTUAL]->x),
          d->rounded);
  for (int i = 0; i < 4; i++) {
    const struct mn_tensor *e = model[EXPECTED]->parameters[i], *a = model[ACTUAL]->parameters[i];
    compare(d, names[i], e->gradient, a->gradient, mn_tensor_count(e), i == 0 ? d->rounded : d->normalised);
  }
}

static void compare_gradients(struct duel *d) {
  struct mn_model *model[SIDES];
  struct mn_pass *pass[SIDES];
  for (int s = 0; s < SIDES; s++) {
    model[s] = open_model(d->on[s], &d->c);
    MUST(mn_model_train(model[s], d->c.twice ? MN_TRAIN_ADD : MN_TRAIN_STORE, NULL));
    MUST(mn_pass_open(&pass[s], model[s], MN_PASS_SEEDED, d->c.rows, 1, 1));
    fill_x(pass[s], &d->c);
  }
  compare_forward(d, model, pass);
  compare_backward(d, model, pass);
  compare_halves(d, model[ACTUAL]);
  for (int s = 0; s < SIDES; s++) {
    mn_pass_close(pass[s]);
    mn_model_close(model[s]);
  }
}

/* ---- a training step under mse ---- */

static void write_target(const struct duel *d, struct training *t) {
  int64_t count = mn_tensor_count(t->pass->target);
  double *target = numbers(count, SEED_TARGET, (struct range){0, 2, 0});
  for (int64_t i = 0; i < count; i++)
    if (d->kink[i]) target[i] = d->y[i];
  MUST(mn_tensor_write(t->model->context, t->pass->target, target));
  free(target);
}

static void compare_step(const struct duel *d) {
  static const char *const names[] = {"W, updated", "b, updated", "gamma, updated", "beta, updated"};
  static const char *const momenta[] = {"W's momentum", "b's momentum", "gamma's momentum",
                                        "beta's momentum"};
  struct training t[SIDES];
  double losses[SIDES];
  for (int s = 0; s < SIDES; s++) {
    t[s] = open_training(d->on[s], &d->c);
    write_target(d, &t[s]);
    MUST(mn_tape_step(t[s].pass->tape));
    losses[s] = loss_of(&t[s]);
  }
  report(&d->c, "loss", fabs(losses[ACTUAL] / losses[EXPECTED] - 1), d->normalised);
  for (int i = 0; i < 4; i++) {
    const struct mn_tensor *e = t[EXPECTED].model->parameters[i], *a = t[ACTUAL].model->parameters[i];
    double bound = i == 0 ? d->rounded : d->normalised;
    compare(d, names[i], e->value.real, a->value.real, mn_tensor_count(e), bound);
    compare(d, momenta[i], e->momentum, a->momentum, mn_tensor_count(e), bound);
  }
  assert_rounded(d->on[ACTUAL], t[ACTUAL].model->parameters[0]);
  for (int s = 0; s < SIDES; s++) close_training(&t[s]);
}

static void check(const char *device, const struct fused_case *c) {
  struct duel d;
  open_duel(&d, c, device, "fp64");
  compare_gradients(&d);
  compare_step(&d);
  close_duel(&d);
}

/* ---- the cases ---- */

/* A bias far from 0 leaves E[z²] − E[z]² nothing of the variance. */
static const struct fused_case small[] = {
    {40, 24, 6, .width = 8, .x_offset = 16},
    {33, 72, 5, .width = 16, .twice = 1},
    {1, 16, 3, .width = 32, .bias_offset = 2},
    {70, 40, 3, .width = 64, .nesterov = 1},
    {136, 136, 2, .width = 128, .x_offset = -4, .twice = 1},
    {34, 24, 1, .width = 256, .bias_offset = -100, .nesterov = 1},
};

/* Every width of a group; then edges: rows, channels and depth that fill no tile, one row, one deep product.
 */
static const struct fused_case large[] = {
    {1024, 1024, 512, .width = 8, .twice = 1},
    {1024, 1024, 256, .width = 16, .x_offset = 16},
    {1024, 1024, 128, .width = 32, .bias_offset = 2, .nesterov = 1},
    {1024, 1024, 64, .width = 64, .x_offset = -4, .twice = 1},
    {1024, 1024, 32, .width = 128, .bias_offset = -100},
    {1024, 1024, 16, .width = 256, .nesterov = 1},
    {1000, 72, 500, .width = 8},
    {4000, 72, 45, .width = 16, .twice = 1},
    {129, 1032, 353, .width = 32},
    {1000, 264, 60, .width = 64, .x_offset = 16, .twice = 1},
    {200, 2048, 45, .width = 256, .bias_offset = 2},
    {136, 4104, 1425, .width = 8},
    {136, 72, 1425, .width = 8, .nesterov = 1},
    {2304, 1032, 320, .width = 8}, /* so deep a dW that the consumers update it themselves */
    {1024, 1024, 256, .width = 16, .nesterov = 1},
    {128, 512, 8, .width = 32}, /* from here on in small tiles */
    {1, 1024, 24, .width = 16},
    {520, 520, 50, .width = 8, .nesterov = 1},
    {200, 1000, 17, .width = 64, .bias_offset = -100, .twice = 1},
};

static void check_all(const char *device, int bf16) {
  for (size_t i = 0; i < COUNT(small); i++) {
    struct fused_case c = small[i];
    c.bf16 = bf16;
    check(device, &c);
  }
  for (size_t i = 0; i < COUNT(large) && on_cuda(device) && !quick(); i++) {
    struct fused_case c = large[i];
    c.bf16 = bf16;
    check(device, &c);
  }
}

static void exact_operands(void **state) {
  check_all(*state, 1);
}

static void any_operands(void **state) {
  check_all(*state, 0);
}

static void reference_shape(void **state) {
  static const struct fused_case reference = {1024, 8192, 512, .width = 16, .bf16 = 1};
  if (quick()) {
    print_message("skipped: a quick run was asked for\n");
    skip();
  }
  check(*state, &reference);
}

/* Where there is a GEMM of our own, what it leaves is what the library and the epilogue behind it leave: both
 * multiply the same bfloat16 values. */
static void the_library_path_agrees(void **state) {
  static const struct fused_case cases[] = {
      {70, 40, 3, .width = 64, .bf16 = 1},
      {1024, 1024, 256, .width = 16, .bias_offset = 2, .bf16 = 1},
      {1000, 264, 60, .width = 64, .twice = 1, .nesterov = 1, .bf16 = 1},
      {128, 512, 8, .width = 32, .bf16 = 1}};
  for (size_t i = 0; i < (on_cuda(*state) && !quick() ? COUNT(cases) : 1); i++) {
    struct duel d;
    open_duel(&d, &cases[i], *state, "bf16");
    d.on[EXPECTED]->device->library = 1;
    compare_gradients(&d);
    compare_step(&d);
    close_duel(&d);
  }
}

/* An [n, n] operand, random. */
static struct mn_tensor *square(struct mn_context *context, int64_t n, uint64_t seed) {
  struct mn_tensor *t;
  MUST(mn_tensor_parameter(context, &t, "an operand", 2, n, n));
  fill(context, t, seed, (struct range){0, 1, 0});
  return t;
}

/* Which way a product went shows in `into`, where only the library leaves it. */
static void check_way(struct memory *m, const struct mn_tensor *const operands[3],
                      const struct mn_epilogue *epilogue, int library) {
  struct mn_context *context = m->context;
  const struct mn_tensor *x = operands[0], *w = operands[1], *dz = operands[2];
  const int64_t count = mn_tensor_count(x);
  struct mn_epilogue e = *epilogue;
  enum mn_form form = e.kind == MN_UPDATE ? MN_TN : e.kind == MN_BLOCK_BACKWARD ? MN_NN : MN_NT;
  e.into = take_reals(m, NULL, count);
  context->device->library = library;
  MUST(context->kernels->gemm(context->device, form, form == MN_NT ? &x->value : &dz->value,
                              form == MN_TN ? &x->value : &w->value, &e));
  double *values = read_reals(m, e.into, count);
  for (int64_t i = 0; i < count; i++) assert_int_equal(!isnan(values[i]), library);
  free(values);
}

/* Every fused epilogue of an [n, n] product in groups of 16, its own way and, when told so, the library's. */
static void check_ways(struct mn_context *context, int64_t n) {
  struct memory m = {.context = context};
  struct mn_device *device = context->device;
  struct mn_tensor *const operands[] = {square(context, n, 1), square(context, n, 2), square(context, n, 3)};
  double *values = random_values(n * n, 4, 1);
  void *given = take_reals(&m, values, n * n), *rate = take_bytes(&m, 1, sizeof(double));
  MUST(context->kernels->zero(device, rate, sizeof(double)));
  struct mn_operand y = {.rows = n, .cols = n, .real = take_reals(&m, NULL, n * n)};
  struct mn_operand out = {.rows = n, .cols = n, .planes = {take_bytes(&m, n * n, device->plane)}};
  struct mn_sgd sgd = {.rate = rate};
  struct mn_update update = {.w = &operands[1]->value, .sgd = &sgd};
  struct mn_block loss = {.ops = MN_OP_ALL,
                          .rows = n,
                          .channels = n,
                          .groups = n / 16,
                          .eps = 1e-5,
                          .bias = given,
                          .gamma = given,
                          .beta = given,
                          .target = given,
                          .scale = 1,
                          .dz = &out};
  loss.loss_parts = take_reals(&m, NULL, n * n / 16);
  loss.sums = take_reals(&m, NULL, 3 * mn_chunks(n) * n);
  struct mn_block saves = loss;
  saves.y = &y, saves.z = take_reals(&m, NULL, n * n);
  saves.mean = take_reals(&m, NULL, n * n / 16), saves.rstd = take_reals(&m, NULL, n * n / 16);
  for (int kind = MN_BLOCK; kind <= MN_UPDATE; kind++)
    for (int library = 0; library < 2; library++) {
      const struct mn_epilogue e = {(enum mn_epilogue_kind)kind, NULL, kind == MN_BLOCK_LOSS ? &loss : &saves,
                                    &update};
      check_way(&m, (const struct mn_tensor *const *)operands, &e, library);
    }
  free(values);
  release_all(&m);
  for (int i = 0; i < 3; i++) mn_tensor_free(context, operands[i]);
}

/* Small tiles, then large ones. */
static void fitting_products_leave_into_alone(void **state) {
  struct mn_context *context = open_or_skip(*state, "bf16");
  const int fuses = context->device->fuses;
  for (int64_t n = 512; n <= 2048 && fuses; n *= 4) check_ways(context, n);
  mn_context_close(context);
  if (!fuses) skip();
}

#define BOTH(test) ON("cpu", test), ON("cuda", test)

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(exact_operands),
      BOTH(any_operands),
      ON("cuda", reference_shape),
      BOTH(the_library_path_agrees),
      ON("cuda", fitting_products_leave_into_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
