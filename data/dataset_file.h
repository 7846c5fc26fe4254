/* An HDF5 file of rows from the inside: what dataset_open.c, which finds and checks x and y, hands to
 * dataset.c, which reads them. */
#ifndef MN_DATA_DATASET_FILE_H
#define MN_DATA_DATASET_FILE_H

#include <hdf5.h>

#include "data/dataset.h"

/* x or y in the file. */
struct mn_dataset_array {
  char *name;         /* from the root, without a leading slash: "train/x" */
  const char *option; /* how a user names another: "--x" */
  hid_t id;           /* the HDF5 dataset; −1: there is none */
  int rank;           /* 1: [rows], 2: [rows, cols] */
  int64_t rows, cols; /* cols 1 at rank 1 */
  H5T_class_t kind;   /* H5T_INTEGER or H5T_FLOAT */
  size_t stored;      /* bytes of an element in the file */
  int is_signed;      /* of integers */
  int packed;         /* an attribute asks for value·scale + offset */
  double scale, offset;
};

struct mn_dataset_file {
  struct mn_dataset base; /* first, so that the two convert */
  char *path;
  int64_t bytes; /* the file's size */
  hid_t file;
  struct mn_dataset_array x, y;
  void *scratch; /* MN_HDF5_PIECE bytes: values on their way from what is stored to what was asked for */
};

/* The message after HDF5 failed `doing` ("opening") to `name`: MN_IO or MN_BAD_DATA. Call while locked. */
mn_status mn_dataset_broken(const struct mn_dataset_file *d, const char *name, const char *doing);

/* Opens the file at d->path, and x and y in it; *there 0 when the part asked for is not. d->file and the ids
 * are −1 before, and what was opened is the caller's to close, whatever comes back. Call while locked. */
mn_status mn_dataset_open_parts(struct mn_dataset_file *d, enum mn_part part, const char *x_name,
                                const char *y_name, int y_required, int *there);

#endif
