/* Counting what an open run takes. */
#include "train/command/dry_run.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "train/command/show.h"
#include "train/json.h"

struct needs {
  int64_t parameters, steps, samples;
  double flops;                      /* of a step */
  size_t device, device_available;   /* bytes that the run holds, and that are left */
  double checkpoint, disk_available; /* bytes; NaN without --checkpoint */
};

/* What the disk has left where the checkpoint is to be. */
static mn_status ask_disk(double *bytes, const char *checkpoint) {
  char folder[4096];
  struct statvfs disk;
  const char *slash = strrchr(checkpoint, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - checkpoint + 1) : 1,
           slash ? checkpoint : ".");
  if (access(folder, W_OK) != 0)
    return mn_fail(MN_NO_CREATE, "cannot save %s: %s: name a folder that can be written", checkpoint,
                   strerror(errno));
  if (statvfs(folder, &disk) != 0)
    return mn_fail(MN_IO, "cannot ask the disk of %s how much is free: %s; check the disk", checkpoint,
                   strerror(errno));
  *bytes = (double)disk.f_bavail * (double)disk.f_frsize;
  return MN_OK;
}

static mn_status count(struct needs *n, const struct mn_session *s, const struct mn_trainer *t) {
  const struct mn_context *context = s->context;
  const struct mn_options *o = &s->options;
  *n = (struct needs){.steps = t->schedule.horizon,
                      .samples = t->batch * o->accumulate,
                      .device = context->bytes,
                      .checkpoint = NAN,
                      .disk_available = NAN};
  for (int i = 0; i < s->model->count; i++) n->parameters += mn_tensor_count(s->model->parameters[i]);
  n->flops = mn_model_step_flops(s->model) * (double)n->samples;
  MN_TRY(context->kernels->available(context->device, &n->device_available));
  if (!o->checkpoint) return MN_OK;
  const struct mn_rule *rule = &s->optimizer->rule;
  const int arrays = 1 + mn_rule_keeps_m(rule) + mn_rule_keeps_v(rule);
  n->checkpoint = (double)n->parameters * (double)context->device->real * arrays;
  return ask_disk(&n->disk_available, o->checkpoint);
}

static const char *show_bytes(char out[MN_SHOWN], double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  char number[MN_SHOWN];
  int i = 0;
  for (; i < 4 && bytes >= 999.5; i++) bytes /= 1024;
  snprintf(out, MN_SHOWN, "%s %s", mn_show_number(number, bytes, i == 0 ? 1 : 3), units[i]);
  return out;
}

static void print_model(FILE *out, const struct mn_model_config *c) {
  fprintf(out, "model: %ld inputs", (long)c->inputs);
  for (int i = 0; i < c->depth; i++) fprintf(out, "%s%ld", i ? " -> " : ", blocks of ", (long)c->hidden[i]);
  fprintf(out, " channels in %ld groups", (long)c->groups);
  if (c->head) fprintf(out, ", a head of %ld", (long)c->head);
  fprintf(out, ", %s\n", mn_loss_name(c->loss));
}

static void print(FILE *out, const struct needs *n, const struct mn_session *s, const struct mn_trainer *t) {
  const struct mn_placement *rows = mn_loader_placement(t->loader);
  char a[MN_SHOWN], b[MN_SHOWN], c[MN_SHOWN];
  print_model(out, &s->model->config);
  fprintf(out, "parameters: %ld in %d tensors\n", (long)n->parameters, s->model->count);
  fprintf(out, "steps: %ld of %ld samples, %s epochs of %ld rows; %s a step, %s in all\n", (long)n->steps,
          (long)n->samples,
          mn_show_number(c, (double)n->steps * (double)n->samples / (double)s->train->rows, 3),
          (long)s->train->rows, mn_show_rate(a, n->flops, "FLOP"),
          mn_show_rate(b, n->flops * (double)n->steps, "FLOP"));
  fprintf(out, "memory: %s on %s; %s more are available\n", show_bytes(a, (double)n->device),
          s->context->name, show_bytes(b, (double)n->device_available));
  fprintf(out, "rows: %s, %s (%s)\n", show_bytes(a, (double)rows->bytes), mn_place_name(rows->place),
          rows->why);
  if (s->options.checkpoint)
    fprintf(out, "disk: %s a checkpoint, %ld kept and one being written; %s are free there\n",
            show_bytes(a, n->checkpoint), (long)s->options.keep + s->options.best,
            show_bytes(b, n->disk_available));
}

static void print_json(FILE *out, const struct needs *n, const struct mn_session *s,
                       const struct mn_trainer *t) {
  const struct mn_placement *rows = mn_loader_placement(t->loader);
  struct mn_json json;
  mn_json_begin(&json, out);
  mn_json_open(&json, NULL);
  mn_json_integer(&json, "parameters", n->parameters);
  mn_json_integer(&json, "tensors", s->model->count);
  mn_json_integer(&json, "steps", n->steps);
  mn_json_integer(&json, "samples_per_step", n->samples);
  mn_json_number(&json, "flops_per_step", n->flops);
  mn_json_integer(&json, "device_bytes", (int64_t)n->device);
  mn_json_integer(&json, "device_available_bytes", (int64_t)n->device_available);
  mn_json_string(&json, "place", mn_place_name(rows->place));
  mn_json_integer(&json, "rows_bytes", (int64_t)rows->bytes);
  if (s->options.checkpoint) {
    mn_json_integer(&json, "checkpoint_bytes", (int64_t)n->checkpoint);
    mn_json_integer(&json, "disk_available_bytes", (int64_t)n->disk_available);
  }
  mn_json_close(&json);
}

mn_status mn_dry_run(FILE *out, const struct mn_session *s, const struct mn_trainer *t) {
  struct needs needs;
  MN_TRY(count(&needs, s, t));
  if (s->options.json)
    print_json(out, &needs, s, t);
  else
    print(out, &needs, s, t);
  return MN_OK;
}
