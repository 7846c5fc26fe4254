/* Finds the objects in HDF5 files, and refuses those that cannot be read safely; see file.h. Files are
 * opened in open.c, elements read in elements.c. */
#include "data/hdf5/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most bytes that a dataset may declare for each byte stored. Deflate packs up to 1032 into one; other
 * filters pack constant data tighter. */
enum { DENSEST = 1 << 14 };

/* HDF5 unpacks a whole chunk for any of its elements, and keeps so many bytes of chunks of a dataset, or one
 * chunk if that is larger. */
enum { KEPT = 256 << 20, KEPT_SLOTS = 20011 };

/* ---- types and shapes in words ---- */

/* The name of a type ("float32", "string" …), for messages; returns 0 if HDF5 fails. */
static int type_name(char *out, size_t size, hid_t type) {
  static const char *const names[] = {"integer",  "float",     "time", "string",    "bitfield", "opaque",
                                      "compound", "reference", "enum", "sequences", "array"};
  _Static_assert(sizeof names / sizeof *names == H5T_ARRAY + 1, "a name for each class of types");
  const H5T_class_t class = H5Tget_class(type);
  const H5T_sign_t sign = class == H5T_INTEGER ? H5Tget_sign(type) : H5T_SGN_2;
  const size_t bits = 8 * H5Tget_size(type);
  size_t at, e = 0, m = 0; /* bits of a float's exponent and mantissa */
  if (class == H5T_FLOAT && H5Tget_fields(type, &at, &at, &e, &at, &m) < 0) return 0;
  const size_t usual = bits == 16 ? 5 : bits == 32 ? 8 : bits == 64 ? 11 : 0; /* IEEE's */
  const int ieee = bits > 64 || (e == usual && e + m + 1 == bits);
  if (class == H5T_INTEGER)
    snprintf(out, size, "%s%zu", sign == H5T_SGN_NONE ? "uint" : "int", bits);
  else if (class == H5T_FLOAT)
    snprintf(out, size, ieee ? "float%zu" : e == 8 && m == 7 ? "bfloat%zu" : "float%zu_e%zum%zu", bits, e, m);
  else
    snprintf(out, size, "%s", class >= 0 && class <= H5T_ARRAY ? names[class] : "unknown");
  return class >= 0 && sign >= 0 && bits > 0;
}

void mn_hdf5_shape(char *out, size_t size, const struct mn_hdf5_object *dataset) {
  size_t length = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < dataset->rank && length < size; i++)
    length += (size_t)snprintf(out + length, size - length, i ? ", %llu" : "%llu",
                               (unsigned long long)dataset->shape[i]);
  if (length < size) snprintf(out + length, size - length, "]");
}

/* ---- objects ---- */

/* Whether the bits of a number lie within its bytes; HDF5 does not check it. */
static int well_formed(hid_t type, H5T_class_t class) {
  size_t bits = 8 * H5Tget_size(type), sign, exponent, exponent_size, mantissa, mantissa_size;
  if (class != H5T_INTEGER && class != H5T_FLOAT) return 1;
  size_t precision = H5Tget_precision(type);
  int offset = H5Tget_offset(type);
  if (precision < 1 || precision > bits || offset < 0 || (size_t)offset > bits - precision) return 0;
  if (class == H5T_INTEGER) return 1;
  return H5Tget_fields(type, &sign, &exponent, &exponent_size, &mantissa, &mantissa_size) >= 0 &&
         sign < bits && exponent_size > 0 && exponent_size <= bits && exponent <= bits - exponent_size &&
         mantissa_size <= bits && mantissa <= bits - mantissa_size;
}

static int describe_type(struct mn_hdf5_object *object, hid_t type) {
  object->class = H5Tget_class(type);
  object->element = H5Tget_size(type);
  object->padding = object->class == H5T_STRING ? H5Tget_strpad(type) : H5T_STR_NULLTERM;
  const int named = type_name(object->type, sizeof object->type, type);
  const htri_t single = H5Tequal(type, H5T_NATIVE_FLOAT), wide = H5Tequal(type, H5T_NATIVE_DOUBLE);
  const int atomic = object->class == H5T_FLOAT || object->class == H5T_INTEGER;
  object->native = single > 0 ? sizeof(float) : wide > 0 ? sizeof(double) : 0;
  const H5T_order_t order = atomic ? H5Tget_order(type) : H5T_ORDER_NONE;
  object->swapped = atomic && order != H5Tget_order(H5T_NATIVE_INT);
  object->pointing = H5Tis_variable_str(type) != 0 || H5Tdetect_class(type, H5T_VLEN) != 0 ||
                     H5Tdetect_class(type, H5T_REFERENCE) != 0 ||
                     (object->class != H5T_STRING && H5Tdetect_class(type, H5T_STRING) != 0);
  return named && object->class >= 0 && object->element > 0 && order >= 0 && single >= 0 && wide >= 0 &&
         well_formed(type, object->class);
}

/* Whether fletcher32 is among the filters, and which one this HDF5 lacks. */
static int describe_filters(struct mn_hdf5_object *object, hid_t creation) {
  object->filters = H5Pget_nfilters(creation);
  for (int i = 0; i < object->filters; i++) {
    unsigned flags;
    size_t values = 0;
    char name[sizeof object->lacking] = "";
    const H5Z_filter_t id =
        H5Pget_filter2(creation, (unsigned)i, &flags, &values, NULL, sizeof name, name, NULL);
    if (id < 0) return 0;
    object->checksum |= id == H5Z_FILTER_FLETCHER32;
    if (H5Zfilter_avail(id) > 0) continue;
    object->lacks = id;
    memcpy(object->lacking, name, sizeof name - 1);
  }
  return object->filters >= 0;
}

/* The layout, shape and stored bytes; of a virtual dataset the layout alone: more would open other files. */
static int describe_storage(struct mn_hdf5_object *object, hid_t creation) {
  object->layout = H5Pget_layout(creation);
  int external = H5Pget_external_count(creation);
  object->external = external > 0;
  if (object->layout < 0 || external < 0 || !describe_filters(object, creation)) return 0;
  if (object->layout == H5D_VIRTUAL) return 1;
  hid_t space = H5Dget_space(object->id);
  if (space < 0) return 0;
  object->rank = H5Sget_simple_extent_dims(space, object->shape, NULL);
  object->bytes = H5Sget_simple_extent_type(space) == H5S_NULL ? 0 : object->element;
  H5Sclose(space);
  if (object->rank < 0) return 0;
  for (int i = 0; i < object->rank; i++)
    if (__builtin_mul_overflow(object->bytes, object->shape[i], &object->bytes)) object->bytes = UINT64_MAX;
  object->stored = object->external ? 0 : H5Dget_storage_size(object->id);
  object->offset = H5Dget_offset(object->id);
  if (object->layout != H5D_CHUNKED) return 1;
  if (H5Pget_chunk(creation, object->rank, object->chunk) != object->rank) return 0;
  object->unpacked = object->element;
  for (int i = 0; i < object->rank; i++)
    if (__builtin_mul_overflow(object->unpacked, object->chunk[i], &object->unpacked))
      object->unpacked = UINT64_MAX;
  return 1;
}

static mn_status describe_dataset(struct mn_hdf5_file *file, struct mn_hdf5_object *object) {
  hid_t type = H5Dget_type(object->id), creation = H5Dget_create_plist(object->id);
  int whole = type >= 0 && creation >= 0 && describe_type(object, type) && describe_storage(object, creation);
  mn_status status = whole ? MN_OK : mn_hdf5_damaged(file, object->name, NULL);
  if (creation >= 0) H5Pclose(creation);
  if (type >= 0) H5Tclose(type);
  return status;
}

/* Opens a chunked dataset anew, with more memory for its chunks than HDF5's 1 MiB. */
static mn_status keep_chunks(struct mn_hdf5_file *file, hid_t parent, const char *name,
                             struct mn_hdf5_object *object) {
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  H5Oclose(object->id);
  object->id = -1;
  if (access >= 0 &&
      H5Pset_chunk_cache(access, KEPT_SLOTS, object->unpacked > KEPT ? object->unpacked : KEPT, 1) >= 0)
    object->id = H5Dopen2(parent, name, access);
  const mn_status status = object->id >= 0 ? MN_OK : mn_hdf5_damaged(file, name, NULL);
  if (access >= 0) H5Pclose(access);
  return status;
}

static mn_status open_object(struct mn_hdf5_file *file, hid_t parent, const char *name,
                             struct mn_hdf5_object *object) {
  H5L_info_t link;
  htri_t there = H5Lexists(parent, name, H5P_DEFAULT);
  if (there == 0) return MN_OK;
  if (there < 0 || H5Lget_info(parent, name, &link, H5P_DEFAULT) < 0)
    return mn_hdf5_damaged(file, name, NULL);
  object->kind = MN_HDF5_LINK;
  if (link.type != H5L_TYPE_HARD) return MN_OK;
  object->id = H5Oopen(parent, name, H5P_DEFAULT);
  if (object->id < 0) return mn_hdf5_damaged(file, name, NULL);
  const H5I_type_t type = H5Iget_type(object->id);
  if (type < 0) return mn_hdf5_damaged(file, name, NULL);
  object->kind = type == H5I_GROUP ? MN_HDF5_GROUP : type == H5I_DATASET ? MN_HDF5_DATASET : MN_HDF5_OTHER;
  if (type == H5I_DATASET) MN_TRY(describe_dataset(file, object));
  return object->layout == H5D_CHUNKED ? keep_chunks(file, parent, name, object) : MN_OK;
}

/* Opens `name` in `parent`. All names in it but the last are groups, reached by hard links, as the caller has
 * checked. */
static mn_status open_name(struct mn_hdf5_file *file, const struct mn_hdf5_object *parent, const char *name,
                           struct mn_hdf5_object *object) {
  *object = (struct mn_hdf5_object){.name = name, .kind = MN_HDF5_NOTHING, .id = -1};
  mn_hdf5_lock();
  mn_status status = open_object(file, parent->id, name, object);
  if (status != MN_OK) mn_hdf5_release(object);
  mn_hdf5_unlock();
  return status;
}

mn_status mn_hdf5_find(struct mn_hdf5_file *file, const struct mn_hdf5_object *parent, const char *name,
                       struct mn_hdf5_object *object) {
  size_t length = 0;
  *object = (struct mn_hdf5_object){.name = name, .kind = MN_HDF5_NOTHING, .id = -1};
  for (;;) { /* name by name, so that links on the way are not followed */
    length += strspn(name + length, "/");
    length += strcspn(name + length, "/");
    char *part = strndup(name, length);
    if (!part) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", name);
    mn_status status = open_name(file, parent, part, object);
    if (status == MN_OK && object->kind == MN_HDF5_LINK)
      status = mn_fail(MN_BAD_DATA,
                       "%s: %s is a soft or external link, which could lead anywhere: copy what it points to "
                       "into the file",
                       file->path, part);
    free(part);
    object->name = name;
    if (status != MN_OK || name[length + strspn(name + length, "/")] == 0) return status;
    int group = object->kind == MN_HDF5_GROUP;
    mn_hdf5_release(object);
    if (!group) return MN_OK;
  }
}

void mn_hdf5_release(struct mn_hdf5_object *object) {
  mn_hdf5_lock();
  if (object->id >= 0) H5Oclose(object->id);
  mn_hdf5_unlock();
  *object = (struct mn_hdf5_object){.name = object->name, .kind = MN_HDF5_NOTHING, .id = -1};
}

struct members {
  mn_hdf5_take_name *take;
  void *data;
  hsize_t count;
  mn_status status;
};

static herr_t take_link(hid_t group, const char *name, const H5L_info_t *info, void *data) {
  struct members *all = data;
  all->count++;
  if (all->take) all->status = all->take(all->data, name);
  return all->status == MN_OK ? 0 : -1;
}

mn_status mn_hdf5_members(struct mn_hdf5_file *file, const struct mn_hdf5_object *group,
                          mn_hdf5_take_name *take, void *data) {
  struct members counted = {0}, taken = {take, data, 0, MN_OK};
  H5G_info_t info;
  mn_status status = MN_OK;
  mn_hdf5_lock();
  /* Counts those that can be read, and then takes the names. */
  if (H5Gget_info(group->id, &info) < 0 ||
      H5Literate(group->id, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, take_link, &counted) < 0)
    status = mn_hdf5_damaged(file, group->name, NULL);
  else if (info.nlinks != counted.count)
    status = mn_hdf5_damaged(file, group->name, "some of its names cannot be read");
  else if (take && H5Literate(group->id, H5_INDEX_NAME, H5_ITER_INC, NULL, take_link, &taken) < 0)
    status = taken.status == MN_OK ? mn_hdf5_damaged(file, group->name, NULL) : taken.status;
  mn_hdf5_unlock();
  return status;
}

/* ---- attributes ---- */

hid_t mn_hdf5_text_type(size_t length) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && H5Tset_size(type, length > 0 ? length : 1) >= 0 &&
      H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
    return type;
  if (type >= 0) H5Tclose(type);
  return -1;
}

size_t mn_hdf5_text_length(H5T_str_t padding, const char *text, size_t size) {
  if (padding == H5T_STR_NULLTERM) return strnlen(text, size);
  while (size > 0 && text[size - 1] == (padding == H5T_STR_SPACEPAD ? ' ' : 0)) size--;
  return size;
}

static herr_t read_text(hid_t attribute, hid_t type, struct mn_hdf5_value *value, int *error) {
  const int variable = H5Tis_variable_str(type) > 0;
  char *text = variable ? NULL : calloc(value->element + 1, 1);
  if (!variable && !text) return *error = ENOMEM, -1;
  const herr_t result = H5Aread(attribute, type, variable ? (void *)&text : text);
  const char *read = text ? text : "";
  const size_t size = variable ? strlen(read) : value->element;
  const size_t length = mn_hdf5_text_length(H5Tget_strpad(type), read, size);
  value->kind = memchr(read, 0, length) ? MN_VALUE_OTHER : MN_VALUE_TEXT;
  snprintf(value->text, sizeof value->text, "%.*s", (int)length, read);
  variable ? (void)H5free_memory(text) : free(text);
  return result;
}

static herr_t read_value(hid_t attribute, hid_t type, hid_t space, int variable, struct mn_hdf5_value *value,
                         int *error) {
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  const H5S_class_t shape = H5Sget_simple_extent_type(space);
  const H5T_class_t class = H5Tget_class(type);
  const htri_t varies = class == H5T_STRING ? H5Tis_variable_str(type) : 0;
  const H5T_sign_t sign = class == H5T_INTEGER ? H5Tget_sign(type) : H5T_SGN_2;
  if (count < 0 || shape < 0 || class < 0 || varies < 0 || sign < 0) return -1;
  value->scalar = shape == H5S_SCALAR;
  value->count = (int)(count > MN_HDF5_VALUES ? 0 : count);
  value->element = H5Tget_size(type);
  if (value->element == 0) return -1;
  if (class == H5T_STRING && count == 1 && (variable || !varies))
    return read_text(attribute, type, value, error);
  if ((class != H5T_INTEGER && class != H5T_FLOAT) || value->count == 0) {
    value->kind = MN_VALUE_OTHER;
    return type_name(value->text, sizeof value->text, type) ? 0 : -1;
  }
  const int is_unsigned = sign == H5T_SGN_NONE;
  value->kind = class == H5T_FLOAT ? MN_VALUE_REAL : is_unsigned ? MN_VALUE_UNSIGNED : MN_VALUE_INTEGER;
  if (class == H5T_FLOAT) return H5Aread(attribute, H5T_NATIVE_DOUBLE, value->real);
  if (is_unsigned) return H5Aread(attribute, H5T_NATIVE_UINT64, value->whole);
  return H5Aread(attribute, H5T_NATIVE_INT64, value->integer);
}

mn_status mn_hdf5_attribute(struct mn_hdf5_file *file, const struct mn_hdf5_object *object, const char *name,
                            int variable, struct mn_hdf5_value *value) {
  memset(value, 0, sizeof *value);
  value->kind = MN_VALUE_NONE;
  mn_hdf5_lock();
  htri_t there = H5Aexists(object->id, name);
  hid_t attribute = there > 0 ? H5Aopen(object->id, name, H5P_DEFAULT) : -1;
  hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute);
  hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
  mn_status status = MN_OK;
  int *error = &file->disk.error;
  if (there != 0 && (type < 0 || space < 0 || read_value(attribute, type, space, variable, value, error) < 0))
    status = mn_hdf5_damaged(file, object->name, NULL);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
  mn_hdf5_unlock();
  return status;
}

int mn_hdf5_number(const struct mn_hdf5_value *value, int index, double *number) {
  if (index >= value->count || value->kind < MN_VALUE_INTEGER || value->kind > MN_VALUE_REAL) return 0;
  *number = value->kind == MN_VALUE_INTEGER    ? (double)value->integer[index]
            : value->kind == MN_VALUE_UNSIGNED ? (double)value->whole[index]
                                               : value->real[index];
  return 1;
}

struct attributes {
  struct mn_hdf5_file *file;
  const struct mn_hdf5_object *object;
  int variable;
  mn_hdf5_take *take;
  void *data;
  mn_status status;
};

static herr_t take_attribute(hid_t id, const char *name, const H5A_info_t *info, void *data) {
  struct attributes *all = data;
  struct mn_hdf5_value value;
  all->status = mn_hdf5_attribute(all->file, all->object, name, all->variable, &value);
  if (all->status == MN_OK && all->take) all->status = all->take(all->data, name, &value);
  return all->status == MN_OK ? 0 : -1;
}

mn_status mn_hdf5_attributes(struct mn_hdf5_file *file, const struct mn_hdf5_object *object, H5_index_t order,
                             int variable, mn_hdf5_take *take, void *data) {
  struct attributes all = {file, object, variable, take, data, MN_OK};
  mn_hdf5_lock();
  herr_t result = H5Aiterate2(object->id, order, H5_ITER_INC, NULL, take_attribute, &all);
  if (result < 0 && all.status == MN_OK) all.status = mn_hdf5_damaged(file, object->name, NULL);
  mn_hdf5_unlock();
  return all.status;
}

/* ---- whether it can be read ---- */

/* Whether the stored bytes can hold the elements declared. HDF5 allocates a whole chunk to decompress it, so
 * a chunk larger than MN_HDF5_TRANSFER is checked by itself. */
static int fits(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset) {
  const uint64_t stored = dataset->stored, chunk = dataset->unpacked;
  if (stored > file->size || dataset->bytes / dataset->element > INT64_MAX / 16) return 0;
  if (dataset->layout == H5D_COMPACT) return stored >= dataset->bytes;
  if (dataset->layout == H5D_CONTIGUOUS)
    return stored >= dataset->bytes && dataset->offset != HADDR_UNDEF &&
           dataset->offset <= file->size - stored;
  return dataset->bytes / DENSEST <= stored && chunk > 0 &&
         (chunk <= MN_HDF5_TRANSFER || chunk / DENSEST <= stored);
}

mn_status mn_hdf5_check(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset) {
  if (dataset->layout == H5D_VIRTUAL || dataset->external)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s keeps its data in other files (%s storage), which is refused: copy them "
                   "in, e.g. with h5repack",
                   file->path, dataset->name, dataset->external ? "external" : "virtual");
  if (dataset->lacks)
    return mn_fail(
        MN_BAD_DATA,
        "%s: dataset %s is compressed by filter %d (%s), which this HDF5 lacks: set HDF5_PLUGIN_PATH "
        "to where it is, or write it anew without the filter where it can be read, such as in h5py",
        file->path, dataset->name, dataset->lacks, dataset->lacking);
  if (fits(file, dataset)) return MN_OK;
  char shape[200];
  mn_hdf5_shape(shape, sizeof shape, dataset);
  return mn_fail(MN_BAD_DATA,
                 "%s: dataset %s declares %s elements of %zu bytes, but %" PRIu64
                 " bytes are stored in a file of %" PRIu64 ": it was never written in full or is damaged: %s",
                 file->path, dataset->name, shape, dataset->element, dataset->stored, file->size,
                 file->remedy);
}

/* ---- everything ---- */

/* Limits of a walk, since hard links can make groups contain themselves. */
enum { MOST_OBJECTS = 100000, NAME_SIZE = 1024 };

struct walk {
  struct mn_hdf5_file *file;
  mn_hdf5_visit *visit;
  void *data;
  int *objects, depth;
  const struct mn_hdf5_object *group; /* whose members are visited */
};

static mn_status visit_member(void *data, const char *name);

static mn_status visit(struct walk walk, struct mn_hdf5_object *object, mn_status status) {
  if (++*walk.objects > MOST_OBJECTS)
    return mn_fail(MN_BAD_DATA, "%s: more than %d objects", walk.file->path, MOST_OBJECTS);
  if (object->kind == MN_HDF5_GROUP && walk.depth++ == MN_HDF5_DEEPEST)
    status = mn_fail(MN_BAD_DATA, "%s: groups nested more than %d deep or in a circle", walk.file->path,
                     MN_HDF5_DEEPEST - 1);
  else if (object->kind == MN_HDF5_GROUP)
    status = mn_hdf5_members(walk.file, object, NULL, NULL);
  if (status == MN_BAD_DATA && walk.group)
    object->kind = MN_HDF5_UNREADABLE;
  else
    MN_TRY(status);
  MN_TRY(walk.visit(walk.data, walk.file, object));
  walk.group = object;
  return object->kind == MN_HDF5_GROUP ? mn_hdf5_members(walk.file, object, visit_member, &walk) : MN_OK;
}

static mn_status visit_member(void *data, const char *name) {
  const struct walk *walk = data;
  const char *parent = walk->depth == 1 ? "" : walk->group->name;
  char full[NAME_SIZE];
  struct mn_hdf5_object member = {.name = full, .id = -1};
  mn_status status;
  if (snprintf(full, sizeof full, "%s/%s", parent, name) >= NAME_SIZE)
    status = mn_fail(MN_BAD_DATA, "%s: a name in %.60s is longer than %d bytes", walk->file->path,
                     walk->group->name, NAME_SIZE - 1);
  else
    status = open_name(walk->file, &walk->file->root, full, &member);
  if (status == MN_OK && member.kind == MN_HDF5_NOTHING)
    status = mn_hdf5_damaged(walk->file, full, "its group lists it, but does not have it");
  status = visit(*walk, &member, status);
  mn_hdf5_release(&member);
  return status;
}

mn_status mn_hdf5_walk(struct mn_hdf5_file *file, mn_hdf5_visit *visit_each, void *data) {
  struct mn_hdf5_object root = file->root;
  int objects = 0;
  return visit((struct walk){file, visit_each, data, &objects, 0, NULL}, &root, MN_OK);
}
