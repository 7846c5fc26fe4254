/* FNV-1a, 64 bits, over what a dataset is. */
#include "data/fingerprint.h"

#include <stdlib.h>
#include <string.h>

static void add(uint64_t *sum, const void *bytes, size_t size) {
  for (const unsigned char *at = bytes; size > 0; at++, size--) *sum = (*sum ^ *at) * UINT64_C(1099511628211);
}

/* With the zero at its end, so that two words are not one long one. */
static void add_word(uint64_t *sum, const char *word) {
  add(sum, word ? word : "", word ? strlen(word) + 1 : 1);
}

mn_status mn_fingerprint_add(uint64_t *sum, struct mn_dataset *d, const char *x_name, const char *y_name) {
  const int64_t shape[] = {d->rows, d->inputs, d->outputs, d->classes};
  const size_t x_size = (size_t)d->inputs * sizeof(double);
  const size_t y_size = d->classes ? sizeof(int32_t) : (size_t)d->outputs * sizeof(double);
  char *row = malloc(x_size + y_size);
  if (!row) return mn_fail(MN_NO_MEMORY, "no memory for a row of %ld inputs", (long)d->inputs);
  add_word(sum, x_name), add_word(sum, y_name);
  add_word(sum, d->x_type), add_word(sum, d->y_type);
  add(sum, shape, sizeof shape);
  mn_status status = MN_OK;
  for (int last = 0; last < 2 && status == MN_OK; last++) {
    status = d->read(d, last ? d->rows - 1 : 0, 1, sizeof(double), row, row + x_size);
    if (status == MN_OK) add(sum, row, x_size + y_size);
  }
  free(row);
  return status;
}
