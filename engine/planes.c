/* Choosing factors, and measuring. */
#include "engine/planes.h"
#include "engine/hooks.h"

mn_status mn_planes_of_gradient(struct mn_tape *tape, struct mn_operand *dz, const struct mn_tensor *weight) {
  static const struct mn_scale one = {1, 0};
  struct mn_device *device = tape->device;
  for (int i = 0; i < device->planes; i++)
    MN_TRY(mn_tape_device(tape, &dz->planes[i], dz->rows * dz->cols, device->plane));
  if (!device->scaled) return MN_OK;
  dz->headroom = MN_HEADROOM_DZ;
  dz->scale = &weight->scales[1];
  if (weight->uses > 1) {
    MN_TRY(mn_tape_device(tape, (void **)&dz->scale, 1, sizeof *dz->scale));
    MN_TRY(mn_copy(device, dz->scale, &one, sizeof one));
    if (tape->ranks) device->hooks->agree(tape, dz->scale);
  }
  return MN_OK;
}

mn_status mn_planes_choose(struct mn_tape *tape, const struct mn_block *b, struct mn_operand *y) {
  struct mn_scale *of_dz = NULL, *of_y = NULL;
  if (b->dz->scale && tape->measure)
    b->dz->planes[0] = b->dz->planes[1] = NULL;
  else if (b->dz->scale)
    b->dz->real = NULL, of_dz = b->dz->scale;
  if (y && y->scale && b->ops & MN_OP_NORM)
    of_y = y->scale;
  else if (y && y->scale)
    b->y->planes[0] = b->y->planes[1] = NULL, b->y->scale = NULL, y->stale = 1;
  return of_dz || of_y ? mn_rescale(tape->device, of_dz, of_y, b) : MN_OK;
}

mn_status mn_planes_measured(struct mn_tape *tape, struct mn_operand *dz) {
  return dz->scale && tape->measure ? mn_round(tape->device, dz, MN_MEASURE_TOGETHER) : MN_OK;
}
