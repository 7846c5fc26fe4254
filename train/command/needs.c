/* The memory and disk space that a run needs. */
#include "train/command/session.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"
#include "train/command/announce.h"
#include "train/json.h"

struct disk {
  double checkpoint; /* bytes of one: the values alone, so a little less than the file */
  double available;  /* bytes free in the folder of the checkpoints; NaN if unknown */
};

static mn_status ask(struct disk *out, const struct mn_session *s) {
  const struct mn_rule *rule = &s->optimizer->config.rule;
  const int arrays = 1 + mn_rule_keeps_m(rule) + mn_rule_keeps_v(rule);
  char path[MN_ATOMIC_FILE_PATH];
  struct statvfs disk;
  *out = (struct disk){.available = NAN};
  out->checkpoint = (double)mn_model_size(&s->model->config) * (double)s->device->real * arrays;
  MN_TRY(mn_atomic_file_resolve(path, s->options.checkpoint));
  strcpy(basename(path), "."); /* the folder; a name has at least this one letter */
  if (access(path, W_OK) != 0)
    return mn_fail(MN_NO_CREATE, "cannot save %s: %s: name a folder that can be written",
                   s->options.checkpoint, strerror(errno));
  const int failed = statvfs(path, &disk) != 0;
  if (failed && errno != ENOSYS)
    return mn_fail(MN_IO, "cannot ask the disk of %s how much is free: %s; check the disk",
                   s->options.checkpoint, strerror(errno));
  if (!failed && disk.f_blocks > 0) out->available = (double)disk.f_bavail * (double)disk.f_frsize;
  return MN_OK;
}

mn_status mn_needs_check(const struct mn_session *s) {
  struct disk disk;
  if (!s->options.checkpoint) return MN_OK;
  MN_TRY(ask(&disk, s));
  if (!(disk.checkpoint > disk.available)) return MN_OK; /* also if `available` is NaN */
  return mn_fail(MN_IO,
                 "a checkpoint of %.1f MiB does not fit beside %s, where %.1f MiB are free: free some space, "
                 "or name another folder",
                 disk.checkpoint / 0x1p20, s->options.checkpoint, disk.available / 0x1p20);
}

mn_status mn_needs_show(FILE *out, const struct mn_session *s, const struct mn_trainer *t) {
  const struct mn_placement *rows = mn_loader_placement(t->loader);
  const struct mn_options *o = &s->options;
  const struct mn_model_config *config = &s->model->config;
  const double samples = (double)t->batch * (double)o->accumulate, steps = (double)t->schedule.horizon;
  char model[MN_MODEL_WORDS];
  struct disk disk;
  size_t available;
  struct mn_json writer, *json = &writer;
  MN_TRY(s->device->kernels->available(s->device, &available));
  if (o->checkpoint) MN_TRY(ask(&disk, s));
  mn_json_begin(json, out, !o->json);
  mn_json_open(json, NULL);
  mn_json_string(json, "model", mn_model_words(model, config));
  mn_json_integer(json, "parameters", mn_model_size(config));
  mn_json_integer(json, "tensors", s->model->count);
  mn_json_integer(json, "steps", t->schedule.horizon);
  mn_json_integer(json, "samples_per_step", t->batch * o->accumulate);
  mn_json_number(json, "epochs", steps * samples / (double)s->train->rows);
  mn_json_number(json, "flops_per_step", mn_model_step_flops(s->model) * samples);
  mn_json_bytes(json, "device_bytes", (double)s->device->bytes);
  mn_json_bytes(json, "device_available_bytes", (double)available);
  mn_json_string(json, "place", mn_place_name(rows->place));
  mn_json_string(json, "place_why", rows->why);
  mn_json_bytes(json, "rows_bytes", (double)rows->bytes);
  if (o->checkpoint) {
    mn_json_bytes(json, "checkpoint_bytes", disk.checkpoint);
    mn_json_integer(json, "checkpoints", o->keep + o->best + 1); /* one is being written */
    mn_json_bytes(json, "disk_available_bytes", disk.available);
  }
  mn_json_close(json);
  return MN_OK;
}
