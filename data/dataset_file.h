/* An HDF5 file of rows from the inside: what dataset_open.c, which finds and checks x and y, passes to
 * dataset.c, which reads them. */
#ifndef MN_DATA_DATASET_FILE_H
#define MN_DATA_DATASET_FILE_H

#include "data/dataset.h"
#include "data/hdf5_file.h"

/* x or y in the file. */
struct mn_dataset_array {
  const char *role;             /* "x" or "y" */
  char *name;                   /* from the root, without a leading slash: "train/x" */
  struct mn_hdf5_object object; /* id −1: there is none */
  int64_t rows, cols;           /* cols 1 at rank 1 */
  int packed;                   /* an attribute asks for value·scale + offset */
  double scale, offset;
};

struct mn_dataset_file {
  struct mn_dataset base; /* first, so that the two convert */
  char *path;
  struct mn_hdf5_file file; /* root.id −1: not open */
  struct mn_dataset_array x, y;
  void *scratch; /* MN_HDF5_TRANSFER bytes: values between what is stored and what was asked for */
};

/* Opens the file at d->path, and x and y in it; *there 0 when the part asked for is not. What was opened is
 * the caller's to close, whatever comes back. */
mn_status mn_dataset_open_parts(struct mn_dataset_file *d, enum mn_part part, const char *x_name,
                                const char *y_name, int y_required, int *there);

#endif
