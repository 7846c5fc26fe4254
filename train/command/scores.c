/* Sums over the rows that are evaluated; see scores.h. All are taken in double. */
#include "train/command/scores.h"

#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"

enum { SHOWN = 8 }; /* targets that a plain answer has */

mn_status mn_scores_open(struct mn_scores *s, int classes, int64_t cols, size_t real) {
  const size_t count = (size_t)cols, counts = classes ? count : 0, sums = classes ? 0 : count;
  *s = (struct mn_scores){.classes = classes, .cols = cols, .real = real};
  s->mean = calloc(3 * sums + 1, sizeof *s->mean);
  s->of_class = calloc(2 * counts + 1, sizeof *s->of_class);
  if (classes && cols <= MN_SCORES_CONFUSION) s->confusion = calloc(count * count, sizeof *s->confusion);
  if (!s->mean || !s->of_class || (classes && cols <= MN_SCORES_CONFUSION && !s->confusion))
    return mn_fail(MN_NO_MEMORY, "no memory for the scores of %lld outputs", (long long)cols);
  s->spread = s->mean + sums;
  s->error = s->spread + sums;
  s->right = s->of_class + counts;
  return MN_OK;
}

void mn_scores_close(struct mn_scores *s) {
  free(s->mean);
  free(s->of_class);
  free(s->confusion);
}

int32_t mn_scores_class(const void *y, size_t real, int64_t at, int64_t cols) {
  int64_t best = 0;
  for (int64_t k = 1; k < cols; k++)
    if (mn_real_at(y, real, at + k) > mn_real_at(y, real, at + best)) best = k;
  return (int32_t)best;
}

static void add_class(struct mn_scores *s, int32_t label, int32_t predicted) {
  s->of_class[label]++;
  s->right[label] += label == predicted;
  if (s->confusion) s->confusion[label * s->cols + predicted]++;
}

/* Welford's update, in which targets that are all equal have a spread of exactly 0. */
static void add_target(struct mn_scores *s, int64_t k, double y, double target) {
  const double distance = target - s->mean[k];
  s->mean[k] += distance / (double)s->rows;
  s->spread[k] += distance * (target - s->mean[k]);
  s->error[k] += (y - target) * (y - target);
}

mn_status mn_scores_add(void *scores, const void *y, const void *targets, int64_t count) {
  struct mn_scores *s = scores;
  for (int64_t n = 0, at = 0; n < count; n++, at += s->cols) {
    s->rows++;
    if (s->classes) add_class(s, ((const int32_t *)targets)[n], mn_scores_class(y, s->real, at, s->cols));
    for (int64_t k = 0; k < s->cols && !s->classes; k++)
      add_target(s, k, mn_real_at(y, s->real, at + k), mn_real_at(targets, s->real, at + k));
  }
  return MN_OK;
}

static double r2(const struct mn_scores *s, int64_t k) {
  return s->spread[k] > 0 ? 1 - s->error[k] / s->spread[k] : NAN;
}

static double rmse(const struct mn_scores *s, int64_t k) {
  return sqrt(s->error[k] / (double)s->rows);
}

static double recall(const struct mn_scores *s, int64_t k) {
  return s->of_class[k] ? (double)s->right[k] / (double)s->of_class[k] : NAN;
}

static void array(const struct mn_scores *s, struct mn_json *json, const char *key,
                  double (*value)(const struct mn_scores *s, int64_t k)) {
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

void mn_scores_show(const struct mn_scores *s, struct mn_json *json) {
  if (!s->classes) {
    array(s, json, "r2", r2);
    array(s, json, "rmse", rmse);
    return;
  }
  array(s, json, "recall", recall);
  counts(json, "class_rows", s->of_class, s->cols);
  if (!s->confusion) return;
  mn_json_array_open(json, "confusion");
  for (int64_t k = 0; k < s->cols; k++) counts(json, NULL, s->confusion + k * s->cols, s->cols);
  mn_json_close(json);
}
