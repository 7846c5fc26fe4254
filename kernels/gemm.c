/* The matrix product on the CPU, tile by tile: a thread computes a tile and applies the epilogue while it has
 * the tile in its cache. And the column sums, whose sinks are epilogues. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/planes.h"
#include "kernels/tile.h"

static int64_t parts(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}

/* The size of tiles, of which each thread takes a few, so that one that is disturbed takes fewer. Columns
 * come in multiples of `unit`, and rows in chunks. */
static struct mn_tile tile_size(int64_t rows, int64_t cols, int64_t unit, int threads) {
  enum { TILES = 3 };
  const int64_t high = MN_CHUNK_ROWS, wide = parts(32, unit) * unit;
  struct mn_tile t = {.rows = rows, .cols = cols};
  if (threads == 1) return t;
  while (parts(rows, t.rows) * parts(cols, t.cols) < TILES * threads && (t.rows > high || t.cols > wide))
    if (t.cols <= wide || (t.rows > 2 * t.cols && t.rows > high))
      t.rows = parts(t.rows, 2 * high) * high;
    else
      t.cols = parts(t.cols, 2 * wide) * wide;
  return t;
}

/* Columns of a result that belong together. */
static int64_t unit_of(const struct mn_product *p, const struct mn_epilogue *e) {
  int64_t unit = 1;
  if (mn_is_block(e->kind))
    unit = e->block->ops & MN_OP_NORM ? p->cols / e->block->groups : e->kind == MN_BLOCK_LOSS ? p->cols : 1;
  for (int64_t own = unit; p->packed && unit % 32 != 0;) unit += own;
  return unit;
}

/* A product and its epilogue, cut into tiles: `down` by columns, numbered from the top of each. */
struct work {
  struct mn_device *device;
  const struct mn_product *p;
  const struct mn_epilogue *e;
  struct mn_tile size;
  int64_t down, tiles;
};

/* Computes p, unless p->d is there already, in tile i; e, if it is of tiles, is applied to it. */
static struct mn_noticed compute_tile(const struct work *w, int64_t i, int thread) {
  const struct mn_product *p = w->p;
  const struct mn_epilogue *e = w->e;
  struct mn_tile t = {i % w->down * w->size.rows, w->size.rows, i / w->down * w->size.cols, w->size.cols};
  if (t.row + t.rows > p->rows) t.rows = p->rows - t.row;
  if (t.col + t.cols > p->cols) t.cols = p->cols - t.col;
  if (p->a) mn_product_tile_cpu(p, t, (char *)w->device->room + thread * (int64_t)MN_PRODUCT_ROOM);
  if (e->kind == MN_UPDATE) mn_rule_tile_cpu(w->device, e->update, p->d == e->update->m ? NULL : p->d, t);
  if (!mn_is_block(e->kind)) return (struct mn_noticed){0};
  return mn_block_tile_cpu(w->device, e, p->d, t);
}

static void notice(struct mn_noticed *all, struct mn_noticed found) {
  all->poison += found.poison;
  all->largest = fmaxf(all->largest, found.largest);
}
#pragma omp declare reduction(notice                                                                         \
                              : struct mn_noticed                                                            \
                              : notice(&omp_out, omp_in)) initializer(omp_priv = {0})

static mn_status compute(struct mn_device *device, const struct mn_product *p, const struct mn_epilogue *e) {
  /* In multiply-adds: the work from which more threads pay, and the epilogue of an element. */
  enum { PARALLEL_WORK = 300000, EPILOGUE = 16 };
  MN_TRY(mn_team_take(device));
  const int threads = mn_threads(device);
  struct work w = {device, p, e, tile_size(p->rows, p->cols, unit_of(p, e), threads), 0, 0};
  w.down = parts(p->rows, w.size.rows), w.tiles = w.down * parts(p->cols, w.size.cols);
  const double work = (double)p->rows * (double)p->cols * (double)(p->a ? p->depth : EPILOGUE);
  struct mn_noticed all = {0};
  if (w.tiles == 1 || work <= PARALLEL_WORK) { /* without a call of OpenMP's, which takes 0.1 us */
    for (int64_t i = 0; i < w.tiles; i++) notice(&all, compute_tile(&w, i, 0));
  } else {
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(notice : all)
    for (int64_t i = 0; i < w.tiles; i++) notice(&all, compute_tile(&w, i, omp_get_thread_num()));
  }
  if (mn_is_block(e->kind)) mn_block_end_cpu(device, e, all);
  return MN_OK;
}

mn_status mn_epilogue_cpu(struct mn_device *device, void *d, int64_t rows, int64_t cols,
                          const struct mn_epilogue *epilogue) {
  const struct mn_product stored = {.d = d, .rows = rows, .cols = cols};
  const struct mn_scatter *s = epilogue->scatter;
  int64_t count = rows * cols;
  mn_epilogue_check(epilogue, rows, cols, 1);
  switch (epilogue->kind) {
  case MN_STORE:
    if (epilogue->into != d) memcpy(epilogue->into, d, (size_t)count * sizeof(real));
    return MN_OK;
  case MN_ADD:
    if (*device->nonfinite) return MN_OK;
#pragma omp parallel for simd schedule(static) num_threads(mn_threads(device)) if (count > MN_PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) ((real *)epilogue->into)[i] += ((const real *)d)[i];
    return MN_OK;
  case MN_UPDATE:
    if (*device->nonfinite) return MN_OK;
    MN_TRY(compute(device, &stored, epilogue));
    if (epilogue->update->clears) memset(d, 0, (size_t)count * sizeof(real));
    return MN_OK;
  case MN_REDUCE_SCATTER:
    MN_TRY(mn_reduce_scatter(device, s->piece, d, rows, cols));
    return mn_epilogue_cpu(device, s->piece, rows, s->share, s->then);
  case MN_REDUCE_SCATTER_ROWS:
    MN_REQUIRE(epilogue->into == d);
    return mn_reduce_scatter_rows(device, d, count);
  default:
    return compute(device, &stored, epilogue);
  }
}

mn_status mn_column_sums_cpu(struct mn_device *device, void *sums, int64_t chunks, int64_t channels,
                             const struct mn_epilogue *const sinks[3], const struct mn_reduction *loss) {
  for (int i = 0; i < 3; i++) {
    if (!sinks[i]) continue;
    /* The sum overwrites the first chunk's. */
    real *total = (real *)sums + i * chunks * channels;
    for (int64_t k = 1; k < chunks; k++)
      for (int64_t c = 0; c < channels; c++) total[c] += total[k * channels + c];
    MN_TRY(mn_epilogue_cpu(device, total, 1, channels, sinks[i]));
  }
  return loss ? mn_reduce_cpu(device, loss) : MN_OK;
}

void mn_pack_cpu(const struct mn_device *device, struct mn_operand *w) {
  mn_product_pack_cpu(w->packed, device->planes ? w->planes[0] : w->real, w->rows, w->cols);
}

mn_status mn_gemm_cpu(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                      const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  int64_t rows = form == MN_TN ? a->cols : a->rows, depth = form == MN_TN ? a->rows : a->cols;
  int64_t cols = form == MN_NT ? b->rows : b->cols;
  MN_REQUIRE(rows > 0 && cols > 0 && depth > 0 && depth == (form == MN_NT ? b->cols : b->rows));
  int planes = device->planes > 0;
  MN_REQUIRE(!planes || (a->planes[0] && b->planes[0] && !a->stale && !b->stale));
  const real *pa = planes ? a->planes[0] : a->real, *pb = planes ? b->planes[0] : b->real;
  const real alpha = planes && device->scaled ? 1 / ((real)a->scale->factor * (real)b->scale->factor) : 1;
  struct mn_product p = {form, pa,   pb,   form == MN_NT ? b->packed : NULL, epilogue->into, alpha, 0,
                         rows, cols, depth};
  if ((epilogue->kind == MN_ADD || epilogue->kind == MN_UPDATE) && *device->nonfinite) return MN_OK;
  if (epilogue->kind == MN_ADD) p.beta = 1;
  if (epilogue->kind == MN_UPDATE && mn_rule_by_gemm(epilogue->update->rule)) {
    p.d = epilogue->update->m;
    p.beta = (real)epilogue->update->rule->momentum;
  }
  mn_epilogue_check(epilogue, rows, cols, p.beta == 0);
  MN_TRY(compute(device, &p, epilogue));
  if (epilogue->kind != MN_REDUCE_SCATTER && epilogue->kind != MN_REDUCE_SCATTER_ROWS) return MN_OK;
  return mn_epilogue_cpu(device, epilogue->into, rows, cols, epilogue);
}
