/* Mean squared error and softmax cross-entropy on the tape. */
#include "layers/layer.h"

enum { Y, TARGET };

struct saved {
  double scale;
  int32_t *const *labels; /* NULL for mse */
  void *parts, *correct;  /* [N] */
  double *scratch;        /* mn_reduction's */
};

/* Writes dy too, if there is a sink, to its `into`; so the sink, which `backward` applies, must not add. */
static mn_status forward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_device *device = tape->device;
  struct saved *saved = node->saved;
  const struct mn_operand *y = &node->inputs[Y]->value;
  const struct mn_epilogue *sink = node->sinks[Y];
  const double rows = (double)y->rows * tape->replicas; /* the batch's */
  const double terms = saved->labels ? rows : rows * (double)y->cols;
  const double scale = saved->scale / tape->replicas;
  void *dy = sink ? sink->into : NULL;
  MN_REQUIRE(!sink || sink->kind != MN_ADD);
  struct mn_reduction sum = {tape->results, saved->scratch, saved->parts, NULL, y->rows, 1 / terms};
  if (!saved->labels) {
    MN_TRY(mn_mse(device, saved->parts, dy, y->real, node->inputs[TARGET]->value.real, tape->weights, y->rows,
                  y->cols, scale));
    return mn_reduce(device, &sum);
  }
  MN_TRY(mn_cross_entropy(device, saved->parts, saved->correct, dy, y->real, *saved->labels, tape->weights,
                          y->rows, y->cols, scale));
  MN_TRY(mn_reduce(device, &sum));
  sum = (struct mn_reduction){tape->results + 1, saved->scratch, saved->correct, NULL, y->rows, 1};
  return mn_reduce(device, &sum);
}

static mn_status backward(struct mn_tape *tape, struct mn_node *node) {
  const struct mn_operand *y = &node->inputs[Y]->value;
  const struct mn_epilogue *sink = node->sinks[Y];
  return sink ? mn_epilogue(tape->device, sink->into, y->rows, y->cols, sink) : MN_OK;
}

static const struct mn_operation operation = {.forward = forward, .backward = backward};

mn_status mn_loss_record(struct mn_tape *tape, struct mn_tensor *y, struct mn_tensor *target,
                         int32_t *const *labels, double scale) {
  struct saved *saved;
  const int64_t rows = y->value.rows;
  MN_TRY(mn_tape_host(tape, (void **)&saved, sizeof *saved));
  MN_TRY(mn_tape_device(tape, &saved->parts, rows, tape->device->real));
  MN_TRY(mn_tape_device(tape, &saved->correct, rows, tape->device->real));
  MN_TRY(mn_tape_device(tape, (void **)&saved->scratch, mn_reduce_scratch(rows), sizeof(double)));
  saved->scale = scale;
  saved->labels = target ? NULL : labels;
  return mn_tape_record(tape,
                        &(struct mn_node){.operation = &operation, .inputs = {y, target}, .saved = saved});
}

const void *mn_loss_rows(const struct mn_tape *tape) {
  MN_REQUIRE(tape->last && tape->last->operation == &operation);
  return ((const struct saved *)tape->last->saved)->parts;
}
