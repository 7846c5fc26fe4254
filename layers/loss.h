/* The losses: the last operation of a tape. The loss goes to tape->results (mn_tape_results); `scale`
 * multiplies the gradient, not the loss (1/steps under accumulation). MN_USAGE: shapes that differ. */
#ifndef MN_LAYERS_LOSS_H
#define MN_LAYERS_LOSS_H

#include "engine/tape.h"

/* mean((y − target)²) over all elements, as torch.nn.MSELoss. y, target [N, K]. */
MN_API mn_status mn_mse_record(struct mn_tape *tape, struct mn_tensor *y, struct mn_tensor *target,
                               double scale);

/* mean over the rows of −log softmax(y)[label], as torch.nn.CrossEntropyLoss, and the number of rows whose
 * first largest y is at the label. y [N, K]; *labels: int32 [N] on the device, each in 0 … K−1 (another one
 * raises the nonfinite flag). `labels` is borrowed and read at each run, so that it may lead to other labels
 * then. */
MN_API mn_status mn_cross_entropy_record(struct mn_tape *tape, struct mn_tensor *y, int32_t *const *labels,
                                         double scale);

/* After a forward of a tape whose last node is one of these: each row's loss, [N] reals on the device. */
const void *mn_loss_rows(const struct mn_tape *tape);

#endif
