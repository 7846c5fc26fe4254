/* What a prediction that is the same for every row gets. */
#ifndef MN_TRAIN_COMMAND_BASELINE_H
#define MN_TRAIN_COMMAND_BASELINE_H

#include "data/dataset.h"

/* *metric: with classes the share of the commonest, which is the accuracy of always predicting it; else the mean
 * variance of the targets, which is the squared error of predicting each one's mean. Reads y of all rows.
 * MN_NO_MEMORY; the errors of the dataset's read. */
mn_status mn_baseline(struct mn_dataset *dataset, double *metric);

#endif
