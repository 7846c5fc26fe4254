/* The sum on the tape: its backward passes dy to both. */
#include "layers/layer.h"

/* Scaled planes are written once the sum is there, because it has no bound before. */
static mn_status forward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_operand *y = &node->output->value, sum = *y;
  if (y->scale) sum.planes[0] = sum.planes[1] = NULL;
  MN_TRY(mn_add(tape->device, &sum, node->inputs[0]->value.real, node->inputs[1]->value.real));
  y->stale = y->scale != NULL;
  return mn_operand_prepare(tape->device, y);
}

static mn_status backward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_tensor *y = node->output;
  for (int i = 0; i < 2; i++)
    if (node->sinks[i])
      MN_TRY(mn_epilogue(tape->device, y->gradient, y->value.rows, y->value.cols, node->sinks[i]));
  return MN_OK;
}

static const struct mn_operation operation = {.forward = forward, .backward = backward};

mn_status mn_add_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *a,
                        struct mn_tensor *b) {
  MN_TRY(mn_tape_tensor(tape, y, "sum", a->value.rows, a->value.cols));
  (*y)->keep = tape->device->scaled;
  return mn_tape_record(tape, &(struct mn_node){.operation = &operation, .inputs = {a, b}, .output = *y});
}
