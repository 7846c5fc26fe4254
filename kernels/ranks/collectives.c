/* Collectives on the CPU, by MPI. Contract: kernels/ranks/collectives.h. */
#include "kernels/ranks/mpi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/ranks/plan.h"
#include "kernels/real.h"

static mn_status mn_ranks_join_cpu(struct mn_device *device) {
  struct mn_ranks *ranks = device->ranks;
  MN_TRY(mn_mpi_split(&ranks->shards.mpi, ranks->replicas.rank, ranks->shards.rank));
  return mn_mpi_split(&ranks->replicas.mpi, ranks->shards.rank, ranks->replicas.rank);
}

/* Copies [rows, cols] bytes between matrices whose rows are to_row and from_row bytes apart. */
static void copy_rows(const struct mn_device *device, char *to, size_t to_row, const char *from,
                      size_t from_row, int64_t rows, size_t cols) {
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(mn_threads(device)) if (rows * (int64_t)cols > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < rows; i++) memcpy(to + (size_t)i * to_row, from + (size_t)i * from_row, cols);
}

/* Copies the columns of `whole`, [rows, cols], to the pieces of all ranks, which stand one after the other
 * with rows as wide as the widest share; or copies them back. */
static void divide(const struct mn_device *device, const struct mn_ranks_plan *p, char *whole, char *pieces,
                   int64_t rows, int64_t cols, size_t unit, int to_whole) {
  const int size = device->ranks->shards.size;
  const size_t row = (size_t)cols * unit, width = (size_t)p->widest * unit;
  for (int q = 0; q < size; q++) {
    int64_t first;
    const size_t share = (size_t)mn_share(cols, q, size, &first) * unit;
    char *piece = pieces + (size_t)q * (size_t)rows * width, *columns = whole + (size_t)first * unit;
    if (to_whole)
      copy_rows(device, columns, row, piece, width, rows, share);
    else
      copy_rows(device, piece, width, columns, row, rows, share);
  }
}

static mn_status mn_allgather_cpu(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                                  int64_t cols, size_t unit) {
  struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  MN_TRY(mn_ranks_plan(&p, device, cols, unit));
  const size_t row = (size_t)p.share * unit, width = (size_t)p.widest * unit;
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = rows - at < p.rows ? rows - at : p.rows;
    copy_rows(device, r->staging[0], width, (const char *)piece + (size_t)at * row, row, count, row);
    MN_TRY(mn_mpi_allgather(r->shards.mpi, r->staging[1], r->staging[0], (size_t)count * width));
    divide(device, &p, (char *)whole + (size_t)(at * cols) * unit, r->staging[1], count, cols, unit, 1);
  }
  return MN_OK;
}

static mn_status mn_gather_plane_cpu(struct mn_device *device, struct mn_operand *whole, const void *piece) {
  return mn_allgather_cpu(device, whole->planes[0], piece, whole->rows, whole->cols, device->plane);
}

/* piece[rows, share] = the pieces [size, rows, widest] added up in order. */
static void add_up(const struct mn_device *device, void *piece, const void *pieces, int64_t rows,
                   int64_t share, int64_t widest, int size, size_t each) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(mn_threads(device))
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < share; j++) {
      const int64_t from = i * widest + j, to = i * share + j, apart = rows * widest;
      if (each == sizeof(double)) {
        double sum = ((const double *)pieces)[from];
        for (int q = 1; q < size; q++) sum += ((const double *)pieces)[from + q * apart];
        ((double *)piece)[to] = sum;
      } else {
        float sum = ((const float *)pieces)[from];
        for (int q = 1; q < size; q++) sum += ((const float *)pieces)[from + q * apart];
        ((float *)piece)[to] = sum;
      }
    }
}

static mn_status mn_reduce_scatter_cpu(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                                       int64_t cols) {
  struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  const size_t unit = device->real;
  MN_TRY(mn_ranks_plan(&p, device, cols, unit));
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = rows - at < p.rows ? rows - at : p.rows;
    divide(device, &p, (char *)whole + (size_t)(at * cols) * unit, r->staging[0], count, cols, unit, 0);
    MN_TRY(mn_mpi_alltoall(r->shards.mpi, r->staging[1], r->staging[0], (size_t)(count * p.widest) * unit));
    add_up(device, (char *)piece + (size_t)(at * p.share) * unit, r->staging[1], count, p.share, p.widest,
           r->shards.size, unit);
  }
  return MN_OK;
}

/* A staging buffer at a time: each replica gets its share of the numbers from all, adds them up, and gives
 * the sums to all. The last share may be longer than the numbers left; the excess is dropped. */
static mn_status mn_allreduce_cpu(struct mn_device *device, const struct mn_sum *sums, int count, size_t each,
                                  const int *unless) {
  struct mn_ranks *r = device->ranks;
  const struct mn_team *t = &r->replicas;
  const int64_t most = MN_RANKS_STAGING / (int64_t)each / t->size * t->size;
  for (const struct mn_sum *s = sums; s < sums + count; s++)
    for (int64_t at = 0; at < s->count; at += most) {
      const int64_t length = s->count - at < most ? s->count - at : most;
      const int64_t share = (length + t->size - 1) / t->size;
      const size_t bytes = (size_t)share * each;
      char *here = (char *)s->data + (size_t)at * each;
      memcpy(r->staging[0], here, (size_t)length * each);
      MN_TRY(mn_mpi_alltoall(t->mpi, r->staging[1], r->staging[0], bytes));
      add_up(device, r->staging[0], r->staging[1], 1, share, share, t->size, each);
      MN_TRY(mn_mpi_allgather(t->mpi, r->staging[1], r->staging[0], bytes));
      if (!unless || !*unless) memcpy(here, r->staging[1], (size_t)length * each);
    }
  return MN_OK;
}

/* A staging buffer at a time, as mn_allreduce_cpu. */
static mn_status mn_reduce_scatter_rows_cpu(struct mn_device *device, void *data, int64_t count) {
  struct mn_ranks *r = device->ranks;
  const struct mn_team *t = &r->replicas;
  const size_t each = device->real;
  const int64_t share = count / t->size, most = MN_RANKS_STAGING / (int64_t)each / t->size;
  for (int64_t at = 0; at < share; at += most) {
    const int64_t length = share - at < most ? share - at : most;
    const size_t bytes = (size_t)length * each;
    char *from = (char *)data + (size_t)at * each;
    copy_rows(device, r->staging[0], bytes, from, (size_t)share * each, t->size, bytes);
    MN_TRY(mn_mpi_alltoall(t->mpi, r->staging[1], r->staging[0], bytes));
    add_up(device, from + (size_t)(t->rank * share) * each, r->staging[1], 1, length, length, t->size, each);
  }
  return MN_OK;
}

static mn_status mn_allgather_rows_cpu(struct mn_device *device, void *data, int64_t count, size_t each,
                                       int piece, int pieces) {
  if (piece + 1 < pieces) return MN_OK;
  struct mn_ranks *r = device->ranks;
  const struct mn_team *t = &r->replicas;
  const int64_t share = count / t->size, most = MN_RANKS_STAGING / (int64_t)each / t->size;
  for (int64_t at = 0; at < share; at += most) {
    const size_t bytes = (size_t)(share - at < most ? share - at : most) * each;
    char *first = (char *)data + (size_t)at * each;
    MN_TRY(mn_mpi_allgather(t->mpi, r->staging[1], first + (size_t)(t->rank * share) * each, bytes));
    copy_rows(device, first, (size_t)share * each, r->staging[1], bytes, t->size, bytes);
  }
  return MN_OK;
}

static mn_status mn_agree_cpu(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                              int64_t cols) {
  struct mn_ranks *r = device->ranks;
  if (whole) MN_TRY(mn_allgather_cpu(device, whole, piece, rows, cols, device->real));
  int *flags = r->staging[0];
  MN_TRY(mn_mpi_allgather(0, flags, device->nonfinite, sizeof *flags));
  for (int q = 0; q < r->all.size; q++)
    if (flags[q]) *device->nonfinite = flags[q];
  return MN_OK;
}

static mn_status mn_agree_scales_cpu(struct mn_device *device, struct mn_scale *const *scales, int count) {
  struct mn_ranks *r = device->ranks;
  float *mine = r->staging[0], *all = r->staging[1];
  MN_REQUIRE((int64_t)count * r->all.size <= MN_RANKS_STAGING / (int64_t)sizeof *all);
  for (int i = 0; i < count; i++) mine[i] = scales[i]->largest;
  MN_TRY(mn_mpi_allgather(0, all, mine, (size_t)count * sizeof *mine));
  for (int i = 0; i < count; i++)
    for (int q = 0; q < r->all.size; q++) scales[i]->largest = fmaxf(scales[i]->largest, all[q * count + i]);
  return MN_OK;
}

#define CPU(name) .name = mn_##name##_cpu,
#define NONE(name) .name = NULL,
const struct mn_collectives mn_collectives_cpu = {MN_COLLECTIVES(CPU, NONE)};
