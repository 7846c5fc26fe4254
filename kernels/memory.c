/* The CPU's memory is the host's. Contract: kernels/memory.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/clock.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "kernels/planes.h"

/* With memory to spare (volatile: it is tried) for libgomp, which ends the process if a team finds none. */
mn_status mn_allocate_cpu(struct mn_device *device, void **out, size_t bytes) {
  *out = NULL;
  void *volatile spare = posix_memalign(out, 256, bytes) == 0 ? malloc(1 << 16) : NULL;
  free(spare);
  if (spare) return MN_OK;
  free(*out), *out = NULL;
  return mn_fail(MN_NO_MEMORY, "no %.1f MiB of memory left; a smaller batch or model would need less",
                 (double)bytes / 1048576);
}

void mn_release_cpu(struct mn_device *device, void *memory) {
  free(memory);
}

mn_status mn_available_cpu(struct mn_device *device, size_t *bytes) {
  struct rlimit limit;
  double left = mn_number_in("/proc/meminfo", "MemAvailable:", 1024, 0);
  double most = mn_number_in("/sys/fs/cgroup/memory.max", "", 1, INFINITY); /* "max" means no limit */
  double used =
      mn_number_in("/sys/fs/cgroup/memory.current", "", 1, 0); /* with cached files, which give way */
  left = fmin(left, most - used + mn_number_in("/sys/fs/cgroup/memory.stat", "inactive_file ", 1, 0));
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    left = fmin(left, (double)limit.rlim_cur -
                          mn_number_in("/proc/self/statm", "", (double)sysconf(_SC_PAGESIZE), 0));
  *bytes = left > 0 ? (size_t)left : 0;
  return MN_OK;
}

mn_status mn_copy_cpu(struct mn_device *device, void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
  return MN_OK;
}

mn_status mn_zero_cpu(struct mn_device *device, void *memory, size_t bytes) {
  memset(memory, 0, bytes);
  return MN_OK;
}

mn_status mn_synchronize_cpu(struct mn_device *device) {
  return MN_OK;
}

mn_status mn_stamp_cpu(struct mn_device *device, int which) {
  MN_REQUIRE(which == 0 || which == 1);
  device->stamps[which] = mn_seconds() * 1e3;
  return MN_OK;
}

mn_status mn_elapsed_cpu(struct mn_device *device, double *milliseconds) {
  *milliseconds = device->stamps[1] - device->stamps[0];
  return MN_OK;
}

/* Bytes of a batch; below, a second thread would gain less than what waiting for it costs on a busy core. */
enum { GATHER_PARALLEL_FROM = 1 << 20 };

/* Row i of x's plane. */
static void round_row(struct mn_device *device, const struct mn_gather *g, int64_t i, const float *from) {
  const int64_t cols = (int64_t)(g->of[0].bytes / sizeof *from);
  const float factor = mn_scale_factor(g->scales[i / g->batch].largest, MN_HEADROOM_X, 1);
  float *to = (float *)g->planes[0] + i * cols;
  if (i % g->batch == 0) g->scales[i / g->batch].factor = factor;
  for (int64_t c = 0; c < cols; c++) to[c] = mn_to_plane(device->plane_kind, from[c], factor);
}

mn_status mn_gather_cpu(struct mn_device *device, const struct mn_gather *g) {
  MN_REQUIRE(!g->planes[1]);
  size_t all = (size_t)g->count * (g->of[0].bytes + g->of[1].bytes);
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (all > GATHER_PARALLEL_FROM)
  for (int64_t i = 0; i < g->count; i++)
    for (int k = 0; k < 2; k++) {
      const size_t bytes = g->of[k].bytes, apart = g->of[k].apart ? g->of[k].apart : bytes;
      const char *base = g->of[k].from; /* row i + 8 is on its way while row i is copied */
      if (!bytes || (g->rows && g->rows[i] < 0)) continue;
      if (g->rows && i + 8 < g->count) __builtin_prefetch(base + g->rows[i + 8] * (int64_t)apart);
      const char *from = base + (size_t)(g->rows ? g->rows[i] : i) * apart;
      if (k == 0 && g->planes[0])
        round_row(device, g, i, (const float *)from);
      else
        memcpy((char *)g->of[k].to + (size_t)i * bytes, from, bytes);
    }
  return MN_OK;
}
