/* A dataset made up, whose rows say which they are, so that whatever is read of it can be checked to the row.
 * Reads can fail, or take long. */
#ifndef MN_TESTS_ROWS_MADE_H
#define MN_TESTS_ROWS_MADE_H

#include <stdatomic.h>
#include <time.h>

#include "data/fingerprint.h"
#include "tests/check.h"

enum { INPUTS = 3 };

struct made {
  struct mn_dataset base;
  int64_t bad_row;  /* reading it fails; −1: none */
  int64_t bad_from; /* as does reading any from this one on; 0: none */
  int64_t late_row; /* reading it takes 20 ms; −1: none */
  int delay_us;     /* of each read of more than a row, which is no sample's */
  atomic_llong reads, rows_read;
};

/* Of both signs, and in a row of INPUTS the last is the largest. */
static inline double x_of(int64_t row, int64_t i) {
  const double size = (double)row * INPUTS + (double)i;
  return (row + i) % 2 ? -size : size;
}

static inline mn_status made_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real,
                                  void *x, void *y) {
  struct made *m = (struct made *)dataset; /* read by several threads */
  if (!(first >= 0 && count > 0 && first + count <= dataset->rows))
    return mn_fail(MN_LIBRARY, "no such rows");
  if (m->delay_us && count > 1)
    nanosleep(&(struct timespec){m->delay_us / 1000000, m->delay_us % 1000000 * 1000L}, NULL);
  if (m->late_row >= first && m->late_row < first + count) nanosleep(&(struct timespec){0, 20000000}, NULL);
  m->reads++;
  m->rows_read += count;
  if (m->bad_row >= first && m->bad_row < first + count)
    return mn_fail(MN_BAD_DATA, "made up: row %lld is bad", (long long)m->bad_row);
  if (m->bad_from && first + count > m->bad_from)
    return mn_fail(MN_BAD_DATA, "made up: row %lld is bad", (long long)first);
  for (int64_t r = 0; r < count; r++) {
    for (int64_t i = 0, inputs = dataset->inputs; i < inputs; i++)
      if (real == 8)
        ((double *)x)[r * inputs + i] = x_of(first + r, i);
      else
        ((float *)x)[r * inputs + i] = (float)x_of(first + r, i);
    if (dataset->classes)
      ((int32_t *)y)[r] = (int32_t)(first + r);
    else if (dataset->outputs && real == 8)
      ((double *)y)[r * 2] = (double)(first + r), ((double *)y)[r * 2 + 1] = -1;
    else if (dataset->outputs)
      ((float *)y)[r * 2] = (float)(first + r), ((float *)y)[r * 2 + 1] = -1;
    else if (y)
      return mn_fail(MN_LIBRARY, "there is no y");
  }
  return MN_OK;
}

static inline struct made make(int64_t rows, int classes) {
  return (struct made){.base = {.rows = rows,
                                .inputs = INPUTS,
                                .outputs = classes ? rows : 2,
                                .classes = classes,
                                .read = made_read,
                                .fingerprinting = &mn_fingerprinting},
                       .bad_row = -1,
                       .late_row = -1};
}

#endif
