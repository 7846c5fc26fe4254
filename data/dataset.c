/* A dataset in an HDF5 file, read in ranges of rows. dataset_open.c has found and checked it.
 *
 * Reads are of whole row ranges, never of lists of rows: unions of hyperslabs take time quadratic in their
 * number. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_file.h"
#include "data/hdf5.h"

/* ---- reading ---- */

/* Starts a walk over rows first … first + count, in slabs that fit the scratch memory as 8-byte values. */
static void start_rows(struct mn_hdf5_slab *slab, const struct mn_dataset_array *a, int64_t first,
                       int64_t count) {
  const hsize_t shape[2] = {(hsize_t)(first + count), (hsize_t)a->cols};
  mn_hdf5_slab_rows(slab, a->object.rank, shape, NULL, (hsize_t)first,
                    a->object.element > 8 ? a->object.element : 8);
}

/* A loop that vectorises; which value it is, check_finite looks up only when there is one. */
static int all_finite(const void *values, int64_t count, size_t real) {
  int odd = 0;
  if (real == sizeof(float)) {
    const float *v = values;
    for (int64_t i = 0; i < count; i++) odd |= !(v[i] - v[i] == 0);
  } else {
    const double *v = values;
    for (int64_t i = 0; i < count; i++) odd |= !(v[i] - v[i] == 0);
  }
  return !odd;
}

static mn_status check_finite(const struct mn_dataset_file *d, const struct mn_dataset_array *a,
                              const struct mn_hdf5_slab *slab, const void *values, size_t real) {
  int64_t count = (int64_t)slab->elements, cols = slab->rank == 2 ? (int64_t)slab->count[1] : 1;
  if (all_finite(values, count, real)) return MN_OK;
  for (int64_t i = 0; i < count; i++) {
    double value = real == sizeof(float) ? (double)((const float *)values)[i] : ((const double *)values)[i];
    if (!isfinite(value))
      return mn_fail(MN_BAD_DATA,
                     "%s: dataset %s, row %lld, column %lld (from 0) is %g%s; every value must be finite: "
                     "replace it or leave out the row",
                     d->path, a->name, (long long)slab->start[0] + (long long)(i / cols),
                     (long long)(slab->rank == 2 ? slab->start[1] : 0) + (long long)(i % cols), value,
                     isinf(value) && real == sizeof(float) ? " (as a float)" : "");
  }
  return MN_OK;
}

static mn_status read_reals(struct mn_dataset_file *d, const struct mn_dataset_array *a, int64_t first,
                            int64_t count, size_t real, void *out) {
  struct mn_hdf5_slab slab;
  char *to = out;
  for (start_rows(&slab, a, first, count); slab.elements; mn_hdf5_slab_next(&slab)) {
    if (!a->packed) {
      MN_TRY(mn_hdf5_read(&d->file, &a->object, real == sizeof(float) ? MN_HDF5_FLOAT : MN_HDF5_DOUBLE, &slab,
                          to));
    } else {
      const double *from = d->scratch;
      MN_TRY(mn_hdf5_read(&d->file, &a->object, MN_HDF5_DOUBLE, &slab, d->scratch));
      if (real == sizeof(float))
        for (hsize_t i = 0; i < slab.elements; i++)
          ((float *)to)[i] = (float)(from[i] * a->scale + a->offset);
      else
        for (hsize_t i = 0; i < slab.elements; i++) ((double *)to)[i] = from[i] * a->scale + a->offset;
    }
    MN_TRY(check_finite(d, a, &slab, to, real));
    to += slab.elements * real;
  }
  return MN_OK;
}

/* Reads labels into out (NULL: only checks them) and raises *largest to the largest of them. */
static mn_status read_labels(struct mn_dataset_file *d, const struct mn_dataset_array *a, int64_t first,
                             int64_t count, int64_t limit, int32_t *out, int64_t *largest) {
  struct mn_hdf5_slab slab;
  const int64_t *labels = d->scratch;
  int is_signed = a->object.is_signed;
  for (start_rows(&slab, a, first, count); slab.elements; mn_hdf5_slab_next(&slab)) {
    MN_TRY(mn_hdf5_read(&d->file, &a->object, is_signed ? MN_HDF5_INT64 : MN_HDF5_UINT64, &slab, d->scratch));
    for (int64_t i = 0; i < (int64_t)slab.elements; i++) {
      int64_t label = labels[i], row = (int64_t)slab.start[0] + i;
      /* An unsigned label beyond int64 looks negative here: the comparison is right, the sign is not. */
      if (label < 0 || label > limit)
        return mn_fail(MN_BAD_DATA, "%s: dataset %s, row %lld (from 0) is %s%llu; class labels are 0 to %lld",
                       d->path, a->name, (long long)row, is_signed && label < 0 ? "-" : "",
                       is_signed && label < 0 ? 0ULL - (unsigned long long)label : (unsigned long long)label,
                       (long long)limit);
      if (label > *largest) *largest = label;
      if (out) out[row - first] = (int32_t)label;
    }
  }
  return MN_OK;
}

static mn_status file_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                           void *y) {
  struct mn_dataset_file *d = (struct mn_dataset_file *)dataset;
  MN_REQUIRE(first >= 0 && count >= 0 && count <= dataset->rows && first <= dataset->rows - count);
  MN_REQUIRE(real == sizeof(float) || real == sizeof(double));
  MN_REQUIRE(!y || dataset->outputs > 0);
  if (x) MN_TRY(read_reals(d, &d->x, first, count, real, x));
  if (!y) return MN_OK;
  int64_t largest = 0;
  /* Checked again: the file may have changed since. */
  if (dataset->classes) return read_labels(d, &d->y, first, count, dataset->outputs - 1, y, &largest);
  return read_reals(d, &d->y, first, count, real, y);
}

/* ---- opening and closing ---- */

static void file_close(struct mn_dataset *dataset) {
  struct mn_dataset_file *d = (struct mn_dataset_file *)dataset;
  mn_hdf5_release(&d->x.object);
  mn_hdf5_release(&d->y.object);
  if (d->file.root.id >= 0) mn_hdf5_close(&d->file);
  free(d->x.name);
  free(d->y.name);
  free(d->path);
  free(d->scratch);
  free(d);
}

void mn_dataset_close(struct mn_dataset *dataset) {
  if (dataset) dataset->close(dataset);
}

/* Decides what y is; labels are read, to know how many classes there are. */
static mn_status settle(struct mn_dataset_file *d) {
  d->base.rows = d->x.rows;
  d->base.inputs = d->x.cols;
  if (d->y.object.id < 0) return MN_OK;
  d->base.outputs = d->y.cols;
  if (d->y.object.class == H5T_FLOAT || d->y.packed) return MN_OK;
  if (d->y.cols > 1)
    return mn_fail(
        MN_BAD_DATA,
        "%s: dataset %s is [%lld, %lld] of integers: class labels must be [%lld], regression targets "
        "floats, or integers with an attribute scale_factor (1 does)",
        d->path, d->y.name, (long long)d->y.rows, (long long)d->y.cols, (long long)d->y.rows);
  int64_t largest = 0;
  MN_TRY(read_labels(d, &d->y, 0, d->y.rows, INT32_MAX, NULL, &largest));
  d->base.classes = 1;
  d->base.outputs = largest + 1;
  return MN_OK;
}

mn_status mn_dataset_open(struct mn_dataset **out, const char *path, enum mn_part part, const char *x_name,
                          const char *y_name, int y_required) {
  *out = NULL;
  struct mn_dataset_file *d = calloc(1, sizeof *d);
  if (!d) return mn_fail(MN_NO_MEMORY, "%s: no memory to open it", path);
  d->base = (struct mn_dataset){.floor = NAN, .read = file_read, .close = file_close};
  d->file.root.id = d->x.object.id = d->y.object.id = -1;
  d->x.role = "x";
  d->y.role = "y";
  d->path = strdup(path);
  d->scratch = malloc(MN_HDF5_TRANSFER);
  int there = 1;
  mn_status status = d->path && d->scratch
                         ? mn_dataset_open_parts(d, part, x_name, y_name, y_required, &there)
                         : mn_fail(MN_NO_MEMORY, "%s: no memory to open it", path);
  if (status == MN_OK && there) status = settle(d);
  if (status == MN_OK && there)
    *out = &d->base;
  else
    file_close(&d->base);
  return status;
}
