/* The planes of gradients on a tape, and the factors under which a step writes scaled planes. A factor is
 * chosen before its values are there: of y by a bound, of dz by the values of the step before. In a step that
 * measures (tape->measure) dz is written as reals, and its planes follow under a factor that suits it. */
#ifndef MN_ENGINE_PLANES_H
#define MN_ENGINE_PLANES_H

#include "engine/tape.h"

/* Takes the planes of dz, the gradient of the product with `weight`. Their scale is the weight's, which a
 * checkpoint keeps, unless several nodes share the weight. */
mn_status mn_planes_of_gradient(struct mn_tape *tape, struct mn_operand *dz, const struct mn_tensor *weight);

/* Before a block's forward: chooses factors, and sets *b->y and *b->dz to the forms of y (NULL without one)
 * and dz that the block's epilogues write. The planes of a y without a bound are left stale. */
mn_status mn_planes_choose(struct mn_tape *tape, const struct mn_block *b, struct mn_operand *y,
                           const struct mn_operand *dz);

/* After the backward: writes the planes of a dz that is measured. */
mn_status mn_planes_measured(struct mn_tape *tape, struct mn_operand *dz);

#endif
