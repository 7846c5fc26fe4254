/* OpenMP's threads: how many there may be, whatever the process has inherited, and what each takes. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/tile.h"

/* The processors that a quota of cgroup v2 leaves to this process, rounded up; INT_MAX without one. */
static int quota(void) {
  char group[512] = "", name[600];
  double most = INT_MAX, time, period;
  FILE *file = fopen("/proc/self/cgroup", "re");
  while (file && fgets(name, sizeof name, file))
    if (sscanf(name, "0::%500s", group) == 1) break;
  if (file) fclose(file);
  for (char *end = group + strlen(group); end; end = strrchr(group, '/')) { /* and of the groups above it */
    *end = 0;
    snprintf(name, sizeof name, "/sys/fs/cgroup%s/cpu.max", group);
    if (!(file = fopen(name, "re"))) continue;
    if (fscanf(file, "%lf %lf", &time, &period) == 2 && time / period < most) most = time / period;
    fclose(file);
  }
  return most < INT_MAX ? (int)most + (most > (int)most) : INT_MAX;
}

int mn_team_cores(void) {
  static int found; /* the quota; reading it takes longer than a small window of rows */
  cpu_set_t cores;
  const int known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  int most = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (most == 0) __atomic_store_n(&found, most = quota(), __ATOMIC_RELAXED);
  const int bound = known ? CPU_COUNT(&cores) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  return bound < most ? bound : most;
}

static int most_threads; /* by the quota and, once it is known, by what OpenMP gives; 0 at first */

void mn_team_limit(void) {
  int most = __atomic_load_n(&most_threads, __ATOMIC_RELAXED);
  if (most == 0) {
    most = getenv("OMP_NUM_THREADS") ? INT_MAX : mn_team_cores();
    __atomic_store_n(&most_threads, most, __ATOMIC_RELAXED);
  }
  if (omp_get_dynamic()) omp_set_dynamic(0);
  if (omp_get_max_threads() > most) omp_set_num_threads(most);
}

/* The most threads that libgomp can start here, less some for what else runs: each takes some 100 bytes of
 * the stack and two mappings. At one too many it ends the process. */
static double most_startable(void) {
  struct rlimit stack = {.rlim_cur = RLIM_INFINITY};
  (void)getrlimit(RLIMIT_STACK, &stack);
  const double maps = mn_number_in("/proc/sys/vm/max_map_count", "", 0.5, INFINITY) - 512;
  return fmin(maps, (double)stack.rlim_cur / 256);
}

/* Bytes of a thread's stack by OMP_STACKSIZE, as libgomp reads it; SIZE_MAX if that says none. */
static size_t stack_asked(const char *text) {
  char *unit;
  const size_t count = text ? strtoul(text, &unit, 10) : 0;
  if (!text || unit == text) return SIZE_MAX;
  unit += strspn(unit, " \t");
  const int letter = tolower((unsigned char)*unit);
  return count << (letter == 'b' ? 0 : letter == 'm' ? 20 : letter == 'g' ? 30 : 10);
}

/* The stacks of a team of so many threads must fit: libgomp ends the process if they do not. */
static mn_status try_stacks(int threads) {
  pthread_attr_t attributes;
  size_t stack;
  if (pthread_getattr_default_np(&attributes) != 0)
    return mn_fail(MN_NO_MEMORY, "no memory to find out the size of threads' stacks");
  MN_REQUIRE(pthread_attr_getstacksize(&attributes, &stack) == 0);
  MN_REQUIRE(pthread_attr_destroy(&attributes) == 0);
  const char *asked = getenv("OMP_STACKSIZE");
  if (stack_asked(asked) != SIZE_MAX) stack = stack_asked(asked);
  const size_t bytes = (size_t)(threads - 1) * stack + (size_t)threads * MN_PRODUCT_ROOM;
  void *held = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (held == MAP_FAILED)
    return mn_fail(MN_NO_MEMORY,
                   "no %zu MiB of memory left for %d thread%s; a higher limit (ulimit -v)%s would do",
                   bytes >> 20, threads, threads > 1 ? "s" : "",
                   threads > 1 ? " or fewer threads (OMP_NUM_THREADS=1)" : "");
  munmap(held, bytes);
  return MN_OK;
}

static _Thread_local int running; /* threads of the calling thread's largest team */

static mn_status start(void) {
  enum { LEAST = 128 << 10 }; /* bytes; with less libgomp ends the process */
  const char *stack = getenv("OMP_STACKSIZE");
  const int asked = omp_get_max_threads();
  int started = 0;
  if (asked < 1 || fmin(asked, omp_get_thread_limit()) > most_startable())
    return mn_fail(MN_USAGE,
                   "OMP_NUM_THREADS=%s is no number of threads: 1 to %.0f can be started here; %d would do",
                   getenv("OMP_NUM_THREADS"), most_startable(), mn_team_cores());
  if (stack_asked(stack) < LEAST)
    return mn_fail(MN_USAGE,
                   "OMP_STACKSIZE=%s is too small for a thread's stack: unset it, or give 1M or more", stack);
  if (asked <= running) return MN_OK;
  MN_TRY(try_stacks(asked));
#pragma omp parallel reduction(+ : started)
  started++;
  if (started < asked && !omp_in_parallel()) __atomic_store_n(&most_threads, started, __ATOMIC_RELAXED);
  mn_team_limit();
  running = asked;
  return MN_OK;
}

mn_status mn_team_take(struct mn_device *device) {
  mn_team_limit();
  if (omp_get_max_threads() > 0 && omp_get_max_threads() <= device->rooms) return MN_OK;
  MN_TRY(start());
  const int threads = omp_get_max_threads();
  void *room = aligned_alloc(64, (size_t)threads * MN_PRODUCT_ROOM);
  if (!room) return mn_fail(MN_NO_MEMORY, "no memory for the products of %d threads", threads);
  free(device->room);
  device->room = room;
  device->rooms = threads;
  return MN_OK;
}
