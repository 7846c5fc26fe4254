/* Taking, writing and reading the forms. */
#include "engine/forms.h"

#include <string.h>

mn_status mn_forms_take(struct mn_device *device, struct mn_tensor *tensor) {
  static const struct mn_scale first[2] = {{1, 0}, {0, 0}};
  struct mn_operand *w = &tensor->value;
  for (int i = 0; i < device->planes; i++)
    MN_TRY(
        mn_device_allocate_shared(device, tensor->shared, &w->planes[i], w->rows * w->cols, device->plane));
  if (!device->scaled) return MN_OK;
  MN_TRY(mn_device_allocate(device, (void **)&tensor->scales, 2, sizeof *tensor->scales));
  w->scale = &tensor->scales[0];
  w->headroom = MN_HEADROOM_X;
  return mn_copy(device, tensor->scales, first, sizeof first);
}

mn_status mn_forms_take_weight(struct mn_device *device, struct mn_tensor *tensor) {
  struct mn_operand *w = &tensor->value;
  w->split = tensor->rank == 2 && device->precision == MN_BF16;
  w->stale = !w->split;
  if (w->split && device->type == MN_DEVICE_CUDA)
    MN_TRY(mn_device_allocate(device, (void **)&w->low, w->rows * w->cols, sizeof *w->low));
  /* Planes of a shard are taken by all ranks or not at all: ranks agree on the scales, but two planes might
   * fit only some shards if their sizes differ. */
  const int even = !w->whole || w->whole % mn_ranks_shards(device->ranks) == 0;
  if (tensor->rank != 2 || !mn_has_planes(device, w->rows, w->cols) || (device->planes > 1 && !even))
    return MN_OK;
  MN_TRY(mn_forms_take(device, tensor));
  w->headroom = MN_HEADROOM_W;
  return MN_OK;
}

void mn_forms_release(struct mn_device *device, struct mn_tensor *tensor) {
  const int64_t count = mn_tensor_count(tensor);
  mn_device_release(device, tensor->scales, 2, sizeof *tensor->scales);
  mn_device_release(device, tensor->value.low, count, sizeof *tensor->value.low);
  for (int i = 0; i < 2 && !tensor->outside; i++)
    mn_device_release(device, tensor->value.planes[i], count, device->plane);
}

mn_status mn_operand_prepare(struct mn_device *device, struct mn_operand *operand) {
  if (operand->planes[0] && operand->stale) return mn_round(device, operand, 1);
  operand->stale = 0;
  return MN_OK;
}

/* ---- split weights ---- */

/* A split weight is written and read in pieces of this many floats, in pinned memory. */
enum { PIECE = 1 << 20 };

/* Writes the elements of a split weight from `first` on. On CUDA no float stays beside the halves. */
static mn_status split(struct mn_device *device, const struct mn_operand *w, int64_t first, float *floats,
                       int64_t count) {
  struct mn_operand part = *w;
  MN_REQUIRE(first >= 0 && count > 0 && first + count <= w->rows * w->cols);
  part.rows = 1, part.cols = count, part.real = w->low ? floats : (float *)w->real + first;
  part.planes[0] = (char *)w->planes[0] + (size_t)first * device->plane;
  part.low = w->low ? w->low + first : NULL;
  if (!w->low) MN_TRY(mn_copy(device, part.real, floats, (size_t)count * sizeof *floats));
  return mn_round(device, &part, 0);
}

/* The host's next use of the floats is behind the device's. */
static mn_status move_piece(struct mn_device *device, const struct mn_operand *w, float *floats,
                            int64_t first, int64_t count, const struct mn_values *values) {
  const int reads = values->wide || values->narrow;
  for (int64_t i = 0; i < count && values->from; i++) floats[i] = (float)values->from[first + i];
  if (!reads && !values->from)
    MN_TRY(mn_uniform(device, floats, count, values->seed, values->sequence, values->drawn + (uint64_t)first,
                      values->bound));
  MN_TRY(reads ? mn_narrow(device, floats, w, first, count) : split(device, w, first, floats, count));
  MN_TRY(mn_synchronize(device));
  for (int64_t i = 0; i < count && values->wide; i++) values->wide[first + i] = floats[i];
  if (values->narrow) memcpy(values->narrow + first, floats, (size_t)count * sizeof *floats);
  return MN_OK;
}

mn_status mn_forms_move(struct mn_device *device, const struct mn_tensor *tensor,
                        const struct mn_values *values) {
  const int64_t all = mn_tensor_count(tensor), most = all < PIECE ? all : PIECE;
  float *floats;
  mn_status status = MN_OK;
  MN_TRY(mn_allocate_host(device, (void **)&floats, (size_t)most * sizeof *floats));
  for (int64_t first = 0; first < all && status == MN_OK; first += most)
    status =
        move_piece(device, &tensor->value, floats, first, all - first < most ? all - first : most, values);
  mn_release_host(device, floats);
  return status;
}
