/* The gather: a batch's rows, from wherever they wait, into the matrices that a step reads. */
#ifndef MN_KERNELS_GATHER_H
#define MN_KERNELS_GATHER_H

#include "kernels/types.h"

/* The rows of one matrix. */
struct mn_gathered {
  void *to;         /* [count] rows in the device's memory */
  const void *from; /* rows in the device's memory, or in memory of allocate_host */
  size_t bytes;     /* of a row, a multiple of 2; 0: nothing is gathered */
  size_t apart;     /* bytes between two rows of `from`, a multiple of 2; 0: `bytes` */
};

struct mn_gather {
  int64_t count;       /* of rows */
  const int64_t *rows; /* [count] in the device's memory: row i of each `to` is row rows[i] of its `from`;
                          NULL: row i */
  struct mn_gathered of[2]; /* x and y */
  /* planes[0] not NULL: x's rows are floats, of[0].to is not written but planes [count, floats of a row],
   * byte for byte as mn_round writes them under the scale there is: rows i·batch … i·batch + batch − 1 under
   * scales[i], in the device's memory. planes[1] NULL: there is one. */
  void *planes[2];
  const struct mn_scale *scales;
  int64_t batch;
  int far; /* `from` is in host memory: a few multiprocessors load over the link, beside other work */
};
typedef mn_status mn_gather_function(struct mn_device *device, const struct mn_gather *gather);

/* The multiprocessors that a far gather takes. They saturate the link beside a GEMM that leaves them free
 * (struct mn_device, reserved_sms); half as many do so alone. */
enum { MN_GATHER_MULTIPROCESSORS = 8 };

#endif
