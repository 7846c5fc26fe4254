/* A batch from host memory for a pass of mn_pass_open, as reals of the device's. */
#ifndef MN_TESTS_PASS_LOAD_H
#define MN_TESTS_PASS_LOAD_H

#include "engine/planes.h"
#include "train/pass.h"

/* x [rows, I] reals; y [rows, K] reals under mse, [rows] int32 labels under cross-entropy; NULL: the pass keeps
 * what it had. All of it must stay until the next wait for the device (mn_tape_results). */
static inline mn_status pass_load(struct mn_pass *pass, const void *x, const void *y) {
  struct mn_device *device = pass->model->device;
  pass->loaded = 1, pass->ran = 0;
  MN_TRY(mn_copy(device, pass->x->value.real, x, (size_t)mn_tensor_count(pass->x) * device->real));
  pass->x->value.stale = 1;
  MN_TRY(mn_operand_prepare(device, &pass->x->value));
  if (!y || !pass->reads_y) return MN_OK;
  if (!pass->target) return mn_copy(device, pass->labels, y, (size_t)pass->rows * sizeof(int32_t));
  return mn_copy(device, pass->target->value.real, y, (size_t)mn_tensor_count(pass->target) * device->real);
}

#endif
