/* A model in a file, without its training. */
#include <stdlib.h>
#include <unistd.h>

#include "train/checkpoint/layout.h"

/* *replace: a model stands at `path`. A file that cannot be read may be anything, so it stays too. */
static mn_status check_path(const char *path, int *replace) {
  struct mn_checkpoint *there;
  *replace = access(path, F_OK) == 0;
  if (!*replace) return MN_OK;
  const int alone = mn_checkpoint_read_config(&there, path) == MN_OK && there->alone;
  mn_checkpoint_free(there);
  if (alone) return MN_OK;
  return mn_fail(MN_NO_CREATE, "%s exists and holds more than a model, or something else: name another file",
                 path);
}

static mn_status write_model(struct mn_checkpoint *to, const struct mn_model *model, const char *path,
                             int replace) {
  struct mn_atomic_file file;
  for (int i = 0; i < to->tensor_count; i++) {
    struct mn_checkpoint_tensor *t = &to->tensors[i];
    const size_t bytes = (size_t)(t->rows * t->cols) * t->real;
    if (!(t->value = malloc(bytes)))
      return mn_fail(MN_NO_MEMORY, "no %.1f MiB of memory left to save; a smaller model would need less",
                     (double)bytes / 1048576);
    MN_TRY(mn_tensor_download(model->device, model->parameters[i], t->value));
  }
  to->alone = 1;
  MN_TRY(mn_checkpoint_write(to, &file, path));
  return mn_atomic_file_publish(&file, replace);
}

mn_status mn_model_save(const struct mn_model *model, const char *path) {
  MN_GIVEN(model, path);
  struct mn_checkpoint *to;
  int replace;
  if (model->device->ranks)
    return mn_fail(MN_USAGE, "a model that is divided among ranks is saved by a saver (mn_saver_open)");
  MN_TRY(check_path(path, &replace));
  MN_TRY(mn_describe_model(&to, model));
  mn_status status = write_model(to, model, path, replace);
  mn_checkpoint_free(to);
  return status;
}

mn_status mn_model_load(struct mn_model **out, struct mn_device *device, const char *path) {
  MN_OPENS(out, device, path);
  struct mn_checkpoint *from;
  MN_TRY(mn_checkpoint_load(&from, path));
  mn_status status = mn_model_open(out, device, &from->model);
  if (status == MN_OK) status = mn_snapshot_restore(from, *out, NULL, NULL);
  if (status == MN_BAD_DATA) status = mn_fail(status, "%s: %s", path, mn_message());
  mn_checkpoint_free(from);
  if (status != MN_OK) mn_model_close(*out), *out = NULL;
  return status;
}
