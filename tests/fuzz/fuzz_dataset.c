/* A file that says it is a dataset: each part is opened and read, then verify and info. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/dataset_file.h"
#include "tests/fuzz/input.h"
#include "train/command/commands.h"

enum { MOST = 1 << 14 }; /* elements that are read; a small file may rightly declare many */

static int fits(int64_t rows, int64_t cols) {
  return cols > 0 && rows <= MOST / cols;
}

/* The first rows, as many as fit, and the last. */
static void read_rows(struct mn_dataset *d) {
  const int64_t wide = d->inputs > d->outputs ? d->inputs : d->outputs;
  const int64_t rows = fits(d->rows, wide) ? d->rows : fits(1, wide) ? MOST / wide : 0;
  if (rows == 0) return;
  double *x = malloc((size_t)(rows * d->inputs) * sizeof *x), *y = malloc((size_t)(rows * wide) * sizeof *y);
  MN_REQUIRE(x && y);
  for (size_t real = 4; real <= 8; real += 4) {
    mn_status status = d->read(d, 0, rows, real, x, d->outputs ? y : NULL);
    fuzz_check(status, fuzz_bad_data);
    for (int64_t i = 0; status == MN_OK && i < rows * d->inputs; i++)
      MN_REQUIRE(isfinite(real == 8 ? x[i] : (double)((const float *)(const void *)x)[i]));
    for (int64_t i = 0; status == MN_OK && d->classes && i < rows; i++) {
      const int32_t label = ((const int32_t *)(const void *)y)[i];
      MN_REQUIRE(label >= 0 && label < d->outputs);
    }
    fuzz_check(d->read(d, d->rows - 1, 1, real, x, d->outputs ? y : NULL), fuzz_bad_data);
  }
  free(x);
  free(y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  MN_REQUIRE(nowhere);
  for (enum mn_part part = MN_PART_TRAIN; part <= MN_PART_ALL; part++) {
    struct mn_dataset *d = NULL;
    mn_status status = mn_dataset_open(&d, path, part, NULL, NULL, part == MN_PART_TRAIN);
    fuzz_check(status, fuzz_bad_data);
    MN_REQUIRE(status == MN_OK || !d);
    if (d) read_rows(d);
    mn_dataset_close(d);
  }
  fuzz_check(mn_verify(nowhere, path, 1), fuzz_bad_data);
  fuzz_check(mn_info(nowhere, path, 1), fuzz_bad_data);
  fuzz_check_closed();
  return 0;
}
