/* A dataset in an HDF5 file, read in stretches of rows. dataset_open.c has found and checked it.
 *
 * Reads are of whole row ranges, never of lists of rows (unions of hyperslabs take time quadratic in their
 * number), and move at most MN_HDF5_PIECE bytes while they hold the lock. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_file.h"
#include "data/hdf5.h"

/* What HDF5 converts to while reading. */
enum memory { AS_FLOAT, AS_DOUBLE, AS_INT64, AS_UINT64 };

/* ---- reading ---- */

/* A stretch that is dense in memory: whole rows, or part of one that is longer than a piece. */
struct piece {
  int64_t row, col, rows, cols;
};

/* The piece at element `done` of count·cols, counted from row `first`. */
static struct piece piece_at(const struct mn_dataset_array *a, int64_t first, int64_t count, int64_t done) {
  int64_t most = (int64_t)(MN_HDF5_PIECE / (a->stored > 8 ? a->stored : 8)), row = done / a->cols;
  struct piece piece = {first + row, done % a->cols, 1, a->cols};
  if (a->cols > most) {
    piece.cols = a->cols - piece.col < most ? a->cols - piece.col : most;
  } else {
    piece.rows = count - row < most / a->cols ? count - row : most / a->cols;
  }
  return piece;
}

static mn_status select_and_read(const struct mn_dataset_file *d, const struct mn_dataset_array *a,
                                 struct piece piece, hid_t memory, void *out) {
  hsize_t start[2] = {(hsize_t)piece.row, (hsize_t)piece.col};
  hsize_t count[2] = {(hsize_t)piece.rows, (hsize_t)piece.cols};
  hid_t space = H5Dget_space(a->id), dense = H5Screate_simple(a->rank, count, NULL);
  mn_status status = MN_OK;
  if (space < 0 || dense < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
      H5Dread(a->id, memory, dense, space, H5P_DEFAULT, out) < 0) {
    char doing[96];
    snprintf(doing, sizeof doing, "reading rows %lld to %lld of dataset", (long long)piece.row,
             (long long)(piece.row + piece.rows - 1));
    status = mn_dataset_broken(d, a->name, doing);
  }
  if (dense >= 0) H5Sclose(dense);
  if (space >= 0) H5Sclose(space);
  return status;
}

static mn_status read_piece(const struct mn_dataset_file *d, const struct mn_dataset_array *a,
                            struct piece piece, enum memory memory, void *out) {
  mn_hdf5_lock();
  hid_t types[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT64, H5T_NATIVE_UINT64};
  mn_status status = select_and_read(d, a, piece, types[memory], out);
  mn_hdf5_unlock();
  return status;
}

/* All at once first, in a form that vectorises; where is asked only when there is something to say. */
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
                              struct piece piece, const void *values, size_t real) {
  int64_t count = piece.rows * piece.cols;
  if (all_finite(values, count, real)) return MN_OK;
  for (int64_t i = 0; i < count; i++) {
    double value = real == sizeof(float) ? (double)((const float *)values)[i] : ((const double *)values)[i];
    if (!isfinite(value))
      return mn_fail(MN_BAD_DATA,
                     "%s: dataset %s, row %lld, column %lld (from 0) is %g%s; every value must be finite: "
                     "replace it or leave out the row",
                     d->path, a->name, (long long)(piece.row + i / piece.cols),
                     (long long)(piece.col + i % piece.cols), value,
                     isinf(value) && real == sizeof(float) ? " (as a float)" : "");
  }
  return MN_OK;
}

static mn_status read_reals(struct mn_dataset_file *d, const struct mn_dataset_array *a, int64_t first,
                            int64_t count, size_t real, void *out) {
  for (int64_t done = 0; done < count * a->cols;) {
    struct piece piece = piece_at(a, first, count, done);
    void *here = (char *)out + (size_t)done * real;
    int64_t values = piece.rows * piece.cols;
    if (!a->packed) {
      MN_TRY(read_piece(d, a, piece, real == sizeof(float) ? AS_FLOAT : AS_DOUBLE, here));
    } else {
      const double *from = d->scratch;
      MN_TRY(read_piece(d, a, piece, AS_DOUBLE, d->scratch));
      if (real == sizeof(float))
        for (int64_t i = 0; i < values; i++) ((float *)here)[i] = (float)(from[i] * a->scale + a->offset);
      else
        for (int64_t i = 0; i < values; i++) ((double *)here)[i] = from[i] * a->scale + a->offset;
    }
    MN_TRY(check_finite(d, a, piece, here, real));
    done += values;
  }
  return MN_OK;
}

/* Reads labels into out (NULL: only checks them) and raises *largest to the largest of them. */
static mn_status read_labels(struct mn_dataset_file *d, const struct mn_dataset_array *a, int64_t first,
                             int64_t count, int64_t limit, int32_t *out, int64_t *largest) {
  for (int64_t done = 0; done < count;) {
    struct piece piece = piece_at(a, first, count, done);
    const int64_t *labels = d->scratch;
    MN_TRY(read_piece(d, a, piece, a->is_signed ? AS_INT64 : AS_UINT64, d->scratch));
    for (int64_t i = 0; i < piece.rows; i++) {
      int64_t label = labels[i];
      /* An unsigned label beyond int64 looks negative here: the comparison is right, the sign is not. */
      if (label < 0 || label > limit)
        return mn_fail(MN_BAD_DATA, "%s: dataset %s, row %lld (from 0) is %s%llu; class labels are 0 to %lld",
                       d->path, a->name, (long long)(piece.row + i), a->is_signed && label < 0 ? "-" : "",
                       a->is_signed && label < 0 ? 0ULL - (unsigned long long)label
                                                 : (unsigned long long)label,
                       (long long)limit);
      if (label > *largest) *largest = label;
      if (out) out[done + i] = (int32_t)label;
    }
    done += piece.rows;
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
  mn_hdf5_lock();
  /* Nothing was written, so nothing can be lost by a close that fails. */
  if (d->x.id >= 0) H5Dclose(d->x.id);
  if (d->y.id >= 0) H5Dclose(d->y.id);
  if (d->file >= 0) H5Fclose(d->file);
  mn_hdf5_unlock();
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
  if (d->y.id < 0) return MN_OK;
  d->base.outputs = d->y.cols;
  if (d->y.kind == H5T_FLOAT || d->y.packed) return MN_OK;
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
  d->file = d->x.id = d->y.id = -1;
  d->x.option = "--x";
  d->y.option = "--y";
  d->path = strdup(path);
  d->scratch = malloc(MN_HDF5_PIECE);
  mn_status status = MN_OK;
  int there = 1;
  if (!d->path || !d->scratch) {
    status = mn_fail(MN_NO_MEMORY, "%s: no memory to open it", path);
  } else {
    mn_hdf5_lock();
    status = mn_dataset_open_parts(d, part, x_name, y_name, y_required, &there);
    mn_hdf5_unlock();
  }
  if (status == MN_OK && there) status = settle(d);
  if (status == MN_OK && there)
    *out = &d->base;
  else
    file_close(&d->base);
  return status;
}
