/* Launches: some short steps, or one batch, that the device is given at a time. */
#include "train/launch.h"

#define LAUNCH_BYTES ((size_t)256 << 20) /* of rows, at most, in a launch of several steps */

/* Steps in a launch. Several if they are short: then giving each of them would take longer than the step.
 * Each batch starts at a multiple of 256 bytes (mn_loader_spacing), because cuBLASLt chooses its
 * algorithms by alignment, and a step's bytes must not depend on its place in the launch. */
static int64_t steps_a_launch(const struct mn_trainer *t) {
  struct mn_device *device = t->model->device;
  struct mn_rows_form form;
  if (device->type == MN_DEVICE_CPU || t->optimizer->config.accumulate > 1 ||
      mn_rows_form(&form, t->dataset, device) != MN_OK)
    return 1;
  const size_t bytes = (size_t)mn_loader_spacing(t->pass->rows) * (form.x_row + form.y_row);
  int64_t most = (int64_t)(LAUNCH_BYTES / bytes), rows = t->dataset->rows / t->batch;
  if (most > rows) most = rows;
  return most < 1 ? 1 : most > MN_LAUNCH_STEPS ? MN_LAUNCH_STEPS : most;
}

/* The launches are in memory of the pass, except for the pinned part. */
mn_status mn_launches_open(struct mn_trainer *t) {
  struct mn_tape *tape = t->pass->tape;
  struct mn_pinned *pinned;
  MN_TRY(mn_tape_host(tape, (void **)&t->launches, MN_LAUNCHES * sizeof *t->launches));
  MN_TRY(mn_allocate_host(t->model->device, (void **)&pinned, MN_LAUNCHES * sizeof *pinned));
  for (int i = 0; i < MN_LAUNCHES; i++) {
    struct mn_launch *l = &t->launches[i];
    *l = (struct mn_launch){.trainer = t, .pinned = &pinned[i]};
    MN_TRY(mn_tape_device(tape, (void **)&l->rates, MN_LAUNCH_STEPS, sizeof *l->rates));
  }
  t->most = steps_a_launch(t);
  return MN_OK;
}

static mn_status give_batches(void *data) {
  struct mn_launch *l = data;
  struct mn_trainer *t = l->trainer;
  struct mn_tape *tape = t->pass->tape;
  for (int64_t i = l->first; i < l->first + l->count; i++) {
    struct mn_batch batch = mn_batch_part(t->loader, &l->batch, i, t->pass->rows);
    mn_pass_set(t->pass, &batch);
    mn_optimizer_at(t->optimizer, l->rates[i], &l->pinned->results[i].norm);
    tape->results = &l->pinned->results[i].loss;
    tape->mark = mn_launch_mark(l, i);
    MN_TRY(mn_tape_step(tape));
    if (l->updates) MN_TRY(mn_optimizer_step(t->optimizer, tape));
  }
  return MN_OK;
}

/* A whole launch is one graph for each buffer and number of batches. The first launch with an update and the
 * first without run uncaptured, so that cuBLASLt picks its algorithms; part of a launch, and
 * batches that measure scales, are never captured. */
mn_status mn_launch_give(struct mn_launch *l, int64_t first, int64_t count) {
  struct mn_trainer *t = l->trainer;
  struct mn_tape *tape = t->pass->tape;
  const int number = (int)(l - t->launches) * (MN_LAUNCH_STEPS + 1) + (l->updates ? (int)l->batches : 0);
  l->first = first, l->count = count;
  if (t->ran[l->updates] && !tape->measure && count == l->batches)
    return mn_tape_graph(tape, number, give_batches, l);
  t->ran[l->updates] |= l->count > tape->measure; /* of the batches the first alone measures */
  return give_batches(l);
}

mn_status mn_launch_wait(struct mn_launch *l) {
  struct mn_trainer *t = l->trainer;
  double idle;
  if (l->done) return MN_OK;
  l->done = 1;
  MN_TRY(mn_ahead_wait(t->model->device, &idle));
  if (l->follows) t->times.waiting += idle * 1e-3;
  return MN_OK;
}
