/* The processes that train one model together, as a launcher (mpirun, srun) started them: a rank each. */
#ifndef MN_ENGINE_RANKS_H
#define MN_ENGINE_RANKS_H

#include "engine/context.h"

/* How a launcher tells a process which one it is. */
struct mn_launched {
  const char *launcher; /* "Open MPI", "MPICH" or "Slurm"; NULL: none, the process is alone */
  int rank, size;
  int local; /* its number on its host, which is that of its GPU */
};

/* From the environment. MN_USAGE: it contradicts itself. */
mn_status mn_launched_find(struct mn_launched *out);

/* Meets the other ranks. `*out` is NULL where the process was started alone; else the caller's, for
 * mn_ranks_close, which meets them too. Once in a process. MN_LIBRARY: no MPI, or one of another launcher. */
mn_status mn_ranks_open(struct mn_ranks **out);
void mn_ranks_close(struct mn_ranks *ranks); /* NULL is fine; after the contexts that joined */

/* What is opened in the context from now on is divided among the ranks (NULL: nothing happens); by every
 * rank. MN_LIBRARY, MN_NO_MEMORY. */
mn_status mn_context_join(struct mn_context *context, struct mn_ranks *ranks);

#endif
