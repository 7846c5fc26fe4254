/* Sums over rows, and scores of them. */
#include "train/scores.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"
#include "train/fit.h"

MN_WORDS(metric, enum mn_metric, MN_METRICS, [MN_METRIC_LOSS] = "loss", [MN_METRIC_ACCURACY] = "accuracy",
         [MN_METRIC_BALANCED_ACCURACY] = "balanced-accuracy", [MN_METRIC_LOG_LOSS] = "log-loss",
         [MN_METRIC_ROC_AUC] = "roc-auc", [MN_METRIC_F1] = "f1", [MN_METRIC_R2] = "r2",
         [MN_METRIC_RMSE] = "rmse", [MN_METRIC_MAE] = "mae");

struct mn_rank {
  int64_t row;
  double probability, weight;
  int32_t label;
};

int mn_metric_classes(enum mn_metric metric) {
  return metric < MN_METRIC_R2;
}

int mn_metric_falls(enum mn_metric metric) {
  return metric == MN_METRIC_LOSS || metric == MN_METRIC_LOG_LOSS || metric >= MN_METRIC_RMSE;
}

mn_status mn_scores_open(struct mn_scores *s, const struct mn_model *model, const struct mn_dataset *d) {
  const int64_t rows = d->rows;
  const int classes = model->config.loss == MN_LOSS_CROSS_ENTROPY;
  const int64_t cols = mn_model_outputs(&model->config), ranked = !classes || cols > MN_CONFUSION ? 0
                                                                  : cols == 2                     ? 1
                                                                                                  : cols;
  const size_t count = (size_t)cols;
  *s = (struct mn_scores){
      .classes = classes, .weights = d->weights, .cols = cols, .ranked = ranked, .room = rows};
  s->mean = calloc(9 * count, sizeof *s->mean);
  if (classes && cols <= MN_CONFUSION) s->confusion = calloc(count * count, sizeof *s->confusion);
  if (ranked > 0 && rows <= (1 << 25) / ranked) {
    s->probabilities = calloc((size_t)(rows * ranked), sizeof *s->probabilities);
    s->ranks = calloc((size_t)rows, sizeof *s->ranks);
    if (!s->probabilities || !s->ranks)
      return mn_fail(MN_NO_MEMORY, "no memory for the ranks of %ld rows", (long)rows);
  }
  if (!s->mean || (classes && cols <= MN_CONFUSION && !s->confusion))
    return mn_fail(MN_NO_MEMORY, "no memory for the scores of %lld outputs", (long long)cols);
  double **const sums[] = {&s->spread,   &s->error, &s->absolute,  &s->unit,
                           &s->of_class, &s->right, &s->predicted, &s->softmax};
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) *sums[i] = s->mean + (i + 1) * count;
  const struct mn_standard *by = &model->standard[MN_Y];
  for (int64_t k = 0; k < cols; k++) {
    const double scale = !by->mean ? 1 : by->log ? exp(by->mean[k]) : by->scale[k];
    s->unit[k] = isnormal(scale) ? ldexp(1, ilogb(scale)) : 1;
  }
  return MN_OK;
}

void mn_scores_close(struct mn_scores *s) {
  free(s->mean);
  free(s->confusion);
  free(s->probabilities);
  free(s->ranks);
}

void mn_scores_clear(struct mn_scores *s) {
  const size_t count = (size_t)s->cols;
  s->rows = 0, s->weight = s->log_loss = 0;
  memset(s->mean, 0, 4 * count * sizeof *s->mean);
  memset(s->of_class, 0, 3 * count * sizeof *s->of_class);
  if (s->confusion) memset(s->confusion, 0, count * count * sizeof *s->confusion);
}

int32_t mn_class_of(const double *y, int64_t cols) {
  int64_t best = 0;
  for (int64_t k = 1; k < cols; k++)
    if (y[k] > y[best]) best = k;
  return (int32_t)best;
}

void mn_softmax(double *p, const double *y, int64_t cols) {
  const double largest = y[mn_class_of(y, cols)];
  double sum = 0;
  for (int64_t k = 0; k < cols; k++) sum += p[k] = exp(y[k] - largest);
  for (int64_t k = 0; k < cols; k++) p[k] /= sum;
}

static void add_class(struct mn_scores *s, const double *y, int32_t label, double weight) {
  const int32_t predicted = mn_class_of(y, s->cols);
  mn_softmax(s->softmax, y, s->cols);
  s->log_loss -= weight * log(fmax(s->softmax[label], DBL_EPSILON));
  s->of_class[label] += weight;
  s->predicted[predicted] += weight;
  s->right[label] += label == predicted ? weight : 0;
  if (s->confusion) s->confusion[label * s->cols + predicted] += weight;
  if (!s->probabilities) return;
  const int64_t row = s->rows - 1;
  MN_REQUIRE(row < s->room);
  for (int64_t k = 0; k < s->ranked; k++) /* the last alone of two classes */
    s->probabilities[row * s->ranked + k] = s->softmax[s->cols - s->ranked + k];
  s->ranks[row] = (struct mn_rank){.row = row, .weight = weight, .label = label};
}

/* Welford's update, in which targets that are all equal have a spread of exactly 0. */
static void add_target(struct mn_scores *s, int64_t k, double y, double target, double weight) {
  const double unit = s->unit[k], distance = target / unit - s->mean[k], error = (y - target) / unit;
  if (weight > 0) s->mean[k] += distance * (weight / s->weight);
  s->spread[k] += weight * distance * (target / unit - s->mean[k]);
  s->error[k] += weight * error * error;
  s->absolute[k] += weight * fabs(error);
}

mn_status mn_scores_take(void *scores, const double *y, const void *targets, int64_t first, int64_t count) {
  struct mn_scores *s = scores;
  for (int64_t n = 0, at = 0; n < count; n++, at += s->cols) {
    const double weight = s->weights ? s->weights[first + n] : 1;
    s->rows++;
    s->weight += weight;
    if (s->classes) add_class(s, y + at, ((const int32_t *)targets)[n], weight);
    for (int64_t k = 0; k < s->cols && !s->classes; k++)
      add_target(s, k, y[at + k], ((const double *)targets)[at + k], weight);
  }
  return MN_OK;
}

/* ---- what comes of the sums ---- */

static int by_probability(const void *a, const void *b) {
  const struct mn_rank *left = a, *right = b;
  return (left->probability > right->probability) - (left->probability < right->probability);
}

/* The share of pairs, one row of class k and one of another, in which the first has the larger probability of
 * k; equal ones count half. */
static double roc_auc(const struct mn_scores *s, int64_t k) {
  double all = 0, below = 0, sum = 0;
  const int64_t column = s->ranked == 1 ? 0 : k;
  if (!s->probabilities || s->cols < 2) return NAN;
  for (int64_t n = 0; n < s->rows; n++)
    s->ranks[n].probability = s->probabilities[s->ranks[n].row * s->ranked + column];
  qsort(s->ranks, (size_t)s->rows, sizeof *s->ranks, by_probability);
  for (int64_t n = 0, end; n < s->rows; n = end) {
    double of_class = 0, others = 0;
    for (end = n; end < s->rows && s->ranks[end].probability == s->ranks[n].probability; end++)
      *(s->ranks[end].label == (s->ranked == 1 ? 1 : k) ? &of_class : &others) += s->ranks[end].weight;
    sum += of_class * (below + others / 2);
    all += of_class, below += others;
  }
  return sum / (all * below);
}

/* A score of class or target k alone. */
static double one(const struct mn_scores *s, enum mn_metric metric, int64_t k) {
  switch (metric) {
  case MN_METRIC_BALANCED_ACCURACY:
    return s->right[k] / s->of_class[k];
  case MN_METRIC_ROC_AUC:
    return roc_auc(s, k);
  case MN_METRIC_F1:
    return 2 * s->right[k] / (s->of_class[k] + s->predicted[k]);
  case MN_METRIC_R2:
    return s->spread[k] > 0 ? 1 - s->error[k] / s->spread[k] : NAN;
  case MN_METRIC_RMSE:
    return sqrt(s->error[k] / s->weight) * s->unit[k];
  case MN_METRIC_MAE:
    return s->absolute[k] / s->weight * s->unit[k];
  default:
    return NAN;
  }
}

double mn_scores_of(const struct mn_scores *s, enum mn_metric metric, int64_t k) {
  double sum = 0, right = 0, count = 0;
  if (s->classes != mn_metric_classes(metric)) return NAN;
  if (k >= 0) return one(s, metric, k);
  if (metric == MN_METRIC_LOG_LOSS) return s->log_loss / s->weight;
  for (int64_t i = 0; i < s->cols && metric == MN_METRIC_ACCURACY; i++) right += s->right[i];
  if (metric == MN_METRIC_ACCURACY) return right / s->weight;
  if (metric == MN_METRIC_ROC_AUC && s->ranked == 1) return one(s, metric, 1);
  for (int64_t i = 0; i < s->cols; i++) {
    const double value = one(s, metric, i);
    if (!isnan(value)) sum += value, count++;
  }
  return sum / count;
}

/* ---- the best constant ---- */

mn_status mn_model_spread(double *out, const struct mn_model *model, struct mn_dataset *d, const int *stop) {
  enum { AT_ONCE = 1 << 16 };
  const int64_t most = (int64_t)1 << 26, cols = d->outputs, piece = cols < AT_ONCE ? AT_ONCE / cols : 1;
  const double unit = mn_model_loss_unit(model), *scale = model->standard[MN_Y].scale;
  struct mn_scores s;
  *out = NAN;
  if (d->classes || d->rows > most / cols) return MN_OK;
  double *const y = malloc((size_t)(piece * cols) * sizeof *y);
  mn_status status = mn_scores_open(&s, model, d);
  if (!y) status = mn_fail(MN_NO_MEMORY, "no memory for %lld targets", (long long)(piece * cols));
  for (int64_t first = 0, here; first < d->rows && status == MN_OK; first += here) {
    here = d->rows - first < piece ? d->rows - first : piece;
    status = stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE) ? mn_fail(MN_INTERRUPTED, "reading was stopped")
                                                             : d->read(d, first, here, sizeof *y, NULL, y);
    if (status == MN_OK) status = mn_scores_take(&s, y, y, first, here);
  }
  if (status == MN_OK) *out = 0;
  for (int64_t k = 0; k < cols && status == MN_OK; k++) {
    const double own = s.unit[k] / (unit > 0 || !scale ? 1 : scale[k]);
    *out += s.spread[k] / (double)d->rows * own * own / (double)cols;
  }
  free(y);
  mn_scores_close(&s);
  return status;
}
