/* Reading weights by name; see weights.h. The file may come from anywhere, so all misfits are reported at
 * once, before a value is read. */
#include "train/checkpoint/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/hdf5_file.h"
#include "train/checkpoint/layout.h"
#include "train/checkpoint/sums.h"

/* Objects that an error leaves open, mn_hdf5_close closes with the file. */
struct file {
  struct mn_hdf5_file hdf5;
  struct mn_hdf5_object model; /* the group */
  struct mn_sums sums;
};

/* Only a minnow file has sums: another program's attribute of that name is ignored. */
static mn_status read_sums(struct file *file) {
  int ours;
  file->sums.lines = 0;
  file->sums.text[0] = 0;
  MN_TRY(mn_checkpoint_format(&file->hdf5, &ours));
  return ours ? mn_sums_read(&file->sums, &file->hdf5) : MN_OK;
}

static mn_status open_file(struct file *file, const char *path) {
  MN_TRY(mn_hdf5_open(&file->hdf5, path, "copy or write it anew", MN_HDF5_SHARED));
  mn_status status = mn_hdf5_find(&file->hdf5, &file->hdf5.root, "model", &file->model);
  if (status == MN_OK && file->model.kind != MN_HDF5_GROUP)
    status = mn_fail(MN_BAD_DATA,
                     "%s has no group /model, where a checkpoint has its weights: put each there as a "
                     "dataset, named as PyTorch names it, such as blocks.0.fc.weight",
                     path);
  if (status == MN_OK) status = read_sums(file);
  if (status != MN_OK) mn_hdf5_close(&file->hdf5);
  return status;
}

/* ---- what does not fit ---- */

/* "NAME is …" for each misfit while there is room; `untold` counts the rest. */
struct misfits {
  char text[MN_MESSAGE * 3 / 4];
  size_t used;
  int untold;
};

static void note(struct misfits *misfits, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct misfits *misfits, const char *format, ...) {
  char entry[480];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(entry, sizeof entry, format, arguments);
  va_end(arguments);
  const char *between = misfits->used ? "; " : "";
  if (misfits->untold || misfits->used + strlen(between) + strlen(entry) >= sizeof misfits->text)
    misfits->untold++;
  else
    misfits->used += (size_t)sprintf(misfits->text + misfits->used, "%s%s", between, entry);
}

/* "float64 [8, 4]", "a group" */
static void describe(char *out, size_t size, const struct mn_hdf5_object *object) {
  char shape[200];
  mn_hdf5_shape(shape, sizeof shape, object);
  if (object->kind == MN_HDF5_DATASET)
    snprintf(out, size, "%s %s", object->type, shape);
  else
    snprintf(out, size, "%s", object->kind == MN_HDF5_GROUP ? "a group" : "a named type");
}

static int has_shape(const struct mn_hdf5_object *dataset, const struct mn_checkpoint_tensor *tensor) {
  return dataset->rank == tensor->rank && dataset->shape[tensor->rank - 1] == (hsize_t)tensor->cols &&
         (tensor->rank == 1 || dataset->shape[0] == (hsize_t)tensor->rows);
}

static void compare(struct misfits *misfits, const struct mn_hdf5_object *found,
                    const struct mn_checkpoint_tensor *tensor) {
  const size_t widest = 16; /* bytes of a long double */
  char has[240], wanted[64];
  if (tensor->rank == 2)
    snprintf(wanted, sizeof wanted, "[%" PRId64 ", %" PRId64 "]", tensor->rows, tensor->cols);
  else
    snprintf(wanted, sizeof wanted, "[%" PRId64 "]", tensor->cols);
  describe(has, sizeof has, found);
  if (found->kind == MN_HDF5_NOTHING)
    note(misfits, "%s is missing, wanted %s", tensor->name, wanted);
  else if (found->kind != MN_HDF5_DATASET || found->class != H5T_FLOAT || found->element > widest)
    note(misfits, "%s is %s, wanted floats %s", tensor->name, has, wanted);
  else if (found->layout != H5D_VIRTUAL && !has_shape(found, tensor)) /* a virtual one is refused when read */
    note(misfits, "%s is %s, wanted %s", tensor->name, has, wanted);
}

static int is_expected(const struct mn_checkpoint *weights, const char *name) {
  for (int i = 0; i < weights->tensor_count; i++)
    if (strcmp(weights->tensors[i].name, name) == 0) return 1;
  return 0;
}

static mn_status find_left_over(const struct file *file, const struct mn_checkpoint *weights,
                                struct misfits *misfits) {
  hsize_t count;
  MN_TRY(mn_hdf5_count(&file->hdf5, &file->model, &count));
  for (hsize_t i = 0; i < count; i++) {
    char name[256], has[240];
    struct mn_hdf5_object member;
    MN_TRY(mn_hdf5_member(&file->hdf5, &file->model, i, name, sizeof name));
    if (is_expected(weights, name)) continue;
    MN_TRY(mn_hdf5_find(&file->hdf5, &file->model, name, &member));
    describe(has, sizeof has, &member);
    mn_hdf5_release(&member);
    note(misfits, "%s is left over, %s", name, has);
  }
  return MN_OK;
}

static mn_status check(const struct file *file, const struct mn_checkpoint *weights) {
  struct misfits misfits = {.used = 0};
  char more[40] = "";
  for (int i = 0; i < weights->tensor_count; i++) {
    struct mn_hdf5_object found;
    MN_TRY(mn_hdf5_find(&file->hdf5, &file->model, weights->tensors[i].name, &found));
    compare(&misfits, &found, &weights->tensors[i]);
    mn_hdf5_release(&found);
  }
  MN_TRY(find_left_over(file, weights, &misfits));
  if (!misfits.used) return MN_OK;
  if (misfits.untold) snprintf(more, sizeof more, "; and %d more", misfits.untold);
  return mn_fail(MN_BAD_DATA,
                 "%s: /model does not fit the model: %s%s: give the model these sizes, or write "
                 "the file for it",
                 file->hdf5.path, misfits.text, more);
}

/* ---- values ---- */

static mn_status check_finite(const struct file *file, const struct mn_checkpoint_tensor *tensor) {
  const int64_t i = mn_find_nonfinite(tensor->value, tensor->rows * tensor->cols, tensor->real);
  char row[32] = "";
  if (i < 0) return MN_OK;
  const double value = mn_real_at(tensor->value, tensor->real, i);
  if (tensor->rank == 2) snprintf(row, sizeof row, "%" PRId64 ", ", i / tensor->cols);
  return mn_fail(MN_BAD_DATA,
                 "%s: %s[%s%" PRId64 "] (from 0) is %g%s; every weight must be finite: replace it",
                 file->hdf5.path, tensor->name, row, i % tensor->cols, value,
                 isinf(value) && tensor->real == sizeof(float) ? " (as a float)" : "");
}

/* Whether the dataset is as a checkpoint stores it, with a checksum: not one that another program put there.
 */
static int is_covered(const struct file *file, const struct mn_hdf5_object *dataset, const char *path) {
  return dataset->layout == H5D_CHUNKED && dataset->filters == 1 && dataset->checksum && dataset->native &&
         mn_sums_cover(&file->sums, path, dataset->name);
}

/* The checksum covers the stored bytes, whatever the tensor's reals are. */
static mn_status check_sum(struct file *file, const struct mn_hdf5_object *dataset, const char *path) {
  struct mn_hdf5_slab slab;
  if (!is_covered(file, dataset, path)) return MN_OK;
  char *stored = malloc((size_t)dataset->bytes), *to = stored;
  if (!stored)
    return mn_fail(MN_NO_MEMORY, "no memory for the %" PRIu64 " bytes of %s", dataset->bytes, dataset->name);
  mn_status status = MN_OK;
  for (mn_hdf5_slab_rows(&slab, dataset->rank, dataset->shape, dataset->chunk, 0, dataset->element);
       slab.elements && status == MN_OK; mn_hdf5_slab_next(&slab)) {
    status = mn_hdf5_read(&file->hdf5, dataset, MN_HDF5_STORED, &slab, to);
    to += slab.elements * dataset->element;
  }
  if (status == MN_OK)
    status =
        mn_sums_check_values(&file->sums, &file->hdf5, path, dataset->name, stored, (size_t)dataset->bytes);
  free(stored);
  return status;
}

/* HDF5 converts from the file's floats to the tensor's reals. */
static mn_status read_tensor(struct file *file, const struct mn_hdf5_object *group, const char *path,
                             struct mn_checkpoint_tensor *tensor) {
  struct mn_hdf5_object dataset;
  struct mn_hdf5_slab slab;
  MN_TRY(mn_hdf5_find(&file->hdf5, group, tensor->name, &dataset));
  MN_TRY(mn_hdf5_check(&file->hdf5, &dataset));
  MN_TRY(check_sum(file, &dataset, path));
  size_t bytes = (size_t)(tensor->rows * tensor->cols) * tensor->real;
  char *to = tensor->value = malloc(bytes);
  if (!to) return mn_fail(MN_NO_MEMORY, "no memory for the %zu bytes of %s", bytes, tensor->name);
  const hsize_t *chunk = dataset.layout == H5D_CHUNKED ? dataset.chunk : NULL;
  size_t element = dataset.element > tensor->real ? dataset.element : tensor->real;
  enum mn_hdf5_memory memory = tensor->real == sizeof(double) ? MN_HDF5_DOUBLE : MN_HDF5_FLOAT;
  for (mn_hdf5_slab_rows(&slab, dataset.rank, dataset.shape, chunk, 0, element); slab.elements;
       mn_hdf5_slab_next(&slab)) {
    MN_TRY(mn_hdf5_read(&file->hdf5, &dataset, memory, &slab, to));
    to += slab.elements * tensor->real;
  }
  mn_hdf5_release(&dataset);
  return check_finite(file, tensor);
}

/* Reads the mean and scale that standardise the inputs, if the file has them; the weights depend on them. */
static mn_status read_input(struct file *file, struct mn_checkpoint *weights) {
  struct mn_hdf5_object group;
  MN_TRY(mn_hdf5_find(&file->hdf5, &file->hdf5.root, MN_CHECKPOINT_INPUTS, &group));
  for (int k = 0; k < MN_CHECKPOINT_INPUT && group.kind == MN_HDF5_GROUP; k++) {
    struct misfits misfits = {.used = 0};
    struct mn_hdf5_object found;
    free(weights->input[k].value); /* the model may have its own */
    weights->input[k].value = NULL;
    mn_checkpoint_expect_input(weights, k, &weights->input[k]);
    MN_TRY(mn_hdf5_find(&file->hdf5, &group, weights->input[k].name, &found));
    compare(&misfits, &found, &weights->input[k]);
    mn_hdf5_release(&found);
    if (misfits.used)
      return mn_fail(MN_BAD_DATA, "%s: /input does not fit the model: %s: write it for this model",
                     file->hdf5.path, misfits.text);
    MN_TRY(read_tensor(file, &group, "input", &weights->input[k]));
  }
  mn_hdf5_release(&group);
  return MN_OK;
}

mn_status mn_weights_read(struct mn_checkpoint *weights, const char *path) {
  struct file file;
  MN_TRY(open_file(&file, path));
  mn_status status = check(&file, weights);
  for (int i = 0; i < weights->tensor_count && status == MN_OK; i++)
    status = read_tensor(&file, &file.model, "model", &weights->tensors[i]);
  if (status == MN_OK) status = read_input(&file, weights);
  mn_hdf5_close(&file.hdf5);
  return status;
}

/* ---- sizes ---- */

/* The shape of the weight called `name`; 0 and 0 if it is missing. */
static mn_status read_shape(const struct file *file, const char *name, int64_t *rows, int64_t *cols) {
  const hsize_t most = (hsize_t)1 << 28; /* no product of two overflows */
  struct mn_hdf5_object found;
  *rows = *cols = 0;
  MN_TRY(mn_hdf5_find(&file->hdf5, &file->model, name, &found));
  if (found.kind == MN_HDF5_NOTHING) return MN_OK;
  if (found.kind == MN_HDF5_DATASET) MN_TRY(mn_hdf5_check(&file->hdf5, &found));
  if (found.kind != MN_HDF5_DATASET || found.rank != 2 || found.shape[0] < 1 || found.shape[0] > most ||
      found.shape[1] < 1 || found.shape[1] > most) {
    char has[240];
    describe(has, sizeof has, &found);
    return mn_fail(MN_BAD_DATA, "%s: %s in /model is %s, wanted [outputs, inputs]: write it as a matrix",
                   file->hdf5.path, name, has);
  }
  *rows = (int64_t)found.shape[0];
  *cols = (int64_t)found.shape[1];
  mn_hdf5_release(&found);
  return MN_OK;
}

static mn_status read_sizes(const struct file *file, struct mn_model_config *config) {
  int64_t inputs;
  config->depth = 0;
  for (; config->depth < MN_MODEL_DEPTH; config->depth++) {
    char name[40];
    snprintf(name, sizeof name, "blocks.%d.fc.weight", (int)config->depth);
    MN_TRY(read_shape(file, name, &config->hidden[config->depth], &inputs));
    if (inputs == 0) break;
    if (config->depth == 0) config->inputs = inputs;
  }
  if (config->depth == 0)
    return mn_fail(MN_BAD_DATA,
                   "%s has no blocks.0.fc.weight in /model, the weight of the first block: write each "
                   "parameter there as a dataset under PyTorch's name",
                   file->hdf5.path);
  return read_shape(file, "head.weight", &config->head, &inputs);
}

mn_status mn_weights_sizes(const char *path, struct mn_model_config *config) {
  struct file file;
  MN_TRY(open_file(&file, path));
  mn_status status = read_sizes(&file, config);
  mn_hdf5_close(&file.hdf5);
  return status;
}
