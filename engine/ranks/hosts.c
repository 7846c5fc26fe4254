/* What a rank's host is called, and which of its cores the rank is due. */
#include "engine/ranks/ranks.h"

#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int mn_seats_threads(const struct mn_seat *seats, int size, int rank) {
  const struct mn_seat *mine = &seats[rank];
  double due = 0;
  if (CPU_COUNT(&mine->cores) == 0) return 0;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    int sharers = 0;
    if (!CPU_ISSET(core, &mine->cores)) continue;
    for (int q = 0; q < size; q++)
      sharers += CPU_ISSET(core, &seats[q].cores) && strcmp(seats[q].host, mine->host) == 0;
    due += 1.0 / sharers;
  }
  const int threads = (int)(due + 1e-6); /* six thirds add up to a little less than 2 */
  return threads > 1 ? threads : 1;
}

static void name_host(char *name, size_t size) {
  if (gethostname(name, size) != 0) snprintf(name, size, "of no name");
  name[size - 1] = 0;
}

mn_status mn_ranks_share_cores(struct mn_ranks *ranks) {
  if (!ranks) return MN_OK;
  const size_t each = sizeof(struct mn_seat);
  struct mn_seat mine = {.host = ""}, *seats = calloc((size_t)ranks->all.size, each);
  MN_REQUIRE(seats); /* a rank that failed alone would leave the others waiting */
  name_host(mine.host, sizeof mine.host);
  if (getenv("NCCL_HOSTID")) snprintf(mine.id, sizeof mine.id, "%s", getenv("NCCL_HOSTID"));
  if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0)
    CPU_ZERO(&mine.cores); /* more than a set has */
  mn_status status = mn_ranks_allgather(ranks, seats, &mine, each);
  ranks->neighbours = ranks->local = 0;
  for (int q = 0; q < ranks->all.rank; q++)
    ranks->local += strcmp(seats[q].host, mine.host) == 0 && strcmp(seats[q].id, mine.id) == 0;
  for (int q = 0; q < ranks->all.size; q++) ranks->neighbours += strcmp(seats[q].host, seats[0].host) == 0;
  const int threads = status == MN_OK ? mn_seats_threads(seats, ranks->all.size, ranks->all.rank) : 0;
  ranks->cores = threads;
  free(seats);
  if (threads == 0 || getenv("OMP_NUM_THREADS") || getenv("OPENBLAS_NUM_THREADS")) return status;
  omp_set_num_threads(threads);
  openblas_set_num_threads(threads); /* one that is not built with OpenMP has a number of its own */
  return MN_OK;
}

void mn_host_describe(char *text, size_t size, const struct mn_device *device) {
  char host[sizeof((struct mn_seat *)0)->host], gpu[32] = "";
  const char *interface = getenv("NCCL_SOCKET_IFNAME");
  name_host(host, sizeof host);
  if (device->type == MN_DEVICE_CUDA) snprintf(gpu, sizeof gpu, "cuda:%d ", device->ordinal);
  snprintf(text, size, "host %s, %s%s%s%s", host, gpu, device->name, interface ? ", NCCL_SOCKET_IFNAME=" : "",
           interface ? interface : "");
}
