/* The processes that train one model together, as a launcher (mpirun, srun) started them: a rank each. What
 * they tell each other beside the data of training goes by MPI, from the thread that opened them. */
#ifndef MN_ENGINE_RANKS_RANKS_H
#define MN_ENGINE_RANKS_RANKS_H

#include "kernels/device.h"
#include "kernels/ranks/ranks.h"

/* How many processes a launcher started with this one, by its variables; 1: it is alone. */
int mn_ranks_started(void);

/* Meets the other ranks, by MPI. `*out` is NULL where the process was started alone; else the caller's, for
 * mn_ranks_close, which meets them too. Once in a process. MN_LIBRARY: no MPI, or one of another launcher. */
mn_status mn_ranks_open(struct mn_ranks **out);
void mn_ranks_close(struct mn_ranks *ranks); /* NULL is fine; after the devices that joined */

/* Makes the ranks a grid (kernels/ranks/ranks.h): `shards` of every layer in each replica of the model.
 * Before a device joins; until then all ranks are shards of one replica. MN_USAGE: the ranks are no
 * multiple of the shards. NULL is fine. */
mn_status mn_ranks_set_grid(struct mn_ranks *ranks, int shards);

/* Ends all ranks, with a line of this one's message; the status is the exit code. */
void mn_ranks_leave(struct mn_ranks *ranks, mn_status status) __attribute__((noreturn));

/* The calls below are made by every rank; with ranks NULL they do nothing. MN_LIBRARY.
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
  return !ranks || ranks->rank == 0;
}

/* What is opened in the device from now on is divided among the ranks (NULL: nothing happens); by every
 * rank. MN_LIBRARY, MN_NO_MEMORY. */
mn_status mn_device_join(struct mn_device *device, struct mn_ranks *ranks);

#endif
