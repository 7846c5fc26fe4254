/* Counting what an open run takes. */
#include "train/command/dry_run.h"

#include <math.h>

#include "train/command/disk.h"
#include "train/command/show.h"
#include "train/json.h"

struct needs {
  int64_t steps, samples;
  double flops;                      /* of a step */
  size_t device, device_available;   /* bytes that the run holds, and that are left */
  double checkpoint, disk_available; /* bytes; NaN without --checkpoint, and where the disk does not say */
};

static mn_status count(struct needs *n, const struct mn_session *s, const struct mn_trainer *t) {
  const struct mn_context *context = s->context;
  const struct mn_options *o = &s->options;
  *n = (struct needs){.steps = t->schedule.horizon,
                      .samples = t->batch * o->accumulate,
                      .device = context->bytes,
                      .checkpoint = NAN,
                      .disk_available = NAN};
  n->flops = mn_model_step_flops(s->model) * (double)n->samples;
  MN_TRY(context->kernels->available(context->device, &n->device_available));
  if (!o->checkpoint) return MN_OK;
  struct mn_disk disk;
  MN_TRY(mn_disk_ask(&disk, s));
  n->checkpoint = disk.checkpoint;
  n->disk_available = disk.available;
  return MN_OK;
}

static void print(FILE *out, const struct needs *n, const struct mn_session *s, const struct mn_trainer *t) {
  const struct mn_placement *rows = mn_loader_placement(t->loader);
  char a[MN_SHOWN], b[MN_SHOWN], c[MN_SHOWN];
  char model[MN_SHOWN_MODEL];
  fprintf(out, "model: %s\n", mn_show_model(model, &s->model->config));
  fprintf(out, "parameters: %ld in %d tensors\n", (long)mn_model_size(&s->model->config), s->model->count);
  fprintf(out, "steps: %ld of %ld samples, %s epochs of %ld rows; %s a step, %s in all\n", (long)n->steps,
          (long)n->samples,
          mn_show_number(c, (double)n->steps * (double)n->samples / (double)s->train->rows, 3),
          (long)s->train->rows, mn_show_rate(a, n->flops, "FLOP"),
          mn_show_rate(b, n->flops * (double)n->steps, "FLOP"));
  fprintf(out, "memory: %s on %s; %s more are available\n", mn_show_bytes(a, (double)n->device),
          s->context->name, mn_show_bytes(b, (double)n->device_available));
  fprintf(out, "rows: %s, %s (%s)\n", mn_show_bytes(a, (double)rows->bytes), mn_place_name(rows->place),
          rows->why);
  if (!s->options.checkpoint) return;
  fprintf(out, "disk: %s a checkpoint, %ld kept and one being written; ", mn_show_bytes(a, n->checkpoint),
          (long)s->options.keep + s->options.best);
  if (isnan(n->disk_available))
    fprintf(out, "how much is free there is not known\n");
  else
    fprintf(out, "%s are free there\n", mn_show_bytes(b, n->disk_available));
}

static void print_json(FILE *out, const struct needs *n, const struct mn_session *s,
                       const struct mn_trainer *t) {
  const struct mn_placement *rows = mn_loader_placement(t->loader);
  struct mn_json json;
  mn_json_begin(&json, out);
  mn_json_open(&json, NULL);
  mn_json_integer(&json, "parameters", mn_model_size(&s->model->config));
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
    if (isnan(n->disk_available))
      mn_json_null(&json, "disk_available_bytes");
    else
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
