/* Fingerprints of rows, the same wherever the rows wait, however they are stored and however many threads
 * read them: XXH3 of their values as floats, of labels as numbers, and of their shapes.
 *
 * The rows are hashed in blocks of neighbours. A block's hash covers its position, so that the sum of the
 * hashes covers the order. Each thread adds the rows that it has read while they are in its cache. */
#ifndef MN_DATA_FINGERPRINT_H
#define MN_DATA_FINGERPRINT_H

#include "data/columns.h"

enum { MN_FINGERPRINT_ROWS = 4096, MN_FINGERPRINT_TEXT = 36 };

struct mn_rows_form; /* data/placement.h */
struct mn_fingerprint {
  uint64_t sample; /* of MN_FINGERPRINT_ROWS rows, or all of fewer */
  uint64_t rows;   /* of all rows if `whole`; else 0 */
  int whole;       /* all rows were read before the first batch */
  int64_t count;   /* of the sample, and of each of its rows a hash of x alone, wherever it stands: */
  uint32_t inputs[MN_FINGERPRINT_ROWS];
};

/* What reading calls for a dataset whose rows have a fingerprint; a program on arrays links none of it. */
struct mn_fingerprinting {
  /* Rows of a block, the largest power of two whose x and y take at most 32 KiB as doubles, or 1. If all rows
   * are read, each `add` takes whole blocks, except for the last rows. */
  int64_t (*block)(const struct mn_dataset *dataset);
  /* Adds x (MN_X) or y (MN_Y) of rows first … first + count − 1: reals of `real` bytes, or int32 labels.
   * Several threads may add at a time. The fingerprint starts as zeros. */
  void (*add)(struct mn_fingerprint *fingerprint, const struct mn_dataset *dataset, int side, size_t real,
              int64_t first, int64_t count, const void *values);
  /* Behind all rows of the sample or, if `whole`, all rows. */
  void (*end)(struct mn_fingerprint *fingerprint, const struct mn_dataset *dataset, int whole);
  /* Of the sample, whose rows it reads and forgets. Errors: as mn_read_rows; MN_NO_MEMORY. */
  mn_status (*sample)(struct mn_dataset *dataset, const struct mn_rows_form *form,
                      struct mn_fingerprint *fingerprint, const int *stop);
};
extern const struct mn_fingerprinting mn_fingerprinting;

/* The fingerprint of a run's rows as text: of the samples and, if both are whole, of all rows. `test` may be
 * NULL. */
void mn_fingerprint_show(char out[MN_FINGERPRINT_TEXT], const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test);

/* The same of the rows' weights, all of them; "" without. `test` may be NULL. */
void mn_fingerprint_weights(char out[MN_FINGERPRINT_TEXT], const struct mn_dataset *train,
                            const struct mn_dataset *test);

/* Whether two texts may be of the same rows: the shorter is the start of the longer. −1: that is not known,
 * since one is of an older minnow, made by other rules. */
int mn_fingerprint_same(const char *a, const char *b);

/* The hashes of x in the sample as a text, 8 hex digits each; to be freed. NULL: no memory. */
char *mn_fingerprint_inputs(const struct mn_fingerprint *fingerprint);

/* *found: how many of a dataset's first `most` rows have an x whose hash is in such a text. Errors: those of
 * its read; MN_NO_MEMORY. */
mn_status mn_fingerprint_count(struct mn_dataset *dataset, const char *inputs, int64_t most, int64_t *found);

#endif
