/* Reads checkpoints strictly: content that write.c does not write is refused. Before a value is read, one
 * message lists all tensors that do not fit (misfits.c); each value that has a checksum is compared with it.
 * The values of a model are read in the same way from weights alone (weights.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/hdf5/file.h"
#include "data/hdf5/hdf5.h"
#include "kernels/text.h"
#include "train/checkpoint/reader.h"

/* The message for content that a minnow checkpoint does not have. */
static mn_status refuse(struct mn_reader *reader, const char *name, const char *what) {
  return mn_fail(MN_BAD_DATA, "%s: %s %s: not as minnow writes checkpoints: %s", reader->file.path, name,
                 what, reader->file.remedy);
}

/* Opens `name` in `parent`, which must be of `kind`: a group or a dataset, or, if `optional`, missing. */
static mn_status find_object(struct mn_reader *reader, const struct mn_hdf5_object *parent, const char *name,
                             enum mn_hdf5_kind kind, int optional, struct mn_hdf5_object *object) {
  MN_TRY(mn_hdf5_find(&reader->file, parent, name, object));
  if (object->kind == kind || (optional && object->kind == MN_HDF5_NOTHING)) return MN_OK;
  if (object->kind == MN_HDF5_NOTHING) return refuse(reader, name, "is missing");
  return refuse(reader, name, kind == MN_HDF5_GROUP ? "is no group" : "is no dataset");
}

/* ---- attributes ---- */

/* Reads an attribute of `count` numbers of 8 bytes (0 for a scalar), or a text for MN_VALUE_TEXT. One that is
 * `optional` may be missing. */
static mn_status read_attribute(struct mn_reader *reader, const struct mn_hdf5_object *object,
                                const char *name, enum mn_hdf5_value_kind kind, int count, int optional,
                                struct mn_hdf5_value *value) {
  MN_TRY(mn_hdf5_attribute(&reader->file, object, name, 0, value));
  if (value->kind == MN_VALUE_NONE) return optional ? MN_OK : refuse(reader, name, "is missing");
  if (value->kind != kind || (kind != MN_VALUE_TEXT && value->element != 8) ||
      value->scalar != (count == 0) || (count > 0 && value->count != count))
    return refuse(reader, name, "has another type or shape");
  return MN_OK;
}

/* An unknown word is a newer minnow's, and no damage: its checksum is right. */
static mn_status take_word(struct mn_reader *reader, const struct mn_checkpoint_field *field,
                           const char *text, void *to) {
  int word;
  if (mn_word_find(&word, field->name, field->words, text) != MN_OK) {
    reader->damaged = 0;
    return mn_fail(MN_BAD_DATA, "%s cannot be used: %s", reader->file.path, mn_message());
  }
  memcpy(to, &word, sizeof word);
  return MN_OK;
}

/* Reads the members of `of` that `fields` lists. */
static mn_status read_fields(struct mn_reader *reader, const struct mn_hdf5_object *object,
                             const struct mn_checkpoint_field *fields, void *of) {
  for (; fields->name; fields++) {
    struct mn_hdf5_value value;
    char *to = (char *)of + fields->offset;
    const int64_t length = mn_checkpoint_length(fields, of);
    if (fields->length_offset && (length < 1 || length > MN_MODEL_DEPTH))
      return refuse(reader, fields->name, "has a length that is out of range");
    MN_TRY(read_attribute(reader, object, fields->name, fields->kind, (int)length, fields->optional != 0,
                          &value));
    if (value.kind == MN_VALUE_NONE) continue;
    if (fields->words)
      MN_TRY(take_word(reader, fields, value.text, to));
    else
      memcpy(to, value.integer, /* so are the union's other numbers */
             (length ? (size_t)length : 1) * sizeof *value.integer);
  }
  return MN_OK;
}

/* The memory for the attributes of a group of texts. */
struct texts {
  struct mn_reader *reader;
  struct mn_text *text;
  int capacity, *count;
};

static mn_status take_text(void *data, const char *name, const struct mn_hdf5_value *value) {
  const struct texts *texts = data;
  if (*texts->count == texts->capacity) return refuse(texts->reader, name, "is one text too many");
  struct mn_text *text = &texts->text[(*texts->count)++];
  if (strlen(name) >= sizeof text->name || value->kind != MN_VALUE_TEXT ||
      value->element >= sizeof text->value)
    return refuse(texts->reader, name, "is no string of fixed length, or too long");
  memcpy(text->name, name, strlen(name) + 1);
  memcpy(text->value, value->text, strlen(value->text) + 1);
  return MN_OK;
}

/* Reads the attributes of a group: `fields`, or texts if that is NULL. Most runs have no history. */
static mn_status read_small(struct mn_reader *reader, const char *name, int optional,
                            const struct mn_checkpoint_field *fields, struct mn_text *text, int capacity,
                            int *count) {
  struct texts texts = {reader, text, capacity, count};
  struct mn_hdf5_object group;
  MN_TRY(find_object(reader, &reader->file.root, name, MN_HDF5_GROUP, optional, &group));
  if (group.kind == MN_HDF5_NOTHING) return MN_OK;
  MN_TRY(fields ? read_fields(reader, &group, fields, reader->checkpoint)
                : mn_hdf5_attributes(&reader->file, &group, H5_INDEX_CRT_ORDER, 0, take_text, &texts));
  mn_hdf5_release(&group);
  return MN_OK;
}

static mn_status read_progress(struct mn_reader *reader) {
  struct mn_progress *progress = &reader->checkpoint->progress;
  progress->best_epoch = -1;
  MN_TRY(read_small(reader, "progress", 0, mn_checkpoint_progress_fields, NULL, 0, NULL));
  if (progress->best_epoch < 0)
    progress->best_epoch = progress->epoch; /* unknown, so patience counts from here */
  if (progress->step < 0 || progress->epoch < 0 || progress->position < 0 || progress->samples < 0)
    return refuse(reader, "progress", "is below zero");
  return MN_OK;
}

/* ---- tensors ---- */

/* Reads a dataset as floats of `real` bytes into new memory, in place of what *values had. */
static mn_status read_values(struct mn_reader *reader, const struct mn_hdf5_object *dataset, size_t real,
                             void **values) {
  const size_t widest = dataset->element > real ? dataset->element : real;
  const size_t bytes = (size_t)dataset->bytes / dataset->element * real;
  struct mn_hdf5_slab slab;
  free(*values);
  char *to = *values = malloc(bytes);
  if (!to) return mn_fail(MN_NO_MEMORY, "no memory for the %zu bytes of %s", bytes, dataset->name);
  for (mn_hdf5_slab_rows(&slab, dataset->rank, dataset->shape, 0, widest); slab.elements;
       mn_hdf5_slab_next(&slab)) {
    MN_TRY(mn_hdf5_read(&reader->file, dataset, real == 8 ? MN_HDF5_DOUBLE : MN_HDF5_FLOAT, &slab, to));
    to += slab.elements * real;
  }
  return MN_OK;
}

/* Compares a dataset with its checksum, of values in their stored width; `values` have `real` bytes. */
static mn_status check_sum(struct mn_reader *reader, const struct mn_hdf5_object *dataset, const char *path,
                           void *values, size_t real) {
  const size_t stored = dataset->element == 8 ? 8 : 4;
  const size_t bytes = (size_t)dataset->bytes / dataset->element * stored;
  void *again = NULL;
  if (reader->sums.lines == 0) return MN_OK;
  mn_status status = stored == real ? MN_OK : read_values(reader, dataset, stored, &again);
  if (status == MN_OK)
    status = mn_sums_values(&reader->sums, &reader->file, path, dataset->name, again ? again : values, bytes);
  free(again);
  return status;
}

/* Reads one of a tensor's arrays into new memory; with its value, its factors. */
static mn_status read_array(struct mn_reader *reader, const struct mn_reader_tensors *t,
                            struct mn_checkpoint_tensor *tensor) {
  void **values = &tensor->arrays[t->which];
  struct mn_hdf5_object dataset;
  MN_TRY(find_object(reader, &t->group, tensor->name, MN_HDF5_DATASET, 0, &dataset));
  MN_TRY(mn_hdf5_check(&reader->file, &dataset));
  if (!reader->weights && dataset.stored < dataset.bytes)
    return refuse(reader, tensor->name, "declares more than is stored");
  if (t->which == MN_CHECKPOINT_VALUE && !reader->weights)
    MN_TRY(read_fields(reader, &dataset, mn_checkpoint_tensor_fields, tensor));
  MN_TRY(read_values(reader, &dataset, tensor->real, values));
  MN_TRY(check_sum(reader, &dataset, t->path, *values, tensor->real));
  mn_hdf5_release(&dataset);
  if (!reader->weights) return MN_OK;
  return mn_dataset_check_finite(reader->file.path, tensor->name, 0, tensor->cols,
                                 tensor->rows * tensor->cols, tensor->value, tensor->real);
}

/* Reads the arrays in the group at `path`, if it is there. */
static mn_status read_tensors(struct mn_reader *reader, const char *path,
                              struct mn_checkpoint_tensor *tensors, int count, int which) {
  struct mn_reader_tensors t = {
      .reader = reader, .path = path, .tensors = tensors, .count = count, .which = which};
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, path, &t.group));
  if (t.group.kind == MN_HDF5_NOTHING) return MN_OK;
  if (t.group.kind != MN_HDF5_GROUP) return reader->weights ? MN_OK : refuse(reader, path, "is no group");
  MN_TRY(mn_reader_fit(reader, &t));
  for (int i = 0; i < count; i++) MN_TRY(read_array(reader, &t, &tensors[i]));
  mn_hdf5_release(&t.group);
  return MN_OK;
}

mn_status mn_reader_model(struct mn_reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  MN_TRY(read_tensors(reader, "/model", c->tensors, c->tensor_count, MN_CHECKPOINT_VALUE));
  for (int side = 0; side < MN_SIDES; side++)
    MN_TRY(read_tensors(reader, mn_checkpoint_standards[side], c->standard[side], MN_CHECKPOINT_STANDARD,
                        MN_CHECKPOINT_VALUE));
  return MN_OK;
}

/* ---- groups ---- */

/* Reads the attributes of /model. Refuses sizes that make no model, or are so large that a product of two
 * could overflow. */
static mn_status read_sizes(struct mn_reader *reader) {
  struct mn_model_config *m = &reader->checkpoint->model;
  const int64_t most = INT64_C(1) << 28;
  MN_TRY(read_small(reader, "model", 0, mn_checkpoint_model_fields, NULL, 0, NULL));
  m->plan = MN_PLAN_STACK;
  int good = m->inputs >= 1 && m->inputs <= most && m->head >= 0 && m->head <= most && m->groups >= 1;
  for (int i = 0; good && i < m->depth; i++)
    good = m->hidden[i] >= 1 && m->hidden[i] <= most && m->hidden[i] % m->groups == 0;
  return good ? MN_OK : refuse(reader, "model", "has sizes that make no model");
}

/* Reads a dataset of `count` texts of `width` bytes, at most, if the group has it; *out has a zero behind. */
static mn_status read_texts(struct mn_reader *reader, const char *group, const char *name, int64_t count,
                            size_t *width, char **out) {
  struct mn_hdf5_object parent, texts;
  struct mn_hdf5_slab all = {.rank = 1, .count = {(hsize_t)count}, .elements = (hsize_t)count};
  MN_TRY(find_object(reader, &reader->file.root, group, MN_HDF5_GROUP, 1, &parent));
  if (parent.kind == MN_HDF5_NOTHING) return MN_OK;
  MN_TRY(find_object(reader, &parent, name, MN_HDF5_DATASET, 0, &texts));
  MN_TRY(mn_hdf5_check(&reader->file, &texts));
  if (texts.class != H5T_STRING || texts.pointing || texts.element > *width || texts.rank != 1 ||
      texts.shape[0] != (hsize_t)count)
    return refuse(reader, group, "has other texts");
  *width = texts.element;
  if (!(*out = calloc((size_t)count * *width + 1, 1)))
    return mn_fail(MN_NO_MEMORY, "no memory for %s", group);
  MN_TRY(mn_hdf5_read(&reader->file, &texts, MN_HDF5_STORED, &all, *out));
  MN_TRY(mn_sums_values(&reader->sums, &reader->file, group, name, *out, (size_t)count * *width));
  mn_hdf5_release(&texts);
  mn_hdf5_release(&parent);
  return MN_OK;
}

/* Copies the names of classes, one for each output, each greater than the one before. */
static mn_status take_names(struct mn_reader *reader, const char *packed, int64_t outputs, size_t width) {
  struct mn_class_names *names = &reader->checkpoint->class_names;
  *names = (struct mn_class_names){outputs, calloc((size_t)outputs, sizeof *names->names)};
  if (!names->names) return mn_fail(MN_NO_MEMORY, "no memory for the names of classes");
  for (int64_t k = 0; k < outputs; k++) {
    memcpy(names->names[k], packed + (size_t)k * width, width);
    if (k && strcmp(names->names[k - 1], names->names[k]) >= 0)
      return refuse(reader, MN_CHECKPOINT_CLASSES, "is not in order");
  }
  return MN_OK;
}

/* Reads the names of classes and the table of columns, if the file has them. */
static mn_status read_names(struct mn_reader *reader) {
  const int64_t outputs = mn_model_outputs(&reader->checkpoint->model);
  size_t width = MN_CLASS_NAME - 1, most = (size_t)1 << 28;
  char *packed = NULL;
  mn_status status = read_texts(reader, MN_CHECKPOINT_CLASSES, "names", outputs, &width, &packed);
  if (status == MN_OK && packed) status = take_names(reader, packed, outputs, width);
  free(packed);
  MN_TRY(status);
  return read_texts(reader, MN_CHECKPOINT_TABLE, "columns", 1, &most, &reader->checkpoint->table);
}

/* ---- the file ---- */

/* Refuses a file that is not a checkpoint of minnow's or has a newer version; neither counts as damaged. */
static mn_status check_format(struct mn_reader *reader) {
  struct mn_hdf5_value version;
  int ours;
  MN_TRY(mn_checkpoint_format(&reader->file, &ours));
  reader->damaged &= ours;
  if (!ours)
    return mn_fail(MN_BAD_DATA,
                   "%s is an HDF5 file but no minnow checkpoint (no attribute format = \"%s\"): name "
                   "another file; a new run may begin from weights alone by --init",
                   reader->file.path, MN_CHECKPOINT_FORMAT);
  MN_TRY(read_attribute(reader, &reader->file.root, "format_version", MN_VALUE_INTEGER, 0, 0, &version));
  if (version.integer[0] > MN_CHECKPOINT_VERSION) {
    reader->damaged = 0;
    return mn_fail(MN_BAD_DATA,
                   "%s has format_version %" PRId64 ", this minnow reads up to %d: take a newer minnow",
                   reader->file.path, version.integer[0], MN_CHECKPOINT_VERSION);
  }
  reader->checkpoint->version = version.integer[0];
  if (version.integer[0] != 1)
    return version.integer[0] < 1 ? refuse(reader, "format_version", "is below 1") : MN_OK;
  reader->damaged = 0;
  return mn_fail(
      MN_BAD_DATA,
      "%s has format_version 1, which minnow 0.3.0 was the last to read: resumed there for a step, it "
      "is saved as one that this minnow reads",
      reader->file.path);
}

/* A model without its training has no /optimizer. */
static mn_status read_kind(struct mn_reader *reader) {
  struct mn_hdf5_object optimizer;
  struct mn_hdf5_value trained;
  MN_TRY(check_format(reader));
  MN_TRY(mn_sums_read(&reader->sums, &reader->file));
  reader->checkpoint->checksums = reader->sums.lines;
  MN_TRY(mn_hdf5_attribute(&reader->file, &reader->file.root, "trained", 0, &trained));
  if (trained.kind == MN_VALUE_TEXT && !(reader->checkpoint->trained = strdup(trained.text)))
    return mn_fail(MN_NO_MEMORY, "no memory for %s", reader->file.path);
  MN_TRY(mn_hdf5_find(&reader->file, &reader->file.root, "optimizer", &optimizer));
  reader->checkpoint->alone = optimizer.kind == MN_HDF5_NOTHING;
  mn_hdf5_release(&optimizer);
  return MN_OK;
}

static mn_status read_config(struct mn_reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  MN_TRY(read_kind(reader));
  MN_TRY(read_sizes(reader));
  MN_TRY(read_names(reader));
  if (c->alone) return MN_OK;
  return read_small(reader, "config", 0, NULL, c->options, MN_CHECKPOINT_OPTIONS, &c->option_count);
}

static mn_status read_all(struct mn_reader *reader) {
  struct mn_checkpoint *c = reader->checkpoint;
  MN_TRY(read_config(reader));
  MN_TRY(mn_checkpoint_lay_out(c));
  MN_TRY(mn_reader_model(reader));
  if (!c->alone) {
    for (int k = MN_CHECKPOINT_VALUE + 1; k < MN_CHECKPOINT_ARRAYS; k++)
      MN_TRY(read_tensors(reader, mn_checkpoint_groups[k], c->tensors, c->tensor_count, k));
    MN_TRY(read_progress(reader));
    MN_TRY(read_small(reader, "history", 1, NULL, c->history, MN_CHECKPOINT_HISTORY, &c->history_count));
  }
  MN_TRY(read_small(reader, "fingerprint", 0, NULL, c->fingerprint, MN_CHECKPOINT_FINGERPRINT,
                    &c->fingerprint_count));
  const struct mn_sums *sums = &reader->sums;
  if (sums->met == sums->lines) return MN_OK;
  return mn_fail(MN_BAD_DATA, "%s is damaged: %d of the %d things that its checksums cover are not there: %s",
                 reader->file.path, sums->lines - sums->met, sums->lines, reader->file.remedy);
}

mn_status mn_reader_run(mn_status (*read)(struct mn_reader *reader), struct mn_reader *reader,
                        const char *path, const char *remedy, int shared) {
  mn_status status = mn_hdf5_open(&reader->file, path, remedy, shared);
  reader->damaged = reader->file.signature;
  if (status != MN_OK) return status;
  status = read(reader);
  mn_hdf5_close(&reader->file);
  return status;
}

static mn_status read_by(mn_status (*read)(struct mn_reader *reader), struct mn_checkpoint **out,
                         const char *path, int *damaged) {
  struct mn_reader reader = {.checkpoint = *out = calloc(1, sizeof **out)};
  if (!*out) return mn_fail(MN_NO_MEMORY, "no memory for %s", path);
  const mn_status status = mn_reader_run(read, &reader, path, "take an older checkpoint or a copy", 0);
  if (damaged) *damaged = reader.damaged && !reader.file.newer;
  if (status != MN_OK) mn_checkpoint_free(*out), *out = NULL;
  return status;
}

mn_status mn_checkpoint_read(struct mn_checkpoint **out, const char *path, int *damaged) {
  return read_by(read_all, out, path, damaged);
}

mn_status mn_checkpoint_load(struct mn_checkpoint **out, const char *path) {
  MN_OPENS(out, path);
  return read_by(read_all, out, path, NULL);
}

mn_status mn_checkpoint_read_config(struct mn_checkpoint **out, const char *path) {
  return read_by(read_config, out, path, NULL);
}
