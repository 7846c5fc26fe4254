/* Looking into HDF5 files of any making; see inspect_hdf5.h. Separate from checkpoint_read.c, which knows
 * what it expects and refuses the rest: here everything is welcome, and only damage is an error. */
#include "train/command/inspect_hdf5.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/hdf5.h"
#include "train/checkpoint/atomic_file.h"
#include "train/checkpoint/layout.h"

/* Deep enough for anyone; and names in all, since hard links can make a small file look endless. */
enum { DEEPEST = 16, MOST_OBJECTS = 100000, NAME_SIZE = 1024 };

/* The densest that deflate packs is 1032 to 1: a dataset that declares more than that times what is stored
 * was made to exhaust whoever reads it. */
enum { DENSEST = 1032 };

static mn_status damaged(const struct mn_hdf5_file *file, const char *name) {
  char reason[160];
  mn_hdf5_reason(reason, sizeof reason);
  if (file->disk.error) return mn_atomic_file_fail("read", file->path, file->disk.error);
  return mn_fail(MN_BAD_DATA, "%s is damaged at %s (HDF5: %s): take a copy or make it anew", file->path, name,
                 reason);
}

mn_status mn_hdf5_file_open(struct mn_hdf5_file *file, const char *path) {
  *file = (struct mn_hdf5_file){.path = path, .id = -1};
  MN_TRY(mn_atomic_file_open(&file->disk.fd, &file->size, path));
  mn_hdf5_lock();
  file->id = mn_hdf5_disk_open(&file->disk, path);
  mn_hdf5_unlock();
  if (file->id >= 0) return MN_OK;
  close(file->disk.fd);
  if (file->disk.error) return mn_atomic_file_fail("read", path, file->disk.error);
  return mn_fail(MN_BAD_DATA, "%s is no HDF5 file, or cut short (%" PRIu64 " bytes; HDF5: %s)", path,
                 file->size, file->disk.reason);
}

void mn_hdf5_file_close(struct mn_hdf5_file *file) {
  mn_hdf5_lock();
  H5Fclose(file->id);
  mn_hdf5_unlock();
  close(file->disk.fd);
}

static void type_name(char *out, size_t size, hid_t type) {
  static const char *const names[] = {"integer",  "float",     "time", "string",    "bitfield", "opaque",
                                      "compound", "reference", "enum", "sequences", "array"};
  H5T_class_t class = H5Tget_class(type);
  size_t bits = 8 * H5Tget_size(type);
  if (class == H5T_INTEGER)
    snprintf(out, size, "%s%zu", H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int", bits);
  else if (class == H5T_FLOAT)
    snprintf(out, size, "float%zu", bits);
  else
    snprintf(out, size, "%s", class >= 0 && class <= H5T_ARRAY ? names[class] : "unknown");
}

/* Fills in what a dataset is. */
static mn_status describe_dataset(const struct mn_hdf5_file *file, struct mn_hdf5_object *object) {
  hid_t type = H5Dget_type(object->id), space = H5Dget_space(object->id);
  hid_t creation = H5Dget_create_plist(object->id);
  int whole = type >= 0 && space >= 0 && creation >= 0;
  if (whole) {
    hssize_t elements = H5Sget_simple_extent_npoints(space);
    type_name(object->type, sizeof object->type, type);
    object->rank = H5Sget_simple_extent_dims(space, object->shape, NULL);
    H5D_layout_t layout = H5Pget_layout(creation);
    object->chunked = layout == H5D_CHUNKED;
    object->outside = layout == H5D_VIRTUAL || H5Pget_external_count(creation) > 0;
    object->stored = object->outside ? 0 : H5Dget_storage_size(object->id);
    for (int i = 0, count = H5Pget_nfilters(creation); i < count; i++) {
      unsigned flags;
      size_t none = 0;
      if (H5Pget_filter2(creation, (unsigned)i, &flags, &none, NULL, 0, NULL, NULL) == H5Z_FILTER_FLETCHER32)
        object->checksum = 1;
    }
    whole = object->rank >= 0 && elements >= 0 && layout >= 0;
    if (__builtin_mul_overflow((uint64_t)elements, (uint64_t)H5Tget_size(type), &object->bytes))
      object->bytes = UINT64_MAX;
  }
  mn_status status = whole ? MN_OK : damaged(file, object->name);
  if (creation >= 0) H5Pclose(creation);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  return status;
}

/* Opens what `name` in `parent` leads to; `path` is its name from the root. */
static mn_status open_object(const struct mn_hdf5_file *file, struct mn_hdf5_object *object, hid_t parent,
                             const char *name, const char *path) {
  H5L_info_t link;
  *object = (struct mn_hdf5_object){.name = path, .kind = MN_HDF5_LINK, .id = -1};
  if (strcmp(path, "/") != 0) {
    if (H5Lget_info(parent, name, &link, H5P_DEFAULT) < 0) return damaged(file, path);
    if (link.type != H5L_TYPE_HARD) return MN_OK;
  }
  object->id = H5Oopen(parent, name, H5P_DEFAULT);
  if (object->id < 0) return damaged(file, path);
  H5I_type_t type = H5Iget_type(object->id);
  object->kind = type == H5I_GROUP ? MN_HDF5_GROUP : type == H5I_DATASET ? MN_HDF5_DATASET : MN_HDF5_OTHER;
  if (object->kind != MN_HDF5_DATASET) return MN_OK;
  mn_status status = describe_dataset(file, object);
  if (status != MN_OK) H5Oclose(object->id);
  return status;
}

struct walk {
  const struct mn_hdf5_file *file;
  mn_hdf5_visit *visit;
  void *data;
  int objects, depth;
};

static mn_status walk_object(struct walk *walk, hid_t parent, const char *name, const char *path);

static mn_status walk_member(struct walk *walk, hid_t group, const char *path, hsize_t index) {
  char name[NAME_SIZE], full[NAME_SIZE];
  mn_hdf5_lock();
  ssize_t length =
      H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, index, name, sizeof name, H5P_DEFAULT);
  mn_status status = length < 0 ? damaged(walk->file, path) : MN_OK;
  mn_hdf5_unlock();
  if (status != MN_OK) return status;
  int total = snprintf(full, sizeof full, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name);
  if (length >= NAME_SIZE || total >= NAME_SIZE)
    return mn_fail(MN_BAD_DATA, "%s: a name in %.60s is longer than %d bytes", walk->file->path, path,
                   NAME_SIZE);
  return walk_object(walk, group, name, full);
}

static mn_status walk_group(struct walk *walk, hid_t group, const char *path) {
  H5G_info_t info;
  mn_hdf5_lock();
  mn_status status = H5Gget_info(group, &info) < 0 ? damaged(walk->file, path) : MN_OK;
  mn_hdf5_unlock();
  if (status == MN_OK && walk->depth == DEEPEST)
    return mn_fail(MN_BAD_DATA, "%s: groups nested more than %d deep, or in a circle", walk->file->path,
                   DEEPEST);
  walk->depth++;
  for (hsize_t i = 0; status == MN_OK && i < info.nlinks; i++) status = walk_member(walk, group, path, i);
  walk->depth--;
  return status;
}

static mn_status walk_object(struct walk *walk, hid_t parent, const char *name, const char *path) {
  struct mn_hdf5_object object;
  if (++walk->objects > MOST_OBJECTS)
    return mn_fail(MN_BAD_DATA, "%s: more than %d objects, or groups in a circle", walk->file->path,
                   MOST_OBJECTS);
  mn_hdf5_lock();
  mn_status status = open_object(walk->file, &object, parent, name, path);
  mn_hdf5_unlock();
  if (status != MN_OK) return status;
  status = walk->visit(walk->data, walk->file, &object);
  if (status == MN_OK && object.kind == MN_HDF5_GROUP) status = walk_group(walk, object.id, path);
  mn_hdf5_lock();
  if (object.id >= 0) H5Oclose(object.id);
  mn_hdf5_unlock();
  return status;
}

mn_status mn_hdf5_walk(const struct mn_hdf5_file *file, mn_hdf5_visit *visit, void *data) {
  struct walk walk = {file, visit, data, 0, 0};
  return walk_object(&walk, file->id, "/", "/");
}

static int read_text(hid_t attribute, hid_t type, struct mn_hdf5_value *value) {
  size_t length = H5Tget_size(type);
  value->kind = MN_VALUE_TEXT;
  if (H5Tis_variable_str(type) > 0) {
    char *text = NULL;
    if (H5Aread(attribute, type, &text) < 0) return -1;
    snprintf(value->text, sizeof value->text, "%s", text ? text : "");
    H5free_memory(text);
    return 0;
  }
  char *text = calloc(length + 1, 1);
  int result = text ? (int)H5Aread(attribute, type, text) : -1;
  if (result >= 0) snprintf(value->text, sizeof value->text, "%s", text);
  free(text);
  return result;
}

static int read_value(hid_t attribute, hid_t type, hid_t space, struct mn_hdf5_value *value) {
  hssize_t count = H5Sget_simple_extent_npoints(space);
  H5T_class_t class = H5Tget_class(type);
  value->scalar = H5Sget_simple_extent_ndims(space) == 0;
  value->count = (int)(count < 0 || count > MN_HDF5_VALUES ? 0 : count);
  if (class == H5T_STRING && count == 1) return read_text(attribute, type, value);
  if ((class != H5T_INTEGER && class != H5T_FLOAT) || count < 0 || count > MN_HDF5_VALUES || count == 0) {
    value->kind = MN_VALUE_OTHER;
    type_name(value->text, sizeof value->text, type);
    return 0;
  }
  int is_unsigned = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_NONE;
  value->kind = class == H5T_FLOAT ? MN_VALUE_REAL : is_unsigned ? MN_VALUE_UNSIGNED : MN_VALUE_INTEGER;
  if (class == H5T_FLOAT) return H5Aread(attribute, H5T_NATIVE_DOUBLE, value->real);
  if (is_unsigned) return H5Aread(attribute, H5T_NATIVE_UINT64, value->whole);
  return H5Aread(attribute, H5T_NATIVE_INT64, value->integer);
}

struct attributes {
  const struct mn_hdf5_file *file;
  const char *name; /* of their object */
  mn_hdf5_take *take;
  void *data;
  mn_status status;
};

static herr_t visit_attribute(hid_t object, const char *name, const H5A_info_t *info, void *data) {
  (void)info;
  struct attributes *attributes = data;
  struct mn_hdf5_value value;
  memset(&value, 0, sizeof value);
  hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute),
        space = attribute < 0 ? -1 : H5Aget_space(attribute);
  int result = type < 0 || space < 0 ? -1 : read_value(attribute, type, space, &value);
  if (result >= 0)
    attributes->take(attributes->data, name, &value);
  else
    attributes->status = damaged(attributes->file, attributes->name); /* before anything is closed */
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
  return result < 0 ? -1 : 0;
}

mn_status mn_hdf5_attributes(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                             mn_hdf5_take *take, void *data) {
  struct attributes attributes = {file, object->name, take, data, MN_OK};
  hsize_t next = 0;
  mn_hdf5_lock();
  int failed = H5Aiterate2(object->id, H5_INDEX_NAME, H5_ITER_INC, &next, visit_attribute, &attributes) < 0;
  if (failed && attributes.status == MN_OK) attributes.status = damaged(file, object->name);
  mn_hdf5_unlock();
  return attributes.status;
}

/* Says in *data, an int, whether the root's attribute `format` is that of a checkpoint. */
static void take_format(void *data, const char *name, const struct mn_hdf5_value *value) {
  if (strcmp(name, "format") == 0 && value->kind == MN_VALUE_TEXT)
    *(int *)data = strcmp(value->text, MN_CHECKPOINT_FORMAT) == 0;
}

mn_status mn_hdf5_is_checkpoint(const struct mn_hdf5_file *file, int *checkpoint) {
  struct mn_hdf5_object root = {.name = "/", .kind = MN_HDF5_GROUP, .id = file->id};
  *checkpoint = 0;
  return mn_hdf5_attributes(file, &root, take_format, checkpoint);
}

/* How a dataset is read: stretch by stretch of step[] elements. Chunks whole, so that each is read once;
 * others in rows, or parts of one, of at most MN_HDF5_PIECE bytes. */
struct stretches {
  hid_t type, space;
  hsize_t step[MN_HDF5_RANK];
  size_t element; /* bytes */
  int pointers;   /* elements may point at memory that HDF5 gives and takes back */
  char *buffer;
};

static int chunk_steps(struct stretches *stretches, const struct mn_hdf5_object *object) {
  hid_t creation = H5Dget_create_plist(object->id);
  int rank = creation < 0 ? -1 : H5Pget_chunk(creation, object->rank, stretches->step);
  if (creation >= 0) H5Pclose(creation);
  return rank == object->rank ? 0 : -1;
}

static void row_steps(struct stretches *stretches, const struct mn_hdf5_object *object) {
  hsize_t room = MN_HDF5_PIECE / stretches->element;
  if (room == 0) room = 1;
  for (int i = object->rank - 1; i >= 0; i--) {
    stretches->step[i] = object->shape[i] < room ? object->shape[i] : room;
    room = stretches->step[i] < object->shape[i] ? 1 : room / stretches->step[i];
    if (room == 0) room = 1;
  }
}

/* The bytes of one stretch, and as many chunks along the first dimension as fit a piece; 0 on overflow. */
static uint64_t stretch_bytes(struct stretches *stretches, const struct mn_hdf5_object *object) {
  uint64_t bytes = stretches->element;
  for (int i = 0; i < object->rank; i++)
    if (__builtin_mul_overflow(bytes, (uint64_t)stretches->step[i], &bytes)) return 0;
  if (object->rank > 0 && object->chunked && bytes > 0 && bytes <= MN_HDF5_PIECE / 2) {
    uint64_t more = MN_HDF5_PIECE / bytes;
    stretches->step[0] *= more;
    bytes *= more;
  }
  return bytes;
}

static mn_status read_stretch(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                              const struct stretches *stretches, const hsize_t *start) {
  hsize_t count[MN_HDF5_RANK];
  mn_status status = MN_OK;
  for (int i = 0; i < object->rank; i++) {
    hsize_t left = object->shape[i] - start[i];
    count[i] = stretches->step[i] < left ? stretches->step[i] : left;
  }
  hid_t memory = H5Screate_simple(object->rank, count, NULL);
  if (memory < 0 ||
      (object->rank > 0 &&
       H5Sselect_hyperslab(stretches->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) ||
      H5Dread(object->id, stretches->type, memory, stretches->space, H5P_DEFAULT, stretches->buffer) < 0)
    status = damaged(file, object->name);
  else if (stretches->pointers)
    H5Dvlen_reclaim(stretches->type, memory, H5P_DEFAULT, stretches->buffer);
  if (memory >= 0) H5Sclose(memory);
  return status;
}

/* The start of the next stretch; 0 after the last. */
static int next_start(const struct stretches *stretches, const struct mn_hdf5_object *object,
                      hsize_t *start) {
  for (int i = object->rank - 1; i >= 0; i--) {
    start[i] += stretches->step[i];
    if (start[i] < object->shape[i]) return 1;
    start[i] = 0;
  }
  return 0;
}

static mn_status read_stretches(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                                struct stretches *stretches) {
  hsize_t start[MN_HDF5_RANK] = {0};
  mn_status status = MN_OK;
  do {
    mn_hdf5_lock();
    status = read_stretch(file, object, stretches, start);
    mn_hdf5_unlock();
  } while (status == MN_OK && next_start(stretches, object, start));
  return status;
}

static mn_status check_declared(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object) {
  if (object->outside)
    return mn_fail(MN_BAD_DATA, "%s: %s is stored in other files: it cannot be verified", file->path,
                   object->name);
  if (object->stored > file->size || object->bytes / DENSEST > object->stored ||
      (!object->chunked && object->bytes > object->stored))
    return mn_fail(MN_BAD_DATA,
                   "%s: %s declares %" PRIu64 " bytes, %" PRIu64 " are stored: cut short or made up",
                   file->path, object->name, object->bytes, object->stored);
  return MN_OK;
}

mn_status mn_hdf5_read_all(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object) {
  if (object->stored == 0 && !object->outside) return MN_OK; /* never written: nothing to check */
  if (object->bytes == 0) return MN_OK;
  MN_TRY(check_declared(file, object));
  struct stretches stretches = {.type = -1, .space = -1};
  mn_hdf5_lock();
  stretches.type = H5Dget_type(object->id);
  stretches.space = H5Dget_space(object->id);
  stretches.element = stretches.type < 0 ? 0 : H5Tget_size(stretches.type);
  int known = stretches.space >= 0 && stretches.element > 0;
  stretches.pointers = known && (H5Tdetect_class(stretches.type, H5T_VLEN) > 0 ||
                                 H5Tdetect_class(stretches.type, H5T_STRING) > 0);
  if (known && object->chunked) known = chunk_steps(&stretches, object) == 0;
  mn_status status = known ? MN_OK : damaged(file, object->name);
  mn_hdf5_unlock();
  if (known && !object->chunked) row_steps(&stretches, object);
  uint64_t bytes = known ? stretch_bytes(&stretches, object) : 0;
  if (known && (bytes == 0 || bytes / DENSEST > object->stored + MN_HDF5_PIECE))
    status = mn_fail(MN_BAD_DATA, "%s: %s has chunks far beyond what is stored", file->path, object->name);
  if (status == MN_OK) {
    stretches.buffer = malloc((size_t)bytes);
    if (!stretches.buffer) status = mn_fail(MN_NO_MEMORY, "no memory for %" PRIu64 " bytes", bytes);
  }
  if (status == MN_OK) status = read_stretches(file, object, &stretches);
  free(stretches.buffer);
  mn_hdf5_lock();
  if (stretches.space >= 0) H5Sclose(stretches.space);
  if (stretches.type >= 0) H5Tclose(stretches.type);
  mn_hdf5_unlock();
  return status;
}
