/* Opening a session, for a new run, a resumed one, and for reading a checkpoint. */
#include "train/command/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/held_out.h"
#include "data/synthetic.h"
#include "engine/ranks/ranks.h"
#include "kernels/text.h"
#include "train/checkpoint/layout.h"
#include "train/command/announce.h"
#include "train/defaults.h"
#include "train/fit.h"
#include "train/runs/folder.h"

mn_status mn_session_context(struct mn_device **out, const struct mn_options *o, const char *device,
                             const char *precision, int share) {
  const int most = share ? share : mn_team_most();
  const int64_t threads = o->threads < most ? o->threads : most; /* a checkpoint's may be another host's */
  if (o->threads > most && mn_options_given(o, "threads"))
    return mn_fail(MN_USAGE, "--threads %ld, but OMP_NUM_THREADS, or else the cores, allow %d: 1 to %d work",
                   (long)o->threads, most, most);
  MN_TRY(mn_device_open(out, device, precision, (int)(threads > 0 ? threads : share)));
  (*out)->all_threads = o->threads > 0 ? MN_ALL_THREADS : MN_FEWER_THREADS;
  return MN_OK;
}

/* The steps of the run: --steps, or --epochs over the rows there are. */
static mn_status find_horizon(struct mn_session *s, int64_t rows) {
  const struct mn_options *o = &s->options;
  s->horizon = o->steps > 0 ? o->steps
                            : mn_default_steps(o->epochs < 0 ? 0 : o->epochs, rows, o->batch * o->accumulate);
  if (s->horizon > 0) return MN_OK;
  return mn_fail(MN_USAGE, "--epochs %ld of %ld rows are more samples than can be counted; fewer would do",
                 (long)(o->epochs < 0 ? MN_EPOCHS : o->epochs), (long)rows);
}

/* The device for so many passes over `rows` that each take a `part` of a step. "auto" is the CPU for what it
 * ends in a second and sooner than a GPU, by times of 16 cores and an H200 (tests/RESULTS.md): 20 us, 2.5 ns
 * a channel and row, 0.04 ns a parameter and row; 0.5 s and 30 us. A run begun on a GPU goes on there. */
static const char *choose(struct mn_session *s, const struct mn_model_config *c, double steps, double rows,
                          double part) {
  const char *began =
      s->options.resume ? mn_text_find(s->from->fingerprint, s->from->fingerprint_count, "device") : NULL;
  double channels = 0;
  for (int i = 0; i < c->depth; i++) channels += (double)c->hidden[i];
  const double parameters = (double)mn_model_size(c) * (rows > 32 ? rows : 32); /* which few rows read, too */
  const double cpu = steps * (20e-6 + part * (rows * channels * 2.5e-9 + parameters * 4e-11));
  s->brief = strcmp(s->options.device, "auto") == 0 && (!began || strcmp(began, "CPU") == 0) && cpu < 1 &&
             cpu < 0.5 + steps * 30e-6;
  return s->brief ? "cpu" : s->options.device;
}

/* For training on so many rows. Among ranks each takes the GPU of its number on its host. */
static mn_status open_context(struct mn_session *s, const struct mn_model_config *config, int64_t all) {
  const struct mn_options *o = &s->options;
  char gpu[32];
  const int any = strcmp(o->device, "cuda") == 0 || strcmp(o->device, "auto") == 0;
  const char *precision = mn_precision_name((enum mn_precision)o->precision);
  const double rows = (double)(o->batch * o->accumulate);
  const int share = s->ranks ? s->ranks->cores : 0;
  MN_TRY(find_horizon(s, all));
  if (!s->ranks || !any)
    return mn_session_context(&s->device, o, choose(s, config, (double)s->horizon, rows, 1), precision,
                              share);
  snprintf(gpu, sizeof gpu, "cuda:%d", s->ranks->local);
  const mn_status status = mn_session_context(&s->device, o, gpu, precision, share);
  if (status != MN_NO_DEVICE || strcmp(o->device, "cuda") == 0) return status;
  return mn_session_context(&s->device, o, "cpu", precision, share);
}

/* Opens the device first: the rows are computed on the device that trains. */
static mn_status open_synthetic(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  int64_t outputs = o->head > 0 ? o->head : o->hidden.items[o->hidden.count - 1];
  struct mn_model_config model;
  mn_options_model(o, &model);
  int64_t groups =
      outputs % model.groups == 0 ? model.groups : 1; /* the teacher's; a head's width need not divide */
  int64_t held_out = o->test_rows >= 0 ? o->test_rows : o->synthetic / 10 + (o->synthetic < 10);
  model.inputs = o->in;
  MN_TRY(open_context(s, &model, o->synthetic));
  MN_TRY(mn_dataset_synthetic(&s->train, MN_PART_TRAIN, o->synthetic, o->in, outputs, groups, o->noise,
                              o->seed, s->device));
  if (held_out > 0)
    MN_TRY(mn_dataset_synthetic(&s->test, MN_PART_TEST, held_out, o->in, outputs, groups, o->noise, o->seed,
                                s->device));
  return MN_OK;
}

/* The model that the options name. If they name no loss or no head, these follow from the targets. */
static mn_status new_model(const struct mn_session *s, struct mn_model_config *c) {
  const struct mn_options *o = &s->options;
  const struct mn_dataset *d = s->train;
  mn_options_model(o, c);
  c->inputs = d->inputs;
  mn_default_outputs(c, d);
  if (o->loss >= 0) c->loss = (enum mn_loss)o->loss;
  if (o->head >= 0) c->head = o->head;
  if ((c->loss == MN_LOSS_CROSS_ENTROPY) != d->classes)
    return mn_fail(MN_USAGE, "--loss %s does not go with these targets; %s does", mn_loss_name(c->loss),
                   d->classes ? "cross-entropy (y are classes)" : "mse (y are numbers)");
  if (d->class_names && o->head >= 0 && o->head != d->outputs)
    return mn_fail(MN_USAGE, "--head %ld, but y has %ld words, its classes; --head %ld would fit",
                   (long)o->head, (long)d->outputs, (long)d->outputs);
  int64_t outputs = mn_model_outputs(c);
  if (d->classes ? outputs < d->outputs : outputs != d->outputs)
    return mn_fail(MN_USAGE, "the model has %ld outputs, but the data %ld %s; --head %ld would fit",
                   (long)outputs, (long)d->outputs, d->classes ? "classes" : "targets", (long)d->outputs);
  return MN_OK;
}

/* Whether a dataset fits the model. */
static mn_status check_fit(const struct mn_session *s, struct mn_dataset *d, const struct mn_model_config *c,
                           int targets) {
  char data[4200];
  snprintf(data, sizeof data, "%s%s", d == s->test && s->train ? "the test part of " : "",
           s->options.data ? s->options.data : "the synthetic data");
  return mn_model_check_data(c, *s->from_path ? s->from_path : "the model of its training part", d, data,
                             targets);
}

/* Makes the folder of a new run, locks it, and checks what it holds. --dry-run only checks. */
static mn_status open_folder(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  if (o->resume && access(o->run, F_OK) != 0)
    return mn_fail(MN_NO_INPUT, "--run %s: %s; without --resume a new run begins there", o->run,
                   strerror(errno));
  if (!o->resume && !o->dry_run) MN_TRY(mn_run_make(o->run, &s->made));
  MN_TRY(mn_run_check(o->run, o->resume));
  if (o->dry_run) return MN_OK;
  MN_TRY(mn_run_lock(&s->lock, o->run));
  return mn_run_check(o->run, o->resume); /* another run may have been there meanwhile */
}

/* Locks, and resumes. The first rank does it before the others read what it may set aside. */
static mn_status lock_and_resume(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  char skipped[1024];
  if (mn_ranks_first(s->ranks) && o->run) MN_TRY(open_folder(s));
  if (!o->resume) return MN_OK;
  MN_TRY(mn_checkpoint_load_newest(&s->from, o->checkpoint, s->from_path, skipped, sizeof skipped));
  if (skipped[0] && mn_ranks_first(s->ranks))
    mn_escape_print(stderr, "minnow: warning: passed over %s\n", skipped);
  if (s->from->alone)
    return mn_fail(MN_BAD_DATA, "%s holds a model without its training: --init %s begins a new run from it",
                   s->from_path, s->from_path);
  return mn_resume_options(s);
}

/* Refuses a model that does not fit before its memory is taken and filled: a run needs at least its
 * parameters, what the optimizer keeps of each, and a head's product, outputs and their gradient. */
static mn_status check_memory(const struct mn_session *s, const struct mn_model_config *c,
                              const struct mn_rule *rule) {
  struct mn_device *device = s->device;
  const int arrays = 1 + mn_rule_keeps_m(rule) + mn_rule_keeps_v(rule);
  const double parameters = (double)mn_model_size(c);
  size_t available;
  const double outputs = 3.0 * (double)(s->options.batch * c->head) / mn_ranks_replicas(s->ranks);
  const double least = (parameters * arrays + outputs) * (double)device->real / mn_ranks_shards(s->ranks);
  MN_TRY(mn_available(device, &available));
  if (available == 0 || least <= (double)available) return MN_OK; /* 0 if it is full or unknown */
  return mn_fail(
      MN_NO_MEMORY,
      "%.0f parameters and a batch take at least %.1f MiB in training by %s, and %s has %.1f MiB free: fewer "
      "or smaller blocks, fewer outputs or a smaller batch would do",
      parameters, least / 0x1p20, mn_optimizer_name(rule->kind), s->device->name, (double)available / 0x1p20);
}

/* What needs no other rank: the options, the rows, a device. */
static mn_status open_inputs(struct mn_session *s, struct mn_model_config *config) {
  const struct mn_options *o = &s->options;
  if (!mn_ranks_first(s->ranks)) {
    MN_TRY(lock_and_resume(s));
    s->options.log = NULL, s->options.plot = 0; /* it writes no files */
  }
  MN_TRY(o->data ? mn_session_open_file(s) : open_synthetic(s));
  if (!s->test && (o->best || o->patience))
    return mn_fail(MN_USAGE, "--%s compares epochs by their test rows, and there are none: %s",
                   o->best ? "best" : "patience",
                   s->from   ? "a new run with --validation 0.1 or --test-rows has some"
                   : o->data ? "--validation 0.1 holds a tenth out"
                             : "give --test-rows");
  if (!s->from && !mn_options_given(o, "batch") && o->data)
    s->options.batch = mn_default_batch(s->train->rows);
  if (o->batch > s->train->rows)
    return mn_fail(MN_USAGE, "--batch %ld is more than the %ld rows %s; --batch %ld or less works",
                   (long)o->batch, (long)s->train->rows,
                   o->validation > 0 ? "that --validation leaves to train on" : "of the data",
                   (long)s->train->rows);
  if (s->from)
    *config = s->from->model;
  else
    MN_TRY(new_model(s, config));
  if (s->from && o->loss >= 0) config->loss = (enum mn_loss)o->loss; /* it may be another */
  config->plan = (enum mn_plan)o->plan;
  if (s->from) MN_TRY(check_fit(s, s->train, config, 1));
  if (s->test) MN_TRY(check_fit(s, s->test, config, 1));
  return s->device ? MN_OK : open_context(s, config, s->train->rows);
}

static mn_status restore(struct mn_session *s, struct mn_progress *progress) {
  const mn_status status = mn_snapshot_restore(s->from, s->model, s->optimizer, progress);
  return status == MN_BAD_DATA ? mn_fail(status, "%s: %s", s->from_path, mn_message()) : status;
}

mn_status mn_session_train(struct mn_session *s, const struct mn_options *options) {
  *s = (struct mn_session){.options = *options};
  const struct mn_options *o = &s->options;
  struct mn_model_config config;
  struct mn_optimizer_config optimizer;
  MN_TRY(mn_ranks_meet(s));
  if (!mn_ranks_first(s->ranks)) mn_progress_open(0, s->options.quiet = 1);
  MN_TRY(mn_ranks_share_cores(s->ranks));
  if (s->ranks) MN_TRY(mn_ranks_agree(s->ranks, mn_ranks_compare_options(s)));
  MN_TRY(mn_ranks_agree(s->ranks, mn_ranks_first(s->ranks) ? lock_and_resume(s) : MN_OK));
  MN_TRY(mn_ranks_agree(s->ranks, open_inputs(s, &config)));
  MN_TRY(mn_ranks_introduce(s));
  MN_TRY(mn_ranks_choose_grid(s, &config));
  MN_TRY(mn_device_join(s->device, s->ranks));
  mn_options_optimizer(o, s->horizon, &optimizer);
  MN_TRY(check_memory(s, &config, &optimizer.rule));
  MN_TRY(mn_model_open(&s->model, s->device, &config));
  MN_TRY(mn_optimizer_open(&s->optimizer, s->model, &optimizer));
  if (s->train->class_names) MN_TRY(mn_model_name_classes(s->model, &s->class_names));
  if (s->csv) MN_TRY(mn_model_columns(s->model, s->csv));
  if (s->from) {
    MN_TRY(restore(s, &s->progress));
    /* The next sample follows those trained on, in the order of these rows. */
    struct mn_progress *p = &s->progress;
    p->rows = s->train->rows;
    p->epoch = p->samples / p->rows;
    p->position = p->samples % p->rows;
    return MN_OK;
  }
  if (o->init) return mn_snapshot_load_weights(o->init, s->model);
  return o->dry_run ? MN_OK : mn_model_initialise(s->model, o->seed);
}

mn_status mn_session_columns(struct mn_session *s, const int *stop) {
  const struct mn_options *o = &s->options;
  if (s->from && o->standardize > 0 && !s->model->standard[MN_X].mean)
    return mn_fail(MN_USAGE, "--standardize, but %s was trained without; leave it out, or start a new run",
                   s->from_path);
  return s->from ? MN_OK : mn_session_standardize(o, s->model, s->train, s->columns, stop);
}

mn_status mn_session_standardize(const struct mn_options *o, struct mn_model *model, struct mn_dataset *train,
                                 struct mn_columns columns[MN_SIDES], const int *stop) {
  const int asked = (int)o->standardize, standardizes = asked > 0 || (asked < 0 && o->data && !o->init);
  model->standard[MN_Y].log = o->y_scale != 0;
  if (o->quiet && !standardizes && asked < 0) return MN_OK;
  const int one = asked == MN_STANDARDIZE_ONE ? 1 : asked < 0 ? -1 : 0;
  const int64_t rows = train->rows, cols = train->inputs, targets = train->outputs;
  if (!standardizes && !o->quiet)
    MN_TRY(mn_columns_measure(&columns[MN_X], train, MN_X, (1 << 21) / cols, stop));
  if (asked == MN_STANDARDIZE_NO) { /* not by the numbers of --init either */
    MN_TRY(mn_model_standardize(model, NULL, NULL));
    return train->classes ? MN_OK : mn_model_standardize_targets(model, NULL, NULL);
  }
  if (!standardizes) return MN_OK;
  mn_status status = mn_model_standardize_side(
      model, train, MN_X, asked > 0 ? rows : mn_default_measured(cols, rows), one, &columns[MN_X], stop);
  /* Real targets are standardised each by itself or, of one unit, all alike. */
  if (status == MN_OK && !train->classes)
    status = mn_model_standardize_side(
        model, train, MN_Y, asked > 0 ? rows : mn_default_measured(targets, rows), -1, &columns[MN_Y], stop);
  if (status != MN_USAGE) return status; /* else it is a column that training cannot hold */
  return mn_fail(MN_BAD_DATA, "%s: %s; another unit would do", o->data, mn_message());
}

/* *ours: whether the file is a checkpoint of minnow's. */
static mn_status recognise(const char *path, int *ours) {
  struct mn_hdf5_file file;
  MN_TRY(mn_hdf5_open(&file, path, "take an older checkpoint or a copy", 0));
  mn_status status = mn_checkpoint_format(&file, ours);
  mn_hdf5_close(&file);
  return status;
}

int64_t mn_session_rows_a_pass(const struct mn_session *s) {
  const struct mn_model_config *c = &s->model->config;
  int64_t width = c->inputs + mn_model_outputs(c);
  for (int i = 0; i < c->depth; i++) width += c->hidden[i];
  return (1 << 19) / width > s->options.batch ? (1 << 19) / width : s->options.batch;
}

mn_status mn_session_read(struct mn_session *s, const struct mn_options *options, int targets) {
  static const char *const said[] = {"groups", "eps", "slope", "loss"};
  *s = (struct mn_session){.options = *options};
  const struct mn_options *o = &s->options;
  struct mn_model_config config;
  int checkpoint;
  snprintf(s->from_path, sizeof s->from_path, "%s", o->checkpoint);
  MN_TRY(recognise(o->checkpoint, &checkpoint));
  /* A checkpoint describes its own model, so options that describe it are refused. */
  for (size_t i = 0; checkpoint && i < sizeof said / sizeof *said; i++)
    if (mn_options_given(o, said[i]))
      return mn_fail(MN_USAGE, "--%s is for a file of weights alone, and %s is a checkpoint: leave it out",
                     said[i], o->checkpoint);
  if (checkpoint) MN_TRY(mn_checkpoint_load(&s->from, o->checkpoint));
  const char *x = mn_resume_find(s, "x"), *y = mn_resume_find(s, "y"); /* as the run's rows were called */
  if (x && !mn_options_given(o, "x")) s->options.x_name = x;
  if (y && !mn_options_given(o, "y")) s->options.y_name = y;
  MN_TRY(mn_session_open_part(s, targets));
  if (checkpoint) {
    config = s->from->model;
  } else { /* sizes come from the weights' shapes, the rest from the options */
    mn_options_model(o, &config);
    MN_TRY(mn_weights_sizes(o->checkpoint, &config));
    if (config.groups == 0)
      return mn_fail(MN_USAGE, "%s has weights alone, and no number of groups: %s needs --groups G for it",
                     o->checkpoint, mn_command_rows[o->command].name);
    if (o->loss < 0) config.loss = s->test->classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
  }
  MN_TRY(check_fit(s, s->test, &config, targets));
  const char *trained =
      checkpoint ? mn_text_find(s->from->fingerprint, s->from->fingerprint_count, "precision") : NULL;
  MN_TRY(mn_session_context(&s->device, o, choose(s, &config, 1, (double)s->test->rows, 1. / 8),
                            o->precision >= 0 ? mn_precision_name((enum mn_precision)o->precision)
                            : trained         ? trained
                                              : "fp32",
                            0));
  MN_TRY(mn_model_open(&s->model, s->device, &config));
  return checkpoint ? restore(s, NULL) : mn_snapshot_load_weights(o->checkpoint, s->model);
}

void mn_session_close(struct mn_session *s) {
  mn_optimizer_close(s->optimizer);
  mn_model_close(s->model);
  for (int side = 0; side < MN_SIDES; side++) mn_columns_free(&s->columns[side]);
  free(s->class_weights);
  mn_dataset_close(s->train);
  mn_dataset_close(s->test);
  mn_checkpoint_free(s->from);
  mn_csv_close(s->csv);
  free(s->class_names.names), free(s->table);
  mn_device_close(s->device);
  mn_run_unlock(s->lock);
  if (s->made) (void)rmdir(s->options.run); /* unless it holds something */
  mn_ranks_close(s->ranks);
}

static void warn_of_differences(const struct mn_session *s) {
  struct mn_text now[MN_CHECKPOINT_FINGERPRINT + 1];
  int count = mn_describe_fingerprint(s->device, now);
  if (!s->ranks && mn_text_find(s->from->fingerprint, s->from->fingerprint_count, "ranks"))
    now[count++] = (struct mn_text){"ranks", "1x1"};
  for (int i = 0; i < count; i++) {
    const char *then = mn_text_find(s->from->fingerprint, s->from->fingerprint_count, now[i].name);
    if (!then) then = strcmp(now[i].name, "ranks") == 0 ? "1x1" : "unknown";
    if (strcmp(then, now[i].value) == 0) continue;
    mn_escape_print(
        stderr,
        "minnow: warning: %s was written with %s '%s', and this is '%s'; the last bits may come out "
        "otherwise\n",
        s->from_path, now[i].name, then, now[i].value);
  }
}

/* Announces how the model of --init differs from this one. Only a checkpoint has a /config to compare with;
 * an unreadable one is ignored. */
static void describe_init(const struct mn_session *s) {
  static const char *const named[] = {"groups", "eps", "slope", "loss", "plan"};
  const struct mn_options *o = &s->options;
  struct mn_checkpoint *from;
  struct mn_options here = s->options;
  char text[400] = "", now[MN_TEXT_VALUE], groups[24];
  mn_announce(o, "weights: from %s", o->init);
  if (mn_checkpoint_read_config(&from, o->init) != MN_OK) return;
  here.groups = s->model->config.groups, here.loss = s->model->config.loss; /* not "auto", as in /config */
  snprintf(groups, sizeof groups, "%ld", (long)from->model.groups);
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    const char *then = strcmp(named[i], "groups") == 0 ? groups
                       : strcmp(named[i], "loss") == 0
                           ? mn_loss_name(from->model.loss)
                           : mn_text_find(from->options, from->option_count, named[i]);
    const size_t used = strlen(text);
    mn_option_show(now, sizeof now, &here, mn_option_find(named[i]));
    if (then && strcmp(named[i], "plan") == 0 && strcmp(then, "block") == 0)
      then = "stack"; /* as before it */
    if (then && strcmp(then, now) != 0)
      snprintf(text + used, sizeof text - used, "%s %s %.40s (here %.40s)", used ? "," : "", named[i], then,
               now);
  }
  if (*text) mn_announce(o, "note: %s was trained with%s", o->init, text);
  mn_checkpoint_free(from);
}

/* Notes a class that --validation leaves on one side, or that all rows of a new run are of. */
static void note_alone(const struct mn_session *s) {
  const int64_t alone = s->from ? 0 : s->test && s->whole ? s->test->alone : s->train->alone;
  char name[MN_CLASS_NAME];
  snprintf(name, sizeof name, "%lld", llabs(alone) - 1LL);
  if (alone && s->class_names.count) strcpy(name, s->class_names.names[llabs(alone) - 1]);
  if (alone > 0)
    mn_announce(&s->options, "note: all rows to train on are of one class, %s: nothing to tell apart", name);
  for (int64_t k = 0; k < s->class_names.count; k++)
    if (!s->from && mn_csv_is_missing(s->class_names.names[k]))
      mn_announce(&s->options, "note: a class is called %s: leave out these rows if their labels are missing",
                  s->class_names.names[k]);
  if (alone < 0) mn_announce(&s->options, "note: of class %s --validation holds out all rows or none", name);
}

void mn_session_describe(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  if (!mn_ranks_first(s->ranks)) return;
  if (!o->checkpoint && !o->dry_run) mn_announce(o, "note: the model is not saved without --run DIR");
  if (s->ranks)
    mn_announce(o, "ranks: %d, by %s; %d shards of every block's groups, %d replicas that share the batch",
                s->ranks->all.size, mn_mpi_version(), s->ranks->shards.size, s->ranks->replicas.size);
  mn_announce_model(s->model, o, s->brief);
  if (o->data)
    mn_announce(o, "data: %s, %ld rows, %ld to test%s", o->data, (long)s->train->rows,
                s->test ? (long)s->test->rows : 0L, s->whole ? ", held out by --validation" : "");
  mn_announce_table(s->csv, o);
  mn_session_tell_weights(s);
  if (s->whole > MN_DATASET_STRATIFIED / s->train->inputs)
    mn_announce(o,
                "note: of so many rows stretches of neighbours are held out, not single rows of each class");
  note_alone(s);
  if (!s->from && o->data) mn_session_note_targets(s);
  if (!o->data)
    mn_announce(o, "data: %ld synthetic rows, whose noise alone is a loss of %g", (long)s->train->rows,
                o->noise * o->noise);
  if (s->from) {
    mn_announce(o, "resuming from %s, step %ld", s->from_path, (long)s->from->progress.step);
    mn_resume_describe(s);
    warn_of_differences(s);
  }
  if (o->init) describe_init(s);
  mn_announce_columns(s->columns, s->csv, s->model, o);
  if (!o->verbose) return;
  if (s->optimizer->stored)
    mn_announce(o, "plan: gradients are stored, then applied (%s)",
                mn_ranks_replicas(s->ranks) > 1 && s->optimizer->config.accumulate == 1
                    ? "replicas add them up, and update a share of each weight"
                    : "clipping and accumulation need them whole");
  else
    mn_announce(o, "plan: gradients update their parameters at once");
}
