/* The defaults of `minnow train`, by rows and widths. */
#include "train/defaults.h"

#include <math.h>
#include <string.h>

#include "train/fit.h"

int64_t mn_default_groups(const int64_t *hidden, int64_t depth) {
  enum { MOST = 8, LEAST_CHANNELS = 4 };
  for (int64_t groups = MOST; groups > 1; groups--) {
    int fits = 1;
    for (int i = 0; i < depth; i++)
      fits = fits && hidden[i] % groups == 0 && hidden[i] / groups >= LEAST_CHANNELS;
    if (fits) return groups;
  }
  return 1;
}

int64_t mn_default_batch(int64_t rows) {
  return rows >= MN_SMALL_ROWS ? MN_BATCH : rows < MN_BATCH_SMALL ? rows : MN_BATCH_SMALL;
}

int64_t mn_default_steps(int64_t epochs, int64_t rows, int64_t each) {
  int64_t samples;
  if (__builtin_mul_overflow(epochs ? epochs : MN_EPOCHS, rows, &samples) || samples > INT64_MAX - each)
    return -1;
  const int64_t steps = (samples + each - 1) / each, least = epochs ? 1 : MN_LEAST_STEPS;
  return steps < least ? least : steps;
}

double mn_default_decay(enum mn_rule_kind rule, int64_t steps) {
  const double most = steps < MN_LEAST_STEPS ? MN_LEAST_STEPS : (double)steps;
  return rule == MN_ADAMW ? MN_DECAY_STEPS / most : 0;
}

int64_t mn_default_measured(int64_t width, int64_t rows) {
  const int64_t sample = (int64_t)1 << 21, whole = (int64_t)1 << 28;
  return rows <= whole / width ? rows : sample / width;
}

void mn_default_outputs(struct mn_model_config *model, const struct mn_dataset *rows) {
  model->loss = rows->classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
  model->head = rows->classes || rows->outputs != model->hidden[model->depth - 1] ? rows->outputs : 0;
}

mn_status mn_defaults(struct mn_defaults *out, const struct mn_dataset *rows, const int64_t *hidden,
                      int depth, int64_t epochs, int64_t batch) {
  MN_GIVEN(out, rows, hidden);
  if (depth < 1 || depth > MN_MODEL_DEPTH || epochs < 0 || rows->outputs < 1 || batch < 0 ||
      batch > rows->rows)
    return mn_fail(
        MN_USAGE,
        "defaults of %d blocks, %ld epochs, %ld targets, batches of %ld: 1 to %d, 0 or more, at least "
        "1, and 0 to the %ld rows work",
        depth, (long)epochs, (long)rows->outputs, (long)batch, MN_MODEL_DEPTH, (long)rows->rows);
  if (batch == 0) batch = mn_default_batch(rows->rows);
  const int64_t steps = mn_default_steps(epochs, rows->rows, batch);
  if (steps < 0) return mn_fail(MN_USAGE, "%ld epochs are more rows than can be counted", (long)epochs);
  *out = (struct mn_defaults){.model = mn_model_defaults(),
                              .optimizer = mn_optimizer_defaults(MN_ADAMW),
                              .trainer = mn_trainer_defaults(MN_ADAMW, steps),
                              .steps = steps};
  out->model.inputs = rows->inputs;
  out->model.depth = depth;
  memcpy(out->model.hidden, hidden, (size_t)depth * sizeof *hidden);
  out->model.groups = mn_default_groups(hidden, depth);
  mn_default_outputs(&out->model, rows);
  out->optimizer.rows = out->trainer.batch = batch;
  out->optimizer.rule.weight_decay = mn_default_decay(MN_ADAMW, steps);
  return MN_OK;
}

mn_status mn_model_standardize_side(struct mn_model *model, struct mn_dataset *rows, int side, int64_t most,
                                    int one, struct mn_columns *out, const int *stop) {
  MN_TRY(mn_columns_measure(out, rows, side, most, stop));
  if (one > 0 || (one < 0 && mn_columns_alike(out, side == MN_X ? rows->x_type : rows->y_type)))
    mn_columns_pool(out);
  for (int64_t i = 0; side == MN_X && i < out->cols; i++) out->scale[i] *= MN_X_DEVIATIONS;
  /* A constant target is all mean: a small scale keeps the noise of its output small. */
  for (int64_t i = 0; side == MN_Y && !out->alike && i < out->cols; i++)
    if (out->deviation[i] == 0) out->scale[i] = fmax(fabs(out->mean[i]), 1e-280) * 1e-6;
  return (side == MN_X ? mn_model_standardize : mn_model_standardize_targets)(model, out->mean, out->scale);
}

mn_status mn_model_standardize_by(struct mn_model *model, struct mn_dataset *rows) {
  MN_GIVEN(model, rows);
  mn_status status = rows->class_names ? mn_model_name_classes(model, rows->class_names) : MN_OK;
  for (int side = 0; side < MN_SIDES && status == MN_OK; side++) {
    struct mn_columns columns = {0};
    if (side == MN_X || !rows->classes)
      status = mn_model_standardize_side(
          model, rows, side, mn_default_measured(side == MN_X ? rows->inputs : rows->outputs, rows->rows), -1,
          &columns, NULL);
    mn_columns_free(&columns);
  }
  return status;
}
