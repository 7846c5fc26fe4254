/* The matrix product on the CPU, tile by tile, then the epilogue over the stored matrix; and the column sums,
 * whose sinks are epilogues. */
#include <omp.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/product.h"

static int64_t tiles_of(int64_t size, int64_t tile) {
  return (size + tile - 1) / tile;
}

/* The size of tiles, of which each thread takes a few, so that one that is disturbed takes fewer. A result's
 * bytes do not depend on it. */
static struct mn_tile tile_size(int64_t rows, int64_t cols) {
  enum { LEAST = 32, TILES = 3 };
  const int threads = omp_get_max_threads();
  struct mn_tile t = {.rows = rows, .cols = cols};
  while (threads > 1 && tiles_of(rows, t.rows) * tiles_of(cols, t.cols) < TILES * threads) {
    int64_t *longer = t.cols <= LEAST || (t.rows > 2 * t.cols && t.rows > LEAST) ? &t.rows : &t.cols;
    if (*longer <= LEAST) break;
    *longer = tiles_of(*longer, 2 * LEAST) * LEAST;
  }
  return t;
}

static mn_status product(struct mn_device *device, const struct mn_product *p) {
  enum { PARALLEL_FROM = 300000 }; /* multiply-adds; waking the other threads costs as much as some */
  MN_TRY(mn_team_take(device));
  const struct mn_tile size = tile_size(p->rows, p->cols);
  const int64_t down = tiles_of(p->rows, size.rows), tiles = down * tiles_of(p->cols, size.cols);
  const double work = (double)p->rows * (double)p->cols * (double)p->depth;
#pragma omp parallel for schedule(dynamic) if (tiles > 1 && work > PARALLEL_FROM)
  for (int64_t i = 0; i < tiles; i++) {
    struct mn_tile t = {i % down * size.rows, size.rows, i / down * size.cols, size.cols};
    if (t.row + t.rows > p->rows) t.rows = p->rows - t.row;
    if (t.col + t.cols > p->cols) t.cols = p->cols - t.col;
    MN_CPU(mn_product_tile)(p, t, (char *)device->room + omp_get_thread_num() * (int64_t)MN_PRODUCT_ROOM);
  }
  return MN_OK;
}

mn_status MN_CPU(mn_epilogue)(struct mn_device *device, void *d, int64_t rows, int64_t cols,
                              const struct mn_epilogue *epilogue) {
  int64_t count = rows * cols;
  switch (epilogue->kind) {
  case MN_STORE:
    if (epilogue->into != d) memcpy(epilogue->into, d, (size_t)count * sizeof(real));
    return MN_OK;
  case MN_ADD:
    if (*device->nonfinite) return MN_OK;
#pragma omp parallel for simd schedule(static) if (count > MN_PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) ((real *)epilogue->into)[i] += ((const real *)d)[i];
    return MN_OK;
  case MN_UPDATE:
    MN_REQUIRE(rows == epilogue->update->w->rows && cols == epilogue->update->w->cols);
    MN_CPU(mn_rule)(device, epilogue->update, d);
    return MN_OK;
  case MN_REDUCE_SCATTER:
    MN_TRY(device->kernels->reduce_scatter(device, epilogue->piece, d, rows, cols));
    return MN_CPU(mn_epilogue)(device, epilogue->piece, rows, epilogue->share, epilogue->then);
  case MN_REDUCE_SCATTER_ROWS:
    MN_REQUIRE(epilogue->into == d);
    return device->kernels->reduce_scatter_rows(device, d, count);
  default:
    MN_REQUIRE(mn_is_block(epilogue->kind));
    MN_REQUIRE(rows == epilogue->block->rows && cols == epilogue->block->channels);
    MN_CPU(mn_block)(device, d, epilogue);
    return MN_OK;
  }
}

mn_status MN_CPU(mn_column_sums)(struct mn_device *device, void *sums, int64_t chunks, int64_t channels,
                                 const struct mn_epilogue *const sinks[3], const struct mn_reduction *loss) {
  for (int i = 0; i < 3; i++) {
    if (!sinks[i]) continue;
    /* The sum overwrites the first chunk's. */
    real *total = (real *)sums + i * chunks * channels;
    for (int64_t k = 1; k < chunks; k++)
      for (int64_t c = 0; c < channels; c++) total[c] += total[k * channels + c];
    MN_TRY(MN_CPU(mn_epilogue)(device, total, 1, channels, sinks[i]));
  }
  return loss ? MN_CPU(mn_reduce)(device, loss) : MN_OK;
}

mn_status MN_CPU(mn_gemm)(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                          const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  int64_t rows = form == MN_TN ? a->cols : a->rows, depth = form == MN_TN ? a->rows : a->cols;
  int64_t cols = form == MN_NT ? b->rows : b->cols;
  MN_REQUIRE(depth == (form == MN_NT ? b->cols : b->rows));
  MN_REQUIRE(rows > 0 && cols > 0 && depth > 0);
  int planes = device->planes > 0;
  MN_REQUIRE(!planes || (a->planes[0] && b->planes[0] && !a->stale && !b->stale));
  const real *pa = planes ? a->planes[0] : a->real, *pb = planes ? b->planes[0] : b->real;
  const real alpha = planes && device->scaled ? 1 / ((real)a->scale->factor * (real)b->scale->factor) : 1;

  struct mn_product p = {form, pa, pb, epilogue->into, alpha, 0, rows, cols, depth};
  if ((epilogue->kind == MN_ADD || epilogue->kind == MN_UPDATE) && *device->nonfinite) return MN_OK;
  if (epilogue->kind == MN_ADD) {
    p.beta = 1;
    return product(device, &p);
  }
  if (epilogue->kind == MN_UPDATE && mn_rule_by_gemm(epilogue->update->rule)) {
    const struct mn_update *update = epilogue->update;
    MN_REQUIRE(rows == update->w->rows && cols == update->w->cols);
    p.d = update->m;
    p.beta = (real)update->rule->momentum;
    MN_TRY(product(device, &p));
    MN_CPU(mn_rule)(device, update, NULL);
    return MN_OK;
  }
  MN_TRY(product(device, &p));
  return MN_CPU(mn_epilogue)(device, epilogue->into, rows, cols, epilogue);
}
