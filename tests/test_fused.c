/* Products that end in a block's epilogue or in an update, at the sizes at which the GEMM of our own fuses them,
 * and at ragged ones, its own way and the library's, against double arithmetic; and which way a product goes. */
#include "tests/block_case.h"

enum { BLOCKS = 4, FUSED = 5, ALL = 9 };

/* Tries the products of a block's training step: forward, with the loss, the backward of the block before, the
 * weight's update, and gradients that are stored or added up; the first `count` of them. With a bias far from 0
 * a variance by E[z²] − E[z]² would be wrong. */
static void check_step(struct memory *m, const struct draw *c, int count) {
  static const struct draw steps[] = {{.kind = MN_BLOCK, .form = MN_NT},
                                      {.kind = MN_BLOCK, .form = MN_NT, .way = 3},
                                      {.kind = MN_BLOCK_LOSS, .form = MN_NT, .way = 3},
                                      {.kind = MN_BLOCK_BACKWARD, .form = MN_NN, .way = 3},
                                      {.kind = MN_UPDATE, .form = MN_TN, .way = 1},
                                      {.kind = MN_UPDATE, .form = MN_TN},
                                      {.kind = MN_STORE, .form = MN_TN},
                                      {.kind = MN_ADD, .form = MN_TN},
                                      {.kind = MN_STORE, .form = MN_NN}};
  for (int i = 0; i < count; i++) {
    struct draw d = *c;
    d.ops = MN_OP_ALL, d.kind = steps[i].kind, d.form = steps[i].form, d.way = steps[i].way;
    if (i >= BLOCKS) d.groups = 0, d.width = c->depth, d.rows = d.form == MN_TN ? columns_of(c) : c->rows;
    if (i >= BLOCKS) d.depth = d.form == MN_TN ? c->rows : columns_of(c);
    try_case(m, i >= BLOCKS ? check_matrix : check_block, &d, "a named case");
  }
}

enum { NESTEROV = MOMENTUM_DECAY + 1 };
static const struct draw small[] = {
    {40, 8, 24, 6, .rule = MOMENTUM_DECAY}, {1, 32, 16, 3, .offset = 2},
    {70, 64, 40, 3, .rule = NESTEROV},      {34, 256, 24, 1, .offset = -100, .rule = NESTEROV},
    {33, 8, 37, 3, .rule = MOMENTUM_DECAY}, /* rows of no whole number of 16 bytes */
    {33, 16, 72, 5, .rule = ADAMW},         {70, 64, 40, 3, .library = 1, .rule = MOMENTUM_DECAY},
};

/* Every width of a group; then edges: rows, channels and depth that fill no tile, one row, one deep product. The
 * products of a weight are tried with every third: no group matters to them. */
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
    {128, 32, 512, 8, .library = 1, .rule = ADAMW}, /* the library's way */
    {1024, 16, 264, 256, .library = 1, .rule = NESTEROV, .offset = 2},
};

/* AdamW in streaming tiles, ragged ones too, in plain ones (one plane), in small ones, and the library's way. */
static const int64_t adamw[][3] = {
    {4096, 1024, 1024}, {11400, 4104, 136}, {2560, 1032, 2304}, {400, 520, 520}, {2048, 512, 1024}};

static void products_of_a_step(struct memory *m) {
  for (size_t i = 0; i < COUNT(small); i++) check_step(m, &small[i], ALL);
  for (size_t i = 0; i < COUNT(large) && is_cuda(m) && !quick(); i++)
    check_step(m, &large[i], i % 3 == 1 ? ALL : BLOCKS);
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

/* Every fused epilogue, in small tiles, then in large ones, its own way and, when told so, the library's. */
static void fitting_products_leave_into_alone(struct memory *m) {
  if (!m->device->has_own_gemm) SKIP("no Hopper GPU");
  for (int64_t n = 512; n <= 2048; n *= 4)
    for (int library = 0; library < 2; library++) {
      const struct draw square = {n, 16, n, n / 16, .library = library, .fits = 1};
      check_step(m, &square, FUSED);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_EACH(PLANES, products_of_a_step),
      IN_EACH_ON("cuda", PLANES, reference_shape),
      IN_EACH_ON("cuda", PLANES, fitting_products_leave_into_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
