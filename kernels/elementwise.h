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

#endif
