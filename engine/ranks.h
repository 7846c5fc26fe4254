/* The processes that train one model together, as a launcher (mpirun, srun) started them: a rank each. */
#ifndef MN_ENGINE_RANKS_H
#define MN_ENGINE_RANKS_H

#include "engine/context.h"
#include "engine/heartbeat.h"

/* How a launcher tells a process which one it is. */
struct mn_launched {
  const char *launcher; /* "Open MPI", "MPICH", "Slurm", or "RANK and WORLD_SIZE"; NULL: none, it is alone */
  int rank, size;
  int local;           /* its number on its host, which is that of its GPU */
  int mpi;             /* the launcher is one that MPI knows */
  const char *address; /* MASTER_ADDR, the host of rank 0, where ranks can meet without MPI; NULL: not set */
  int port;            /* MASTER_PORT, there; under torchrun, which has that itself, the one after it */
};

/* From the environment. MN_USAGE: it contradicts itself. */
mn_status mn_launched_find(struct mn_launched *out);

/* Meets the other ranks, by MPI or at MASTER_ADDR:MASTER_PORT; their link is open from then on
 * (engine/link.h). `*out` is NULL where the process was started alone; else the caller's, for mn_ranks_close,
 * which meets them too. Once in a process.
 *
 * A rank that does not come within `timeout` seconds (0: it is waited for), that dies, or that hangs for so
 * long, ends this process with a line that names it as far as it is known: exit code MN_INTERRUPTED where a
 * checkpoint stands (`resumable`, and mn_ranks_watch), else MN_LIBRARY. Errors: MN_LIBRARY: no MPI, or one of
 * another launcher; those of mn_launched_find and mn_meet. */
mn_status mn_ranks_open(struct mn_ranks **out, double timeout, int resumable);
void mn_ranks_close(struct mn_ranks *ranks); /* NULL is fine; after the contexts that joined */

/* Makes the ranks a grid (kernels/ranks.h) with so many parts, before a context joins; until then all ranks
 * are parts of one copy. MN_USAGE: the ranks are no multiple of the parts. NULL is fine. */
mn_status mn_ranks_divide(struct mn_ranks *ranks, int parts);

/* What this rank does, and whether a checkpoint stands, for the ranks' heartbeat: mn_heartbeat_watch. */
void mn_ranks_watch(struct mn_ranks *ranks, const struct mn_pace *pace, int (*resumable)(void));

/* Ends this process with a line of its message, and the others without one, all with the status as exit code.
 */
void mn_ranks_leave(struct mn_ranks *ranks, mn_status status) __attribute__((noreturn));

/* The calls below are made by every rank; with ranks NULL they do nothing. They go over the link, and so end
 * the process where a rank is missing.
 *
 * agree: MN_OK where every rank's status is; else that of the lowest rank that failed and has a message. On
 * the others the message is empty: one rank tells.
 * tell: data[bytes] becomes rank 0's. most: *value becomes the largest of all ranks'.
 * collect: all[size][bytes] becomes every rank's `mine`.
 * gather: on rank 0 whole[] becomes the pieces of its copy's parts, one after the other: each has mn_share of
 * `outputs`, of `each` bytes. `whole` is written on rank 0 alone. */
mn_status mn_ranks_agree(struct mn_ranks *ranks, mn_status status);
mn_status mn_ranks_tell(struct mn_ranks *ranks, void *data, size_t bytes);
mn_status mn_ranks_most(struct mn_ranks *ranks, int *value);
mn_status mn_ranks_collect(struct mn_ranks *ranks, void *all, const void *mine, size_t bytes);
mn_status mn_ranks_gather(struct mn_ranks *ranks, void *whole, const void *piece, int64_t outputs,
                          size_t each);

/* Whether this rank prints and writes: the first, or one that is alone. */
static inline int mn_ranks_first(const struct mn_ranks *ranks) {
  return !ranks || ranks->rank == 0;
}

/* What is opened in the context from now on is divided among the ranks (NULL: nothing happens); by every
 * rank. MN_LIBRARY, MN_NO_MEMORY; MN_USAGE: on the CPU, without MPI. */
mn_status mn_context_join(struct mn_context *context, struct mn_ranks *ranks);

#endif
