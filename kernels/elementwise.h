/* The few passes over memory that are not an epilogue. */
#ifndef MN_KERNELS_ELEMENTWISE_H
#define MN_KERNELS_ELEMENTWISE_H

#include "kernels/types.h"

/* y = a + b, element by element over [rows, cols] of y; y's forms that are not NULL are written, except that
 * planes must not be scaled. y->real may be a or b. */
typedef mn_status mn_add_function(struct mn_device *device, struct mn_operand *y, const void *a,
                                  const void *b);

/* Writes operand's planes from operand->real, which it must have (NaN stays NaN), and clears stale. Where
 * they are scaled: under the factor that there is or, if `measure`, under one that suits the largest
 * |value| and the headroom; *scale->largest is that value then. A value that is not finite is not counted.
 * With `measure` MN_MEASURE_TOGETHER the value is the largest of all ranks' operands, each of which is a
 * shard; every rank calls it then. Of a split weight, whose reals are given beside it, the upper halves
 * alone, for measurements. */
enum { MN_MEASURE_TOGETHER = 2 };
typedef mn_status mn_round_function(struct mn_device *device, struct mn_operand *operand, int measure);

/* Chooses factors before a forward; each may be NULL. *dz: by the largest |dz| that was written under the
 * last factor, with MN_HEADROOM_DZ; where there was none, or one that is not finite, the factor stays.
 * dz->largest becomes 0. *y: by the bound of a block's output, 2·max(1, |slope|)·(√(D − 1)·max |gamma| + max
 * |beta|), since no normalised value is larger than √(D − 1); gamma, beta [C]. */
struct mn_rescaling {
  struct mn_scale *dz, *y;
  const void *gamma, *beta;
  int64_t channels, groups; /* C, G; D = C/G */
  double slope;
};
typedef mn_status mn_rescale_function(struct mn_device *device, const struct mn_rescaling *rescaling);

/* out[i] = from[i] rounded to float (nearest, ties to even; beyond a float's range infinity), 0 ≤ i < count,
 * count > 0. Where the reals are floats, a copy. The two must not overlap. */
typedef mn_status mn_narrow_function(struct mn_device *device, float *out, const void *from, int64_t count);

#endif
