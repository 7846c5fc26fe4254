/* Datasets of others: some of their rows, or the targets of several. */
#ifndef MN_DATA_HELD_OUT_H
#define MN_DATA_HELD_OUT_H

#include "data/dataset.h"

/* mn_dataset_hold_out keeps the rows of either part in the order in which they are stored. If `stratified`,
 * single rows are drawn; if y are classes, `fraction` of the rows of each class, rounded so that the sum is
 * mn_dataset_held_out; a class of two rows or more has one in both parts if there are enough. Otherwise, and
 * if x has more values than MN_DATASET_STRATIFIED, 1 GiB of floats, so that it may stay in the file, whose
 * single rows are slow to read, most rows are drawn in stretches of neighbours, by (seed, rows, fraction)
 * alone. Meanwhile it takes a byte a row, for single rows five; messages number rows as the original does. */
enum { MN_DATASET_STRATIFIED = 1 << 28 };

/* Rows held out of `rows`, at least 2: round(fraction·rows), in [1, rows − 1]. */
int64_t mn_dataset_held_out(int64_t rows, double fraction);

/* The rows of parts[0] with the real targets of all of them, at most MN_JOINED of as many rows, which *out
 * then owns. `logs`, a file's name or NULL: with their logarithms; `read` refuses by row what is not above 0.
 * MN_NO_MEMORY. */
enum { MN_JOINED = 64 };
mn_status mn_dataset_join(struct mn_dataset **out, struct mn_dataset *const parts[], int count,
                          const char *logs);

/* K folds, 2 ≤ folds ≤ 255: fold[row] of each of the rows, by `seed`. Each class, and all rows together, are
 * divided evenly. MN_USAGE: fewer rows than folds. */
mn_status mn_dataset_deal(unsigned char *fold, struct mn_dataset *whole, int folds, uint64_t seed);

/* The rows of one fold (MN_PART_TEST), or the others (MN_PART_TRAIN), of a dataset that is borrowed. */
mn_status mn_dataset_fold(struct mn_dataset **out, struct mn_dataset *whole, const unsigned char *fold,
                          int which, enum mn_part part);

#endif
