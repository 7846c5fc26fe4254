/* Rows in an HDF5 file. */
#ifndef MN_DATA_DATASET_FILE_H
#define MN_DATA_DATASET_FILE_H

#include "data/dataset.h"

/* What mn_dataset_open reads: integers of up to 64 bits and floats of up to 128; the attributes scale_factor
 * and add_offset, one number each, are honoured (value·scale_factor + add_offset, in double), as are others
 * of netCDF's (train/FILES.md): a missing value is refused when it is read. The type of y sets its kind:
 *   floats [n, K], or [n] (K = 1)            regression targets
 *   integers with one of the attributes      regression targets: packed reals
 *   text, bools or an enum, [n] or [n, 1]    class labels: the different words in order of their bytes
 *   integers [n] or [n, 1] without           class labels; all are read once here, and checked to be ≥ 0
 *   integers [n, K > 1] without              refused: one-hot labels and counts look alike. Labels belong in
 *                                            [n]; targets are floats, or carry a scale_factor of 1
 * Without MN_Y_REQUIRED y may be missing (outputs 0, classes 0), and a y with other rows than x is ignored.
 * Refused are also soft and external links, external and virtual storage, a missing filter, a declared size
 * beyond the stored bytes, and a file that another program has locked. */

/* Numbers the labels of an opened file by the classes of `names` or, of count 0, of numbers. A label is its
 * text; FALSE and TRUE, as bools are called, are 0 and 1 too. The message calls the classes' owner `whose`.
 * Before mn_dataset_hold_out. MN_BAD_DATA: a label that is none, by its row; MN_NO_MEMORY. */
mn_status mn_dataset_name_classes(struct mn_dataset *dataset, const struct mn_class_names *names,
                                  const char *whose);

#endif
