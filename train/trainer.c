/* Giving the device steps ahead, and reading their results. */
#include "train/evaluate.h"
#include "train/launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/ahead.h"
#include "kernels/clock.h"
#include "kernels/ranks/collectives.h"
#include "kernels/text.h"
#include "train/fit.h"
#include "train/limits.h"

MN_WORDS(nonfinite, enum mn_nonfinite,
         MN_NONFINITES, [MN_NONFINITE_STOP] = "stop", [MN_NONFINITE_SKIP] = "skip");

static int64_t samples_a_step(const struct mn_trainer *t) {
  return t->batch * t->optimizer->config.accumulate;
}

/* ---- opening ---- */

int64_t mn_trainer_epoch_end(const struct mn_trainer *t, int64_t step) {
  const int64_t each = samples_a_step(t), rows = t->dataset->rows;
  return ((step * each / rows + 1) * rows - 1) / each + 1;
}

/* The data must fit the model, and every sample's position an int64, with room to run on (data/loader.h). */
static mn_status check_trainer(const struct mn_trainer *t) {
  int64_t each, samples, rows = t->progress.rows, horizon = t->schedule.horizon;
  if (horizon < t->progress.step) horizon = t->progress.step;
  MN_TRY(mn_model_check_data(&t->model->config, "the model", t->dataset, "the data", 1));
  if (t->progress.step < 0) return mn_fail(MN_USAGE, "a run at step %ld: 0 or more", (long)t->progress.step);
  if (rows != t->dataset->rows)
    return mn_fail(MN_BAD_DATA,
                   "the run was trained on %ld rows, but there are %ld now; resume on the same rows",
                   (long)rows, (long)t->dataset->rows);
  if (__builtin_mul_overflow(t->batch, (int64_t)t->optimizer->config.accumulate, &each) ||
      __builtin_mul_overflow(each, horizon, &samples) || samples > INT64_MAX / 2)
    return mn_fail(MN_USAGE,
                   "%ld steps of %d batches of %ld rows are more than 2^62 samples; ask for fewer steps",
                   (long)horizon, t->optimizer->config.accumulate, (long)t->batch);
  return MN_OK;
}

static const struct mn_limit limits[] = {
    MN_LIMIT(mn_trainer_config, batch, INT64, .least = 1, .most = INT32_MAX),
    MN_LIMIT(mn_trainer_config, place, WORD, .words = mn_place_words),
    MN_LIMIT(mn_trainer_config, on_nonfinite, WORD, .words = mn_nonfinite_words),
    {0},
};

static mn_status prepare(struct mn_trainer *t, const struct mn_trainer_config *given, int resumed) {
  MN_TRY(mn_limits_check("a trainer's", given, limits));
  MN_TRY(mn_schedule_check(&given->schedule));
  MN_TRY(check_trainer(t));
  if (t->batch > t->dataset->rows)
    return mn_fail(MN_USAGE, "a batch of %ld rows from data of %ld rows; 1 to %ld work", (long)t->batch,
                   (long)t->dataset->rows, (long)t->dataset->rows);
  const int replicas = mn_ranks_replicas(t->model->device->ranks);
  if (t->batch % replicas)
    return mn_fail(MN_USAGE,
                   "a batch of %ld rows cannot be divided among %d replicas; a multiple of %d would do",
                   (long)t->batch, replicas, replicas);
  /* Allocates the pass and the launches first, so that the rows are placed in the memory left. */
  MN_TRY(mn_pass_open_outside(&t->pass, t->model, MN_PASS_TRAIN, t->batch,
                              1 / (double)t->optimizer->config.accumulate));
  MN_TRY(mn_launches_open(t));
  MN_TRY(mn_optimizer_reset(t->optimizer));
  MN_TRY(mn_retry_open(t, resumed));
  struct mn_loader_config config = {.place = given->place,
                                    .stop = given->stop,
                                    .shuffled = 1,
                                    .seed = t->progress.seed,
                                    .position = t->progress.step * samples_a_step(t),
                                    .samples = t->most * t->batch,
                                    .batch = t->batch,
                                    .reals = mn_pass_reads_reals(t->pass),
                                    .targets = t->pass->targets,
                                    .first_target = t->pass->first_target,
                                    .standard = t->model->standard};
  return mn_loader_open(&t->loader, t->model->device, t->dataset, &config);
}

struct mn_trainer_config mn_trainer_defaults(enum mn_rule_kind rule, int64_t steps) {
  const int64_t warmup = steps < 1000 ? steps / 10 : 100, third = (steps + 2) / 3;
  struct mn_schedule schedule = {MN_SCHEDULE_COSINE, MN_RATE_ADAMW, steps, warmup, third, 0.1};
  if (rule == MN_SGD) schedule.kind = MN_SCHEDULE_CONSTANT, schedule.rate = MN_RATE_SGD;
  return (struct mn_trainer_config){.schedule = schedule, .batch = MN_BATCH};
}

mn_status mn_trainer_open(struct mn_trainer **out, struct mn_model *model, struct mn_optimizer *optimizer,
                          struct mn_dataset *dataset, const struct mn_trainer_config *config,
                          const struct mn_progress *from) {
  MN_OPENS(out, model, optimizer, dataset, config);
  if (optimizer->model != model) return mn_fail(MN_USAGE, "a trainer of a model by the optimizer of another");
  struct mn_trainer *t = *out = calloc(1, sizeof *t);
  if (!t) return mn_fail(MN_NO_MEMORY, "no memory for training");
  *t = (struct mn_trainer){.model = model,
                           .optimizer = optimizer,
                           .dataset = dataset,
                           .schedule = config->schedule,
                           .batch = config->batch,
                           .on_nonfinite = config->on_nonfinite,
                           .loss = NAN,
                           .rate = NAN,
                           .norm = NAN};
  t->progress =
      from ? *from : (struct mn_progress){.seed = config->seed, .rows = dataset->rows, .best = -INFINITY};
  mn_status status = prepare(t, config, from != NULL);
  if (status != MN_OK) mn_trainer_close(t), *out = NULL;
  return status;
}

void mn_trainer_close(struct mn_trainer *t) {
  if (!t) return;
  mn_loader_close(t->loader); /* which waits for the device */
  mn_optimizer_at(t->optimizer, NULL, NULL);
  if (t->launches) mn_release_host(t->model->device, t->launches->pinned);
  mn_pass_close(t->pass);
  free(t);
}

/* ---- the loop ---- */

static int more(const void *data) {
  const struct mn_course *run = data;
  return run->step < run->until && (!run->stop || run->batch > 0);
}

/* Gathers the next batches, whole steps or, under accumulation, one batch, and uploads their rates. */
static mn_status fill(void *data) {
  struct mn_course *run = data;
  struct mn_trainer *t = run->trainer;
  struct mn_device *device = t->model->device;
  struct mn_launch *l = &t->launches[t->next];
  const int64_t end = mn_trainer_epoch_end(t, run->step);
  const int64_t left = (t->tests && end < run->until ? end : run->until) - run->step;
  l->batches = left < t->most ? left : t->most;
  l->updates = run->batch + 1 == t->optimizer->config.accumulate;
  l->follows = run->under_way > 0;
  l->done = 0;
  l->given = mn_seconds();
  MN_TRY(mn_loader_fill(t->loader, l->batches * t->batch, &l->batch));
  for (int64_t i = 0; i < l->batches; i++)
    mn_optimizer_rates(t->optimizer, mn_schedule_rate(&t->schedule, run->step + i), run->step + i,
                       l->pinned->rates[i]);
  if (device->type == MN_DEVICE_CPU) t->times.waiting += mn_seconds() - l->given;
  return mn_copy(device, l->rates, l->pinned->rates, (size_t)l->batches * sizeof *l->rates);
}

static mn_status give(void *data) {
  struct mn_course *run = data;
  struct mn_trainer *t = run->trainer;
  struct mn_device *device = t->model->device;
  struct mn_launch *l = &t->launches[t->next];
  MN_TRY(mn_launch_give(l, 0, l->batches));
  MN_TRY(mn_ahead_used(device, &l->pinned->nonfinite, t->pass->tape->nonfinite, sizeof l->pinned->nonfinite));
  const int64_t end = mn_trainer_epoch_end(t, run->step);
  t->next = (t->next + 1) % MN_LAUNCHES;
  run->step += l->updates ? l->batches : 0;
  run->batch = (run->batch + 1) % t->optimizer->config.accumulate;
  return t->tests && run->step == end ? mn_evaluator_give(t->tests) : MN_OK;
}

/* Ends the step that ends with this batch. */
static void end_step(struct mn_launch *l, int64_t batch) {
  struct mn_trainer *t = l->trainer;
  struct mn_progress *p = &t->progress;
  const double unit = mn_model_loss_unit(t->model);
  t->loss = t->skipping ? NAN : t->sum / t->optimizer->config.accumulate * (unit > 0 ? unit : 1);
  t->norm = t->optimizer->config.clip > 0 && !t->skipping ? l->pinned->results[batch].norm : NAN;
  t->rate = l->pinned->rates[batch][MN_RATE];
  t->skipped = t->skipping ? &t->fault : NULL;
  p->step++;
  p->samples = p->step * samples_a_step(t);
  p->epoch = p->samples / t->dataset->rows;
  p->position = p->samples % t->dataset->rows;
  p->skipped += t->skipping;
  p->skipped_running = t->skipping ? p->skipped_running + 1 : 0;
  t->times.steps++;
  t->sum = 0;
  t->skipping = 0;
}

/* Waits for the oldest launch and reports its steps, each with an equal share of the time. */
static mn_status collect(void *data) {
  struct mn_course *run = data;
  struct mn_trainer *t = run->trainer;
  struct mn_launch *l = mn_launch_under_way(run, 0);
  double start = l->follows ? t->ended : l->given;
  MN_TRY(mn_launch_wait(l));
  t->ended = mn_seconds();
  t->times.running += t->ended - start;
  for (int64_t i = 0; i < l->batches; i++) {
    if (l->pinned->nonfinite == mn_launch_mark(l, i) && !t->skipping) MN_TRY(mn_retry_batch(l, i, run));
    t->sum += l->pinned->results[i].loss;
    if (!l->updates) continue;
    if (t->skipping) MN_TRY(mn_retry_skip(l, i, run));
    end_step(l, i);
    t->finished = start + (t->ended - start) * (double)(i + 1) / (double)l->batches;
    if (run->tell && run->tell(run->to, t)) run->stop = 1;
  }
  return MN_OK;
}

/* On the CPU a launch is done when it was given, so there is one at a time. */
mn_status mn_trainer_run(struct mn_trainer *trainer, int64_t until,
                         int (*tell)(void *to, const struct mn_trainer *trainer), void *to) {
  MN_GIVEN(trainer);
  static const struct mn_ahead calls = {more, fill, give, collect};
  struct mn_course run = {
      .trainer = trainer, .step = trainer->progress.step, .until = until, .tell = tell, .to = to};
  struct mn_device *device = trainer->model->device;
  const int most = device->type == MN_DEVICE_CPU ? 1 : MN_LAUNCHES;
  const double read = mn_loader_waited(trainer->loader);
  mn_status status = mn_ahead_run(device, &calls, &run, most, &run.under_way, &trainer->outcome);
  trainer->times.reading += mn_loader_waited(trainer->loader) - read;
  return status;
}

const struct mn_progress *mn_trainer_progress(const struct mn_trainer *t) {
  return &t->progress;
}

double mn_trainer_loss(const struct mn_trainer *t) {
  return t->loss;
}

double mn_trainer_rate(const struct mn_trainer *t) {
  return t->rate;
}
