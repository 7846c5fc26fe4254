/* Reading elements and attributes of an HDF5 file; see hdf5_file.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/hdf5_child.h"
#include "data/hdf5_chunk.h"
#include "data/hdf5_file.h"

/* ---- slabs ---- */

/* Sets count and elements from start. */
static void fit(struct mn_hdf5_slab *slab) {
  slab->elements = 1;
  for (int i = 0; i < slab->rank; i++) {
    hsize_t left = slab->end[i] > slab->start[i] ? slab->end[i] - slab->start[i] : 0;
    slab->count[i] = slab->step[i] < left ? slab->step[i] : left;
    slab->elements *= slab->count[i];
  }
}

void mn_hdf5_slab_start(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, const hsize_t *step) {
  *slab = (struct mn_hdf5_slab){.rank = rank};
  for (int i = 0; i < rank; i++) {
    slab->end[i] = shape[i];
    slab->step[i] = step[i];
  }
  fit(slab);
}

void mn_hdf5_slab_rows(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, const hsize_t *chunk,
                       hsize_t first, size_t element) {
  hsize_t room = MN_HDF5_TRANSFER / element, step[MN_HDF5_RANK] = {0};
  for (int i = rank - 1; i >= 0; i--) {
    step[i] = shape[i];
    if (room < shape[i]) {
      step[i] = room > 1 ? room : 1;
      if (chunk && step[i] > chunk[i]) step[i] -= step[i] % chunk[i];
    }
    room = step[i] < shape[i] || step[i] == 0 ? 1 : room / step[i];
  }
  mn_hdf5_slab_start(slab, rank, shape, step);
  if (rank > 0) slab->start[0] = first;
  fit(slab);
}

void mn_hdf5_slab_next(struct mn_hdf5_slab *slab) {
  for (int i = slab->rank - 1; i >= 0; i--) {
    slab->start[i] += slab->step[i];
    if (slab->start[i] < slab->end[i]) {
      fit(slab);
      return;
    }
    slab->start[i] = 0;
  }
  slab->elements = 0;
}

/* Reads into `out` if `values` is NULL, else writes `values`. The memory space has the slab's own shape:
 * with another rank HDF5 copies element by element. */
static herr_t transfer(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, void *out,
                       const void *values) {
  const size_t element = H5Tget_size(memory), widest = element < 16 ? 16 : element;
  hid_t space = H5Dget_space(dataset), dense = H5Screate_simple(slab->rank, slab->count, NULL);
  hid_t how = H5Pcreate(H5P_DATASET_XFER);
  herr_t result = space < 0 || dense < 0 || how < 0 ? -1 : 0;
  /* HDF5 clears 1 MiB to convert in, for each call, unless less is asked for. */
  if (result >= 0 && slab->elements > 0 && slab->elements < ((size_t)1 << 20) / widest)
    result = H5Pset_buffer(how, slab->elements * widest, NULL, NULL);
  if (result >= 0 && slab->rank > 0)
    result = H5Sselect_hyperslab(space, H5S_SELECT_SET, slab->start, NULL, slab->count, NULL);
  if (result >= 0)
    result = values ? H5Dwrite(dataset, memory, dense, space, how, values)
                    : H5Dread(dataset, memory, dense, space, how, out);
  if (result >= 0 && out &&
      (H5Tdetect_class(memory, H5T_VLEN) > 0 || H5Tdetect_class(memory, H5T_STRING) > 0))
    H5Dvlen_reclaim(memory, dense, H5P_DEFAULT, out);
  hid_t errors = result < 0 ? H5Eget_current_stack() : -1; /* H5Sclose would clear it */
  if (how >= 0) H5Pclose(how);
  if (dense >= 0) H5Sclose(dense);
  if (space >= 0) H5Sclose(space);
  if (errors >= 0) H5Eset_current_stack(errors);
  return result;
}

/* A slab as one argument for a child. */
struct slab_read {
  const struct mn_hdf5_file *file;
  const struct mn_hdf5_object *dataset;
  hid_t memory;
  const struct mn_hdf5_slab *slab;
};

static mn_status read_by_hdf5(void *data, void *out) {
  const struct slab_read *r = data;
  if (transfer(r->dataset->id, r->memory, r->slab, out, NULL) >= 0) return MN_OK;
  return mn_hdf5_rows_damaged(r->file, r->dataset, r->slab->start, r->slab->count, NULL);
}

static mn_status read_in_child(struct slab_read *r, void *out) {
  size_t bytes = r->slab->elements * H5Tget_size(r->memory);
  void *shared;
  int died;
  if (bytes == 0) return mn_hdf5_damaged(r->file, r->dataset->name); /* H5Tget_size failed */
  mn_status status = mn_child_run(read_by_hdf5, r, MN_HDF5_SECONDS, bytes, &shared, &died);
  if (status == MN_OK && died)
    status = mn_hdf5_rows_damaged(r->file, r->dataset, r->slab->start, r->slab->count, MN_HDF5_CRASHED);
  if (status == MN_OK) memcpy(out, shared, bytes);
  mn_child_free(shared, bytes);
  return status;
}

mn_status mn_hdf5_read(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                       enum mn_hdf5_memory memory, const struct mn_hdf5_slab *slab, void *out) {
  mn_hdf5_lock();
  hid_t types[] = {[MN_HDF5_FLOAT] = H5T_NATIVE_FLOAT,
                   [MN_HDF5_DOUBLE] = H5T_NATIVE_DOUBLE,
                   [MN_HDF5_INT64] = H5T_NATIVE_INT64,
                   [MN_HDF5_UINT64] = H5T_NATIVE_UINT64,
                   [MN_HDF5_STORED] = -1};
  _Static_assert(sizeof types / sizeof *types == MN_HDF5_STORED + 1, "each type in memory");
  hid_t stored = memory == MN_HDF5_STORED ? H5Dget_type(dataset->id) : -1;
  struct slab_read r = {file, dataset, memory == MN_HDF5_STORED ? stored : types[memory], slab};
  mn_status status;
  if (r.memory < 0)
    status = mn_hdf5_damaged(file, dataset->name);
  else if (dataset->pointing)
    status = read_in_child(&r, out);
  else if (dataset->chunks)
    status = mn_hdf5_chunks_read(file, dataset, r.memory, slab, out);
  else
    status = read_by_hdf5(&r, out);
  if (stored >= 0) H5Tclose(stored);
  mn_hdf5_unlock();
  return status;
}

herr_t mn_hdf5_write(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, const void *values) {
  return transfer(dataset, memory, slab, NULL, values);
}

/* ---- attributes ---- */

static herr_t read_text(hid_t attribute, hid_t type, struct mn_hdf5_value *value, int *error) {
  char *text = NULL;
  herr_t result;
  value->kind = MN_VALUE_TEXT;
  if (H5Tis_variable_str(type) > 0) {
    result = H5Aread(attribute, type, &text);
    if (result < 0) return result;
    snprintf(value->text, sizeof value->text, "%s", text ? text : "");
    return H5free_memory(text);
  }
  text = calloc(value->element + 1, 1);
  if (!text) *error = ENOMEM;
  result = text ? H5Aread(attribute, type, text) : -1;
  if (result >= 0) snprintf(value->text, sizeof value->text, "%s", text);
  free(text);
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
    return mn_hdf5_type_name(value->text, sizeof value->text, type) ? 0 : -1;
  }
  const int is_unsigned = sign == H5T_SGN_NONE;
  value->kind = class == H5T_FLOAT ? MN_VALUE_REAL : is_unsigned ? MN_VALUE_UNSIGNED : MN_VALUE_INTEGER;
  if (class == H5T_FLOAT) return H5Aread(attribute, H5T_NATIVE_DOUBLE, value->real);
  if (is_unsigned) return H5Aread(attribute, H5T_NATIVE_UINT64, value->whole);
  return H5Aread(attribute, H5T_NATIVE_INT64, value->integer);
}

mn_status mn_hdf5_attribute(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                            const char *name, int variable, struct mn_hdf5_value *value) {
  memset(value, 0, sizeof *value);
  value->kind = MN_VALUE_NONE;
  mn_hdf5_lock();
  htri_t there = H5Aexists(object->id, name);
  hid_t attribute = there > 0 ? H5Aopen(object->id, name, H5P_DEFAULT) : -1;
  hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute);
  hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
  mn_status status = MN_OK;
  int *error = &file->reading->disk.error;
  if (there != 0 && (type < 0 || space < 0 || read_value(attribute, type, space, variable, value, error) < 0))
    status = mn_hdf5_damaged(file, object->name);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
  mn_hdf5_unlock();
  return status;
}

mn_status mn_hdf5_text(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object, const char *name,
                       char *text, size_t size, size_t *length) {
  struct mn_hdf5_value value;
  MN_TRY(mn_hdf5_attribute(file, object, name, 0, &value));
  text[0] = 0;
  *length = 0;
  if (value.kind == MN_VALUE_NONE) return MN_OK;
  if (value.kind != MN_VALUE_TEXT || value.element >= size)
    return mn_fail(MN_BAD_DATA, "%s: attribute %s of %s is no text of fixed length below %zu bytes: %s",
                   file->path, name, object->name, size, file->remedy);
  mn_hdf5_lock();
  hid_t attribute = H5Aopen(object->id, name, H5P_DEFAULT);
  hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute);
  int whole = type >= 0 && H5Aread(attribute, type, text) >= 0;
  mn_status status = whole ? MN_OK : mn_hdf5_damaged(file, object->name);
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
  mn_hdf5_unlock();
  text[whole ? value.element : 0] = 0;
  *length = strlen(text);
  return status;
}

int mn_hdf5_number(const struct mn_hdf5_value *value, double *number) {
  if (value->count != 1 || value->kind < MN_VALUE_INTEGER || value->kind > MN_VALUE_REAL) return 0;
  *number = value->kind == MN_VALUE_INTEGER    ? (double)value->integer[0]
            : value->kind == MN_VALUE_UNSIGNED ? (double)value->whole[0]
                                               : value->real[0];
  return 1;
}

struct attributes {
  const struct mn_hdf5_file *file;
  const struct mn_hdf5_object *object;
  int variable;
  mn_hdf5_take *take;
  void *data;
  mn_status status;
};

static herr_t take_attribute(hid_t id, const char *name, const H5A_info_t *info, void *data) {
  (void)id, (void)info;
  struct attributes *all = data;
  struct mn_hdf5_value value;
  all->status = mn_hdf5_attribute(all->file, all->object, name, all->variable, &value);
  if (all->status == MN_OK && all->take) all->status = all->take(all->data, name, &value);
  return all->status == MN_OK ? 0 : -1;
}

static herr_t pass_over(hid_t id, const char *name, const H5A_info_t *info, void *data) {
  (void)id, (void)name, (void)info, (void)data;
  return 0;
}

/* Reads every attribute without a table of them (see mn_hdf5_absent): first those in the object's header,
 * then those beside it. */
static herr_t read_all(hid_t object) {
  hsize_t next = 0;
  if (H5Aexists(object, mn_hdf5_absent()) < 0) return -1;
  return H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &next, pass_over, NULL);
}

mn_status mn_hdf5_attributes(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                             H5_index_t order, int variable, mn_hdf5_take *take, void *data) {
  struct attributes all = {file, object, variable, take, data, MN_OK};
  hsize_t next = 0;
  mn_hdf5_lock();
  herr_t result = read_all(object->id);
  if (result >= 0) result = H5Aiterate2(object->id, order, H5_ITER_INC, &next, take_attribute, &all);
  if (result < 0 && all.status == MN_OK) all.status = mn_hdf5_damaged(file, object->name);
  mn_hdf5_unlock();
  return all.status;
}
