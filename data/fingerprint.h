/* Fingerprints of rows, the same wherever the rows wait and however many threads read them: XXH3 of their
 * values as read, before they are rounded or put into planes, and of their names, types and shapes.
 *
 * The rows are hashed in blocks of neighbours. A block's hash covers its position, so that the sum of the
 * hashes covers the order. Each thread adds the rows that it has read while they are in its cache. */
#ifndef MN_DATA_FINGERPRINT_H
#define MN_DATA_FINGERPRINT_H

#include "data/dataset.h"

enum { MN_FINGERPRINT_ROWS = 4096, MN_FINGERPRINT_TEXT = 34 };

struct mn_fingerprint {
  uint64_t sample; /* of MN_FINGERPRINT_ROWS rows, or all of fewer */
  uint64_t rows;   /* of all rows if `whole`; else 0 */
  int whole;       /* all rows were read before the first batch */
};

/* The number of rows in the sample, and its i-th row; they are spread over the dataset. */
int64_t mn_fingerprint_count(const struct mn_dataset *dataset);
int64_t mn_fingerprint_row(const struct mn_dataset *dataset, int64_t i);

/* Rows of a block: the largest power of two whose x and y take at most 32 KiB as doubles, or 1. If all rows
 * are read, each mn_fingerprint_add takes whole blocks, except for the last rows. */
int64_t mn_fingerprint_block(const struct mn_dataset *dataset);

/* Adds rows first … first + count − 1, with reals of `real` bytes; y is NULL without targets. Several threads
 * may add at a time. The fingerprint starts as zeros. */
void mn_fingerprint_add(struct mn_fingerprint *fingerprint, const struct mn_dataset *dataset, size_t real,
                        int64_t first, int64_t count, const void *x, const void *y);

/* Ends the fingerprint after all rows of the sample were added, or if `whole`, all rows. */
void mn_fingerprint_end(struct mn_fingerprint *fingerprint, const struct mn_dataset *dataset, int whole);

/* The fingerprint of a run's rows as text: of the samples and, if both are whole, of all rows. `test` may be
 * NULL. */
void mn_fingerprint_show(char out[MN_FINGERPRINT_TEXT], const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test);

/* Whether two texts may be of the same rows: the shorter is the start of the longer. */
int mn_fingerprint_same(const char *a, const char *b);

#endif
