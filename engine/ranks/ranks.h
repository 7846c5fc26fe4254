/* The processes that train one model together, as a launcher (mpirun, srun) started them: a rank each. All
 * they exchange besides training's data goes by MPI, from the thread that opened them. */
#ifndef MN_ENGINE_RANKS_RANKS_H
#define MN_ENGINE_RANKS_RANKS_H

#include <sched.h>

#include "engine/hooks.h"
#include "engine/tape.h"
#include "kernels/ranks/mpi.h"

/* How many processes a launcher started with this one, by its variables; 1 without a launcher. */
int mn_ranks_started(void);

/* Meets the other ranks, by MPI. `*out` is NULL if the process was started alone; else the caller's, for
 * mn_ranks_close, which meets them too. Once in a process. MN_LIBRARY: no MPI, or one of another launcher. */
mn_status mn_ranks_open(struct mn_ranks **out);
void mn_ranks_close(struct mn_ranks *ranks); /* NULL is fine; after the devices that joined */

/* Makes the ranks a grid (kernels/ranks/collectives.h): `shards` of every layer in each replica of the model.
 * Before a device joins; until then all ranks are shards of one replica. MN_USAGE: the number of ranks is not
 * a multiple of the shards. NULL is fine. */
mn_status mn_ranks_set_grid(struct mn_ranks *ranks, int shards);

/* The calls below are made by every rank; with ranks NULL they return at once. MN_LIBRARY.
 *
 * agree: MN_OK if every rank's status is; else the status of the lowest rank that failed and has a
 * message. The message stays on that rank and is emptied on the others, so that one rank prints it.
 * broadcast: data[bytes] becomes rank 0's. allreduce_max: *value becomes the largest of all ranks'.
 * allgather: all[size][bytes] becomes every rank's `mine`.
 * gather: on rank 0 whole[] becomes the pieces of the first replica's shards, one after the other; each
 * piece has mn_share of `outputs` elements of `each` bytes. `whole` is written on rank 0 alone. */
mn_status mn_ranks_agree(struct mn_ranks *ranks, mn_status status);
mn_status mn_ranks_broadcast(struct mn_ranks *ranks, void *data, size_t bytes);
mn_status mn_ranks_allreduce_max(struct mn_ranks *ranks, int *value);
mn_status mn_ranks_allgather(struct mn_ranks *ranks, void *all, const void *mine, size_t bytes);
mn_status mn_ranks_gather(struct mn_ranks *ranks, void *whole, const void *piece, int64_t outputs,
                          size_t each);

/* Whether this rank prints and writes: the first, or one that is alone. */
static inline int mn_ranks_first(const struct mn_ranks *ranks) {
  return !ranks || ranks->all.rank == 0;
}

extern const struct mn_collectives mn_collectives_cpu; /* a GPU has its own from the start (device.cu) */

/* Layers opened on the device from now on are divided among the ranks, unless `ranks` is NULL. Every rank
 * calls it. MN_LIBRARY, MN_NO_MEMORY. */
mn_status mn_device_join(struct mn_device *device, struct mn_ranks *ranks);

/* ---- hosts ----
 *
 * The hosts that ranks run on: naming them, and dividing a host's cores among the ranks that share them. */

/* Threads of rank `rank`. Rank q of all `size` may run on the cores sets[q], which is empty if it is on
 * another host. The threads are the number of the rank's cores, divided by the number of ranks with exactly
 * the same set; sets that overlap are not accounted for. At least 1; or 0 if the rank's set is empty because
 * the cores are unknown. */
int mn_cores_threads(const cpu_set_t *sets, int size, int rank);

/* Sets ranks->cores, a device's threads, which is 0 if OMP_NUM_THREADS is set. Every rank calls it; with NULL
 * it returns at once. MN_LIBRARY. */
mn_status mn_ranks_share_cores(struct mn_ranks *ranks);

/* "host NAME, CPU (2 threads)" in text[size]: the host and the device, and NCCL_SOCKET_IFNAME
 * if it is set. */
void mn_host_describe(char *text, size_t size, const struct mn_device *device);

/* ---- replicas ----
 *
 * What replicas do with stored gradients before and in an optimizer's updates: each updates a share of the
 * rows of a weight, of whose gradient it has the sum over replicas, and gives it to the others in the form
 * that GEMMs read. Every rank calls each; `of` are all parameters of a model. The first three are hooks. */

/* Unless the nonfinite flag is set, all-reduces accumulated gradients, which tapes do not sum. */
mn_status mn_replicas_sum(struct mn_device *device, struct mn_tensor *const *of, int count);

/* The squares of the norms of all gradients: *squares[*number], in the clipping's memory, which has room for
 * the shards'. */
mn_status mn_replicas_square(struct mn_device *device, struct mn_tensor *const *of, int count,
                             const struct mn_clipping *clipping, double **squares, int64_t *number);

/* The updates. */
mn_status mn_replicas_update(struct mn_device *device, struct mn_tensor *const *of, int count);

/* Gathers the forms that GEMMs do not read, the real form or the lower halves, and the rule's state, for a
 * save; without ranks it does nothing. */
mn_status mn_replicas_gather(struct mn_device *device, struct mn_tensor *const *of, int count);

/* ---- tapes ----
 *
 * The work of a tape among ranks, beside its operations: hooks (engine/hooks.h). */

struct mn_tape_ranks {
  /* Among shards: the loss's parts; whole is NULL if there are none. */
  struct {
    void *whole;
    const void *piece;
    int64_t rows, cols;
  } gathered;
  /* The scales of the backward's planes: all ranks agree on them at its end, and the next step chooses its
   * factors by them. */
  struct mn_scale **scales;
  int scale_count;
  int reserved_sms; /* the device's before the backward, which spares more for its exchanges */
  /* The replicas' gradients of vectors, and of weights without shares, are added up in one exchange. */
  struct mn_sum *sums;
  int sum_count;
};

/* Between a layer whose outputs are divided among the shards and what reads all of them: *y, [N, this rank's
 * share of cols], becomes [N, cols], all shards'. partial: the next layer's GEMM reads the whole, which then
 * has planes if the device has any, and the gradient is the sum of all ranks'; else every rank computes the
 * same gradient, such as a loss's. A hook. */
mn_status mn_ranks_record_allgather(struct mn_tape *tape, struct mn_tensor **y, int64_t cols, int partial);

/* Set by mn_device_join. */
extern const struct mn_tape_hooks mn_ranks_on_tape;

#endif
