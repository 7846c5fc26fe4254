/* The context: which device, which precision, and the memory taken there. Everything above the kernels starts
 * from one; nothing global names a device. One thread at a time. */
#ifndef MN_ENGINE_CONTEXT_H
#define MN_ENGINE_CONTEXT_H

#include "kernels/device.h"

struct mn_context {
  struct mn_device *device;
  const struct mn_kernels *kernels; /* device->kernels */
  enum mn_precision precision;
  char name[128];      /* the device's, e.g. "NVIDIA H200" */
  int64_t allocations; /* buffers taken so far: does not move once training runs */
  size_t bytes;        /* held now, on the device */
};

/* device: "cpu", "cuda", "cuda:1" or "auto", which takes the GPU when one is there, else the CPU. precision:
 * "fp64", "fp32", "tf32" or "bf16". `*out` is the caller's. MN_USAGE: no such word. MN_NO_DEVICE: see
 * mn_device_open. */
mn_status mn_context_open(struct mn_context **out, const char *device, const char *precision);
void mn_context_close(struct mn_context *context); /* NULL is fine */

/* `count` reals (or elements of `size` bytes) on the device, not initialised; they go back by
 * mn_context_release. */
mn_status mn_context_allocate(struct mn_context *context, void **out, int64_t count, size_t size);
void mn_context_release(struct mn_context *context, void *memory, int64_t count, size_t size);

/* Reals on the device from and to doubles on the host, whatever a real is. */
mn_status mn_context_write(struct mn_context *context, void *to, const double *from, int64_t count);
mn_status mn_context_read(struct mn_context *context, double *to, const void *from, int64_t count);

#endif
