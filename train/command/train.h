/* `minnow train`, `eval` and `predict`: a model, its data and its files, brought together. */
#ifndef MN_TRAIN_COMMAND_TRAIN_H
#define MN_TRAIN_COMMAND_TRAIN_H

#include "train/command/options.h"

/* Trains as the options say; progress and warnings on stderr, the result (the last test metric) on `out`.
 * Returns MN_INTERRUPTED after a signal (train/command/watchdog.h), with the checkpoint saved; MN_FAILED when
 * training diverged, naming step, tensor and row, with the last checkpoint left whole. Test rows that give no
 * finite loss end nothing. */
mn_status mn_train(FILE *out, const struct mn_options *options);

/* Loss, and accuracy where there are classes, of a checkpoint on a dataset (its test part where it has one).
 * MN_FAILED, of mn_predict too: a value is not finite; it is named with its row. */
mn_status mn_eval(FILE *out, const struct mn_options *options);

/* The outputs of a checkpoint for a dataset's x, as HDF5: dataset "y" [n, K], and with classes "label" [n]
 * int32. */
mn_status mn_predict(FILE *out, const struct mn_options *options);

#endif
