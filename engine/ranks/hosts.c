/* The name of a rank's host, and the rank's share of its cores. */
#include "engine/ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The host of a rank. */
struct seat {
  char host[256]; /* its name; two hosts have two */
  char id[64];    /* NCCL_HOSTID, "" if it is not set: NCCL takes ranks with another one for another host's */
};

int mn_cores_threads(const cpu_set_t *sets, int size, int rank) {
  const int cores = CPU_COUNT(&sets[rank]);
  int sharers = 0;
  for (int q = 0; q < size; q++) sharers += CPU_EQUAL(&sets[q], &sets[rank]) != 0;
  return cores > 0 && cores < sharers ? 1 : cores / sharers;
}

static void name_host(char *name, size_t size) {
  if (gethostname(name, size) != 0) snprintf(name, size, "of no name");
  name[size - 1] = 0;
}

mn_status mn_ranks_share_cores(struct mn_ranks *ranks) {
  if (!ranks) return MN_OK;
  const size_t size = (size_t)ranks->all.size;
  struct seat mine = {.host = ""}, *seats = calloc(size, sizeof *seats);
  cpu_set_t cores, *sets = calloc(size, sizeof *sets);
  MN_REQUIRE(seats && sets); /* a rank that failed alone would leave the others waiting */
  name_host(mine.host, sizeof mine.host);
  if (getenv("NCCL_HOSTID")) snprintf(mine.id, sizeof mine.id, "%s", getenv("NCCL_HOSTID"));
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_ZERO(&cores); /* more than a set has */
  mn_status status = mn_ranks_allgather(ranks, seats, &mine, sizeof mine);
  if (status == MN_OK) status = mn_ranks_allgather(ranks, sets, &cores, sizeof cores);
  ranks->neighbours = ranks->local = 0;
  for (int q = 0; q < ranks->all.size; q++) {
    const int here = strcmp(seats[q].host, mine.host) == 0;
    ranks->local += q < ranks->all.rank && here && strcmp(seats[q].id, mine.id) == 0;
    ranks->neighbours += strcmp(seats[q].host, seats[0].host) == 0;
    if (!here) CPU_ZERO(&sets[q]);
  }
  ranks->cores = status == MN_OK && !getenv("OMP_NUM_THREADS")
                     ? mn_cores_threads(sets, ranks->all.size, ranks->all.rank)
                     : 0;
  free(sets);
  free(seats);
  return status;
}

void mn_host_describe(char *text, size_t size, const struct mn_device *device) {
  char host[sizeof((struct seat *)0)->host], gpu[32] = "";
  const char *interface = getenv("NCCL_SOCKET_IFNAME");
  name_host(host, sizeof host);
  if (device->type == MN_DEVICE_CUDA) snprintf(gpu, sizeof gpu, "cuda:%d ", device->ordinal);
  snprintf(text, size, "host %s, %s%s%s%s", host, gpu, device->name, interface ? ", NCCL_SOCKET_IFNAME=" : "",
           interface ? interface : "");
}
