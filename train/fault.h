/* Where on a batch's way through a model a value is not finite. */
#ifndef MN_TRAIN_FAULT_H
#define MN_TRAIN_FAULT_H

#include "train/pass.h"

/* The first value on a batch's way through a model that is not finite. */
struct mn_fault {
  char what[96]; /* "blocks.0.fc.weight", "the output of blocks.1", "the loss", "a gradient" … */
  int64_t row;   /* its row, or −1 */
  int parameter; /* it is a parameter's value, whatever the batch */
  int order;     /* its place in the order of computing */
};

/* After a batch raised its tape's nonfinite flag: finds that value. Runs the batch again, forward and
 * unfused, on tensors of its own; of a batch without y up to the outputs. If that fails, the fault is "a
 * value". */
void mn_pass_explain(struct mn_model *model, const struct mn_batch *batch, struct mn_fault *out);

/* "the output of blocks.1, row 5", for a message. */
enum { MN_FAULT_WORDS = 128 };
const char *mn_fault_remedy(const struct mn_fault *fault); /* of an evaluation or a prediction */
const char *mn_fault_words(char out[MN_FAULT_WORDS], const struct mn_fault *fault);

#endif
