/* Rows of inputs and targets from any source: an HDF5 file (hdf5/dataset_file.c), arrays of the caller's
 * (arrays.c), a synthetic teacher (synthetic.c), or some rows of another dataset (held_out.c).
 *
 * A dataset may be larger than memory: it is read in ranges of rows and does not cache them. */
#ifndef MN_DATA_DATASET_H
#define MN_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

struct mn_device;

/* The names of classes that are words, sorted by their bytes; each ends with a zero. */
enum { MN_CLASS_NAME = 64, MN_CLASSES_MOST = 1000 };
struct mn_class_names {
  int64_t count;
  char (*names)[MN_CLASS_NAME]; /* [count] */
};

struct mn_dataset {
  int64_t rows;    /* n */
  int64_t inputs;  /* I, the width of x */
  int64_t outputs; /* K: the width of y; with classes, the largest label + 1 */
  int classes;     /* y is [n] int32 labels (cross-entropy), not [n, K] reals (mse) */
  const struct mn_class_names *class_names; /* of labels that are words; NULL if they are numbers */
  const char *x_name, *y_name; /* path in the file, as "train/x"; NULL if x or y is not in a file */
  const char *x_type, *y_type; /* type in the file: "float32", "int64" …; NULL likewise */
  size_t parallel;             /* 4 or 8 if several threads may read x as reals of this width; else 0 */
  size_t y_parallel;           /* the same of real targets y */
  /* Reads rows first … first + count: x as [count, I] and y as [count, K] reals of `real` bytes (4: float, 8:
   * double), or as int32 labels [count]. NULL skips x or y; y must be NULL if outputs is 0. MN_USAGE: rows, a
   * `real` or a y that the dataset lacks. MN_BAD_DATA: a value is missing, not finite, or beyond a float's
   * range for real 4; the message names its dataset and row. Any thread may call it, on a stack of 2 MiB;
   * several may at a time if real is `parallel`, or y_parallel, in all of these calls. */
  mn_status (*read)(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x, void *y);
  void (*close)(struct mn_dataset *dataset); /* called by mn_dataset_close alone, which calls free if this is
                                                NULL */
};

enum mn_part { MN_PART_TRAIN, MN_PART_TEST, MN_PART_ALL };

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
 * y_required: 0, so that y may be missing (outputs 0, classes 0), and a y with other rows than x is ignored;
 * or MN_Y_REQUIRED; and MN_Y_NUMBERS, by which integers are regression targets too. MN_Y_NONE:
 * y is not looked at.
 *
 * Errors: MN_NO_INPUT (no such file, no permission, locked by another program), MN_BAD_DATA (empty,
 * truncated, not HDF5, no such dataset, wrong rank or type, x and y of different row counts, no rows, soft or
 * external links and external or virtual storage, a missing filter, a declared size beyond the stored bytes),
 * MN_IO (the disk fails), MN_USAGE (a name of slashes alone), MN_NO_MEMORY; each message names the file, the
 * dataset, the fault and a remedy. */
enum { MN_Y_REQUIRED = 1, MN_Y_NUMBERS = 2, MN_Y_NONE = 4 };
MN_API mn_status mn_dataset_open(struct mn_dataset **out, const char *path, enum mn_part part,
                                 const char *x_name, const char *y_name, int y_required);

/* Numbers the classes of an opened file anew, as `names` has them, whose owner the message calls `whose`; a
 * dataset without words stays as it is. Before mn_dataset_hold_out. MN_BAD_DATA: a word that is no name. */
mn_status mn_dataset_name_classes(struct mn_dataset *dataset, const struct mn_class_names *names,
                                  const char *whose);

/* The caller's rows: x [rows, inputs] and targets y [rows, outputs], row-major; outputs is 0 without targets.
 * The arrays are borrowed until mn_dataset_close, and must not change while a trainer or an evaluator is open
 * on the dataset. MN_USAGE: rows or inputs below 1, outputs below 0, or an array that is NULL;
 * MN_NO_MEMORY. */
MN_API mn_status mn_dataset_arrays(struct mn_dataset **out, const float *x, const float *y, int64_t rows,
                                   int64_t inputs, int64_t outputs);
/* The same with class labels [rows], which are read here. MN_BAD_DATA: a label below 0. */
MN_API mn_status mn_dataset_labelled(struct mn_dataset **out, const float *x, const int32_t *labels,
                                     int64_t rows, int64_t inputs);

/* The synthetic teacher: x uniform with variance 1; y = a hidden block of `outputs` channels in `groups`
 * groups (weights as a new block's, gamma 1 + t/2 and beta t/2 with t uniform on [−1, 1), eps 1e-5, slope
 * 0.01) of x, plus uniform noise of variance noise². Every value is a function of (seed, row), computed in
 * double and rounded to the requested real: a row does not depend on the rows read with it. MN_PART_TEST
 * gives other rows of the same teacher. The teacher's own mean loss is noise², but for chance; a model that
 * fits the noise of its rows has less on them.
 *
 * The dataset opens a device of its own, always in MN_FP64, with the type and ordinal of `like`, or the CPU
 * if that is NULL. `like` is read during this call alone, and may be in use by another thread while rows are
 * read. One device gives the same bytes every time. Between devices x is equal to the last bit, and y to
 * about 1e-12, since fp64 sums are taken in another order: as floats within one unit in the last place,
 * except for values nearer to 0 than 1e-4, whose units may be smaller than that.
 *
 * Memory of that device: the teacher's weights in double (8·outputs·inputs bytes: 537 MB at 8192²) and up to
 * some 60 MB of rows, or 64 rows if those are more. MN_USAGE: sizes below 1, inputs or outputs above 2²²,
 * rows above 2⁴⁰, groups that do not divide outputs, a noise below 0 or not finite; MN_NO_MEMORY: the device
 * has too little; no other device is taken instead, since its bytes would differ; MN_NO_DEVICE and MN_LIBRARY
 * as mn_device_open. */
MN_API mn_status mn_dataset_synthetic(struct mn_dataset **out, enum mn_part part, int64_t rows,
                                      int64_t inputs, int64_t outputs, int64_t groups, double noise,
                                      uint64_t seed, const struct mn_device *like);

/* Holds rows out of a file without a test split: replaces *dataset by some of its rows, which owns the
 * original from then on. MN_PART_TEST keeps the rows that are held out, a `fraction` of all, MN_PART_TRAIN
 * the others, each in the order in which they are stored; for both parts open the file twice.
 *
 * If `stratified`, single rows are drawn; if y are classes, `fraction` of the rows of each class, rounded so
 * that the sum is mn_dataset_held_out. (seed, rows, fraction, labels) decide which rows. Otherwise, and if x
 * has more values than MN_DATASET_STRATIFIED, 1 GiB of floats, so that it may stay in the file, whose single
 * rows are slow to read, most rows are drawn in stretches of neighbours, by (seed, rows, fraction) alone.
 *
 * Takes a byte a row meanwhile. Messages number rows as the original does. On an error *dataset is unchanged.
 * MN_USAGE: a fraction that is not between 0 and 1; MN_BAD_DATA: a single row; MN_NO_MEMORY; the errors of
 * reading labels. */
enum { MN_DATASET_STRATIFIED = 1 << 28 };
MN_API mn_status mn_dataset_hold_out(struct mn_dataset **dataset, enum mn_part part, double fraction,
                                     uint64_t seed, int stratified);

/* Rows held out of `rows`, at least 2: round(fraction·rows), in [1, rows − 1]. */
int64_t mn_dataset_held_out(int64_t rows, double fraction);

/* The number that row `row` had before mn_dataset_hold_out. */
int64_t mn_dataset_row(const struct mn_dataset *dataset, int64_t row);

MN_API void mn_dataset_close(struct mn_dataset *dataset); /* NULL is fine */

/* For a `read`: MN_USAGE if the dataset lacks these rows or that y, or if no real has `real` bytes. */
MN_API mn_status mn_dataset_check_read(const struct mn_dataset *dataset, int64_t first, int64_t count,
                                       size_t real, const void *y);

/* For a `read`: MN_BAD_DATA, naming file, dataset, row and column of the first of `count` values that is not
 * finite. `at`: index of values[0] in the dataset's [rows, cols]. */
mn_status mn_dataset_check_finite(const char *file, const char *dataset, int64_t at, int64_t cols,
                                  int64_t count, const void *values, size_t real);

/* MN_BAD_DATA, naming row, label and number of classes, unless each of `count` labels is from 0 to classes −
 * 1. labels[0] is the label of row `first`; the message calls the rows `data`, and what has the classes
 * `model`. */
mn_status mn_labels_check(const int32_t *labels, int64_t first, int64_t count, int64_t classes,
                          const char *data, const char *model);

/* The same for all rows of a dataset of classes, whose labels are read; or an error of its read. */
mn_status mn_labels_check_all(struct mn_dataset *dataset, int64_t classes, const char *data,
                              const char *model);

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

#endif
