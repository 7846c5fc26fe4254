/* The planes of gradients on a tape, and the factors under which a step writes scaled planes. A factor is
 * chosen before its values are there: of y by a bound, of dz by the values of the step before. In a step that
 * measures (tape->measure) dz is written as reals, and its planes follow under a factor that suits it. */
#ifndef MN_ENGINE_PLANES_H
#define MN_ENGINE_PLANES_H

#include "engine/tape.h"

/* Takes the planes of dz, the gradient of the product with `weight`. Their scale is the weight's, which a
 * checkpoint keeps, unless several nodes share the weight. */
mn_status mn_planes_of_gradient(struct mn_tape *tape, struct mn_operand *dz, const struct mn_tensor *weight);

/* Before a block's forward: chooses the factors of y (NULL without one) and dz. *b->y and *b->dz are copies
 * of them, which lose the forms that the block's epilogues do not write. The planes of a y without a bound
 * are left stale. */
mn_status mn_planes_choose(struct mn_tape *tape, const struct mn_block *b, struct mn_operand *y);

/* After the backward: writes the planes of a dz that is measured. */
mn_status mn_planes_measured(struct mn_tape *tape, struct mn_operand *dz);

#endif
