/* Giving the device steps ahead, and reading their results. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/clock.h"
#include "kernels/ranks/collectives.h"
#include "kernels/text.h"

MN_WORDS(nonfinite, enum mn_nonfinite,
         MN_NONFINITES, [MN_NONFINITE_STOP] = "stop", [MN_NONFINITE_SKIP] = "skip");

enum {
  LAUNCHES = MN_LOADER_BUFFERS, /* under way at once: each has a buffer */
  MOST_STEPS = 16,              /* in a launch */
};
#define LAUNCH_BYTES ((size_t)64 << 20) /* of rows, at most, in a launch of several steps */

/* A launch's host memory that the device reads and writes. */
struct pinned {
  struct {
    double loss, correct, norm;
  } results[MOST_STEPS];              /* of each batch */
  double rates[MOST_STEPS][MN_RATES]; /* of each */
  int nonfinite;                      /* the tape's flag when the launch was done, or taken again */
};

/* What the device is given at a time: some whole optimizer steps or, under accumulation, one batch. */
struct mn_launch {
  struct mn_trainer *trainer;
  int64_t batches;       /* gathered for it */
  int updates;           /* the (last) batch ends an optimizer step */
  struct mn_batch batch; /* all of them */
  double given;          /* mn_seconds() */
  int follows;           /* it was given while the one before was under way */
  int64_t first, count;  /* of its batches, those that are being given */
  int done;              /* it was waited for */
  struct pinned *pinned;
  double (*rates)[MN_RATES]; /* [MOST_STEPS], on the device */
};

static int64_t samples_a_step(const struct mn_trainer *t) {
  return t->batch * t->optimizer->config.accumulate;
}

/* The data must fit the model, and every sample's position an int64, with room to run on (data/loader.h). */
static mn_status check(const struct mn_trainer *t) {
  int64_t each, samples, rows = t->progress.rows, horizon = t->schedule.horizon;
  if (horizon < t->progress.step) horizon = t->progress.step;
  MN_TRY(mn_model_check_data(&t->model->config, "the model", t->dataset, "the data", 1));
  if (!mn_nonfinite_name(t->on_nonfinite))
    return mn_fail(MN_USAGE, "on_nonfinite %d: there is none", (int)t->on_nonfinite);
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

/* Steps in a launch. Several if they are short: then giving each of them would take longer than the step.
 * Each batch must start at a multiple of 256 bytes, because cuBLASLt chooses its algorithms by alignment, and
 * a step's bytes must not depend on its place in the launch. */
static int64_t steps_a_launch(const struct mn_trainer *t) {
  struct mn_device *device = t->model->device;
  struct mn_rows_form form;
  if (device->type == MN_DEVICE_CPU || t->optimizer->config.accumulate > 1 ||
      mn_rows_form(&form, t->dataset, device) != MN_OK)
    return 1;
  int planes = device->scaled && !mn_pass_reads_reals(t->pass) ? device->planes : 0;
  size_t x_row = planes ? (size_t)t->dataset->inputs * device->plane : form.x_row;
  size_t x = (size_t)t->pass->rows * x_row, y = (size_t)t->pass->rows * form.y_row;
  if (t->pass->target) y = y / (size_t)t->dataset->outputs * (size_t)t->pass->targets;
  if (x % 256 || y % 256) return 1;
  int64_t most = (int64_t)(LAUNCH_BYTES / (planes == 2 ? 2 * x + y : x + y)),
          rows = t->dataset->rows / t->batch;
  if (most > rows) most = rows;
  return most < 1 ? 1 : most > MOST_STEPS ? MOST_STEPS : most;
}

/* Allocates the launches in memory of the pass, except for the pinned part. */
static mn_status take_launches(struct mn_trainer *t) {
  struct mn_device *device = t->model->device;
  struct mn_tape *tape = t->pass->tape;
  struct pinned *pinned;
  MN_TRY(mn_tape_host(tape, (void **)&t->launches, LAUNCHES * sizeof *t->launches));
  MN_TRY(device->kernels->allocate_host(device, (void **)&pinned, LAUNCHES * sizeof *pinned));
  for (int i = 0; i < LAUNCHES; i++) {
    struct mn_launch *l = &t->launches[i];
    *l = (struct mn_launch){.trainer = t, .pinned = &pinned[i]};
    l->pinned->nonfinite = 0;
    MN_TRY(mn_tape_device(tape, (void **)&l->rates, MOST_STEPS, sizeof *l->rates));
  }
  return MN_OK;
}

/* The first batch measures its dz, unless an earlier run has left the factor that it would have had. */
static mn_status choose_first(struct mn_trainer *t, int resumed) {
  struct mn_device *device = t->model->device;
  int known = resumed;
  for (int i = 0; i < t->model->count && known; i++) {
    const struct mn_scale *scales = t->model->parameters[i]->scales;
    struct mn_scale dz;
    if (!scales) continue;
    MN_TRY(device->kernels->download(device, &dz, &scales[1], sizeof dz));
    known = dz.factor != 0;
  }
  t->pass->tape->measure = device->scaled && !known;
  return MN_OK;
}

static mn_status prepare(struct mn_trainer *t, const struct mn_trainer_config *given, int resumed) {
  MN_TRY(check(t));
  if (t->batch < 1 || t->batch > t->dataset->rows)
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
  MN_TRY(take_launches(t));
  MN_TRY(mn_optimizer_reset(t->optimizer));
  MN_TRY(choose_first(t, resumed));
  t->most = steps_a_launch(t);
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
  return (struct mn_trainer_config){.schedule = schedule, .batch = 64};
}

mn_status mn_trainer_open(struct mn_trainer **out, struct mn_model *model, struct mn_optimizer *optimizer,
                          struct mn_dataset *dataset, const struct mn_trainer_config *config,
                          const struct mn_progress *from) {
  *out = NULL;
  struct mn_trainer *t = calloc(1, sizeof *t);
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
  if (status == MN_OK)
    *out = t;
  else
    mn_trainer_close(t);
  return status;
}

void mn_trainer_close(struct mn_trainer *t) {
  if (!t) return;
  struct mn_device *device = t->model->device;
  mn_loader_close(t->loader); /* which waits for the device */
  mn_optimizer_at(t->optimizer, NULL, NULL);
  if (t->launches) device->kernels->release_host(device, t->launches->pinned);
  mn_pass_close(t->pass);
  free(t);
}

/* ---- giving ---- */

/* The mark identifies a batch among those under way; see nonfinite in kernels/types.h. */
static int mark_of(const struct mn_launch *l, int64_t batch) {
  return (int)(l - l->trainer->launches) * MOST_STEPS + (int)batch + 1;
}

static mn_status give_batches(void *data) {
  struct mn_launch *l = data;
  struct mn_trainer *t = l->trainer;
  struct mn_tape *tape = t->pass->tape;
  for (int64_t i = l->first; i < l->first + l->count; i++) {
    struct mn_batch batch = mn_batch_part(t->loader, &l->batch, i * t->pass->rows, t->pass->rows);
    MN_TRY(mn_pass_set(t->pass, &batch));
    mn_optimizer_at(t->optimizer, l->rates[i], &l->pinned->results[i].norm);
    tape->results = &l->pinned->results[i].loss;
    tape->mark = mark_of(l, i);
    MN_TRY(mn_tape_step(tape));
    if (l->updates) MN_TRY(mn_optimizer_step(t->optimizer, tape));
  }
  return MN_OK;
}

/* Gives the launch's batches from `first` on. A whole launch is one graph for each buffer and number of
 * batches. The first launch with an update and the first without run uncaptured, so that cuBLASLt picks its
 * algorithms; part of a launch (first > 0), and batches that measure scales, are never captured. */
static mn_status give(struct mn_launch *l, int64_t first) {
  struct mn_trainer *t = l->trainer;
  struct mn_tape *tape = t->pass->tape;
  const int number = (int)(l - t->launches) * (MOST_STEPS + 1) + (l->updates ? (int)l->batches : 0);
  l->first = first, l->count = l->batches - first;
  if (t->ran[l->updates] && !tape->measure && first == 0) return mn_tape_graph(tape, number, give_batches, l);
  t->ran[l->updates] |= l->count > tape->measure;
  return give_batches(l);
}

/* Gathers the launch's batches and uploads its rates. */
static mn_status fill(struct mn_launch *l, int64_t step) {
  struct mn_trainer *t = l->trainer;
  const struct mn_kernels *k = t->model->device->kernels;
  struct mn_device *device = t->model->device;
  int number;
  MN_TRY(mn_loader_fill(t->loader, l->batches * t->batch, &l->batch, &number));
  MN_REQUIRE(l == &t->launches[number]); /* a graph holds the buffer's address */
  for (int64_t i = 0; i < l->batches; i++)
    mn_optimizer_rates(t->optimizer, mn_schedule_rate(&t->schedule, step + i), step + i, l->pinned->rates[i]);
  if (device->type == MN_DEVICE_CPU) t->times.waiting += mn_seconds() - l->given;
  return k->copy(device, l->rates, l->pinned->rates, (size_t)l->batches * sizeof *l->rates);
}

/* ---- reading, and taking again ---- */

/* The position of a run: the step and, under accumulation, the batch with which the next launch begins. */
struct run {
  int64_t step, batch, until;
  int under_way, stop;
};

/* The launches under way, from the oldest, 0, on. */
static struct mn_launch *under_way(const struct mn_trainer *t, const struct run *run, int number) {
  return &t->launches[(t->next + LAUNCHES - run->under_way + number) % LAUNCHES];
}

static mn_status wait_for(struct mn_launch *l) {
  struct mn_trainer *t = l->trainer;
  double idle;
  if (l->done) return MN_OK;
  l->done = 1;
  MN_TRY(t->model->device->kernels->ahead_wait(t->model->device, &idle));
  if (l->follows) t->times.waiting += idle * 1e-3;
  return MN_OK;
}

/* Factors measured on a batch that diverged are of no use to the batches after it, or to another run. */
static mn_status forget_factors(const struct mn_trainer *t) {
  struct mn_device *device = t->model->device;
  for (int i = 0; i < t->model->count; i++) {
    struct mn_scale *scales = t->model->parameters[i]->scales;
    if (scales) MN_TRY(device->kernels->zero(device, &scales[1], sizeof *scales));
  }
  return MN_OK;
}

/* For a batch that is not finite: training has diverged, or the batch's step is to be skipped. Updates since
 * that batch did not write, and its rows are still in the buffer. */
static mn_status give_up(struct mn_launch *l, int64_t batch) {
  struct mn_trainer *t = l->trainer;
  struct mn_batch rows = mn_batch_part(t->loader, &l->batch, batch * t->pass->rows, t->pass->rows);
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
static mn_status lower_flag(struct mn_trainer *t, const struct run *run) {
  for (int i = 1; i < run->under_way; i++) MN_TRY(wait_for(under_way(t, run, i)));
  return mn_tape_clear_nonfinite(t->pass->tape);
}

/* Repeats all batches given after `batch` of the oldest launch. They ran with the flag raised, so they did
 * not change a parameter, a moment or a sum of gradients; all rows are still in the buffers. */
static mn_status give_again(struct mn_launch *l, int64_t batch, const struct run *run) {
  struct mn_trainer *t = l->trainer;
  int raised;
  MN_TRY(give(l, batch + 1));
  for (int i = 1; i < run->under_way; i++) MN_TRY(give(under_way(t, run, i), 0));
  MN_TRY(mn_tape_nonfinite(t->pass->tape, &raised));
  for (int i = 0; i < run->under_way; i++) under_way(t, run, i)->pinned->nonfinite = raised;
  double now = mn_seconds();
  t->times.running += now - t->ended;
  t->ended = now;
  return MN_OK;
}

/* Repeats a batch of the oldest launch that has raised the flag, and all batches given after it. */
static mn_status take_again(struct mn_launch *l, int64_t batch, const struct run *run) {
  struct mn_trainer *t = l->trainer;
  struct mn_tape *tape = t->pass->tape;
  int raised;
  MN_TRY(lower_flag(t, run));
  MN_TRY(mn_model_measure(t->model));
  tape->measure = 1;
  l->first = batch, l->count = 1;
  MN_TRY(give_batches(l));
  MN_TRY(mn_tape_nonfinite(tape, &raised));
  if (raised) return give_up(l, batch);
  t->retaken++;
  return give_again(l, batch, run);
}

/* Skips the step that ends with this batch of the oldest launch. Its batches before the one that is not
 * finite were added to the sums of gradients, which are zeroed. Its batches after that one were not added,
 * but left their factors; these are dropped, and the next batch measures. */
static mn_status skip(struct mn_launch *l, int64_t batch, const struct run *run) {
  struct mn_trainer *t = l->trainer;
  MN_TRY(lower_flag(t, run));
  MN_TRY(mn_optimizer_reset(t->optimizer));
  MN_TRY(forget_factors(t));
  t->pass->tape->measure = t->model->device->scaled;
  return give_again(l, batch, run);
}

/* Ends the step that ends with this batch. */
static void end_step(struct mn_launch *l, int64_t batch) {
  struct mn_trainer *t = l->trainer;
  struct mn_progress *p = &t->progress;
  int clips = t->optimizer->config.clip > 0;
  const double unit = mn_model_loss_unit(t->model);
  t->loss = t->skipping ? NAN : t->sum / t->optimizer->config.accumulate * (unit > 0 ? unit : 1);
  t->norm = t->skipping || !clips ? NAN : l->pinned->results[batch].norm;
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

typedef int tell_function(void *to, const struct mn_trainer *trainer);

/* Waits for the oldest launch and reports its steps, each with an equal share of the time. */
static mn_status collect(struct mn_trainer *t, struct run *run, tell_function *tell, void *to) {
  struct mn_launch *l = under_way(t, run, 0);
  double start = l->follows ? t->ended : l->given;
  MN_TRY(wait_for(l));
  t->ended = mn_seconds();
  t->times.running += t->ended - start;
  for (int64_t i = 0; i < l->batches; i++) {
    if (l->pinned->nonfinite == mark_of(l, i) && !t->skipping)
      MN_TRY(t->model->device->scaled ? take_again(l, i, run) : give_up(l, i));
    t->sum += l->pinned->results[i].loss;
    if (!l->updates) continue;
    if (t->skipping) MN_TRY(skip(l, i, run));
    end_step(l, i);
    t->finished = start + (t->ended - start) * (double)(i + 1) / (double)l->batches;
    if (tell && tell(to, t)) run->stop = 1;
  }
  return MN_OK;
}

static int more(const struct run *run) {
  return run->step < run->until && (!run->stop || run->batch > 0);
}

/* Gives the device the next batches: whole steps or, under accumulation, one batch. */
static mn_status launch(struct mn_trainer *t, struct run *run) {
  struct mn_device *device = t->model->device;
  struct mn_launch *l = &t->launches[t->next];
  int64_t accumulate = t->optimizer->config.accumulate, left = run->until - run->step;
  l->batches = left < t->most ? left : t->most;
  l->updates = run->batch + 1 == accumulate;
  l->follows = run->under_way > 0;
  l->done = 0;
  l->given = mn_seconds();
  MN_TRY(device->kernels->ahead_begin(device));
  mn_status status = fill(l, run->step);
  mn_status ended = device->kernels->ahead_end(device);
  if (status != MN_OK) return status;
  MN_TRY(ended);
  MN_TRY(give(l, 0));
  MN_TRY(device->kernels->ahead_used(device, &l->pinned->nonfinite, t->pass->tape->nonfinite,
                                     sizeof l->pinned->nonfinite));
  t->next = (t->next + 1) % LAUNCHES;
  run->under_way++;
  run->step += l->updates ? l->batches : 0;
  run->batch = (run->batch + 1) % accumulate;
  return MN_OK;
}

/* On the CPU a launch is done when it was given, so there is one at a time. After an error the launches that
 * are under way are waited for all the same: until then they use memory that the caller may want to free. */
mn_status mn_trainer_run(struct mn_trainer *t, int64_t until, tell_function *tell, void *to) {
  struct run run = {.step = t->progress.step, .until = until};
  int most = t->model->device->type == MN_DEVICE_CPU ? 1 : LAUNCHES;
  double read = mn_loader_waited(t->loader);
  mn_status status = mn_outcome_tell(&t->outcome), launched = status;
  while (status == MN_OK && (run.under_way > 0 || (launched == MN_OK && more(&run)))) {
    if (launched == MN_OK && more(&run) && run.under_way < most) {
      launched = launch(t, &run);
      if (launched != MN_OK) mn_outcome_note(&t->outcome, launched);
      continue;
    }
    status = collect(t, &run, tell, to);
    run.under_way--;
  }
  if (status != MN_OK) mn_outcome_note(&t->outcome, status);
  for (; run.under_way > 0; run.under_way--) (void)wait_for(under_way(t, &run, 0));
  t->times.reading += mn_loader_waited(t->loader) - read;
  return mn_outcome_tell(&t->outcome);
}

mn_status mn_trainer_step(struct mn_trainer *t) {
  return mn_trainer_run(t, t->progress.step + 1, NULL, NULL);
}

/* Waiting for less than a tenth of the time is not the bound: without it a run would gain only that tenth. */
static const char *bound_of(const struct mn_trainer *t, double waiting) {
  if (!(waiting >= 0.1)) return "the step";
  if (t->times.reading > 0.5 * t->times.waiting) return "the disk";
  int far = mn_loader_placement(t->loader)->place != MN_PLACE_DEVICE;
  return far && t->model->device->type == MN_DEVICE_CUDA ? "the link" : "the gathering of rows";
}

struct mn_trainer_speed mn_trainer_speed(const struct mn_trainer *t) {
  double samples = (double)(t->times.steps * samples_a_step(t)) / t->times.running;
  double waiting = t->times.waiting / t->times.running;
  return (struct mn_trainer_speed){.samples = samples,
                                   .flops = samples * mn_model_step_flops(t->model),
                                   .waiting = waiting,
                                   .bound = bound_of(t, waiting)};
}
