/* The rows of --data that a session takes: to train and to test on, or those of --part. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_file.h"
#include "data/held_out.h"
#include "data/weights.h"
#include "kernels/text.h"
#include "train/checkpoint/layout.h"
#include "train/command/announce.h"
#include "train/command/session.h"

/* Whether integers are numbers: by --loss, or as the run had it. */
static int wants_numbers(const struct mn_session *s) {
  return s->options.loss >= 0 ? s->options.loss == MN_LOSS_MSE
                              : s->from && s->from->model.loss == MN_LOSS_MSE;
}

/* Options that only a CSV has; a table settles the first three. */
static const char *const of_csv[] = {"target", "drop", "use", "header", "id"};

/* Reads a CSV file once, and opens its rows. It has one part. */
static mn_status open_csv(struct mn_session *s, struct mn_dataset **out, enum mn_part part, int targets) {
  const struct mn_options *o = &s->options;
  const int numbers = o->loss == MN_LOSS_MSE ? 1 : -1, header = o->header > 0 ? 1 : -1; /* as asked */
  const struct mn_csv_config config = {.header = o->header < 0 ? 0 : header,
                                       .table = s->table,
                                       .target = o->target,
                                       .drop = o->drop,
                                       .use = o->use,
                                       .id = o->id,
                                       .weights = o->weights,
                                       .numbers = o->loss < 0 ? 0 : numbers};
  if (mn_options_given(o, "x") || mn_options_given(o, "y"))
    return mn_fail(MN_USAGE, "--%s is for HDF5, but %s is a CSV: --target NAME names its target",
                   mn_options_given(o, "x") ? "x" : "y", o->data);
  if (s->from && !s->table)
    return mn_fail(MN_USAGE,
                   "%s was trained on HDF5, and knows no names of columns, but %s is a CSV: give HDF5",
                   s->from_path, o->data);
  for (int i = 0; i < 3 && s->table; i++)
    if (mn_options_given(o, of_csv[i]))
      return mn_fail(MN_USAGE, "--%s, but %s has its columns already: leave it out, or start a new run",
                     of_csv[i], s->from ? s->from_path : o->init);
  *out = NULL;
  if (!s->csv) MN_TRY(mn_csv_open(&s->csv, o->data, &config));
  if (part == MN_PART_TEST) return MN_OK;
  MN_TRY(mn_csv_rows(out, s->csv, targets));
  const struct mn_class_names *names = (*out)->class_names, *had = &s->class_names;
  if (!names || s->table) return MN_OK;
  if (!had->count) return mn_class_names_copy(&s->class_names, names);
  int same = names->count == had->count;
  for (int64_t k = 0; k < names->count && same; k++) same = strcmp(names->names[k], had->names[k]) == 0;
  return same ? MN_OK
              : mn_fail(MN_BAD_DATA, "%s: its classes are others than those of %s: start without --init",
                        o->data, o->init);
}

/* --y a,b: datasets of numbers, which are targets side by side. Without `targets` they are left out if one is
 * not there. */
static mn_status open_several(struct mn_session *s, struct mn_dataset **out, enum mn_part part, int targets) {
  const struct mn_options *o = &s->options;
  struct mn_dataset *parts[MN_JOINED] = {NULL};
  char names[MN_TEXT_VALUE], *rest = names;
  mn_status status = MN_OK;
  int count = 0, all = 1;
  snprintf(names, sizeof names, "%s", o->y_name);
  for (char *name; status == MN_OK && count < MN_JOINED && (name = strsep(&rest, ","));
       count += parts[count] != NULL) {
    status = *name
                 ? mn_dataset_open(&parts[count], o->data, part, o->x_name, name,
                                   MN_Y_NUMBERS | (targets ? MN_Y_REQUIRED : 0))
                 : mn_fail(MN_USAGE, "--y %s has no name before or behind a comma: leave it out", o->y_name);
    if (status != MN_OK || !parts[count]) break; /* the file has no such part */
    all = all && parts[count]->outputs > 0;
    if (parts[count]->classes)
      status =
          mn_fail(MN_BAD_DATA, "%s: dataset %s has words, but several targets are numbers", o->data, name);
  }
  if (status == MN_OK && count == MN_JOINED && rest)
    status = mn_fail(MN_USAGE, "--y names more than %d datasets; put their targets into one", MN_JOINED);
  if (status == MN_OK && count && all) {
    status = mn_dataset_join(out, parts, count, NULL);
    if (status == MN_OK) return MN_OK;
  }
  if (status == MN_OK && count) *out = parts[0], parts[0] = NULL, (*out)->outputs = 0;
  for (int i = 0; i < MN_JOINED; i++) mn_dataset_close(parts[i]);
  return status;
}

/* Labels are those of the checkpoint's classes, or of the file of --init, or of the rows to train on. */
static mn_status open_named(struct mn_session *s, struct mn_dataset **out, enum mn_part part, int targets) {
  const struct mn_options *o = &s->options;
  if (mn_csv_named(o->data)) return open_csv(s, out, part, targets);
  for (size_t i = 0; i < sizeof of_csv / sizeof *of_csv; i++)
    if (mn_options_given(o, of_csv[i]))
      return mn_fail(MN_USAGE, "--%s is for a CSV, but %s is none: --x and --y name its datasets", of_csv[i],
                     o->data);
  *out = NULL;
  if (strchr(o->y_name, ',')) return open_several(s, out, part, targets);
  const int how = (targets ? MN_Y_REQUIRED : 0) | (wants_numbers(s) ? MN_Y_NUMBERS : 0);
  MN_TRY(mn_dataset_open(out, o->data, part, o->x_name, o->y_name, how));
  if (!*out || !(*out)->classes || (!s->class_names.count && !(*out)->class_names)) return MN_OK;
  if (!s->class_names.count && !*s->from_path && out == &s->train)
    return mn_class_names_copy(&s->class_names, (*out)->class_names);
  return mn_dataset_name_classes(*out, &s->class_names,
                                 *s->from_path                     ? s->from_path
                                 : o->init && s->class_names.count ? o->init
                                                                   : "its training part");
}

static mn_status take_logs(const struct mn_session *s, struct mn_dataset **dataset) {
  if ((*dataset)->classes)
    return mn_fail(MN_USAGE, "--y-scale log is for targets that are numbers, and those of %s are classes%s",
                   s->options.data, (*dataset)->class_names ? "" : "; --loss mse trains on them as numbers");
  return mn_dataset_join(dataset, &(struct mn_dataset *){*dataset}, 1, s->options.data);
}

/* By the dataset of --weights. */
static mn_status weigh(const struct mn_session *s, struct mn_dataset *dataset, enum mn_part part) {
  const struct mn_options *o = &s->options;
  struct mn_dataset *of;
  mn_status status = mn_dataset_open(&of, o->data, part, o->x_name, o->weights, MN_Y_REQUIRED | MN_Y_NUMBERS);
  if (status != MN_OK) return mn_fail(status, "--weights %s: %s", o->weights, mn_message());
  double *const weights = malloc((size_t)of->rows * sizeof *weights);
  if (!weights) status = mn_fail(MN_NO_MEMORY, "no memory for %ld weights", (long)of->rows);
  if (of->classes || of->outputs != 1)
    status = mn_fail(MN_BAD_DATA, "%s: dataset %s has %s: weights are a number for each row", o->data,
                     o->weights, of->classes ? "words" : "several columns");
  if (status == MN_OK) status = of->read(of, 0, of->rows, sizeof *weights, NULL, weights);
  if (status == MN_OK) status = mn_dataset_weigh(dataset, weights);
  if (status == MN_USAGE)
    status = mn_fail(MN_BAD_DATA, "%s: dataset %s: %s", o->data, o->weights, mn_message());
  free(weights);
  mn_dataset_close(of);
  return status;
}

/* Targets that are not wanted are left out, with a warning, if they cannot be read. */
static mn_status open_rows(struct mn_session *s, struct mn_dataset **out, enum mn_part part, int targets) {
  const struct mn_options *o = &s->options;
  struct mn_outcome outcome;
  const mn_status status = open_named(s, out, part, targets);
  const int copied = o->command == MN_COMMAND_PREDICT && out == &s->test; /* to --out, as they are */
  if (status == MN_OK && *out && targets && !copied && (s->from ? s->from->log != 0 : o->y_scale))
    MN_TRY(take_logs(s, out));
  if (status == MN_OK && *out && o->weights && !s->csv) return weigh(s, *out, part);
  if (status != MN_BAD_DATA || targets || mn_csv_named(o->data)) return status;
  mn_outcome_note(&outcome, status);
  mn_dataset_close(*out), *out = NULL;
  MN_TRY(mn_dataset_open(out, o->data, part, o->x_name, o->y_name, MN_Y_NONE));
  mn_escape_print(stderr, "minnow: warning: %s gets no target: %s\n", o->out, outcome.message);
  return MN_OK;
}

/* The names of classes and columns that the run begins with: its checkpoint's, or those of --init's. A file
 * of --init that cannot be read is refused when its weights are loaded. */
static mn_status find_names(struct mn_session *s) {
  struct mn_checkpoint *init = NULL;
  const struct mn_options *o = &s->options;
  if (!s->from && (!o->init || mn_checkpoint_read_config(&init, o->init) != MN_OK)) return MN_OK;
  const struct mn_checkpoint *c = s->from ? s->from : init;
  mn_status status = mn_class_names_copy(&s->class_names, &c->class_names);
  if (init && (init->log != 0) != (o->y_scale != 0) && init->model.loss == MN_LOSS_MSE)
    status = mn_fail(MN_USAGE, "--init %s has learnt %s: --y-scale %s goes with it", o->init,
                     init->log != 0 ? "logarithms of y" : "y, not its logarithms",
                     init->log != 0 ? "log" : "linear");
  if (c->table && !(s->table = strdup(c->table)) && status == MN_OK)
    status = mn_fail(MN_NO_MEMORY, "no memory for a table of columns");
  mn_checkpoint_free(init);
  return status;
}

/* Refuses rows that the run drew by an order that this minnow does not have: MN_USAGE. */
static mn_status check_draw(const struct mn_session *s, const char *remedy) {
  if (mn_resume_find(s, MN_VALIDATION_DRAW)) return MN_OK;
  return mn_fail(MN_USAGE, "%s held rows out as minnow 0.3.0 draws them, which goes on with it; %s",
                 s->from_path, remedy);
}

/* Under --validation splits the only part into train and test parts. */
static mn_status open_parts(struct mn_session *s) {
  enum { FEW = 10, SHARE = 10 };
  const struct mn_options *o = &s->options;
  MN_TRY(find_names(s));
  MN_TRY(open_rows(s, &s->train, MN_PART_TRAIN, 1));
  const struct mn_dataset *d = s->train;
  const int few = d->outputs <= FEW || (d->outputs <= MN_CLASSES_MOST && d->outputs <= d->rows / SHARE);
  /* Integers that look like numbers are trained as classes, or as numbers, only if --loss says so. */
  if (!s->from && !s->csv && o->loss < 0 && d->classes && !d->class_names && !few)
    return mn_fail(
        MN_BAD_DATA,
        "%s: %s holds integers up to %lld in %lld rows: if they are numbers, --loss mse, or floats, "
        "trains on them; if they are classes, --loss cross-entropy does",
        o->data, o->y_name, (long long)d->outputs - 1, (long long)d->rows);
  MN_TRY(open_rows(s, &s->test, MN_PART_TEST, 1));
  if (o->validation == 0) return MN_OK;
  if (s->test)
    return mn_fail(MN_USAGE, "--validation %g, but %s has a test part; %s", o->validation, o->data,
                   s->from ? "--data names rows without one" : "leave --validation out");
  s->whole = s->train->rows;
  if (s->from) MN_TRY(check_draw(s, "--init begins a run with its weights"));
  MN_TRY(open_rows(s, &s->test, MN_PART_TRAIN, 1));
  MN_TRY(mn_dataset_hold_out(&s->test, MN_PART_TEST, o->validation, o->seed, 1));
  return mn_dataset_hold_out(&s->train, MN_PART_TRAIN, o->validation, o->seed, 1);
}

/* The first label that no row has, or −1; of many classes and rows it is not looked for. */
static int64_t missing_label(struct mn_dataset *d) {
  enum { MOST = 1 << 20 };
  int32_t *labels;
  char there[MN_CLASSES_MOST] = {0};
  int64_t missing = 0;
  if (d->outputs > MN_CLASSES_MOST || d->rows > MOST) return -1;
  if (mn_dataset_labels(&labels, d) != MN_OK) return -1; /* which training tells */
  for (int64_t row = 0; row < d->rows; row++) there[labels[row]] = 1;
  free(labels);
  while (missing < d->outputs && there[missing]) missing++;
  return missing < d->outputs ? missing : -1;
}

/* Whether of the first rows' targets one is 1 and the others are 0. */
static int is_one_hot(struct mn_dataset *d) {
  enum { LOOKED = 1024 };
  const int64_t cols = d->outputs, most = LOOKED / cols, rows = d->rows < most ? d->rows : most;
  double y[LOOKED];
  if (cols < 2 || rows < 1 || d->read(d, 0, rows, sizeof *y, NULL, y) != MN_OK) return 0;
  for (int64_t n = 0, at = 0; n < rows; n++) {
    int64_t ones = 0, zeros = 0;
    for (int64_t k = 0; k < cols; k++, at++) ones += y[at] == 1, zeros += y[at] == 0;
    if (ones != 1 || zeros != cols - 1) return 0;
  }
  return 1;
}

void mn_session_tell_weights(const struct mn_session *s) {
  char words[1024] = "", name[4 * MN_CLASS_NAME];
  if (s->options.weights) mn_announce(&s->options, "weights of rows: %s", s->options.weights);
  if (!s->class_weights) return;
  const int64_t classes = s->train->outputs, shown = classes < 10 ? classes : 10;
  for (int64_t k = 0, used = 0; k < shown && used < (int)sizeof words; k++) {
    snprintf(name, sizeof name, "%ld", (long)k);
    if (s->class_names.count) mn_escape(name, sizeof name, s->class_names.names[k]);
    used += snprintf(words + used, sizeof words - (size_t)used, "%s%s %.4g", k ? ", " : "", name,
                     s->class_weights[k]);
  }
  mn_announce(&s->options, "weights of classes: %s%s", words, shown < classes ? " …" : "");
}

void mn_session_note_targets(const struct mn_session *s) {
  struct mn_dataset *d = s->train;
  const int64_t missing = d->classes && !d->class_names ? missing_label(d) : -1;
  if (missing >= 0)
    mn_announce(&s->options,
                "note: no row to train on has the label %ld: the model has an output for it all the same",
                (long)missing);
  if (!d->classes && !s->csv && !strchr(s->options.y_name, ',') && is_one_hot(d))
    mn_announce(&s->options,
                "note: %s is 1 in one column of each row, and else 0: if it says which class, train on "
                "%s.argmax(axis=1), "
                "whole numbers",
                s->options.y_name, s->options.y_name);
}

/* The factors that --class-weight lists. */
static mn_status list_weights(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  const int64_t classes = s->train->outputs;
  int64_t count = 0;
  int good = 1;
  const char *p = o->class_weight;
  for (char *end; good; p = end + 1) {
    const double weight = strtod(p, &end);
    good = end != p && isfinite(weight) && weight >= 0 && (!*end || *end == ',');
    if (good && count < classes) s->class_weights[count] = weight;
    count += good;
    if (!*end) break;
  }
  if (good && count == classes) return MN_OK;
  return mn_fail(MN_USAGE,
                 "--class-weight %s: balanced, or a number from 0 on for each of the %ld classes%s, between "
                 "commas, works",
                 o->class_weight, (long)classes, s->class_names.count ? "" : ", which count from 0");
}

mn_status mn_session_weigh_classes(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  const struct mn_dataset *d = s->train;
  if (!o->class_weight) return MN_OK;
  if (!d->classes)
    return mn_fail(MN_USAGE,
                   "--class-weight is for classes, and the targets of %s are numbers: --weights NAME "
                   "names a factor for each row",
                   o->data);
  s->class_weights = calloc((size_t)d->outputs, sizeof *s->class_weights);
  if (!s->class_weights) return mn_fail(MN_NO_MEMORY, "no memory for the weights of classes");
  return strcmp(o->class_weight, "balanced") == 0 ? mn_dataset_balance(s->train, s->class_weights)
                                                  : list_weights(s);
}

mn_status mn_session_open_file(struct mn_session *s) {
  MN_TRY(open_parts(s));
  return s->csv ? mn_csv_fill(s->csv, s->train) : MN_OK;
}

/* ---- the rows of --part ---- */

/* The sample of a part of the rows that --validation divided. */
static mn_status read_part(struct mn_session *s, enum mn_part part, struct mn_fingerprint *out) {
  struct mn_dataset *d = NULL;
  mn_status status = open_rows(s, &d, MN_PART_TRAIN, 1);
  if (status == MN_OK)
    status = mn_dataset_hold_out(&d, part, s->options.validation, s->from->progress.seed, 1);
  if (status == MN_OK) {
    const struct mn_rows_form form = {.real = sizeof(double),
                                      .x_row = (size_t)d->inputs * sizeof(double),
                                      .y_row = (size_t)(d->classes ? 1 : d->outputs) * sizeof(double),
                                      .threads = 1};
    status = mn_fingerprinting.sample(d, &form, out, NULL);
  }
  mn_dataset_close(d);
  return status;
}

/* Whether these are the rows that the run held some out of: by their fingerprint or, as minnow 0.3 kept none,
 * by their number. */
static mn_status are_the_runs(struct mn_session *s, int *same) {
  const char *trained = mn_resume_find(s, "train_rows"), *then = mn_resume_find(s, "data_rows");
  const int64_t rows = s->test->rows, held_out = mn_dataset_held_out(rows, s->options.validation);
  struct mn_fingerprint train, test;
  char now[MN_FINGERPRINT_TEXT];
  *same =
      trained && rows - held_out == strtoll(trained, NULL, 10) && s->test->inputs == s->from->model.inputs &&
      (s->test->classes || s->test->outputs == 0 || s->test->outputs == mn_model_outputs(&s->from->model));
  if (*same) MN_TRY(check_draw(s, "--part all takes all rows"));
  if (!*same || !then || s->test->outputs == 0) return MN_OK; /* y is in the fingerprint */
  MN_TRY(read_part(s, MN_PART_TRAIN, &train));
  MN_TRY(read_part(s, MN_PART_TEST, &test));
  mn_fingerprint_show(now, &train, &test);
  *same = mn_fingerprint_same(then, now);
  return MN_OK;
}

/* Takes the part that the run held out, or the other one, if these are that run's rows. */
static mn_status take_part(struct mn_session *s, enum mn_part part) {
  const struct mn_options *o = &s->options;
  const char *share = mn_resume_find(s, "validation");
  int same = 0;
  if (share) MN_TRY(mn_options_set(&s->options, "validation", share));
  if (o->validation > 0) {
    struct mn_dataset *all = s->test,
                      *with = NULL; /* of a CSV, the rows with a target: a run has no others */
    mn_status status = s->csv && all->outputs > 0 ? mn_csv_rows(&with, s->csv, 1) : MN_OK;
    if (status == MN_OK && with && s->from->log != 0 && o->command == MN_COMMAND_EVAL)
      status = take_logs(s, &with);
    if (status != MN_OK && status != MN_BAD_DATA) return status;
    if (with) s->test = with;
    status = are_the_runs(s, &same); /* MN_BAD_DATA: the run could not have read these rows */
    if (!same) s->test = all;
    mn_dataset_close(same && with ? all : with);
    if (status != MN_OK && status != MN_BAD_DATA) return status;
    if (same) s->whole = s->test->rows;
    if (same) return mn_dataset_hold_out(&s->test, part, o->validation, s->from->progress.seed, 1);
  }
  if (part == MN_PART_TRAIN || o->part != MN_ROWS_TEST) return MN_OK;
  return mn_fail(MN_USAGE,
                 "--part test: %s has no test part, and %s held none of its rows out; --part all would do",
                 o->data, s->from_path);
}

/* Counts how many of the rows to score the run was trained on, by the hashes that it kept of some. */
static mn_status count_seen(struct mn_session *s) {
  enum { ROWS = 1 << 18, VALUES = 1 << 24 }; /* the most that are looked at */
  const char *trained = mn_resume_find(s, "train_rows");
  const double rows = trained ? strtod(trained, NULL) : 0;
  const int64_t fit = VALUES / s->test->inputs + 1, most = fit < ROWS ? fit : ROWS;
  s->looked = s->test->rows < most ? s->test->rows : most;
  MN_TRY(mn_fingerprint_count(s->test, s->from->trained, s->looked, &s->seen));
  if (rows > MN_FINGERPRINT_ROWS)
    s->seen = (int64_t)fmin((double)s->seen * rows / MN_FINGERPRINT_ROWS, (double)s->looked);
  return MN_OK;
}

static mn_status open_part(struct mn_session *s, int targets) {
  const struct mn_options *o = &s->options;
  const int all = o->part == MN_ROWS_ALL, train = o->part == MN_ROWS_TRAIN;
  enum mn_part part = all ? MN_PART_ALL : MN_PART_TEST;
  targets = targets || mn_options_given(o, "y");
  MN_TRY(find_names(s));
  MN_TRY(open_rows(s, &s->test, part, targets));
  if (s->test && !train) return MN_OK;
  int parts = s->test != NULL;
  mn_dataset_close(s->test);
  s->test = NULL;
  MN_TRY(open_rows(s, &s->test, MN_PART_TRAIN, targets));
  if (parts || (s->test->outputs == 0 && o->part == MN_ROWS_AUTO)) return MN_OK;
  return take_part(s, train ? MN_PART_TRAIN : MN_PART_TEST);
}

mn_status mn_session_open_part(struct mn_session *s, int targets) {
  s->seen = -1;
  MN_TRY(open_part(s, targets));
  const int fits = s->from && s->from->trained && s->test->inputs == s->from->model.inputs;
  return fits && !s->whole && s->options.part != MN_ROWS_TRAIN ? count_seen(s) : MN_OK;
}

void mn_session_announce_rows(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  char far[MN_SHOWN];
  mn_announce_model(s->model, o, s->brief);
  mn_announce_table(s->csv, o);
  mn_session_tell_weights(s);
  if (s->whole)
    mn_announce(o, "rows: %ld of %ld, those that the run %s by --validation %g; --part all takes all",
                (long)s->test->rows, (long)s->whole,
                o->part == MN_ROWS_TRAIN ? "trained on, others being held out" : "held out", o->validation);
  if (s->outside)
    mn_announce(
        o,
        "note: %ld of %ld rows lie %d deviations or more from the mean of a column of the rows to train on, "
        "row %ld by %s: predictions are guesses there",
        (long)s->outside, (long)s->test->rows, MN_X_DEVIATIONS, (long)s->farthest_row,
        mn_show_number(far, s->farthest, 3));
  if (s->from && !s->from->alone && s->from->progress.step == 0)
    mn_announce(o, "note: %s was stopped before its first step: its weights are random", s->from_path);
  else if (s->seen >= 0)
    mn_announce(o, "rows: %s%ld, of which %s%ld are rows that the run was trained on",
                s->looked < s->test->rows ? "of the first " : "", (long)s->looked,
                strlen(s->from->trained) == 8 * MN_FINGERPRINT_ROWS ? "about " : "", (long)s->seen);
}
