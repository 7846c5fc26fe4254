/* K-fold scores: how well settings of a training do on rows that they were not trained on. */
#ifndef MN_TRAIN_FOLDS_H
#define MN_TRAIN_FOLDS_H

#include "train/defaults.h"

enum { MN_FOLDS_MOST = 10, MN_SETTINGS = 8, MN_FOLD_DIGITS = 6, MN_SCORE_DIGITS = 4 };

/* How a training on all rows but one fold's does on that fold. */
struct mn_fold_score {
  double loss;  /* the mean; NaN: not trained yet; infinite: it diverged, or its loss is not finite */
  double score; /* accuracy or R², of several targets weighed by their variances; NaN: these are 0 */
};

struct mn_folds {
  struct mn_device *device;
  const struct mn_model_config *model;
  struct mn_dataset *rows;
  uint64_t seed;                    /* of the folds and the weights */
  int folds;                        /* 2 to MN_FOLDS_MOST */
  int count, settings[MN_SETTINGS]; /* to be scored, longer ones last */
  const double *class_weights;      /* [K] of the rows to train on (mn_dataset_weigh_classes); or NULL */
  /* Standardises a model by its rows to train on, and sets how it is trained; several threads call it. */
  mn_status (*set)(void *to, int setting, struct mn_model *model, struct mn_dataset *train,
                   struct mn_optimizer_config *optimizer, struct mn_trainer_config *trainer);
  void *to;
  const int *stop; /* set atomically, to end early; may be NULL */
};

/* Replaces each of scores[setting][fold] whose loss is NaN; those that *stop leaves out stay NaN. On a CPU
 * trainings run side by side, one on each of the device's threads; on a GPU one after the other. Scores are
 * rounded. The same seed and rows give the same scores. The rows are copied to memory. */
mn_status mn_folds_score(const struct mn_folds *folds, struct mn_fold_score scores[][MN_FOLDS_MOST]);

#endif
