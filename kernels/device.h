/* Opening a device, and its memory. Everything above the kernels is given one; no global state names a
 * device. */
#ifndef MN_KERNELS_DEVICE_H
#define MN_KERNELS_DEVICE_H

#include "kernels/kernels.h"

/* name: "cpu", "cuda", "cuda:1" or "auto", which takes the GPU when one is there, else the CPU. precision:
 * one of mn_precision_words. `*out` is the caller's. MN_USAGE: no such word.
 * MN_NO_DEVICE: no driver, no GPU, a build without CUDA, or a precision that the GPU (below sm_80) lacks.
 * MN_NO_MEMORY: on the CPU also for what its products take (mn_team_take). */
MN_API mn_status mn_device_open(struct mn_device **out, const char *name, const char *precision);
MN_API void mn_device_close(struct mn_device *device); /* NULL is fine */

/* `count` (> 0) elements of `size` bytes on the device, not initialised, to be freed by mn_device_release
 * with the same count and size (NULL is fine). MN_NO_MEMORY. */
MN_API mn_status mn_device_allocate(struct mn_device *device, void **out, int64_t count, size_t size);
/* The same, in memory that the collectives of the team reach: all its ranks call it in the same order. With
 * team NULL as above. */
MN_C mn_status mn_device_allocate_shared(struct mn_device *device, const struct mn_team *team, void **out,
                                         int64_t count, size_t size);
MN_API void mn_device_release(struct mn_device *device, void *memory, int64_t count, size_t size);

/* Copies `count` values between reals on the device and doubles on the host, and waits for the device. */
MN_API mn_status mn_device_write(struct mn_device *device, void *to, const double *from, int64_t count);
MN_API mn_status mn_device_read(struct mn_device *device, double *to, const void *from, int64_t count);

/* The CUDA part of opening and closing (device.cu; device.c in a build without CUDA). mn_cuda_open reads
 * ordinal, precision, capability and planes, creates device->cuda and sets kernels, name, versions and
 * has_own_gemm, without which the caller drops two planes; mn_cuda_close frees what it has created, also
 * after an error. */
MN_C mn_status mn_cuda_open(struct mn_device *device);
MN_C void mn_cuda_close(struct mn_device *device);

/* team.c: mn_team_cores is the number of processors that affinity and quota (cgroup) leave to this process.
 * mn_team_limit has the calling thread ask OpenMP for no more threads than these, unless OMP_NUM_THREADS is
 * set, and for the same number each time in spite of OMP_DYNAMIC. mn_team_take starts as many threads as
 * OpenMP may have then and takes the memory in which each packs a product's operands, unless the device has
 * both; if OMP_THREAD_LIMIT or OMP_MAX_ACTIVE_LEVELS give fewer, these are the limit from then on. MN_USAGE:
 * OMP_NUM_THREADS or OMP_STACKSIZE cannot work. MN_NO_MEMORY: before libgomp, which would end the process. */
MN_C int mn_team_cores(void);
MN_C void mn_team_limit(void);
MN_C mn_status mn_team_take(struct mn_device *device);
/* memory.c: the number behind `name` in a file of the system's, times `unit`; `otherwise` without one. */
MN_C double mn_number_in(const char *path, const char *name, double unit, double otherwise);

#endif
