/* Numbers by which rows are known again, wherever they wait and however many threads read them: XXH3 of their
 * values as they are read, before they are rounded or put into planes, and of their names, types and shapes.
 *
 * The rows are hashed in blocks of neighbours, and a block's hash covers its place, so that a sum of them
 * covers their order: each thread adds what it has read while it is in its cache. */
#ifndef MN_DATA_FINGERPRINT_H
#define MN_DATA_FINGERPRINT_H

#include "data/dataset.h"

enum { MN_FINGERPRINT_ROWS = 4096, MN_FINGERPRINT_TEXT = 34 };

struct mn_fingerprint {
  uint64_t sample; /* of MN_FINGERPRINT_ROWS rows, or all of fewer */
  uint64_t rows;   /* of all rows, where `whole`; else 0 */
  int whole;       /* all rows were read before the first batch */
};

/* The rows of the sample: `count` of them, spread over all; number i of them. */
int64_t mn_fingerprint_count(const struct mn_dataset *dataset);
int64_t mn_fingerprint_row(const struct mn_dataset *dataset, int64_t i);

/* Rows of a block: a power of two, so that reads of whole blocks are of whole chunks where these are; at most
 * what 32 KiB of x and y as doubles hold, or 1. Where all rows are read, each call of mn_fingerprint_add but
 * that of the last rows takes whole blocks. */
int64_t mn_fingerprint_block(const struct mn_dataset *dataset);

/* Adds rows first … first + count − 1, with reals of `real` bytes; y NULL: without targets. Several threads
 * may do so at a time. The fingerprint is all zeros before the first. */
void mn_fingerprint_add(struct mn_fingerprint *fingerprint, const struct mn_dataset *dataset, size_t real,
                        int64_t first, int64_t count, const void *x, const void *y);

/* Ends it when all rows of the sample were added; `whole`: all rows were. */
void mn_fingerprint_end(struct mn_fingerprint *fingerprint, const struct mn_dataset *dataset, int whole);

/* As text, of a run's rows: the sample's number and, where all rows of both were read, theirs. `test` may be
 * NULL. */
void mn_fingerprint_show(char out[MN_FINGERPRINT_TEXT], const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test);

/* Whether two texts may be of the same rows: in whatever both of them have, they agree. */
int mn_fingerprint_same(const char *a, const char *b);

#endif
