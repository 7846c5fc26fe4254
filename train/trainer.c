/* One step of training after the other. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

static int64_t samples_a_step(const struct mn_trainer *t) {
  return t->batch * t->optimizer->config.accumulate;
}

/* The data must fit the model, and every sample's position an int64, with room to run on (data/loader.h). */
static mn_status check(const struct mn_trainer *t) {
  int64_t each, samples, rows = t->progress.rows, horizon = t->schedule.horizon;
  if (horizon < t->progress.step) horizon = t->progress.step;
  MN_TRY(mn_model_check_data(&t->model->config, "the model", t->dataset, "the data", 1));
  if (rows != t->dataset->rows)
    return mn_fail(MN_BAD_DATA,
                   "the run was trained on %ld rows, but there are %ld now; resume on the same rows",
                   (long)rows, (long)t->dataset->rows);
  if (t->schedule.kind == MN_SCHEDULE_STEP && t->schedule.every < 1)
    return mn_fail(MN_USAGE, "a learning rate that drops every %ld steps: 1 or more work",
                   (long)t->schedule.every);
  if (__builtin_mul_overflow(t->batch, (int64_t)t->optimizer->config.accumulate, &each) ||
      __builtin_mul_overflow(each, horizon, &samples) || samples > INT64_MAX / 2)
    return mn_fail(MN_USAGE,
                   "%ld steps of %d batches of %ld rows are more than 2^62 samples; ask for fewer steps",
                   (long)horizon, t->optimizer->config.accumulate, (long)t->batch);
  return MN_OK;
}

mn_status mn_trainer_open(struct mn_trainer **out, struct mn_model *model, struct mn_optimizer *optimizer,
                          struct mn_dataset *dataset, const struct mn_schedule *schedule, int64_t batch,
                          uint64_t seed, const struct mn_progress *from) {
  *out = NULL;
  struct mn_trainer *t = calloc(1, sizeof *t);
  if (!t) return mn_fail(MN_NO_MEMORY, "no memory for training");
  *t = (struct mn_trainer){.model = model,
                           .optimizer = optimizer,
                           .dataset = dataset,
                           .schedule = *schedule,
                           .batch = batch,
                           .loss = NAN,
                           .rate = NAN};
  t->progress = from ? *from : (struct mn_progress){.seed = seed, .rows = dataset->rows, .best = -INFINITY};
  mn_status status = check(t);
  if (status == MN_OK)
    status = mn_loader_open(&t->loader, dataset, model->context->device, batch, t->progress.seed,
                            t->progress.step * samples_a_step(t));
  if (status == MN_OK)
    status = mn_pass_open(&t->pass, model, MN_PASS_TRAIN, batch, 1 / (double)optimizer->config.accumulate, 0);
  if (status == MN_OK)
    *out = t;
  else
    mn_trainer_close(t);
  return status;
}

void mn_trainer_close(struct mn_trainer *t) {
  if (!t) return;
  mn_loader_close(t->loader);
  mn_pass_close(t->pass);
  free(t);
}

/* A raised flag stops every update, so parameters and momentum are still those of the last step. */
static mn_status check_finite(struct mn_trainer *t, const void *x, const void *y) {
  int nonfinite;
  MN_TRY(mn_tape_nonfinite(t->pass->tape, &nonfinite));
  if (!nonfinite && isfinite(t->loss)) return MN_OK;
  char where[256];
  MN_TRY(mn_pass_explain(t->model, t->batch, x, y, where, sizeof where));
  return mn_fail(
      MN_FAILED,
      "training diverged at step %ld: %s is not finite; a lower learning rate, a warm-up or clipping "
      "would help",
      (long)t->progress.step + 1, where);
}

static void count_step(struct mn_trainer *t) {
  struct mn_progress *p = &t->progress;
  p->step++;
  p->samples = p->step * samples_a_step(t);
  p->epoch = p->samples / t->dataset->rows;
  p->position = p->samples % t->dataset->rows;
}

mn_status mn_trainer_step(struct mn_trainer *t) {
  int accumulate = t->optimizer->config.accumulate;
  double sum = 0;
  t->rate = mn_schedule_rate(&t->schedule, t->progress.step);
  MN_TRY(mn_optimizer_rate(t->optimizer, t->rate));
  for (int i = 0; i < accumulate; i++) {
    const void *x, *y;
    MN_TRY(mn_loader_next(t->loader, &x, &y));
    MN_TRY(mn_pass_load(t->pass, x, y));
    MN_TRY(mn_tape_step(t->pass->tape));
    if (i == accumulate - 1) MN_TRY(mn_optimizer_step(t->optimizer, t->pass->tape));
    MN_TRY(mn_tape_results(t->pass->tape, &t->loss, NULL));
    MN_TRY(check_finite(t, x, y));
    sum += t->loss;
  }
  t->loss = sum / accumulate;
  count_step(t);
  return MN_OK;
}
