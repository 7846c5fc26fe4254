/* The command train: what a run needs, the loop, and what happens between its steps: evaluation, log,
 * checkpoints, signals. */
#include "train/command/commands.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "data/weights.h"
#include "engine/ranks/ranks.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/announce.h"
#include "train/command/log.h"
#include "train/command/saves.h"
#include "train/command/session.h"
#include "train/command/watchdog.h"
#include "train/defaults.h"
#include "train/evaluate.h"
#include "train/fit.h"
#include "train/json.h"
#include "train/runs/folder.h"
#include "train/scores.h"
#include "train/speed.h"
#include "train/trainer.h"

/* Training since the last epoch's line. */
struct since {
  double losses; /* the sum over its steps, without those that were skipped */
  int64_t steps, skipped, samples;
  double began; /* mn_seconds() */
};

struct run {
  struct mn_session session;
  struct mn_trainer *trainer;
  struct mn_evaluator *evaluator; /* NULL without test rows */
  struct mn_log log;
  int64_t log_every; /* steps a log line */
  struct mn_saves saves;
  int signal;                 /* the one that ends the run, whichever rank got it; else 0 */
  double test_loss, accuracy; /* of the last evaluation; NaN before */
  double spread;              /* the test loss of the best constant, for R²; NaN if it is not known */
  struct mn_scores scores;    /* of test rows, for a --metric beside loss and accuracy; else its cols is 0 */
  mn_status tested;           /* of evaluating behind a step */
  int64_t best_step;          /* the best evaluation's, if this process made it within an epoch; else 0 */
  struct since since;
};

/* ---- the memory and disk space that a run needs ---- */

struct disk {
  double checkpoint; /* bytes of one: the values alone, so a little less than the file */
  double available;  /* bytes free in the folder of the checkpoints; NaN if unknown */
};

static mn_status ask_disk(struct disk *out, const struct mn_session *s) {
  const struct mn_rule *rule = &s->optimizer->config.rule;
  const int arrays = 1 + mn_rule_keeps_m(rule) + mn_rule_keeps_v(rule);
  char path[MN_ATOMIC_FILE_PATH];
  struct statvfs disk;
  *out = (struct disk){.available = NAN};
  out->checkpoint = (double)mn_model_size(&s->model->config) * (double)s->device->real * arrays;
  snprintf(path, sizeof path, "%s", s->options.checkpoint);
  path[basename(path) - path - 1] = 0;
  if (access(path, F_OK) != 0) strcpy(basename(path), "."); /* --dry-run does not make the folder */
  if (access(path, W_OK) != 0)
    return mn_fail(MN_NO_CREATE, "cannot save in --run %s: %s: name a folder that can be written",
                   s->options.run, strerror(errno));
  const int failed = statvfs(path, &disk) != 0;
  if (failed && errno != ENOSYS)
    return mn_fail(MN_IO, "cannot ask the disk of %s how much is free: %s; check the disk",
                   s->options.checkpoint, strerror(errno));
  if (!failed && disk.f_blocks > 0) out->available = (double)disk.f_bavail * (double)disk.f_frsize;
  return MN_OK;
}

/* Refuses, before the first step, a run whose disk lacks room for one more checkpoint, or that may not write
 * a file so large. Quotas are not checked: a save that exceeds one fails. */
static mn_status check_disk(const struct mn_session *s) {
  struct disk disk;
  struct rlimit size;
  if (!s->options.checkpoint) return MN_OK;
  MN_TRY(ask_disk(&disk, s));
  if (getrlimit(RLIMIT_FSIZE, &size) == 0 && disk.checkpoint > (double)size.rlim_cur)
    return mn_fail(MN_IO,
                   "%s: a checkpoint of %.1f MiB is larger than a file may be: raise the limit (ulimit -f)",
                   s->options.checkpoint, disk.checkpoint / 0x1p20);
  if (!(disk.checkpoint > disk.available)) return MN_OK; /* also if `available` is NaN */
  return mn_fail(MN_IO,
                 "a checkpoint of %.1f MiB does not fit beside %s, where %.1f MiB are free: free some space, "
                 "or name another folder",
                 disk.checkpoint / 0x1p20, s->options.checkpoint, disk.available / 0x1p20);
}

/* The answer of --dry-run. The copy that a checkpoint is written from on a GPU is not counted
 * (train/checkpoint/checkpoint.h). */
static mn_status show_needs(FILE *out, const struct mn_session *s, const struct mn_trainer *t) {
  const struct mn_placement *rows = mn_loader_placement(t->loader);
  const struct mn_options *o = &s->options;
  const struct mn_model_config *config = &s->model->config;
  const double samples = (double)t->batch * (double)o->accumulate, steps = (double)t->schedule.horizon;
  char model[MN_MODEL_WORDS];
  struct disk disk;
  size_t available;
  struct mn_json writer, *json = &writer;
  MN_TRY(mn_available(s->device, &available));
  if (o->checkpoint) MN_TRY(ask_disk(&disk, s));
  mn_json_begin(json, out, !o->json);
  mn_json_open(json, NULL);
  mn_json_string(json, "model", mn_model_words(model, config));
  mn_json_integer(json, "parameters", mn_model_size(config));
  mn_json_integer(json, "tensors", s->model->count);
  mn_json_integer(json, "steps", t->schedule.horizon);
  mn_json_integer(json, "samples_per_step", t->batch * o->accumulate);
  mn_json_number(json, "epochs", steps * samples / (double)s->train->rows);
  mn_json_number(json, "flops_per_step", mn_model_step_flops(s->model) * samples);
  mn_json_bytes(json, "device_bytes", (double)s->device->bytes);
  mn_json_bytes(json, "device_available_bytes", (double)available);
  mn_json_string(json, "place", mn_place_name(rows->place));
  mn_json_string(json, "place_why", rows->why);
  mn_json_bytes(json, "rows_bytes", (double)rows->bytes);
  if (o->checkpoint) {
    mn_json_bytes(json, "checkpoint_bytes", disk.checkpoint);
    mn_json_integer(json, "checkpoints", o->keep + o->best + 1); /* one is being written */
    mn_json_bytes(json, "disk_available_bytes", disk.available);
  }
  mn_json_close(json);
  return MN_OK;
}

/* ---- the run ---- */

/* Prints layers, parameters, loss, optimizer, rate, schedule, steps and rows. */
static void describe_training(const struct mn_trainer *t, const struct mn_options *options) {
  const struct mn_model_config *model = &t->model->config;
  const struct mn_schedule *s = &t->schedule;
  const struct mn_dataset *rows = t->dataset;
  const struct mn_rule *rule = &t->optimizer->config.rule;
  char layers[MN_MODEL_WORDS], warmup[48] = "", decay[48] = "", epochs[MN_SHOWN];
  const int64_t each = t->batch * t->optimizer->config.accumulate;
  if (s->warmup > 0) snprintf(warmup, sizeof warmup, " after %ld steps of warm-up", (long)s->warmup);
  mn_announce(options, "model: %s of %ld %s; %ld parameters", mn_model_words(layers, model),
              (long)rows->outputs, rows->classes ? "classes" : "targets", (long)mn_model_size(model));
  if (rule->weight_decay > 0) snprintf(decay, sizeof decay, ", weight decay %.3g", rule->weight_decay);
  mn_announce(options, "training: %s, rate %g%s, %s%s; %ld steps of %ld rows, %s epochs of %ld",
              mn_optimizer_name(rule->kind), s->rate, decay, mn_schedule_name(s->kind), warmup,
              (long)s->horizon, (long)each,
              mn_show_number(epochs, (double)s->horizon * (double)each / (double)rows->rows, 3),
              (long)rows->rows);
}

/* "device, 1.5 GiB" */
static void show_place(char *out, size_t size, const struct mn_placement *p) {
  double mib = (double)p->bytes / 1048576;
  snprintf(out, size, "%s, %.1f %s", mn_place_name(p->place), mib < 1024 ? mib : mib / 1024,
           mib < 1024 ? "MiB" : "GiB");
}

/* The step at which the run ends, or earlier by a signal or --patience. */
static int64_t stop_of(const struct run *r) {
  const int64_t stop = r->session.options.stop_at, horizon = r->trainer->schedule.horizon;
  return stop > 0 && stop < horizon ? stop : horizon;
}

/* The R² of the last evaluation: of several targets the mean, each weighed by its variance in the units of
 * the loss. NaN for classes. */
static double r2_of(const struct run *r) {
  return r->spread > 0 ? 1 - r->test_loss / r->spread : NAN;
}

/* What --best and --patience go by: --metric, or the accuracy of classes and the loss of numbers. */
static enum mn_metric metric_of(const struct run *r) {
  const int64_t asked = r->session.options.metric;
  return asked >= 0 ? (enum mn_metric)asked : r->session.test->classes ? MN_METRIC_ACCURACY : MN_METRIC_LOSS;
}

/* Its value in the last evaluation. */
static double metric_value(const struct run *r) {
  const enum mn_metric metric = metric_of(r);
  if (isnan(r->test_loss)) return NAN;
  if (r->scores.cols) return mn_scores_of(&r->scores, metric, -1);
  return metric == MN_METRIC_ACCURACY ? r->accuracy : r->test_loss;
}

static mn_status open_scores(struct run *r) {
  const struct mn_session *s = &r->session;
  const int64_t metric = s->options.metric;
  if (metric <= MN_METRIC_LOSS) return MN_OK;
  if (!s->test || s->ranks)
    return mn_fail(MN_USAGE, "--metric %s is of test rows, %s", mn_metric_name((enum mn_metric)metric),
                   s->test ? "which ranks do not keep: loss and accuracy work there"
                           : "and there are none: --validation 0.1 holds a tenth out");
  if (mn_metric_classes((enum mn_metric)metric) != s->test->classes)
    return mn_fail(MN_USAGE, "--metric %s is of %s", mn_metric_name((enum mn_metric)metric),
                   s->test->classes ? "numbers, and y are classes: accuracy, log-loss and f1 are of these"
                                    : "classes, and y are numbers: loss, r2, rmse and mae are of these");
  if (metric == MN_METRIC_ACCURACY) return MN_OK;
  MN_TRY(mn_scores_open(&r->scores, s->model, s->test));
  if (metric == MN_METRIC_ROC_AUC && !r->scores.probabilities)
    return mn_fail(MN_USAGE,
                   "--metric roc-auc is of at most %d classes, and 2^25 probabilities: log-loss works",
                   MN_CONFUSION);
  return mn_evaluator_watch(r->evaluator, mn_scores_take, &r->scores);
}

/* What needs no other rank once the session is open: the rows. */
static mn_status open_rows(struct run *r, const struct mn_options *options) {
  struct mn_session *s = &r->session;
  MN_TRY(mn_session_train(s, options));
  const struct mn_options *o = &s->options;
  struct mn_trainer_config config;
  MN_TRY(mn_watchdog_signals(s->from != NULL)); /* reading rows may take long */
  const int *stop = mn_watchdog_stop();
  MN_TRY(mn_session_weigh_classes(s));
  MN_TRY(mn_session_tune(s, stop));
  if (s->class_weights) {
    const mn_status status = mn_dataset_weigh_classes(s->train, s->class_weights);
    if (status == MN_USAGE) return mn_fail(status, "--class-weight %s: %s", o->class_weight, mn_message());
    MN_TRY(status);
  }
  if (s->folds) stop = NULL; /* their scores are saved at step 0 */
  mn_options_trainer(o, s->horizon, &config);
  config.stop = stop;
  r->log_every = o->log_every > 0 ? o->log_every : (s->horizon + 999) / 1000;
  MN_TRY(mn_session_columns(s, stop));
  MN_TRY(
      mn_trainer_open(&r->trainer, s->model, s->optimizer, s->train, &config, s->from ? &s->progress : NULL));
  if (s->test)
    MN_TRY(mn_evaluator_open(&r->evaluator, s->model, s->test, mn_session_rows_a_pass(s),
                             config.place)); /* as eval does */
  MN_TRY(open_scores(r));
  /* What decides by a test, or may take a batch again, waits for the device at each epoch's end. */
  if (s->test && s->test->rows <= mn_session_rows_a_pass(s) && s->device->type == MN_DEVICE_CUDA &&
      !s->device->scaled && !s->ranks && !o->best && !o->patience && !r->scores.cols &&
      o->on_nonfinite == MN_NONFINITE_STOP)
    r->trainer->tests = r->evaluator;
  if (s->test && o->data) MN_TRY(mn_model_spread(&r->spread, s->model, s->test, stop));
  return mn_resume_data(s, &r->trainer->progress, &mn_loader_placement(r->trainer->loader)->fingerprint,
                        r->evaluator ? &mn_evaluator_placement(r->evaluator)->fingerprint : NULL);
}

static mn_status open(struct run *r, const struct mn_options *options) {
  struct mn_session *s = &r->session;
  const struct mn_options *o = &s->options;
  const mn_status status = open_rows(r, options);
  MN_TRY(mn_ranks_agree(s->ranks, status));
  MN_TRY(mn_ranks_compare_rows(s));
  const struct mn_progress *progress = &r->trainer->progress;
  const struct mn_placement *rows = mn_loader_placement(r->trainer->loader);
  char train[64], test[64] = "";
  if (!o->dry_run && progress->step < stop_of(r)) MN_TRY(check_disk(s));
  MN_TRY(mn_resume_config(s));
  s->config_count += mn_tune_list(s, s->config + s->config_count);
  MN_TRY(mn_saves_open(&r->saves, s, progress));
  MN_TRY(mn_log_open(&r->log, o->dry_run ? NULL : o->log, s));
  mn_progress_clear();
  mn_session_describe(s);
  mn_tune_describe(s);
  if (r->log.file && r->log.begun && progress->step > 0)
    mn_announce(o, "log: %s is new, and begins at step %ld", o->log, (long)progress->step);
  else if (r->log.file && r->log.step + r->log_every <= progress->step)
    mn_announce(o, "log: %s has no step's line after step %ld, and goes on behind step %ld", o->log,
                (long)r->log.step, (long)progress->step);
  show_place(train, sizeof train, rows);
  if (r->evaluator) show_place(test, sizeof test, mn_evaluator_placement(r->evaluator));
  mn_announce(o, "place: %s (%s)%s%s", train, rows->why, *test ? "; to test: " : "", test);
  if (!o->dry_run) describe_training(r->trainer, o);
  mn_progress_open(progress->step, o->quiet);
  r->since = (struct since){.samples = progress->samples, .began = mn_seconds()};
  return MN_OK;
}

/* Whether the step that is done was the last of an epoch. */
static int epoch_ended(const struct mn_trainer *t) {
  const struct mn_progress *p = &t->progress;
  return p->epoch > (p->samples - t->batch * t->optimizer->config.accumulate) / p->rows;
}

/* Whether the last --patience epochs brought no improvement. A resumed run ends at the same epoch. */
static int patience_is_out(const struct run *r) {
  const struct mn_progress *p = &r->trainer->progress;
  const int64_t patience = r->session.options.patience;
  return patience > 0 && p->epoch - p->best_epoch >= patience;
}

/* Whether the epoch that has ended, if any, has a line: of a run at most 40, and the last. */
static int is_told(const struct run *r) {
  const struct mn_progress *p = &r->trainer->progress;
  const double each = (double)(r->trainer->batch * r->trainer->optimizer->config.accumulate), most = 40;
  const double epochs = floor((double)r->trainer->schedule.horizon * each / (double)p->rows);
  const double every = fmax(ceil(epochs / most), 1);
  const double before = floor(((double)p->samples - each) / (double)p->rows);
  return floor((double)p->epoch / every) > floor(before / every) || p->step >= stop_of(r) ||
         patience_is_out(r);
}

/* A loss of an epoch's line: small ones are short, with an exponent. */
static const char *show_loss(char out[MN_SHOWN], double loss, int digits) {
  if (!(loss > 0 && loss < 1e-4)) return mn_show_number(out, loss, digits);
  snprintf(out, MN_SHOWN, "%.*e", digits > 3 ? 2 : 1, loss);
  return out;
}

/* An epoch's line: the mean loss since the line before, and the latest scores on the test rows. The losses
 * have as many digits, 3 to 5, as let it fit 80 columns. */
static void tell_epoch(struct run *r, int tested) {
  const struct mn_trainer *t = r->trainer;
  const struct mn_progress *p = &t->progress;
  const double rate = (double)(p->samples - r->since.samples) / (t->finished - r->since.began);
  const double mean = r->since.steps > 0 ? r->since.losses / (double)r->since.steps : t->loss;
  char loss[MN_SHOWN], shown[MN_SHOWN], test[64] = "", accuracy[48] = "", norm[64] = "", speed[MN_SHOWN];
  char skipped[64] = "", line[512];
  if (r->since.skipped > 0)
    snprintf(skipped, sizeof skipped, " (steps skipped: %ld)", (long)r->since.skipped);
  if (tested && !isnan(r->accuracy)) snprintf(accuracy, sizeof accuracy, ", %.2f %%", 100 * r->accuracy);
  if (tested && !isnan(r2_of(r))) snprintf(accuracy, sizeof accuracy, ", R2 %.4f", r2_of(r));
  if (tested && r->scores.cols)
    snprintf(accuracy, sizeof accuracy, ", %s %.4g", mn_metric_name(metric_of(r)), metric_value(r));
  if (!isnan(t->norm)) snprintf(norm, sizeof norm, ", norm %s", mn_show_number(shown, t->norm, 3));
  mn_show_number(speed, rate, 3);
  for (int digits = 5, length = 80; digits > 2 && length >= 80; digits--) {
    if (tested) snprintf(test, sizeof test, ", test loss %s", show_loss(shown, r->test_loss, digits));
    length = snprintf(line, sizeof line, "step %ld, epoch %ld: loss %s%s%s%s%s, %s samples/s", (long)p->step,
                      (long)p->epoch, show_loss(loss, mean, digits), skipped, test, accuracy, norm, speed);
  }
  mn_announce(&r->session.options, "%s", line);
  /* Without a test later steps are done already, or under way. */
  r->since = (struct since){.samples = p->samples, .began = tested ? mn_seconds() : t->finished};
}

/* *better: its metric is the best so far. */
static mn_status evaluate(struct run *r, int *better) {
  struct mn_progress *p = &r->trainer->progress;
  char where[MN_FAULT_WORDS];
  int64_t batches, all;
  mn_watchdog_enter("evaluating", 0);
  if (r->scores.cols) mn_scores_clear(&r->scores);
  MN_TRY(mn_evaluate(r->evaluator, &r->test_loss, &r->accuracy));
  r->trainer->ended = mn_seconds(); /* steps that are under way began now */
  const struct mn_fault *fault = mn_evaluator_fault(r->evaluator, &batches, &all);
  const double value = metric_value(r), metric = mn_metric_falls(metric_of(r)) ? -value : value;
  if (isnan(value) && !fault)
    return mn_fail(MN_BAD_DATA,
                   "--metric %s has no value for these test rows, of one class or equal targets: "
                   "another works",
                   mn_metric_name(metric_of(r)));
  *better = metric > p->best; /* NaN is not */
  if (*better)
    p->best = metric, p->best_epoch = p->epoch, r->best_step = epoch_ended(r->trainer) ? 0 : p->step;
  if (is_told(r)) {
    tell_epoch(r, 1);
    /* A test loss that is not finite does not by itself end the training. */
    if (fault)
      mn_announce(&r->session.options,
                  "step %ld: no test loss: %s%s is not finite (so in %ld of %ld batches to test on)%s",
                  (long)p->step, mn_fault_words(where, fault), fault->parameter ? "" : " of the test rows",
                  (long)batches, (long)all, fault->parameter ? "" : "; training goes on");
  } else {
    r->since.began += mn_seconds() - r->trainer->finished; /* the next line's speed is of training alone */
  }
  mn_log_eval(&r->log, p->step, p->epoch, r->test_loss, r->accuracy, r2_of(r), r->scores.cols ? value : NAN);
  return MN_OK;
}

/* After each step, while the device is busy with later ones. Returns 1 if the run is to pause: to end, or
 * to save by the clock. */
static int after_step(void *to, const struct mn_trainer *t) {
  struct run *r = to;
  const int64_t step = t->progress.step;
  char why[MN_FAULT_WORDS];
  int better;
  mn_watchdog_enter("", step + 1);
  /* A skipped step is reported at once, and has its line in the log. */
  if (step % r->log_every == 0 || step == t->schedule.horizon || t->skipped) mn_log_step(&r->log, t);
  if (t->skipped) {
    r->since.skipped++;
    mn_announce(&r->session.options, "step %ld was skipped, and updated nothing: %s is not finite",
                (long)step, mn_fault_words(why, t->skipped));
  } else {
    r->since.losses += t->loss;
    r->since.steps++;
  }
  if (!r->evaluator && epoch_ended(t) && is_told(r)) tell_epoch(r, 0);
  if (t->tests && epoch_ended(t)) r->tested = evaluate(r, &better);
  mn_progress_step(t);
  mn_saves_tell(&r->saves);
  /* A log that cannot be written ends the run, after the work so far is saved. */
  int pause = r->tested != MN_OK || mn_watchdog_signal() || r->log.error || mn_saves_want_a_pause(&r->saves);
  return mn_ranks_allreduce_max(r->session.ranks, &pause) != MN_OK || pause;
}

/* Whether the run is to end before its time; all ranks find the same. */
static int is_to_end(struct run *r) {
  int failed = r->log.error != 0;
  r->signal = mn_watchdog_signal();
  return mn_ranks_allreduce_max(r->session.ranks, &r->signal) != MN_OK || r->signal ||
         mn_ranks_allreduce_max(r->session.ranks, &failed) != MN_OK || failed;
}

/* What all ranks have done together. One that fails alone ends the others, which would wait for it; a
 * divergence is every rank's. */
static mn_status together(const struct run *r, mn_status status) {
  struct mn_ranks *ranks = r->session.ranks;
  if (ranks && status != MN_OK && status != MN_FAILED && *mn_message()) {
    fprintf(stderr, "minnow: rank %d: %s\n", ranks->all.rank, mn_message());
    mn_mpi_abort((int)status);
  }
  return mn_ranks_agree(ranks, status);
}

/* The step at which the run pauses next: to evaluate at an epoch's end, to save, or to end at `stop`. It
 * depends on the step alone, so that a resumed run does the same. */
static int64_t next_pause(const struct run *r, int64_t stop) {
  const struct mn_options *o = &r->session.options;
  const struct mn_progress *p = &r->trainer->progress;
  int64_t pause = stop;
  const int64_t epoch_end = mn_trainer_epoch_end(r->trainer, p->step);
  if (r->evaluator && !r->trainer->tests && epoch_end < pause) pause = epoch_end;
  const int64_t every = o->save_seconds ? 0 : o->save_every;
  const int64_t save_at = every > 0 ? (p->step / every + 1) * every : pause;
  return save_at < pause ? save_at : pause;
}

static mn_status at_pause(struct run *r) {
  const struct mn_trainer *t = r->trainer;
  int last = t->progress.step == t->schedule.horizon, better = 0;
  MN_TRY(r->tested);
  if (r->evaluator && (epoch_ended(t) ? !t->tests : last)) MN_TRY(evaluate(r, &better));
  return mn_saves_at_pause(&r->saves, better && r->session.options.best);
}

static void tell_of_the_best(struct run *r) {
  const struct mn_options *o = &r->session.options;
  const struct mn_progress *p = &r->trainer->progress;
  char number[MN_SHOWN], metric[64], best[MN_CHECKPOINT_PATH];
  if (!(o->best || patience_is_out(r))) return;
  if (!isfinite(p->best))
    snprintf(metric, sizeof metric, "the metric");
  else if (metric_of(r) == MN_METRIC_ACCURACY)
    snprintf(metric, sizeof metric, "test accuracy %.2f %%", 100 * p->best);
  else
    snprintf(metric, sizeof metric, "test %s %s", mn_metric_name(metric_of(r)),
             mn_show_number(number, mn_metric_falls(metric_of(r)) ? -p->best : p->best, 5));
  if (o->best && isfinite(p->best) && mn_checkpoint_best(best, o->checkpoint) == MN_OK &&
      access(best, F_OK) == 0)
    mn_announce(&r->session.options, "best: %s after %s %ld, in %s", metric, r->best_step ? "step" : "epoch",
                (long)(r->best_step ? r->best_step : p->best_epoch), best);
  if (patience_is_out(r))
    mn_announce(&r->session.options,
                "ended by --patience %ld after epoch %ld: %s of epoch %ld was not bettered%s",
                (long)o->patience, (long)p->epoch, metric, (long)p->best_epoch,
                o->checkpoint ? "; --resume with more patience goes on" : "");
}

/* The run's speed, and what bounds it. */
static void summarise(struct run *r) {
  const struct mn_trainer *t = r->trainer;
  struct mn_trainer_speed speed = mn_trainer_speed(t);
  char seconds[MN_SHOWN], samples[MN_SHOWN], flops[MN_SHOWN];
  if (t->times.steps == 0) return;
  mn_announce(&r->session.options,
              "%ld steps in %s s: %s samples/s, %s, waiting for rows %.1f %% of the time; bound by %s",
              (long)t->times.steps, mn_show_number(seconds, t->times.running, 3),
              mn_show_number(samples, speed.samples, 3), mn_show_rate(flops, speed.flops, "FLOP/s"),
              100 * speed.waiting, speed.bound);
  if (t->retaken > 0)
    mn_announce(&r->session.options,
                "%ld batches did not fit the scales of %s, and were taken again under new ones",
                (long)t->retaken, mn_precision_name(t->model->device->precision));
  if (t->progress.skipped > 0)
    mn_announce(&r->session.options, "steps skipped for values that were not finite: %ld of the run's %ld",
                (long)t->progress.skipped, (long)t->progress.step);
}

static void report(const struct run *r, FILE *out) {
  const struct mn_trainer *t = r->trainer;
  const struct mn_trainer_speed speed = mn_trainer_speed(t);
  struct mn_json json;
  mn_json_begin(&json, out, !r->session.options.json);
  mn_json_open(&json, NULL);
  mn_json_integer(&json, "step", t->progress.step);
  mn_json_integer(&json, "horizon", t->schedule.horizon);
  mn_json_number(&json, json.plain ? "loss_of_last_step" : "loss", t->loss);
  if (!json.plain || t->progress.skipped) mn_json_integer(&json, "skipped", t->progress.skipped);
  if (!json.plain || !isnan(r->test_loss)) mn_json_number(&json, "test_loss", r->test_loss);
  if (!json.plain || !isnan(r->accuracy)) mn_json_number(&json, "test_accuracy", r->accuracy);
  if (!json.plain || !isnan(r2_of(r))) mn_json_number(&json, "test_r2", r2_of(r));
  mn_tune_report(&r->session, &json);
  if (!json.plain) { /* plain, the notes on stderr contain it */
    mn_json_open(&json, "time");
    if (t->times.steps > 0) {
      mn_json_number(&json, "samples_per_second", speed.samples);
      mn_json_number(&json, "flops_per_second", speed.flops);
      mn_json_number(&json, "waiting", speed.waiting);
      mn_json_string(&json, "bound", speed.bound);
    }
    mn_json_close(&json);
  }
  mn_json_close(&json);
}

static mn_status train_and_save(struct run *r, FILE *out) {
  const struct mn_options *o = &r->session.options;
  const int64_t *step = &r->trainer->progress.step, horizon = r->trainer->schedule.horizon;
  const int64_t stop = stop_of(r);
  if (*step >= stop)
    mn_announce(&r->session.options, "nothing to do: step %ld is reached; a larger --%s goes on", (long)*step,
                stop < horizon ? "stop-at"
                : o->steps > 0 ? "steps"
                               : "epochs");
  else if (!patience_is_out(r))
    mn_log_resume(&r->log, &r->session);
  while (*step < stop && !patience_is_out(r) && !is_to_end(r)) {
    mn_watchdog_enter("", *step + 1);
    MN_TRY(together(r, mn_trainer_run(r->trainer, next_pause(r, stop), after_step, r)));
    MN_TRY(together(r, at_pause(r)));
  }
  /* Its loss is for the `end` line of a run that is killed before that line. */
  if (patience_is_out(r) && r->trainer->times.steps > 0 && r->log.step < *step)
    mn_log_step(&r->log, r->trainer);
  MN_TRY(together(r, mn_saves_end(&r->saves)));
  summarise(r);
  tell_of_the_best(r);
  mn_progress_clear();
  const char *ended = *step >= horizon     ? "horizon"
                      : patience_is_out(r) ? "patience"
                      : *step >= stop      ? "stop-at"
                                           : "signal"; /* or by the log, which then gets no line */
  mn_log_end(&r->log, r->trainer, ended);
  MN_TRY(mn_log_close(&r->log, MN_OK));
  if (mn_ranks_first(r->session.ranks)) report(r, out);
  char picture[MN_ATOMIC_FILE_PATH];
  mn_status drawn = MN_OK;
  if (o->plot) {
    MN_REQUIRE(mn_run_file(picture, o->run, MN_RUN_PLOT) == 0); /* shorter than the checkpoint's */
    drawn = mn_plot(picture, 1, (char *[]){(char *)o->log}, 1);
  }
  if (strcmp(ended, "signal") == 0) /* goes before a log too short for a picture */
    return mn_fail(MN_INTERRUPTED, "stopped by %s after step %ld of %ld; %s", strsignal(r->signal),
                   (long)*step, (long)horizon,
                   o->checkpoint ? "--resume goes on from there" : "without --run it is lost");
  if (r->saves.failure.status == MN_OK) return drawn;
  return mn_fail(r->saves.failure.status, "%s: step %ld is saved, but an earlier save failed: %s",
                 o->checkpoint, (long)r->saves.snapshot, r->saves.failure.message);
}

/* After a new run that failed before its first save: renames the log that it began, so that the same command
 * can be repeated, and prints the new name. */
static mn_status leave(const struct mn_session *s, mn_status status) {
  const struct mn_options *o = &s->options;
  char best[MN_CHECKPOINT_PATH], kept[MN_ATOMIC_FILE_PATH];
  struct mn_outcome outcome;
  mn_outcome_note(&outcome, status);
  if (access(o->checkpoint, F_OK) != 0 && mn_checkpoint_best(best, o->checkpoint) == MN_OK &&
      access(best, F_OK) != 0 && mn_run_file_set_aside(kept, o->log, "unsaved") == MN_OK)
    mn_announce(o, "log: %s, since nothing was saved", kept);
  return mn_outcome_tell(&outcome);
}

mn_status mn_train(FILE *out, const struct mn_options *options) {
  struct run r = {.test_loss = NAN, .accuracy = NAN, .spread = NAN};
  mn_status status = open(&r, options);
  if (status == MN_INTERRUPTED && mn_watchdog_signal())
    status = mn_fail(status, "stopped by %s before the first step", strsignal(mn_watchdog_signal()));
  status = mn_ranks_agree(r.session.ranks, status);
  if (status == MN_OK && !options->dry_run) status = mn_ranks_agree(r.session.ranks, train_and_save(&r, out));
  if (status == MN_OK && options->dry_run && mn_ranks_first(r.session.ranks))
    status = show_needs(out, &r.session, r.trainer);
  mn_progress_clear();
  const int unsaved = r.log.begun && !r.session.from;
  status = mn_log_close(&r.log, status);
  if (unsaved && status != MN_OK) status = leave(&r.session, status);
  if (r.session.ranks && status != MN_OK) { /* at once: a launcher ends all ranks as soon as one has failed */
    if (*mn_message()) fprintf(stderr, "minnow: %s\n", mn_message());
    (void)mn_fail(status, "%s", "");
  }
  mn_saver_close(r.saves.saver);
  mn_evaluator_close(r.evaluator);
  mn_scores_close(&r.scores);
  mn_trainer_close(r.trainer);
  mn_session_close(&r.session);
  mn_watchdog_close();
  return status;
}
