/* Some rows of another dataset. */
#ifndef MN_DATA_HELD_OUT_H
#define MN_DATA_HELD_OUT_H

#include "data/dataset.h"

/* Holds rows out of a file without a test split: replaces *dataset by some of its rows, which owns the
 * original from then on. MN_PART_TEST keeps the rows that are held out, a `fraction` of all, MN_PART_TRAIN
 * the others, each in the order in which they are stored; for both parts open the file twice.
 *
 * If `stratified`, single rows are drawn; if y are classes, `fraction` of the rows of each class, rounded so
 * that the sum is mn_dataset_held_out; a class of two rows or more has one in both parts if there are enough.
 * (seed, rows, fraction, labels) decide which rows. Otherwise, and if x has more values than
 * MN_DATASET_STRATIFIED, 1 GiB of floats, so that it may stay in the file, whose single
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

#endif
