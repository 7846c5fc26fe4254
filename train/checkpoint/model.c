/* Saving and loading a model without its training. */
#include "train/checkpoint/model.h"

#include <stdlib.h>
#include <unistd.h>

#include "train/checkpoint/describe.h"
#include "train/checkpoint/layout.h"
#include "train/checkpoint/snapshot.h"

/* A file that cannot be read may be anything, so it stays too. */
static mn_status check_path(const char *path) {
  struct mn_checkpoint *there;
  if (access(path, F_OK) != 0) return MN_OK;
  int alone = mn_checkpoint_read_config(&there, path) == MN_OK && there->alone;
  mn_checkpoint_free(there);
  if (alone) return MN_OK;
  return mn_fail(MN_NO_CREATE, "%s exists and holds more than a model, or something else: name another file",
                 path);
}

static mn_status download(struct mn_checkpoint *to, const struct mn_model *model) {
  for (int i = 0; i < model->count; i++) {
    struct mn_checkpoint_tensor *t = &to->tensors[i];
    size_t bytes = (size_t)(t->rows * t->cols) * t->real;
    t->value = malloc(bytes);
    if (!t->value) return mn_fail(MN_NO_MEMORY, "no memory for the %zu bytes of %s", bytes, t->name);
    MN_TRY(mn_tensor_download(model->device, model->parameters[i], t->value, bytes));
  }
  return MN_OK;
}

mn_status mn_model_save(const struct mn_model *model, const char *path) {
  struct mn_checkpoint *checkpoint;
  MN_TRY(check_path(path));
  MN_TRY(mn_describe_model(&checkpoint, model));
  checkpoint->alone = 1;
  mn_status status = download(checkpoint, model);
  if (status == MN_OK) status = mn_checkpoint_save(checkpoint, path, 1);
  mn_checkpoint_free(checkpoint);
  return status;
}

static mn_status open_model(struct mn_model **out, struct mn_device *device,
                            const struct mn_checkpoint *from) {
  MN_TRY(mn_model_open(out, device, &from->model));
  mn_status status = mn_snapshot_restore(from, *out, NULL, NULL);
  if (status == MN_OK) return MN_OK;
  mn_model_close(*out);
  *out = NULL;
  return status;
}

mn_status mn_model_load(struct mn_model **out, struct mn_device *device, const char *path) {
  struct mn_checkpoint *from;
  *out = NULL;
  MN_TRY(mn_checkpoint_load(&from, path));
  mn_status status = open_model(out, device, from);
  mn_checkpoint_free(from);
  return status;
}
