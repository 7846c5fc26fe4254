/* Recording, finishing and replaying a tape, and the memory that is freed with it. */
#include "engine/tape.h"

#include <stdio.h>
#include <stdlib.h>

/* An allocation that is freed with the tape: host memory (size 0), device memory, or a tensor. */
struct mn_owned {
  struct mn_owned *next;
  void *memory;
  struct mn_tensor *tensor;
  int64_t count;
  size_t size;
};

mn_status mn_tape_open(struct mn_tape **out, struct mn_context *context, int training) {
  *out = NULL;
  struct mn_tape *tape = calloc(1, sizeof *tape);
  if (!tape) return mn_fail(MN_NO_MEMORY, "no memory for a tape");
  tape->context = context;
  tape->training = training;
  tape->measure = 1;
  tape->mark = 1;
  mn_status status = mn_tape_device(tape, (void **)&tape->results, 2, sizeof(double));
  if (status == MN_OK) status = mn_tape_device(tape, (void **)&tape->nonfinite, 1, sizeof(int));
  if (status == MN_OK) status = context->kernels->zero(context->device, tape->results, 2 * sizeof(double));
  if (status == MN_OK) status = mn_tape_clear_nonfinite(tape);
  if (status != MN_OK) {
    mn_tape_close(tape);
    return status;
  }
  *out = tape;
  return MN_OK;
}

void mn_tape_close(struct mn_tape *tape) {
  if (!tape) return;
  mn_replay_free(tape->context, &tape->replay);
  for (struct mn_owned *owned = tape->owned, *next; owned; owned = next) {
    next = owned->next;
    if (owned->tensor)
      mn_tensor_free(tape->context, owned->tensor);
    else if (owned->size)
      mn_context_release(tape->context, owned->memory, owned->count, owned->size);
    else
      free(owned->memory);
    free(owned);
  }
  free(tape);
}

static mn_status own(struct mn_tape *tape, struct mn_owned **out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return mn_fail(MN_NO_MEMORY, "no memory for a tape's entry");
  (*out)->next = tape->owned;
  tape->owned = *out;
  return MN_OK;
}

mn_status mn_tape_host(struct mn_tape *tape, void **out, size_t bytes) {
  struct mn_owned *owned;
  MN_TRY(own(tape, &owned));
  owned->memory = *out = calloc(1, bytes);
  return *out ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for a tape's node");
}

static mn_status take_memory(struct mn_tape *tape, enum mn_sharing with, void **out, int64_t count,
                             size_t size) {
  struct mn_owned *owned;
  MN_TRY(own(tape, &owned));
  MN_TRY(mn_context_allocate_shared(tape->context, with, out, count, size));
  owned->memory = *out;
  owned->count = count;
  owned->size = size;
  return MN_OK;
}

mn_status mn_tape_device(struct mn_tape *tape, void **out, int64_t count, size_t size) {
  return take_memory(tape, MN_ALONE, out, count, size);
}

mn_status mn_tape_shared(struct mn_tape *tape, void **out, int64_t count, size_t size) {
  return take_memory(tape, MN_WITH_PARTS, out, count, size);
}

mn_status mn_tape_scale(struct mn_tape *tape, struct mn_scale **out) {
  static const struct mn_scale one = {1, 0};
  MN_TRY(mn_tape_device(tape, (void **)out, 1, sizeof **out));
  return tape->context->kernels->upload(tape->context->device, *out, &one, sizeof one);
}

mn_status mn_tape_tensor(struct mn_tape *tape, struct mn_tensor **out, const char *name, int64_t rows,
                         int64_t cols) {
  MN_TRY(mn_tensor_check_shape(name, rows, cols));
  struct mn_owned *owned;
  MN_TRY(own(tape, &owned));
  struct mn_tensor *tensor = owned->tensor = *out = calloc(1, sizeof *tensor);
  if (!tensor) return mn_fail(MN_NO_MEMORY, "no memory for tensor %s", name);
  snprintf(tensor->name, sizeof tensor->name, "%s", name);
  tensor->rank = 2;
  tensor->value.rows = rows;
  tensor->value.cols = cols;
  return MN_OK;
}

mn_status mn_tape_input(struct mn_tape *tape, struct mn_tensor **out, const char *name, int64_t rows,
                        int64_t cols) {
  MN_TRY(mn_tape_tensor(tape, out, name, rows, cols));
  (*out)->keep = 1;
  return MN_OK;
}

mn_status mn_tape_outside(struct mn_tape *tape, struct mn_tensor **out, const char *name, int64_t rows,
                          int64_t cols) {
  MN_TRY(mn_tape_tensor(tape, out, name, rows, cols));
  (*out)->outside = 1;
  return MN_OK;
}

mn_status mn_tape_record(struct mn_tape *tape, const struct mn_node *recorded) {
  struct mn_node *node;
  MN_TRY(mn_tape_host(tape, (void **)&node, sizeof *node));
  *node = *recorded;
  node->previous = tape->last;
  *(tape->last ? &tape->last->next : &tape->first) = node;
  tape->last = node;
  for (int i = 0; i < MN_NODE_INPUTS; i++)
    if (node->output && node->inputs[i] && node->inputs[i]->needs_gradient) node->output->needs_gradient = 1;
  return MN_OK;
}

/* The planes of a tensor of the tape and, where they are scaled, their scale. */
static mn_status take_planes(struct mn_tape *tape, struct mn_tensor *tensor) {
  struct mn_context *context = tape->context;
  struct mn_operand *value = &tensor->value;
  for (int i = 0; i < context->device->planes; i++)
    MN_TRY(mn_context_allocate_shared(context, tensor->shared, &value->planes[i], mn_tensor_count(tensor),
                                      context->device->plane));
  if (!context->device->scaled) return MN_OK;
  value->headroom = MN_HEADROOM_X;
  return mn_tape_scale(tape, &value->scale);
}

/* Allocates the buffers that a tensor lacks: the forms that are read, and the gradient, unless the one
 * consumer's GEMM applies the update and the gradient is never stored. */
static mn_status take_buffers(struct mn_tape *tape, struct mn_tensor *tensor, int real, int planes) {
  struct mn_context *context = tape->context;
  int64_t count = mn_tensor_count(tensor);
  if (!tensor->outside && !tensor->value.real && real)
    MN_TRY(mn_context_allocate_shared(context, tensor->shared, &tensor->value.real, count,
                                      context->device->real));
  if (!tensor->outside && !tensor->value.planes[0] && planes) MN_TRY(take_planes(tape, tensor));
  if (!tensor->gradient && tape->training && tensor->needs_gradient &&
      (tensor->sink.kind != MN_UPDATE || tensor->uses > 1)) {
    MN_TRY(
        mn_context_allocate_shared(context, tensor->shared, &tensor->gradient, count, context->device->real));
    tensor->sink.into = tensor->gradient;
  }
  return MN_OK;
}

static mn_status take_all_buffers(struct mn_tape *tape) {
  for (struct mn_node *node = tape->first; node; node = node->next) {
    for (int i = 0; i < MN_NODE_INPUTS; i++) {
      struct mn_tensor *input = node->inputs[i];
      if (!input) continue;
      MN_TRY(take_buffers(tape, input, !node->operand[i] || input->keep, node->operand[i]));
    }
    if (node->output && node->output->keep) MN_TRY(take_buffers(tape, node->output, 1, 0));
  }
  struct mn_tensor *root = tape->last->output;
  if (!root) return MN_OK;
  int planes = root->operand && mn_has_planes(tape->context->device, 8, root->value.cols);
  return take_buffers(tape, root, !planes, planes);
}

static void count_uses(struct mn_tape *tape) {
  for (struct mn_node *node = tape->first; node; node = node->next)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->inputs[i]) node->inputs[i]->uses = node->inputs[i]->stored = 0;
  for (struct mn_node *node = tape->first; node; node = node->next)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->inputs[i]) node->inputs[i]->uses++;
}

/* Gives each consumer the sink of what it reads, in the order of the backward. Of several consumers the first
 * that the backward meets stores, the others add. */
static void give_sinks(struct mn_tape *tape) {
  if (tape->last->output) tape->last->output->stored = 1;
  for (struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++) {
      struct mn_tensor *input = node->inputs[i];
      if (!input || !input->needs_gradient) continue;
      node->sinks[i] = input->uses == 1 ? &input->sink : &node->sums[i];
      if (input->uses == 1) continue;
      int first = !input->stored && input->sink.kind != MN_ADD;
      node->sums[i] = (struct mn_epilogue){.kind = first ? MN_STORE : MN_ADD, .into = input->gradient};
      input->stored = 1;
    }
}

static mn_status take_scales(struct mn_tape *tape) {
  size_t nodes = 0;
  for (struct mn_node *node = tape->first; node; node = node->next) nodes++;
  return mn_tape_host(tape, (void **)&tape->scales, nodes * sizeof *tape->scales);
}

static int is_listed(const struct mn_tape *tape, const struct mn_tensor *t) {
  for (int i = 0; i < tape->sum_count; i++)
    if (tape->sums[i].data == t->gradient) return 1;
  return 0;
}

static mn_status list_sums(struct mn_tape *tape) {
  size_t most = 0;
  for (const struct mn_node *node = tape->first; node; node = node->next) most += MN_NODE_INPUTS;
  MN_TRY(mn_tape_host(tape, (void **)&tape->sums, most * sizeof *tape->sums));
  for (const struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++) {
      const struct mn_tensor *t = node->inputs[i];
      if (t && t->summed && !is_listed(tape, t))
        tape->sums[tape->sum_count++] = (struct mn_sum){t->gradient, mn_tensor_count(t)};
    }
  return MN_OK;
}

mn_status mn_tape_finish(struct mn_tape *tape) {
  MN_REQUIRE(tape->last);
  count_uses(tape);
  MN_TRY(take_all_buffers(tape));
  if (tape->training) give_sinks(tape);
  MN_TRY(take_scales(tape));
  MN_TRY(list_sums(tape));
  for (struct mn_node *node = tape->first; node; node = node->next)
    if (node->operation->bind) MN_TRY(node->operation->bind(tape, node));
  return MN_OK;
}

mn_status mn_tape_run(struct mn_tape *tape, mn_status (*run)(void *data), void *data) {
  struct mn_device *device = tape->context->device;
  int *nonfinite = device->nonfinite, mark = device->mark;
  device->nonfinite = tape->nonfinite;
  device->mark = tape->mark;
  mn_status status = run(data);
  device->nonfinite = nonfinite;
  device->mark = mark;
  return status;
}

/* Those of a fused loss are there after a step's updates only. */
static mn_status sum_results(struct mn_tape *tape) {
  if (!tape->divided) return MN_OK;
  const struct mn_sum results = {tape->results, 2};
  return tape->context->kernels->all_reduce(tape->context->device, &results, 1, sizeof *tape->results, NULL);
}

/* Waits for what a gather has left on its branch (struct mn_arrival). */
static mn_status join_parts(struct mn_tape *tape) {
  struct mn_device *device = tape->context->device;
  if (mn_ranks_parts(device->ranks) == 1) return MN_OK;
  MN_TRY(tape->context->kernels->branch_fork(device, MN_BRANCH_PARTS));
  return tape->context->kernels->branch_join(device, MN_BRANCH_PARTS);
}

static mn_status forward(void *data) {
  struct mn_tape *tape = data;
  mn_status status = MN_OK;
  for (struct mn_node *node = tape->first; node && status == MN_OK; node = node->next)
    status = node->operation->forward(tape, node);
  if (tape->stepping && status == MN_OK) return MN_OK; /* the backward joins it */
  const mn_status joined = join_parts(tape);
  if (status == MN_OK) status = joined;
  return status == MN_OK ? sum_results(tape) : status;
}

static mn_status apply_sink(struct mn_tape *tape, const struct mn_tensor *t) {
  return tape->context->kernels->epilogue(tape->context->device, t->gradient, t->value.rows, t->value.cols,
                                          &t->sink);
}

/* Applies the sinks of parameters that several nodes share (tied weights), after the whole backward: all
 * consumers have added their gradients, and none reads the old value any more. Exactly one of them stores
 * instead of adding, so each sink is applied once. */
static mn_status finish_shared(struct mn_tape *tape) {
  for (const struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->sums[i].into && node->sums[i].kind == MN_STORE &&
          (node->inputs[i]->sink.kind == MN_UPDATE || node->inputs[i]->sink.kind == MN_SUM_SHARE))
        MN_TRY(apply_sink(tape, node->inputs[i]));
  return MN_OK;
}

static mn_status update_node(struct mn_tape *tape, struct mn_node *node) {
  return node->operation->update ? node->operation->update(tape, node) : MN_OK;
}

/* Whether copies' sums can go on beside the rest of the backward. Column sums with a loss, of which parts
 * have a part each, wait for these. */
static int sums_early(const struct mn_tape *tape) {
  if (tape->stepping && tape->gathered.whole) return 0;
  for (const struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->inputs[i] && node->inputs[i]->sink.kind == MN_SUM_SHARE) return 1;
  return 0;
}

static mn_status run_backward(struct mn_tape *tape) {
  const struct mn_kernels *k = tape->context->kernels;
  const int early = sums_early(tape);
  for (struct mn_node *node = tape->last; node; node = node->previous) {
    MN_TRY(node->operation->backward(tape, node));
    if (!early) continue;
    MN_TRY(k->branch_fork(tape->context->device, MN_BRANCH_SUMS));
    MN_TRY(update_node(tape, node));
  }
  /* One rank's updates write nothing where another's values are not finite. */
  if (tape->context->device->ranks)
    MN_TRY(k->agree(tape->context->device, tape->stepping ? tape->gathered.whole : NULL, tape->gathered.piece,
                    tape->gathered.rows, tape->gathered.cols));
  if (tape->context->device->ranks && tape->scale_count > 0)
    MN_TRY(k->agree_scales(tape->context->device, tape->scales, tape->scale_count));
  if (early) return MN_OK;
  MN_TRY(k->branch_fork(tape->context->device, MN_BRANCH_SUMS));
  for (struct mn_node *node = tape->last; node; node = node->previous) MN_TRY(update_node(tape, node));
  return MN_OK;
}

/* What is left when all nodes are done, while the copies' sums of weights may go on. */
static mn_status finish_backward(struct mn_tape *tape) {
  MN_TRY(finish_shared(tape));
  if (tape->sum_count > 0)
    MN_TRY(tape->context->kernels->all_reduce(tape->context->device, tape->sums, tape->sum_count,
                                              tape->context->device->real, NULL));
  return tape->stepping ? sum_results(tape) : MN_OK;
}

static mn_status join(struct mn_tape *tape, enum mn_branch which, mn_status before) {
  const mn_status joined = tape->context->kernels->branch_join(tape->context->device, which);
  return before != MN_OK ? before : joined;
}

static mn_status backward(void *data) {
  struct mn_tape *tape = data;
  const struct mn_kernels *k = tape->context->kernels;
  struct mn_device *device = tape->context->device;
  const int spared = device->spared;
  for (int which = 0; which < MN_BRANCHES; which++) MN_TRY(k->branch_fork(device, which));
  mn_status status = run_backward(tape);
  status = join(tape, MN_BRANCH_SUMS, status);
  status = join(tape, MN_BRANCH_PARTS, status);
  if (status == MN_OK) status = finish_backward(tape);
  device->spared = spared;
  return join(tape, MN_BRANCH_COPIES, status);
}

static mn_status run_all(void *data) {
  struct mn_tape *tape = data;
  if (!tape->training) return forward(tape);
  tape->stepping = 1;
  mn_status status = forward(tape);
  if (status == MN_OK) status = backward(tape);
  tape->stepping = tape->measure = 0;
  return status;
}

static mn_status replay(void *data) {
  struct mn_tape *tape = data;
  return mn_replay_run(tape->context, &tape->replay, run_all, tape);
}

mn_status mn_tape_issue(struct mn_tape *tape) {
  return mn_tape_run(tape, run_all, tape);
}

mn_status mn_tape_step(struct mn_tape *tape) {
  MN_REQUIRE(tape->training);
  /* A step that measures works otherwise than those after it, which the graph is of. */
  int measures = tape->measure && tape->context->device->scaled;
  return mn_tape_run(tape, measures ? run_all : replay, tape);
}

mn_status mn_tape_forward(struct mn_tape *tape) {
  tape->measure = 1;
  return mn_tape_run(tape, tape->training ? forward : replay, tape);
}

mn_status mn_tape_backward(struct mn_tape *tape) {
  MN_REQUIRE(tape->training);
  return mn_tape_run(tape, backward, tape);
}

mn_status mn_tape_receive(struct mn_tape *tape, struct mn_node *node) {
  struct mn_tensor *output = node->output;
  if (!output->stored || output->sink.kind == MN_STORE) return MN_OK;
  return apply_sink(tape, output);
}

mn_status mn_tape_results(struct mn_tape *tape, double *loss, double *correct) {
  double results[2];
  MN_TRY(tape->context->kernels->download(tape->context->device, results, tape->results, sizeof results));
  *loss = results[0];
  if (correct) *correct = results[1];
  return MN_OK;
}

mn_status mn_tape_nonfinite(struct mn_tape *tape, int *raised) {
  return tape->context->kernels->download(tape->context->device, raised, tape->nonfinite, sizeof *raised);
}

mn_status mn_tape_clear_nonfinite(struct mn_tape *tape) {
  return tape->context->kernels->zero(tape->context->device, tape->nonfinite, sizeof *tape->nonfinite);
}
