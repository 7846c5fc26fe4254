/* Finds the value that made a batch's results not finite. */
#include "train/fault.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/hooks.h"
#include "kernels/ranks/collectives.h"

/* Notes the first value of a tensor, or of the rows' losses if it is NULL, that is not finite. */
static mn_status search(const struct mn_pass *pass, const struct mn_tensor *tensor, struct mn_fault *out) {
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
static mn_status find_fault(const struct mn_pass *pass, const struct mn_batch *batch, struct mn_fault *out) {
  const struct mn_model *m = pass->model;
  for (int i = 0; i < m->count; i++) {
    const struct mn_tensor *t = m->parameters[i];
    MN_TRY(search(pass, t, out));
    if (out->row < 0) continue;
    out->parameter = 1;
    if (t->rank == 2) out->row += t->first;
    return MN_OK;
  }
  for (const struct mn_node *node = pass->tape->first; node && out->row < 0; node = node->next)
    MN_TRY(search(pass, node->output, out));
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
  const struct mn_pass_config kept = {.kind = batch->y ? MN_PASS_EVALUATE : MN_PASS_PREDICT,
                                      .rows = batch->rows,
                                      .batch = batch->rows,
                                      .scale = 1,
                                      .keep = 1,
                                      .outside = 1};
  *out = (struct mn_fault){.what = "a gradient", .row = -1};
  mn_status status = mn_pass_record(&pass, model, &kept);
  if (status == MN_OK) status = gather_targets(pass, &whole);
  if (status == MN_OK) mn_pass_set(pass, &whole), status = mn_tape_forward(pass->tape);
  if (status == MN_OK) status = find_fault(pass, batch, out);
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
