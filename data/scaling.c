/* Choosing a filling's scales, and writing its planes. */
#include "data/scaling.h"

#include <math.h>
#include <string.h>

#include "kernels/planes.h"

mn_status mn_scaling_open(struct mn_scaling *s, const struct mn_placement *placement, int64_t batches,
                          int64_t room, struct mn_operand x[MN_LOADER_BUFFERS]) {
  struct mn_device *device = placement->device;
  *s =
      (struct mn_scaling){.device = device, .batches = batches, .room = room, .x_row = placement->form.x_row};
  for (int i = 0; i < MN_LOADER_BUFFERS && batches; i++) {
    x[i].headroom = MN_HEADROOM_X;
    MN_TRY(mn_allocate_host(device, (void **)&s->list[i], (size_t)batches * sizeof *s->list[i]));
    MN_TRY(mn_device_allocate(device, (void **)&x[i].scale, batches, sizeof *x[i].scale));
    for (int p = 0; p < device->planes; p++)
      MN_TRY(mn_device_allocate(device, &x[i].planes[p], room * x[i].cols, device->plane));
  }
  if (!batches || placement->place != MN_PLACE_FILE) return MN_OK;
  return mn_device_allocate(device, (void **)&s->apart, room, s->x_row);
}

void mn_scaling_close(struct mn_scaling *s, struct mn_operand x[MN_LOADER_BUFFERS]) {
  for (int i = 0; i < MN_LOADER_BUFFERS && s->batches; i++) {
    mn_release_host(s->device, s->list[i]);
    mn_device_release(s->device, x[i].scale, s->batches, sizeof *x[i].scale);
    for (int p = 0; p < 2; p++)
      mn_device_release(s->device, x[i].planes[p], s->room * x[i].cols, s->device->plane);
  }
  if (s->batches) mn_device_release(s->device, s->apart, s->room, s->x_row);
}

void mn_scaling_note(struct mn_scaling *s, int buffer, int64_t batch, int first, float largest) {
  if (!s->batches) return;
  struct mn_scale *scale = &s->list[buffer][batch];
  scale->largest = fmaxf(first ? 0 : scale->largest, largest);
}

mn_status mn_scaling_choose(struct mn_scaling *s, int buffer, const struct mn_operand *x, int64_t batches) {
  struct mn_scale *list = s->list[buffer];
  if (!s->batches || !batches) return MN_OK;
  for (int64_t i = 0; i < batches; i++) list[i].factor = mn_scale_factor(list[i].largest, MN_HEADROOM_X, 1);
  return mn_copy(s->device, x->scale, list, (size_t)batches * sizeof *list);
}

void mn_scaling_into(const struct mn_operand *x, int64_t share, struct mn_gather *g) {
  memcpy(g->planes, x->planes, sizeof g->planes);
  g->scales = x->scale;
  g->batch = share;
}

mn_status mn_scaling_finish(struct mn_scaling *s, const struct mn_operand *x, int64_t share, int64_t rows) {
  struct mn_gather g = {.count = rows, .of = {{.from = s->apart, .bytes = s->x_row}}};
  mn_scaling_into(x, share, &g);
  return mn_gather(s->device, &g);
}

void mn_scaling_skip(struct mn_operand *x, int64_t batches) {
  if (x->scale) x->scale += batches;
}
