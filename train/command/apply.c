/* `minnow eval` and `minnow predict`: a trained model on other rows. */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/hdf5/file.h"
#include "data/hdf5/hdf5.h"
#include "data/held_out.h"
#include "kernels/text.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/announce.h"
#include "train/command/commands.h"
#include "train/command/session.h"
#include "train/evaluate.h"
#include "train/fit.h"
#include "train/json.h"

/* ---- scores ---- */

/* Printed beside the loss: R² and RMSE of each target or, for classes, the recall of each and a confusion
 * matrix if they are few. All sums are taken in double. */
struct scores {
  int classes;
  int64_t rows, cols; /* rows so far; K outputs */
  const struct mn_class_names *names;
  size_t real;         /* bytes of an output */
  const double *scale; /* [K] of standardised targets, or NULL */
  /* [K] each, for numbers, in unit_of: the targets' mean, Σ (target − mean)², Σ (output − target)² */
  double *mean, *spread, *error;
  int64_t *of_class, *right; /* [K] each, for classes: their rows, and the rows predicted right */
  int64_t *confusion;        /* [K, K]: row label, column prediction; NULL above CONFUSION */
};

enum { SHOWN = 8, CONFUSION = 20 }; /* targets that a plain answer has; classes with a confusion matrix */

static mn_status open_scores(struct scores *s, int classes, int64_t cols, size_t real) {
  const size_t count = (size_t)cols, counts = classes ? count : 0, sums = classes ? 0 : count;
  *s = (struct scores){.classes = classes, .cols = cols, .real = real};
  s->mean = calloc(3 * sums + 1, sizeof *s->mean);
  s->of_class = calloc(2 * counts + 1, sizeof *s->of_class);
  if (classes && cols <= CONFUSION) s->confusion = calloc(count * count, sizeof *s->confusion);
  if (!s->mean || !s->of_class || (classes && cols <= CONFUSION && !s->confusion))
    return mn_fail(MN_NO_MEMORY, "no memory for the scores of %lld outputs", (long long)cols);
  s->spread = s->mean + sums;
  s->error = s->spread + sums;
  s->right = s->of_class + counts;
  return MN_OK;
}

static void close_scores(struct scores *s) {
  free(s->mean);
  free(s->of_class);
  free(s->confusion);
}

/* The class that a row predicts: the first of its largest outputs. The row is `cols` reals of `real` bytes,
 * from y's number `at` on. */
static int32_t class_of(const void *y, size_t real, int64_t at, int64_t cols) {
  int64_t best = 0;
  for (int64_t k = 1; k < cols; k++)
    if (mn_real_at(y, real, at + k) > mn_real_at(y, real, at + best)) best = k;
  return (int32_t)best;
}

static void add_class(struct scores *s, int32_t label, int32_t predicted) {
  s->of_class[label]++;
  s->right[label] += label == predicted;
  if (s->confusion) s->confusion[label * s->cols + predicted]++;
}

/* A power of two near the target's scale, in which squares neither vanish nor overflow. */
static double unit_of(const struct scores *s, int64_t k) {
  return s->scale ? ldexp(1, ilogb(s->scale[k])) : 1;
}

/* Welford's update, in which targets that are all equal have a spread of exactly 0. */
static void add_target(struct scores *s, int64_t k, double y, double target) {
  const double unit = unit_of(s, k), distance = target / unit - s->mean[k], error = (y - target) / unit;
  s->mean[k] += distance / (double)s->rows;
  s->spread[k] += distance * (target / unit - s->mean[k]);
  s->error[k] += error * error;
}

static mn_status add_scores(void *scores, const void *y, const void *targets, int64_t first, int64_t count) {
  struct scores *s = scores;
  for (int64_t n = 0, at = 0; n < count; n++, at += s->cols) {
    s->rows++;
    if (s->classes) add_class(s, ((const int32_t *)targets)[n], class_of(y, s->real, at, s->cols));
    for (int64_t k = 0; k < s->cols && !s->classes; k++)
      add_target(s, k, mn_real_at(y, s->real, at + k), mn_real_at(targets, s->real, at + k));
  }
  return MN_OK;
}

static double r2(const struct scores *s, int64_t k) {
  return s->spread[k] > 0 ? 1 - s->error[k] / s->spread[k] : NAN;
}

static double rmse(const struct scores *s, int64_t k) {
  return sqrt(s->error[k] / (double)s->rows) * unit_of(s, k);
}

static double recall(const struct scores *s, int64_t k) {
  return s->of_class[k] ? (double)s->right[k] / (double)s->of_class[k] : NAN;
}

static void array(const struct scores *s, struct mn_json *json, const char *key,
                  double (*value)(const struct scores *s, int64_t k)) {
  const int64_t shown = json->plain && !s->classes && s->cols > SHOWN ? SHOWN : s->cols;
  mn_json_array_open(json, key);
  for (int64_t k = 0; k < shown; k++) mn_json_number(json, NULL, value(s, k));
  if (shown < s->cols) mn_json_string(json, NULL, "… (--json has all)");
  mn_json_close(json);
}

static void counts(struct mn_json *json, const char *key, const int64_t *values, int64_t count) {
  mn_json_array_open(json, key);
  for (int64_t k = 0; k < count; k++) mn_json_integer(json, NULL, values[k]);
  mn_json_close(json);
}

/* The recall of a class without rows and the r2 of a constant target are NaN. A row of confusion is a label,
 * a column a prediction. */
static void show_scores(const struct scores *s, struct mn_json *json) {
  if (!s->classes) {
    array(s, json, "r2", r2);
    array(s, json, "rmse", rmse);
    return;
  }
  if (s->names->count) {
    mn_json_array_open(json, "classes");
    for (int64_t k = 0; k < s->cols; k++) mn_json_string(json, NULL, s->names->names[k]);
    mn_json_close(json);
  }
  array(s, json, "recall", recall);
  counts(json, "class_rows", s->of_class, s->cols);
  if (!s->confusion) return;
  mn_json_array_open(json, "confusion");
  for (int64_t k = 0; k < s->cols; k++) counts(json, NULL, s->confusion + k * s->cols, s->cols);
  mn_json_close(json);
}

/* ---- eval ---- */

static mn_status open_evaluator(struct mn_evaluator **out, struct mn_session *s, enum mn_pass_kind kind) {
  const struct mn_options *o = &s->options;
  return mn_evaluator_open(out, s->model, s->test, kind, o->batch, (enum mn_place)o->place);
}

/* Printed after success, so that an error is the only line on stderr. */
static void announce_rows(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  mn_announce_model(s->model, o, s->brief);
  mn_announce_table(s);
  if (s->whole)
    mn_announce(o, "rows: %ld of %ld, those that the run %s by --validation %g; --part all takes all",
                (long)s->test->rows, (long)s->whole,
                o->part == MN_ROWS_TRAIN ? "trained on, others being held out" : "held out", o->validation);
  if (s->others)
    mn_announce(o, "rows: all %ld, which are others than the run was trained on", (long)s->test->rows);
}

static mn_status evaluate(FILE *out, struct mn_session *s, struct mn_evaluator *evaluator,
                          struct scores *scores) {
  double loss, accuracy;
  int64_t batches, all;
  char where[MN_FAULT_WORDS];
  struct mn_json json;
  MN_TRY(open_scores(scores, s->test->classes, mn_model_outputs(&s->model->config), mn_model_real(s->model)));
  scores->names = &s->model->class_names;
  scores->scale = s->model->standard[MN_Y].scale;
  MN_TRY(mn_evaluator_watch(evaluator, add_scores, scores));
  MN_TRY(mn_evaluate(evaluator, &loss, &accuracy));
  const struct mn_fault *fault = mn_evaluator_fault(evaluator, &batches, &all);
  if (fault)
    return mn_fail(MN_FAILED, "there is no loss: %s is not finite (so in %ld of %ld batches of %s); %s",
                   mn_fault_words(where, fault), (long)batches, (long)all, s->options.data,
                   mn_fault_remedy(fault));
  if (mn_model_loss_unit(s->model) == 0) { /* the mean over all targets, each in its own unit */
    double own = 0;
    for (int64_t k = 0; k < scores->cols; k++)
      own += rmse(scores, k) * rmse(scores, k) / (double)scores->cols;
    if (isnormal(own)) loss = own; /* else it stays that of standardised targets */
  }
  announce_rows(s);
  mn_json_begin(&json, out, !s->options.json);
  mn_json_open(&json, NULL);
  mn_json_integer(&json, "rows", scores->rows);
  mn_json_number(&json, "loss", loss);
  if (!json.plain || s->test->classes) mn_json_number(&json, "accuracy", accuracy);
  show_scores(scores, &json);
  mn_json_close(&json);
  return MN_OK;
}

static mn_status eval(FILE *out, struct mn_session *s) {
  struct mn_evaluator *evaluator;
  struct scores scores = {0};
  MN_TRY(open_evaluator(&evaluator, s, MN_PASS_EVALUATE));
  mn_status status = evaluate(out, s, evaluator, &scores);
  mn_evaluator_close(evaluator);
  close_scores(&scores);
  return status;
}

/* ---- predict ---- */

/* The datasets of the file of outputs. */
enum { Y, LABEL, ROW, TARGET, NAMES, SETS };
static const char *const set_names[SETS] = {"y", "label", "row", "target", "classes"};

/* The file of outputs, which is renamed to --out when it is complete. */
struct output {
  struct mn_atomic_file on_disk;
  struct mn_hdf5_disk disk;
  hid_t file, sets[SETS]; /* below 0 if the file lacks it */
  struct mn_dataset *rows;
  int64_t cols;
  size_t real;
  int classes, targets, probabilities;
  const struct mn_class_names *names;
  void *room; /* for a batch of one of the datasets */
};

static mn_status cannot_write(const struct output *o) {
  if (o->disk.error) return mn_atomic_file_fail("write", o->on_disk.path, o->disk.error);
  return mn_fail(MN_LIBRARY, "--out %s: HDF5 failed: %s", o->on_disk.path,
                 o->disk.reason ? o->disk.reason : mn_hdf5_reason());
}

/* Creates one of the datasets: [rows], or with cols above 0 [rows, cols]. */
static mn_status create(struct output *o, int set, hid_t type, int64_t cols) {
  mn_hdf5_lock();
  o->sets[set] = mn_hdf5_create(o->file, set_names[set], type, cols ? 2 : 1,
                                (hsize_t[]){(hsize_t)o->rows->rows, (hsize_t)cols});
  mn_status status = o->sets[set] < 0 ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

static mn_status create_output(struct output *o) {
  mn_hdf5_lock();
  o->disk.fd = o->on_disk.fd;
  hid_t creation = H5Pcreate(H5P_FILE_CREATE);
  if (creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0)
    o->file = mn_hdf5_disk_open(&o->disk, o->on_disk.path, creation);
  if (creation >= 0) H5Pclose(creation);
  mn_status status = o->file < 0 ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  MN_TRY(status);
  MN_TRY(create(o, Y, o->real == sizeof(double) ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, o->cols));
  if (o->classes) MN_TRY(create(o, LABEL, H5T_STD_I32LE, 0));
  return create(o, ROW, H5T_STD_I64LE, 0);
}

/* The names of the classes: that of label l has the index l. */
static mn_status write_names(struct output *o) {
  const hsize_t count = (hsize_t)o->names->count;
  const struct mn_hdf5_slab all = {.rank = 1, .count = {count}};
  if (count == 0) return MN_OK;
  mn_hdf5_lock();
  hid_t type = mn_hdf5_text_type(MN_CLASS_NAME);
  if (type >= 0) o->sets[NAMES] = mn_hdf5_create(o->file, set_names[NAMES], type, 1, &count);
  const int failed = o->sets[NAMES] < 0 || mn_hdf5_write(o->sets[NAMES], type, &all, o->names->names) < 0;
  mn_status status = failed ? cannot_write(o) : MN_OK;
  if (type >= 0) H5Tclose(type);
  mn_hdf5_unlock();
  return status;
}

/* Writes rows first … first + count − 1 of a dataset; cols as for `create`. */
static mn_status put(struct output *o, int set, hid_t type, int64_t cols, int64_t first, int64_t count,
                     const void *values) {
  struct mn_hdf5_slab rows = {
      .rank = cols ? 2 : 1, .start = {(hsize_t)first}, .count = {(hsize_t)count, (hsize_t)cols}};
  mn_hdf5_lock();
  mn_status status = mn_hdf5_write(o->sets[set], type, &rows, values) < 0 ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

static mn_status write_targets(struct output *o, int64_t batch) {
  const struct mn_dataset *d = o->rows;
  const int64_t cols = d->classes ? 0 : d->outputs;
  const int wide = o->real == sizeof(double);
  const hid_t stored = d->classes ? H5T_STD_I32LE : wide ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
  const hid_t memory = d->classes ? H5T_NATIVE_INT32 : wide ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
  MN_TRY(create(o, TARGET, stored, cols));
  for (int64_t first = 0, count; first < d->rows; first += count) {
    count = d->rows - first < batch ? d->rows - first : batch;
    MN_TRY(d->read(o->rows, first, count, o->real, NULL, o->room));
    MN_TRY(put(o, TARGET, memory, cols, first, count, o->room));
  }
  return MN_OK;
}

/* Targets that cannot be read, such as NaN for a target to be predicted, are left out: the outputs do not
 * depend on them. */
static mn_status copy_targets(struct output *o, int64_t batch) {
  o->targets = o->rows->outputs > 0;
  mn_status status = o->targets ? write_targets(o, batch) : MN_OK;
  if (status != MN_BAD_DATA) return status;
  o->targets = 0;
  mn_escape_print(stderr, "minnow: warning: %s gets no target: %s\n", o->on_disk.path, mn_message());
  mn_hdf5_lock();
  int failed = H5Dclose(o->sets[TARGET]) < 0 || H5Ldelete(o->file, set_names[TARGET], H5P_DEFAULT) < 0;
  o->sets[TARGET] = -1;
  status = failed ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

/* The softmax of a row of logits, in double; without the maximum exp would overflow. */
static void softmax(const struct output *o, const void *y, int64_t at) {
  double sum = 0, largest = mn_real_at(y, o->real, at + class_of(y, o->real, at, o->cols));
  for (int64_t k = 0; k < o->cols; k++) sum += exp(mn_real_at(y, o->real, at + k) - largest);
  for (int64_t k = 0; k < o->cols; k++) {
    const double p = exp(mn_real_at(y, o->real, at + k) - largest) / sum;
    if (o->real == sizeof(double))
      ((double *)o->room)[at + k] = p;
    else
      ((float *)o->room)[at + k] = (float)p;
  }
}

static mn_status write_rows(void *to, const void *y, const void *targets, int64_t first, int64_t count) {
  struct output *o = to;
  int32_t *labels = o->room;
  int64_t *rows = o->room;
  if (o->classes) {
    for (int64_t n = 0; n < count; n++) labels[n] = class_of(y, o->real, n * o->cols, o->cols);
    MN_TRY(put(o, LABEL, H5T_NATIVE_INT32, 0, first, count, labels));
  }
  for (int64_t n = 0; n < count; n++) rows[n] = mn_dataset_row(o->rows, first + n);
  MN_TRY(put(o, ROW, H5T_NATIVE_INT64, 0, first, count, rows));
  for (int64_t n = 0; n < count && o->probabilities; n++) softmax(o, y, n * o->cols);
  return put(o, Y, o->real == sizeof(double) ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT, o->cols, first, count,
             o->probabilities ? o->room : y);
}

/* Closes the file, and renames it to --out if all went well. */
static mn_status finish_output(struct output *o, int replace, mn_status status) {
  int failed = 0;
  mn_hdf5_lock();
  for (int i = 0; i < SETS; i++) failed = (o->sets[i] >= 0 && H5Dclose(o->sets[i]) < 0) || failed;
  failed = (o->file >= 0 && H5Fclose(o->file) < 0) || failed;
  if ((failed || o->disk.error) && status == MN_OK) status = cannot_write(o);
  mn_hdf5_unlock();
  if (status == MN_OK) return mn_atomic_file_publish(&o->on_disk, replace);
  mn_atomic_file_discard(&o->on_disk);
  return status;
}

/* Targets are copied before the evaluator is open, which then reads the rows alone. */
static mn_status fill_output(struct output *o, struct mn_session *s) {
  struct mn_evaluator *evaluator;
  MN_TRY(create_output(o));
  MN_TRY(write_names(o));
  MN_TRY(copy_targets(o, s->options.batch));
  MN_TRY(open_evaluator(&evaluator, s, MN_PASS_PREDICT));
  mn_status status = mn_evaluator_predict(evaluator, write_rows, o);
  mn_evaluator_close(evaluator);
  return status;
}

static mn_status predict(FILE *out, struct mn_session *s) {
  struct output o = {.file = -1,
                     .sets = {-1, -1, -1, -1, -1},
                     .names = &s->model->class_names,
                     .rows = s->test,
                     .cols = mn_model_outputs(&s->model->config),
                     .real = mn_model_real(s->model),
                     .classes = s->model->config.loss == MN_LOSS_CROSS_ENTROPY,
                     .probabilities = s->options.probabilities};
  if (o.probabilities && !o.classes)
    return mn_fail(MN_USAGE,
                   "--probabilities is for classes, but the loss of %s is mse: leave --probabilities out",
                   s->options.checkpoint);
  const int64_t widest = s->test->classes || o.cols > s->test->outputs ? o.cols : s->test->outputs;
  if (!(o.room = calloc((size_t)s->options.batch * (size_t)widest, sizeof(double))))
    return mn_fail(MN_NO_MEMORY, "no memory for the outputs of a batch");
  mn_status status = mn_atomic_file_create(&o.on_disk, s->options.out);
  if (status == MN_OK) status = finish_output(&o, s->options.force, fill_output(&o, s));
  free(o.room);
  MN_TRY(status);
  announce_rows(s);
  mn_escape_print(out, "%s: y [%ld, %ld]%s%s, row%s%s\n", s->options.out, (long)s->test->rows, (long)o.cols,
                  o.probabilities ? " of probabilities" : "", o.classes ? ", label" : "",
                  o.targets ? ", target" : "", o.names->count ? ", classes" : "");
  return MN_OK;
}

mn_status mn_apply(FILE *out, const struct mn_options *options) {
  const int evaluates = options->command == MN_COMMAND_EVAL;
  struct mn_session s;
  mn_status status = mn_session_read(&s, options, evaluates);
  if (status == MN_OK) s.options.batch = mn_session_rows_a_pass(&s);
  if (status == MN_OK) status = (evaluates ? eval : predict)(out, &s);
  mn_session_close(&s);
  return status;
}
