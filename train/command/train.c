/* The command train: the loop, and what happens between its steps: evaluation, log, checkpoints, signals. */
#include "train/command/train.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "train/command/log.h"
#include "train/command/plot.h"
#include "train/command/progress_bar.h"
#include "train/command/session.h"
#include "train/evaluate.h"
#include "train/json.h"
#include "train/trainer.h"

static volatile sig_atomic_t interrupted;

static void note_signal(int number) {
  interrupted = number;
}

/* The first signal ends the run after the current step; a second one ends the process as usual. */
static mn_status watch_signals(void) {
  struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
  interrupted = 0;
  if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0)
    return mn_fail(MN_LIBRARY, "signals cannot be watched");
  return MN_OK;
}

struct run {
  struct mn_session session;
  struct mn_trainer *trainer;
  struct mn_evaluator *evaluator; /* NULL: nothing to test on */
  struct mn_log log;
  struct mn_progress_bar bar;
  int64_t saved, log_every;   /* the step of the last save; steps a log line */
  double save_time;           /* of the last save, or of the start */
  double test_loss, accuracy; /* of the last evaluation; NaN before */
  struct mn_text config[MN_CHECKPOINT_OPTIONS];
  int config_count;
};

/* The number of optimizer steps of the whole run: --steps, or --epochs over the rows there are. */
static mn_status find_horizon(const struct mn_options *o, int64_t rows, int64_t *horizon) {
  int64_t each = o->batch * o->accumulate, samples;
  *horizon = o->steps;
  if (o->steps > 0) return MN_OK;
  if (__builtin_mul_overflow(o->epochs, rows, &samples) || samples > INT64_MAX - each)
    return mn_fail(MN_USAGE, "--epochs %ld of %ld rows are more samples than can be counted; fewer would do",
                   (long)o->epochs, (long)rows);
  *horizon = (samples + each - 1) / each;
  return MN_OK;
}

static mn_status make_schedule(struct run *r, struct mn_schedule *schedule) {
  const struct mn_options *o = &r->session.options;
  int64_t horizon;
  MN_TRY(find_horizon(o, r->session.train->rows, &horizon));
  *schedule = (struct mn_schedule){.rate = o->lr,
                                   .horizon = horizon,
                                   .warmup = o->warmup,
                                   .every = o->step_every > 0 ? o->step_every : (horizon + 2) / 3,
                                   .factor = o->step_factor};
  r->log_every = o->log_every > 0 ? o->log_every : (horizon + 999) / 1000;
  return mn_schedule_parse(o->schedule, &schedule->kind);
}

static mn_status open(struct run *r, const struct mn_options *options) {
  struct mn_session *s = &r->session;
  struct mn_schedule schedule;
  MN_TRY(mn_session_train(s, options));
  const struct mn_options *o = &s->options;
  r->test_loss = r->accuracy = NAN;
  MN_TRY(make_schedule(r, &schedule));
  MN_TRY(mn_trainer_open(&r->trainer, s->model, s->optimizer, s->train, &schedule, o->batch, o->seed,
                         s->from ? &s->progress : NULL));
  const struct mn_progress *progress = &r->trainer->progress;
  r->saved = progress->step;
  if (s->test) MN_TRY(mn_evaluator_open(&r->evaluator, s->model, s->test, MN_PASS_EVALUATE, o->batch));
  r->config_count = mn_options_config(o, r->config, MN_CHECKPOINT_OPTIONS);
  MN_TRY(mn_log_open(&r->log, o->log, s->from ? progress->step : -1, r->config, r->config_count,
                     s->context->name));
  mn_session_describe(s);
  mn_progress_bar_open(&r->bar, progress->step, schedule.horizon, o->batch * o->accumulate, o->quiet);
  r->save_time = mn_seconds();
  return watch_signals();
}

static mn_status evaluate(struct run *r, int epoch_end) {
  struct mn_progress *p = &r->trainer->progress;
  char accuracy[48] = "";
  MN_TRY(mn_evaluate(r->evaluator, &r->test_loss, &r->accuracy));
  double metric = isnan(r->accuracy) ? -r->test_loss : r->accuracy;
  if (epoch_end && metric > p->best) p->best = metric;
  if (!isnan(r->accuracy)) snprintf(accuracy, sizeof accuracy, ", test accuracy %.2f %%", 100 * r->accuracy);
  mn_progress_bar_note(&r->bar, "step %ld, epoch %ld: loss %.5g, test loss %.5g%s", (long)p->step,
                       (long)p->epoch, r->trainer->loss, r->test_loss, accuracy);
  mn_log_eval(&r->log, p->step, p->epoch, r->test_loss, r->accuracy);
  return MN_OK;
}

static mn_status save(struct run *r) {
  const struct mn_session *s = &r->session;
  const struct mn_options *o = &s->options;
  const struct mn_progress *p = &r->trainer->progress;
  if (!o->checkpoint || r->saved == p->step) return MN_OK;
  MN_TRY(
      mn_snapshot_save(o->checkpoint, (int)o->keep, s->model, s->optimizer, p, r->config, r->config_count));
  r->saved = p->step;
  r->save_time = mn_seconds();
  return MN_OK;
}

static int save_is_due(const struct run *r) {
  const struct mn_options *o = &r->session.options;
  if (o->save_every <= 0) return 0;
  return o->save_seconds ? mn_seconds() - r->save_time >= (double)o->save_every
                         : r->trainer->progress.step % o->save_every == 0;
}

/* What follows a step. Except for saving by the clock it depends on the step alone, so that a resumed run
 * does the same. */
static mn_status after_step(struct run *r) {
  const struct mn_trainer *t = r->trainer;
  const struct mn_progress *p = &t->progress;
  int64_t each = t->batch * t->optimizer->config.accumulate;
  int epoch_end = p->epoch > (p->samples - each) / p->rows, last = p->step == t->schedule.horizon;
  if (p->step % r->log_every == 0 || last)
    mn_log_step(&r->log, p->step, p->epoch, p->samples, t->loss, t->rate);
  mn_progress_bar_step(&r->bar, p->step, t->loss);
  if (r->evaluator && (epoch_end || last)) MN_TRY(evaluate(r, epoch_end));
  return save_is_due(r) ? save(r) : MN_OK;
}

static void report(struct run *r, FILE *out) {
  const struct mn_trainer *t = r->trainer;
  if (r->session.options.json) {
    struct mn_json json;
    mn_json_begin(&json, out);
    mn_json_open(&json, NULL);
    mn_json_integer(&json, "step", t->progress.step);
    mn_json_integer(&json, "horizon", t->schedule.horizon);
    mn_json_number(&json, "loss", t->loss);
    mn_json_number(&json, "test_loss", r->test_loss);
    mn_json_number(&json, "test_accuracy", r->accuracy);
    mn_json_close(&json);
    return;
  }
  fprintf(out, "step %ld of %ld", (long)t->progress.step, (long)t->schedule.horizon);
  if (!isnan(t->loss)) fprintf(out, ", loss %.6g", t->loss);
  if (!isnan(r->test_loss)) fprintf(out, ", test loss %.6g", r->test_loss);
  if (!isnan(r->accuracy)) fprintf(out, ", test accuracy %.2f %%", 100 * r->accuracy);
  fputc('\n', out);
}

static mn_status run(struct run *r, FILE *out) {
  const struct mn_options *o = &r->session.options;
  const int64_t *step = &r->trainer->progress.step, horizon = r->trainer->schedule.horizon;
  int64_t stop = o->stop_at > 0 && o->stop_at < horizon ? o->stop_at : horizon;
  if (*step >= stop) mn_progress_bar_note(&r->bar, "nothing to do: step %ld is reached", (long)*step);
  /* A log that cannot be written ends the run, after the work so far is saved. */
  while (*step < stop && !interrupted && !r->log.error) {
    MN_TRY(mn_trainer_step(r->trainer));
    MN_TRY(after_step(r));
  }
  MN_TRY(save(r));
  mn_progress_bar_close(&r->bar);
  MN_TRY(mn_log_close(&r->log, MN_OK));
  report(r, out);
  mn_status drawn = o->plot ? mn_plot(o->plot, (char *[]){(char *)o->log}, 1) : MN_OK;
  if (*step < stop) /* goes before a log too short for a picture */
    return mn_fail(MN_INTERRUPTED, "stopped by %s after step %ld of %ld; %s", strsignal(interrupted),
                   (long)*step, (long)horizon,
                   o->checkpoint ? "--resume goes on from there" : "without --checkpoint it is lost");
  return drawn;
}

mn_status mn_train(FILE *out, const struct mn_options *options) {
  struct run r = {0};
  mn_status status = open(&r, options);
  if (status == MN_OK) status = run(&r, out);
  mn_progress_bar_close(&r.bar);
  status = mn_log_close(&r.log, status);
  mn_evaluator_close(r.evaluator);
  mn_trainer_close(r.trainer);
  mn_session_close(&r.session);
  return status;
}
