/* The few passes over memory that are not an epilogue. */
#ifndef MN_KERNELS_ELEMENTWISE_H
#define MN_KERNELS_ELEMENTWISE_H

#include "kernels/types.h"

/* y = a + b, element by element over [rows, cols] of y; y's forms that are not NULL are written. y->real may
 * be a or b. */
typedef mn_status mn_add_function(struct mn_device *device, struct mn_operand *y, const void *a,
                                  const void *b);

/* operand->bf16 = operand->real rounded to bfloat16 (nearest, ties to even; NaN stays NaN); clears stale. */
typedef mn_status mn_round_function(struct mn_device *device, struct mn_operand *operand);

/* out[i] = from[i] rounded to float (nearest, ties to even; beyond a float's range infinity), 0 ≤ i < count,
 * count > 0. Where the reals are floats, a copy. The two must not overlap. */
typedef mn_status mn_narrow_function(struct mn_device *device, float *out, const void *from, int64_t count);

#endif
