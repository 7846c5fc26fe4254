/* Describes a model, its device and the order of its samples in a checkpoint, without the arrays. */
#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/hdf5/hdf5.h"
#include "kernels/device.h"
#include "kernels/lanes.h"
#include "kernels/order.h"
#include "train/checkpoint/layout.h"

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
  set_text(&out[3], MN_ORDER_NAME, "%s", "swap-or-not");
}

int mn_describe_fingerprint(const struct mn_device *device, struct mn_text out[MN_CHECKPOINT_FINGERPRINT]) {
  unsigned major, minor, release;
  mn_hdf5_lock();
  if (H5get_libversion(&major, &minor, &release) < 0) major = minor = release = 0;
  mn_hdf5_unlock();
  int count = 0;
  set_text(&out[count++], "version", "minnow %s", mn_version());
  set_text(&out[count++], "device", "%s", device->type == MN_DEVICE_CPU ? "CPU" : device->name);
  set_text(&out[count++], "precision", "%s", mn_precision_name(device->precision));
  set_text(&out[count++], "hdf5", "%u.%u.%u", major, minor, release);
  if (device->ranks)
    set_text(&out[count++], "ranks", "%dx%d", device->ranks->shards.size, device->ranks->replicas.size);
  if (device->type == MN_DEVICE_CPU) {
    set_text(&out[count++], "products", mn_fused() ? "fused" : "rounded");
    return count;
  }
  set_text(&out[count++], "cuda", "%s", device->versions.cuda);
  set_text(&out[count++], "driver", "%s", device->versions.driver);
  set_text(&out[count++], "cublaslt", "%s", device->versions.cublaslt);
  return count;
}

static mn_status copy_array(struct mn_checkpoint_tensor *to, const double *from) {
  const size_t bytes = (size_t)to->cols * sizeof *from;
  if (!(to->value = malloc(bytes))) return mn_fail(MN_NO_MEMORY, "no memory to describe the model");
  memcpy(to->value, from, bytes);
  return MN_OK;
}

mn_status mn_describe_model(struct mn_checkpoint **out, const struct mn_model *model) {
  struct mn_checkpoint *c = *out = calloc(1, sizeof *c);
  if (!c) return mn_fail(MN_NO_MEMORY, "no memory to describe the model");
  c->model = model->config, c->log = model->standard[MN_Y].log;
  c->fingerprint_count = mn_describe_fingerprint(model->device, c->fingerprint);
  mn_status status = mn_checkpoint_lay_out(c);
  for (int i = 0; i < c->tensor_count; i++) c->tensors[i].real = model->device->real;
  for (int side = 0; side < MN_SIDES && status == MN_OK; side++) {
    const struct mn_standard *s = &model->standard[side];
    if (s->mean) status = copy_array(&c->standard[side][0], s->mean);
    if (s->mean && status == MN_OK) status = copy_array(&c->standard[side][1], s->scale);
  }
  if (status == MN_OK) status = mn_class_names_copy(&c->class_names, &model->class_names);
  if (status == MN_OK && ((model->table && !(c->table = strdup(model->table))) ||
                          (model->trained && !(c->trained = strdup(model->trained)))))
    status = mn_fail(MN_NO_MEMORY, "no memory to describe the model");
  if (status != MN_OK) mn_checkpoint_free(c), *out = NULL;
  return status;
}

void *mn_describe_kept(const struct mn_optimizer *optimizer, const struct mn_tensor *t, int which) {
  const int adamw = optimizer->config.rule.kind == MN_ADAMW;
  void *const kept[MN_CHECKPOINT_ARRAYS] = {NULL, adamw ? NULL : t->update.m, adamw ? t->update.m : NULL,
                                            t->update.v};
  return kept[which];
}
