/* Rows of inputs and targets from any source: an HDF5 file (hdf5/dataset_file.c), arrays of the caller's
 * (arrays.c), a synthetic teacher (synthetic.c), or other datasets (held_out.c, joined.c).
 *
 * A dataset may be larger than memory: it is read in ranges of rows and does not cache them. */
#ifndef MN_DATA_DATASET_H
#define MN_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

/* The names of classes that are words, sorted by their bytes; each ends with a zero. */
enum { MN_CLASS_NAME = 64, MN_CLASSES_MOST = 1000 };
struct mn_class_names {
  int64_t count;
  char (*names)[MN_CLASS_NAME]; /* [count] */
};

void mn_class_names_sort(struct mn_class_names *names);
/* Replaces *to by a copy. MN_NO_MEMORY. */
mn_status mn_class_names_copy(struct mn_class_names *to, const struct mn_class_names *from);
int64_t mn_class_find(const struct mn_class_names *sorted, const char *name); /* the index, or −1 */

struct mn_dataset {
  int64_t rows;    /* n */
  int64_t inputs;  /* I, the width of x */
  int64_t outputs; /* K: the width of y; with classes, the largest label + 1 */
  int classes;     /* y is [n] int32 labels (cross-entropy), not [n, K] reals (mse) */
  const struct mn_class_names *class_names; /* of labels that are words; NULL if they are numbers */
  const char *x_type, *y_type; /* types in the file: "float32", "int64" …; NULL if it is none, or a CSV */
  size_t parallel;             /* 4 or 8 if several threads may read x as reals of this width; else 0 */
  size_t y_parallel;           /* the same of real targets y */
  int64_t alone;   /* 1 + the only class there is; −1 − a class held out whole or not at all; else 0 */
  double *weights; /* [rows], owned: what the losses of rows are multiplied by (mn_dataset_weigh); or NULL */
  const int64_t *numbers; /* [rows]: of the rows in their file, if some were left out; else NULL */
  const struct mn_fingerprinting *fingerprinting; /* of its rows (data/fingerprint.h), or NULL */
  /* Reads rows first … first + count: x as [count, I] and y as [count, K] reals of `real` bytes (4: float, 8:
   * double), or as int32 labels [count]. NULL skips x or y; y must be NULL if outputs is 0. MN_USAGE: rows, a
   * `real` or a y that the dataset lacks. MN_BAD_DATA: a value is missing, not finite, or beyond a float's
   * range for real 4; the message names its dataset and row. Any thread may call it, on a stack of 2 MiB;
   * several may at a time if real is `parallel`, or y_parallel, in all of these calls. */
  mn_status (*read)(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x, void *y);
  void (*close)(struct mn_dataset *dataset); /* mn_dataset_close calls it or, if it is NULL, free */
};

/* *out: each row's label, to be freed; zeros of real targets. Errors: those of read and mn_labels_check. */
mn_status mn_dataset_labels(int32_t **out, struct mn_dataset *dataset);

/* For a `read`: MN_USAGE if the dataset lacks these rows or that y, or if no real has `real` bytes. */
mn_status mn_dataset_check_read(const struct mn_dataset *dataset, int64_t first, int64_t count, size_t real,
                                const void *y);

/* For a `read`: MN_BAD_DATA, naming file, dataset, row and column of the first of `count` values that is not
 * finite. `at`: index of values[0] in the dataset's [rows, cols]. */
mn_status mn_dataset_check_finite(const char *file, const char *dataset, int64_t at, int64_t cols,
                                  int64_t count, const void *values, size_t real);

/* MN_BAD_DATA, naming row, label and number of classes, unless each of `count` labels is from 0 to classes −
 * 1. labels[0] is the label of row `first`; the message calls the rows `data`, and what has the classes
 * `model`. */
mn_status mn_labels_check(const int32_t *labels, int64_t first, int64_t count, int64_t classes,
                          const char *data, const char *model);

/* The width to read x (side 0) or y (1) in: the stored one if several threads can read it, else double. */
static inline size_t mn_stored_real(const struct mn_dataset *dataset, int side) {
  const size_t stored = side ? dataset->y_parallel : dataset->parallel;
  return stored ? stored : sizeof(double);
}

/* The index of the first value that is not between `low` and `high` (infinities: not finite), or −1; and
 * value `i`. Values are reals of `real` bytes. */
int64_t mn_find_outside(const void *values, int64_t count, size_t real, double low, double high);
static inline double mn_real_at(const void *values, size_t real, int64_t i) {
  return real == sizeof(double) ? ((const double *)values)[i] : (double)((const float *)values)[i];
}
static inline void mn_real_put(void *values, size_t real, int64_t i, double value) {
  if (real == sizeof value)
    ((double *)values)[i] = value;
  else
    ((float *)values)[i] = (float)value;
}

#endif
