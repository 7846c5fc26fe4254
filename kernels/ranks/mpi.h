/* MPI, found at run time, so that who trains alone neither needs nor loads it. Only bytes are moved: sums are
 * formed by the caller, in an order that does not depend on the library. The thread that opens makes all
 * calls (MPI_THREAD_FUNNELED), and every call polls until it is done, so that a rank that waits still
 * answers. */
#ifndef MN_KERNELS_RANKS_MPI_H
#define MN_KERNELS_RANKS_MPI_H

#include "kernels/ranks/collectives.h"

/* Loads the library of the launcher that started this process and starts MPI, once in a process. rank, size:
 * this process's number, and all processes'. MN_LIBRARY: no library, or one whose MPI does not start. */
MN_C mn_status mn_mpi_open(int *rank, int *size);

/* Ends MPI, which waits for the other ranks; before the process ends. */
MN_C void mn_mpi_close(void);

/* Ends every rank's process, as far as the launcher can; it ends with this code. */
MN_C void mn_mpi_abort(int code) __attribute__((noreturn));

/* For another thread, which watches: the number of finished calls; *what is set to the state of the opener.
 */
MN_C int64_t mn_mpi_calls(enum mn_waiting *what);

/* For another thread, when the opener has waited for long enough: all ranks are polled, and after a second
 * the first of those that answer calls end("1, 3"), the list of those that do not, in the thread that opened;
 * it may call mn_mpi_abort. end(""): all wait, and have got no further since the roll before. */
MN_C void mn_mpi_call_roll(void (*end)(const char *missing));

/* Answers rolls. The thread that opened calls it at each heartbeat, and again and again while it waits for
 * something other than MPI. */
MN_C void mn_mpi_attend(enum mn_waiting what);

/* The next call, if it waits for more than a second, prints this thread's message, and empties it. */
MN_C void mn_mpi_tell_if_late(void);

/* The library's own name and version, a line without its end, or NULL without a library. Does not start MPI.
 */
MN_C const char *mn_mpi_version(void);

/* Those ranks that give the same `color`, in the order of `key`; every rank calls. Freed by mn_mpi_close.
 * MN_LIBRARY. */
MN_C mn_status mn_mpi_split(mn_mpi_comm *out, int color, int key);

/* Each call is made by all ranks of `comm`. `bytes` to each rank fit an int. MN_LIBRARY.
 * allgather: all[size][bytes] becomes every rank's `mine`.
 * alltoall: rank q's to_me[r] becomes rank r's of_mine[q], each [size][bytes].
 * broadcast: data[bytes] becomes rank `from`'s.
 * move: data of any size is sent to `rank` if `sends`, and not written; else it is received from there. */
MN_C mn_status mn_mpi_allgather(mn_mpi_comm comm, void *all, const void *mine, size_t bytes);
MN_C mn_status mn_mpi_alltoall(mn_mpi_comm comm, void *to_me, const void *of_mine, size_t bytes);
MN_C mn_status mn_mpi_broadcast(void *data, size_t bytes, int from);
MN_C mn_status mn_mpi_move(void *data, size_t bytes, int rank, int sends);

/* NCCL's version, such as "2.28.3" in text[size]; NULL without a library. In builds with CUDA. */
MN_C const char *mn_nccl_version(char *text, size_t size);

#endif
