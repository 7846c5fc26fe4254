/* Reads weights alone, which may come from any program: floats of any width in the group /model, under the
 * parameters' names. */
#include <stdio.h>

#include "train/checkpoint/reader.h"

/* Only a minnow file has sums: another program's attribute of that name is ignored. */
static mn_status find_weights(struct mn_reader *reader) {
  struct mn_hdf5_object model;
  int ours;
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, "model", &model));
  if (model.kind != MN_HDF5_GROUP)
    return mn_fail(MN_BAD_DATA,
                   "%s has no group /model, where a checkpoint has its weights: put each there as a "
                   "dataset, named as PyTorch names it, such as blocks.0.fc.weight",
                   reader->file.path);
  mn_hdf5_release(&model);
  MN_TRY(mn_checkpoint_format(&reader->file, &ours));
  return ours ? mn_sums_read(&reader->sums, &reader->file) : MN_OK;
}

static mn_status read_weights(struct mn_reader *reader) {
  MN_TRY(find_weights(reader));
  return mn_reader_model(reader);
}

mn_status mn_weights_read(struct mn_checkpoint *weights, const char *path) {
  struct mn_reader reader = {.checkpoint = weights, .weights = 1, .sums = {.partial = 1}};
  return mn_reader_run(read_weights, &reader, path, "copy or write it anew", 1);
}

/* The shape of the weight called `name`; 0 and 0 if it is missing or no matrix. */
static mn_status read_shape(struct mn_reader *reader, const char *name, int64_t *rows, int64_t *cols) {
  const hsize_t most = (hsize_t)1 << 28; /* no product of two overflows */
  struct mn_hdf5_object found;
  char path[64];
  snprintf(path, sizeof path, "/model/%s", name);
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, path, &found));
  const int fits = found.kind == MN_HDF5_DATASET && found.rank == 2 && found.bytes > 0 &&
                   found.shape[0] <= most && found.shape[1] <= most;
  *rows = fits ? (int64_t)found.shape[0] : 0;
  *cols = fits ? (int64_t)found.shape[1] : 0;
  mn_hdf5_release(&found);
  return MN_OK;
}

static mn_status read_shapes(struct mn_reader *reader) {
  struct mn_model_config *sizes = reader->sizes;
  int64_t inputs;
  MN_TRY(find_weights(reader));
  for (sizes->depth = 0; sizes->depth < MN_MODEL_DEPTH; sizes->depth++) {
    char name[40];
    snprintf(name, sizeof name, "blocks.%d.fc.weight", (int)sizes->depth);
    MN_TRY(read_shape(reader, name, &sizes->hidden[sizes->depth], &inputs));
    if (inputs == 0) break;
    if (sizes->depth == 0) sizes->inputs = inputs;
  }
  if (sizes->depth == 0)
    return mn_fail(MN_BAD_DATA,
                   "%s has no matrix blocks.0.fc.weight [outputs, inputs] in /model, the weight of the first "
                   "block: write each parameter there under PyTorch's name and in PyTorch's shape",
                   reader->file.path);
  return read_shape(reader, "head.weight", &sizes->head, &inputs);
}

mn_status mn_weights_sizes(const char *path, struct mn_model_config *config) {
  struct mn_reader reader = {.sizes = config, .weights = 1, .sums = {.partial = 1}};
  return mn_reader_run(read_shapes, &reader, path, "copy or write it anew", 1);
}

mn_status mn_snapshot_load_weights(const char *path, struct mn_model *model) {
  MN_GIVEN(path, model);
  struct mn_checkpoint *weights;
  MN_TRY(mn_describe_model(&weights, model));
  mn_status status = mn_weights_read(weights, path);
  if (status == MN_OK && (status = mn_snapshot_restore(weights, model, NULL, NULL)) == MN_BAD_DATA)
    status = mn_fail(status, "%s: %s", path, mn_message());
  mn_checkpoint_free(weights);
  return status;
}
