/* How good outputs are: sums over rows, and the scores that sklearn.metrics defines under these names. */
#ifndef MN_TRAIN_SCORES_H
#define MN_TRAIN_SCORES_H

#include "train/model.h"

enum mn_metric {
  MN_METRIC_LOSS,
  MN_METRIC_ACCURACY,
  MN_METRIC_BALANCED_ACCURACY, /* the mean recall of the classes that have rows */
  MN_METRIC_LOG_LOSS,          /* probabilities are at least 2⁻⁵² there */
  MN_METRIC_ROC_AUC,           /* of class 1 or, of more than two, of each against the rest */
  MN_METRIC_F1,
  MN_METRIC_R2,
  MN_METRIC_RMSE,
  MN_METRIC_MAE,
  MN_METRICS
};
extern const char *const mn_metric_words[]; /* NULL behind the last */
const char *mn_metric_name(enum mn_metric metric);
int mn_metric_classes(enum mn_metric metric); /* 1: it is of classes, 0: of numbers; of the loss 1 */
int mn_metric_falls(enum mn_metric metric);   /* 1: less is better */

struct mn_scores {
  int classes;
  const double *weights; /* of the dataset's rows, borrowed; or NULL */
  int64_t rows, cols;    /* rows so far; K outputs */
  double weight;         /* of all rows so far: their number, without weights */
  /* [K] each, for numbers, in `unit`: the mean, Σ (target − mean)², Σ (output − target)² and
   * Σ |output − target| */
  double *mean, *spread, *error, *absolute;
  double *unit; /* [K]: powers of two near the target's scale, in which squares neither vanish nor overflow */
  /* [K] each, for classes: the weight of their rows, of those predicted right, and of all predicted so */
  double *of_class, *right, *predicted;
  double *softmax;       /* [K], of the row at hand */
  double *confusion;     /* [K, K]: row label, column prediction; NULL of more than MN_CONFUSION */
  double log_loss;       /* the sum */
  int64_t room, ranked;  /* rows whose probabilities are kept at most, and columns of these */
  double *probabilities; /* [room, ranked]; NULL of more than 2²⁵, or MN_CONFUSION classes */
  struct mn_rank *ranks; /* [room], to be sorted */
};
enum { MN_CONFUSION = 20 };

/* For a model's outputs of a dataset's rows. Close it also after an error: MN_NO_MEMORY. */
mn_status mn_scores_open(struct mn_scores *scores, const struct mn_model *model,
                         const struct mn_dataset *rows);
void mn_scores_close(struct mn_scores *scores);
void mn_scores_clear(struct mn_scores *scores); /* of all rows */

/* Takes `count` rows from row `first` on, for mn_evaluator_watch: y [count, K], and targets, doubles [count,
 * K] or int32 labels [count]. */
mn_status mn_scores_take(void *scores, const double *y, const void *targets, int64_t first, int64_t count);

/* A score of class or target k or, k < 0, of all: a mean over those that have it. NaN: it is not defined, as
 * the R² of a constant or the ROC AUC of a single class, or there are no probabilities. Not for
 * MN_METRIC_LOSS. */
double mn_scores_of(const struct mn_scores *scores, enum mn_metric metric, int64_t k);

/* The mean square of the best constant, in the loss's unit, for the R² of real targets; NaN of classes, and
 * of more values than are read once more for it. *stop as mn_columns_measure has it. */
mn_status mn_model_spread(double *out, const struct mn_model *model, struct mn_dataset *dataset,
                          const int *stop);

/* The class that a row y [cols] predicts, the first of its largest outputs, and its softmax p [cols]. */
int32_t mn_class_of(const double *y, int64_t cols);
void mn_softmax(double *p, const double *y, int64_t cols);

#endif
