/* Of train/minnow.h: what belongs to no other file. Including it behind the internal headers has the compiler
 * compare each function's declaration there with the one here. */
#define MINNOW_TYPES
#include <stdlib.h>

#include "data/csv/csv.h"
#include "data/dataset_file.h"
#include "data/held_out.h"
#include "train/checkpoint/checkpoint.h"
#include "train/defaults.h"
#include "train/evaluate.h"
#include "train/parameters.h"
#include "train/predictor.h"
#include "train/runs/runs.h"
#include "train/steps.h"
#include "train/trainer.h"

#include "train/minnow.h"

mn_status mn_model_columns(struct mn_model *model, const struct mn_csv *csv) {
  MN_GIVEN(model, csv);
  char *table;
  MN_TRY(mn_csv_table(&table, csv));
  free(model->table);
  model->table = table;
  return MN_OK;
}
