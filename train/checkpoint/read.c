/* Reads checkpoints and trusts nothing in them: what write.c would not have written is refused before memory
 * is allocated for it, and every value is read, so that every checksum is checked. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/hdf5_file.h"
#include "kernels/types.h"
#include "kernels/words.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/layout.h"
#include "train/checkpoint/sums.h"

/* An error leaves groups and datasets open: mn_hdf5_close closes them with the file. */
struct reader {
  struct mn_hdf5_file file;
  struct mn_checkpoint *checkpoint;
  struct mn_sums *sums;
  int *damaged; /* the caller's: whether the file may be a damaged checkpoint of minnow's */
};

static const char remedy[] = "take an older checkpoint or a copy";

/* The message for content that a minnow checkpoint does not have. */
static mn_status refuse(const struct reader *reader, const char *name, const char *what) {
  return mn_fail(MN_BAD_DATA, "%s: %s %s: not as minnow writes checkpoints: %s", reader->file.path, name,
                 what, remedy);
}

/* Opens `name` in `parent`, which must be of `kind`: a group or a dataset. */
static mn_status find(const struct reader *reader, const struct mn_hdf5_object *parent, const char *name,
                      enum mn_hdf5_kind kind, struct mn_hdf5_object *object) {
  MN_TRY(mn_hdf5_find(&reader->file, parent, name, object));
  if (object->kind == MN_HDF5_NOTHING) return refuse(reader, name, "is missing");
  if (object->kind == kind) return MN_OK;
  return refuse(reader, name, kind == MN_HDF5_GROUP ? "is no group" : "is no dataset");
}

/* ---- attributes ---- */

static mn_status check_attributes(const struct reader *reader, const struct mn_hdf5_object *object,
                                  const char *path) {
  return mn_sums_check_attributes(reader->sums, &reader->file, object, path);
}

/* Reads an attribute of `count` numbers of 8 bytes (0: a scalar), or a text for MN_VALUE_TEXT. */
static mn_status read_attribute(const struct reader *reader, const struct mn_hdf5_object *object,
                                const char *name, enum mn_hdf5_value_kind kind, int count,
                                struct mn_hdf5_value *value) {
  MN_TRY(mn_hdf5_attribute(&reader->file, object, name, 0, value));
  if (value->kind == MN_VALUE_NONE) return refuse(reader, name, "is missing");
  if (kind == MN_VALUE_TEXT && value->kind != kind)
    return refuse(reader, name, "is no string of fixed length");
  if (value->kind != kind || (kind != MN_VALUE_TEXT && value->element != 8))
    return refuse(reader, name, "has another type");
  if (value->scalar != (count == 0) || (count > 0 && value->count != count))
    return refuse(reader, name, "has another shape");
  return MN_OK;
}

static mn_status take_text(const struct reader *reader, const char *name, const struct mn_hdf5_value *value,
                           char *text, size_t size) {
  if (value->element >= size) return refuse(reader, name, "is too long a string");
  memcpy(text, value->text, value->element + 1); /* shorter than `size`, and followed by zeros */
  return MN_OK;
}

/* An unknown word is a newer minnow's, and no damage: its checksum is right. */
static mn_status take_word(const struct reader *reader, const struct mn_checkpoint_field *field,
                           const char *text, void *to) {
  int word;
  if (mn_word_find(&word, field->name, field->words, text) != MN_OK) {
    *reader->damaged = 0;
    return mn_fail(MN_BAD_DATA, "%s cannot be used: %s", reader->file.path, mn_message());
  }
  memcpy(to, &word, sizeof word);
  return MN_OK;
}

static mn_status read_fields(const struct reader *reader, const struct mn_hdf5_object *object,
                             const struct mn_checkpoint_field *fields) {
  for (; fields->name; fields++) {
    struct mn_hdf5_value value;
    char *to = (char *)reader->checkpoint + fields->offset;
    if (fields->newer) {
      MN_TRY(mn_hdf5_attribute(&reader->file, object, fields->name, 0, &value));
      if (value.kind == MN_VALUE_NONE) continue;
    }
    MN_TRY(read_attribute(reader, object, fields->name, fields->kind, 0, &value));
    if (fields->words)
      MN_TRY(take_word(reader, fields, value.text, to));
    else
      memcpy(to, &value.integer, sizeof value.integer[0]); /* so are the union's other numbers */
  }
  return MN_OK;
}

/* Where the attributes of a group of texts go. */
struct texts {
  const struct reader *reader;
  struct mn_text *text;
  int capacity, *count;
};

static mn_status take_text_attribute(void *data, const char *name, const struct mn_hdf5_value *value) {
  const struct texts *texts = data;
  if (*texts->count == texts->capacity) return refuse(texts->reader, name, "is one text too many");
  struct mn_text *text = &texts->text[(*texts->count)++];
  if (strlen(name) >= sizeof text->name) return refuse(texts->reader, name, "is too long a name");
  if (value->kind != MN_VALUE_TEXT) return refuse(texts->reader, name, "is no string of fixed length");
  memcpy(text->name, name, strlen(name) + 1);
  return take_text(texts->reader, name, value, text->value, sizeof text->value);
}

/* /config, /fingerprint or /history. */
static mn_status read_texts(const struct reader *reader, const char *name, struct mn_text *text, int capacity,
                            int *count) {
  struct texts texts = {reader, text, capacity, count};
  struct mn_hdf5_object group;
  char path[MN_SUMS_PATH];
  snprintf(path, sizeof path, "%s/", name);
  MN_TRY(find(reader, &reader->file.root, name, MN_HDF5_GROUP, &group));
  MN_TRY(mn_hdf5_attributes(&reader->file, &group, H5_INDEX_CRT_ORDER, 0, take_text_attribute, &texts));
  MN_TRY(check_attributes(reader, &group, path));
  mn_hdf5_release(&group);
  return MN_OK;
}

/* Most runs have no history. */
static mn_status read_history(const struct reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  struct mn_hdf5_object group;
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, "history", &group));
  int none = group.kind == MN_HDF5_NOTHING;
  mn_hdf5_release(&group);
  if (none) return MN_OK;
  return read_texts(reader, "history", c->history, MN_CHECKPOINT_HISTORY, &c->history_count);
}

static mn_status read_progress(const struct reader *reader) {
  struct mn_progress *progress = &reader->checkpoint->progress;
  struct mn_hdf5_object group;
  progress->best_epoch = -1;
  MN_TRY(find(reader, &reader->file.root, "progress", MN_HDF5_GROUP, &group));
  MN_TRY(read_fields(reader, &group, mn_checkpoint_progress_fields));
  MN_TRY(check_attributes(reader, &group, "progress/"));
  mn_hdf5_release(&group);
  if (progress->best_epoch < 0)
    progress->best_epoch = progress->epoch; /* not known: patience counts from here */
  if (progress->step < 0 || progress->epoch < 0 || progress->position < 0 || progress->samples < 0)
    return refuse(reader, "progress", "is below zero");
  return MN_OK;
}

/* ---- tensors ---- */

/* Refuses a dataset that is not what write.c makes of `tensor`, or is not stored in full. A tensor->real of 0
 * is not known yet, and set from the dataset. */
static mn_status check_dataset(const struct reader *reader, struct mn_checkpoint_tensor *tensor,
                               const struct mn_hdf5_object *dataset) {
  const hsize_t *shape = dataset->shape;
  if (dataset->class != H5T_FLOAT || (dataset->element != 4 && dataset->element != 8) ||
      (tensor->real != 0 && tensor->real != dataset->element))
    return refuse(reader, tensor->name, "has another type than the model");
  tensor->real = dataset->element;
  if (dataset->layout != H5D_CHUNKED || dataset->external)
    return refuse(reader, tensor->name, "is not stored in chunks of this file");
  if (dataset->rank != tensor->rank || shape[tensor->rank - 1] != (hsize_t)tensor->cols ||
      (tensor->rank == 2 && shape[0] != (hsize_t)tensor->rows))
    return refuse(reader, tensor->name, "has another shape than the model's sizes say");
  if (dataset->filters != 1 || !dataset->checksum)
    return refuse(reader, tensor->name, "is not stored with a checksum and nothing else");
  if (dataset->chunk[0] > MN_HDF5_TRANSFER ||
      dataset->chunk[0] * (tensor->rank == 2 ? dataset->chunk[1] : 1) > MN_HDF5_TRANSFER / tensor->real)
    return refuse(reader, tensor->name, "is stored in chunks that are too large");
  if (dataset->stored < dataset->bytes) return refuse(reader, tensor->name, "declares more than is stored");
  return mn_hdf5_check(&reader->file, dataset);
}

/* The factors of a weight, where they are there. */
static mn_status read_factors(const struct reader *reader, const struct mn_hdf5_object *dataset,
                              struct mn_checkpoint_tensor *tensor) {
  char path[MN_SUMS_PATH];
  for (const struct mn_checkpoint_field *field = mn_checkpoint_tensor_fields; field->name; field++) {
    struct mn_hdf5_value value;
    int exponent;
    MN_TRY(mn_hdf5_attribute(&reader->file, dataset, field->name, 0, &value));
    if (value.kind == MN_VALUE_NONE) continue;
    MN_TRY(read_attribute(reader, dataset, field->name, MN_VALUE_REAL, 0, &value));
    double factor = value.real[0];
    if (!(factor >= 1 / (double)MN_FACTOR_MOST && factor <= (double)MN_FACTOR_MOST) ||
        frexp(factor, &exponent) != 0.5)
      return refuse(reader, field->name, "is no factor");
    memcpy((char *)tensor + field->offset, &factor, sizeof factor);
  }
  if (!mn_checkpoint_has_factors(tensor)) return MN_OK;
  mn_checkpoint_factors_path(path, tensor);
  return check_attributes(reader, dataset, path);
}

/* Reads one of a tensor's arrays from `group`, at `path`, into new memory; `factors`: with the tensor's. */
static mn_status read_array(const struct reader *reader, const struct mn_hdf5_object *group, const char *path,
                            struct mn_checkpoint_tensor *tensor, void **values, int factors) {
  struct mn_hdf5_object dataset;
  struct mn_hdf5_slab slab;
  MN_TRY(find(reader, group, tensor->name, MN_HDF5_DATASET, &dataset));
  MN_TRY(check_dataset(reader, tensor, &dataset));
  if (factors) MN_TRY(read_factors(reader, &dataset, tensor));
  enum mn_hdf5_memory memory = tensor->real == 8 ? MN_HDF5_DOUBLE : MN_HDF5_FLOAT;
  char *to = *values = malloc((size_t)dataset.bytes);
  if (!to)
    return mn_fail(MN_NO_MEMORY, "no memory for the %" PRIu64 " bytes of %s", dataset.bytes, tensor->name);
  for (mn_checkpoint_slabs(&slab, tensor); slab.elements; mn_hdf5_slab_next(&slab)) {
    MN_TRY(mn_hdf5_read(&reader->file, &dataset, memory, &slab, to));
    to += slab.elements * tensor->real;
  }
  const size_t bytes = (size_t)dataset.bytes;
  mn_hdf5_release(&dataset);
  return mn_sums_check_values(reader->sums, &reader->file, path, tensor->name, *values, bytes);
}

static mn_status read_tensor(const struct reader *reader, const struct mn_hdf5_object *group,
                             struct mn_checkpoint_tensor *tensor, int which) {
  return read_array(reader, group, mn_checkpoint_arrays[which].group, tensor,
                    mn_checkpoint_array(tensor, which), which == MN_CHECKPOINT_VALUE);
}

/* Refuses a group with more members than the model has tensors. */
static mn_status check_count(const struct reader *reader, const struct mn_hdf5_object *group) {
  hsize_t count;
  MN_TRY(mn_hdf5_count(&reader->file, group, &count));
  if (count > (hsize_t)mn_checkpoint_expected(reader->checkpoint))
    return refuse(reader, group->name, "holds tensors that the model does not have");
  return MN_OK;
}

/* ---- groups ---- */

/* Refuses sizes in /model that make no model, or are so large that a product of two could overflow. */
static mn_status check_sizes(const struct reader *reader) {
  const struct mn_model_config *m = &reader->checkpoint->model;
  const int64_t most = INT64_C(1) << 28;
  int good = m->inputs >= 1 && m->inputs <= most && m->head >= 0 && m->head <= most && m->groups >= 1;
  for (int i = 0; good && i < m->depth; i++)
    good = m->hidden[i] >= 1 && m->hidden[i] <= most && m->hidden[i] % m->groups == 0;
  return good ? MN_OK : refuse(reader, "model", "has sizes that make no model");
}

static mn_status read_sizes(const struct reader *reader, const struct mn_hdf5_object *group) {
  struct mn_model_config *model = &reader->checkpoint->model;
  struct mn_hdf5_value hidden;
  MN_TRY(check_attributes(reader, group, "model/"));
  MN_TRY(read_fields(reader, group, mn_checkpoint_model_fields));
  if (model->depth < 1 || model->depth > MN_MODEL_DEPTH) return refuse(reader, "depth", "is out of range");
  MN_TRY(read_attribute(reader, group, "hidden", MN_VALUE_INTEGER, (int)model->depth, &hidden));
  memcpy(model->hidden, hidden.integer, (size_t)model->depth * sizeof hidden.integer[0]);
  model->plan = MN_PLAN_BLOCK;
  MN_TRY(check_sizes(reader));
  return check_count(reader, group);
}

static mn_status read_model(const struct reader *reader) {
  struct mn_checkpoint *checkpoint = reader->checkpoint;
  struct mn_hdf5_object group;
  MN_TRY(find(reader, &reader->file.root, "model", MN_HDF5_GROUP, &group));
  MN_TRY(read_sizes(reader, &group));
  int count = mn_checkpoint_expected(checkpoint);
  checkpoint->tensors = calloc((size_t)count, sizeof *checkpoint->tensors);
  if (!checkpoint->tensors) return mn_fail(MN_NO_MEMORY, "no memory for %d tensors", count);
  checkpoint->tensor_count = count;
  for (int i = 0; i < count; i++) {
    struct mn_checkpoint_tensor *tensor = &checkpoint->tensors[i];
    mn_checkpoint_expect(checkpoint, i, tensor);
    tensor->real = i > 0 ? tensor[-1].real : 0;
    MN_TRY(read_tensor(reader, &group, tensor, MN_CHECKPOINT_VALUE));
  }
  mn_hdf5_release(&group);
  return MN_OK;
}

/* Most models take rows as they are. */
static mn_status read_input(const struct reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  struct mn_hdf5_object group;
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, MN_CHECKPOINT_INPUTS, &group));
  if (group.kind == MN_HDF5_NOTHING) return MN_OK;
  if (group.kind != MN_HDF5_GROUP) return refuse(reader, MN_CHECKPOINT_INPUTS, "is no group");
  for (int k = 0; k < MN_CHECKPOINT_INPUT; k++) {
    mn_checkpoint_expect_input(c, k, &c->input[k]);
    MN_TRY(read_array(reader, &group, MN_CHECKPOINT_INPUTS, &c->input[k], &c->input[k].value, 0));
  }
  mn_hdf5_release(&group);
  return MN_OK;
}

/* Reads the arrays `which` of all tensors from the group below /optimizer, where that is there. */
static mn_status read_kept(const struct reader *reader, const struct mn_hdf5_object *optimizer, int which) {
  const struct mn_checkpoint *checkpoint = reader->checkpoint;
  struct mn_hdf5_object group;
  MN_TRY(mn_hdf5_find(&reader->file, optimizer, mn_checkpoint_kept(which), &group));
  if (group.kind == MN_HDF5_NOTHING) return MN_OK;
  if (group.kind != MN_HDF5_GROUP) return refuse(reader, mn_checkpoint_kept(which), "is no group");
  MN_TRY(check_count(reader, &group));
  for (int i = 0; i < checkpoint->tensor_count; i++)
    MN_TRY(read_tensor(reader, &group, &checkpoint->tensors[i], which));
  mn_hdf5_release(&group);
  return MN_OK;
}

static mn_status read_optimizer(const struct reader *reader) {
  struct mn_hdf5_object group;
  MN_TRY(find(reader, &reader->file.root, "optimizer", MN_HDF5_GROUP, &group));
  for (int k = MN_CHECKPOINT_VALUE + 1; k < MN_CHECKPOINT_ARRAYS; k++) MN_TRY(read_kept(reader, &group, k));
  mn_hdf5_release(&group);
  return MN_OK;
}

/* ---- the file ---- */

mn_status mn_checkpoint_format(const struct mn_hdf5_file *file, int *ours) {
  struct mn_hdf5_value format;
  *ours = 0;
  MN_TRY(mn_hdf5_attribute(file, &file->root, "format", 0, &format));
  *ours = format.kind == MN_VALUE_TEXT && strcmp(format.text, MN_CHECKPOINT_FORMAT) == 0;
  return MN_OK;
}

mn_status mn_checkpoint_recognise(const char *path, int *ours) {
  struct mn_hdf5_file file;
  MN_TRY(mn_hdf5_open(&file, path, remedy, 0));
  mn_status status = mn_checkpoint_format(&file, ours);
  mn_hdf5_close(&file);
  return status;
}

/* Refuses a file that is no checkpoint of minnow's or of a newer version: *damaged is 0 for both. */
static mn_status check_format(const struct reader *reader) {
  struct mn_hdf5_value version;
  int ours;
  MN_TRY(mn_checkpoint_format(&reader->file, &ours));
  if (!ours) {
    *reader->damaged = 0;
    return mn_fail(MN_BAD_DATA,
                   "%s is an HDF5 file but no minnow checkpoint (no attribute format = \"%s\"): name "
                   "another file; a new run may begin from weights alone by --init",
                   reader->file.path, MN_CHECKPOINT_FORMAT);
  }
  MN_TRY(read_attribute(reader, &reader->file.root, "format_version", MN_VALUE_INTEGER, 0, &version));
  if (version.integer[0] > MN_CHECKPOINT_VERSION) {
    *reader->damaged = 0;
    return mn_fail(MN_BAD_DATA,
                   "%s has format_version %" PRId64 ", this minnow reads up to %d: take a newer minnow",
                   reader->file.path, version.integer[0], MN_CHECKPOINT_VERSION);
  }
  return version.integer[0] < 1 ? refuse(reader, "format_version", "is below 1") : MN_OK;
}

/* A model without its training has two groups, a checkpoint five, or six with its history; /input is one
 * more. */
static mn_status read_kind(const struct reader *reader) {
  hsize_t count;
  struct mn_hdf5_object input;
  MN_TRY(check_format(reader));
  MN_TRY(mn_sums_read(reader->sums, &reader->file));
  MN_TRY(check_attributes(reader, &reader->file.root, "/"));
  reader->checkpoint->checksums = reader->sums->lines;
  MN_TRY(mn_hdf5_count(&reader->file, &reader->file.root, &count));
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, MN_CHECKPOINT_INPUTS, &input));
  reader->checkpoint->alone = count == (input.kind == MN_HDF5_NOTHING ? 2 : 3);
  mn_hdf5_release(&input);
  return MN_OK;
}

static mn_status read_options(const struct reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  if (c->alone) return MN_OK;
  return read_texts(reader, "config", c->options, MN_CHECKPOINT_OPTIONS, &c->option_count);
}

static mn_status read_file(const struct reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  MN_TRY(read_kind(reader));
  MN_TRY(read_model(reader));
  MN_TRY(read_input(reader));
  if (!c->alone) {
    MN_TRY(read_optimizer(reader));
    MN_TRY(read_progress(reader));
  }
  MN_TRY(read_options(reader));
  MN_TRY(read_texts(reader, "fingerprint", c->fingerprint, MN_CHECKPOINT_FINGERPRINT, &c->fingerprint_count));
  if (!c->alone) MN_TRY(read_history(reader));
  return mn_sums_check_met(reader->sums, &reader->file);
}

/* Sizes, constants and options. */
static mn_status read_config(const struct reader *reader) {
  struct mn_hdf5_object group;
  MN_TRY(read_kind(reader));
  MN_TRY(find(reader, &reader->file.root, "model", MN_HDF5_GROUP, &group));
  MN_TRY(read_sizes(reader, &group));
  mn_hdf5_release(&group);
  return read_options(reader);
}

/* Opens a file and reads it, or a part of it, by `read`. */
static mn_status load(struct mn_checkpoint **out, const char *path, int *damaged,
                      mn_status (*read)(const struct reader *reader)) {
  struct mn_sums sums;
  struct reader reader = {.sums = &sums, .damaged = damaged};
  *out = NULL;
  mn_status status = mn_hdf5_open(&reader.file, path, remedy, 0);
  *damaged = reader.file.signature;
  if (status != MN_OK) return status;
  reader.checkpoint = calloc(1, sizeof *reader.checkpoint);
  status = reader.checkpoint ? read(&reader) : mn_fail(MN_NO_MEMORY, "no memory for %s", path);
  mn_hdf5_close(&reader.file);
  if (status == MN_OK)
    *out = reader.checkpoint;
  else
    mn_checkpoint_free(reader.checkpoint);
  return status;
}

mn_status mn_checkpoint_read(struct mn_checkpoint **out, const char *path, int *damaged) {
  return load(out, path, damaged, read_file);
}

mn_status mn_checkpoint_read_config(struct mn_checkpoint **out, const char *path) {
  int damaged;
  return load(out, path, &damaged, read_config);
}

mn_status mn_checkpoint_load(struct mn_checkpoint **out, const char *path) {
  int damaged;
  return mn_checkpoint_read(out, path, &damaged);
}
