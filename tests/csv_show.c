/* Prints what a CSV file is to a model, for csv_drawn.py to compare with pandas: a line of sizes, the notes, and a line for each row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv/csv.h"
#include "data/dataset.h"

static void show(struct mn_csv *csv, struct mn_dataset *d) {
  char *table;
  double *x = calloc((size_t)(d->inputs + d->outputs + 1), sizeof *x), *y = x + d->inputs;
  if (mn_csv_table(&table, csv) == MN_OK) printf("%s\n", table), free(table);
  for (int i = 0; i < MN_CSV_NOTES; i++)
    if (mn_csv_note(csv, i)) printf("# %s\n", mn_csv_note(csv, i));
  for (int64_t n = 0; n < d->rows; n++) {
    int32_t label;
    if (d->read(d, n, 1, 8, x, d->outputs == 0 ? NULL : d->classes ? (void *)&label : y) != MN_OK)
      puts(mn_message());
    if (d->classes) y[0] = label;
    for (int64_t i = 0; i < d->inputs + (d->classes ? 1 : d->outputs); i++)
      printf("%s%.17g", i ? " " : "", x[i]);
    puts("");
  }
  free(x);
}

/* FILE [--target NAMES] [--drop NAMES] [--use NAMES] [--header -1|1] [--table JSON] [--predict 1] */
int main(int argc, char **argv) {
  struct mn_csv_config config = {0};
  struct mn_csv *csv;
  struct mn_dataset *d = NULL;
  int targets = 1;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--target") == 0) config.target = argv[i + 1];
    if (strcmp(argv[i], "--drop") == 0) config.drop = argv[i + 1];
    if (strcmp(argv[i], "--use") == 0) config.use = argv[i + 1];
    if (strcmp(argv[i], "--header") == 0) config.header = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--numbers") == 0) config.numbers = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--table") == 0) config.table = argv[i + 1];
    if (strcmp(argv[i], "--predict") == 0) targets = 0;
  }
  mn_status status = mn_csv_open(&csv, argv[1], &config);
  if (status == MN_OK) status = mn_csv_rows(&d, csv, targets);
  if (status == MN_OK) status = mn_csv_fill(csv, d);
  if (status == MN_OK) show(csv, d);
  if (status != MN_OK) fprintf(stderr, "%s\n", mn_message());
  mn_dataset_close(d);
  mn_csv_close(csv);
  return (int)status;
}
