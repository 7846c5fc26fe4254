/* The gather: a batch's rows, from wherever they wait, into the matrix that a step reads. */
#ifndef MN_KERNELS_GATHER_H
#define MN_KERNELS_GATHER_H

#include "kernels/types.h"

struct mn_gather {
  void *to;            /* [count, cols] in the device's memory */
  const void *from;    /* [any, cols] in the device's memory, or in memory of allocate_host */
  const int64_t *rows; /* [count] in the device's memory: row i of `to` is row rows[i] of `from` */
  int64_t count, cols;
  size_t size; /* bytes of an element: 2, 4 or 8 */
  int far;     /* `from` is in host memory: a few multiprocessors load over the link, beside other work */
};
typedef mn_status mn_gather_function(struct mn_device *device, const struct mn_gather *gather);

/* The multiprocessors that a far gather takes. They saturate the link (NOTES.md of kernels/hopper), and a
 * GEMM beside it leaves them free (struct mn_device, spared). */
enum { MN_GATHER_MULTIPROCESSORS = 4 };

#endif
