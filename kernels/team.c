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
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/tile.h"

double mn_number_in(const char *path, const char *name, double unit, double otherwise) {
  char line[256];
  double number;
  int found = 0;
  FILE *file = fopen(path, "re");
  while (file && !found && fgets(line, sizeof line, file))
    found = strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%lf", &number) == 1;
  if (file) fclose(file);
  return found ? number * unit : otherwise;
}

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

int mn_team_most(void) {
  static int found; /* by the quota */
  int most = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (most == 0) {
    most = getenv("OMP_NUM_THREADS") ? INT_MAX : mn_team_cores();
    __atomic_store_n(&found, most, __ATOMIC_RELAXED);
  }
  const int asked =
      omp_get_max_threads() < omp_get_thread_limit() ? omp_get_max_threads() : omp_get_thread_limit();
  return asked < most ? asked : most;
}

/* In a process that was forked off one with threads OpenMP's are missing, and the thread that goes on there
 * would wait for them for ever: it computes alone. Threads that it starts have teams of their own. */
static int has_threads;
static _Thread_local int is_alone;

static void before_fork(void) {
  struct stat tasks; /* a folder for each thread, beside . and .. */
  has_threads = stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink > 3;
}

static void after_fork(void) {
  is_alone |= has_threads;
}

__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, NULL, after_fork);
}

int mn_threads(const struct mn_device *device) {
  const int all = device->threads ? device->threads : mn_team_most();
  if (is_alone || device->team == MN_TEAM_ONE) return 1;
  return device->team == MN_TEAM_ALL ? all : all < 4 ? 1 : all / 2;
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

/* Starts the calling thread's team, if it has none of that size. */
static mn_status start(const struct mn_device *device, int asked) {
  char number[16];
  enum { LEAST = 128 << 10 }; /* bytes; with less libgomp ends the process */
  const char *stack = getenv("OMP_STACKSIZE");
  if (asked >= 1 && asked <= running) return MN_OK;
  snprintf(number, sizeof number, "%d", asked);
  if (asked < 1 || asked > most_startable())
    return mn_fail(MN_USAGE, "%s%s is no number of threads: 1 to %.0f can be started here; %d would do",
                   device->threads ? "" : "OMP_NUM_THREADS=",
                   device->threads ? number : getenv("OMP_NUM_THREADS"), most_startable(), mn_team_cores());
  if (stack_asked(stack) < LEAST)
    return mn_fail(MN_USAGE,
                   "OMP_STACKSIZE=%s is too small for a thread's stack: unset it, or give 1M or more", stack);
  MN_TRY(try_stacks(asked));
#pragma omp parallel num_threads(asked)
  running = asked; /* each thread's own */
  return MN_OK;
}

mn_status mn_team_take(struct mn_device *device) {
  const int threads = mn_threads(device);
  if (threads > 0 && threads <= device->rooms) return threads == 1 ? MN_OK : start(device, threads);
  MN_TRY(start(device, threads));
  void *room = aligned_alloc(64, (size_t)threads * MN_PRODUCT_ROOM);
  if (!room) return mn_fail(MN_NO_MEMORY, "no memory for the products of %d threads", threads);
  free(device->room);
  device->room = room;
  device->rooms = threads;
  return MN_OK;
}
