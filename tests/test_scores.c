/* Scores of drawn rows, with ties, classes that have no row, and weights, beside their definitions. With --show
 * the cases are printed as JSON, for test_python.py to compare with scikit-learn. */
#include <float.h>
#include <math.h>

#include "tests/check.h"
#include "train/scores.h"

enum { CASES = 200, ROWS_MOST = 60, COLS_MOST = 5 };

struct drawn {
  int classes, weighted;
  int64_t rows, cols;
  double y[ROWS_MOST * COLS_MOST], targets[ROWS_MOST * COLS_MOST], weights[ROWS_MOST];
  int32_t labels[ROWS_MOST];
};

static uint64_t word;
static int below(int n) {
  word = word * 6364136223846793005ULL + 1442695040888963407ULL;
  return (int)((word >> 33) % (uint64_t)n);
}

static struct drawn draw(int number) {
  struct drawn d = {0};
  word = (uint64_t)number + 1;
  below(2);
  d.classes = number % 4 != 0, d.weighted = below(2);
  d.rows = 1 + below(ROWS_MOST), d.cols = d.classes ? 2 + below(COLS_MOST - 1) : 1 + below(COLS_MOST);
  const int values = below(2) ? 3 : 1000, present = 1 + below((int)d.cols);
  for (int i = 0; i < d.rows * d.cols; i++) {
    d.y[i] = (below(values) - values / 2) * (d.classes ? 3. / values : 1e3 / values);
    d.targets[i] = (below(values) - values / 2) * 1e3 / values;
  }
  for (int i = 0; i < d.rows; i++) {
    d.labels[i] = below(present);
    d.weights[i] = !d.weighted ? 1 : number % 5 == 0 && d.labels[i] == 0 ? 1e-18 : (below(4) + 1) / 2.;
    if (number % 7 == 0) d.y[i * d.cols] *= 40; /* probabilities that are 0 or 1 in double */
  }
  return d;
}

static void score(struct mn_scores *s, const struct drawn *d) {
  struct mn_model model = {.config = {.depth = 1, .hidden = {d->cols}}};
  model.config.loss = d->classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
  const struct mn_dataset rows = {.rows = d->rows, .weights = d->weighted ? (double *)d->weights : NULL};
  assert_int_equal(mn_scores_open(s, &model, &rows), MN_OK);
  for (int pass = 0; pass < 2; pass++) { /* the second by batches */
    mn_scores_clear(s);
    for (int64_t n = 0, count; n < d->rows; n += count) {
      count = pass == 0 ? d->rows : d->rows - n < 7 ? d->rows - n : 7;
      const void *targets = d->classes ? (const void *)(d->labels + n) : d->targets + n * d->cols;
      assert_int_equal(mn_scores_take(s, d->y + n * d->cols, targets, n, count), MN_OK);
    }
  }
}

static void assert_near(double value, double expected) {
  if (!(fabs(value - expected) <= 1e-12 * fmax(1, fabs(expected))) && !(isnan(value) && isnan(expected)))
    fail_msg("%.17g instead of %.17g", value, expected);
}

/* ROC AUC by all pairs of rows, F1 and recall by counting rows. */
static void check_class(struct mn_scores *s, const struct drawn *d, double p[ROWS_MOST][COLS_MOST], int k) {
  double pairs = 0, won = 0, right = 0, of_class = 0, predicted = 0;
  for (int i = 0; i < d->rows; i++) {
    const int guess = mn_class_of(d->y + i * d->cols, d->cols);
    right += d->labels[i] == k && guess == k ? d->weights[i] : 0;
    of_class += d->labels[i] == k ? d->weights[i] : 0, predicted += guess == k ? d->weights[i] : 0;
    for (int j = 0; j < d->rows; j++) {
      if (d->labels[i] != k || d->labels[j] == k) continue;
      pairs += d->weights[i] * d->weights[j];
      won += d->weights[i] * d->weights[j] * (p[i][k] > p[j][k] ? 1 : p[i][k] == p[j][k] ? 0.5 : 0);
    }
  }
  if (d->cols > 2 || k == 1) assert_near(mn_scores_of(s, MN_METRIC_ROC_AUC, k), won / pairs);
  assert_near(mn_scores_of(s, MN_METRIC_BALANCED_ACCURACY, k), right / of_class);
  assert_near(mn_scores_of(s, MN_METRIC_F1, k),
              of_class + predicted > 0 ? 2 * right / (of_class + predicted) : NAN);
}

static void check_target(struct mn_scores *s, const struct drawn *d, int k) {
  double weight = 0, mean = 0, spread = 0, error = 0, absolute = 0;
  for (int i = 0; i < d->rows; i++)
    weight += d->weights[i], mean += d->weights[i] * d->targets[i * d->cols + k];
  mean /= weight;
  for (int i = 0; i < d->rows; i++) {
    const double t = d->targets[i * d->cols + k], e = d->y[i * d->cols + k] - t;
    spread += d->weights[i] * (t - mean) * (t - mean), error += d->weights[i] * e * e;
    absolute += d->weights[i] * fabs(e);
  }
  if (spread > 1e-6) assert_near(mn_scores_of(s, MN_METRIC_R2, k), 1 - error / spread);
  assert_near(mn_scores_of(s, MN_METRIC_RMSE, k), sqrt(error / weight));
  assert_near(mn_scores_of(s, MN_METRIC_MAE, k), absolute / weight);
}

static void scores_are_their_definitions(void **state) {
  for (int number = 0; number < CASES; number++) {
    const struct drawn d = draw(number);
    struct mn_scores s;
    static double p[ROWS_MOST][COLS_MOST];
    double weight = 0, log_loss = 0, right = 0, recalls = 0;
    int present = 0;
    score(&s, &d);
    for (int i = 0; i < d.rows && d.classes; i++) {
      mn_softmax(p[i], d.y + i * d.cols, d.cols);
      weight += d.weights[i];
      log_loss -= d.weights[i] * log(fmax(p[i][d.labels[i]], DBL_EPSILON));
      right += mn_class_of(d.y + i * d.cols, d.cols) == d.labels[i] ? d.weights[i] : 0;
    }
    for (int k = 0; k < d.cols; k++) {
      if (d.classes)
        check_class(&s, &d, p, k);
      else
        check_target(&s, &d, k);
      if (d.classes && s.of_class[k] > 0)
        present++, recalls += mn_scores_of(&s, MN_METRIC_BALANCED_ACCURACY, k);
    }
    if (d.classes) {
      assert_near(mn_scores_of(&s, MN_METRIC_LOG_LOSS, -1), log_loss / weight);
      assert_near(mn_scores_of(&s, MN_METRIC_ACCURACY, -1), right / weight);
      assert_near(mn_scores_of(&s, MN_METRIC_BALANCED_ACCURACY, -1), recalls / present);
    }
    assert_true(isnan(mn_scores_of(&s, d.classes ? MN_METRIC_R2 : MN_METRIC_F1, -1)));
    mn_scores_close(&s);
  }
}

/* ---- for scikit-learn ---- */

static void show_numbers(const char *key, const double *values, int64_t count) {
  printf("\"%s\":[", key);
  for (int64_t i = 0; i < count; i++) printf("%s%.17g", i ? "," : "", values[i]);
  printf("],");
}

static void show(int number) {
  const struct drawn d = draw(number);
  struct mn_scores s;
  double labels[ROWS_MOST], values[COLS_MOST];
  score(&s, &d);
  for (int i = 0; i < d.rows; i++) labels[i] = d.labels[i];
  printf("{\"classes\":%d,\"cols\":%d,", d.classes, (int)d.cols);
  show_numbers("y", d.y, d.rows * d.cols);
  show_numbers("targets", d.classes ? labels : d.targets, d.classes ? d.rows : d.rows * d.cols);
  show_numbers("weights", d.weights, d.rows);
  for (int m = MN_METRIC_ACCURACY; m < MN_METRICS; m++) {
    const enum mn_metric metric = (enum mn_metric)m;
    if (mn_metric_classes(metric) != d.classes) continue;
    for (int k = 0; k < d.cols; k++) values[k] = mn_scores_of(&s, metric, k);
    for (int k = 0; k < d.cols; k++) values[k] = isnan(values[k]) ? -1e9 : values[k];
    show_numbers(mn_metric_name(metric), values, d.cols);
    const double all = mn_scores_of(&s, metric, -1);
    printf("\"all %s\":%.17g,", mn_metric_name(metric), isnan(all) ? -1e9 : all);
  }
  printf("\"number\":%d}\n", number);
  mn_scores_close(&s);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(scores_are_their_definitions)};
  if (argc < 2 || strcmp(argv[1], "--show") != 0) return cmocka_run_group_tests(tests, NULL, NULL);
  for (int number = 0; number < CASES; number++) show(number);
  return 0;
}
