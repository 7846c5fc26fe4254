/* Parameters and their buffers. */
#include "engine/tensor.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/sgd.h"

mn_status mn_tensor_check_shape(const char *name, int64_t rows, int64_t cols) {
  if (rows >= 1 && rows <= INT32_MAX && cols >= 1 && cols <= INT32_MAX) return MN_OK;
  return mn_fail(MN_USAGE, "%s cannot have %ld rows of %ld; 1 to %d of each work", name, (long)rows,
                 (long)cols, INT32_MAX);
}

/* A matrix's planes and, where they are scaled, the scales. */
static mn_status take_planes(struct mn_context *context, struct mn_tensor *tensor) {
  static const struct mn_scale first[2] = {{1, 0}, {0, 0}};
  struct mn_operand *w = &tensor->value;
  struct mn_device *device = context->device;
  if (tensor->rank != 2 || !mn_has_planes(device, w->rows, w->cols)) return MN_OK;
  for (int i = 0; i < device->planes; i++)
    MN_TRY(mn_context_allocate(context, &w->planes[i], w->rows * w->cols, device->plane));
  if (!device->scaled) return MN_OK;
  MN_TRY(mn_context_allocate(context, (void **)&tensor->scales, 2, sizeof *tensor->scales));
  w->scale = &tensor->scales[0];
  w->headroom = MN_HEADROOM_W;
  return context->kernels->upload(device, tensor->scales, first, sizeof first);
}

mn_status mn_tensor_parameter(struct mn_context *context, struct mn_tensor **out, const char *name, int rank,
                              int64_t rows, int64_t cols) {
  *out = NULL;
  MN_TRY(mn_tensor_check_shape(name, rows, cols));
  struct mn_tensor *tensor = calloc(1, sizeof *tensor);
  if (!tensor) return mn_fail(MN_NO_MEMORY, "no memory for parameter %s", name);
  snprintf(tensor->name, sizeof tensor->name, "%s", name);
  tensor->rank = rank;
  tensor->value.rows = rows;
  tensor->value.cols = cols;
  mn_status status = mn_context_allocate(context, &tensor->value.real, rows * cols, context->device->real);
  if (status == MN_OK) status = take_planes(context, tensor);
  if (status != MN_OK) {
    mn_tensor_free(context, tensor);
    return status;
  }
  tensor->value.stale = 1;
  *out = tensor;
  return MN_OK;
}

void mn_tensor_free(struct mn_context *context, struct mn_tensor *tensor) {
  if (!tensor) return;
  int64_t count = mn_tensor_count(tensor);
  if (!tensor->outside) {
    mn_context_release(context, tensor->value.real, count, context->device->real);
    for (int i = 0; i < 2; i++)
      mn_context_release(context, tensor->value.planes[i], count, context->device->plane);
  }
  mn_context_release(context, tensor->scales, 2, sizeof *tensor->scales);
  mn_context_release(context, tensor->gradient, count, context->device->real);
  mn_context_release(context, tensor->momentum, count, context->device->real);
  free(tensor);
}

/* Whether the tensor needs a gradient buffer. An update needs none for a vector, whose column sums are never
 * stored as a gradient, nor where the GEMM needs no memory for the product (struct mn_epilogue, into). */
static int needs_buffer(const struct mn_tensor *tensor, enum mn_training how, const struct mn_sgd *sgd) {
  if (how == MN_TRAIN_FROZEN) return 0;
  if (how != MN_TRAIN_UPDATE) return 1;
  return tensor->rank == 2 && !mn_sgd_by_gemm(sgd);
}

static const enum mn_epilogue_kind sinks[] = {[MN_TRAIN_FROZEN] = MN_STORE,
                                              [MN_TRAIN_UPDATE] = MN_UPDATE,
                                              [MN_TRAIN_STORE] = MN_STORE,
                                              [MN_TRAIN_ADD] = MN_ADD};
_Static_assert(sizeof sinks / sizeof *sinks == MN_TRAININGS, "a sink for each way to train");

mn_status mn_tensor_train(struct mn_context *context, struct mn_tensor *tensor, enum mn_training how,
                          const struct mn_sgd *sgd) {
  int64_t count = mn_tensor_count(tensor);
  size_t real = context->device->real;
  if (needs_buffer(tensor, how, sgd) && !tensor->gradient)
    MN_TRY(mn_context_allocate(context, &tensor->gradient, count, real));
  if (how == MN_TRAIN_ADD)
    MN_TRY(context->kernels->zero(context->device, tensor->gradient, (size_t)count * real));
  if (sgd && sgd->momentum != 0 && !tensor->momentum) {
    MN_TRY(mn_context_allocate(context, &tensor->momentum, count, real));
    MN_TRY(context->kernels->zero(context->device, tensor->momentum, (size_t)count * real));
  }
  tensor->needs_gradient = how != MN_TRAIN_FROZEN;
  tensor->update = (struct mn_update){
      .w = &tensor->value, .momentum = tensor->momentum, .sgd = sgd, .clears = how == MN_TRAIN_ADD};
  tensor->sink =
      (struct mn_epilogue){.kind = sinks[how], .into = tensor->gradient, .update = &tensor->update};
  return MN_OK;
}

mn_status mn_operand_prepare(struct mn_context *context, struct mn_operand *operand) {
  if (operand->planes[0] && operand->stale) return context->kernels->round(context->device, operand, 1);
  operand->stale = 0;
  return MN_OK;
}

mn_status mn_tensor_write(struct mn_context *context, struct mn_tensor *tensor, const double *from) {
  MN_TRY(mn_context_write(context, tensor->value.real, from, mn_tensor_count(tensor)));
  tensor->value.stale = 1;
  return mn_operand_prepare(context, &tensor->value);
}

mn_status mn_tensor_read(struct mn_context *context, const struct mn_tensor *tensor, double *to) {
  MN_REQUIRE(tensor->value.real);
  return mn_context_read(context, to, tensor->value.real, mn_tensor_count(tensor));
}
