/* Class labels: with K classes each is from 0 to K − 1, since it is the number of a column of outputs. */
#ifndef MN_DATA_LABELS_H
#define MN_DATA_LABELS_H

#include "data/dataset.h"

/* MN_BAD_DATA, naming row, label and number of classes, unless each of `count` labels is at least 0 and below
 * `classes`. The first is that of row `first`; `data` is what the message calls the rows, and `model` what
 * has the classes. */
mn_status mn_labels_check(const int32_t *labels, int64_t first, int64_t count, int64_t classes,
                          const char *data, const char *model);

/* The same for all rows of a dataset of classes, whose labels are read; or an error of its read. */
mn_status mn_labels_check_all(struct mn_dataset *dataset, int64_t classes, const char *data,
                              const char *model);

#endif
