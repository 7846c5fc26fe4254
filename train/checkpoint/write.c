/* Writes checkpoints, as layout.c describes them. */
#include "train/checkpoint/checkpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/hdf5/hdf5.h"
#include "train/checkpoint/layout.h"

/* The lock of data/hdf5/hdf5.h is held from the first call to HDF5 to the last, except for a moment after
 * each slab. An error leaves attributes, groups and datasets open: H5Fclose closes them
 * (H5F_CLOSE_STRONG). */
struct writer {
  const struct mn_checkpoint *checkpoint;
  struct mn_hdf5_file file; /* its path, remedy, disk and root alone */
  hid_t creation;           /* properties of the file and of each group */
  struct mn_sums sums;
};

/* The message for an HDF5 call that failed while writing `name`: the disk's error, if there is one. */
static mn_status write_failed(const struct writer *writer, const char *name) {
  if (writer->file.disk.error)
    return mn_atomic_file_fail("write", writer->file.path, writer->file.disk.error);
  return mn_fail(MN_LIBRARY, "cannot write %s of %s: HDF5: %s", name, writer->file.path, mn_hdf5_reason());
}

/* An attribute of `count` elements; count 0 means a scalar. */
static mn_status write_attribute(struct writer *writer, hid_t object, const char *name, hid_t file_type,
                                 hid_t memory_type, hsize_t count, const void *value) {
  hid_t space = count > 0 ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
  int whole = attribute >= 0 && H5Awrite(attribute, memory_type, value) >= 0 && H5Aclose(attribute) >= 0;
  mn_status status = whole ? MN_OK : write_failed(writer, name);
  if (space >= 0) H5Sclose(space);
  return status;
}

static mn_status write_text(struct writer *writer, hid_t object, const char *name, const char *text) {
  hid_t type = mn_hdf5_text_type(strlen(text));
  mn_status status =
      type < 0 ? write_failed(writer, name) : write_attribute(writer, object, name, type, type, 0, text);
  if (type >= 0) H5Tclose(type);
  return status;
}

/* Writes the members of `of` that `fields` lists. */
static mn_status write_fields(struct writer *writer, hid_t object, const struct mn_checkpoint_field *fields,
                              const void *of) {
  const hid_t types[][2] = {[MN_VALUE_INTEGER] = {H5T_STD_I64LE, H5T_NATIVE_INT64},
                            [MN_VALUE_UNSIGNED] = {H5T_STD_U64LE, H5T_NATIVE_UINT64},
                            [MN_VALUE_REAL] = {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}};
  _Static_assert(sizeof types / sizeof *types == MN_VALUE_TEXT, "types for each kind of number");
  for (; fields->name; fields++) {
    const void *value = mn_checkpoint_value(fields, of);
    if (fields->optional == MN_FIELD_FACTOR && *(const double *)value == 0) continue;
    MN_TRY(fields->kind == MN_VALUE_TEXT
               ? write_text(writer, object, fields->name, value)
               : write_attribute(writer, object, fields->name, types[fields->kind][0], types[fields->kind][1],
                                 (hsize_t)mn_checkpoint_length(fields, of), value));
  }
  return MN_OK;
}

/* Writes one of a tensor's arrays into the group at `path`; with its value, its factors. */
static mn_status write_array(struct writer *writer, hid_t group, const char *path,
                             const struct mn_checkpoint_tensor *tensor, int which) {
  const hsize_t shape[2] = {(hsize_t)tensor->rows, (hsize_t)tensor->cols};
  const char *values = tensor->arrays[which];
  const int wide = tensor->real == 8;
  const hid_t stored = wide ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
  const hid_t memory = wide ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
  const hid_t dataset = mn_hdf5_create(group, tensor->name, stored, tensor->rank, shape + 2 - tensor->rank);
  struct mn_hdf5_slab slab;
  if (dataset < 0) return write_failed(writer, tensor->name);
  if (which == MN_CHECKPOINT_VALUE)
    MN_TRY(write_fields(writer, dataset, mn_checkpoint_tensor_fields, tensor));
  MN_TRY(mn_sums_values(&writer->sums, NULL, path, tensor->name, values,
                        (size_t)(tensor->rows * tensor->cols) * tensor->real));
  for (mn_hdf5_slab_rows(&slab, tensor->rank, shape + 2 - tensor->rank, 0, tensor->real); slab.elements;
       mn_hdf5_slab_next(&slab)) {
    if (mn_hdf5_write(dataset, memory, &slab, values) < 0 || writer->file.disk.error)
      return write_failed(writer, tensor->name);
    values += slab.elements * tensor->real;
    mn_hdf5_unlock(); /* a loader waits for one slab at most */
    mn_hdf5_lock();
  }
  return H5Dclose(dataset) < 0 ? write_failed(writer, tensor->name) : MN_OK;
}

/* Writes the group at `path`: the attributes of `fields`, unless NULL, and `count` texts or, if `texts` is
 * NULL, the arrays `which` of as many tensors. */
static mn_status write_group(struct writer *writer, const char *path,
                             const struct mn_checkpoint_field *fields, const struct mn_text *texts,
                             const struct mn_checkpoint_tensor *tensors, int count, int which) {
  hid_t group = H5Gcreate2(writer->file.root.id, path, H5P_DEFAULT, writer->creation, H5P_DEFAULT);
  if (group < 0) return write_failed(writer, path);
  if (fields) MN_TRY(write_fields(writer, group, fields, writer->checkpoint));
  for (int i = 0; i < count; i++)
    MN_TRY(texts ? write_text(writer, group, texts[i].name, texts[i].value)
                 : write_array(writer, group, path, &tensors[i], which));
  return H5Gclose(group) < 0 ? write_failed(writer, "a group") : MN_OK;
}

/* Writes a group with one dataset of `count` texts, each of `width` bytes. */
static mn_status write_texts(struct writer *writer, const char *path, const char *name, hsize_t count,
                             size_t width, const char *texts) {
  const struct mn_hdf5_slab all = {.rank = 1, .count = {count}};
  hid_t group = H5Gcreate2(writer->file.root.id, path, H5P_DEFAULT, writer->creation, H5P_DEFAULT);
  hid_t type = mn_hdf5_text_type(width);
  hid_t dataset = group < 0 || type < 0 ? -1 : mn_hdf5_create(group, name, type, 1, &count);
  mn_status status = mn_sums_values(&writer->sums, NULL, path, name, texts, count * width);
  if (dataset < 0 || mn_hdf5_write(dataset, type, &all, texts) < 0 || writer->file.disk.error)
    status = write_failed(writer, path);
  if (dataset >= 0) H5Dclose(dataset);
  if (type >= 0) H5Tclose(type);
  return group < 0 || H5Gclose(group) < 0 ? write_failed(writer, "a group") : status;
}

/* Names have the width of the longest. */
static mn_status write_names(struct writer *writer) {
  const struct mn_class_names *names = &writer->checkpoint->class_names;
  const size_t count = (size_t)names->count;
  size_t width = 1;
  for (size_t k = 0; k < count; k++)
    if (strlen(names->names[k]) > width) width = strlen(names->names[k]);
  char *packed = calloc(count, width);
  if (!packed) return mn_fail(MN_NO_MEMORY, "no memory for the names of classes");
  for (size_t k = 0; k < count; k++) memcpy(packed + k * width, names->names[k], strlen(names->names[k]));
  const mn_status status = write_texts(writer, MN_CHECKPOINT_CLASSES, "names", count, width, packed);
  free(packed);
  return status;
}

/* Properties of the file and of each group: no times; links and attributes in order of creation, all in the
 * object's own header, since the B-trees that HDF5 uses for more than a few could be damaged too. */
static mn_status create_file(struct writer *writer) {
  const unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
  const hid_t creation = writer->creation = H5Pcreate(H5P_FILE_CREATE); /* also for groups */
  if (creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
      H5Pset_link_creation_order(creation, order) >= 0 && H5Pset_attr_creation_order(creation, order) >= 0 &&
      H5Pset_link_phase_change(creation, MN_CHECKPOINT_TENSORS, 0) >= 0 &&
      H5Pset_attr_phase_change(creation, MN_CHECKPOINT_TENSORS, 0) >= 0)
    writer->file.root.id = mn_hdf5_disk_open(&writer->file.disk, writer->file.path, writer->creation);
  if (writer->file.root.id >= 0) return MN_OK;
  if (writer->file.disk.error) return write_failed(writer, "it");
  return mn_fail(MN_LIBRARY, "cannot create %s: HDF5: %s", writer->file.path, writer->file.disk.reason);
}

static mn_status write_all(struct writer *writer) {
  const struct mn_checkpoint *c = writer->checkpoint;
  /* The least that the content needs, so that an older minnow reads it, or refuses it. */
  const int named = c->class_names.count || c->standard[MN_Y]->value;
  const int64_t version = c->log != 0 ? 5 : c->table ? 4 : named ? 3 : 2;
  MN_TRY(create_file(writer));
  MN_TRY(write_text(writer, writer->file.root.id, "format", MN_CHECKPOINT_FORMAT));
  MN_TRY(write_attribute(writer, writer->file.root.id, "format_version", H5T_STD_I64LE, H5T_NATIVE_INT64, 0,
                         &version));
  if (c->trained) MN_TRY(write_text(writer, writer->file.root.id, "trained", c->trained));
  MN_TRY(write_group(writer, "model", mn_checkpoint_model_fields, NULL, c->tensors, c->tensor_count,
                     MN_CHECKPOINT_VALUE));
  for (int side = 0; side < MN_SIDES; side++)
    if (c->standard[side][0].value)
      MN_TRY(write_group(writer, mn_checkpoint_standards[side], NULL, NULL, c->standard[side],
                         MN_CHECKPOINT_STANDARD, MN_CHECKPOINT_VALUE));
  if (c->class_names.count) MN_TRY(write_names(writer));
  if (c->table) MN_TRY(write_texts(writer, MN_CHECKPOINT_TABLE, "columns", 1, strlen(c->table), c->table));
  if (!c->alone) {
    MN_TRY(write_group(writer, "optimizer", NULL, NULL, NULL, 0, 0));
    for (int k = MN_CHECKPOINT_VALUE + 1; k < MN_CHECKPOINT_ARRAYS; k++)
      if (c->tensors->arrays[k])
        MN_TRY(write_group(writer, mn_checkpoint_groups[k], NULL, NULL, c->tensors, c->tensor_count, k));
    MN_TRY(write_group(writer, "progress", mn_checkpoint_progress_fields, NULL, NULL, 0, 0));
    MN_TRY(write_group(writer, "config", NULL, c->options, NULL, c->option_count, 0));
  }
  MN_TRY(write_group(writer, "fingerprint", NULL, c->fingerprint, NULL, c->fingerprint_count, 0));
  if (c->history_count > 0)
    MN_TRY(write_group(writer, "history", NULL, c->history, NULL, c->history_count, 0));
  return write_text(writer, writer->file.root.id, MN_SUMS_ATTRIBUTE, writer->sums.text);
}

static mn_status write_file(const struct mn_checkpoint *checkpoint, const struct mn_atomic_file *file) {
  struct writer writer = {
      .checkpoint = checkpoint,
      .file = {.path = file->path, .remedy = "save it anew", .disk = {.fd = file->fd}, .root = {.id = -1}},
      .creation = -1,
      .sums = {.writing = 1}};
  MN_TRY(mn_hdf5_begin());
  mn_status status = write_all(&writer);
  if (writer.creation >= 0) H5Pclose(writer.creation);
  int closed = writer.file.root.id < 0 || H5Fclose(writer.file.root.id) >= 0;
  if (status == MN_OK && (!closed || writer.file.disk.error)) status = write_failed(&writer, "the end");
  mn_hdf5_end();
  return status;
}

/* A file beyond the limit on sizes is an error, not the end of a program that has no handler of SIGXFSZ. */
mn_status mn_checkpoint_write(const struct mn_checkpoint *checkpoint, struct mn_atomic_file *file,
                              const char *path) {
  const struct timespec at_once = {0, 0};
  sigset_t limit, before;
  MN_TRY(mn_atomic_file_create(file, path));
  MN_REQUIRE(sigemptyset(&limit) == 0 && sigaddset(&limit, SIGXFSZ) == 0);
  MN_REQUIRE(pthread_sigmask(SIG_BLOCK, &limit, &before) == 0);
  mn_status status = write_file(checkpoint, file);
  if (!sigismember(&before, SIGXFSZ)) (void)sigtimedwait(&limit, NULL, &at_once);
  MN_REQUIRE(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
  if (status == MN_OK) status = mn_atomic_file_sync(file);
  if (status != MN_OK) mn_atomic_file_discard(file);
  return status;
}
