/* What a rank's host is called, which of its cores the rank is due, and how it reaches other hosts. */
#include "engine/hosts.h"

#include <arpa/inet.h>
#include <cblas.h>
#include <ifaddrs.h>
#include <net/if.h>
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
  struct mn_seat mine = {.host = ""}, *seats = calloc((size_t)ranks->size, each);
  MN_REQUIRE(seats); /* a rank that failed alone would leave the others waiting */
  name_host(mine.host, sizeof mine.host);
  if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0)
    CPU_ZERO(&mine.cores); /* more than a set has */
  mn_status status = mn_ranks_collect(ranks, seats, &mine, each);
  ranks->neighbours = 0;
  for (int q = 0; q < ranks->size; q++) ranks->neighbours += strcmp(seats[q].host, seats[0].host) == 0;
  const int threads = status == MN_OK ? mn_seats_threads(seats, ranks->size, ranks->rank) : 0;
  ranks->cores = threads;
  free(seats);
  if (threads == 0 || getenv("OMP_NUM_THREADS") || getenv("OPENBLAS_NUM_THREADS")) return status;
  omp_set_num_threads(threads);
  openblas_set_num_threads(threads); /* one that is not built with OpenMP has a number of its own */
  return MN_OK;
}

/* The address that packets for other hosts would have as their source: connecting a socket of datagrams asks
 * the routes and sends nothing. Returns whether there is such a route. */
static int find_source(int family, struct sockaddr_storage *source) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
  struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
  const int six = family == AF_INET6;
  /* addresses of documentation, which belong to nobody */
  if (inet_pton(family, six ? "2001:db8::1" : "192.0.2.1", six ? (void *)&to6.sin6_addr : &to.sin_addr) != 1)
    return 0;
  const int made = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made < 0) return 0;
  socklen_t length = sizeof *source;
  const int found = connect(made, six ? (void *)&to6 : (void *)&to, six ? sizeof to6 : sizeof to) == 0 &&
                    getsockname(made, (void *)source, &length) == 0;
  close(made);
  return found;
}

static const void *address_of(const struct sockaddr *a) {
  return a->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)a)->sin_addr
                                 : &((const struct sockaddr_in6 *)a)->sin6_addr;
}

/* "eth0 10.0.0.5": the interface with the source's address; without a route the first that is not the host's
 * to itself. IPv4 first. Empty: there is none. */
static void name_interface(char *text, size_t size) {
  static const int families[] = {AF_INET, AF_INET6};
  struct ifaddrs *all;
  char address[INET6_ADDRSTRLEN];
  *text = 0;
  if (getifaddrs(&all) != 0) return;
  for (int i = 0; i < 2 && !*text; i++) {
    struct sockaddr_storage source;
    const int routed = find_source(families[i], &source);
    const size_t length = families[i] == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr);
    for (const struct ifaddrs *a = all; a && !*text; a = a->ifa_next) {
      if (!a->ifa_addr || a->ifa_addr->sa_family != families[i] || !(a->ifa_flags & IFF_UP)) continue;
      const void *here = address_of(a->ifa_addr);
      if (routed ? memcmp(here, address_of((void *)&source), length) != 0
                 : (a->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      if (inet_ntop(families[i], here, address, sizeof address))
        snprintf(text, size, "%s %s", a->ifa_name, address);
    }
  }
  freeifaddrs(all);
}

void mn_host_describe(char *text, size_t size, const struct mn_context *context) {
  const struct mn_device *device = context->device;
  char host[sizeof((struct mn_seat *)0)->host], interface[IF_NAMESIZE + INET6_ADDRSTRLEN + 1], gpu[32] = "";
  const char *chosen = getenv("NCCL_SOCKET_IFNAME");
  name_host(host, sizeof host);
  name_interface(interface, sizeof interface);
  if (device->type == MN_DEVICE_CUDA) snprintf(gpu, sizeof gpu, "cuda:%d ", device->ordinal);
  snprintf(text, size, "host %s, %s%s, %s%s%s%s", host, gpu, context->name, *interface ? "interface " : "",
           *interface ? interface : "no interface to other hosts", chosen ? ", NCCL_SOCKET_IFNAME=" : "",
           chosen ? chosen : "");
}
