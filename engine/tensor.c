/* Parameters and their buffers. */
#include "engine/forms.h"

#include <stdio.h>
#include <stdlib.h>

mn_status mn_tensor_check_shape(const char *name, int64_t rows, int64_t cols) {
  if (rows >= 1 && rows <= INT32_MAX && cols >= 1 && cols <= INT32_MAX) return MN_OK;
  return mn_fail(MN_USAGE, "%s cannot have %ld rows of %ld; 1 to %d of each work", name, (long)rows,
                 (long)cols, INT32_MAX);
}

mn_status mn_tensor_parameter(struct mn_device *device, struct mn_tensor **out, const char *name, int rank,
                              int64_t rows, int64_t cols, int64_t first, int64_t whole) {
  *out = NULL;
  MN_TRY(mn_tensor_check_shape(name, rows, cols));
  struct mn_tensor *tensor = *out = calloc(1, sizeof *tensor);
  if (!tensor) return mn_fail(MN_NO_MEMORY, "no memory for parameter %s", name);
  snprintf(tensor->name, sizeof tensor->name, "%s", name);
  tensor->rank = rank;
  tensor->value.rows = rows;
  tensor->value.cols = cols;
  tensor->first = first;
  tensor->whole = whole ? whole : mn_tensor_outputs(tensor);
  if (rank == 2 && rows < whole) tensor->value.whole = whole;
  const int replicas = mn_ranks_replicas(device->ranks);
  if (rank == 2 && replicas > 1 && rows % replicas == 0) tensor->shared = &device->ranks->replicas;
  mn_status status = mn_forms_take_weight(device, tensor);
  if (status == MN_OK && !tensor->value.low)
    status = mn_device_allocate_shared(device, tensor->value.planes[0] ? NULL : tensor->shared,
                                       &tensor->value.real, rows * cols, device->real);
  if (status != MN_OK) mn_tensor_free(device, tensor), *out = NULL;
  return status;
}

void mn_tensor_free(struct mn_device *device, struct mn_tensor *tensor) {
  if (!tensor) return;
  int64_t count = mn_tensor_count(tensor);
  if (!tensor->outside) mn_device_release(device, tensor->value.real, count, device->real);
  mn_forms_release(device, tensor);
  mn_device_release(device, tensor->gradient, count, device->real);
  mn_device_release(device, tensor->update.m, count, device->real);
  mn_device_release(device, tensor->update.v, count, device->real);
  free(tensor);
}

/* Takes `count` reals, all 0, unless *reals are there; or gives them back if they are not kept. */
static mn_status keep_reals(struct mn_device *device, void **reals, int64_t count, int kept) {
  if (kept && *reals) return MN_OK;
  mn_device_release(device, *reals, count, device->real);
  *reals = NULL;
  if (!kept) return MN_OK;
  MN_TRY(mn_device_allocate(device, reals, count, device->real));
  return mn_zero(device, *reals, (size_t)count * device->real);
}

mn_status mn_tensor_train(struct mn_device *device, struct mn_tensor *tensor, enum mn_epilogue_kind how,
                          const struct mn_rule *rule) {
  int64_t count = mn_tensor_count(tensor);
  /* An update does without memory for a vector, whose column sums are never stored as a gradient, and if the
   * GEMM needs none for the product (struct mn_epilogue, into). */
  const int stores =
      how != MN_UPDATE || (tensor->rank == 2 && device->type == MN_DEVICE_CPU && !mn_rule_by_gemm(rule));
  if (stores && !tensor->gradient)
    MN_TRY(mn_device_allocate_shared(device, tensor->shared, &tensor->gradient, count, device->real));
  if (how == MN_ADD) MN_TRY(mn_zero(device, tensor->gradient, (size_t)count * device->real));
  struct mn_update *update = &tensor->update;
  MN_TRY(keep_reals(device, &update->m, count, rule && mn_rule_keeps_m(rule)));
  MN_TRY(keep_reals(device, &update->v, count, rule && mn_rule_keeps_v(rule)));
  update->w = &tensor->value, update->rule = rule, update->clears = how == MN_ADD;
  tensor->needs_gradient = 1;
  tensor->sink = (struct mn_epilogue){.kind = how, .into = tensor->gradient, .update = update};
  if (how == MN_STORE && tensor->shared) tensor->sink.kind = MN_REDUCE_SCATTER_ROWS;
  tensor->summed = how == MN_STORE && !tensor->shared && mn_ranks_replicas(device->ranks) > 1;
  return MN_OK;
}

/* ---- values ---- */

mn_status mn_tensor_write(struct mn_device *device, struct mn_tensor *tensor, const double *from) {
  if (tensor->value.split) return mn_forms_move(device, tensor, &(struct mn_values){.from = from});
  MN_TRY(mn_device_write(device, tensor->value.real, from, mn_tensor_count(tensor)));
  tensor->value.stale = 1;
  return mn_operand_prepare(device, &tensor->value);
}

mn_status mn_tensor_uniform(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed,
                            uint32_t sequence, uint64_t first, double bound) {
  const struct mn_values values = {.seed = seed, .sequence = sequence, .drawn = first, .bound = bound};
  if (tensor->value.split) return mn_forms_move(device, tensor, &values);
  MN_TRY(mn_uniform(device, tensor->value.real, mn_tensor_count(tensor), seed, sequence, first, bound));
  tensor->value.stale = 1;
  return mn_operand_prepare(device, &tensor->value);
}

mn_status mn_tensor_read(struct mn_device *device, const struct mn_tensor *tensor, double *to) {
  if (tensor->value.split) return mn_forms_move(device, tensor, &(struct mn_values){.wide = to});
  MN_REQUIRE(tensor->value.real);
  return mn_device_read(device, to, tensor->value.real, mn_tensor_count(tensor));
}

mn_status mn_tensor_download(struct mn_device *device, const struct mn_tensor *tensor, void *to) {
  if (tensor->value.split) return mn_forms_move(device, tensor, &(struct mn_values){.narrow = to});
  return mn_download(device, to, tensor->value.real, (size_t)mn_tensor_count(tensor) * device->real);
}

mn_status mn_tensor_copy(struct mn_device *device, const struct mn_tensor *tensor, void *to) {
  const int64_t count = mn_tensor_count(tensor);
  if (tensor->value.split) return mn_narrow(device, to, &tensor->value, 0, count);
  return mn_copy(device, to, tensor->value.real, (size_t)count * device->real);
}
