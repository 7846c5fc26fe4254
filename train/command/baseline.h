/* What a prediction that is the same for every row gets. */
#ifndef MN_TRAIN_COMMAND_BASELINE_H
#define MN_TRAIN_COMMAND_BASELINE_H

#include "data/dataset.h"

/* *share: of the commonest class, the accuracy of always predicting it; NaN without classes. *loss: with
 * classes the entropy of their shares, the cross-entropy of predicting these; else the mean variance of the
 * targets, the squared error of predicting each one's mean. Reads y of all rows. MN_NO_MEMORY; the errors of
 * the dataset's read. */
mn_status mn_baseline(struct mn_dataset *dataset, double *loss, double *share);

#endif
