/* A dataset in an HDF5 file, read in ranges of rows. A file that cannot be a dataset is refused before its
 * rows are read, with one line that a user can act on.
 *
 * Rows that are stored as they are requested are read from the file's descriptor, by several threads. All
 * other rows are read through HDF5, whose lock lets one thread in at a time. HDF5 reads ranges of rows and
 * never lists of rows, since unions of hyperslabs take time quadratic in their number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/dataset_file.h"
#include "data/fingerprint.h"
#include "data/hdf5/file.h"

#define PIECE ((size_t)256 << 10) /* bytes read without HDF5 at a time, and checked while in the cache */

/* x or y in the file. */
struct array {
  const char *role;             /* "x" or "y" */
  char *name;                   /* from the root, without a leading slash: "train/x" */
  struct mn_hdf5_object object; /* id is −1 if it is missing */
  int64_t rows, cols;           /* cols 1 at rank 1 */
  int packed;                   /* an attribute scales the values: value·scale + offset */
  double scale, offset;
  double wrap; /* added to stored values below 0, which are unsigned */
  struct missing {
    const char *attribute;
    double low, high;
  } missing[2 * MN_HDF5_VALUES + 5]; /* stored values from `low` to `high` are missing */
  int ranges;
  double low, high; /* no value between these is missing */
  size_t direct;    /* the width of reals that the file stores as they are in memory; else 0 */
};

struct dataset_file {
  struct mn_dataset base; /* first, so that the two convert */
  char *path;
  struct mn_hdf5_file file; /* root.id is −1 while it is closed */
  int numbers, without;     /* MN_Y_NUMBERS, MN_Y_NONE */
  struct array x, y;
  struct mn_class_names names; /* and labels [rows]: y, if it has words */
  int32_t *labels;
  void *scratch; /* MN_HDF5_TRANSFER bytes for values to be converted; used under the lock */
};

/* ---- checking x or y ---- */

/* The names in a group, for a message. */
struct names {
  size_t length; /* of all */
  char text[300];
};

static mn_status add_name(void *data, const char *name) {
  struct names *names = data;
  const size_t at = names->length, room = sizeof names->text;
  char *end = names->text + room - sizeof "…";
  if (at >= room) return MN_OK;
  names->length += (size_t)snprintf(names->text + at, room - at, "%s%s", at ? ", " : "", name);
  while (names->length >= room && (*end & 0xc0) == 0x80) end--; /* not within a character */
  if (names->length >= room) strcpy(end, "…");
  return MN_OK;
}

/* The error for a missing x or y, which names what its group holds instead. */
static mn_status missing(struct dataset_file *d, const struct array *a) {
  struct mn_hdf5_object group = {.kind = MN_HDF5_NOTHING, .id = -1};
  const char *slash = strrchr(a->name, '/');
  char *parent = strndup(a->name, slash ? (size_t)(slash - a->name) : 0);
  struct names held = {0, "nothing"};
  if (!parent) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", a->name);
  mn_status status = slash ? mn_hdf5_find(&d->file, &d->file.root, parent, &group) : MN_OK;
  int found = group.kind == MN_HDF5_GROUP;
  if (status == MN_OK) status = mn_hdf5_members(&d->file, found ? &group : &d->file.root, add_name, &held);
  if (status == MN_OK)
    status = mn_fail(MN_BAD_DATA, "%s: holds no dataset %s; %s holds: %s; name another dataset as %s",
                     d->path, a->name, found ? parent : "the file", held.text, a->role);
  mn_hdf5_release(&group);
  free(parent);
  return status;
}

static mn_status check_type(struct dataset_file *d, const struct array *a) {
  const struct mn_hdf5_object *o = &a->object;
  const size_t widest = o->class == H5T_INTEGER ? 8 : o->class == H5T_FLOAT ? 16 : 0;
  if (o->element >= 1 && o->element <= widest) return MN_OK;
  if (a == &d->y && mn_has_words(o) && !d->numbers) return MN_OK;
  return mn_fail(MN_BAD_DATA,
                 "%s: dataset %s has elements of type %s%s; store integers of up to 64 bits or floats of up "
                 "to 128, or name another dataset as %s",
                 d->path, a->name, o->type, o->class == H5T_ENUM ? " (h5py's bool is one)" : "", a->role);
}

static mn_status check_shape(struct dataset_file *d, struct array *a, int least_rank) {
  const struct mn_hdf5_object *o = &a->object;
  const char *expected = least_rank == 2 ? "x is [rows, inputs]" : "y is [rows] or [rows, outputs]";
  char shape[200];
  mn_hdf5_shape(shape, sizeof shape, o);
  if (o->rank < least_rank || o->rank > 2 || o->bytes == 0)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s is %s, but %s, and not empty; reshape it, or name another dataset as %s",
                   d->path, a->name, shape, expected, a->role);
  a->rows = (int64_t)o->shape[0];
  a->cols = o->rank == 2 ? (int64_t)o->shape[1] : 1;
  return MN_OK;
}

/* Adds a missing value, or, if `side` is not 0, all below or above it. real: its bytes in the file, 0 for an
 * integer. Numbers are compared in the precision that both have. NaN is refused by itself. */
static void add_missing(struct array *a, const char *name, double value, size_t real, double side) {
  const size_t own = a->object.class == H5T_FLOAT ? a->object.element : 0;
  const int exact = own == real || (own | real) == 8, bits = own == 2 || real == 2 ? 11 : 24;
  double slack = exact ? 0 : ldexp(fabs(value), -bits);
  if (side != 0) value = nextafter(value, side * INFINITY), slack = -slack;
  const double low = side < 0 ? -INFINITY : value - slack, high = side > 0 ? INFINITY : value + slack;
  if (isnan(value)) return;
  *(low > 0 ? &a->high : &a->low) = low > 0 ? fmin(a->high, low) : fmax(a->low, high);
  a->missing[a->ranges++] = (struct missing){name, low, high};
}

/* Reads what netCDF's attributes say of the stored numbers. Its default for floats never written is missing
 * in any file, as no other number is equal to it. Limits of packed integers that are floats are unpacked. */
static mn_status read_attributes(struct dataset_file *d, struct array *a) {
  static const char *const names[] = {"scale_factor", "add_offset", "_FillValue", "missing_value",
                                      "valid_min",    "valid_max",  "valid_range"};
  static const int counts[] = {1, 1, 0, 0, 1, 1, 2}, sides[] = {0, 0, 0, 0, -1, 1, -1};
  const struct mn_hdf5_object *o = &a->object;
  struct mn_hdf5_value value;
  MN_TRY(mn_hdf5_attribute(&d->file, o, "_Unsigned", 1, &value));
  if (o->type[0] == 'i' && value.kind == MN_VALUE_TEXT && strcasecmp(value.text, "true") == 0)
    a->wrap = ldexp(1, 8 * (int)o->element);
  MN_TRY(mn_hdf5_attribute(&d->file, o, "rhdf5-NA.OK", 1, &value)); /* R's NA among integers */
  if (value.kind != MN_VALUE_NONE && o->class == H5T_INTEGER) add_missing(a, "rhdf5-NA.OK", INT32_MIN, 0, 0);
  for (int k = 0; k < 7; k++) {
    double number;
    MN_TRY(mn_hdf5_attribute(&d->file, o, names[k], 1, &value));
    if (k == 2 && value.kind == MN_VALUE_NONE && o->class == H5T_FLOAT)
      add_missing(a, "default _FillValue in netCDF", 0x1.ep+122, o->element, 0);
    if (value.kind == MN_VALUE_NONE) continue;
    if (!mn_hdf5_number(&value, 0, &number) || (counts[k] && (value.count != counts[k] || !isfinite(number))))
      return mn_fail(MN_BAD_DATA, "%s: attribute %s of dataset %s must be %s: correct or remove it", d->path,
                     names[k], a->name, counts[k] == 1 ? "a single finite number" : "numbers");
    if (k < 2) a->packed = 1, *(k ? &a->offset : &a->scale) = number;
    for (int i = 0; k >= 2 && mn_hdf5_number(&value, i, &number); i++) {
      const size_t real = value.kind == MN_VALUE_REAL ? value.element : 0;
      const int unpack = sides[k] && real && a->packed && o->class == H5T_INTEGER;
      number = unpack ? rint((number - a->offset) / a->scale) : number < 0 ? number + a->wrap : number;
      add_missing(a, names[k], number, real, (unpack ? a->scale : 1) * (i ? -sides[k] : sides[k]));
    }
  }
  return MN_OK;
}

/* Opens x or y and checks it, unread. If it is missing and not `required`, a->object.id stays −1. */
static mn_status open_array(struct dataset_file *d, struct array *a, int least_rank, int required) {
  struct mn_hdf5_object *o = &a->object;
  MN_TRY(mn_hdf5_find(&d->file, &d->file.root, a->name, o));
  if (o->kind == MN_HDF5_NOTHING) return required ? missing(d, a) : MN_OK;
  if (o->kind != MN_HDF5_DATASET)
    return mn_fail(MN_BAD_DATA, "%s: %s is %s, not a dataset; name another as %s", d->path, a->name,
                   o->kind == MN_HDF5_GROUP ? "a group" : "a named type", a->role);
  MN_TRY(check_type(d, a));
  if (o->layout != H5D_VIRTUAL)
    MN_TRY(check_shape(d, a, least_rank)); /* a virtual dataset, of unknown shape, is refused below */
  MN_TRY(mn_hdf5_check(&d->file, o));
  a->scale = 1;
  a->offset = -0.0; /* which changes no sum */
  a->low = -INFINITY, a->high = INFINITY;
  if (!mn_has_words(o)) MN_TRY(read_attributes(d, a));
  a->direct = o->layout == H5D_CONTIGUOUS && !o->filters && !a->packed ? o->native : 0;
  return MN_OK;
}

/* Sets a->name to `name` in `group` ("" for the root). */
static mn_status join(struct array *a, const char *group, const char *name) {
  name += strspn(name, "/");
  if (!*name) return mn_fail(MN_USAGE, "a name of slashes alone, given as %s, names no dataset", a->role);
  if (asprintf(&a->name, "%s%s%s", group, *group ? "/" : "", name) >= 0) return MN_OK;
  a->name = NULL; /* undefined after an error */
  return mn_fail(MN_NO_MEMORY, "no memory for the name %s", name);
}

/* ---- reading ---- */

/* Starts a walk over rows first … first + count, in slabs that fit the scratch memory as 8-byte values. */
static void start_rows(struct mn_hdf5_slab *slab, const struct array *a, int64_t first, int64_t count) {
  const hsize_t shape[2] = {(hsize_t)(first + count), (hsize_t)a->cols};
  mn_hdf5_slab_rows(slab, a->object.rank, shape, (hsize_t)first,
                    a->object.element > 8 ? a->object.element : 8);
}

/* Refuses the first of `count` stored values that is missing or not finite; at: index of values[0]. */
static mn_status check_stored(const struct dataset_file *d, const struct array *a, int64_t at, int64_t count,
                              const void *values, size_t real) {
  const int64_t first = mn_find_outside(values, count, real, a->low, a->high);
  for (int64_t i = first; i >= 0 && i < count; i++)
    for (const struct missing *m = a->missing; m < a->missing + a->ranges; m++)
      if (mn_real_at(values, real, i) >= m->low && mn_real_at(values, real, i) <= m->high)
        return mn_fail(
            MN_BAD_DATA,
            "%s: dataset %s, row %lld, column %lld (from 0) is %.10g%s, missing by its %s: fill it "
            "in or leave out the row",
            d->path, a->name, (long long)((at + i) / a->cols), (long long)((at + i) % a->cols),
            mn_real_at(values, real, i), a->packed ? " as stored" : "", m->attribute);
  return first < 0 ? MN_OK : mn_dataset_check_finite(d->path, a->name, at, a->cols, count, values, real);
}

/* Reads rows without HDF5. It does not write to `d`, so several threads may call it at a time. */
static mn_status read_direct(const struct dataset_file *d, const struct array *a, int64_t first,
                             int64_t count, void *out) {
  int64_t at = first * a->cols, end = at + count * a->cols, most = (int64_t)(PIECE / a->direct), here;
  char *to = out;
  for (; at < end; at += here, to += (size_t)here * a->direct) {
    here = end - at < most ? end - at : most;
    uint64_t offset = a->object.offset + (uint64_t)at * a->direct;
    size_t got;
    int error = mn_read_at(d->file.disk.fd, offset, (size_t)here * a->direct, to, &got);
    if (error)
      return mn_fail(MN_IO, "cannot read %s: %s: check the disk or take a copy", d->path, strerror(error));
    if (got < (size_t)here * a->direct)
      return mn_fail(
          MN_BAD_DATA,
          "%s: dataset %s, rows %lld to %lld: the file ends at byte %llu, before their end; it was "
          "cut short after it was opened: %s",
          d->path, a->name, (long long)((at + (int64_t)(got / a->direct)) / a->cols),
          (long long)(first + count - 1), (unsigned long long)(offset + got), d->file.remedy);
    MN_TRY(check_stored(d, a, at, here, to, a->direct));
  }
  return MN_OK;
}

/* Reads a slab into the scratch memory, as it is stored; at: index of its first value. Call while locked. */
static mn_status read_stored(struct dataset_file *d, const struct array *a, const struct mn_hdf5_slab *slab,
                             int64_t at) {
  double *values = d->scratch;
  MN_TRY(mn_hdf5_read(&d->file, &a->object, MN_HDF5_DOUBLE, slab, values));
  for (hsize_t i = 0; a->wrap > 0 && i < slab->elements; i++) values[i] += values[i] < 0 ? a->wrap : 0;
  return check_stored(d, a, at, (int64_t)slab->elements, values, sizeof *values);
}

/* Reads a slab and unpacks it. */
static mn_status read_packed(struct dataset_file *d, const struct array *a, const struct mn_hdf5_slab *slab,
                             int64_t at, size_t real, void *out) {
  const double *from = d->scratch;
  mn_hdf5_lock(); /* for the scratch memory */
  mn_status status = read_stored(d, a, slab, at);
  for (int64_t i = 0; i < (int64_t)slab->elements && status == MN_OK; i++)
    mn_real_put(out, real, i, from[i] * a->scale + a->offset);
  mn_hdf5_unlock();
  return status;
}

static mn_status read_reals(struct dataset_file *d, const struct array *a, int64_t first, int64_t count,
                            size_t real, void *out) {
  enum mn_hdf5_memory memory = real == sizeof(float) ? MN_HDF5_FLOAT : MN_HDF5_DOUBLE;
  const int plain = !a->packed && (a->object.native == real || (a->ranges == 0 && a->wrap == 0));
  struct mn_hdf5_slab slab;
  char *to = out;
  if (a->direct == real) return read_direct(d, a, first, count, out);
  for (start_rows(&slab, a, first, count); slab.elements; mn_hdf5_slab_next(&slab)) {
    int64_t at = (int64_t)slab.start[0] * a->cols + (slab.rank == 2 ? (int64_t)slab.start[1] : 0);
    MN_TRY(plain ? mn_hdf5_read(&d->file, &a->object, memory, &slab, to)
                 : read_packed(d, a, &slab, at, real, to));
    MN_TRY(plain ? check_stored(d, a, at, (int64_t)slab.elements, to, real)
                 : mn_dataset_check_finite(d->path, a->name, at, a->cols, (int64_t)slab.elements, to, real));
    to += slab.elements * real;
  }
  return MN_OK;
}

/* Reads labels, which must be 0 to `limit`, copies them to `out` unless NULL, and widens `range` to them. */
static mn_status read_labels(struct dataset_file *d, const struct array *a, int64_t first, int64_t count,
                             int64_t limit, int32_t *out, int64_t range[2]) {
  const double *labels = d->scratch, exact = 0x1p53;
  struct mn_hdf5_slab slab;
  for (start_rows(&slab, a, first, count); slab.elements; mn_hdf5_slab_next(&slab)) {
    mn_hdf5_lock(); /* for the scratch memory */
    mn_status status = read_stored(d, a, &slab, (int64_t)slab.start[0]);
    for (int64_t i = 0; i < (int64_t)slab.elements && status == MN_OK; i++) {
      const int64_t label = (int64_t)fmin(labels[i], exact), row = (int64_t)slab.start[0] + i;
      if (label < 0 || label > limit)
        status = mn_fail(
            MN_BAD_DATA,
            "%s: dataset %s, row %lld (from 0) is %lld%s; class labels are 0 to %lld; if these are numbers, "
            "--loss mse trains on them",
            d->path, a->name, (long long)row, (long long)label, labels[i] >= exact ? " or more" : "",
            (long long)limit);
      if (label < range[0]) range[0] = label;
      if (label > range[1]) range[1] = label;
      if (out) out[row - first] = (int32_t)label;
    }
    mn_hdf5_unlock();
    MN_TRY(status);
  }
  return MN_OK;
}

static mn_status file_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                           void *y) {
  struct dataset_file *d = (struct dataset_file *)dataset;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  if (x) MN_TRY(read_reals(d, &d->x, first, count, real, x));
  if (!y) return MN_OK;
  int64_t range[2] = {INT64_MAX, 0};
  if (d->labels) return memcpy(y, d->labels + first, (size_t)count * sizeof *d->labels), MN_OK;
  /* Checked again: the file may have changed since. */
  if (dataset->classes) return read_labels(d, &d->y, first, count, dataset->outputs - 1, y, range);
  return read_reals(d, &d->y, first, count, real, y);
}

/* ---- opening and closing ---- */

static void file_close(struct mn_dataset *dataset) {
  struct dataset_file *d = (struct dataset_file *)dataset;
  if (d->file.root.id >= 0) mn_hdf5_close(&d->file);
  free(d->x.name);
  free(d->y.name);
  free(d->path);
  free(d->scratch);
  free(d->names.names), free(d->labels);
  free(d);
}

/* Reads labels that are words. */
static mn_status read_words(struct dataset_file *d) {
  if (d->y.cols > 1)
    return mn_fail(MN_BAD_DATA, "%s: dataset %s is [%lld, %lld] of %s: class labels must be [%lld]", d->path,
                   d->y.name, (long long)d->y.rows, (long long)d->y.cols, d->y.object.type,
                   (long long)d->y.rows);
  if (!(d->labels = malloc((size_t)d->y.rows * sizeof *d->labels)))
    return mn_fail(MN_NO_MEMORY, "no memory for the labels of %lld rows", (long long)d->y.rows);
  MN_TRY(mn_read_words(&d->file, &d->y.object, d->y.rows, d->labels, &d->names));
  d->base.classes = 1;
  d->base.outputs = d->names.count;
  d->base.alone = d->names.count == 1;
  d->base.class_names = &d->names;
  return MN_OK;
}

/* The class of this name or, of classes without names, of this number; or −1. FALSE and TRUE are 0 and 1. */
static int64_t match(const struct mn_class_names *names, const char *label) {
  static const char *const words[] = {"0", "FALSE", "1", "TRUE"};
  const size_t digits = strspn(label, "0123456789");
  const int number = digits > 0 && digits < 11 && !label[digits] && (*label != '0' || digits == 1);
  int64_t class = names->count ? mn_class_find(names, label) : number ? atoll(label) : -1;
  for (int i = 0; i < 4 && class < 0; i++)
    if (strcmp(label, words[i]) == 0) class = names->count ? mn_class_find(names, words[i ^ 1]) : i / 2;
  return class;
}

mn_status mn_dataset_name_classes(struct mn_dataset *dataset, const struct mn_class_names *names,
                                  const char *whose) {
  struct dataset_file *d = (struct dataset_file *)dataset;
  const struct mn_class_names *own = dataset->class_names;
  int64_t range[2] = {INT64_MAX, 0}, class = 0;
  if (!own) {
    if (!(d->labels = malloc((size_t)dataset->rows * sizeof *d->labels)))
      return mn_fail(MN_NO_MEMORY, "no memory for the labels of %lld rows", (long long)dataset->rows);
    MN_TRY(read_labels(d, &d->y, 0, dataset->rows, INT32_MAX, d->labels, range));
  }
  dataset->outputs = names->count;
  for (int64_t i = 0, label = -1; i < dataset->rows; d->labels[i++] = (int32_t) class) {
    char digits[16];
    if (d->labels[i] == label) continue;
    label = d->labels[i];
    snprintf(digits, sizeof digits, "%d", d->labels[i]);
    const char *text = own ? own->names[label] : digits;
    class = match(names, text);
    if (class < 0 || class > INT32_MAX)
      return mn_fail(
          MN_BAD_DATA,
          "%s: dataset %s, row %lld (from 0) is '%s', which is none of the classes of %s (%s): correct "
          "it, or leave out the row",
          d->path, d->y.name, (long long)i, text, whose, names->count ? "words" : "numbers");
    if (class >= dataset->outputs) dataset->outputs = class + 1;
  }
  dataset->class_names = names->count ? &d->names : NULL;
  dataset->alone = dataset->alone ? class + 1 : 0;
  return mn_class_names_copy(&d->names, names);
}

/* Sets the kind of y; reads labels to count the classes. */
static mn_status settle(struct dataset_file *d) {
  d->base.rows = d->x.rows;
  d->base.inputs = d->x.cols;
  d->base.parallel = d->x.direct;
  d->base.x_type = d->x.object.type;
  if (d->y.object.id < 0) return MN_OK;
  d->base.y_type = d->y.object.type;
  d->base.outputs = d->y.cols;
  d->base.y_parallel = d->y.direct;
  if (mn_has_words(&d->y.object)) return read_words(d);
  if (d->y.object.class == H5T_FLOAT || d->y.packed || d->numbers) return MN_OK;
  if (d->y.cols > 1)
    return mn_fail(
        MN_BAD_DATA,
        "%s: dataset %s is [%lld, %lld] of integers: class labels must be [%lld], regression targets "
        "floats, or integers with --loss mse or an attribute scale_factor (1 does)",
        d->path, d->y.name, (long long)d->y.rows, (long long)d->y.cols, (long long)d->y.rows);
  int64_t range[2] = {INT64_MAX, 0};
  MN_TRY(read_labels(d, &d->y, 0, d->y.rows, INT32_MAX, NULL, range));
  d->base.classes = 1;
  d->base.outputs = range[1] + 1;
  d->base.alone = range[0] == range[1] ? d->base.outputs : 0;
  return MN_OK;
}

/* A MAT-file of version 7.3 is HDF5 behind a text, with the sizes of each array in reverse. */
static mn_status refuse_matlab(const struct dataset_file *d) {
  char start[10];
  size_t got;
  if (mn_read_at(d->file.disk.fd, 0, sizeof start, start, &got) != 0 || got < sizeof start ||
      memcmp(start, "MATLAB 7.3", sizeof start) != 0)
    return MN_OK;
  return mn_fail(MN_BAD_DATA, "%s: MATLAB has turned its arrays, x [n, I] to [I, n]; h5py turns them back",
                 d->path);
}

/* Opens the file, and x and y in it; x.object.id stays −1 if the file lacks the split. */
static mn_status open_parts(struct dataset_file *d, enum mn_part part, const char *x_name, const char *y_name,
                            int how) {
  const int y_required = how & MN_Y_REQUIRED;
  const char *group = part == MN_PART_TEST ? "test" : "train";
  struct mn_hdf5_object found;
  MN_TRY(mn_hdf5_open(&d->file, d->path, "copy or write it anew",
                      MN_HDF5_SHARED | (how & MN_TRUSTED ? MN_HDF5_TRUSTED : 0)));
  MN_TRY(refuse_matlab(d));
  MN_TRY(mn_hdf5_find(&d->file, &d->file.root, group, &found));
  if (found.kind != MN_HDF5_GROUP || part == MN_PART_ALL) group = "";
  mn_hdf5_release(&found);
  if (part == MN_PART_TEST && !*group) return MN_OK;
  MN_TRY(join(&d->x, group, x_name ? x_name : "x"));
  MN_TRY(join(&d->y, group, y_name ? y_name : "y"));
  MN_TRY(open_array(d, &d->x, 2, 1));
  if (!d->without) MN_TRY(open_array(d, &d->y, 1, y_required));
  if (d->y.object.id >= 0 && d->x.rows != d->y.rows && !y_required) mn_hdf5_release(&d->y.object);
  if (d->y.object.id >= 0 && d->x.rows != d->y.rows)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s has %lld rows but %s has %lld; give each row of one its row of the other",
                   d->path, d->x.name, (long long)d->x.rows, d->y.name, (long long)d->y.rows);
  return settle(d);
}

mn_status mn_dataset_open(struct mn_dataset **out, const char *path, enum mn_part part, const char *x_name,
                          const char *y_name, int how) {
  MN_OPENS(out, path);
  struct dataset_file *d = calloc(1, sizeof *d);
  if (!d) return mn_fail(MN_NO_MEMORY, "%s: no memory to open it", path);
  d->base = (struct mn_dataset){.read = file_read, .close = file_close, .fingerprinting = &mn_fingerprinting};
  d->file.root.id = d->x.object.id = d->y.object.id = -1;
  d->numbers = (how & MN_Y_NUMBERS) != 0;
  d->without = (how & MN_Y_NONE) != 0;
  d->x.role = "x";
  d->y.role = "y";
  d->path = strdup(path);
  d->scratch = malloc(MN_HDF5_TRANSFER);
  mn_status status = d->path && d->scratch ? open_parts(d, part, x_name, y_name, how)
                                           : mn_fail(MN_NO_MEMORY, "%s: no memory to open it", path);
  *out = &d->base;
  if (status != MN_OK || d->x.object.id < 0) file_close(*out), *out = NULL;
  return status;
}
