/* Factors of classes, as weights of their rows (mn_dataset_weigh). */
#ifndef MN_DATA_WEIGHTS_H
#define MN_DATA_WEIGHTS_H

#include "data/dataset.h"

/* Multiplies the weight of each row by that of its class, [outputs]. Labels are read: their errors. */
mn_status mn_dataset_weigh_classes(struct mn_dataset *dataset, const double *by_class);

/* Factors by which all classes count the same, by_class [outputs]: rows/(the class's rows · the classes that
 * have any), or 1 without rows; sklearn's "balanced". Errors of reading labels. */
mn_status mn_dataset_balance(struct mn_dataset *dataset, double *by_class);

#endif
