/* A device's memory and its clock. Nothing here depends on the width of a real. */
#ifndef MN_KERNELS_MEMORY_H
#define MN_KERNELS_MEMORY_H

#include "kernels/types.h"

#define MN_MEMORY_KERNEL(name)                                                                               \
  MN_C name##_function name##_cpu;                                                                           \
  MN_C name##_function name##_cuda

/* `bytes` (> 0) of the device's memory, aligned to 256 bytes, its content not defined. MN_NO_MEMORY names how
 * much. */
typedef mn_status mn_allocate_function(struct mn_device *device, void **out, size_t bytes);
MN_MEMORY_KERNEL(mn_allocate);
typedef void mn_release_function(struct mn_device *device, void *memory); /* NULL is fine */
MN_MEMORY_KERNEL(mn_release);

/* Host memory that the device copies from at full speed (pinned on CUDA). Any thread may call these two. */
typedef mn_status mn_allocate_host_function(struct mn_device *device, void **out, size_t bytes);
MN_MEMORY_KERNEL(mn_allocate_host);
typedef void mn_release_host_function(struct mn_device *device, void *memory);
MN_MEMORY_KERNEL(mn_release_host);

/* Host to device, ordered on the device; `from` must stay until the next synchronize or download. */
typedef mn_status mn_upload_function(struct mn_device *device, void *to, const void *from, size_t bytes);
MN_MEMORY_KERNEL(mn_upload);
/* Device to host; returns when the bytes are there. */
typedef mn_status mn_download_function(struct mn_device *device, void *to, const void *from, size_t bytes);
MN_MEMORY_KERNEL(mn_download);
/* Device to device; the two must not overlap. */
typedef mn_status mn_copy_function(struct mn_device *device, void *to, const void *from, size_t bytes);
MN_MEMORY_KERNEL(mn_copy);
typedef mn_status mn_zero_function(struct mn_device *device, void *memory, size_t bytes);
MN_MEMORY_KERNEL(mn_zero);

/* Waits until everything given to the device is done; returns the first error it met. */
typedef mn_status mn_synchronize_function(struct mn_device *device);
MN_MEMORY_KERNEL(mn_synchronize);

/* A stopwatch on the device: mark(0) … mark(1), then elapsed waits for both and gives the milliseconds
 * between. */
typedef mn_status mn_mark_function(struct mn_device *device, int which);
MN_MEMORY_KERNEL(mn_mark);
typedef mn_status mn_elapsed_function(struct mn_device *device, double *milliseconds);
MN_MEMORY_KERNEL(mn_elapsed);

#endif
