/* How rows fit a model: their widths and units, and the names of classes. */
#ifndef MN_TRAIN_FIT_H
#define MN_TRAIN_FIT_H

#include "train/model.h"

/* Whether the rows of a dataset fit a model: the number of inputs and, if `targets` are read, their number
 * and kind. MN_BAD_DATA names the difference, and the row of a label beyond the model's classes; the message
 * calls the two `model` and `data`. */
mn_status mn_model_check_data(const struct mn_model_config *config, const char *model,
                              struct mn_dataset *dataset, const char *data, int targets);

/* From reals as a pass writes them (data/placement.h: mn_standard_apply) back to their own units, as reals of
 * `as` bytes. Returns 0, or NaN if a value is not finite or beyond their range. */
double mn_standard_undo(const struct mn_standard *standard, size_t real, size_t as, void *y, const void *from,
                        int64_t n, int64_t cols);

/* What the minimised loss is multiplied by to be in the targets' own units: scale² if all targets have the
 * same scale, 1 if they are not standardised; 0 if their scales differ or scale² is no normal number. */
double mn_model_loss_unit(const struct mn_model *model);

/* Names the classes, one for each output; the names are copied, and a checkpoint keeps them. MN_USAGE:
 * another number; MN_NO_MEMORY. */
mn_status mn_model_name_classes(struct mn_model *model, const struct mn_class_names *names);

#endif
