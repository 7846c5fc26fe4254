/* Keeps the columns of a CSV with a model. */
#include <stdlib.h>

#include "data/csv/csv.h"
#include "train/model.h"

mn_status mn_model_columns(struct mn_model *model, const struct mn_csv *csv) {
  MN_GIVEN(model, csv);
  char *table;
  MN_TRY(mn_csv_table(&table, csv));
  free(model->table);
  model->table = table;
  return MN_OK;
}
