/* Opening a device, and its memory. Everything above the kernels is given one; no global state names a
 * device. */
#ifndef MN_KERNELS_DEVICE_H
#define MN_KERNELS_DEVICE_H

#include "kernels/kernels.h"

/* `count` (> 0) elements of `size` bytes on the device, not initialised, to be freed by mn_device_release
 * with the same count and size (NULL is fine). MN_NO_MEMORY. */
MN_C mn_status mn_device_allocate(struct mn_device *device, void **out, int64_t count, size_t size);
/* The same, in memory that the collectives of the team reach: all its ranks call it in the same order. With
 * team NULL as above. */
MN_C mn_status mn_device_allocate_shared(struct mn_device *device, const struct mn_team *team, void **out,
                                         int64_t count, size_t size);
MN_C void mn_device_release(struct mn_device *device, void *memory, int64_t count, size_t size);

/* Copies `count` values between reals on the device and doubles on the host, and waits for the device. */
MN_C mn_status mn_device_write(struct mn_device *device, void *to, const double *from, int64_t count);
MN_C mn_status mn_device_read(struct mn_device *device, double *to, const void *from, int64_t count);

/* The CUDA part of opening and closing (device.cu; device.c in a build without CUDA). mn_cuda_open reads
 * ordinal, precision, capability and planes, creates device->cuda and sets kernels, name, versions and
 * has_own_gemm, without which the caller drops two planes; mn_cuda_close frees what it has created, also
 * after an error. */
MN_C mn_status mn_cuda_open(struct mn_device *device);
MN_C void mn_cuda_close(struct mn_device *device);

/* Writes w->packed, from w's other forms. */
MN_C void mn_pack(const struct mn_device *device, struct mn_operand *w);
MN_C void mn_pack_cpu_fp32(const struct mn_device *device, struct mn_operand *w);
MN_C void mn_pack_cpu_fp64(const struct mn_device *device, struct mn_operand *w);

/* team.c: mn_team_cores is the number of processors that affinity and quota (cgroup) leave to this process.
 * mn_team_most is the number of threads that a device which was opened with 0 has for the calling thread.
 * mn_team_take starts the device's threads and takes the memory in which each packs a product's operands,
 * unless both are there. MN_USAGE: so many threads, or OMP_STACKSIZE, cannot work. MN_NO_MEMORY: before
 * libgomp, which would end the process. */
MN_C int mn_team_cores(void);
MN_C int mn_team_most(void);
MN_C mn_status mn_team_take(struct mn_device *device);
/* The number behind `name` in a file of the system's, times `unit`; `otherwise` without one. */
MN_C double mn_number_in(const char *path, const char *name, double unit, double otherwise);

#endif
