/* Between a layer whose outputs are divided among the ranks and what reads all of them: y_whole becomes all
 * ranks' y (kernels/ranks/ranks.h). */
#ifndef MN_LAYERS_ALLGATHER_H
#define MN_LAYERS_ALLGATHER_H

#include "engine/tape.h"

/* What the ranks' gradients of the whole are. */
enum mn_whole_gradient {
  MN_GRADIENT_PARTIAL,    /* each is of what its rank's next layer made of it: their sum is the gradient */
  MN_GRADIENT_REPLICATED, /* all the same, as a loss that every rank computes leaves it */
};

/* whole [N, cols] of y [N, this rank's share of cols]; a tensor of the tape, whose device has ranks. Partial
 * is the gradient where the next layer's GEMM reads the whole: then it has planes, if the device has any. */
mn_status mn_allgather_record(struct mn_tape *tape, struct mn_tensor **whole, struct mn_tensor *y,
                              int64_t cols, enum mn_whole_gradient gradient);

#endif
