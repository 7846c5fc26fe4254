/* Opening and closing the place where work goes. */
#ifndef MN_KERNELS_DEVICE_H
#define MN_KERNELS_DEVICE_H

#include "kernels/kernels.h"

/* Opens the device `device` (index `ordinal` on CUDA) for `precision`. `*out` is the caller's, for
 * mn_device_close. MN_NO_DEVICE: no driver, no GPU, a build without CUDA, or a precision that the GPU (below
 * sm_80) lacks. */
MN_C mn_status mn_device_open(struct mn_device **out, enum mn_device_type type, int ordinal,
                              enum mn_precision precision);
MN_C void mn_device_close(struct mn_device *device); /* NULL is fine */

/* The device's name for people, e.g. "NVIDIA H200" or "CPU (16 threads)". */
MN_C void mn_device_describe(const struct mn_device *device, char *text, size_t size);

/* Whether products that suit it run in the GEMM of our own (kernels/hopper/gemm.h), unless `library` is set.
 */
MN_C int mn_device_fuses(const struct mn_device *device);

/* The CUDA half of the four above (device.cu), which the tables' owner device.c calls: `device` has its
 * precision, widths and table already; this opens device, device, cuBLASLt and workspace into device->cuda.
 */
MN_C mn_status mn_cuda_open(struct mn_device *device, int ordinal);
MN_C void mn_cuda_close(struct mn_device *device);
MN_C void mn_cuda_describe(const struct mn_device *device, char *text, size_t size);
MN_C int mn_cuda_fuses(const struct mn_device *device);

#endif
