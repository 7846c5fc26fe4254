/* Finding a dataset in an HDF5 file, and refusing what cannot be one: before anything of it is read, and with
 * one line that a user can act on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_file.h"
#include "data/hdf5.h"

#define CACHE ((size_t)256 << 20) /* bytes of decompressed chunks kept, where the chunks are smaller */

/* ---- checking x or y ---- */

/* What the group of a dataset that is missing holds. */
static mn_status list(const struct mn_dataset_file *d, const struct mn_hdf5_object *group, char *out,
                      size_t size) {
  static const char more[] = ", …";
  hsize_t count;
  size_t length = 0;
  snprintf(out, size, "nothing");
  MN_TRY(mn_hdf5_count(&d->file, group, &count));
  for (hsize_t i = 0; i < count; i++) {
    char name[200];
    MN_TRY(mn_hdf5_member(&d->file, group, i, name, sizeof name));
    if (length + strlen(name) + 2 + sizeof more > size) {
      snprintf(out + length, size - length, "%s", more);
      break;
    }
    length += (size_t)snprintf(out + length, size - length, "%s%s", i ? ", " : "", name);
  }
  return MN_OK;
}

static mn_status missing(const struct mn_dataset_file *d, const struct mn_dataset_array *a) {
  struct mn_hdf5_object group = {.kind = MN_HDF5_NOTHING, .id = -1};
  const char *slash = strrchr(a->name, '/');
  char *parent = strndup(a->name, slash ? (size_t)(slash - a->name) : 0), held[300];
  if (!parent) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", a->name);
  mn_status status = slash ? mn_hdf5_find(&d->file, &d->file.root, parent, &group) : MN_OK;
  int found = group.kind == MN_HDF5_GROUP;
  if (status == MN_OK) status = list(d, found ? &group : &d->file.root, held, sizeof held);
  if (status == MN_OK)
    status = mn_fail(MN_BAD_DATA, "%s: holds no dataset %s; %s holds: %s; name another dataset as %s",
                     d->path, a->name, found ? parent : "the file", held, a->role);
  mn_hdf5_release(&group);
  free(parent);
  return status;
}

static mn_status check_type(const struct mn_dataset_file *d, const struct mn_dataset_array *a) {
  const struct mn_hdf5_object *o = &a->object;
  size_t widest = o->class == H5T_INTEGER ? 8 : 16;
  if (o->class != H5T_INTEGER && o->class != H5T_FLOAT)
    return mn_fail(
        MN_BAD_DATA,
        "%s: dataset %s has elements of type %s%s; store integers or floats, or name another dataset "
        "as %s",
        d->path, a->name, o->type, o->class == H5T_ENUM ? " (h5py's bool is one)" : "", a->role);
  if (o->element < 1 || o->element > widest)
    return mn_fail(MN_BAD_DATA, "%s: dataset %s has elements of %zu bytes, type %s; %zu bytes is the most",
                   d->path, a->name, o->element, o->type, widest);
  return MN_OK;
}

static mn_status check_shape(const struct mn_dataset_file *d, struct mn_dataset_array *a, int least_rank) {
  const struct mn_hdf5_object *o = &a->object;
  const char *expected = least_rank == 2 ? "x is [rows, inputs]" : "y is [rows] or [rows, outputs]";
  char shape[200];
  mn_hdf5_shape(shape, sizeof shape, o);
  for (int i = 0; i < o->rank; i++)
    if (o->shape[i] == 0)
      return mn_fail(MN_BAD_DATA, "%s: dataset %s is %s: there is nothing in it; %s", d->path, a->name, shape,
                     expected);
  if (o->rank < least_rank || o->rank > 2)
    return mn_fail(MN_BAD_DATA, "%s: dataset %s is %s, but %s; reshape it, or name another dataset as %s",
                   d->path, a->name, shape, expected, a->role);
  a->rows = (int64_t)o->shape[0];
  a->cols = o->rank == 2 ? (int64_t)o->shape[1] : 1;
  return MN_OK;
}

/* Opens a chunked dataset again with a cache for two rows of chunks, so that neighbouring reads do not
 * decompress the same ones again. */
static mn_status enlarge_cache(const struct mn_dataset_file *d, struct mn_dataset_array *a) {
  struct mn_hdf5_object *o = &a->object;
  double one = (double)o->element, across = 1;
  for (int i = 0; i < o->rank; i++) one *= (double)o->chunk[i];
  if (o->rank == 2) across = ceil((double)a->cols / (double)o->chunk[1]);
  double wanted = fmin(2 * one * across, fmax((double)CACHE, one));
  if (wanted <= (double)(1 << 20)) return MN_OK; /* HDF5's default is enough */
  mn_hdf5_lock();
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS), id = -1;
  if (access >= 0 && H5Pset_chunk_cache(access, 10007, (size_t)wanted, 1.0) >= 0 && H5Oclose(o->id) >= 0)
    o->id = id = H5Dopen2(d->file.root.id, a->name, access);
  mn_status status = id < 0 ? mn_hdf5_damaged(&d->file, a->name) : MN_OK;
  if (access >= 0) H5Pclose(access);
  mn_hdf5_unlock();
  return status;
}

/* One of the attributes of packed reals, where it is there. */
static mn_status read_attribute(const struct mn_dataset_file *d, struct mn_dataset_array *a, const char *name,
                                double *number) {
  struct mn_hdf5_value value;
  MN_TRY(mn_hdf5_attribute(&d->file, &a->object, name, 0, &value));
  if (value.kind == MN_VALUE_NONE) return MN_OK;
  a->packed = 1;
  if (!mn_hdf5_number(&value, number))
    return mn_fail(MN_BAD_DATA, "%s: attribute %s of dataset %s is no single number, as it must be", d->path,
                   name, a->name);
  if (!isfinite(*number))
    return mn_fail(MN_BAD_DATA, "%s: attribute %s of dataset %s is %g; it must be finite", d->path, name,
                   a->name, *number);
  return MN_OK;
}

/* Opens a dataset and checks all that can be checked without reading it. There is none, and a->object.id −1,
 * only where none is `required`. */
static mn_status open_array(struct mn_dataset_file *d, struct mn_dataset_array *a, int least_rank,
                            int required) {
  struct mn_hdf5_object *o = &a->object;
  MN_TRY(mn_hdf5_find(&d->file, &d->file.root, a->name, o));
  if (o->kind == MN_HDF5_NOTHING) return required ? missing(d, a) : MN_OK;
  if (o->kind != MN_HDF5_DATASET)
    return mn_fail(MN_BAD_DATA, "%s: %s is %s, not a dataset; name another as %s", d->path, a->name,
                   o->kind == MN_HDF5_GROUP ? "a group" : "a named type", a->role);
  MN_TRY(check_type(d, a));
  if (o->layout != H5D_VIRTUAL)
    MN_TRY(check_shape(d, a, least_rank)); /* a virtual one has none that is known */
  MN_TRY(mn_hdf5_check(&d->file, o));
  if (o->layout == H5D_CHUNKED) MN_TRY(enlarge_cache(d, a));
  a->scale = 1;
  a->offset = 0;
  MN_TRY(read_attribute(d, a, "scale_factor", &a->scale));
  return read_attribute(d, a, "add_offset", &a->offset);
}

/* ---- x and y ---- */

static mn_status join(struct mn_dataset_array *a, const char *group, const char *name) {
  size_t size = strlen(group) + strlen(name) + 2;
  name += strspn(name, "/");
  if (!*name) return mn_fail(MN_USAGE, "a name of slashes alone, given as %s, names no dataset", a->role);
  a->name = malloc(size);
  if (!a->name) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", name);
  snprintf(a->name, size, "%s%s%s", group, *group ? "/" : "", name);
  return MN_OK;
}

mn_status mn_dataset_open_parts(struct mn_dataset_file *d, enum mn_part part, const char *x_name,
                                const char *y_name, int y_required, int *there) {
  const char *group = part == MN_PART_TEST ? "test" : "train";
  struct mn_hdf5_object found;
  MN_TRY(mn_hdf5_open(&d->file, d->path, "copy or write it anew", 1));
  MN_TRY(mn_hdf5_find(&d->file, &d->file.root, group, &found));
  if (found.kind != MN_HDF5_GROUP) group = "";
  mn_hdf5_release(&found);
  *there = part != MN_PART_TEST || *group;
  if (!*there) return MN_OK;
  MN_TRY(join(&d->x, group, x_name ? x_name : "x"));
  MN_TRY(join(&d->y, group, y_name ? y_name : "y"));
  MN_TRY(open_array(d, &d->x, 2, 1));
  MN_TRY(open_array(d, &d->y, 1, y_required));
  if (d->y.object.id >= 0 && d->x.rows != d->y.rows)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s has %lld rows but %s has %lld; give each row of one its row of the other",
                   d->path, d->x.name, (long long)d->x.rows, d->y.name, (long long)d->y.rows);
  return MN_OK;
}
