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

/* The i-th row of the sample: i·rows/count without overflow. */
static int64_t sample_row(const struct mn_dataset *d, int64_t i) {
  const int64_t count = count_of(d);
  return i * (d->rows / count) + i * (d->rows % count) / count;
}

static int64_t block_of(const struct mn_dataset *d) {
  const int64_t width = d->inputs + (d->classes ? 1 : d->outputs);
  int64_t rows = 1;
  while (2 * rows * width <= BLOCK) rows *= 2;
  return rows;
}

/* XXH3_64bits by the widest instructions of this processor, if the library was built with it. */
XXH64_hash_t XXH3_64bits_dispatch(const void *bytes, size_t size) __attribute__((weak));

/* The hash of `count` floats, labels, or doubles as floats, a block of them after the other. */
static uint64_t hash_values(const void *values, size_t real, int64_t at, int64_t count) {
  float narrow[BLOCK];
  uint64_t parts[2] = {0};
  for (int64_t done = 0, here; done < count; done += here) {
    here = count - done < BLOCK ? count - done : BLOCK;
    const void *from = (const float *)values + at + done;
    for (int64_t i = 0; real > sizeof(float) && i < here; i++)
      narrow[i] = (float)((const double *)values)[at + done + i];
    if (real > sizeof(float)) from = narrow;
    const size_t bytes = (size_t)here * sizeof(float);
    parts[1] = XXH3_64bits_dispatch ? XXH3_64bits_dispatch(from, bytes) : XXH3_64bits(from, bytes);
    parts[0] = done + here < count || done ? XXH3_64bits(parts, sizeof parts) : parts[1];
  }
  return parts[0];
}

/* At a position, of x or of y. */
static uint64_t at_position(int64_t row, int side, uint64_t hash) {
  const uint64_t parts[] = {(uint64_t)row, (uint64_t)side, hash};
  return XXH3_64bits(parts, sizeof parts);
}

static void add(struct mn_fingerprint *f, const struct mn_dataset *d, int side, size_t real, int64_t first,
                int64_t count, const void *values) {
  const int64_t cols = side == MN_X ? d->inputs : d->classes ? 1 : d->outputs;
  const int64_t block = block_of(d), end = first + count, all = count_of(d);
  uint64_t rows = 0, sample = 0;
  for (int64_t at = first, here; at < end; at += here) {
    here = end - at < block ? end - at : block;
    rows += at_position(at, side, hash_values(values, real, (at - first) * cols, here * cols));
  }
  int64_t i = (int64_t)((double)first / (double)d->rows * (double)all); /* at most the first sample here */
  for (int64_t row; i < all && (row = sample_row(d, i)) < end; i++) {
    if (row < first) continue;
    const uint64_t hash = hash_values(values, real, (row - first) * cols, cols);
    sample += at_position(row, side, hash);
    if (side == MN_X) f->inputs[i] = (uint32_t)hash;
  }
  __atomic_add_fetch(&f->rows, rows, __ATOMIC_RELAXED);
  __atomic_add_fetch(&f->sample, sample, __ATOMIC_RELAXED);
}

static uint64_t hash_header(const struct mn_dataset *d, uint64_t sum) {
  const int64_t shape[] = {d->rows, d->inputs, d->outputs, d->classes};
  return XXH3_64bits_withSeed(shape, sizeof shape, sum);
}

static void end_rows(struct mn_fingerprint *f, const struct mn_dataset *d, int whole) {
  f->whole = whole;
  f->count = count_of(d);
  f->sample = hash_header(d, f->sample);
  f->rows = whole ? hash_header(d, f->rows) : 0;
}

static mn_status read_sample(struct mn_dataset *dataset, const struct mn_rows_form *form,
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
    ranges[i] = (struct mn_range){sample_row(dataset, i), 1, i};
  if (status == MN_OK) status = mn_read_rows(dataset, form, ranges, count, &rows, stop);
  if (status == MN_OK) end_rows(fingerprint, dataset, 0);
  free(ranges), free(rows.x), free(rows.y);
  return status;
}

const struct mn_fingerprinting mn_fingerprinting = {block_of, add, end_rows, read_sample};

/* ---- texts ---- */

#define MARK "2:" /* before texts of these rules; minnow 0.3's have none */

void mn_fingerprint_show(char out[MN_FINGERPRINT_TEXT], const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test) {
  const uint64_t sums[2][2] = {{train->sample, test ? test->sample : 0},
                               {train->rows, test ? test->rows : 0}};
  const int length =
      snprintf(out, MN_FINGERPRINT_TEXT, MARK "%016" PRIx64, XXH3_64bits(sums[0], sizeof sums[0]));
  if (train->whole && (!test || test->whole))
    snprintf(out + length, MN_FINGERPRINT_TEXT - (size_t)length, " %016" PRIx64,
             XXH3_64bits(sums[1], sizeof sums[1]));
}

void mn_fingerprint_weights(char out[MN_FINGERPRINT_TEXT], const struct mn_dataset *train,
                            const struct mn_dataset *test) {
  uint64_t sum = 0;
  for (int i = 0; i < 2; i++) {
    const struct mn_dataset *d = i ? test : train;
    if (d && d->weights) sum = XXH3_64bits_withSeed(d->weights, (size_t)d->rows * sizeof *d->weights, sum);
  }
  *out = 0;
  if (sum) snprintf(out, MN_FINGERPRINT_TEXT, "%016" PRIx64, sum);
}

int mn_fingerprint_same(const char *a, const char *b) {
  const size_t both = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
  if (*a && *b && !strncmp(a, MARK, 2) != !strncmp(b, MARK, 2)) return -1;
  return strncmp(a, b, both) == 0 && (both > 0 || strcmp(a, b) == 0);
}

char *mn_fingerprint_inputs(const struct mn_fingerprint *f) {
  char *text = malloc((size_t)f->count * 8 + 1);
  for (int64_t i = 0; text && i < f->count; i++) snprintf(text + 8 * i, 9, "%08" PRIx32, f->inputs[i]);
  return text;
}

static int by_hash(const void *a, const void *b) {
  const uint32_t *left = a, *right = b;
  return (*left > *right) - (*left < *right);
}

mn_status mn_fingerprint_count(struct mn_dataset *d, const char *inputs, int64_t most, int64_t *found) {
  const size_t count = strlen(inputs) / 8;
  const int64_t piece = d->inputs < BLOCK ? BLOCK / d->inputs : 1;
  uint32_t *hashes = calloc(count + 1, sizeof *hashes);
  const size_t real = mn_stored_real(d, MN_X);
  void *x = malloc((size_t)(piece * d->inputs) * real);
  mn_status status = hashes && x ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory to compare rows");
  for (size_t i = 0; i < count && hashes; i++) sscanf(inputs + 8 * i, "%8" SCNx32, &hashes[i]);
  if (hashes) qsort(hashes, count, sizeof *hashes, by_hash);
  *found = 0;
  for (int64_t first = 0, here; first < most && status == MN_OK; first += here) {
    here = most - first < piece ? most - first : piece;
    status = d->read(d, first, here, real, x, NULL);
    for (int64_t i = 0; i < here && status == MN_OK; i++) {
      const uint32_t hash = (uint32_t)hash_values(x, real, i * d->inputs, d->inputs);
      *found += bsearch(&hash, hashes, count, sizeof *hashes, by_hash) != NULL;
    }
  }
  free(hashes), free(x);
  return status;
}
