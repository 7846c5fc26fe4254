/* `minnow eval` and `minnow predict`, a trained model on other rows: the scores of eval. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "train/command/announce.h"
#include "train/command/commands.h"
#include "train/command/outputs.h"
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
  const double *scale; /* [K] of standardised targets, or NULL */
  /* [K] each, for numbers, in unit_of: the targets' mean, Σ (target − mean)², Σ (output − target)² */
  double *mean, *spread, *error;
  int64_t *of_class, *right; /* [K] each, for classes: their rows, and the rows predicted right */
  int64_t *confusion;        /* [K, K]: row label, column prediction; NULL above CONFUSION */
};

enum { SHOWN = 8, CONFUSION = 20 }; /* targets that a plain answer has; classes with a confusion matrix */

static mn_status open_scores(struct scores *s, int classes, int64_t cols) {
  const size_t count = (size_t)cols, counts = classes ? count : 0, sums = classes ? 0 : count;
  *s = (struct scores){.classes = classes, .cols = cols};
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

static mn_status add_scores(void *scores, const double *y, const void *targets, int64_t first,
                            int64_t count) {
  struct scores *s = scores;
  for (int64_t n = 0, at = 0; n < count; n++, at += s->cols) {
    s->rows++;
    if (s->classes) add_class(s, ((const int32_t *)targets)[n], mn_class_of(y + at, s->cols));
    for (int64_t k = 0; k < s->cols && !s->classes; k++)
      add_target(s, k, y[at + k], ((const double *)targets)[at + k]);
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

static mn_status evaluate(FILE *out, struct mn_session *s, struct mn_evaluator *evaluator,
                          struct scores *scores) {
  double loss, accuracy;
  int64_t batches, all;
  char where[MN_FAULT_WORDS];
  struct mn_json json;
  MN_TRY(open_scores(scores, s->test->classes, mn_model_outputs(&s->model->config)));
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
  mn_session_announce_rows(s);
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
  const struct mn_options *o = &s->options;
  MN_TRY(mn_evaluator_open(&evaluator, s->model, s->test, o->batch, (enum mn_place)o->place));
  mn_status status = evaluate(out, s, evaluator, &scores);
  mn_evaluator_close(evaluator);
  close_scores(&scores);
  return status;
}

mn_status mn_apply(FILE *out, const struct mn_options *options) {
  const int evaluates = options->command == MN_COMMAND_EVAL;
  struct mn_session s;
  mn_status status = mn_session_read(&s, options, evaluates);
  if (status == MN_OK) s.options.batch = mn_session_rows_a_pass(&s);
  if (status == MN_OK) status = (evaluates ? eval : mn_write_outputs)(out, &s);
  mn_session_close(&s);
  return status;
}
