/* A number by which a dataset is known again: of its names, shapes and types, and of its first and last rows.
 * It is read in no time from data of any size, so rows in the middle may have changed unseen. */
#ifndef MN_DATA_FINGERPRINT_H
#define MN_DATA_FINGERPRINT_H

#include "data/dataset.h"

#define MN_FINGERPRINT_START UINT64_C(14695981039346656037)

/* Adds a dataset, opened under these names, to *fingerprint, which is MN_FINGERPRINT_START before the first.
 * Errors: those of reading its first and last rows, targets included; MN_NO_MEMORY. */
mn_status mn_fingerprint_add(uint64_t *fingerprint, struct mn_dataset *dataset, const char *x_name,
                             const char *y_name);

#endif
