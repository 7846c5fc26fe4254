/* From a checkpoint back to the device. */
#include "train/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "train/checkpoint/layout.h"
#include "train/fit.h"

/* Copies one saved array, or this rank's shard of it, to the device, in the device's reals: to `kept`, or,
 * NULL, to the parameter's value. */
static mn_status upload(struct mn_device *device, struct mn_tensor *parameter, void *kept,
                        const struct mn_checkpoint_tensor *t, const void *saved) {
  const int64_t count = mn_tensor_count(parameter),
                first = parameter->first * (count / mn_tensor_outputs(parameter));
  double *wide = malloc((size_t)count * sizeof *wide);
  if (!wide) return mn_fail(MN_NO_MEMORY, "no memory to load %s", t->name);
  for (int64_t i = 0; i < count; i++) wide[i] = mn_real_at(saved, t->real, first + i);
  mn_status status =
      kept ? mn_device_write(device, kept, wide, count) : mn_tensor_write(device, parameter, wide);
  free(wide);
  return status;
}

/* Planes that are scaled are written again, under the factors that the training had, and the next dz too, so
 * that it goes on bit for bit. */
static mn_status restore_planes(struct mn_device *device, struct mn_tensor *t,
                                const struct mn_checkpoint_tensor *saved) {
  const struct mn_scale scales[2] = {{(float)saved->factor, 0}, {(float)saved->gradient_factor, 0}};
  if (!t->scales) return MN_OK;
  MN_TRY(mn_copy(device, t->scales, scales, sizeof scales));
  MN_TRY(mn_round(device, &t->value, saved->factor == 0 ? MN_MEASURE_TOGETHER : 0));
  return mn_synchronize(device); /* the copy is from here */
}

/* Restores the optimizer's state; refuses another optimizer's. SGD ignores a missing momentum. */
static mn_status restore_kept(struct mn_device *device, struct mn_tensor *t,
                              const struct mn_optimizer *optimizer,
                              const struct mn_checkpoint_tensor *saved) {
  for (int k = MN_CHECKPOINT_VALUE + 1; k < MN_CHECKPOINT_ARRAYS; k++) {
    void *kept = mn_describe_kept(optimizer, t, k);
    const void *from = saved->arrays[k];
    if (!kept != !from && (kept || k != MN_CHECKPOINT_MOMENTUM))
      return mn_fail(MN_BAD_DATA, "the checkpoint has %s %s for %s; resume with its own optimizer",
                     from ? "an" : "no", basename(mn_checkpoint_groups[k]), t->name);
    if (kept) MN_TRY(upload(device, t, kept, saved, from));
  }
  return MN_OK;
}

/* `saved` has the number of `t`, in PyTorch's order. */
static mn_status restore_tensor(const struct mn_checkpoint_tensor *saved, struct mn_device *device,
                                struct mn_tensor *t, const struct mn_optimizer *optimizer) {
  const int64_t rows = t->rank == 2 ? t->whole : 1, cols = t->rank == 2 ? t->value.cols : t->whole;
  if (strcmp(saved->name, t->name) != 0 || saved->rows != rows || saved->cols != cols)
    return mn_fail(MN_BAD_DATA, "the checkpoint has no %s of [%ld, %ld], which this model has", t->name,
                   (long)rows, (long)cols);
  MN_TRY(upload(device, t, NULL, saved, saved->value));
  MN_TRY(restore_planes(device, t, saved));
  return optimizer ? restore_kept(device, t, optimizer, saved) : MN_OK;
}

static mn_status restore_progress(const struct mn_checkpoint *from, struct mn_progress *progress) {
  if (from->alone)
    return mn_fail(MN_BAD_DATA,
                   "the file holds a model without its training: begin a new run from its weights");
  struct mn_text here[MN_DESCRIBE_ORDER];
  const char *rows = mn_text_find(from->options, from->option_count, "train_rows");
  *progress = from->progress;
  progress->rows = rows ? strtoll(rows, NULL, 10) : 0;
  mn_describe_order(here, progress->rows);
  for (int i = 0; i < MN_DESCRIBE_ORDER; i++) {
    const char *then = mn_text_find(from->options, from->option_count, here[i].name);
    const int old = !then && strcmp(here[i].name, MN_ORDER_NAME) == 0;
    if (old && progress->position > 0)
      return mn_fail(MN_BAD_DATA,
                     "the checkpoint is %ld rows into an epoch that minnow 0.3.0 shuffled, and goes on with",
                     (long)progress->position);
    if (!old && (!then || strcmp(then, here[i].value) != 0))
      return mn_fail(MN_BAD_DATA, "the checkpoint's %s is %s, but here it is %s; resume where it was written",
                     here[i].name, then ? then : "missing", here[i].value);
  }
  return MN_OK;
}

static mn_status restore_standards(const struct mn_checkpoint *from, struct mn_model *model) {
  model->standard[MN_Y].log = from->log != 0;
  for (int side = 0; side < MN_SIDES; side++) {
    const struct mn_checkpoint_tensor *s = from->standard[side];
    if (!s[0].value || (side == MN_Y && model->config.loss != MN_LOSS_MSE)) continue;
    if ((side == MN_X ? mn_model_standardize : mn_model_standardize_targets)(model, s[0].value, s[1].value) !=
        MN_OK)
      return mn_fail(MN_BAD_DATA, "%s of the checkpoint cannot be used: %s", mn_checkpoint_standards[side],
                     mn_message());
  }
  return MN_OK;
}

mn_status mn_snapshot_restore(const struct mn_checkpoint *from, struct mn_model *model,
                              struct mn_optimizer *optimizer, struct mn_progress *progress) {
  MN_GIVEN(from, model);
  if (from->tensor_count != model->count)
    return mn_fail(MN_BAD_DATA, "the checkpoint has %d tensors, and the model %d; one of its own sizes works",
                   from->tensor_count, model->count);
  mn_count_change(&model->changes);
  for (int i = 0; i < model->count; i++)
    MN_TRY(restore_tensor(&from->tensors[i], model->device, model->parameters[i], optimizer));
  MN_TRY(restore_standards(from, model));
  if (from->class_names.count && model->config.loss == MN_LOSS_CROSS_ENTROPY)
    MN_TRY(mn_model_name_classes(model, &from->class_names));
  if (from->table && !model->table && !(model->table = strdup(from->table)))
    return mn_fail(MN_NO_MEMORY, "no memory for the table of columns");
  return progress ? restore_progress(from, progress) : MN_OK;
}
