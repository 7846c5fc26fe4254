/* Sums of XXH3 hashes; see fingerprint.h. */
#include "data/fingerprint.h"
#include "data/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BLOCK = 4096 }; /* values */

/* The rows of the sample. */
static int64_t count_of(const struct mn_dataset *d) {
  return d->rows < MN_FINGERPRINT_ROWS ? d->rows : MN_FINGERPRINT_ROWS;
}

/* i·rows/count without overflow. */
int64_t mn_fingerprint_row(const struct mn_dataset *d, int64_t i) {
  const int64_t count = count_of(d);
  return i * (d->rows / count) + i * (d->rows % count) / count;
}

static int64_t block_of(const struct mn_dataset *d) {
  const int64_t width = d->inputs + (d->classes ? 1 : d->outputs);
  int64_t rows = 1;
  while (2 * rows * width <= BLOCK) rows *= 2;
  return rows;
}

/* Rows in memory, from row `first` on. */
struct span {
  int64_t first;
  const char *x, *y;
  size_t x_row, y_row;
};

/* XXH3_64bits by the widest instructions of this processor, if the library was built with it. */
XXH64_hash_t XXH3_64bits_dispatch(const void *bytes, size_t size) __attribute__((weak));

static uint64_t hash_bytes(const void *bytes, size_t size) {
  return XXH3_64bits_dispatch ? XXH3_64bits_dispatch(bytes, size) : XXH3_64bits(bytes, size);
}

static uint64_t hash(const struct span *s, int64_t first, int64_t count) {
  const size_t from = (size_t)(first - s->first), rows = (size_t)count;
  const uint64_t parts[] = {(uint64_t)first, hash_bytes(s->x + from * s->x_row, rows * s->x_row),
                            s->y ? hash_bytes(s->y + from * s->y_row, rows * s->y_row) : 0};
  return XXH3_64bits(parts, sizeof parts);
}

static void add(struct mn_fingerprint *f, const struct mn_dataset *d, size_t real, int64_t first,
                int64_t count, const void *x, const void *y) {
  const struct span span = {first, x, y, (size_t)d->inputs * real,
                            d->classes ? sizeof(int32_t) : (size_t)d->outputs * real};
  const int64_t block = block_of(d), end = first + count, all = count_of(d);
  uint64_t rows = 0, sample = 0;
  for (int64_t at = first; at < end; at += block)
    rows += hash(&span, at, end - at < block ? end - at : block);
  int64_t i = (int64_t)((double)first / (double)d->rows * (double)all); /* at most the first sample here */
  for (; i < all && mn_fingerprint_row(d, i) < end; i++)
    if (mn_fingerprint_row(d, i) >= first) sample += hash(&span, mn_fingerprint_row(d, i), 1);
  __atomic_add_fetch(&f->rows, rows, __ATOMIC_RELAXED);
  __atomic_add_fetch(&f->sample, sample, __ATOMIC_RELAXED);
}

static uint64_t hash_header(const struct mn_dataset *d, uint64_t sum) {
  const char *const words[] = {d->x_name, d->y_name, d->x_type, d->y_type};
  const int64_t shape[] = {d->rows, d->inputs, d->outputs, d->classes};
  for (int i = 0; i < 4; i++)
    sum = XXH3_64bits_withSeed(words[i] ? words[i] : "", words[i] ? strlen(words[i]) : 0, sum);
  return XXH3_64bits_withSeed(shape, sizeof shape, sum);
}

void mn_fingerprint_end(struct mn_fingerprint *f, const struct mn_dataset *d, int whole) {
  f->whole = whole;
  f->sample = hash_header(d, f->sample);
  f->rows = whole ? hash_header(d, f->rows) : 0;
}

mn_status mn_read_sample(struct mn_dataset *dataset, const struct mn_rows_form *form,
                         struct mn_fingerprint *fingerprint, const int *stop) {
  const int64_t count = count_of(dataset);
  struct mn_range *ranges = malloc((size_t)count * sizeof *ranges);
  struct mn_rows rows = {.x = malloc((size_t)count * form->x_row), .fingerprint = fingerprint};
  if (form->y_row) rows.y = malloc((size_t)count * form->y_row);
  *fingerprint = (struct mn_fingerprint){0};
  mn_status status = MN_OK;
  if (!ranges || !rows.x || (form->y_row && !rows.y))
    status = mn_fail(MN_NO_MEMORY, "no memory for %lld rows, a sample", (long long)count);
  for (int64_t i = 0; i < count && status == MN_OK; i++)
    ranges[i] = (struct mn_range){mn_fingerprint_row(dataset, i), 1, i};
  if (status == MN_OK) status = mn_read_rows(dataset, form, ranges, count, &rows, stop);
  if (status == MN_OK) mn_fingerprint_end(fingerprint, dataset, 0);
  free(ranges), free(rows.x), free(rows.y);
  return status;
}

const struct mn_fingerprinting mn_fingerprinting = {block_of, add, mn_fingerprint_end, mn_read_sample};

void mn_fingerprint_show(char out[MN_FINGERPRINT_TEXT], const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test) {
  const uint64_t sums[2][2] = {{train->sample, test ? test->sample : 0},
                               {train->rows, test ? test->rows : 0}};
  const int length = snprintf(out, MN_FINGERPRINT_TEXT, "%016" PRIx64, XXH3_64bits(sums[0], sizeof sums[0]));
  if (train->whole && (!test || test->whole))
    snprintf(out + length, MN_FINGERPRINT_TEXT - (size_t)length, " %016" PRIx64,
             XXH3_64bits(sums[1], sizeof sums[1]));
}

int mn_fingerprint_same(const char *a, const char *b) {
  const size_t both = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
  return strncmp(a, b, both) == 0 && (both > 0 || strcmp(a, b) == 0);
}
