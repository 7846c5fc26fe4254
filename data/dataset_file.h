/* Rows in an HDF5 file. */
#ifndef MN_DATA_DATASET_FILE_H
#define MN_DATA_DATASET_FILE_H

#include "data/dataset.h"

/* Opens a dataset in the HDF5 file `path`: x_name (default "x") [n, I] and y_name (default "y").
 * MN_PART_TRAIN takes them from the group "train", or from the root if the file lacks that group;
 * MN_PART_TEST from the group "test"; if the file lacks that group, *out is NULL and the status MN_OK;
 * MN_PART_ALL from the root. Close the dataset with mn_dataset_close.
 *
 * Integers of up to 64 bits and floats of up to 128 are read; the attributes scale_factor and add_offset, one
 * number each, are honoured (value·scale_factor + add_offset, in double), as are others of netCDF's
 * (train/FILES.md): a missing value is refused when it is read. The type of y sets its kind:
 *   floats [n, K], or [n] (K = 1)            regression targets
 *   integers with one of the attributes      regression targets: packed reals
 *   text, bools or an enum, [n] or [n, 1]    class labels: the different words in order of their bytes
 *   integers [n] or [n, 1] without           class labels; all are read once here, and checked to be ≥ 0
 *   integers [n, K > 1] without              refused: one-hot labels and counts look alike. Labels belong in
 *                                            [n]; targets are floats, or carry a scale_factor of 1
 * how: 0, so that y may be missing (outputs 0, classes 0), and a y with other rows than x is ignored;
 * or MN_Y_REQUIRED; and MN_Y_NUMBERS, by which integers are regression targets too. MN_Y_NONE:
 * y is not looked at. A child process tries a file out before it is read, since libhdf5 crashes on files that
 * are damaged or made to mislead it; with MN_TRUSTED no process is started.
 *
 * Errors: MN_NO_INPUT (no such file, no permission, locked by another program), MN_BAD_DATA (empty,
 * truncated, not HDF5, no such dataset, wrong rank or type, x and y of different row counts, no rows, soft or
 * external links and external or virtual storage, a missing filter, a declared size beyond the stored bytes),
 * MN_IO (the disk fails), MN_USAGE (a name of slashes alone), MN_NO_MEMORY; each message names the file, the
 * dataset, the fault and a remedy. */
enum { MN_Y_REQUIRED = 1, MN_Y_NUMBERS = 2, MN_Y_NONE = 4, MN_TRUSTED = 8 };
MN_API mn_status mn_dataset_open(struct mn_dataset **out, const char *path, enum mn_part part,
                                 const char *x_name, const char *y_name, int how);

/* Numbers the labels of an opened file by the classes of `names` or, of count 0, of numbers. A label is its
 * text; FALSE and TRUE, as bools are called, are 0 and 1 too. The message calls the classes' owner `whose`.
 * Before mn_dataset_hold_out. MN_BAD_DATA: a label that is none, by its row; MN_NO_MEMORY. */
mn_status mn_dataset_name_classes(struct mn_dataset *dataset, const struct mn_class_names *names,
                                  const char *whose);

#endif
