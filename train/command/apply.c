/* `minnow eval` and `minnow predict`, a trained model on other rows: the scores of eval. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/dataset.h"
#include "kernels/text.h"
#include "train/command/announce.h"
#include "train/command/commands.h"
#include "train/command/outputs.h"
#include "train/command/session.h"
#include "train/evaluate.h"
#include "train/fit.h"
#include "train/json.h"
#include "train/scores.h"

/* ---- scores ---- */

enum { SHOWN = 8 }; /* targets that a plain answer has */

static void number(const struct mn_scores *s, struct mn_json *json, const char *key, enum mn_metric metric) {
  mn_json_number(json, key, mn_scores_of(s, metric, -1));
}

/* One of each class or, of numbers, of each target. */
static void array(const struct mn_scores *s, struct mn_json *json, const char *key, enum mn_metric metric) {
  const int64_t shown = json->plain && !s->classes && s->cols > SHOWN ? SHOWN : s->cols;
  mn_json_array_open(json, key);
  for (int64_t k = 0; k < shown; k++) mn_json_number(json, NULL, mn_scores_of(s, metric, k));
  if (shown < s->cols) mn_json_string(json, NULL, "… (--json has all)");
  mn_json_close(json);
}

static void counts(const struct mn_scores *s, struct mn_json *json, const char *key, const double *values) {
  mn_json_array_open(json, key);
  for (int64_t k = 0; k < s->cols; k++)
    if (s->weights)
      mn_json_number(json, NULL, values[k]);
    else
      mn_json_integer(json, NULL, (int64_t)values[k]);
  mn_json_close(json);
}

/* For people: a line for each true class, a column for each predicted one, by their names. */
static void show_confusion(const struct mn_scores *s, const struct mn_class_names *names, FILE *out) {
  char label[MN_CONFUSION][4 * MN_CLASS_NAME];
  int width = 5;
  for (int64_t k = 0; k < s->cols; k++) {
    snprintf(label[k], sizeof label[k], "%ld", (long)k);
    if (names->count) mn_escape(label[k], sizeof label[k], names->names[k]);
    if ((int)strlen(label[k]) > width) width = (int)strlen(label[k]);
  }
  fprintf(out, "%-*s   predicted\n%*s", width, "truth", width, "");
  for (int64_t k = 0; k < s->cols; k++) fprintf(out, "  %*s", width, label[k]);
  for (int64_t row = 0; row < s->cols; row++) {
    fprintf(out, "\n%-*s", width, label[row]);
    for (int64_t k = 0; k < s->cols; k++)
      fprintf(out, s->weights ? "  %*.4g" : "  %*.0f", width, s->confusion[row * s->cols + k]);
  }
  fputc('\n', out);
}

/* What is not defined is null: the recall of a class without rows, the R² of a constant target. */
static void show_scores(const struct mn_scores *s, const struct mn_class_names *names, struct mn_json *json) {
  if (!s->classes) {
    array(s, json, "r2", MN_METRIC_R2);
    array(s, json, "rmse", MN_METRIC_RMSE);
    array(s, json, "mae", MN_METRIC_MAE);
    return;
  }
  number(s, json, "balanced_accuracy", MN_METRIC_BALANCED_ACCURACY);
  number(s, json, "log_loss", MN_METRIC_LOG_LOSS);
  number(s, json, "roc_auc", MN_METRIC_ROC_AUC);
  if (names->count) {
    mn_json_array_open(json, "classes");
    for (int64_t k = 0; k < s->cols; k++) mn_json_string(json, NULL, names->names[k]);
    mn_json_close(json);
  }
  array(s, json, "recall", MN_METRIC_BALANCED_ACCURACY);
  array(s, json, "f1", MN_METRIC_F1);
  if (s->ranked > 1) array(s, json, "class_roc_auc", MN_METRIC_ROC_AUC);
  counts(s, json, "class_rows", s->of_class);
  if (!s->confusion || json->plain) return;
  mn_json_array_open(json, "confusion");
  for (int64_t k = 0; k < s->cols; k++) counts(s, json, NULL, s->confusion + k * s->cols);
  mn_json_close(json);
}

/* ---- eval ---- */

static mn_status evaluate(FILE *out, struct mn_session *s, struct mn_evaluator *evaluator,
                          struct mn_scores *scores) {
  double loss, accuracy;
  int64_t batches, all;
  char where[MN_FAULT_WORDS];
  struct mn_json json;
  MN_TRY(mn_scores_open(scores, s->model, s->test));
  MN_TRY(mn_evaluator_watch(evaluator, mn_scores_take, scores));
  MN_TRY(mn_evaluate(evaluator, &loss, &accuracy));
  const struct mn_fault *fault = mn_evaluator_fault(evaluator, &batches, &all);
  if (fault)
    return mn_fail(MN_FAILED, "there is no loss: %s is not finite (so in %ld of %ld batches of %s); %s",
                   mn_fault_words(where, fault), (long)batches, (long)all, s->options.data,
                   mn_fault_remedy(fault));
  if (mn_model_loss_unit(s->model) == 0) { /* the mean over all targets, each in its own unit */
    double own = 0;
    for (int64_t k = 0; k < scores->cols; k++)
      own += pow(mn_scores_of(scores, MN_METRIC_RMSE, k), 2) / (double)scores->cols;
    own *= scores->weight / (double)scores->rows;
    if (isnormal(own)) loss = own; /* else it stays that of standardised targets */
  }
  mn_session_announce_rows(s);
  mn_json_begin(&json, out, !s->options.json);
  mn_json_open(&json, NULL);
  mn_json_integer(&json, "rows", scores->rows);
  if (s->options.weights) mn_json_string(&json, "weights", s->options.weights);
  mn_json_number(&json, "loss", loss);
  if (!json.plain || s->test->classes) mn_json_number(&json, "accuracy", accuracy);
  show_scores(scores, &s->model->class_names, &json);
  mn_json_close(&json);
  if (scores->confusion && json.plain) show_confusion(scores, &s->model->class_names, out);
  return MN_OK;
}

static mn_status eval(FILE *out, struct mn_session *s) {
  struct mn_evaluator *evaluator;
  struct mn_scores scores = {0};
  const struct mn_options *o = &s->options;
  MN_TRY(mn_evaluator_open(&evaluator, s->model, s->test, o->batch, (enum mn_place)o->place));
  mn_status status = evaluate(out, s, evaluator, &scores);
  mn_evaluator_close(evaluator);
  mn_scores_close(&scores);
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
