/* The norms of a block's gradients, for clipping: the weight's without its gradient. */
#include "layers/norms.h"

mn_status mn_block_grams(struct mn_device *device, const struct mn_operand *dz, const struct mn_operand *x,
                         void *sums, const int wanted[3], void *grams) {
  const struct mn_operand *const of[] = {dz, x};
  char *into = grams;
  for (int i = 0; i < 2 && x; i++, into += (size_t)(dz->rows * dz->rows) * device->real) {
    const struct mn_epilogue store = {.kind = MN_STORE, .into = into};
    MN_TRY(mn_gemm(device, MN_NT, of[i], of[i], &store));
  }
  struct mn_epilogue stores[3];
  const struct mn_epilogue *sinks[3] = {NULL};
  for (int i = 0; i < 3; i++) {
    if (!wanted[i]) continue;
    stores[i] = (struct mn_epilogue){.kind = MN_STORE, .into = into};
    sinks[i] = &stores[i];
    into += (size_t)dz->cols * device->real;
  }
  if (!wanted[0] && !wanted[1] && !wanted[2]) return MN_OK;
  return mn_column_sums(device, sums, mn_chunks(dz->rows), dz->cols, sinks, NULL);
}

static mn_status append_square(struct mn_device *device, const struct mn_clipping *c, int64_t *count,
                               const void *a, const void *b, int64_t length) {
  const struct mn_reduction square = {&c->squares[(*count)++], c->scratch, a, b, length, 1};
  return mn_reduce(device, &square);
}

mn_status mn_block_squares(struct mn_device *device, const struct mn_operand *dz, const struct mn_operand *x,
                           void *sums, const int wanted[3], const struct mn_clipping *c, int64_t *count) {
  const int64_t product = dz->rows * dz->rows, vectors = (wanted[0] + wanted[1] + wanted[2]) * dz->cols;
  char *grams = c->grams, *behind = grams + (size_t)product * device->real;
  MN_TRY(mn_block_grams(device, dz, x, sums, wanted, grams));
  if (x) MN_TRY(append_square(device, c, count, grams, behind, product));
  if (x) grams = behind + (size_t)product * device->real;
  return vectors ? append_square(device, c, count, grams, grams, vectors) : MN_OK;
}
