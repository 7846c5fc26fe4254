/* Reading and writing parameters by way of doubles, which hold the reals of every precision. */
#include "train/model.h"

#include <stdlib.h>
#include <string.h>

#include "data/placement.h"

static mn_status check_alone(const struct mn_model *model) {
  if (!model->device->ranks) return MN_OK;
  return mn_fail(MN_USAGE,
                 "a model that is divided among ranks: parameters are read from a checkpoint of it");
}

/* Finds the parameter, and takes the memory for its values as doubles. */
static mn_status find(struct mn_tensor **out, double **values, const struct mn_model *model, const char *name,
                      int64_t count) {
  struct mn_tensor *t = NULL;
  MN_TRY(check_alone(model));
  for (int i = 0; i < model->count && !t; i++)
    if (strcmp(model->parameters[i]->name, name) == 0) t = model->parameters[i];
  if (!t)
    return mn_fail(MN_USAGE, "the model has no parameter %s, but such as %s", name,
                   model->parameters[0]->name);
  if (count != mn_tensor_count(t))
    return mn_fail(MN_USAGE, "%ld values for %s, which has %ld", (long)count, name, (long)mn_tensor_count(t));
  *out = t;
  *values = malloc((size_t)count * sizeof **values);
  return *values ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for the values of %s", name);
}

mn_status mn_model_get(const struct mn_model *model, const char *name, float *values, int64_t count) {
  MN_GIVEN(model, name, values);
  struct mn_tensor *t;
  double *wide;
  MN_TRY(find(&t, &wide, model, name, count));
  mn_status status = mn_tensor_read(model->device, t, wide);
  for (int64_t i = 0; i < count && status == MN_OK; i++) values[i] = (float)wide[i];
  free(wide);
  return status;
}

mn_status mn_model_set(struct mn_model *model, const char *name, const float *values, int64_t count) {
  MN_GIVEN(model, name, values);
  struct mn_tensor *t;
  double *wide;
  MN_TRY(find(&t, &wide, model, name, count));
  for (int64_t i = 0; i < count; i++) wide[i] = (double)values[i];
  mn_status status =
      mn_dataset_check_finite("the values", name, 0, t->value.cols, count, values, sizeof *values);
  if (status == MN_OK) mn_count_change(&model->changes);
  if (status == MN_OK) status = mn_tensor_write(model->device, t, wide);
  free(wide);
  return status;
}

mn_status mn_model_blend(struct mn_model *to, const struct mn_model *from, double share) {
  MN_GIVEN(to, from);
  int64_t most = 0;
  MN_TRY(check_alone(to));
  if (!(share >= 0 && share <= 1)) return mn_fail(MN_USAGE, "a share of %g: 0 to 1 work", share);
  for (int i = 0; i < to->count; i++) {
    const struct mn_tensor *a = to->parameters[i], *b = i < from->count ? from->parameters[i] : NULL;
    if (!b || from->count != to->count || a->value.rows != b->value.rows || a->value.cols != b->value.cols)
      return mn_fail(MN_USAGE, "two models of other sizes cannot be blended");
    if (mn_tensor_count(a) > most) most = mn_tensor_count(a);
  }
  double *values = malloc(2 * (size_t)most * sizeof *values), *others = values + most;
  mn_status status = values ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory to blend two models");
  mn_count_change(&to->changes);
  for (int i = 0; i < to->count && status == MN_OK; i++) {
    if (share < 1) status = mn_tensor_read(to->device, to->parameters[i], values);
    if (status == MN_OK) status = mn_tensor_read(from->device, from->parameters[i], others);
    for (int64_t k = 0; k < mn_tensor_count(to->parameters[i]) && status == MN_OK; k++)
      values[k] = share < 1 ? values[k] + share * (others[k] - values[k]) : others[k];
    if (status == MN_OK) status = mn_tensor_write(to->device, to->parameters[i], values);
  }
  free(values);
  return status;
}

static char *text_of(const char *text, mn_status *status) {
  char *copy = text ? strdup(text) : NULL;
  if (text && !copy) *status = mn_fail(MN_NO_MEMORY, "no memory to copy a model");
  return copy;
}

mn_status mn_model_copy(struct mn_model **out, const struct mn_model *from) {
  MN_OPENS(out, from);
  struct mn_model *copy;
  MN_TRY(check_alone(from));
  MN_TRY(mn_model_open(&copy, from->device, &from->config));
  mn_status status = mn_model_blend(copy, from, 1);
  copy->standard[MN_Y].log = from->standard[MN_Y].log;
  for (int side = 0; side < MN_SIDES && status == MN_OK; side++)
    status = mn_standard_set(&copy->standard[side],
                             side == MN_X ? from->config.inputs : mn_model_outputs(&from->config),
                             from->standard[side].mean, from->standard[side].scale);
  if (status == MN_OK && from->class_names.count)
    status = mn_class_names_copy(&copy->class_names, &from->class_names);
  copy->table = text_of(from->table, &status);
  copy->trained = text_of(from->trained, &status);
  if (status == MN_OK)
    *out = copy;
  else
    mn_model_close(copy);
  return status;
}
