/* From a checkpoint into a session, and back. */
#include "train/checkpoint/snapshot.h"

#include <cblas.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/order.h"

/* An option goes into a checkpoint as it is. */
_Static_assert(sizeof((struct mn_option_text *)0)->name == sizeof((struct mn_text *)0)->name &&
                   sizeof((struct mn_option_text *)0)->value == sizeof((struct mn_text *)0)->value,
               "options and checkpoints hold texts of the same sizes");

/* What stands in /config beside the options: constants and sizes that the order of samples depends on. */
static int add_constants(const struct mn_session *s, struct mn_text *out) {
  const struct {
    const char *name;
    int64_t value;
  } constants[] = {
      {"train_rows", s->train->rows}, {"order_block", MN_ORDER_EXTENT}, {"order_window", MN_ORDER_WINDOW}};
  for (int i = 0; i < 3; i++) {
    snprintf(out[i].name, sizeof out[i].name, "%s", constants[i].name);
    snprintf(out[i].value, sizeof out[i].value, "%ld", (long)constants[i].value);
  }
  return 3;
}

static const char *find(const struct mn_text *options, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(options[i].name, name) == 0) return options[i].value;
  return NULL;
}

mn_status mn_snapshot_options(struct mn_session *s) {
  struct mn_option_text now[MN_CHECKPOINT_OPTIONS];
  int count = mn_options_config(&s->options, now, MN_CHECKPOINT_OPTIONS);
  for (int i = 0; i < count; i++) {
    const char *then = find(s->from->options, s->from->option_count, now[i].name);
    if (!then) continue;
    /* The data may have moved; its rows are counted later. */
    if (now[i].given && strcmp(now[i].value, then) != 0 && strcmp(now[i].name, "data") != 0)
      return mn_fail(MN_USAGE, "--%s %s, but %s was trained with %s; leave it out, or start a new run",
                     now[i].name, now[i].value, s->from_path, then);
    if (!now[i].given) MN_TRY(mn_options_set(&s->options, now[i].name, then));
  }
  return mn_options_check(&s->options);
}

mn_status mn_snapshot_check_data(const struct mn_session *s) {
  struct mn_text constants[3];
  int count = add_constants(s, constants);
  for (int i = 0; i < count; i++) {
    const char *then = find(s->from->options, s->from->option_count, constants[i].name);
    if (!then || strcmp(then, constants[i].value) != 0)
      return mn_fail(MN_BAD_DATA, "%s was trained with %s %s, but now it is %s; resume on the same rows",
                     s->from_path, constants[i].name, then ? then : "unknown", constants[i].value);
  }
  return MN_OK;
}

static int fingerprint(const struct mn_session *s, struct mn_text *out) {
  unsigned major, minor, release;
  mn_hdf5_lock();
  if (H5get_libversion(&major, &minor, &release) < 0) major = minor = release = 0;
  mn_hdf5_unlock();
  static const char names[][16] = {"version", "device", "precision", "blas", "hdf5"};
  for (int i = 0; i < 5; i++) memcpy(out[i].name, names[i], sizeof names[i]);
  snprintf(out[0].value, sizeof out[0].value, "minnow %s", MN_VERSION);
  snprintf(out[1].value, sizeof out[1].value, "%s", s->context->name);
  snprintf(out[2].value, sizeof out[2].value, "%s", mn_precision_name(s->context->precision));
  snprintf(out[3].value, sizeof out[3].value, "%.200s", openblas_get_config());
  snprintf(out[4].value, sizeof out[4].value, "%u.%u.%u", major, minor, release);
  return 5;
}

void mn_snapshot_warn(const struct mn_session *s) {
  struct mn_text here[5];
  int count = fingerprint(s, here);
  for (int i = 0; i < count; i++) {
    const char *then = find(s->from->fingerprint, s->from->fingerprint_count, here[i].name);
    if (then && strcmp(then, here[i].value) == 0) continue;
    fprintf(stderr,
            "minnow: warning: %s was written with %s '%s', and this is '%s'; the last bits may come out "
            "otherwise\n",
            s->from_path, here[i].name, then ? then : "unknown", here[i].value);
  }
}

mn_status mn_snapshot_config(const struct mn_session *s, struct mn_model_config *c) {
  const struct mn_checkpoint *from = s->from;
  *c = (struct mn_model_config){.inputs = from->inputs,
                                .depth = (int)from->depth,
                                .groups = from->groups,
                                .head = from->head,
                                .eps = from->eps,
                                .slope = from->slope,
                                .plan = MN_PLAN_BLOCK};
  for (int i = 0; i < c->depth && i < MN_MODEL_DEPTH; i++) c->hidden[i] = from->hidden[i];
  return mn_loss_parse(from->loss, &c->loss);
}

/* Copies one saved array to `to` on the device, in the device's reals. */
static mn_status upload(struct mn_session *s, void *to, const void *saved,
                        const struct mn_checkpoint_tensor *t) {
  int64_t count = t->rows * t->cols;
  double *wide = malloc((size_t)count * sizeof *wide);
  if (!wide) return mn_fail(MN_NO_MEMORY, "no memory to load %s", t->name);
  for (int64_t i = 0; i < count; i++)
    wide[i] = t->real == sizeof(double) ? ((const double *)saved)[i] : (double)((const float *)saved)[i];
  mn_status status = mn_context_write(s->context, to, wide, count);
  free(wide);
  return status;
}

static mn_status find_tensor(const struct mn_session *s, const struct mn_tensor *t,
                             const struct mn_checkpoint_tensor **out) {
  for (int i = 0; i < s->from->tensor_count; i++) {
    const struct mn_checkpoint_tensor *saved = &s->from->tensors[i];
    if (strcmp(saved->name, t->name) != 0) continue;
    if (saved->rows != t->value.rows || saved->cols != t->value.cols)
      return mn_fail(MN_BAD_DATA, "%s of the checkpoint is [%ld, %ld], but this model's is [%ld, %ld]",
                     t->name, (long)saved->rows, (long)saved->cols, (long)t->value.rows, (long)t->value.cols);
    *out = saved;
    return MN_OK;
  }
  return mn_fail(MN_BAD_DATA, "the checkpoint has no %s, which this model has", t->name);
}

mn_status mn_snapshot_model(struct mn_session *s) {
  for (int i = 0; i < s->model->count; i++) {
    struct mn_tensor *t = s->model->parameters[i];
    const struct mn_checkpoint_tensor *saved;
    MN_TRY(find_tensor(s, t, &saved));
    MN_TRY(upload(s, t->value.real, saved->value, saved));
    t->value.stale = 1;
    MN_TRY(mn_operand_prepare(s->context, &t->value));
  }
  return MN_OK;
}

mn_status mn_snapshot_momentum(struct mn_session *s) {
  for (int i = 0; i < s->model->count; i++) {
    struct mn_tensor *t = s->model->parameters[i];
    const struct mn_checkpoint_tensor *saved;
    MN_TRY(find_tensor(s, t, &saved));
    if (!t->momentum) continue;
    if (!saved->momentum) return mn_fail(MN_BAD_DATA, "the checkpoint has no momentum for %s", t->name);
    MN_TRY(upload(s, t->momentum, saved->momentum, saved));
  }
  return MN_OK;
}

/* One parameter, and its momentum, from the device. */
static mn_status download(const struct mn_session *s, const struct mn_tensor *t,
                          struct mn_checkpoint_tensor *out) {
  size_t bytes = (size_t)mn_tensor_count(t) * s->context->device->real;
  snprintf(out->name, sizeof out->name, "%s", t->name);
  out->rank = t->rank;
  out->rows = t->value.rows;
  out->cols = t->value.cols;
  out->real = s->context->device->real;
  if (!(out->value = malloc(bytes)) || (t->momentum && !(out->momentum = malloc(bytes))))
    return mn_fail(MN_NO_MEMORY, "no memory to save %s", t->name);
  MN_TRY(s->context->kernels->download(s->context->device, out->value, t->value.real, bytes));
  return t->momentum ? s->context->kernels->download(s->context->device, out->momentum, t->momentum, bytes)
                     : MN_OK;
}

static mn_status collect(const struct mn_session *s, int64_t step, double best, struct mn_checkpoint *c) {
  const struct mn_model_config *m = &s->model->config;
  const struct mn_options *o = &s->options;
  *c = (struct mn_checkpoint){
      .inputs = m->inputs,
      .groups = m->groups,
      .depth = m->depth,
      .head = m->head,
      .eps = m->eps,
      .slope = m->slope,
      .tensor_count = s->model->count,
      .tensors = c->tensors,
      .progress = {.step = step, .samples = step * o->batch * o->accumulate, .seed = o->seed, .best = best}};
  for (int i = 0; i < m->depth; i++) c->hidden[i] = m->hidden[i];
  c->progress.epoch = c->progress.samples / s->train->rows;
  c->progress.position = c->progress.samples % s->train->rows;
  snprintf(c->loss, sizeof c->loss, "%s", mn_loss_name(m->loss));
  struct mn_option_text texts[MN_CHECKPOINT_OPTIONS - 3];
  int count = mn_options_config(o, texts, MN_CHECKPOINT_OPTIONS - 3);
  for (int i = 0; i < count; i++) {
    memcpy(c->options[i].name, texts[i].name, sizeof c->options[i].name);
    memcpy(c->options[i].value, texts[i].value, sizeof c->options[i].value);
  }
  c->option_count = count + add_constants(s, c->options + count);
  c->fingerprint_count = fingerprint(s, c->fingerprint);
  for (int i = 0; i < s->model->count; i++) MN_TRY(download(s, s->model->parameters[i], &c->tensors[i]));
  return MN_OK;
}

mn_status mn_snapshot_save(const struct mn_session *s, int64_t step, double best) {
  struct mn_checkpoint c = {.tensors = calloc((size_t)s->model->count, sizeof *c.tensors)};
  if (!c.tensors) return mn_fail(MN_NO_MEMORY, "no memory to save");
  mn_status status = collect(s, step, best, &c);
  if (status == MN_OK) status = mn_checkpoint_save(&c, s->options.checkpoint, s->options.keep);
  for (int i = 0; i < s->model->count; i++) {
    free(c.tensors[i].value);
    free(c.tensors[i].momentum);
  }
  free(c.tensors);
  return status;
}
