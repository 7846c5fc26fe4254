/* Collectives on the CPU, by MPI. Contract: kernels/ranks.h. */
#include "kernels/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/real.h"

mn_status mn_ranks_plan(struct mn_ranks_plan *out, const struct mn_device *device, int64_t cols) {
  const struct mn_ranks *r = device->ranks;
  out->share = mn_share(cols, r->rank, r->size, &out->first);
  out->widest = (cols + r->size - 1) / r->size;
  out->rows = MN_RANKS_ROOM / ((int64_t)device->real * out->widest * r->size);
  if (out->rows > 0) return MN_OK;
  return mn_fail(MN_NO_MEMORY,
                 "a row of %ld numbers is wider than the room for exchanges between ranks, %d MiB",
                 (long)cols, MN_RANKS_ROOM >> 20);
}

mn_status mn_ranks_begin_cpu(struct mn_device *device, struct mn_ranks_id *id) {
  (void)device, (void)id; /* MPI has begun */
  return MN_OK;
}

mn_status mn_ranks_join_cpu(struct mn_device *device, struct mn_ranks *ranks, const struct mn_ranks_id *id) {
  (void)id;
  for (int i = 0; i < 2; i++) MN_TRY(device->kernels->allocate(device, &ranks->room[i], MN_RANKS_ROOM));
  device->ranks = ranks;
  return MN_OK;
}

void mn_ranks_leave_cpu(struct mn_device *device) {
  for (int i = 0; i < 2; i++) {
    device->kernels->release(device, device->ranks->room[i]);
    device->ranks->room[i] = NULL;
  }
  device->ranks = NULL;
}

/* Copies [rows, cols] bytes between matrices whose rows are so many bytes apart. */
static void copy_rows(char *to, size_t to_row, const char *from, size_t from_row, int64_t rows, size_t cols) {
#pragma omp parallel for schedule(static) if (rows * (int64_t)cols > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < rows; i++) memcpy(to + (size_t)i * to_row, from + (size_t)i * from_row, cols);
}

/* Copies columns between `whole`, rows of `cols`, and the pieces of all ranks one after the other. */
static void divide(const struct mn_device *device, const struct mn_ranks_plan *p, char *whole, char *pieces,
                   int64_t rows, int64_t cols, int to_whole) {
  const int size = device->ranks->size;
  const size_t unit = device->real, row = (size_t)cols * unit, width = (size_t)p->widest * unit;
  for (int q = 0; q < size; q++) {
    int64_t first;
    const size_t share = (size_t)mn_share(cols, q, size, &first) * unit;
    char *piece = pieces + (size_t)q * (size_t)rows * width, *columns = whole + (size_t)first * unit;
    if (to_whole)
      copy_rows(columns, row, piece, width, rows, share);
    else
      copy_rows(piece, width, columns, row, rows, share);
  }
}

mn_status mn_all_gather_cpu(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                            int64_t cols) {
  struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  MN_TRY(mn_ranks_plan(&p, device, cols));
  const size_t unit = device->real, row = (size_t)p.share * unit, width = (size_t)p.widest * unit;
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = rows - at < p.rows ? rows - at : p.rows;
    copy_rows(r->room[0], width, (const char *)piece + (size_t)at * row, row, count, row);
    MN_TRY(mn_mpi_all_gather(r->mpi, r->room[1], r->room[0], (size_t)count * width));
    divide(device, &p, (char *)whole + (size_t)(at * cols) * unit, r->room[1], count, cols, 1);
  }
  return MN_OK;
}

/* piece[rows, share] = the pieces [size, rows, widest] added up in order. */
#define DEFINE_ADD_UP(type)                                                                                  \
  static void add_up_##type(type *piece, const type *pieces, const struct mn_ranks_plan *p, int64_t rows,    \
                            int size) {                                                                      \
    _Pragma("omp parallel for schedule(static)") for (int64_t i = 0; i < rows; i++) {                        \
      for (int64_t j = 0; j < p->share; j++) {                                                               \
        type sum = pieces[i * p->widest + j];                                                                \
        for (int q = 1; q < size; q++) sum += pieces[(q * rows + i) * p->widest + j];                        \
        piece[i * p->share + j] = sum;                                                                       \
      }                                                                                                      \
    }                                                                                                        \
  }
DEFINE_ADD_UP(float)
DEFINE_ADD_UP(double)

mn_status mn_reduce_scatter_cpu(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                                int64_t cols) {
  struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  MN_TRY(mn_ranks_plan(&p, device, cols));
  const size_t unit = device->real;
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = rows - at < p.rows ? rows - at : p.rows;
    divide(device, &p, (char *)whole + (size_t)(at * cols) * unit, r->room[0], count, cols, 0);
    MN_TRY(mn_mpi_exchange(r->mpi, r->room[1], r->room[0], (size_t)(count * p.widest) * unit));
    char *to = (char *)piece + (size_t)(at * p.share) * unit;
    if (unit == sizeof(double))
      add_up_double((double *)to, r->room[1], &p, count, r->size);
    else
      add_up_float((float *)to, r->room[1], &p, count, r->size);
  }
  return MN_OK;
}

mn_status mn_own_columns_cpu(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                             int64_t cols) {
  int64_t first;
  const size_t share =
      (size_t)mn_share(cols, device->ranks->rank, device->ranks->size, &first) * device->real;
  copy_rows(piece, share, (const char *)whole + (size_t)first * device->real, (size_t)cols * device->real,
            rows, share);
  return MN_OK;
}

mn_status mn_agree_cpu(struct mn_device *device) {
  struct mn_ranks *r = device->ranks;
  int *flags = r->room[0];
  MN_TRY(mn_mpi_all_gather(r->mpi, flags, device->nonfinite, sizeof *flags));
  for (int q = 0; q < r->size; q++)
    if (flags[q]) *device->nonfinite = flags[q];
  return MN_OK;
}
