/* Opening and closing a device. */
#ifndef MN_KERNELS_DEVICE_H
#define MN_KERNELS_DEVICE_H

#include "kernels/kernels.h"

/* Opens a device of `type` (on CUDA: GPU `ordinal`) for `precision`. `*out` is the caller's, for
 * mn_device_close. MN_NO_DEVICE: no driver, no GPU, a build without CUDA, or a precision that the GPU (below
 * sm_80) lacks. MN_NO_MEMORY: on the CPU also for what its products take (kernels/blas.h). */
MN_C mn_status mn_device_open(struct mn_device **out, enum mn_device_type type, int ordinal,
                              enum mn_precision precision);
MN_C void mn_device_close(struct mn_device *device); /* NULL is fine */

/* The CUDA part of the two above (device.cu; device.c in a build without CUDA). mn_cuda_open reads type,
 * ordinal and precision, creates device->cuda and sets kernels, name, versions and fuses; mn_cuda_close frees
 * what it has created, also after an error. */
MN_C mn_status mn_cuda_open(struct mn_device *device);
MN_C void mn_cuda_close(struct mn_device *device);

#endif
