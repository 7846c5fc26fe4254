/* From the device into a checkpoint, and back. */
#include "train/checkpoint/snapshot.h"

#include <cblas.h>
#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/order.h"
#include "kernels/device.h"

const char *mn_text_find(const struct mn_text *texts, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(texts[i].name, name) == 0) return texts[i].value;
  return NULL;
}

static void __attribute__((format(printf, 3, 4)))
set_text(struct mn_text *text, const char *name, const char *format, ...) {
  va_list arguments;
  snprintf(text->name, sizeof text->name, "%s", name);
  va_start(arguments, format);
  vsnprintf(text->value, sizeof text->value, format, arguments);
  va_end(arguments);
}

/* What the order of samples depends on, under the names that /config has had from the first version on. */
enum { ORDER_TEXTS = 3 };
static void order_texts(struct mn_text out[ORDER_TEXTS], int64_t rows) {
  set_text(&out[0], "train_rows", "%ld", (long)rows);
  set_text(&out[1], "order_block", "%d", MN_ORDER_EXTENT);
  set_text(&out[2], "order_window", "%d", MN_ORDER_WINDOW);
}

static int fingerprint(const struct mn_context *context, struct mn_text *out) {
  unsigned major, minor, release;
  mn_hdf5_lock();
  if (H5get_libversion(&major, &minor, &release) < 0) major = minor = release = 0;
  mn_hdf5_unlock();
  int count = 0;
  set_text(&out[count++], "version", "%s", "minnow " MN_VERSION);
  set_text(&out[count++], "device", "%s", context->name);
  set_text(&out[count++], "precision", "%s", mn_precision_name(context->precision));
  set_text(&out[count++], "blas", "%.200s", openblas_get_config());
  set_text(&out[count++], "hdf5", "%u.%u.%u", major, minor, release);
  if (context->device->type == MN_DEVICE_CPU) return count;
  const struct mn_versions *versions = &context->device->versions;
  set_text(&out[count++], "cuda", "%s", versions->cuda);
  set_text(&out[count++], "driver", "%s", versions->driver);
  set_text(&out[count++], "cublaslt", "%s", versions->cublaslt);
  return count;
}

void mn_snapshot_compare(const struct mn_checkpoint *from, const struct mn_context *here,
                         void (*tell)(void *to, const char *name, const char *then, const char *now),
                         void *to) {
  struct mn_text now[MN_CHECKPOINT_FINGERPRINT];
  int count = fingerprint(here, now);
  for (int i = 0; i < count; i++) {
    const char *then = mn_text_find(from->fingerprint, from->fingerprint_count, now[i].name);
    if (!then || strcmp(then, now[i].value) != 0)
      tell(to, now[i].name, then ? then : "unknown", now[i].value);
  }
}

mn_status mn_snapshot_config(const struct mn_checkpoint *from, struct mn_model_config *c) {
  *c = (struct mn_model_config){.inputs = from->inputs,
                                .depth = (int)from->depth,
                                .groups = from->groups,
                                .head = from->head,
                                .eps = from->eps,
                                .slope = from->slope,
                                .plan = MN_PLAN_BLOCK};
  for (int i = 0; i < c->depth && i < MN_MODEL_DEPTH; i++) c->hidden[i] = from->hidden[i];
  if (mn_loss_parse(from->loss, &c->loss) == MN_OK) return MN_OK;
  return mn_fail(MN_BAD_DATA, "the checkpoint cannot be used: %s", mn_message());
}

/* Copies one saved array to `to` on the device, in the device's reals. */
static mn_status upload(struct mn_context *context, void *to, const void *saved,
                        const struct mn_checkpoint_tensor *t) {
  int64_t count = t->rows * t->cols;
  double *wide = malloc((size_t)count * sizeof *wide);
  if (!wide) return mn_fail(MN_NO_MEMORY, "no memory to load %s", t->name);
  for (int64_t i = 0; i < count; i++)
    wide[i] = t->real == sizeof(double) ? ((const double *)saved)[i] : (double)((const float *)saved)[i];
  mn_status status = mn_context_write(context, to, wide, count);
  free(wide);
  return status;
}

static mn_status find_tensor(const struct mn_checkpoint *from, const struct mn_tensor *t,
                             const struct mn_checkpoint_tensor **out) {
  for (int i = 0; i < from->tensor_count; i++) {
    const struct mn_checkpoint_tensor *saved = &from->tensors[i];
    if (strcmp(saved->name, t->name) != 0) continue;
    if (saved->rows != t->value.rows || saved->cols != t->value.cols)
      return mn_fail(MN_BAD_DATA, "%s of the checkpoint is [%ld, %ld], but this model's is [%ld, %ld]",
                     t->name, (long)saved->rows, (long)saved->cols, (long)t->value.rows, (long)t->value.cols);
    *out = saved;
    return MN_OK;
  }
  return mn_fail(MN_BAD_DATA, "the checkpoint has no %s, which this model has", t->name);
}

static mn_status restore_tensor(const struct mn_checkpoint *from, struct mn_context *context,
                                struct mn_tensor *t, int momentum) {
  const struct mn_checkpoint_tensor *saved = NULL;
  MN_TRY(find_tensor(from, t, &saved));
  MN_TRY(upload(context, t->value.real, saved->value, saved));
  t->value.stale = 1;
  MN_TRY(mn_operand_prepare(context, &t->value));
  if (!momentum || !t->momentum) return MN_OK;
  if (!saved->momentum) return mn_fail(MN_BAD_DATA, "the checkpoint has no momentum for %s", t->name);
  return upload(context, t->momentum, saved->momentum, saved);
}

static mn_status restore_progress(const struct mn_checkpoint *from, struct mn_progress *progress) {
  struct mn_text here[ORDER_TEXTS];
  const char *rows = mn_text_find(from->options, from->option_count, "train_rows");
  *progress = from->progress;
  progress->rows = rows ? strtoll(rows, NULL, 10) : 0;
  order_texts(here, progress->rows);
  for (int i = 0; i < ORDER_TEXTS; i++) {
    const char *then = mn_text_find(from->options, from->option_count, here[i].name);
    if (!then || strcmp(then, here[i].value) != 0)
      return mn_fail(MN_BAD_DATA, "the checkpoint's %s is %s, but here it is %s; resume where it was written",
                     here[i].name, then ? then : "missing", here[i].value);
  }
  return MN_OK;
}

mn_status mn_snapshot_restore(const struct mn_checkpoint *from, struct mn_model *model,
                              struct mn_optimizer *optimizer, struct mn_progress *progress) {
  for (int i = 0; i < model->count; i++)
    MN_TRY(restore_tensor(from, model->context, model->parameters[i], optimizer != NULL));
  return progress ? restore_progress(from, progress) : MN_OK;
}

/* One parameter, and its momentum, from the device. */
static mn_status download(struct mn_context *context, const struct mn_tensor *t, int momentum,
                          struct mn_checkpoint_tensor *out) {
  size_t bytes = (size_t)mn_tensor_count(t) * context->device->real;
  snprintf(out->name, sizeof out->name, "%s", t->name);
  out->rank = t->rank;
  out->rows = t->value.rows;
  out->cols = t->value.cols;
  out->real = context->device->real;
  momentum = momentum && t->momentum;
  if (!(out->value = malloc(bytes)) || (momentum && !(out->momentum = malloc(bytes))))
    return mn_fail(MN_NO_MEMORY, "no memory to save %s", t->name);
  MN_TRY(context->kernels->download(context->device, out->value, t->value.real, bytes));
  return momentum ? context->kernels->download(context->device, out->momentum, t->momentum, bytes) : MN_OK;
}

mn_status mn_snapshot_save(const char *path, int keep, const struct mn_model *model,
                           const struct mn_optimizer *optimizer, const struct mn_progress *progress,
                           const struct mn_text *config, int count) {
  const struct mn_model_config *m = &model->config;
  MN_REQUIRE(count <= MN_CHECKPOINT_OPTIONS - ORDER_TEXTS);
  struct mn_checkpoint *c = calloc(1, sizeof *c);
  if (!c) return mn_fail(MN_NO_MEMORY, "no memory to save");
  *c = (struct mn_checkpoint){.inputs = m->inputs,
                              .groups = m->groups,
                              .depth = m->depth,
                              .head = m->head,
                              .eps = m->eps,
                              .slope = m->slope,
                              .progress = *progress,
                              .option_count = count + ORDER_TEXTS,
                              .tensor_count = model->count,
                              .tensors = calloc((size_t)model->count, sizeof *c->tensors)};
  memcpy(c->hidden, m->hidden, (size_t)m->depth * sizeof *m->hidden);
  snprintf(c->loss, sizeof c->loss, "%s", mn_loss_name(m->loss));
  for (int i = 0; i < count; i++) c->options[i] = config[i];
  order_texts(c->options + count, progress->rows);
  c->fingerprint_count = fingerprint(model->context, c->fingerprint);
  mn_status status = c->tensors ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory to save");
  for (int i = 0; i < model->count && status == MN_OK; i++)
    status = download(model->context, model->parameters[i], optimizer != NULL, &c->tensors[i]);
  if (status == MN_OK) status = mn_checkpoint_save(c, path, keep);
  mn_checkpoint_free(c);
  return status;
}
