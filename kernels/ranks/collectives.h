/* Collectives: the ranks that train one model together, a process each, move matrices and sums between them.
 *
 * The ranks are a grid, shards × replicas: rank = replica · shards + shard. Each shard of a replica has
 * neighbouring outputs of every layer (tensor parallelism); each replica has a share of the rows of a batch
 * (data parallelism).
 *
 * A matrix [rows, cols] is divided by columns among the shards: shard r owns mn_share of them, its piece
 * [rows, share]. Every rank calls the same collectives in the same order. Sums are formed in the order of
 * ranks, except that NCCL sums over replicas in its own order; the same grid on the same GPUs gives the same
 * bytes. MPI moves the CPU's matrices, NCCL the GPUs', in the device's stream; GPUs that reach each other's
 * memory load from it and store to it (kernels/ranks/peer.h). */
#ifndef MN_KERNELS_RANKS_COLLECTIVES_H
#define MN_KERNELS_RANKS_COLLECTIVES_H

#include "kernels/types.h"

enum { MN_PEERS = 8 }; /* GPUs of a host, at most, that exchange by each other's memory */

/* For kernels/ranks/mpi.h: some of the ranks, 0 for all of them; the state of the thread that opened MPI. */
typedef uintptr_t mn_mpi_comm;
enum mn_waiting { MN_WAITS_FOR_NOTHING, MN_WAITS_FOR_RANKS, MN_WAITS_FOR_GPU };

/* Ranks that exchange something, and this one's number among them. */
struct mn_team {
  int rank, size;
  struct mn_peer *peer; /* CUDA: their memory, if their GPUs reach it (kernels/ranks/peer.h); else NULL */
  mn_mpi_comm mpi;      /* CPU; ranks_join's */
  struct mn_nccl_comm *nccl; /* CUDA; ranks_join's */
};

struct mn_ranks {
  int local;          /* this rank's number on its host, and its GPU's number */
  int neighbours;     /* ranks on the first rank's host; set by mn_ranks_share_cores (engine/ranks/ranks.h) */
  int cores;          /* CPU threads of this rank (mn_device_open), set there too; 0 if unknown */
  struct mn_team all; /* the ranks */
  struct mn_team shards;                /* the ranks of this rank's replica */
  struct mn_team replicas;              /* the ranks with the same shard, one of each replica */
  void *staging[2];                     /* MN_RANKS_STAGING bytes each in the device's memory */
  char id[128];                         /* CUDA: the ncclUniqueId that the first rank begins with */
  void (*attend)(enum mn_waiting what); /* mn_mpi_attend, for a wait on the GPU */
};
enum { MN_RANKS_STAGING = 32 << 20 };

/* The plane of an operand x whose columns are gathered from the shards of a replica. A product x·Wᵀ begins
 * with this shard's own columns and goes on with the next shard's; it waits for those that are still on
 * their way. */
struct mn_arrival {
  int shard, shards;
  int pending; /* whether others' columns may be on their way */
  unsigned
      *arrived; /* then: [shards] in memory that the shards share; not 0 once a shard's columns have come */
  const void *own; /* this shard's columns, [rows, cols / shards], which x·Wᵀ and dzᵀ·x read here instead of
                      in the plane; NULL if they are in the plane */
};

/* MN_REDUCE_SCATTER leaves this shard's `share` columns of the sum in piece, and applies `then` to them. */
struct mn_scatter {
  void *piece; /* [rows, share] */
  int64_t share;
  void *staging; /* [rows, cols] of allocate_shared: the other shards' terms, if they send them, as the GEMM
                    of our own can while it multiplies; NULL without such a GEMM */
  const struct mn_epilogue *then; /* not NULL */
};

/* Allocates memory that the collectives of the team (the shards or the replicas) may reach: all its ranks
 * call it in the same order. It only makes exchanges of such memory faster. Freed by release. NULL on the
 * CPU. */
typedef mn_status mn_allocate_shared_function(struct mn_device *device, const struct mn_team *team,
                                              void **out, size_t bytes);
#define mn_allocate_shared(device, ...) (device)->collectives->allocate_shared(device, __VA_ARGS__)

/* How many of `count` neighbours rank `rank` owns, and which is its first; they differ by one at most. */
static inline int64_t mn_share(int64_t count, int rank, int size, int64_t *first) {
  const int64_t each = count / size, more = count % size;
  *first = rank * each + (rank < more ? rank : more);
  return each + (rank < more);
}

/* For device->ranks, with staging memory. All ranks agree that begin succeeded, and take the first rank's
 * id, before one waits in join, which every rank calls. On the CPU, whose collectives are MPI's, begin and
 * leave are NULL. MN_LIBRARY, MN_NO_MEMORY. */
typedef mn_status mn_ranks_begin_function(struct mn_device *device);
#define mn_ranks_begin(device) (device)->collectives->ranks_begin(device)
typedef mn_status mn_ranks_join_function(struct mn_device *device);
#define mn_ranks_join(device) (device)->collectives->ranks_join(device)
typedef void mn_ranks_leave_function(struct mn_device *device);
#define mn_ranks_leave(device) (device)->collectives->ranks_leave(device)

/* `ranks` may be NULL, for a device that is alone. */
static inline int mn_ranks_shards(const struct mn_ranks *ranks) {
  return ranks ? ranks->shards.size : 1;
}
static inline int mn_ranks_replicas(const struct mn_ranks *ranks) {
  return ranks ? ranks->replicas.size : 1;
}

/* The rows of a batch of `rows` that this rank computes, and the first: its replica's share, or all, if
 * they cannot be divided evenly. */
static inline int64_t mn_own_rows(const struct mn_ranks *ranks, int64_t rows, int64_t *first) {
  const int replicas = mn_ranks_replicas(ranks);
  *first = rows % replicas == 0 && replicas > 1 ? rows / replicas * ranks->replicas.rank : 0;
  return rows % replicas == 0 ? rows / replicas : rows;
}

/* Among the shards of a replica:
 *
 * Gathers all pieces into whole[rows, cols]; elements of `each` bytes. */
typedef mn_status mn_allgather_function(struct mn_device *device, void *whole, const void *piece,
                                        int64_t rows, int64_t cols, size_t each);
#define mn_allgather(device, ...) (device)->collectives->allgather(device, __VA_ARGS__)

/* The same for whole's plane, which may still be on its way when GEMMs read it (struct mn_arrival). */
typedef mn_status mn_gather_plane_function(struct mn_device *device, struct mn_operand *whole,
                                           const void *piece);
#define mn_gather_plane(device, ...) (device)->collectives->gather_plane(device, __VA_ARGS__)

/* piece[rows, share] becomes this rank's columns of the sum of all shards' whole[rows, cols]; cols is a
 * multiple of the shards. */
typedef mn_status mn_reduce_scatter_function(struct mn_device *device, void *piece, const void *whole,
                                             int64_t rows, int64_t cols);
#define mn_reduce_scatter(device, ...) (device)->collectives->reduce_scatter(device, __VA_ARGS__)

/* Among the replicas:
 *
 * Each of these arrays, floats or doubles (`each` bytes), becomes its sum over all replicas, in one exchange
 * if that is possible; the number, lengths and order of the arrays are the same on every replica. An array
 * may be in memory of allocate_host if its count ≤ 2. The arrays are not written if *unless, on the device
 * and the same on every rank, is not 0; `unless` may be NULL. */
struct mn_sum {
  void *data;
  int64_t count;
};
typedef mn_status mn_allreduce_function(struct mn_device *device, const struct mn_sum *sums, int count,
                                        size_t each, const int *unless);
#define mn_allreduce(device, ...) (device)->collectives->allreduce(device, __VA_ARGS__)

/* Each replica has a share of data[count], replica 0 the first; count is a multiple of the replicas. This
 * rank's share of reals (rows of a matrix) becomes the sum of all replicas' numbers there, on
 * MN_BRANCH_REPLICAS after all earlier work; the other shares are undefined afterwards. From now on products
 * spare multiprocessors for it (struct mn_device, reserved_sms). */
typedef mn_status mn_reduce_scatter_rows_function(struct mn_device *device, void *data, int64_t count);
#define mn_reduce_scatter_rows(device, ...) (device)->collectives->reduce_scatter_rows(device, __VA_ARGS__)

/* Copies every share from its owner; elements of `each` bytes. It takes `pieces` calls, a divisor of a share,
 * in order: each may send its piece of the own share, and after the last all shares have arrived. With
 * several pieces all ranks must have agreed on the flag since they last read `data`; with one piece, others
 * may be reading it. */
typedef mn_status mn_allgather_rows_function(struct mn_device *device, void *data, int64_t count, size_t each,
                                             int piece, int pieces);
#define mn_allgather_rows(device, ...) (device)->collectives->allgather_rows(device, __VA_ARGS__)

/* Among all ranks:
 *
 * The nonfinite flag of every rank is raised if any rank's is. If `whole` is not NULL, it
 * becomes all shards' pieces, as by allgather, of reals: in one exchange, whose time is mostly latency. It is
 * called between the fork and the join of MN_BRANCH_SUMS and may run there: only products, that branch, and
 * what comes after the join are ordered after it. */
typedef mn_status mn_agree_function(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                                    int64_t cols);
#define mn_agree(device, ...) (device)->collectives->agree(device, __VA_ARGS__)

/* The `largest` of each of these scales becomes the largest of all ranks', so that all choose the same factor
 * by it, whatever the grid; the number and order of the scales are the same on every rank. */
typedef mn_status mn_agree_scales_function(struct mn_device *device, struct mn_scale *const *scales,
                                           int count);
#define mn_agree_scales(device, ...) (device)->collectives->agree_scales(device, __VA_ARGS__)

/* ---- the table ---- */

/* Every collective, once. EACH(name): a version for each device. CUDA(name): one version, and NULL in the
 * CPU's table. */
#define MN_COLLECTIVES(EACH, CUDA)                                                                           \
  CUDA(ranks_begin)                                                                                          \
  EACH(ranks_join)                                                                                           \
  CUDA(ranks_leave)                                                                                          \
  CUDA(allocate_shared)                                                                                      \
  EACH(allgather)                                                                                            \
  EACH(gather_plane)                                                                                         \
  EACH(reduce_scatter)                                                                                       \
  EACH(allreduce)                                                                                            \
  EACH(reduce_scatter_rows)                                                                                  \
  EACH(allgather_rows)                                                                                       \
  EACH(agree)                                                                                                \
  EACH(agree_scales)

#define MN_COLLECTIVE_POINTER(name) mn_##name##_function *name;
struct mn_collectives {
  MN_COLLECTIVES(MN_COLLECTIVE_POINTER, MN_COLLECTIVE_POINTER)
};

#endif
