/* The forms of a tensor that GEMMs read in place of reals (struct mn_operand): planes, their scales, and the
 * halves of a split weight. */
#ifndef MN_ENGINE_FORMS_H
#define MN_ENGINE_FORMS_H

#include "engine/tensor.h"

/* Takes the planes of a matrix and, if they are scaled, its scales, with the factors 1 and 0. */
mn_status mn_forms_take(struct mn_device *device, struct mn_tensor *tensor);

/* Takes a weight's planes, if its size can have them, and if it is split on CUDA its lower halves, in place
 * of reals. A vector has neither. */
mn_status mn_forms_take_weight(struct mn_device *device, struct mn_tensor *tensor);

/* Releases these, but planes that are another's (`outside`). */
void mn_forms_release(struct mn_device *device, struct mn_tensor *tensor);

/* Refreshes the planes if they are stale, under a factor that suits the values. */
mn_status mn_operand_prepare(struct mn_device *device, struct mn_operand *operand);

/* Where a split weight's values come from or go to: one of `from`, `wide` and `narrow`, of all values;
 * without these it is written with uniform numbers. */
struct mn_values {
  const double *from;
  uint64_t seed, drawn; /* the first is number `drawn` of its sequence */
  uint32_t sequence;
  double bound;
  double *wide;
  float *narrow;
};
mn_status mn_forms_move(struct mn_device *device, const struct mn_tensor *tensor,
                        const struct mn_values *values);

#endif
