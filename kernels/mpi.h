/* MPI, found at run time, so that who trains alone neither needs nor loads it. Only bytes are moved: sums are
 * formed by the caller, in an order that does not depend on the library. One thread at a time. */
#ifndef MN_KERNELS_MPI_H
#define MN_KERNELS_MPI_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

enum { MN_MPI_MOST = 1 << 30 }; /* bytes to each rank in one call */

struct mn_mpi;                 /* opaque */
typedef uintptr_t mn_mpi_comm; /* some of the ranks; 0: all of them */

/* Loads the library of the launcher that started this process and starts MPI; both happen once in a process,
 * and `*out` is its own until it ends. rank, size: of all processes. MN_LIBRARY: no library, or one whose MPI
 * does not start. */
MN_C mn_status mn_mpi_open(struct mn_mpi **out, int *rank, int *size);

/* Ends MPI, which waits for the other ranks; before the process ends. NULL is fine. */
MN_C void mn_mpi_close(struct mn_mpi *mpi);

/* Whether a thread of this process is in one of the calls below, which wait for the other ranks. For another
 * thread, which watches them. */
MN_C int mn_mpi_waits(void);

/* The library's own name and version, a line without its end; NULL: none is there. Does not start MPI. */
MN_C const char *mn_mpi_version(void);

/* Those ranks that give the same `color`, in the order of `key`; every rank calls. Freed by mn_mpi_close.
 * MN_LIBRARY. */
MN_C mn_status mn_mpi_split(struct mn_mpi *mpi, mn_mpi_comm *out, int color, int key);

/* Each call is made by all ranks of `comm`. `bytes` ≤ MN_MPI_MOST for each rank. MN_LIBRARY.
 * all_gather: all[size][bytes] becomes every rank's `mine`.
 * exchange: rank q's to_me[r] becomes rank r's of_mine[q], each [size][bytes].
 * broadcast: data[bytes] becomes rank `from`'s. */
MN_C mn_status mn_mpi_all_gather(struct mn_mpi *mpi, mn_mpi_comm comm, void *all, const void *mine,
                                 size_t bytes);
MN_C mn_status mn_mpi_exchange(struct mn_mpi *mpi, mn_mpi_comm comm, void *to_me, const void *of_mine,
                               size_t bytes);
MN_C mn_status mn_mpi_broadcast(struct mn_mpi *mpi, void *data, size_t bytes, int from);

#endif
