/* What a model expects of rows, and the units of its outputs. */
#include "train/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/placement.h"

mn_status mn_model_check_data(const struct mn_model_config *c, const char *model, struct mn_dataset *d,
                              const char *data, int targets) {
  int classes = c->loss == MN_LOSS_CROSS_ENTROPY;
  int64_t outputs = mn_model_outputs(c);
  if (c->inputs != d->inputs)
    return mn_fail(MN_BAD_DATA, "%s takes %ld inputs, but %s has %ld", model, (long)c->inputs, data,
                   (long)d->inputs);
  if (targets && classes && d->classes && outputs < d->outputs) { /* some label is beyond them */
    int32_t *labels;
    MN_TRY(mn_dataset_labels(&labels, d));
    const mn_status status = mn_labels_check(labels, 0, d->rows, outputs, data, model);
    free(labels);
    MN_TRY(status);
  }
  if (targets && (classes != d->classes || (classes ? outputs < d->outputs : outputs != d->outputs)))
    return mn_fail(MN_BAD_DATA, "%s gives %ld %s, but %s has %ld %s%s", model, (long)outputs,
                   classes ? "classes" : "numbers", data, (long)d->outputs,
                   d->classes ? "classes" : "numbers",
                   classes == d->classes ? "" : "; cross-entropy is the loss of classes, mse of numbers");
  return MN_OK;
}

static mn_status standardize(struct mn_model *model, int side, const double *mean, const double *scale) {
  const char *what = side == MN_X ? "input" : "target";
  const int64_t count = side == MN_X ? model->config.inputs : mn_model_outputs(&model->config);
  for (int64_t i = 0; mean && i < count; i++)
    if (!isfinite(mean[i]) || !isfinite(scale[i]) || !(scale[i] > 0) || !isfinite(1 / scale[i]))
      return mn_fail(MN_USAGE,
                     "%s %ld has the mean %g and the scale %g: finite ones, a scale of 1e-308 or more, work",
                     what, (long)i, mean[i], scale[i]);
  return mn_standard_set(&model->standard[side], count, mean, scale);
}

mn_status mn_model_standardize(struct mn_model *model, const double *mean, const double *scale) {
  MN_GIVEN(model);
  if (mean) MN_GIVEN(scale);
  return standardize(model, MN_X, mean, scale);
}

mn_status mn_model_standardize_targets(struct mn_model *model, const double *mean, const double *scale) {
  MN_GIVEN(model);
  if (mean) MN_GIVEN(scale);
  if (model->config.loss != MN_LOSS_MSE)
    return mn_fail(MN_USAGE, "the targets of a model of classes cannot be standardised");
  return standardize(model, MN_Y, mean, scale);
}

double mn_standard_undo(const struct mn_standard *s, size_t real, size_t as, void *y, const void *from,
                        int64_t n, int64_t cols) {
  double poison = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0, at = i * cols; c < cols; c++, at++) {
      const double value = mn_real_at(from, real, at),
                   learnt = s->mean ? value * s->scale[c] + s->mean[c] : value,
                   own = s->log ? exp(learnt) : learnt;
      if (as == sizeof own)
        poison += 0 * (((double *)y)[at] = own);
      else
        poison += 0 * (double)(((float *)y)[at] = (float)own);
    }
  return poison;
}

double mn_model_loss_unit(const struct mn_model *model) {
  const double *scale = model->standard[MN_Y].scale;
  for (int64_t k = 1; scale && k < mn_model_outputs(&model->config); k++)
    if (scale[k] != scale[0]) return 0;
  return model->standard[MN_Y].log ? 0 : !scale ? 1 : isnormal(scale[0] * scale[0]) ? scale[0] * scale[0] : 0;
}

mn_status mn_model_classes(struct mn_model *model, const char *const *names, int64_t count) {
  MN_GIVEN(model, names);
  struct mn_class_names copy = {.count = count, .names = NULL};
  if (count < 1 || count > MN_CLASSES_MOST || model->config.loss != MN_LOSS_CROSS_ENTROPY)
    return mn_fail(MN_USAGE, "%lld names: 1 to %d of the classes of a model with cross-entropy work",
                   (long long)count, MN_CLASSES_MOST);
  if (!(copy.names = calloc((size_t)count, sizeof *copy.names)))
    return mn_fail(MN_NO_MEMORY, "no memory for the names of classes");
  mn_status status = MN_OK;
  for (int64_t k = 0; k < count && status == MN_OK; k++) {
    const char *name = names[k] ? names[k] : "";
    if (!*name || strlen(name) >= MN_CLASS_NAME || (k > 0 && strcmp(names[k - 1], name) >= 0))
      status = mn_fail(
          MN_USAGE, "class %lld is called '%s': 1 to %d bytes, in order of their bytes and none twice, work",
          (long long)k, name, MN_CLASS_NAME - 1);
    else
      strcpy(copy.names[k], name);
  }
  if (status == MN_OK) status = mn_model_name_classes(model, &copy);
  free(copy.names);
  return status;
}

mn_status mn_model_name_classes(struct mn_model *model, const struct mn_class_names *names) {
  if (names->count != mn_model_outputs(&model->config))
    return mn_fail(MN_USAGE, "%lld names for %ld classes: as many are needed", (long long)names->count,
                   (long)mn_model_outputs(&model->config));
  return mn_class_names_copy(&model->class_names, names);
}
