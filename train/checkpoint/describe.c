/* Describes a model, and what trains it, in a checkpoint. */
#include "train/checkpoint/describe.h"

#include <cblas.h>
#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/order.h"
#include "kernels/device.h"
#include "train/checkpoint/layout.h"
#include "train/minnow.h"

static void __attribute__((format(printf, 3, 4)))
set_text(struct mn_text *text, const char *name, const char *format, ...) {
  va_list arguments;
  snprintf(text->name, sizeof text->name, "%s", name);
  va_start(arguments, format);
  vsnprintf(text->value, sizeof text->value, format, arguments);
  va_end(arguments);
}

void mn_describe_order(struct mn_text out[MN_DESCRIBE_ORDER], int64_t rows) {
  set_text(&out[0], "train_rows", "%ld", (long)rows);
  set_text(&out[1], "order_block", "%d", MN_ORDER_EXTENT);
  set_text(&out[2], "order_window", "%d", MN_ORDER_WINDOW);
}

int mn_describe_fingerprint(const struct mn_device *device, struct mn_text out[MN_CHECKPOINT_FINGERPRINT]) {
  unsigned major, minor, release;
  mn_hdf5_lock();
  if (H5get_libversion(&major, &minor, &release) < 0) major = minor = release = 0;
  mn_hdf5_unlock();
  int count = 0;
  set_text(&out[count++], "version", "%s", "minnow " MINNOW_VERSION);
  set_text(&out[count++], "device", "%s", device->name);
  set_text(&out[count++], "precision", "%s", mn_precision_name(device->precision));
  set_text(&out[count++], "blas", "%.200s", openblas_get_config());
  set_text(&out[count++], "hdf5", "%u.%u.%u", major, minor, release);
  if (device->type == MN_DEVICE_CPU) return count;
  const struct mn_versions *versions = &device->versions;
  set_text(&out[count++], "cuda", "%s", versions->cuda);
  set_text(&out[count++], "driver", "%s", versions->driver);
  set_text(&out[count++], "cublaslt", "%s", versions->cublaslt);
  return count;
}

static mn_status describe_input(struct mn_checkpoint *c, const struct mn_model *model) {
  const double *const from[MN_CHECKPOINT_INPUT] = {model->mean, model->scale};
  for (int k = 0; k < MN_CHECKPOINT_INPUT; k++) {
    const size_t bytes = (size_t)c->model.inputs * sizeof *from[k];
    mn_checkpoint_expect_input(c, k, &c->input[k]);
    if (!from[k]) continue;
    c->input[k].value = malloc(bytes);
    if (!c->input[k].value) return mn_fail(MN_NO_MEMORY, "no memory to describe the model");
    memcpy(c->input[k].value, from[k], bytes);
  }
  return MN_OK;
}

mn_status mn_describe_model(struct mn_checkpoint **out, const struct mn_model *model) {
  *out = NULL;
  struct mn_checkpoint *c = calloc(1, sizeof *c);
  if (!c) return mn_fail(MN_NO_MEMORY, "no memory to describe the model");
  *c = (struct mn_checkpoint){.model = model->config,
                              .tensor_count = model->count,
                              .tensors = calloc((size_t)model->count, sizeof *c->tensors)};
  if (!c->tensors) {
    mn_checkpoint_free(c);
    return mn_fail(MN_NO_MEMORY, "no memory to describe the model");
  }
  for (int i = 0; i < model->count; i++) {
    mn_checkpoint_expect(c, i, &c->tensors[i]);
    c->tensors[i].real = model->device->real;
  }
  c->fingerprint_count = mn_describe_fingerprint(model->device, c->fingerprint);
  if (describe_input(c, model) != MN_OK) {
    mn_checkpoint_free(c);
    return MN_NO_MEMORY;
  }
  *out = c;
  return MN_OK;
}

void *mn_describe_kept(const struct mn_optimizer *optimizer, const struct mn_tensor *t, int which) {
  const int adamw = optimizer->config.rule == MN_ADAMW;
  void *const kept[MN_CHECKPOINT_ARRAYS] = {NULL, adamw ? NULL : t->update.momentum,
                                            adamw ? t->update.momentum : NULL, t->update.squares};
  return kept[which];
}

mn_status mn_describe_moment(struct mn_checkpoint *c, const struct mn_progress *progress,
                             const struct mn_text *config, int count) {
  const int most = MN_CHECKPOINT_OPTIONS - MN_DESCRIBE_ORDER;
  if (count < 0 || count > most)
    return mn_fail(MN_USAGE, "%d texts for a checkpoint's /config: 0 to %d work", count, most);
  c->progress = *progress;
  for (int i = 0; i < count; i++) c->options[i] = config[i];
  mn_describe_order(c->options + count, progress->rows);
  c->option_count = count + MN_DESCRIBE_ORDER;
  return MN_OK;
}
