/* A file that says it is a CSV: its rows, then again by the table that was made of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/csv/csv.h"
#include "data/dataset.h"
#include "tests/fuzz/input.h"

static void read_rows(struct mn_csv *csv, int targets) {
  struct mn_dataset *d;
  mn_status status = mn_csv_rows(&d, csv, targets);
  fuzz_check(status, fuzz_bad_data);
  if (status != MN_OK) return;
  fuzz_check(mn_csv_fill(csv, d), fuzz_bad_data);
  double *x = malloc((size_t)d->inputs * sizeof *x);
  double *y = malloc((size_t)(d->outputs + 1) * sizeof *y);
  MN_REQUIRE(x && y && d->rows > 0 && d->inputs > 0);
  for (int64_t row = 0; row < d->rows && row < 64; row++) {
    status = d->read(d, row, 1, sizeof *x, x, d->outputs ? y : NULL);
    fuzz_check(status, fuzz_bad_data);
    for (int64_t i = 0; status == MN_OK && i < d->inputs; i++) MN_REQUIRE(isfinite(x[i]));
    if (status == MN_OK && d->classes)
      MN_REQUIRE(*(int32_t *)(void *)y >= 0 && *(int32_t *)(void *)y < d->outputs);
    fuzz_check(d->read(d, row, 1, sizeof(float), x, NULL), fuzz_bad_data);
  }
  free(x);
  free(y);
  mn_dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  struct mn_csv_config config = {.numbers = size ? data[size - 1] % 3 - 1 : 0};
  struct mn_csv *csv;
  char *table;
  mn_status status = mn_csv_open(&csv, path, &config);
  fuzz_check(status, fuzz_bad_data);
  MN_REQUIRE(status == MN_OK || !csv);
  if (status != MN_OK) return 0;
  read_rows(csv, 1);
  status = mn_csv_table(&table, csv); /* refused if no row has a target, and so nothing was filled */
  MN_REQUIRE(status == MN_OK || status == MN_USAGE);
  mn_csv_close(csv);
  if (status != MN_OK) return 0;
  config.table = table;
  status = mn_csv_open(&csv, path, &config);
  if (status != MN_OK) fprintf(stderr, "%s\n%s\n", mn_message(), table);
  MN_REQUIRE(status == MN_OK);
  read_rows(csv, 0);
  read_rows(csv, 1);
  mn_csv_close(csv);
  free(table);
  return 0;
}
