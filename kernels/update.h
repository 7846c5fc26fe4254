/* Clipping: the global gradient norm and the scale from it. The update itself is the MN_UPDATE epilogue; its
 * formula is at struct mn_rule. */
#ifndef MN_KERNELS_UPDATE_H
#define MN_KERNELS_UPDATE_H

#include "kernels/loss.h"

/* *out = Σ a·b, in double, in a fixed order (as mn_reduce), of two vectors that may be one; scratch:
 * mn_reduce_scratch(count) doubles. */
typedef mn_status mn_dot_function(struct mn_device *device, double *out, double *scratch, const void *a,
                                  const void *b, int64_t count);

/* *norm = √max(0, Σ squares[0 … count)) and *scale = min(1, max_norm/(norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_ has them. A norm that is not finite sets the nonfinite flag. All in the
 * device's memory, except that norm may be in memory of allocate_host. */
typedef mn_status mn_clip_function(struct mn_device *device, double *scale, double *norm,
                                   const double *squares, int64_t count, double max_norm);

#endif
