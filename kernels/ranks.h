/* Collectives: the ranks that train one model together, a process each, move matrices and sums between them.
 *
 * A matrix [rows, cols] is divided by columns: rank r owns mn_share of them, its piece [rows, share]. Every
 * rank calls the same collectives in the same order. Sums are formed in the order of ranks, so that the same
 * number of ranks gives the same bytes. MPI moves the CPU's, NCCL the GPUs', in the device's stream. */
#ifndef MN_KERNELS_RANKS_H
#define MN_KERNELS_RANKS_H

#include "kernels/mpi.h"
#include "kernels/types.h"

struct mn_ranks {
  int rank, size;
  int local;          /* the number on this host, which is that of the GPU */
  struct mn_mpi *mpi; /* between the processes; borrowed */
  /* ranks_join's */
  void *room[2];             /* MN_RANKS_ROOM bytes each in the device's memory: rows on their way */
  struct mn_nccl_comm *comm; /* CUDA */
};
enum { MN_RANKS_ROOM = 32 << 20 };

/* How many of `count` neighbours rank `rank` owns, and which is its first; they differ by one at most. */
static inline int64_t mn_share(int64_t count, int rank, int size, int64_t *first) {
  const int64_t each = count / size, more = count % size;
  *first = rank * each + (rank < more ? rank : more);
  return each + (rank < more);
}

/* What every rank joins by: the first makes it, and tells the others. MN_LIBRARY. */
struct mn_ranks_id {
  char bytes[128]; /* CUDA: ncclUniqueId */
};
typedef mn_status mn_ranks_begin_function(struct mn_device *device, struct mn_ranks_id *id);

/* The device's collectives go to `ranks` (borrowed) from now on, and no more; every rank joins. MN_LIBRARY,
 * MN_NO_MEMORY. */
typedef mn_status mn_ranks_join_function(struct mn_device *device, struct mn_ranks *ranks,
                                         const struct mn_ranks_id *id);
typedef void mn_ranks_leave_function(struct mn_device *device);

/* whole[rows, cols] becomes that of all ranks' pieces. reals; a row is at most MN_RANKS_ROOM bytes. */
typedef mn_status mn_all_gather_function(struct mn_device *device, void *whole, const void *piece,
                                         int64_t rows, int64_t cols);

/* piece[rows, share] becomes this rank's columns of the sum of all ranks' whole[rows, cols]. */
typedef mn_status mn_reduce_scatter_function(struct mn_device *device, void *piece, const void *whole,
                                             int64_t rows, int64_t cols);

/* piece[rows, share] becomes this rank's columns of its own whole[rows, cols]. */
typedef mn_status mn_own_columns_function(struct mn_device *device, void *piece, const void *whole,
                                          int64_t rows, int64_t cols);

/* The nonfinite flag becomes every rank's where any rank's is raised. */
typedef mn_status mn_agree_function(struct mn_device *device);

/* How a collective goes over the rows: so many at a time that the pieces of all ranks, each as wide as the
 * widest, fill one room. MN_NO_MEMORY: a row is wider. */
struct mn_ranks_plan {
  int64_t share, first; /* this rank's columns */
  int64_t widest;       /* a rank's share at most */
  int64_t rows;         /* at a time */
};
MN_C mn_status mn_ranks_plan(struct mn_ranks_plan *out, const struct mn_device *device, int64_t cols);

#endif
