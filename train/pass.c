/* Recording passes over a model, and loading batches. */
#include "train/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "engine/hooks.h"
#include "layers/stack.h"

/* Records layers 0 … count − 1, from x to y. */
static mn_status record_layers(struct mn_pass *pass, int count) {
  const struct mn_tape_hooks *hooks = pass->model->device->hooks;
  pass->y = pass->x;
  for (int i = 0; i < count; i++) {
    const struct mn_layer *layer = &pass->model->layers[i];
    MN_TRY(layer->kind->record(pass->tape, &pass->y, pass->y, layer));
    snprintf(pass->y->name, sizeof pass->y->name, "the output of %s", layer->name);
    if (!hooks) continue; /* a shard has named its own columns, in which a fault may be looked for */
    MN_TRY(hooks->record_allgather(pass->tape, &pass->y, layer->whole, i + 1 < pass->model->depth));
    snprintf(pass->y->name, sizeof pass->y->name, "the output of %s", layer->name);
  }
  return MN_OK;
}

static mn_status record(struct mn_pass *pass, const struct mn_pass_config *config) {
  const enum mn_pass_kind kind = config->kind;
  const struct mn_model *m = pass->model;
  const struct mn_model_config *c = &m->config;
  const struct mn_layer *last = &m->layers[m->depth - 1];
  struct mn_tape *tape = pass->tape;
  pass->reads_y = kind == MN_PASS_EVALUATE || kind == MN_PASS_TRAIN;
  int mse = pass->reads_y && c->loss == MN_LOSS_MSE;
  int fused = mse && kind == MN_PASS_TRAIN && last->kind->record_mse && last->plan >= MN_PLAN_BLOCK;
  MN_TRY(mn_tape_tensor(tape, &pass->x, "the input", pass->rows, c->inputs));
  pass->x->outside = config->outside;
  pass->x->keep = 1;
  pass->x->needs_gradient = config->input_gradient;
  pass->targets = fused ? last->outputs : mn_model_outputs(c);
  pass->first_target = fused ? last->first : 0;
  if (mse) MN_TRY(mn_tape_tensor(tape, &pass->target, "the target", pass->rows, pass->targets));
  if (mse) pass->target->outside = config->outside;
  if (pass->reads_y && !mse && !config->outside)
    MN_TRY(mn_tape_device(tape, (void **)&pass->labels, pass->rows, sizeof(int32_t)));
  if (!config->keep && kind != MN_PASS_SEEDED && mn_stack_fits(tape, pass->x, m->layers, m->depth, !mse))
    MN_TRY(mn_stack_record(tape, &pass->y, pass->x, m->layers, m->depth, pass->target, &pass->labels,
                           config->scale));
  else
    MN_TRY(record_layers(pass, m->depth - fused));
  if (kind == MN_PASS_FORWARD) pass->y->operand = 1;
  for (struct mn_node *node = tape->first; config->keep && node; node = node->next) node->output->keep = 1;
  if (fused && pass->y) {
    MN_TRY(last->kind->record_mse(tape, pass->y, last, pass->target, config->scale));
    pass->y = NULL;
  } else if (pass->reads_y && pass->y) {
    MN_TRY(mn_loss_record(tape, pass->y, pass->target, &pass->labels, config->scale));
  }
  return mn_tape_finish(tape);
}

mn_status mn_pass_record(struct mn_pass **out, struct mn_model *model, const struct mn_pass_config *config) {
  const int64_t rows = config->rows;
  const int trains = config->kind == MN_PASS_TRAIN;
  *out = NULL;
  if (rows < 1) return mn_fail(MN_USAGE, "a batch of %ld rows: at least 1 is needed", (long)rows);
  const struct mn_clipping *clipping = trains ? model->clipping : NULL;
  if (clipping && clipping->rows != rows)
    return mn_fail(MN_USAGE,
                   "a batch of %ld rows, but the optimizer was opened for %ld; it can be opened for 0",
                   (long)rows, (long)clipping->rows);
  int trained = config->input_gradient;
  for (int i = 0; i < model->count; i++) trained |= model->parameters[i]->needs_gradient;
  if (!trained && (trains || config->kind == MN_PASS_SEEDED))
    return mn_fail(MN_USAGE, "a pass without a gradient to compute: open the model's optimizer before it");
  struct mn_pass *pass = *out = calloc(1, sizeof *pass);
  if (!pass) return mn_fail(MN_NO_MEMORY, "no memory for a pass");
  *pass = (struct mn_pass){.model = model, .rows = rows, .batch = config->batch};
  mn_status status = mn_tape_open(&pass->tape, model->device, trains || config->kind == MN_PASS_SEEDED);
  if (status == MN_OK) pass->tape->clipping = clipping;
  if (status == MN_OK && pass->tape->training) pass->tape->changes = &model->changes, model->training++;
  if (status == MN_OK) pass->tape->replicas = (int)(config->batch / rows);
  if (status == MN_OK) status = record(pass, config);
  if (status != MN_OK) mn_pass_close(pass), *out = NULL;
  return status;
}

mn_status mn_pass_open(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind, int64_t rows,
                       double scale, int input_gradient) {
  MN_OPENS(out, model);
  if (kind < MN_PASS_PREDICT || kind > MN_PASS_SEEDED || !isfinite(scale))
    return mn_fail(MN_USAGE, "a pass of kind %d with scale %g: 0 to %d, and a finite scale, work", (int)kind,
                   scale, (int)MN_PASS_SEEDED);
  if (model->device->ranks)
    return mn_fail(MN_USAGE, "a pass whose batches the caller loads is of one rank; there are %d",
                   model->device->ranks->all.size);
  return mn_pass_record(
      out, model,
      &(struct mn_pass_config){
          .kind = kind, .rows = rows, .batch = rows, .scale = scale, .input_gradient = input_gradient});
}

mn_status mn_pass_open_outside(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind,
                               int64_t rows, double scale) {
  int64_t first;
  const int64_t own = mn_own_rows(model->device->ranks, rows, &first);
  return mn_pass_record(
      out, model,
      &(struct mn_pass_config){.kind = kind, .rows = own, .batch = rows, .scale = scale, .outside = 1});
}

void mn_pass_close(struct mn_pass *pass) {
  if (!pass) return;
  if (pass->tape && pass->tape->changes) pass->model->training--;
  mn_tape_close(pass->tape);
  free(pass);
}

int mn_pass_reads_reals(const struct mn_pass *pass) {
  for (const struct mn_node *node = pass->tape->first; node; node = node->next)
    for (int i = 0; i < MN_NODE_INPUTS; i++)
      if (node->inputs[i] == pass->x && !node->operand[i]) return 1;
  return 0;
}

void mn_pass_set(struct mn_pass *pass, const struct mn_batch *batch) {
  MN_REQUIRE(pass->x->outside && batch->rows == pass->rows && batch->x.cols == pass->model->config.inputs);
  MN_REQUIRE((batch->y || !pass->reads_y) && (!pass->target || batch->targets == pass->targets));
  pass->x->value.real = batch->x.real;
  memcpy(pass->x->value.planes, batch->x.planes, sizeof batch->x.planes);
  pass->x->value.scale = batch->x.scale;
  pass->tape->weights = batch->weights;
  if (pass->target)
    pass->target->value.real = batch->y;
  else
    pass->labels = batch->y;
}
