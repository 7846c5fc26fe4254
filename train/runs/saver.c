/* Saves a run beside its training: takes a snapshot in the thread that trains, and writes each in a thread of
 * its own, which lives as long as the save. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ranks/ranks.h"
#include "engine/thread.h"
#include "kernels/device.h"
#include "kernels/planes.h"
#include "train/checkpoint/layout.h"
#include "train/runs/runs.h"

enum { ALIGNMENT = 256 }; /* of each array in the device's copy, as of the device's own allocations */

/* A parameter, an array of its optimizer state, or a weight's scales. */
struct array {
  const struct mn_tensor *parameter; /* whose value it is; NULL: */
  const void *from;                  /* an array of optimizer state, or scales, on the device */
  void **to;                         /* on the host: of the checkpoint's tensor, or the saver's scales */
  size_t bytes, at;                  /* at: its offset in the device's copy */
  int64_t outputs;                   /* of the whole, if ranks have a shard each; 0 for scales */
  size_t each;                       /* bytes of one of them */
};

struct mn_saver {
  struct mn_device *device;             /* borrowed, */
  const struct mn_optimizer *optimizer; /* as is this; NULL to leave its state out */
  char *path;
  char best[MN_CHECKPOINT_PATH];
  int what; /* MN_SAVE_… of the running save */
  int keep;
  struct array arrays[(MN_CHECKPOINT_ARRAYS + 1) * MN_MODEL_PARAMETERS];
  int count;
  void *copy; /* [copy_bytes] on the device: all arrays of the running save; NULL without room for it */
  size_t copy_bytes;
  int running; /* there is a thread to join */
  pthread_t thread;
  struct mn_checkpoint *checkpoint;  /* the thread's, while it runs; */
  void *scales[MN_MODEL_PARAMETERS]; /* so are these: struct mn_scale [2] of each parameter that has them */
  struct mn_outcome outcome;         /* of the newest save; the thread's, too */
  int done;                          /* set atomically by the thread at its end */
  int64_t saved;                     /* the step of the newest save that succeeded; −1 before the first */
};

/* ---- the thread ---- */

static mn_status download_and_write(struct mn_saver *saver) {
  struct mn_device *device = saver->device;
  for (int i = 0; i < saver->count && saver->copy; i++) {
    const struct array *array = &saver->arrays[i];
    MN_TRY(mn_download_beside(device, *array->to, (const char *)saver->copy + array->at, array->bytes));
  }
  /* The factors that the next step finds, or chooses; a model without its training lacks them. */
  for (int i = 0; i < saver->checkpoint->tensor_count && !saver->checkpoint->alone; i++) {
    const struct mn_scale *scales = saver->scales[i];
    if (!scales) continue;
    saver->checkpoint->tensors[i].factor = scales[0].factor;
    saver->checkpoint->tensors[i].gradient_factor = mn_scale_next(&scales[1]);
  }
  if (saver->what & MN_SAVE_BEST) MN_TRY(mn_checkpoint_save(saver->checkpoint, saver->best, 1));
  return saver->what & MN_SAVE_NEWEST ? mn_checkpoint_save(saver->checkpoint, saver->path, saver->keep)
                                      : MN_OK;
}

static void *write_in_thread(void *data) {
  struct mn_saver *saver = data;
  mn_outcome_note(&saver->outcome, download_and_write(saver));
  __atomic_store_n(&saver->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Ends a save that is done or, if `wait`, as soon as it is. */
static void join(struct mn_saver *saver, int wait) {
  if (!saver->running || (!wait && !__atomic_load_n(&saver->done, __ATOMIC_ACQUIRE))) return;
  MN_REQUIRE(pthread_join(saver->thread, NULL) == 0);
  saver->running = 0;
  if (saver->outcome.status == MN_OK && saver->what & MN_SAVE_NEWEST)
    saver->saved = saver->checkpoint->progress.step;
}

/* ---- the snapshot ---- */

/* Memory that snapshots keep; among ranks, which agree on it, taken at the first. */
static mn_status take_memory(struct mn_saver *saver) {
  for (int i = 0; i < saver->count; i++) {
    const struct array *array = &saver->arrays[i];
    const size_t bytes = array->outputs ? (size_t)array->outputs * array->each : array->bytes;
    if (array->outputs && !mn_ranks_first(saver->device->ranks)) continue;
    if (!*array->to && !(*array->to = malloc(bytes)))
      return mn_fail(MN_NO_MEMORY, "no %.1f MiB of memory left to save; a smaller model would need less",
                     (double)bytes / 1048576);
  }
  return MN_OK;
}

static mn_status take_copy(struct mn_saver *saver) {
  if (saver->copy || saver->device->ranks || !saver->device->kernels->download_beside) return MN_OK;
  mn_status status = mn_device_allocate(saver->device, &saver->copy, (int64_t)saver->copy_bytes, 1);
  return status == MN_NO_MEMORY ? MN_OK : status; /* without a copy it is slower, no more */
}

static mn_status download(struct mn_device *device, const struct array *array, void *to) {
  return array->parameter ? mn_tensor_download(device, array->parameter, to)
                          : mn_download(device, to, array->from, array->bytes);
}

/* Each rank's shard goes to the first. A rank that failed alone would leave the others waiting. */
static mn_status gather_array(struct mn_device *device, const struct array *array) {
  void *piece = malloc(array->bytes);
  MN_REQUIRE(piece && download(device, array, piece) == MN_OK);
  mn_status status = mn_ranks_gather(device->ranks, *array->to, piece, array->outputs, array->each);
  free(piece);
  return status;
}

static mn_status take_array(const struct mn_saver *saver, const struct array *array) {
  struct mn_device *device = saver->device;
  if (device->ranks && array->outputs) return gather_array(device, array);
  if (!saver->copy) return download(device, array, *array->to);
  void *copy = (char *)saver->copy + array->at;
  return array->parameter ? mn_tensor_copy(device, array->parameter, copy)
                          : mn_copy(device, copy, array->from, array->bytes);
}

static mn_status take_snapshot(struct mn_saver *saver) {
  MN_TRY(mn_ranks_agree(saver->device->ranks, take_memory(saver)));
  MN_TRY(take_copy(saver));
  const struct mn_model *m = saver->optimizer ? saver->optimizer->model : NULL;
  if (m) MN_TRY(mn_replicas_gather(saver->device, m->parameters, m->count));
  for (int i = 0; i < saver->count; i++) MN_TRY(take_array(saver, &saver->arrays[i]));
  return saver->copy ? mn_branch_fork(saver->device, MN_BRANCH_SAVES) : MN_OK;
}

/* ---- opening, starting, asking, closing ---- */

/* The array is the value of `t`, or of its size and at `from`, or, with `bytes`, scales at `from`. */
static void add_array(struct mn_saver *saver, const struct mn_tensor *t, const void *from, void **to,
                      size_t bytes) {
  const size_t each = (size_t)(mn_tensor_count(t) / mn_tensor_outputs(t)) * saver->device->real;
  struct array array = {
      .parameter = from ? NULL : t, .from = from, .to = to, .bytes = bytes, .at = saver->copy_bytes};
  if (bytes == 0) {
    array.outputs = t->whole;
    array.each = each;
    array.bytes = (size_t)mn_tensor_outputs(t) * each;
  }
  saver->arrays[saver->count++] = array;
  saver->copy_bytes += (array.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

mn_status mn_saver_open(struct mn_saver **out, const char *path, int keep, const struct mn_model *model,
                        const struct mn_optimizer *optimizer) {
  MN_OPENS(out, path, model);
  if (optimizer && optimizer->model != model)
    return mn_fail(MN_USAGE, "a saver of a model with the optimizer of another");
  struct mn_saver *saver = *out = calloc(1, sizeof *saver);
  if (!saver) return mn_fail(MN_NO_MEMORY, "no memory to save");
  saver->device = model->device;
  saver->optimizer = optimizer;
  saver->keep = keep;
  saver->saved = -1;
  saver->path = strdup(path);
  mn_status status =
      saver->path ? mn_describe_model(&saver->checkpoint, model) : mn_fail(MN_NO_MEMORY, "no memory to save");
  for (int i = 0; i < model->count && status == MN_OK; i++) {
    const struct mn_tensor *t = model->parameters[i];
    struct mn_checkpoint_tensor *saved = &saver->checkpoint->tensors[i];
    add_array(saver, t, NULL, &saved->value, 0);
    for (int k = MN_CHECKPOINT_VALUE + 1; optimizer && k < MN_CHECKPOINT_ARRAYS; k++) {
      const void *kept = mn_describe_kept(optimizer, t, k);
      if (kept) add_array(saver, t, kept, &saved->arrays[k], 0);
    }
    if (t->scales) add_array(saver, t, t->scales, &saver->scales[i], 2 * sizeof *t->scales);
  }
  if (status == MN_OK && !model->device->ranks) status = take_memory(saver);
  if (status != MN_OK) mn_saver_close(saver), *out = NULL;
  return status;
}

void mn_saver_history(struct mn_saver *saver, const struct mn_text *history, int count) {
  memcpy(saver->checkpoint->history, history, (size_t)count * sizeof *history);
  saver->checkpoint->history_count = count;
}

mn_status mn_saver_start(struct mn_saver *saver, int what, const struct mn_progress *progress,
                         const struct mn_text *config, int count) {
  MN_GIVEN(saver);
  const int most = MN_CHECKPOINT_OPTIONS - MN_DESCRIBE_ORDER;
  struct mn_checkpoint *c = saver->checkpoint;
  if (mn_saver_busy(saver)) return mn_fail(MN_USAGE, "a save is running: wait for it by mn_saver_wait");
  if (count < 0 || count > most || (count > 0 && !config))
    return mn_fail(MN_USAGE, "%d texts for a checkpoint's /config: 0 to %d work", count, most);
  if (what < 1 || what > (MN_SAVE_NEWEST | MN_SAVE_BEST))
    return mn_fail(MN_USAGE, "parts %d of a save: 1 to 3 work", what);
  for (int i = 0; i < count; i++)
    if (!config[i].name[0] || !memchr(config[i].name, 0, MN_TEXT_NAME) ||
        !memchr(config[i].value, 0, MN_TEXT_VALUE))
      return mn_fail(MN_USAGE, "text %d for a checkpoint's /config has no name, or no end", i);
  saver->what = what;
  if (what & MN_SAVE_BEST) MN_TRY(mn_checkpoint_best(saver->best, saver->path));
  c->alone = !progress;
  if (progress) c->progress = *progress;
  for (int i = 0; i < count; i++) c->options[i] = config[i];
  mn_describe_order(c->options + count, c->progress.rows);
  c->option_count = count + MN_DESCRIBE_ORDER;
  MN_TRY(take_snapshot(saver));
  if (!mn_ranks_first(saver->device->ranks)) return MN_OK;
  saver->done = 0;
  mn_status status = mn_thread_start(&saver->thread, "the thread that saves", write_in_thread, saver);
  saver->running = status == MN_OK;
  return status;
}

int mn_saver_busy(struct mn_saver *saver) {
  join(saver, 0);
  return saver->running;
}

mn_status mn_saver_poll(struct mn_saver *saver, int64_t *saved) {
  const int busy = mn_saver_busy(saver);
  if (saved) *saved = saver->saved;
  return busy ? MN_OK : mn_outcome_tell(&saver->outcome);
}

mn_status mn_saver_wait(struct mn_saver *saver, int64_t *saved) {
  MN_GIVEN(saver);
  join(saver, 1);
  return mn_saver_poll(saver, saved);
}

void mn_saver_close(struct mn_saver *saver) {
  if (!saver) return;
  join(saver, 1);
  mn_device_release(saver->device, saver->copy, (int64_t)saver->copy_bytes, 1);
  mn_checkpoint_free(saver->checkpoint);
  for (int i = 0; i < MN_MODEL_PARAMETERS; i++) free(saver->scales[i]);
  free(saver->path);
  free(saver);
}
