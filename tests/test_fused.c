/* A block in bf16, fp16 and fp16x3 against the same block in fp64: forward, gradients, and training steps,
 * tensor by tensor, at the sizes that products with fused epilogues are for, and at ragged ones; and against
 * the library's path.
 *
 * Bounds, of ‖a − e‖/‖e‖. Where x and W are values that their planes hold the products are exact, and what is
 * left is how floats are added up. A tensor core adds 16 products at a time to its accumulator and cuts the
 * sum off: by half a unit in the last place on the average, 2⁻²⁴ of the sum so far, and always towards zero,
 * so that errors add up: with one more for the bias, unit = 2⁻²⁴·(1 + depth/16) is the bound of z. Two planes
 * are added up so for 128 of the depth at most, three products each, and then as floats: 2⁻²⁰ has room for
 * that and for what two planes do not hold. Normalised, the error of the product is to be seen against the
 * deviation of its group: it grows by κ = ‖product‖·rstd, with z's own rounding, 2⁻²⁴, by ‖z‖·rstd; a
 * gradient meets ẑ more than once, so normalised = 4·(unit·κ + 2⁻²⁴·‖z‖·rstd) + 2⁻²² bounds all that floats
 * are kept of. dz goes to its GEMMs rounded, off by `rounding` in each element (2⁻⁹ in bf16, 2⁻¹² in fp16),
 * which is what dx and dW can be off by; doubled, and with the unit of their own products where there are two
 * planes, it bounds these and what an update makes of them. Where x and W are any floats, their own rounding
 * comes to it: the bound is that of train/check/check.h. Two planes hold any float as well as is needed.
 *
 * Kinks: where v is so near to 0 that such an error may move it across, no gradient is right on both sides.
 * There dy is 0, or the target is the y expected. */
#include "tests/fused_bench.h"

#include "train/check/check.h"

enum { EXPECTED, ACTUAL, SIDES };

struct duel {
  struct fused_case c;
  struct mn_device *on[SIDES];
  double unit, normalised, rounded; /* bounds */
  double *y;                        /* as expected; NULL before the forward */
  char *kink;                       /* [N, C] */
};

static void open_duel(struct duel *d, const struct fused_case *c, const char *device, const char *precision) {
  *d = (struct duel){.c = *c};
  d->on[EXPECTED] = open_or_skip(device, precision);
  d->on[ACTUAL] = open_guarded(device, mn_precision_name(c->precision));
}

static void close_duel(struct duel *d) {
  for (int s = 0; s < SIDES; s++) {
    assert_int_equal(d->on[s]->bytes, 0);
    mn_device_close(d->on[s]);
  }
  assert_int_equal(guard_count, 0);
  free(d->y);
  free(d->kink);
}

/* size: what the error is relative to; 0: the norm of what is expected. The values are freed. */
static void compare_values(const struct duel *d, const char *tensor, double *const values[SIDES],
                           int64_t count, double bound, double size) {
  if (size == 0) size = norm(values[EXPECTED], count);
  report(&d->c, tensor, norm_of_difference(values[ACTUAL], values[EXPECTED], count) / size, bound);
  for (int s = 0; s < SIDES; s++) free(values[s]);
}

static void compare_by(const struct duel *d, const char *tensor, const void *const reals[SIDES],
                       int64_t count, double bound, double size) {
  double *values[SIDES];
  for (int s = 0; s < SIDES; s++) values[s] = read_device(d->on[s], reals[s], count);
  compare_values(d, tensor, values, count, bound, size);
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

/* What a value is off by in its planes, typically. */
static double rounding(const struct duel *d) {
  return d->c.precision == MN_BF16 ? 0x1p-9 : d->c.precision == MN_FP16 ? 0x1p-12 : 0x1p-23;
}

static void set_bounds(struct duel *d, double whole, double product, double rstd) {
  const double loose = d->on[ACTUAL]->tolerance;
  const int split = d->c.precision == MN_FP16X3;
  d->unit = split ? 0x1p-20 : 0x1p-24 * (1 + (double)d->c.inputs / 16);
  d->normalised = 4 * (d->unit * product + 0x1p-24 * whole) * rstd + 0x1p-22;
  d->rounded = d->normalised + 2 * rounding(d) + (split ? 2 * d->unit : 0);
  if (d->c.exact || split) return;
  d->unit = loose;
  d->normalised = d->rounded = fmax(loose, 4 * 0x1p-24 * whole * rstd);
}

/* Eight times what z is usually off by, through normalisation and gamma. */
static void find_kinks(struct duel *d, double whole, double product, const double *rstd,
                       const double *gamma) {
  int64_t channels = channels_of(&d->c), count = d->c.rows * channels;
  const int held = d->c.exact || d->c.precision == MN_FP16X3;
  double z_error = held ? d->unit * product + 0x1p-24 * whole : rounding(d) * product;
  d->kink = malloc((size_t)count);
  assert_non_null(d->kink);
#pragma omp parallel for
  for (int64_t i = 0; i < count; i++) {
    double v = d->y[i] > 0 ? d->y[i] / 2 : d->y[i] / (2 * 0.01);
    d->kink[i] = fabs(v) <= 8 * z_error * rstd[i / d->c.width] * fabs(gamma[i % channels]);
  }
}

static void prepare(struct duel *d, const struct mn_model *model, const struct mn_pass *pass,
                    const struct mn_block *saved) {
  struct mn_device *device = d->on[EXPECTED];
  int64_t channels = channels_of(&d->c), count = d->c.rows * channels, statistics = d->c.rows * d->c.groups;
  double *z = read_device(device, saved->z, count), *rstd = read_device(device, saved->rstd, statistics);
  double *bias = read_device(device, model->layers[0].parameters[MN_BLOCK_BIAS]->value.real, channels);
  double *gamma = read_device(device, model->layers[0].parameters[MN_BLOCK_GAMMA]->value.real, channels);
  double whole, product;
  d->y = read_device(device, pass->y->value.real, count);
  sizes_of(d, z, bias, &whole, &product);
  set_bounds(d, whole, product, typical(rstd, statistics));
  find_kinks(d, whole, product, rstd, gamma);
  free(z), free(rstd), free(bias), free(gamma);
}

/* ---- forward and gradients ---- */

static void compare_forward(struct duel *d, struct mn_model *const model[SIDES],
                            struct mn_pass *const pass[SIDES]) {
  const struct mn_block *saved[SIDES];
  int64_t count = d->c.rows * channels_of(&d->c), statistics = d->c.rows * d->c.groups;
  for (int s = 0; s < SIDES; s++) {
    MUST(mn_tape_forward(pass[s]->tape));
    saved[s] = mn_block_saved(pass[s]->y, pass[s]->tape);
  }
  prepare(d, model[EXPECTED], pass[EXPECTED], saved[EXPECTED]);
  double *z = read_device(d->on[EXPECTED], saved[EXPECTED]->z, count);
  /* A mean may be next to nothing: it is off by what z is off by. */
  double mean_size = norm(z, count) / sqrt((double)d->c.width);
  free(z);
  compare(d, "z", saved[EXPECTED]->z, saved[ACTUAL]->z, count, d->unit);
  compare_by(d, "mean", (const void *[]){saved[EXPECTED]->mean, saved[ACTUAL]->mean}, statistics, d->unit,
             mean_size);
  compare(d, "rstd", saved[EXPECTED]->rstd, saved[ACTUAL]->rstd, statistics, d->normalised);
  compare(d, "y", pass[EXPECTED]->y->value.real, pass[ACTUAL]->y->value.real, count, d->normalised);
}

/* A block handed on to another block's GEMM leaves nothing but y's planes, where that GEMM reads them. */
static void compare_planes(const struct duel *d, struct mn_model *model) {
  struct mn_device *device = d->on[ACTUAL];
  struct mn_pass *pass;
  int64_t count = d->c.rows * channels_of(&d->c);
  MUST(mn_pass_open(&pass, model, MN_PASS_FORWARD, d->c.rows, 1, 0));
  fill_x(pass, &d->c);
  MUST(mn_tape_forward(pass->tape));
  const struct mn_operand *value = &pass->y->value;
  assert_true(!value->real != !value->planes[0]);
  assert_true(value->planes[0] || device->planes != 1);
  double *y = value->real ? read_device(device, value->real, count) : malloc((size_t)count * sizeof *y);
  assert_non_null(y);
  if (value->planes[0]) {
    struct planes planes = get_planes(device, value);
    for (int64_t i = 0; i < count; i++) y[i] = planes_value(&planes, i);
    free_planes(&planes);
  }
  report(&d->c, "y, rounded", norm_of_difference(y, d->y, count) / norm(d->y, count), d->rounded);
  free(y);
  mn_pass_close(pass);
}

static void compare_backward(const struct duel *d, struct mn_model *const model[SIDES],
                             struct mn_pass *const pass[SIDES]) {
  static const char *const names[] = {"dW", "db", "dgamma", "dbeta"};
  int64_t count = d->c.rows * channels_of(&d->c);
  double *dy = numbers(count, SEED_DY, (struct range){0, 1, MN_FP32});
  for (int64_t i = 0; i < count; i++)
    if (d->kink[i]) dy[i] = 0;
  for (int s = 0; s < SIDES; s++)
    for (int k = 0; k <= d->c.twice; k++) {
      if (k > 0) MUST(mn_tape_forward(pass[s]->tape));
      MUST(mn_device_write(d->on[s], pass[s]->y->gradient, dy, count));
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
    model[s] = open_stack(d->on[s], &d->c);
    MUST(mn_model_train(model[s], d->c.twice ? MN_ADD : MN_STORE, NULL));
    MUST(mn_pass_open(&pass[s], model[s], MN_PASS_SEEDED, d->c.rows, 1, 1));
    fill_x(pass[s], &d->c);
  }
  compare_forward(d, model, pass);
  compare_backward(d, model, pass);
  compare_planes(d, model[ACTUAL]);
  for (int s = 0; s < SIDES; s++) {
    mn_pass_close(pass[s]);
    mn_model_close(model[s]);
  }
}

/* ---- training steps under mse ---- */

static void write_target(const struct duel *d, struct training *t) {
  int64_t count = mn_tensor_count(t->pass->target);
  double *target = numbers(count, SEED_TARGET, (struct range){0, 2, MN_FP32});
  for (int64_t i = 0; i < count; i++)
    if (d->kink[i]) target[i] = d->y[i];
  MUST(mn_tensor_write(t->model->device, t->pass->target, target));
  free(target);
}

static void compare_trained(const struct duel *d, const struct training t[SIDES]) {
  static const char *const names[] = {"W, updated", "b, updated", "gamma, updated", "beta, updated"};
  static const char *const momenta[] = {"W's m", "b's m", "gamma's m", "beta's m"};
  static const char *const squares[] = {"W's v", "b's v", "gamma's v", "beta's v"};
  assert_int_equal(raised(&t[ACTUAL]), 0);
  report(&d->c, "loss", fabs(loss_of(&t[ACTUAL]) / loss_of(&t[EXPECTED]) - 1), d->normalised);
  for (int i = 0; i < 4; i++) {
    const struct mn_tensor *e = t[EXPECTED].model->parameters[i], *a = t[ACTUAL].model->parameters[i];
    double bound = i == 0 ? d->rounded : d->normalised;
    double *const values[] = {read_values(d->on[EXPECTED], e), read_values(d->on[ACTUAL], a)};
    compare_values(d, names[i], values, mn_tensor_count(e), bound, 0);
    compare(d, momenta[i], e->update.m, a->update.m, mn_tensor_count(e), bound);
    if (d->c.adamw) compare(d, squares[i], e->update.v, a->update.v, mn_tensor_count(e), 2 * bound);
  }
  assert_planes(d->on[ACTUAL], "a weight", &t[ACTUAL].model->parameters[0]->value);
}

/* A step, from one start. Where planes are scaled, then the same twice more: now under the factor that the
 * last step's dz gives, and as a graph under the one that a dz sixteen times smaller would have given. */
static void compare_steps(const struct duel *d) {
  struct training t[SIDES];
  for (int s = 0; s < SIDES; s++) {
    t[s] = train_stack(d->on[s], &d->c);
    write_target(d, &t[s]);
  }
  const struct bytes moved = moved_by(&t[ACTUAL], 0);
  const struct mn_tensor *w = t[ACTUAL].model->parameters[0];
  char *start = download(&t[ACTUAL], &moved);
  MUST(mn_tape_replay(t[EXPECTED].pass->tape, 0));
  MUST(mn_tape_replay(t[ACTUAL].pass->tape, 0));
  compare_trained(d, t);
  for (int turn = 0; turn < 2 && w->scales; turn++) {
    upload(&t[ACTUAL], &moved, start);
    if (turn > 0) pretend_dz(&t[ACTUAL], w, 0x1p-4);
    MUST(turn > 0 ? mn_tape_replay(t[ACTUAL].pass->tape, 0) : mn_tape_step(t[ACTUAL].pass->tape));
    compare_trained(d, t);
  }
  free(start);
  for (int s = 0; s < SIDES; s++) close_training(&t[s]);
}

static void check(const char *device, const struct fused_case *c) {
  struct duel d;
  open_duel(&d, c, device, "fp64");
  compare_gradients(&d);
  compare_steps(&d);
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
    {33, 37, 3, .width = 8, .twice = 1}, /* rows of no whole number of 16 bytes */
    {33, 72, 5, .width = 16, .adamw = 1},
    {33, 37, 3, .width = 8, .adamw = 1},
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
    {2304, 1032, 320, .width = 8}, /* with one plane so deep a dW that the consumers update it */
    {1024, 1024, 256, .width = 16, .nesterov = 1},
    {1024, 1024, 256, .width = 8, .twice = 1}, /* from here on in half tiles, with one plane */
    {1024, 520, 128, .width = 16, .x_offset = 16},
    {1000, 72, 63, .width = 32, .nesterov = 1},
    {900, 264, 35, .width = 64, .twice = 1},
    {1024, 1024, 16, .width = 128, .bias_offset = -100},
    {128, 512, 8, .width = 32}, /* from here on in small tiles */
    {1, 1024, 24, .width = 16},
    {520, 520, 50, .width = 8, .nesterov = 1},
    {200, 1000, 17, .width = 64, .bias_offset = -100, .twice = 1},
    {1024, 512, 40, .width = 48, .twice = 1}, /* groups that no fused epilogue takes */
    {1024, 512, 4, .width = 512, .nesterov = 1},
    /* AdamW in streaming tiles, ragged ones too, in plain ones (one plane), in small ones, and the library's
       way */
    {1024, 1024, 256, .width = 16, .adamw = 1},
    {136, 4104, 1425, .width = 8, .adamw = 1},
    {2304, 1032, 320, .width = 8, .adamw = 1},
    {520, 520, 50, .width = 8, .adamw = 1},
    {1024, 512, 4, .width = 512, .adamw = 1},
};

static void check_all(const char *device, enum mn_precision precision, int exact) {
  for (size_t i = 0; i < COUNT(small); i++) {
    struct fused_case c = small[i];
    c.precision = precision, c.exact = exact;
    check(device, &c);
  }
  for (size_t i = 0; i < COUNT(large) && on_cuda(device) && !quick(); i++) {
    struct fused_case c = large[i];
    c.precision = precision, c.exact = exact;
    check(device, &c);
  }
}

static void exact_operands_bf16(void **state) {
  check_all(*state, MN_BF16, 1);
}

static void exact_operands_fp16(void **state) {
  check_all(*state, MN_FP16, 1);
}

static void any_operands_bf16(void **state) {
  check_all(*state, MN_BF16, 0);
}

static void any_operands_fp16(void **state) {
  check_all(*state, MN_FP16, 0);
}

static void any_operands_fp16x3(void **state) {
  check_all(*state, MN_FP16X3, 0);
}

static void reference_shape(void **state) {
  struct fused_case reference = {1024, 8192, 512, .width = 16, .exact = 1};
  if (quick()) SKIP("QUICK");
  for (size_t p = 0; p < COUNT(fused_precisions); p++) {
    reference.precision = fused_precisions[p];
    check(*state, &reference);
  }
}

/* Where there is a GEMM of our own, what it leaves is what the library and the epilogue behind it leave: both
 * multiply the same planes. With two planes the product is our own's in any case. */
static void the_library_path_agrees(void **state) {
  static const struct fused_case cases[] = {
      {70, 40, 3, .width = 64, .exact = 1},
      {1024, 1024, 256, .width = 16, .bias_offset = 2, .exact = 1},
      {1000, 264, 60, .width = 64, .twice = 1, .nesterov = 1, .exact = 1},
      {1024, 1024, 256, .width = 16, .exact = 1, .adamw = 1},
      {128, 512, 8, .width = 32, .exact = 1}};
  for (size_t i = 0; i < COUNT(fused_precisions) * (on_cuda(*state) && !quick() ? COUNT(cases) : 1); i++) {
    struct fused_case c = cases[i / COUNT(fused_precisions)];
    struct duel d;
    c.precision = fused_precisions[i % COUNT(fused_precisions)];
    open_duel(&d, &c, *state, mn_precision_name(c.precision));
    d.on[EXPECTED]->force_cublas = 1;
    compare_gradients(&d);
    compare_steps(&d);
    close_duel(&d);
  }
}

/* An [n, n] operand, random. */
static struct mn_tensor *square(struct mn_device *device, int64_t n, uint64_t seed) {
  struct mn_tensor *t;
  MUST(mn_tensor_parameter(device, &t, "an operand", 2, n, n, 0, 0));
  fill(device, t, seed, (struct range){0, 1, MN_FP32});
  return t;
}

/* Which way a product went shows in `into`, where only the library leaves it. Of two planes, which are of no
 * use to the library, a weight is updated by the GEMM of our own in any case. */
static void check_way(struct memory *m, const struct mn_tensor *const operands[3],
                      const struct mn_epilogue *epilogue, int library) {
  struct mn_device *device = m->device;
  const struct mn_tensor *x = operands[0], *w = operands[1], *dz = operands[2];
  const int64_t count = mn_tensor_count(x);
  struct mn_epilogue e = *epilogue;
  enum mn_form form = e.kind == MN_UPDATE ? MN_TN : e.kind == MN_BLOCK_BACKWARD ? MN_NN : MN_NT;
  e.into = take_reals(m, NULL, count);
  device->force_cublas = library;
  MUST(device->kernels->gemm(device, form, form == MN_NT ? &x->value : &dz->value,
                             form == MN_TN ? &x->value : &w->value, &e));
  double *values = read_reals(m, e.into, count);
  const int leaves = library && !(device->planes == 2 && e.kind == MN_UPDATE);
  for (int64_t i = 0; i < count; i++) assert_int_equal(!isnan(values[i]), leaves);
  free(values);
}

/* Every fused epilogue of an [n, n] product in groups of 16, its own way and, when told so, the library's. */
static void check_ways(struct mn_device *device, int64_t n) {
  struct memory m = {.device = device};
  struct mn_tensor *const operands[] = {square(device, n, 1), square(device, n, 2), square(device, n, 3)};
  double *values = random_values(n * n, 4, 1);
  void *given = take_reals(&m, values, n * n), *rate = take_bytes(&m, 1, sizeof(double));
  MUST(device->kernels->zero(device, rate, sizeof(double)));
  struct mn_operand y = {.rows = n, .cols = n, .real = take_reals(&m, NULL, n * n)};
  struct mn_operand out = {.rows = n, .cols = n};
  take_planes(&m, &out, 1);
  struct mn_rule sgd = {.rate = rate};
  struct mn_update update = {.w = &operands[1]->value, .rule = &sgd};
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
      const struct mn_epilogue e = {.kind = (enum mn_epilogue_kind)kind,
                                    .block = kind == MN_BLOCK_LOSS ? &loss : &saves,
                                    .update = &update};
      check_way(&m, (const struct mn_tensor *const *)operands, &e, library);
    }
  free(values);
  release_all(&m);
  for (int i = 0; i < 3; i++) mn_tensor_free(device, operands[i]);
}

/* Small tiles, then large ones. */
static void fitting_products_leave_into_alone(void **state) {
  int fuses = 0;
  for (size_t p = 0; p < COUNT(fused_precisions); p++) {
    struct mn_device *device = open_or_skip(*state, mn_precision_name(fused_precisions[p]));
    fuses = device->has_own_gemm;
    for (int64_t n = 512; n <= 2048 && fuses; n *= 4) check_ways(device, n);
    mn_device_close(device);
  }
  if (!fuses) SKIP("no Hopper GPU");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(exact_operands_bf16),     BOTH(exact_operands_fp16),
      BOTH(any_operands_bf16),       BOTH(any_operands_fp16),
      BOTH(any_operands_fp16x3),     ON("cuda", reference_shape),
      BOTH(the_library_path_agrees), ON("cuda", fitting_products_leave_into_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
