/* The training loop, and what happens between its steps: evaluation, log, checkpoints, signals. */
#include "train/command/train.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "data/loader.h"
#include "train/checkpoint/snapshot.h"
#include "train/command/log.h"
#include "train/command/plot.h"
#include "train/command/progress_bar.h"
#include "train/command/session.h"
#include "train/evaluate.h"
#include "train/json.h"
#include "train/schedule.h"

static volatile sig_atomic_t interrupted;

static void note_signal(int number) {
  interrupted = number;
}

/* The first signal ends the run after the step at hand; a second one ends the process as usual. */
static mn_status watch_signals(void) {
  struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
  interrupted = 0;
  if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0)
    return mn_fail(MN_LIBRARY, "signals cannot be watched");
  return MN_OK;
}

struct trainer {
  struct mn_session session;
  struct mn_schedule schedule;
  struct mn_pass *pass;
  struct mn_loader *loader;
  struct mn_evaluator *evaluator; /* NULL: nothing to test on */
  struct mn_log log;
  struct mn_progress_bar progress;
  int64_t step, horizon, saved; /* steps done; of the whole run; done at the last save */
  int64_t log_every;
  double loss, rate, save_time;
  double best, test_loss, accuracy; /* NaN before the first evaluation; best: −infinity */
};

static int64_t samples(const struct trainer *t) {
  return t->step * t->session.options.batch * t->session.options.accumulate;
}

static mn_status make_schedule(struct trainer *t) {
  const struct mn_options *o = &t->session.options;
  t->horizon = mn_session_horizon(&t->session);
  t->schedule = (struct mn_schedule){.rate = o->lr,
                                     .horizon = t->horizon,
                                     .warmup = o->warmup,
                                     .every = o->step_every > 0 ? o->step_every : (t->horizon + 2) / 3,
                                     .factor = o->step_factor};
  t->log_every = o->log_every > 0 ? o->log_every : (t->horizon + 999) / 1000;
  return mn_schedule_parse(o->schedule, &t->schedule.kind);
}

static mn_status open(struct trainer *t, const struct mn_options *options) {
  MN_TRY(mn_session_train(&t->session, options));
  const struct mn_options *o = &t->session.options;
  const struct mn_checkpoint *from = t->session.from;
  t->step = t->saved = from ? from->progress.step : 0;
  t->best = from ? from->progress.best : -INFINITY;
  t->loss = t->test_loss = t->accuracy = NAN;
  MN_TRY(make_schedule(t));
  MN_TRY(mn_pass_open(&t->pass, t->session.model, MN_PASS_TRAIN, o->batch, 1 / (double)o->accumulate, 0));
  if (t->session.test)
    MN_TRY(mn_evaluator_open(&t->evaluator, t->session.model, t->session.test, MN_PASS_EVALUATE, o->batch));
  if (t->step < t->horizon)
    MN_TRY(mn_loader_open(&t->loader, t->session.train, t->session.context->device, o->batch, o->seed,
                          samples(t)));
  MN_TRY(mn_log_open(&t->log, o->log, from ? t->step : -1));
  struct mn_option_text config[MN_CHECKPOINT_OPTIONS];
  int count = mn_options_config(o, config, MN_CHECKPOINT_OPTIONS);
  MN_TRY(mn_log_start(&t->log, config, count, t->session.context->name));
  mn_session_describe(&t->session);
  mn_progress_open(&t->progress, t->step, t->horizon, o->batch * o->accumulate, o->quiet);
  t->save_time = mn_seconds();
  return watch_signals();
}

/* A flag that no update passes says that something is not finite: the weights are those before this step. */
static mn_status check_finite(struct trainer *t, const void *x, const void *y) {
  struct mn_context *context = t->session.context;
  int nonfinite;
  MN_TRY(
      context->kernels->download(context->device, &nonfinite, context->device->nonfinite, sizeof nonfinite));
  if (!nonfinite && isfinite(t->loss)) return MN_OK;
  char where[256];
  MN_TRY(mn_pass_explain(t->session.model, t->session.options.batch, x, y, where, sizeof where));
  return mn_fail(
      MN_FAILED,
      "training diverged at step %ld: %s is not finite; a lower --lr, a --warmup or a --clip would help",
      (long)t->step + 1, where);
}

/* One optimizer step: `accumulate` batches forward and backward, then the update, unless each product brought
 * its own. */
static mn_status step(struct trainer *t) {
  const struct mn_options *o = &t->session.options;
  double sum = 0;
  t->rate = mn_schedule_rate(&t->schedule, t->step);
  MN_TRY(mn_optimizer_rate(t->session.optimizer, t->rate));
  for (int i = 0; i < o->accumulate; i++) {
    const void *x, *y;
    MN_TRY(mn_loader_next(t->loader, &x, &y));
    MN_TRY(mn_pass_load(t->pass, x, y));
    MN_TRY(mn_tape_step(t->pass->tape));
    if (i == o->accumulate - 1) MN_TRY(mn_optimizer_step(t->session.optimizer));
    MN_TRY(mn_tape_results(t->pass->tape, &t->loss, NULL));
    MN_TRY(check_finite(t, x, y));
    sum += t->loss;
  }
  t->loss = sum / o->accumulate;
  t->step++;
  return MN_OK;
}

static mn_status evaluate(struct trainer *t, int64_t epoch, int epoch_end) {
  MN_TRY(mn_evaluate(t->evaluator, &t->test_loss, &t->accuracy));
  double metric = isnan(t->accuracy) ? -t->test_loss : t->accuracy;
  if (epoch_end && metric > t->best) t->best = metric;
  if (isnan(t->accuracy))
    mn_progress_note(&t->progress, "step %ld, epoch %ld: loss %.5g, test loss %.5g", (long)t->step,
                     (long)epoch, t->loss, t->test_loss);
  else
    mn_progress_note(&t->progress, "step %ld, epoch %ld: loss %.5g, test loss %.5g, test accuracy %.2f %%",
                     (long)t->step, (long)epoch, t->loss, t->test_loss, 100 * t->accuracy);
  return mn_log_eval(&t->log, t->step, epoch, t->test_loss, t->accuracy);
}

static mn_status save(struct trainer *t) {
  if (!t->session.options.checkpoint || t->saved == t->step) return MN_OK;
  MN_TRY(mn_snapshot_save(&t->session, t->step, t->best));
  t->saved = t->step;
  t->save_time = mn_seconds();
  return MN_OK;
}

static int save_is_due(const struct trainer *t) {
  const struct mn_options *o = &t->session.options;
  if (o->save_every <= 0) return 0;
  return o->save_seconds ? mn_seconds() - t->save_time >= (double)o->save_every
                         : t->step % o->save_every == 0;
}

/* What a step brings with it; all of it depends on the step alone, but saving by the clock. */
static mn_status after_step(struct trainer *t) {
  const struct mn_options *o = &t->session.options;
  int64_t rows = t->session.train->rows, each = o->batch * o->accumulate, epoch = samples(t) / rows;
  int epoch_end = epoch > (samples(t) - each) / rows;
  if (t->step % t->log_every == 0 || t->step == t->horizon)
    MN_TRY(mn_log_step(&t->log, t->step, epoch, samples(t), t->loss, t->rate));
  mn_progress_step(&t->progress, t->step, t->loss);
  if (t->evaluator && (epoch_end || t->step == t->horizon)) MN_TRY(evaluate(t, epoch, epoch_end));
  return save_is_due(t) ? save(t) : MN_OK;
}

static mn_status report(struct trainer *t, FILE *out) {
  const struct mn_options *o = &t->session.options;
  if (o->json) {
    struct mn_json json;
    mn_json_begin(&json, out);
    mn_json_open(&json, NULL);
    mn_json_integer(&json, "step", t->step);
    mn_json_integer(&json, "horizon", t->horizon);
    mn_json_number(&json, "loss", t->loss);
    mn_json_number(&json, "test_loss", t->test_loss);
    mn_json_number(&json, "test_accuracy", t->accuracy);
    mn_json_close(&json);
    return MN_OK;
  }
  fprintf(out, "step %ld of %ld", (long)t->step, (long)t->horizon);
  if (!isnan(t->loss)) fprintf(out, ", loss %.6g", t->loss);
  if (!isnan(t->test_loss)) fprintf(out, ", test loss %.6g", t->test_loss);
  if (!isnan(t->accuracy)) fprintf(out, ", test accuracy %.2f %%", 100 * t->accuracy);
  fputc('\n', out);
  return MN_OK;
}

static mn_status run(struct trainer *t, FILE *out) {
  const struct mn_options *o = &t->session.options;
  int64_t stop = o->stop_at > 0 && o->stop_at < t->horizon ? o->stop_at : t->horizon;
  if (t->step >= stop) mn_progress_note(&t->progress, "nothing to do: step %ld is reached", (long)t->step);
  while (t->step < stop && !interrupted) {
    MN_TRY(step(t));
    MN_TRY(after_step(t));
  }
  MN_TRY(save(t));
  mn_progress_close(&t->progress);
  MN_TRY(mn_log_close(&t->log));
  MN_TRY(report(t, out));
  if (o->plot) MN_TRY(mn_plot(o->plot, (char *[]){(char *)o->log}, 1));
  if (t->step < stop)
    return mn_fail(MN_INTERRUPTED, "stopped by %s after step %ld of %ld; %s", strsignal(interrupted),
                   (long)t->step, (long)t->horizon,
                   o->checkpoint ? "--resume goes on from there" : "without --checkpoint it is lost");
  return MN_OK;
}

mn_status mn_train(FILE *out, const struct mn_options *options) {
  struct trainer t = {0};
  mn_status status = open(&t, options);
  if (status == MN_OK) status = run(&t, out);
  mn_progress_close(&t.progress);
  mn_status closed = mn_log_close(&t.log);
  mn_loader_close(t.loader);
  mn_evaluator_close(t.evaluator);
  mn_pass_close(t.pass);
  mn_session_close(&t.session);
  return status != MN_OK ? status : closed;
}
