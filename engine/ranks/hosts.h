/* The hosts that ranks run on: naming them, and dividing a host's cores among the ranks that share them. */
#ifndef MN_ENGINE_RANKS_HOSTS_H
#define MN_ENGINE_RANKS_HOSTS_H

#include <sched.h>

#include "engine/ranks/ranks.h"

/* Where a rank runs. */
struct mn_seat {
  char host[256];  /* its name; two hosts have two */
  char id[64];     /* NCCL_HOSTID, "" where it is not set: of those that have another, as of those of another
                      host, NCCL takes each GPU for one of its own */
  cpu_set_t cores; /* that the launcher lets the rank run on; none: not known */
};

/* How many threads rank `rank` is due, who sits in seats[rank] of seats[size]: of each core that it may run
 * on an equal part with the other ranks of its host that may run there, in whole threads, at least 1. 0: it
 * does not know its cores. */
int mn_seats_threads(const struct mn_seat *seats, int size, int rank);

/* Notes what this rank is due (ranks->cores), and makes it the number of its threads, of OpenMP's and
 * OpenBLAS's, for what the calling thread computes from now on; a number that OMP_NUM_THREADS or
 * OPENBLAS_NUM_THREADS gives stays. By every rank; with NULL nothing happens. MN_LIBRARY. */
mn_status mn_ranks_share_cores(struct mn_ranks *ranks);

/* "host NAME, CPU (2 threads)" in text[size]: the host and the device, and NCCL_SOCKET_IFNAME
 * where it is set. */
void mn_host_describe(char *text, size_t size, const struct mn_device *device);

#endif
