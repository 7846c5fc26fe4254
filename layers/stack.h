/* The narrow stack on the tape: blocks of one width, one behind the other, with a linear head or without,
 * and the loss of a tape that trains, as one node: on a GPU, in 16 bits, if kernels/stack has a kernel for
 * them. */
#ifndef MN_LAYERS_STACK_H
#define MN_LAYERS_STACK_H

#include "layers/layer.h"

/* Whether a tape may record these layers as one node, from x on; has_labels: a loss would be
 * the cross-entropy. */
int mn_stack_fits(const struct mn_tape *tape, const struct mn_tensor *x, const struct mn_layer *layers,
                  int count, int has_labels);

/* Records layers that fit. On a tape that trains the loss too, as mn_loss_record's, as the last node; *y
 * is NULL then, else the layers' output. */
mn_status mn_stack_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                          const struct mn_layer *layers, int count, struct mn_tensor *target,
                          int32_t *const *labels, double scale);

#endif
