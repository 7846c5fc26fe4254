/* A loop of one's own. For each step mn_optimizer_rate; for each of its batches mn_pass_arrays or
 * mn_pass_labelled, then mn_pass_step or, with a loss of one's own, mn_pass_forward and mn_pass_backward;
 * then mn_optimizer_step. x, y and their gradients are floats on the host in their own units, whatever the
 * device's reals and the model's standards are; when a call returns they are not read any more. */
#ifndef MN_TRAIN_STEPS_H
#define MN_TRAIN_STEPS_H

#include "train/pass.h"

/* Loads a batch: x [rows, I], and for a pass with a loss y [rows, K] or labels [rows]. MN_USAGE: not the
 * targets that the model's loss takes. MN_BAD_DATA: a label that is not from 0 to K − 1. MN_NO_MEMORY. */
MN_API mn_status mn_pass_arrays(struct mn_pass *pass, const float *x, const float *y);
MN_API mn_status mn_pass_labelled(struct mn_pass *pass, const float *x, const int32_t *labels);

/* Runs a pass with a loss on the batch that was loaded, and waits for it. *loss: the mean over the rows, as a
 * trainer's; *correct, unless it is NULL: the rows classified correctly. MN_FAILED: a value is not finite,
 * which the message names with its row; the batch has then changed nothing. MN_USAGE: the pass has no loss,
 * or no rate was set. */
MN_API mn_status mn_pass_step(struct mn_pass *pass, double *loss, double *correct);

/* Runs a pass without a loss, and copies y [rows, K] to the host. MN_FAILED as above. */
MN_API mn_status mn_pass_forward(struct mn_pass *pass, float *y);

/* After mn_pass_forward of MN_PASS_SEEDED, once: the gradients of Σ dy·y, for dy [rows, K] on the host, and
 * what the optimizer does with them; x's [rows, I] to `dx`, unless that is NULL. MN_FAILED as above. */
MN_API mn_status mn_pass_backward(struct mn_pass *pass, const float *dy, float *dx);

/* mn_optimizer_step of the model's optimizer. */
MN_API mn_status mn_pass_update(struct mn_pass *pass);

#endif
