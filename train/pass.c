/* Recording passes over a model, loading batches, and finding values that are not finite. */
#include "train/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "layers/layer.h"

static void name_output(struct mn_tensor *y, const struct mn_layer *layer) {
  snprintf(y->name, sizeof y->name, "the output of %s", layer->name);
}

/* Records layers 0 … count − 1, from x to y. */
static mn_status record_layers(struct mn_pass *pass, int count) {
  const struct mn_tape_hooks *hooks = pass->model->device->hooks;
  pass->y = pass->x;
  for (int i = 0; i < count; i++) {
    const struct mn_layer *layer = &pass->model->layers[i];
    MN_TRY(layer->kind->record(pass->tape, &pass->y, pass->y, layer));
    name_output(pass->y, layer); /* a shard names its own columns, in which a fault may be looked for */
    if (hooks)
      MN_TRY(hooks->record_allgather(pass->tape, &pass->y, layer->whole, i + 1 < pass->model->depth));
    name_output(pass->y, layer);
  }
  return MN_OK;
}

/* keep: every tensor on the way is kept. outside: the batch is in memory of the caller's. */
static mn_status record(struct mn_pass *pass, enum mn_pass_kind kind, double scale, int input_gradient,
                        int keep, int outside) {
  const struct mn_model *m = pass->model;
  const struct mn_model_config *c = &m->config;
  const struct mn_layer *last = &m->layers[m->depth - 1];
  struct mn_tape *tape = pass->tape;
  int has_loss = kind == MN_PASS_EVALUATE || kind == MN_PASS_TRAIN;
  int mse = has_loss && c->loss == MN_LOSS_MSE;
  int fused = mse && kind == MN_PASS_TRAIN && last->kind->record_mse && last->plan == MN_PLAN_BLOCK;
  pass->reads_y = has_loss;
  MN_TRY(mn_tape_tensor(tape, &pass->x, "the input", pass->rows, c->inputs));
  pass->x->outside = outside;
  pass->x->keep = 1;
  pass->x->needs_gradient = input_gradient;
  pass->targets = fused ? last->outputs : mn_model_outputs(c);
  pass->first_target = fused ? last->first : 0;
  if (mse) MN_TRY(mn_tape_tensor(tape, &pass->target, "the target", pass->rows, pass->targets));
  if (mse) pass->target->outside = outside;
  if (has_loss && !mse && !outside)
    MN_TRY(mn_tape_device(tape, (void **)&pass->labels, pass->rows, sizeof(int32_t)));
  MN_TRY(record_layers(pass, m->depth - fused));
  if (kind == MN_PASS_FORWARD) pass->y->operand = 1;
  for (struct mn_node *node = tape->first; keep && node; node = node->next) node->output->keep = 1;
  if (fused) {
    MN_TRY(last->kind->record_mse(tape, pass->y, last, pass->target, scale));
    pass->y = NULL;
  } else if (has_loss) {
    MN_TRY(mn_loss_record(tape, pass->y, pass->target, &pass->labels, scale));
  }
  return mn_tape_finish(tape);
}

/* rows: this rank's, of a batch of `batch`. */
static mn_status open_pass(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind, int64_t rows,
                           int64_t batch, double scale, int input_gradient, int keep, int outside) {
  *out = NULL;
  if (rows < 1) return mn_fail(MN_USAGE, "a batch of %ld rows: at least 1 is needed", (long)rows);
  const struct mn_clipping *clipping = kind == MN_PASS_TRAIN ? model->clipping : NULL;
  if (clipping && clipping->rows != rows)
    return mn_fail(MN_USAGE,
                   "a batch of %ld rows, but the optimizer was opened for %ld; it can be opened for 0",
                   (long)rows, (long)clipping->rows);
  struct mn_pass *pass = calloc(1, sizeof *pass);
  if (!pass) return mn_fail(MN_NO_MEMORY, "no memory for a pass");
  pass->model = model;
  pass->rows = rows;
  pass->batch = batch;
  mn_status status =
      mn_tape_open(&pass->tape, model->device, kind == MN_PASS_TRAIN || kind == MN_PASS_SEEDED);
  if (status == MN_OK) pass->tape->clipping = clipping;
  if (status == MN_OK) pass->tape->replicas = (int)(batch / rows);
  if (status == MN_OK) status = record(pass, kind, scale, input_gradient, keep, outside);
  if (status != MN_OK) {
    mn_pass_close(pass);
    return status;
  }
  *out = pass;
  return MN_OK;
}

mn_status mn_pass_open(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind, int64_t rows,
                       double scale, int input_gradient) {
  if (model->device->ranks)
    return mn_fail(MN_USAGE, "a pass whose batches the caller loads is of one rank; there are %d",
                   model->device->ranks->all.size);
  return open_pass(out, model, kind, rows, rows, scale, input_gradient, 0, 0);
}

mn_status mn_pass_open_outside(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind,
                               int64_t rows, double scale) {
  int64_t first;
  const int64_t own = mn_own_rows(model->device->ranks, rows, &first);
  return open_pass(out, model, kind, own, rows, scale, 0, 0, 1);
}

void mn_pass_close(struct mn_pass *pass) {
  if (!pass) return;
  mn_tape_close(pass->tape);
  free(pass);
}

int mn_pass_reads_reals(const struct mn_pass *pass) {
  for (const struct mn_node *node = pass->tape->first; node; node = node->next)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->inputs[i] == pass->x && !node->operand[i]) return 1;
  return 0;
}

mn_status mn_pass_set(struct mn_pass *pass, const struct mn_batch *batch) {
  int64_t inputs = pass->model->config.inputs;
  MN_REQUIRE(pass->x->outside);
  if (batch->rows != pass->rows || batch->x.cols != inputs)
    return mn_fail(MN_USAGE, "a batch of %ld rows of %ld for a pass over %ld rows of %ld", (long)batch->rows,
                   (long)batch->x.cols, (long)pass->rows, (long)inputs);
  if (!batch->y && pass->reads_y) return mn_fail(MN_USAGE, "a batch without y for a pass with a loss");
  MN_REQUIRE(!pass->target || batch->targets == pass->targets);
  pass->x->value.real = batch->x.real;
  memcpy(pass->x->value.planes, batch->x.planes, sizeof batch->x.planes);
  pass->x->value.scale = batch->x.scale;
  if (pass->target)
    pass->target->value.real = batch->y;
  else
    pass->labels = batch->y;
  return MN_OK;
}

mn_status mn_pass_load(struct mn_pass *pass, const void *x, const void *y) {
  struct mn_device *device = pass->model->device;
  MN_REQUIRE(!pass->x->outside);
  if (!pass->reads_y) y = NULL;
  if (y && !pass->target)
    MN_TRY(
        mn_labels_check(y, 0, pass->rows, mn_model_outputs(&pass->model->config), "the batch", "the model"));
  MN_TRY(mn_copy(device, pass->x->value.real, x, (size_t)mn_tensor_count(pass->x) * device->real));
  pass->x->value.stale = 1;
  MN_TRY(mn_operand_prepare(device, &pass->x->value));
  if (!y) return MN_OK;
  if (!pass->target) return mn_copy(device, pass->labels, y, (size_t)pass->rows * sizeof(int32_t));
  return mn_copy(device, pass->target->value.real, y, (size_t)mn_tensor_count(pass->target) * device->real);
}

/* Looks for a value that is not finite in a tensor, or in the rows' losses if it is NULL, and notes the
 * first. */
static mn_status look(const struct mn_pass *pass, const struct mn_tensor *tensor, struct mn_fault *out) {
  struct mn_device *device = pass->model->device;
  const char *name = tensor ? tensor->name : "the loss";
  int64_t count = tensor ? mn_tensor_count(tensor) : pass->rows;
  double *values = malloc((size_t)count * sizeof *values);
  if (!values) return mn_fail(MN_NO_MEMORY, "no memory to look at %s", name);
  mn_status status = tensor ? mn_tensor_read(device, tensor, values)
                            : mn_device_read(device, values, mn_loss_rows(pass->tape), count);
  const int64_t at =
      status == MN_OK ? mn_find_outside(values, count, sizeof *values, -INFINITY, INFINITY) : -1;
  free(values);
  out->order++;
  if (at < 0) return status;
  snprintf(out->what, sizeof out->what, "%s", name);
  out->row = tensor ? at / tensor->value.cols : at;
  return MN_OK;
}

/* Looks at the parameters, then at the values of a forward in their order. Rows of a shard's weights are
 * numbered as in the full weight. */
static mn_status find(const struct mn_pass *pass, const struct mn_batch *batch, struct mn_fault *out) {
  const struct mn_model *m = pass->model;
  for (int i = 0; i < m->count; i++) {
    const struct mn_tensor *t = m->parameters[i];
    MN_TRY(look(pass, t, out));
    if (out->row < 0) continue;
    out->parameter = 1;
    if (t->rank == 2) out->row += t->first;
    return MN_OK;
  }
  for (const struct mn_node *node = pass->tape->first; node && out->row < 0; node = node->next)
    MN_TRY(look(pass, node->output, out));
  if (out->row >= 0) out->row += batch->first;
  return MN_OK;
}

/* Among ranks every rank looks at its own values, and all report the fault that came first: the one with the
 * least `order`, and of these the one with the least row. Row −1 is no fault. */
static mn_status agree_on_fault(struct mn_device *device, struct mn_fault *fault) {
  const struct mn_ranks *ranks = device->ranks;
  if (!ranks) return MN_OK;
  struct mn_fault *all = malloc((size_t)ranks->all.size * sizeof *all);
  MN_REQUIRE(all); /* a rank that failed alone would leave the others waiting */
  mn_status status = device->hooks->allgather_host(device, all, fault, sizeof *fault);
  for (const struct mn_fault *f = all; f < all + ranks->all.size && status == MN_OK; f++)
    if (f->row >= 0 &&
        (fault->row < 0 || f->order < fault->order || (f->order == fault->order && f->row < fault->row)))
      *fault = *f;
  free(all);
  return status;
}

/* If each shard has its own columns of the targets, gathers all of them, in memory of the tape's. */
static mn_status gather_targets(struct mn_pass *pass, struct mn_batch *batch) {
  struct mn_device *device = pass->model->device;
  const void *own = batch->y;
  if (!pass->target || batch->targets == pass->targets) return MN_OK;
  batch->targets = pass->targets;
  MN_TRY(mn_tape_device(pass->tape, &batch->y, batch->rows * pass->targets, device->real));
  return mn_allgather(device, batch->y, own, batch->rows, pass->targets, device->real);
}

void mn_pass_explain(struct mn_model *model, const struct mn_batch *batch, struct mn_fault *out) {
  struct mn_pass *pass;
  struct mn_batch whole = *batch;
  enum mn_pass_kind kind = batch->y ? MN_PASS_EVALUATE : MN_PASS_PREDICT;
  *out = (struct mn_fault){.what = "a gradient", .row = -1};
  mn_status status = open_pass(&pass, model, kind, batch->rows, batch->rows, 1, 0, 1, 1);
  if (status == MN_OK) status = gather_targets(pass, &whole);
  if (status == MN_OK) status = mn_pass_set(pass, &whole);
  if (status == MN_OK) status = mn_tape_forward(pass->tape);
  if (status == MN_OK) status = find(pass, batch, out);
  if (status == MN_OK) status = agree_on_fault(model->device, out);
  if (status != MN_OK) *out = (struct mn_fault){.what = "a value", .row = -1};
  mn_pass_close(pass);
}

const char *mn_fault_words(char out[MN_FAULT_WORDS], const struct mn_fault *fault) {
  snprintf(out, MN_FAULT_WORDS, fault->row < 0 ? "%s" : "%s, row %ld", fault->what, (long)fault->row);
  return out;
}

const char *mn_fault_remedy(const struct mn_fault *fault) {
  return fault->parameter ? "take a checkpoint from before that" : "leave such rows out, or scale them";
}
