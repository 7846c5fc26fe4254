/* Recording a narrow stack, and its run. */
#include "layers/stack.h"

enum { X, TARGET, PARAMETERS }; /* inputs; from the last on the parameters, layer by layer */

_Static_assert(MN_NODE_INPUTS >= PARAMETERS + MN_STACK_PARAMETERS, "inputs for all of them");

struct saved {
  struct mn_stack stack;
  int32_t *const *labels;
  struct mn_operand y; /* of a forward alone: the forms that the kernel writes */
};

/* Whether these layers are a stack, and the kernel's argument for it, without operands. */
static int stack_of(struct mn_stack *s, const struct mn_layer *layers, int count, int64_t rows) {
  const struct mn_layer *first = layers, *head = &layers[count - 1];
  const int has_head = head->kind == &mn_linear_kind, depth = count - has_head;
  if (depth < 1 || depth > MN_STACK_DEPTH) return 0;
  *s = (struct mn_stack){.depth = depth, .rows = rows, .inputs = first->inputs};
  s->channels = first->outputs, s->groups = first->groups, s->outputs = has_head ? head->outputs : 0;
  s->eps = first->eps, s->slope = first->slope;
  for (const struct mn_layer *l = first; l < first + depth; l++)
    if (l->plan != MN_PLAN_STACK || l->outputs != s->channels || l->groups != s->groups) return 0;
  /* The kernel applies all sinks at once; the gradients of a parameter that two layers share come in turn. */
  for (const struct mn_layer *l = first + 1; l <= head; l++)
    for (const struct mn_layer *k = first; k < l; k++)
      for (int i = 0; i < l->kind->parameters; i++)
        if (l->parameters[i] == k->parameters[i]) return 0;
  return 1;
}

int mn_stack_fits(const struct mn_tape *tape, const struct mn_tensor *x, const struct mn_layer *layers,
                  int count, int has_labels) {
  struct mn_device *device = tape->device;
  struct mn_operand y = {0};
  struct mn_stack s;
  if (!device->kernels->stack || mn_ranks_shards(device->ranks) > 1 || x->needs_gradient || tape->clipping)
    return 0;
  /* What a replica adds to it cannot take back when another one's values are not finite. */
  if (tape->replicas > 1 && layers->parameters[MN_BLOCK_WEIGHT]->sink.kind == MN_ADD) return 0;
  if (!stack_of(&s, layers, count, x->value.rows) || (tape->training && has_labels && !s.outputs)) return 0;
  s.y = tape->training ? NULL : &y;
  return device->kernels->stack_parts(device, &s) > 0;
}

static mn_status launch(struct mn_tape *tape, struct mn_node *node, const struct mn_epilogue *const *sinks) {
  struct saved *saved = node->saved;
  struct mn_stack *s = &saved->stack;
  s->results = tape->results, s->measures = tape->measure, s->sinks = sinks, s->weights = tape->weights;
  if (node->inputs[TARGET]) s->target = node->inputs[TARGET]->value.real; /* may be another each time */
  if (saved->labels) s->labels = *saved->labels;
  return tape->device->kernels->stack(tape->device, s);
}

static mn_status forward(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  if (!node->output)
    return tape->stepping ? MN_OK : launch(tape, node, NULL); /* in a step `backward` does it all */
  struct mn_operand *y = &node->output->value;
  saved->y = *y;
  if (y->scale && saved->stack.outputs) /* nobody knows the bound of a head's outputs */
    saved->y.planes[0] = NULL, y->stale = 1;
  MN_TRY(launch(tape, node, NULL));
  return mn_operand_prepare(tape->device, y);
}

/* Forward, loss, backward, and the updates: the tape has no other node. */
static mn_status backward(struct mn_tape *tape, struct mn_node *node) {
  MN_TRY(launch(tape, node, node->sinks + PARAMETERS));
  for (int i = PARAMETERS; i < MN_NODE_INPUTS; i++) {
    const struct mn_tensor *t = node->inputs[i];
    if (t && t->sink.kind == MN_REDUCE_SCATTER_ROWS)
      MN_TRY(mn_epilogue(tape->device, t->gradient, t->value.rows, t->value.cols, &t->sink));
  }
  return MN_OK;
}

static void resize(struct mn_node *node, int64_t rows) {
  ((struct saved *)node->saved)->stack.rows = rows;
}

static const struct mn_operation operation = {.forward = forward, .backward = backward, .resize = resize};

mn_status mn_stack_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                          const struct mn_layer *layers, int count, struct mn_tensor *target,
                          int32_t *const *labels, double scale) {
  struct saved *saved;
  MN_TRY(mn_tape_host(tape, (void **)&saved, sizeof *saved));
  struct mn_node node = {.operation = &operation, .inputs = {[X] = x, [TARGET] = target}, .saved = saved};
  struct mn_stack *s = &saved->stack;
  MN_REQUIRE(stack_of(s, layers, count, x->value.rows));
  s->x = &x->value, node.operand[X] = 1;
  for (int l = 0, at = PARAMETERS; l < count; l++) {
    struct mn_tensor *const *of = layers[l].parameters;
    s->layers[l].weight = &of[MN_BLOCK_WEIGHT]->value, s->layers[l].bias = of[MN_BLOCK_BIAS]->value.real;
    if (tape->device->scaled) s->layers[l].dz = &of[MN_BLOCK_WEIGHT]->scales[1];
    if (l < s->depth)
      s->layers[l].gamma = of[MN_BLOCK_GAMMA]->value.real, s->layers[l].beta = of[MN_BLOCK_BETA]->value.real;
    node.operand[at] = 1;
    for (int i = 0; i < layers[l].kind->parameters; i++) node.inputs[at++] = of[i];
  }
  *y = NULL;
  const int64_t outputs = s->outputs ? s->outputs : s->channels;
  if (!tape->training) {
    MN_TRY(mn_tape_tensor(tape, y, "stack", s->rows, outputs));
    (*y)->keep = tape->device->scaled && s->outputs;
    node.output = *y, s->y = &saved->y;
    return mn_tape_record(tape, &node);
  }
  s->factor = 1 / ((double)s->rows * tape->replicas * (target ? (double)outputs : 1));
  s->scale = scale * s->factor * (target ? 2 : 1);
  saved->labels = target ? NULL : labels;
  MN_TRY(mn_tape_device(tape, &s->parts, tape->device->kernels->stack_parts(tape->device, s), sizeof(float)));
  return mn_tape_record(tape, &node);
}
