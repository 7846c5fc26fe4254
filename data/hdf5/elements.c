/* Reading and writing elements of an HDF5 file, slab by slab; see file.h. */
#include <string.h>

#include "data/hdf5/file.h"

enum { SECONDS = 60 }; /* of computing in a child, at a time */

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

void mn_hdf5_slab_rows(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, hsize_t first,
                       size_t element) {
  hsize_t room = MN_HDF5_TRANSFER / element;
  *slab = (struct mn_hdf5_slab){.rank = rank};
  for (int i = rank - 1; i >= 0; i--) {
    const hsize_t step = room >= shape[i] ? shape[i] : room > 1 ? room : 1;
    room = step < shape[i] || step == 0 ? 1 : room / step;
    slab->end[i] = shape[i];
    slab->step[i] = step;
  }
  if (rank > 0) slab->from[0] = slab->start[0] = first;
  fit(slab);
}

void mn_hdf5_slab_next(struct mn_hdf5_slab *slab) {
  for (int i = slab->rank - 1; i >= 0; i--) {
    slab->start[i] += slab->step[i];
    if (slab->start[i] < slab->end[i]) {
      fit(slab);
      return;
    }
    slab->start[i] = slab->from[i];
  }
  slab->elements = 0;
}

/* Reads into `out` if `values` is NULL, else writes `values`. In memory the slab has its rank: with another
 * HDF5 copies element by element. */
static herr_t transfer(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, void *out,
                       const void *values) {
  const size_t element = H5Tget_size(memory), widest = element < 16 ? 16 : element;
  hid_t space = H5Dget_space(dataset), dense = H5Screate_simple(slab->rank, slab->count, NULL);
  hid_t how = H5Pcreate(H5P_DATASET_XFER);
  herr_t result = space < 0 || dense < 0 || how < 0 ? -1 : 0;
  /* HDF5 clears 1 MiB to convert in, for each call, unless told to take less. */
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

/* ---- reading ---- */

/* A slab to be read, as elements of the type `memory`. */
struct slab_read {
  struct mn_hdf5_file *file;
  const struct mn_hdf5_object *dataset;
  hid_t memory;
  const struct mn_hdf5_slab *slab;
};

/* The error for a slab that cannot be read, with HDF5's reason if `reason` is NULL. */
static mn_status damaged(const struct slab_read *r, const char *reason) {
  const unsigned long long first = r->slab->start[0];
  char name[160];
  snprintf(name, sizeof name, "%.100s", r->dataset->name);
  if (r->dataset->rank > 0)
    snprintf(name, sizeof name, "%.100s, rows %llu to %llu", r->dataset->name, first,
             first + r->slab->count[0] - 1);
  return mn_hdf5_damaged(r->file, name, reason);
}

static mn_status read_slab(void *data, void *out) {
  const struct slab_read *r = data;
  if (transfer(r->dataset->id, r->memory, r->slab, out, NULL) >= 0) return MN_OK;
  return damaged(r, NULL);
}

mn_status mn_hdf5_read(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                       enum mn_hdf5_memory memory, const struct mn_hdf5_slab *slab, void *out) {
  mn_hdf5_lock();
  const hid_t types[] = {[MN_HDF5_FLOAT] = H5T_NATIVE_FLOAT,
                         [MN_HDF5_DOUBLE] = H5T_NATIVE_DOUBLE,
                         [MN_HDF5_STORED] = H5Dget_type(dataset->id)};
  _Static_assert(sizeof types / sizeof *types == MN_HDF5_STORED + 1, "each type in memory");
  struct slab_read r = {file, dataset, types[memory], slab};
  const size_t bytes = types[MN_HDF5_STORED] < 0 ? 0 : slab->elements * H5Tget_size(r.memory);
  mn_status status;
  int died = 0;
  if (bytes == 0) {
    status = mn_hdf5_damaged(file, dataset->name, NULL); /* HDF5 failed */
  } else if (dataset->pointing) {
    status = mn_hdf5_apart(file, read_slab, &r, SECONDS, out, bytes, &died);
    if (status == MN_OK && died) status = damaged(&r, MN_HDF5_CRASHED);
  } else {
    file->disk.exact = dataset->filters ? 0 : (size_t)dataset->unpacked;
    memset(out, 0, bytes); /* a chunk that was never written may have no fill value */
    status = read_slab(&r, out);
    file->disk.exact = 0;
  }
  if (types[MN_HDF5_STORED] >= 0) H5Tclose(types[MN_HDF5_STORED]);
  mn_hdf5_unlock();
  return status;
}

/* ---- writing ---- */

hid_t mn_hdf5_create(hid_t group, const char *name, hid_t type, int rank, const hsize_t *shape) {
  hid_t space = H5Screate_simple(rank, shape, NULL), creation = H5Pcreate(H5P_DATASET_CREATE), dataset = -1;
  if (space >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
      H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0)
    dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  hid_t errors = dataset < 0 ? H5Eget_current_stack() : -1; /* closing would clear it */
  if (creation >= 0) H5Pclose(creation);
  if (space >= 0) H5Sclose(space);
  if (errors >= 0) H5Eset_current_stack(errors);
  return dataset;
}

herr_t mn_hdf5_write(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, const void *values) {
  return transfer(dataset, memory, slab, NULL, values);
}
