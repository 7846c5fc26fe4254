/* The floats of a split weight (struct mn_operand), whose elements first … first + count − 1 these two write
 * and read: count > 0, all of them inside. The floats are in the device's memory or in that of allocate_host.
 * Infinities and every finite float come back bit for bit, and a NaN as a NaN. */
#ifndef MN_KERNELS_SPLIT_H
#define MN_KERNELS_SPLIT_H

#include "kernels/types.h"

typedef mn_status mn_split_function(struct mn_device *device, struct mn_operand *w, int64_t first,
                                    const float *from, int64_t count);
typedef mn_status mn_join_function(struct mn_device *device, float *to, const struct mn_operand *w,
                                   int64_t first, int64_t count);

#endif
