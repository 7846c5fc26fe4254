/* The context: a device, a precision, and a count of the memory allocated there. Everything above the kernels
 * takes one; no global state names a device. A context is used by one thread at a time. */
#ifndef MN_ENGINE_CONTEXT_H
#define MN_ENGINE_CONTEXT_H

#include "kernels/device.h"

struct mn_context {
  struct mn_device *device;
  const struct mn_kernels *kernels; /* device->kernels */
  enum mn_precision precision;
  const char *name;                  /* device->name, e.g. "NVIDIA H200" */
  int64_t allocations;               /* made so far: steps make none */
  size_t bytes;                      /* allocated now, on the device */
  int all_threads;                   /* so have tapes of small and medium products (engine/tape.h) */
  const struct mn_tape_hooks *hooks; /* on each tape's runs (engine/tape.h); NULL: none */
};

/* device: "cpu", "cuda", "cuda:1" or "auto", which takes the GPU when one is there, else the CPU. precision:
 * "fp64", "fp32", "tf32", "bf16", "fp16" or "fp16x3". `*out` is the caller's. MN_USAGE: no such word.
 * MN_NO_DEVICE: see mn_device_open. */
MN_API mn_status mn_context_open(struct mn_context **out, const char *device, const char *precision);
MN_API void mn_context_close(struct mn_context *context); /* NULL is fine */

/* `count` (> 0) elements of `size` bytes on the device, not initialised, to be freed by mn_context_release
 * with the same count and size (NULL is fine). MN_NO_MEMORY. */
MN_API mn_status mn_context_allocate(struct mn_context *context, void **out, int64_t count, size_t size);
/* The same, in memory that the collectives of the shards, or the replicas, reach: all of them call it in the
 * same order. MN_ALONE: as above. */
mn_status mn_context_allocate_shared(struct mn_context *context, enum mn_sharing with, void **out,
                                     int64_t count, size_t size);
MN_API void mn_context_release(struct mn_context *context, void *memory, int64_t count, size_t size);

/* Copies `count` values between reals on the device and doubles on the host, and waits for the device. */
MN_API mn_status mn_context_write(struct mn_context *context, void *to, const double *from, int64_t count);
MN_API mn_status mn_context_read(struct mn_context *context, double *to, const void *from, int64_t count);

#endif
