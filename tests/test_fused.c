/* Products that end in a block's epilogue or in an update, at the sizes that the GEMM of our own fuses them at, and at
 * ragged ones, its own way and the library's, against plain double arithmetic; and which way a product goes. */
#include "tests/block_case.h"

enum { PLANES = BF16 | SCALED };

/* As a training step has a block's products: forward, with the loss, the backward of the block before, the weight's
 * update, and gradients that are stored, or added up. A bias far from 0 leaves E[z²] − E[z]² nothing of the variance. */
static void check_step(struct memory *m, const struct draw *c) {
  const int64_t channels = columns_of(c);
  const struct draw weight = {
      .rows = channels, .width = c->depth, .depth = c->rows, .form = MN_TN, .rule = c->rule};
  const struct draw steps[] = {{.kind = MN_BLOCK, .form = MN_NT},
                               {.kind = MN_BLOCK, .form = MN_NT, .way = 3},
                               {.kind = MN_BLOCK_LOSS, .form = MN_NT, .way = 3},
                               {.kind = MN_BLOCK_BACKWARD, .form = MN_NN, .way = 3}};
  for (size_t i = 0; i < COUNT(steps); i++) {
    struct draw d = *c;
    d.ops = MN_OP_ALL, d.kind = steps[i].kind, d.form = steps[i].form, d.way = steps[i].way;
    try_case(m, check_block, &d, "a named case");
  }
  for (int kind = MN_STORE; kind <= MN_UPDATE; kind += kind == MN_STORE ? 1 : MN_UPDATE - MN_ADD) {
    struct draw d = weight;
    d.kind = kind, d.library = c->library;
    try_case(m, check_matrix, &d, "a named case");
  }
  const struct draw dx = {
      .rows = c->rows, .width = c->depth, .depth = channels, .form = MN_NN, .library = c->library};
  try_case(m, check_matrix, &dx, "a named case");
}

enum { NESTEROV = MOMENTUM_DECAY + 1 };
static const struct draw small[] = {
    {40, 8, 24, 6, .rule = MOMENTUM_DECAY},
    {33, 16, 72, 5, .rule = 0},
    {1, 32, 16, 3, .offset = 2},
    {70, 64, 40, 3, .rule = NESTEROV},
    {136, 128, 136, 2, .rule = MOMENTUM_DECAY},
    {34, 256, 24, 1, .offset = -100, .rule = NESTEROV},
    {33, 8, 37, 3, .rule = MOMENTUM_DECAY}, /* rows of no whole number of 16 bytes */
    {33, 16, 72, 5, .rule = ADAMW},
    {70, 64, 40, 3, .library = 1, .rule = MOMENTUM_DECAY},
};

/* Every width of a group; then edges: rows, channels and depth that fill no tile, one row, one deep product.
 */
static const struct draw large[] = {
    {1024, 8, 264, 512, .rule = MOMENTUM_DECAY},
    {1024, 16, 1024, 256, .rule = MOMENTUM_DECAY},
    {1024, 32, 264, 128, .offset = 2, .rule = NESTEROV},
    {1024, 64, 264, 64, .rule = MOMENTUM_DECAY},
    {1024, 128, 264, 32, .offset = -100, .rule = MOMENTUM_DECAY},
    {1024, 256, 264, 16, .rule = NESTEROV},
    {1000, 8, 72, 500, .rule = MOMENTUM_DECAY},
    {4000, 16, 72, 45, .rule = MOMENTUM_DECAY},
    {129, 32, 1032, 353, .rule = MOMENTUM_DECAY},
    {1000, 64, 264, 60, .rule = MOMENTUM_DECAY},
    {200, 256, 2048, 45, .offset = 2, .rule = MOMENTUM_DECAY},
    {136, 8, 4104, 1425, .rule = MOMENTUM_DECAY},
    {136, 8, 72, 1425, .rule = NESTEROV},
    {2304, 8, 1032, 320,
     .rule = MOMENTUM_DECAY}, /* with one plane so deep a dW that the consumers update it */
    {1024, 8, 264, 256, .rule = MOMENTUM_DECAY}, /* from here on in half tiles, with one plane */
    {1024, 16, 520, 128, .rule = MOMENTUM_DECAY},
    {1000, 32, 72, 63, .rule = NESTEROV},
    {900, 64, 264, 35, .rule = MOMENTUM_DECAY},
    {1024, 128, 264, 16, .offset = -100, .rule = MOMENTUM_DECAY},
    {128, 32, 512, 8, .rule = MOMENTUM_DECAY}, /* from here on in small tiles */
    {1, 16, 1024, 24, .rule = MOMENTUM_DECAY},
    {520, 8, 520, 50, .rule = NESTEROV},
    {200, 64, 1000, 17, .offset = -100, .rule = MOMENTUM_DECAY},
    {1024, 48, 512, 40, .rule = MOMENTUM_DECAY}, /* groups that no fused epilogue takes */
    {1024, 512, 264, 4, .rule = NESTEROV},
    {1024, 16, 264, 256, .library = 1, .rule = NESTEROV, .offset = 2}, /* the library's way */
    {128, 32, 512, 8, .library = 1, .rule = ADAMW},
};

/* AdamW in streaming tiles, ragged ones too, in plain ones (one plane), in small ones, and the library's way. */
static const int64_t adamw[][3] = {
    {4096, 1024, 1024}, {11400, 4104, 136}, {2560, 1032, 2304}, {400, 520, 520}, {2048, 512, 1024}};

static void products_of_a_step(struct memory *m) {
  for (size_t i = 0; i < COUNT(small); i++) check_step(m, &small[i]);
  for (size_t i = 0; i < COUNT(large) && is_cuda(m) && !quick(); i++) check_step(m, &large[i]);
  for (size_t i = 0; i < COUNT(adamw) && is_cuda(m) && !quick(); i++) {
    struct draw d = sized(adamw[i]);
    d.form = MN_TN, d.kind = MN_UPDATE, d.rule = ADAMW;
    try_case(m, check_matrix, &d, "a named case");
  }
}

static void reference_shape(struct memory *m) {
  static const struct draw loss = {1024, 16, 8192, 512, .kind = MN_BLOCK_LOSS, .ops = MN_OP_ALL, .way = 3},
                           update = {
                               8192, 8192, 1024, .kind = MN_UPDATE, .form = MN_TN, .rule = MOMENTUM_DECAY};
  if (quick()) SKIP("QUICK");
  try_case(m, check_block, &loss, "a named case");
  try_case(m, check_matrix, &update, "a named case");
}

/* ---- which way a product goes ---- */

/* An [n, n] operand, random. */
static struct mn_tensor *square(struct mn_device *device, int64_t n, uint64_t seed) {
  struct mn_tensor *t;
  MUST(mn_tensor_parameter(device, &t, "an operand", 2, n, n, 0, 0));
  randomise(device, t, seed);
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
static void fitting_products_leave_into_alone(struct memory *m) {
  if (!m->device->has_own_gemm) SKIP("no Hopper GPU");
  for (int64_t n = 512; n <= 2048; n *= 4) check_ways(m->device, n);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      EACH(PLANES, products_of_a_step),
      EACH_ON("cuda", PLANES, reference_shape),
      EACH_ON("cuda", PLANES, fitting_products_leave_into_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
