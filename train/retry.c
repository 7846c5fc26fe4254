/* A batch in which a value is not finite: it is taken again under scales that fit it, with all batches given
 * after it. If that does not help, training has diverged, or the step is left out. */
#include <stdio.h>

#include "kernels/clock.h"
#include "train/launch.h"

/* The first batch measures its dz, unless an earlier run has left the factor that it would have had. */
mn_status mn_retry_open(struct mn_trainer *t, int resumed) {
  struct mn_device *device = t->model->device;
  int known = resumed;
  for (int i = 0; i < t->model->count && known; i++) {
    const struct mn_scale *scales = t->model->parameters[i]->scales;
    struct mn_scale dz;
    if (!scales) continue;
    MN_TRY(mn_download(device, &dz, &scales[1], sizeof dz));
    known = dz.factor != 0;
  }
  t->pass->tape->measure = device->scaled && !known;
  return MN_OK;
}

/* Factors measured on a batch that diverged are of no use to the batches after it, or to another run. */
static mn_status forget_factors(const struct mn_trainer *t) {
  struct mn_device *device = t->model->device;
  for (int i = 0; i < t->model->count; i++) {
    struct mn_scale *scales = t->model->parameters[i]->scales;
    if (scales) MN_TRY(mn_zero(device, &scales[1], sizeof *scales));
  }
  return MN_OK;
}

/* For a batch that is not finite: training has diverged, or the batch's step is to be skipped. Updates since
 * that batch did not write, and its rows are still in the buffer. */
static mn_status give_up(struct mn_launch *l, int64_t batch) {
  struct mn_trainer *t = l->trainer;
  struct mn_batch rows = mn_batch_part(t->loader, &l->batch, batch, t->pass->rows);
  const int64_t skipped = t->progress.skipped_running;
  char where[MN_FAULT_WORDS], more[64] = "";
  MN_TRY(forget_factors(t));
  mn_pass_explain(t->model, &rows, &t->fault);
  t->skipping = t->on_nonfinite == MN_NONFINITE_SKIP && !t->fault.parameter && skipped < MN_SKIPPED_MOST - 1;
  if (t->skipping) return MN_OK;
  if (skipped) snprintf(more, sizeof more, ", after %ld skipped steps in a row", (long)skipped);
  return mn_fail(
      MN_FAILED,
      "training diverged at step %ld: %s is not finite%s; a lower learning rate, a warm-up or clipping "
      "would help",
      (long)t->progress.step + 1, mn_fault_words(where, &t->fault), more);
}

/* Waits for the launches under way, which could raise the flag again, and lowers it. */
static mn_status lower_flag(struct mn_trainer *t, const struct mn_course *run) {
  for (int i = 1; i < run->under_way; i++) MN_TRY(mn_launch_wait(mn_launch_under_way(run, i)));
  return mn_tape_clear_nonfinite(t->pass->tape);
}

/* Repeats all batches given after `batch` of the oldest launch. They ran with the flag raised, so they did
 * not change a parameter, a moment or a sum of gradients; all rows are still in the buffers. */
static mn_status give_again(struct mn_launch *l, int64_t batch, const struct mn_course *run) {
  struct mn_trainer *t = l->trainer;
  int raised;
  MN_TRY(mn_launch_give(l, batch + 1, l->batches - batch - 1));
  for (int i = 1; i < run->under_way; i++) {
    struct mn_launch *later = mn_launch_under_way(run, i);
    MN_TRY(mn_launch_give(later, 0, later->batches));
  }
  MN_TRY(mn_tape_nonfinite(t->pass->tape, &raised));
  for (int i = 0; i < run->under_way; i++) mn_launch_under_way(run, i)->pinned->nonfinite = raised;
  double now = mn_seconds();
  t->times.running += now - t->ended;
  t->ended = now;
  return MN_OK;
}

/* Without scales nothing could be otherwise the second time. With the batch all that were given after it are
 * repeated. */
mn_status mn_retry_batch(struct mn_launch *l, int64_t batch, const struct mn_course *run) {
  struct mn_trainer *t = l->trainer;
  struct mn_tape *tape = t->pass->tape;
  int raised;
  if (!t->model->device->scaled) return give_up(l, batch);
  MN_TRY(lower_flag(t, run));
  MN_TRY(mn_model_measure(t->model));
  tape->measure = 1;
  MN_TRY(mn_launch_give(l, batch, 1));
  MN_TRY(mn_tape_nonfinite(tape, &raised));
  if (raised) return give_up(l, batch);
  t->retaken++;
  return give_again(l, batch, run);
}

/* The step's batches before the one that is not finite were added to the sums of gradients, which are zeroed.
 * Its batches after that one were not added, but left their factors; these are dropped, and the next batch
 * measures. */
mn_status mn_retry_skip(struct mn_launch *l, int64_t batch, const struct mn_course *run) {
  struct mn_trainer *t = l->trainer;
  MN_TRY(lower_flag(t, run));
  MN_TRY(mn_optimizer_reset(t->optimizer));
  MN_TRY(forget_factors(t));
  t->pass->tape->measure = t->model->device->scaled;
  return give_again(l, batch, run);
}
