/* The CPU's memory is the host's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/clock.h"
#include "kernels/kernels.h"

mn_status mn_allocate_cpu(struct mn_device *device, void **out, size_t bytes) {
  (void)device;
  *out = NULL;
  if (posix_memalign(out, 256, bytes) != 0)
    return mn_fail(MN_NO_MEMORY, "no %.1f MiB of memory left; a smaller batch or model would need less",
                   (double)bytes / 1048576);
  return MN_OK;
}

void mn_release_cpu(struct mn_device *device, void *memory) {
  (void)device;
  free(memory);
}

/* The number behind `name` in a file of the system's, times `unit`; `otherwise` if there is none. */
static double number_in(const char *path, const char *name, double unit, double otherwise) {
  char line[256];
  double number = otherwise, found;
  FILE *file = fopen(path, "re");
  if (!file) return otherwise;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%lf", &found) == 1) {
      number = found * unit;
      break;
    }
  fclose(file);
  return number;
}

mn_status mn_available_cpu(struct mn_device *device, size_t *bytes) {
  (void)device;
  struct rlimit limit;
  double left = number_in("/proc/meminfo", "MemAvailable:", 1024, 0);
  double most = number_in("/sys/fs/cgroup/memory.max", "", 1, INFINITY); /* "max" is no number */
  double used = number_in("/sys/fs/cgroup/memory.current", "", 1, 0); /* with cached files, which give way */
  left = fmin(left, most - used + number_in("/sys/fs/cgroup/memory.stat", "inactive_file ", 1, 0));
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    left = fmin(left,
                (double)limit.rlim_cur - number_in("/proc/self/statm", "", (double)sysconf(_SC_PAGESIZE), 0));
  *bytes = left > 0 ? (size_t)left : 0;
  return MN_OK;
}

mn_status mn_upload_cpu(struct mn_device *device, void *to, const void *from, size_t bytes) {
  (void)device;
  memcpy(to, from, bytes);
  return MN_OK;
}

mn_status mn_zero_cpu(struct mn_device *device, void *memory, size_t bytes) {
  (void)device;
  memset(memory, 0, bytes);
  return MN_OK;
}

mn_status mn_synchronize_cpu(struct mn_device *device) {
  (void)device;
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
