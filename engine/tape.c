/* Recording, finishing and running a tape, and the memory that is freed with it. */
#include "engine/hooks.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/clock.h"

/* An allocation that is freed with the tape: host memory (size 0), device memory, or a tensor. */
struct mn_owned {
  struct mn_owned *next;
  void *memory;
  struct mn_tensor *tensor;
  int64_t count;
  size_t size;
};

mn_status mn_tape_open(struct mn_tape **out, struct mn_device *device, int training) {
  struct mn_tape *tape = *out = calloc(1, sizeof *tape);
  if (!tape) return mn_fail(MN_NO_MEMORY, "no memory for a tape");
  tape->device = device;
  tape->training = training;
  tape->measure = tape->mark = tape->replicas = 1;
  mn_status status = mn_tape_device(tape, (void **)&tape->results, 2, sizeof(double));
  if (status == MN_OK) status = mn_tape_device(tape, (void **)&tape->nonfinite, 1, sizeof(int));
  if (status == MN_OK) status = mn_zero(device, tape->results, 2 * sizeof(double));
  if (status == MN_OK) status = mn_tape_clear_nonfinite(tape);
  if (status == MN_OK && device->hooks)
    status = mn_tape_host(tape, (void **)&tape->ranks, device->hooks->bytes);
  if (status != MN_OK) mn_tape_close(tape), *out = NULL;
  return status;
}

void mn_tape_close(struct mn_tape *tape) {
  if (!tape) return;
  for (int i = 0; i < MN_TAPE_GRAPHS; i++)
    if (tape->graphs[i]) mn_graph_free(tape->device, tape->graphs[i]);
  for (struct mn_owned *owned = tape->owned, *next; owned; owned = next) {
    next = owned->next;
    if (owned->tensor)
      mn_tensor_free(tape->device, owned->tensor);
    else if (owned->size)
      mn_device_release(tape->device, owned->memory, owned->count, owned->size);
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

static mn_status take_memory(struct mn_tape *tape, const struct mn_team *team, void **out, int64_t count,
                             size_t size) {
  struct mn_owned *owned;
  MN_TRY(own(tape, &owned));
  MN_TRY(mn_device_allocate_shared(tape->device, team, out, count, size));
  owned->memory = *out;
  owned->count = count;
  owned->size = size;
  return MN_OK;
}

mn_status mn_tape_device(struct mn_tape *tape, void **out, int64_t count, size_t size) {
  return take_memory(tape, NULL, out, count, size);
}

mn_status mn_tape_shared(struct mn_tape *tape, void **out, int64_t count, size_t size) {
  const struct mn_ranks *ranks = tape->device->ranks;
  return take_memory(tape, ranks ? &ranks->shards : NULL, out, count, size);
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

/* Allocates the buffers that a tensor lacks: the forms that are read, and the gradient, unless the one
 * consumer's GEMM applies the update and the gradient is never stored. */
static mn_status take_buffers(struct mn_tape *tape, struct mn_tensor *tensor, int real, int planes) {
  struct mn_device *device = tape->device;
  int64_t count = mn_tensor_count(tensor);
  if (!tensor->outside && !tensor->value.real && real)
    MN_TRY(mn_device_allocate_shared(device, tensor->shared, &tensor->value.real, count, device->real));
  if (!tensor->outside && !tensor->value.planes[0] && planes) MN_TRY(mn_forms_take(device, tensor));
  if (!tensor->gradient && tape->training && tensor->needs_gradient &&
      (tensor->sink.kind != MN_UPDATE || tensor->uses > 1)) {
    MN_TRY(mn_device_allocate_shared(device, tensor->shared, &tensor->gradient, count, device->real));
    tensor->sink.into = tensor->gradient;
  }
  return MN_OK;
}

static mn_status take_all_buffers(struct mn_tape *tape) {
  for (struct mn_node *node = tape->first; node; node = node->next) {
    for (int i = 0; i < MN_NODE_INPUTS; i++) {
      struct mn_tensor *input = node->inputs[i];
      if (input) MN_TRY(take_buffers(tape, input, !node->operand[i] || input->keep, node->operand[i]));
    }
    if (node->output && node->output->keep) MN_TRY(take_buffers(tape, node->output, 1, 0));
  }
  struct mn_tensor *root = tape->last->output;
  if (!root) return MN_OK;
  int planes = root->operand && mn_has_planes(tape->device, 8, root->value.cols);
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

/* Gives each consumer the sink of the tensor it reads. If a tensor has several consumers, the first in the
 * order of the backward stores and the others add; if the tensor's own sink adds, all of them use that. */
static void give_sinks(struct mn_tape *tape) {
  if (tape->last->output) tape->last->output->stored = 1;
  for (struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++) {
      struct mn_tensor *input = node->inputs[i];
      if (!input || !input->needs_gradient) continue;
      const int own = input->uses == 1 || input->sink.kind == MN_ADD;
      node->sinks[i] = own ? &input->sink : &node->sums[i];
      if (own) continue;
      node->sums[i] =
          (struct mn_epilogue){.kind = input->stored ? MN_ADD : MN_STORE, .into = input->gradient};
      input->stored = 1;
    }
}

mn_status mn_tape_finish(struct mn_tape *tape) {
  MN_REQUIRE(tape->last);
  count_uses(tape);
  MN_TRY(take_all_buffers(tape));
  if (tape->training) give_sinks(tape);
  if (tape->ranks) MN_TRY(tape->device->hooks->finish(tape));
  for (struct mn_node *node = tape->first; node; node = node->next)
    if (node->operation->bind) MN_TRY(node->operation->bind(tape, node));
  return MN_OK;
}

void mn_tape_resize(struct mn_tape *tape, struct mn_tensor *x, int64_t rows) {
  tape->largest_product *= (double)rows / (double)x->value.rows;
  x->value.rows = rows;
  for (struct mn_node *node = tape->first; node; node = node->next) {
    node->output->value.rows = rows;
    if (node->operation->resize) node->operation->resize(node, rows);
  }
}

mn_status mn_tape_run(struct mn_tape *tape, mn_status (*run)(void *data), void *data) {
  struct mn_device *device = tape->device;
  int *nonfinite = device->nonfinite, mark = device->mark;
  mn_count_change(tape->changes);
  const enum mn_team_size team = device->team;
  device->nonfinite = tape->nonfinite;
  device->mark = tape->mark;
  static const double shared[] = {
      [MN_FEWER_THREADS] = MN_TAPE_MEDIUM, [MN_ASKED_THREADS] = MN_TAPE_SMALL, [MN_ALL_THREADS] = 0};
  if (device->type == MN_DEVICE_CPU && tape->largest_product < shared[device->all_threads])
    device->team = tape->largest_product < MN_TAPE_SMALL ? MN_TEAM_ONE : MN_TEAM_HALF;
  mn_status status = run(data);
  device->team = team;
  device->nonfinite = nonfinite;
  device->mark = mark;
  return status;
}

static mn_status forward(void *data) {
  struct mn_tape *tape = data;
  for (struct mn_node *node = tape->first; node; node = node->next) {
    mn_heartbeat();
    MN_TRY(node->operation->forward(tape, node));
  }
  return tape->ranks ? tape->device->hooks->forwarded(tape) : MN_OK;
}

static mn_status apply_sink(struct mn_tape *tape, const struct mn_tensor *t) {
  return mn_epilogue(tape->device, t->gradient, t->value.rows, t->value.cols, &t->sink);
}

/* Applies the sinks of parameters that several nodes share (tied weights) after the whole backward: by then
 * every consumer has added its gradient and read the old value. Exactly one of them stores instead of adding,
 * so each sink is applied once. */
static mn_status finish_shared(struct mn_tape *tape) {
  for (const struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->sums[i].into && node->sums[i].kind == MN_STORE &&
          (node->inputs[i]->sink.kind == MN_UPDATE || node->inputs[i]->sink.kind == MN_REDUCE_SCATTER_ROWS))
        MN_TRY(apply_sink(tape, node->inputs[i]));
  return MN_OK;
}

static mn_status update_node(struct mn_tape *tape, struct mn_node *node) {
  mn_heartbeat();
  return node->operation->update ? node->operation->update(tape, node) : MN_OK;
}

/* The scale of the updates, by the norm of all gradients, which are not stored. */
static mn_status clip(struct mn_tape *tape) {
  const struct mn_clipping *c = tape->clipping;
  int64_t count = 0;
  for (struct mn_node *node = tape->last; node; node = node->previous) {
    mn_heartbeat();
    if (node->operation->square) MN_TRY(node->operation->square(tape, node, c, &count));
  }
  return mn_clip(tape->device, c->scale, c->norm, c->squares, count, c->max);
}

static mn_status run_backward(struct mn_tape *tape) {
  for (struct mn_node *node = tape->last; node; node = node->previous) {
    mn_heartbeat();
    MN_TRY(node->operation->backward(tape, node));
    if (!tape->early) continue;
    MN_TRY(mn_branch_fork(tape->device, MN_BRANCH_SUMS));
    MN_TRY(update_node(tape, node));
  }
  if (tape->ranks) MN_TRY(tape->device->hooks->before_updates(tape));
  if (tape->early) return MN_OK;
  if (tape->clipping) MN_TRY(clip(tape));
  MN_TRY(mn_branch_fork(tape->device, MN_BRANCH_SUMS));
  for (struct mn_node *node = tape->last; node; node = node->previous) MN_TRY(update_node(tape, node));
  return MN_OK;
}

static mn_status backward(void *data) {
  struct mn_tape *tape = data;
  MN_TRY(mn_branch_fork(tape->device, MN_BRANCH_SUMS));
  mn_status status = run_backward(tape);
  const mn_status joined = mn_branch_join(tape->device, MN_BRANCH_SUMS);
  if (status == MN_OK) status = joined;
  if (status == MN_OK) status = finish_shared(tape);
  return tape->ranks ? tape->device->hooks->ended(tape, status) : status;
}

static int measures(const struct mn_tape *tape) {
  return tape->training && tape->measure && tape->device->scaled;
}

static mn_status run_all(void *data) {
  struct mn_tape *tape = data;
  tape->ran |= !measures(tape);
  if (!tape->training) return forward(tape);
  tape->stepping = 1;
  mn_status status = forward(tape);
  if (status == MN_OK) status = backward(tape);
  tape->stepping = tape->measure = 0;
  return status;
}

mn_status mn_tape_step(struct mn_tape *tape) {
  return mn_tape_run(tape, run_all, tape);
}

static mn_status step(void *data) {
  return mn_tape_step(data);
}

mn_status mn_tape_replay(struct mn_tape *tape, int number) {
  return tape->ran && !measures(tape) ? mn_tape_graph(tape, number, step, tape) : mn_tape_step(tape);
}

mn_status mn_tape_forward(struct mn_tape *tape) {
  tape->measure = 1;
  return mn_tape_run(tape, forward, tape);
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
  MN_TRY(mn_download(tape->device, results, tape->results, sizeof results));
  *loss = results[0];
  if (correct) *correct = results[1];
  return MN_OK;
}

mn_status mn_tape_nonfinite(struct mn_tape *tape, int *raised) {
  return mn_download(tape->device, raised, tape->nonfinite, sizeof *raised);
}

mn_status mn_tape_clear_nonfinite(struct mn_tape *tape) {
  return mn_zero(tape->device, tape->nonfinite, sizeof *tape->nonfinite);
}
