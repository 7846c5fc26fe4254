/* Reads checkpoints, and trusts nothing in them: what is not as checkpoint.c writes it is refused, before
 * memory is asked for it, and every value is read so that every checksum is checked.
 *
 * libhdf5 has had memory errors on files made to mislead it; so links other than plain ones, storage outside
 * the file, filters other than the checksum, and sizes beyond what is stored are turned away first. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/hdf5.h"
#include "data/hdf5_disk.h"
#include "train/checkpoint/atomic_file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/layout.h"

/* A file on its way to a checkpoint. */
struct reader {
  const char *path;
  struct mn_hdf5_disk disk;
  uint64_t size; /* of the file, in bytes */
  hid_t file;
  struct mn_checkpoint *checkpoint;
};

static const char remedy[] = "take an older checkpoint or a copy";

/* The message for an HDF5 call that failed while reading `name`. */
static mn_status read_failed(const struct reader *reader, const char *name) {
  char reason[160];
  mn_hdf5_reason(reason, sizeof reason);
  if (reader->disk.error) return mn_atomic_file_fail("read", reader->path, reader->disk.error);
  return mn_fail(MN_BAD_DATA, "%s is damaged at %s (HDF5: %s): %s", reader->path, name, reason, remedy);
}

/* The message for content that a minnow checkpoint does not have. */
static mn_status refuse(const struct reader *reader, const char *name, const char *what) {
  return mn_fail(MN_BAD_DATA, "%s: %s %s: not as minnow writes checkpoints: %s", reader->path, name, what,
                 remedy);
}

/* Opens the group or dataset (`type`) `name` right in `parent`, through a plain link only; *object is to be
 * closed with H5Oclose. */
static mn_status open_object(const struct reader *reader, hid_t *object, hid_t parent, const char *name,
                             H5I_type_t type) {
  *object = -1;
  H5L_info_t link;
  htri_t there = H5Lexists(parent, name, H5P_DEFAULT);
  if (there == 0) return refuse(reader, name, "is missing");
  if (there < 0 || H5Lget_info(parent, name, &link, H5P_DEFAULT) < 0) return read_failed(reader, name);
  if (link.type != H5L_TYPE_HARD) return refuse(reader, name, "is a soft or external link");
  hid_t opened = H5Oopen(parent, name, H5P_DEFAULT);
  if (opened < 0) return read_failed(reader, name);
  if (H5Iget_type(opened) != type) {
    H5Oclose(opened);
    return refuse(reader, name, type == H5I_GROUP ? "is no group" : "is no dataset");
  }
  *object = opened;
  return MN_OK;
}

/* Reads an open attribute of `count` elements (0: a scalar) of exactly file_type. */
static mn_status read_values(const struct reader *reader, hid_t attribute, const char *name, hid_t file_type,
                             hid_t memory_type, hsize_t count, void *value) {
  mn_status status = MN_OK;
  hsize_t found = 0;
  hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
  int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
  if (rank == 1) H5Sget_simple_extent_dims(space, &found, NULL);
  if (type < 0 || rank < 0)
    status = read_failed(reader, name);
  else if (H5Tequal(type, file_type) <= 0)
    status = refuse(reader, name, "has another type");
  else if (rank != (count > 0) || found != count || H5Sget_simple_extent_type(space) == H5S_NULL)
    status = refuse(reader, name, "has another shape");
  else if (H5Aread(attribute, memory_type, value) < 0)
    status = read_failed(reader, name);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  return status;
}

/* Reads an open string attribute into text[size]. */
static mn_status read_string(const struct reader *reader, hid_t attribute, const char *name, char *text,
                             size_t size) {
  mn_status status = MN_OK;
  hid_t type = H5Aget_type(attribute);
  size_t length = type < 0 ? 0 : H5Tget_size(type);
  memset(text, 0, size);
  if (type < 0)
    status = read_failed(reader, name);
  else if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0)
    status = refuse(reader, name, "is no string of fixed length");
  else if (length >= size)
    status = refuse(reader, name, "is too long a string");
  else
    status = read_values(reader, attribute, name, type, type, 0, text);
  if (type >= 0) H5Tclose(type);
  return status;
}

/* Opens attribute `name`, to be closed with H5Aclose. */
static mn_status open_attribute(const struct reader *reader, hid_t *attribute, hid_t object,
                                const char *name) {
  *attribute = -1;
  htri_t there = H5Aexists(object, name);
  if (there == 0) return refuse(reader, name, "is missing");
  if (there > 0) *attribute = H5Aopen(object, name, H5P_DEFAULT);
  return *attribute < 0 ? read_failed(reader, name) : MN_OK;
}

static mn_status read_attribute(const struct reader *reader, hid_t object, const char *name, hid_t file_type,
                                hid_t memory_type, hsize_t count, void *value) {
  hid_t attribute;
  MN_TRY(open_attribute(reader, &attribute, object, name));
  mn_status status = read_values(reader, attribute, name, file_type, memory_type, count, value);
  H5Aclose(attribute);
  return status;
}

static mn_status read_text(const struct reader *reader, hid_t object, const char *name, char *text,
                           size_t size) {
  hid_t attribute;
  MN_TRY(open_attribute(reader, &attribute, object, name));
  mn_status status = read_string(reader, attribute, name, text, size);
  H5Aclose(attribute);
  return status;
}

static mn_status read_field(const struct reader *reader, hid_t object,
                            const struct mn_checkpoint_field *field) {
  char *value = (char *)reader->checkpoint + field->offset;
  switch (field->kind) {
  case MN_FIELD_TEXT:
    return read_text(reader, object, field->name, value, field->size);
  case MN_FIELD_INTEGER:
    return read_attribute(reader, object, field->name, H5T_STD_I64LE, H5T_NATIVE_INT64, 0, value);
  case MN_FIELD_UNSIGNED:
    return read_attribute(reader, object, field->name, H5T_STD_U64LE, H5T_NATIVE_UINT64, 0, value);
  default:
    return read_attribute(reader, object, field->name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 0, value);
  }
}

static mn_status read_fields(const struct reader *reader, hid_t object,
                             const struct mn_checkpoint_field *fields) {
  for (; fields->name; fields++) MN_TRY(read_field(reader, object, fields));
  return MN_OK;
}

/* Where H5Aiterate puts the options of a group. */
struct options {
  const struct reader *reader;
  struct mn_text *option;
  int count, capacity;
  mn_status status;
};

static herr_t take_option(hid_t group, const char *name, const H5A_info_t *info, void *data) {
  (void)info;
  struct options *options = data;
  if (options->count == options->capacity) {
    options->status = refuse(options->reader, name, "is one option too many");
    return -1;
  }
  struct mn_text *option = &options->option[options->count++];
  if (strlen(name) >= sizeof option->name) {
    options->status = refuse(options->reader, name, "is too long a name");
    return -1;
  }
  snprintf(option->name, sizeof option->name, "%s", name);
  options->status = read_text(options->reader, group, name, option->value, sizeof option->value);
  return options->status == MN_OK ? 0 : -1;
}

static mn_status read_options(const struct reader *reader, const char *name, struct mn_text *option,
                              int capacity, int *count) {
  struct options options = {reader, option, 0, capacity, MN_OK};
  hid_t group;
  MN_TRY(open_object(reader, &group, reader->file, name, H5I_GROUP));
  hsize_t next = 0;
  if (H5Aiterate2(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, &next, take_option, &options) < 0 &&
      options.status == MN_OK)
    options.status = read_failed(reader, name);
  H5Oclose(group);
  *count = options.count;
  return options.status;
}

/* The sizes in /model must make a model, and none so large that a product of two overflows. */
static mn_status check_sizes(const struct reader *reader) {
  const struct mn_checkpoint *checkpoint = reader->checkpoint;
  const int64_t most = INT64_C(1) << 28;
  if (checkpoint->inputs < 1 || checkpoint->inputs > most || checkpoint->head < 0 ||
      checkpoint->head > most || checkpoint->groups < 1)
    return refuse(reader, "model", "has sizes that make no model");
  for (int i = 0; i < checkpoint->depth; i++) {
    int64_t channels = checkpoint->hidden[i];
    if (channels < 1 || channels > most || channels % checkpoint->groups != 0)
      return refuse(reader, "model", "has sizes that make no model");
  }
  return MN_OK;
}

/* That a dataset is what create_dataset in checkpoint.c makes of `tensor`, and is stored in full. Sets `real`
 * of a tensor that has 0. */
static mn_status check_type(const struct reader *reader, struct mn_checkpoint_tensor *tensor, hid_t type,
                            hid_t space) {
  hsize_t shape[2] = {0, 0};
  int skip = 2 - tensor->rank;
  size_t real = H5Tequal(type, H5T_IEEE_F32LE) > 0 ? 4 : H5Tequal(type, H5T_IEEE_F64LE) > 0 ? 8 : 0;
  if (real == 0 || (tensor->real != 0 && tensor->real != real))
    return refuse(reader, tensor->name, "has another type than the model");
  tensor->real = real;
  if (H5Sget_simple_extent_ndims(space) != tensor->rank ||
      H5Sget_simple_extent_dims(space, shape, NULL) < 0 || shape[1 - skip] != (hsize_t)tensor->cols ||
      (skip == 0 && shape[0] != (hsize_t)tensor->rows))
    return refuse(reader, tensor->name, "has another shape than the model's sizes say");
  return MN_OK;
}

static mn_status check_storage(const struct reader *reader, const struct mn_checkpoint_tensor *tensor,
                               hid_t dataset, hid_t creation) {
  unsigned flags, options[4];
  size_t option_count = 4;
  hsize_t chunk[2] = {1, 1};
  if (H5Pget_layout(creation) != H5D_CHUNKED || H5Pget_external_count(creation) != 0)
    return refuse(reader, tensor->name, "is not stored in chunks of this file");
  if (H5Pget_nfilters(creation) != 1 ||
      H5Pget_filter2(creation, 0, &flags, &option_count, options, 0, NULL, NULL) != H5Z_FILTER_FLETCHER32)
    return refuse(reader, tensor->name, "is not stored with a checksum and nothing else");
  if (H5Pget_chunk(creation, tensor->rank, chunk) != tensor->rank || chunk[0] > MN_HDF5_PIECE ||
      chunk[0] * chunk[1] > MN_HDF5_PIECE / tensor->real)
    return refuse(reader, tensor->name, "is stored in chunks that are too large");
  hsize_t stored = H5Dget_storage_size(dataset);
  if (stored < (hsize_t)(tensor->rows * tensor->cols) * tensor->real || stored > reader->size)
    return refuse(reader, tensor->name, "declares more than is stored");
  return MN_OK;
}

static mn_status check_dataset(const struct reader *reader, struct mn_checkpoint_tensor *tensor,
                               hid_t dataset) {
  hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  hid_t creation = H5Dget_create_plist(dataset);
  mn_status status;
  if (type < 0 || space < 0 || creation < 0)
    status = read_failed(reader, tensor->name);
  else
    status = check_type(reader, tensor, type, space);
  if (status == MN_OK) status = check_storage(reader, tensor, dataset, creation);
  if (creation >= 0) H5Pclose(creation);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  return status;
}

/* The message is made before anything is closed: every call to HDF5 clears the error of the one before. */
static mn_status read_band(const struct reader *reader, hid_t dataset,
                           const struct mn_checkpoint_tensor *tensor, const struct mn_checkpoint_band *band,
                           char *values) {
  int skip = 2 - tensor->rank;
  mn_status status = MN_OK;
  hsize_t offset = band->start[0] * (hsize_t)tensor->cols + band->start[1];
  /* In memory the same shape as in the file, or HDF5 goes through it element by element. */
  hid_t memory = H5Screate_simple(tensor->rank, band->count + skip, NULL), space = H5Dget_space(dataset);
  if (memory < 0 || space < 0 ||
      H5Sselect_hyperslab(space, H5S_SELECT_SET, band->start + skip, NULL, band->count + skip, NULL) < 0 ||
      H5Dread(dataset, mn_checkpoint_memory_type(tensor->real), memory, space, H5P_DEFAULT,
              values + offset * tensor->real) < 0)
    status = read_failed(reader, tensor->name);
  if (space >= 0) H5Sclose(space);
  if (memory >= 0) H5Sclose(memory);
  return status;
}

/* Reads `tensor` from `group` into new memory, *values, letting go of the lock after every band. */
static mn_status read_tensor(const struct reader *reader, hid_t group, struct mn_checkpoint_tensor *tensor,
                             void **values) {
  hid_t dataset;
  struct mn_checkpoint_band band = {{0, 0}, {0, 0}};
  mn_hdf5_lock();
  mn_status status = open_object(reader, &dataset, group, tensor->name, H5I_DATASET);
  if (status == MN_OK) status = check_dataset(reader, tensor, dataset);
  mn_hdf5_unlock();
  if (status == MN_OK) {
    size_t bytes = (size_t)(tensor->rows * tensor->cols) * tensor->real;
    *values = malloc(bytes);
    if (!*values) status = mn_fail(MN_NO_MEMORY, "no memory for the %zu bytes of %s", bytes, tensor->name);
  }
  while (status == MN_OK && mn_checkpoint_next_band(&band, tensor)) {
    mn_hdf5_lock();
    status = read_band(reader, dataset, tensor, &band, *values);
    mn_hdf5_unlock();
  }
  mn_hdf5_lock();
  if (dataset >= 0) H5Oclose(dataset);
  mn_hdf5_unlock();
  return status;
}

/* That `group` holds the model's tensors and no others. */
static mn_status check_count(const struct reader *reader, hid_t group, const char *name) {
  H5G_info_t info;
  if (H5Gget_info(group, &info) < 0) return read_failed(reader, name);
  if (info.nlinks > (hsize_t)mn_checkpoint_expected(reader->checkpoint))
    return refuse(reader, name, "holds tensors that the model does not have");
  return MN_OK;
}

static mn_status read_sizes(const struct reader *reader, hid_t group) {
  struct mn_checkpoint *checkpoint = reader->checkpoint;
  MN_TRY(read_fields(reader, group, mn_checkpoint_model_fields));
  if (checkpoint->depth < 1 || checkpoint->depth > MN_CHECKPOINT_BLOCKS)
    return refuse(reader, "depth", "is out of range");
  MN_TRY(read_attribute(reader, group, "hidden", H5T_STD_I64LE, H5T_NATIVE_INT64, (hsize_t)checkpoint->depth,
                        checkpoint->hidden));
  MN_TRY(check_sizes(reader));
  return check_count(reader, group, "model");
}

static void close_object(hid_t object) {
  mn_hdf5_lock();
  if (object >= 0) H5Oclose(object);
  mn_hdf5_unlock();
}

static mn_status read_model(const struct reader *reader) {
  struct mn_checkpoint *checkpoint = reader->checkpoint;
  hid_t group;
  mn_hdf5_lock();
  mn_status status = open_object(reader, &group, reader->file, "model", H5I_GROUP);
  if (status == MN_OK) status = read_sizes(reader, group);
  mn_hdf5_unlock();
  int count = status == MN_OK ? mn_checkpoint_expected(checkpoint) : 0;
  if (status == MN_OK) {
    checkpoint->tensors = calloc((size_t)count, sizeof *checkpoint->tensors);
    checkpoint->tensor_count = checkpoint->tensors ? count : 0;
    if (!checkpoint->tensors) status = mn_fail(MN_NO_MEMORY, "no memory for %d tensors", count);
  }
  for (int i = 0; status == MN_OK && i < count; i++) {
    struct mn_checkpoint_tensor *tensor = &checkpoint->tensors[i];
    mn_checkpoint_expect(checkpoint, i, tensor);
    tensor->real = i > 0 ? tensor[-1].real : 0;
    status = read_tensor(reader, group, tensor, &tensor->value);
  }
  close_object(group);
  return status;
}

static mn_status read_optimizer(const struct reader *reader) {
  const struct mn_checkpoint *checkpoint = reader->checkpoint;
  hid_t group, momentum = -1;
  mn_hdf5_lock();
  mn_status status = open_object(reader, &group, reader->file, "optimizer", H5I_GROUP);
  if (status == MN_OK) {
    htri_t there = H5Lexists(group, "momentum", H5P_DEFAULT);
    if (there < 0) status = read_failed(reader, "optimizer");
    if (there > 0) status = open_object(reader, &momentum, group, "momentum", H5I_GROUP);
  }
  if (status == MN_OK && momentum >= 0) status = check_count(reader, momentum, "momentum");
  mn_hdf5_unlock();
  for (int i = 0; status == MN_OK && momentum >= 0 && i < checkpoint->tensor_count; i++)
    status = read_tensor(reader, momentum, &checkpoint->tensors[i], &checkpoint->tensors[i].momentum);
  close_object(momentum);
  close_object(group);
  return status;
}

static mn_status read_progress(const struct reader *reader) {
  struct mn_checkpoint *checkpoint = reader->checkpoint;
  hid_t group;
  MN_TRY(open_object(reader, &group, reader->file, "progress", H5I_GROUP));
  mn_status status = read_fields(reader, group, mn_checkpoint_progress_fields);
  H5Oclose(group);
  if (status == MN_OK && (checkpoint->progress.step < 0 || checkpoint->progress.epoch < 0 ||
                          checkpoint->progress.position < 0 || checkpoint->progress.samples < 0))
    status = refuse(reader, "progress", "is below zero");
  return status;
}

static mn_status read_small(const struct reader *reader) {
  struct mn_checkpoint *checkpoint = reader->checkpoint;
  MN_TRY(read_progress(reader));
  MN_TRY(
      read_options(reader, "config", checkpoint->options, MN_CHECKPOINT_OPTIONS, &checkpoint->option_count));
  return read_options(reader, "fingerprint", checkpoint->fingerprint, MN_CHECKPOINT_FINGERPRINT,
                      &checkpoint->fingerprint_count);
}

/* That it is a checkpoint of ours, and of a version that is known here. */
static mn_status check_format(const struct reader *reader) {
  char format[sizeof MN_CHECKPOINT_FORMAT + 32] = "";
  int64_t version = 0;
  htri_t there = H5Aexists(reader->file, "format");
  if (there < 0) return read_failed(reader, "format");
  if (there == 0 || read_text(reader, reader->file, "format", format, sizeof format) != MN_OK ||
      strcmp(format, MN_CHECKPOINT_FORMAT) != 0)
    return mn_fail(MN_BAD_DATA, "%s is an HDF5 file but no minnow checkpoint (no attribute format = \"%s\")",
                   reader->path, MN_CHECKPOINT_FORMAT);
  MN_TRY(
      read_attribute(reader, reader->file, "format_version", H5T_STD_I64LE, H5T_NATIVE_INT64, 0, &version));
  if (version > MN_CHECKPOINT_VERSION)
    return mn_fail(MN_BAD_DATA,
                   "%s has format_version %" PRId64 ", this minnow reads up to %d: take a newer minnow",
                   reader->path, version, MN_CHECKPOINT_VERSION);
  if (version < 1) return refuse(reader, "format_version", "is below 1");
  return MN_OK;
}

static mn_status read_file(struct reader *reader) {
  mn_status status = MN_OK;
  mn_hdf5_lock();
  reader->file = mn_hdf5_disk_open(&reader->disk, reader->path);
  if (reader->file < 0 && reader->disk.error)
    status = mn_atomic_file_fail("read", reader->path, reader->disk.error);
  else if (reader->file < 0)
    status = mn_fail(MN_BAD_DATA, "%s is no HDF5 file, or cut short (%llu bytes; HDF5: %s): %s", reader->path,
                     (unsigned long long)reader->size, reader->disk.reason, remedy);
  if (status == MN_OK) status = check_format(reader);
  mn_hdf5_unlock();
  if (status == MN_OK) status = read_model(reader);
  if (status == MN_OK) status = read_optimizer(reader);
  mn_hdf5_lock();
  if (status == MN_OK) status = read_small(reader);
  if (reader->file >= 0 && H5Fclose(reader->file) < 0 && status == MN_OK)
    status = read_failed(reader, "the end");
  mn_hdf5_unlock();
  return status;
}

mn_status mn_checkpoint_load(struct mn_checkpoint **out, const char *path) {
  struct reader reader = {.path = path, .file = -1};
  *out = NULL;
  MN_TRY(mn_atomic_file_open(&reader.disk.fd, &reader.size, path));
  reader.checkpoint = calloc(1, sizeof *reader.checkpoint);
  mn_status status = reader.checkpoint ? read_file(&reader) : mn_fail(MN_NO_MEMORY, "no memory for %s", path);
  close(reader.disk.fd);
  if (status == MN_OK)
    *out = reader.checkpoint;
  else
    mn_checkpoint_free(reader.checkpoint);
  return status;
}
