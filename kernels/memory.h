/* A device's memory and its clock, for reals of any width. */
#ifndef MN_KERNELS_MEMORY_H
#define MN_KERNELS_MEMORY_H

#include "kernels/types.h"

/* `bytes` (> 0) of the device's memory, aligned to 256 bytes, not initialised. MN_NO_MEMORY names the size.
 */
typedef mn_status mn_allocate_function(struct mn_device *device, void **out, size_t bytes);
#define mn_allocate(device, ...) (device)->kernels->allocate(device, __VA_ARGS__)
/* NULL is fine. */
typedef void mn_release_function(struct mn_device *device, void *memory);
#define mn_release(device, ...) (device)->kernels->release(device, __VA_ARGS__)

/* Host memory that the device copies from at full speed (pinned on CUDA). Any thread may call these two. */
typedef mn_status mn_allocate_host_function(struct mn_device *device, void **out, size_t bytes);
#define mn_allocate_host(device, ...) (device)->kernels->allocate_host(device, __VA_ARGS__)
typedef void mn_release_host_function(struct mn_device *device, void *memory);
#define mn_release_host(device, ...) (device)->kernels->release_host(device, __VA_ARGS__)

/* How many bytes of the device's memory could be allocated now, as an estimate: on the CPU the least that the
 * system, the control group's limit and the process's own leave. */
typedef mn_status mn_available_function(struct mn_device *device, size_t *bytes);
#define mn_available(device, ...) (device)->kernels->available(device, __VA_ARGS__)

/* Host to device or device to device, in order with the device's work; the two must not overlap, and a host's
 * `from` must stay until the next synchronize or download. */
typedef mn_status mn_copy_function(struct mn_device *device, void *to, const void *from, size_t bytes);
#define mn_copy(device, ...) (device)->kernels->copy(device, __VA_ARGS__)
/* Device to host; returns when the bytes are there. */
typedef mn_status mn_download_function(struct mn_device *device, void *to, const void *from, size_t bytes);
#define mn_download(device, ...) (device)->kernels->download(device, __VA_ARGS__)
typedef mn_status mn_zero_function(struct mn_device *device, void *memory, size_t bytes);
#define mn_zero(device, ...) (device)->kernels->zero(device, __VA_ARGS__)

/* Waits until all work that the device was given is done, and returns the first error among it. Between
 * ahead_begin and ahead_end (kernels/stream.h) it waits for the work since ahead_begin alone. */
typedef mn_status mn_synchronize_function(struct mn_device *device);
#define mn_synchronize(device) (device)->kernels->synchronize(device)

/* A download by another thread, while the device goes on with the work that its own thread gives it. It waits
 * for what was given before the device's own thread forked MN_BRANCH_SAVES (kernels/stream.h), not for what
 * was given since, copies and returns when the bytes are at `to`, which may be any host memory; `from` must
 * not be written until then. It is the one entry that may run in a second thread beside all others, a graph's
 * capture included: in one thread at a time, and not beside that fork. NULL in the CPU's tables, whose
 * download takes no longer than a copy. */
typedef mn_status mn_download_beside_function(struct mn_device *device, void *to, const void *from,
                                              size_t bytes);
#define mn_download_beside(device, ...) (device)->kernels->download_beside(device, __VA_ARGS__)

/* A stopwatch on the device: stamp(0), the work, stamp(1); then elapsed waits for both and gives the
 * milliseconds between them. */
typedef mn_status mn_stamp_function(struct mn_device *device, int which);
#define mn_stamp(device, ...) (device)->kernels->stamp(device, __VA_ARGS__)
typedef mn_status mn_elapsed_function(struct mn_device *device, double *milliseconds);
#define mn_elapsed(device, ...) (device)->kernels->elapsed(device, __VA_ARGS__)

struct mn_gather {
  int64_t count; /* rows */
  const int64_t
      *rows; /* [count] in the device's memory: row i of each `to` is row rows[i] of its `from`, or is
                          not written if that is −1; NULL for row i */
  struct {
    void *to;         /* [count] rows in the device's memory */
    const void *from; /* rows in the device's memory, or in memory of allocate_host */
    size_t bytes;     /* bytes of a row, a multiple of 2; 0 to skip it */
    size_t apart;     /* bytes between two rows of `from`, a multiple of 2; 0: `bytes` */
  } of[2];            /* x and y */
  /* If planes[0] is not NULL: x's rows are floats, of[0].to is not written but planes [count, floats of a
   * row], byte for byte as mn_round writes them: rows i·batch … i·batch + batch − 1 under scales[i], in the
   * device's memory, whose `factor` follows from its `largest`. planes[1] is NULL for one plane. */
  void *planes[2];
  struct mn_scale *scales;
  int64_t batch;
  int far; /* `from` is in host memory: a few multiprocessors load over the link, beside other work */
};
typedef mn_status mn_gather_function(struct mn_device *device, const struct mn_gather *gather);
#define mn_gather(device, ...) (device)->kernels->gather(device, __VA_ARGS__)

/* The multiprocessors that a far gather takes. They saturate the link beside a GEMM that leaves them free
 * (struct mn_device, reserved_sms); alone, half of them do. */
enum { MN_GATHER_MULTIPROCESSORS = 8 };

/* The entries of this header (kernels/kernels.h). */
#define MN_MEMORY(DEVICE, AS, CUDA)                                                                          \
  DEVICE(allocate)                                                                                           \
  DEVICE(release)                                                                                            \
  AS(allocate_host, allocate)                                                                                \
  AS(release_host, release)                                                                                  \
  DEVICE(available)                                                                                          \
  DEVICE(copy)                                                                                               \
  AS(download, copy)                                                                                         \
  DEVICE(zero)                                                                                               \
  DEVICE(synchronize)                                                                                        \
  DEVICE(stamp)                                                                                              \
  DEVICE(elapsed)                                                                                            \
  DEVICE(gather)                                                                                             \
  CUDA(download_beside)

#endif
