/* Finding a dataset in an HDF5 file, and refusing what cannot be one.
 *
 * libhdf5 has memory errors on hostile files, so whatever can be refused is refused before it is read: links
 * that lead elsewhere, storage in other files, types that need conversions beyond numbers, sizes that cannot
 * be. Each message is one line that a user can act on. All of it runs while locked. */
#include "data/dataset_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/hdf5.h"

enum { REASON = 300 };   /* bytes for HDF5's reason in a message */
enum { WILD = 1 << 14 }; /* declared bytes to a stored byte that no data compress to: gzip's limit is 1032 */
#define CACHE ((size_t)256 << 20) /* bytes of decompressed chunks kept, where the chunks are smaller */

mn_status mn_dataset_broken(const struct mn_dataset_file *d, const char *name, const char *doing) {
  char reason[REASON];
  mn_hdf5_reason(reason, sizeof reason);
  /* A system call's failure carries its errno; everything else comes from what the file says. */
  if (strstr(reason, "errno")) return mn_fail(MN_IO, "%s: %s %s failed: %s", d->path, doing, name, reason);
  return mn_fail(MN_BAD_DATA, "%s: %s %s failed: %s; the file is damaged or cut short; get or write it anew",
                 d->path, doing, name, reason);
}

/* ---- the file ---- */

/* What can be said of the file before HDF5 sees it. */
static mn_status look_at(struct mn_dataset_file *d) {
  /* O_NONBLOCK, or opening a FIFO would wait for its writer. */
  int file = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return mn_fail(MN_NO_INPUT, "%s: cannot be opened: %s", d->path, strerror(errno));
  struct stat status;
  int failed = fstat(file, &status) ? errno : 0;
  if (close(file) && !failed) failed = errno;
  if (failed) return mn_fail(MN_IO, "%s: cannot be looked at: %s", d->path, strerror(failed));
  if (!S_ISREG(status.st_mode))
    return mn_fail(MN_NO_INPUT, "%s: is %s, not a file; name an HDF5 file", d->path,
                   S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
  if (status.st_size == 0)
    return mn_fail(MN_BAD_DATA, "%s: is empty (0 bytes), an HDF5 file was expected; write it anew", d->path);
  d->bytes = status.st_size;
  return MN_OK;
}

static mn_status open_file(struct mn_dataset_file *d) {
  MN_TRY(look_at(d));
  d->file = H5Fopen(d->path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (d->file >= 0) return MN_OK;
  char reason[REASON];
  mn_hdf5_reason(reason, sizeof reason);
  if (strstr(reason, "unable to lock"))
    return mn_fail(MN_NO_INPUT,
                   "%s: cannot be locked (%s): another program is writing it, or its file system has no "
                   "locks; for the latter set the environment variable HDF5_USE_FILE_LOCKING=FALSE",
                   d->path, reason);
  if (strstr(reason, "signature"))
    return mn_fail(MN_BAD_DATA, "%s: is not an HDF5 file (%lld bytes, %s); write one, e.g. with h5py",
                   d->path, (long long)d->bytes, reason);
  if (strstr(reason, "truncated"))
    return mn_fail(MN_BAD_DATA, "%s: is cut short at %lld bytes (%s); copy or write it anew", d->path,
                   (long long)d->bytes, reason);
  return mn_dataset_broken(d, "the file", "opening");
}

/* ---- finding x and y ---- */

enum object { NOTHING, GROUP, DATASET, OTHER };

/* What `name` leads to by hard links alone; its parents are known to be groups. */
static mn_status identify(const struct mn_dataset_file *d, const char *name, enum object *what) {
  *what = NOTHING;
  htri_t exists = H5Lexists(d->file, name, H5P_DEFAULT);
  if (exists < 0) return mn_dataset_broken(d, name, "finding");
  if (!exists) return MN_OK;
  H5L_info_t link;
  if (H5Lget_info(d->file, name, &link, H5P_DEFAULT) < 0) return mn_dataset_broken(d, name, "finding");
  if (link.type != H5L_TYPE_HARD)
    return mn_fail(MN_BAD_DATA,
                   "%s: %s is %s link, which could lead anywhere; name what it points to, or copy that into "
                   "the file",
                   d->path, name, link.type == H5L_TYPE_SOFT ? "a soft" : "an external");
  hid_t object = H5Oopen(d->file, name, H5P_DEFAULT);
  if (object < 0) return mn_dataset_broken(d, name, "opening");
  H5I_type_t type = H5Iget_type(object);
  *what = type == H5I_GROUP ? GROUP : type == H5I_DATASET ? DATASET : OTHER;
  if (H5Oclose(object) < 0) return mn_dataset_broken(d, name, "closing");
  return MN_OK;
}

/* Walks the name part by part, so that no link on the way is followed unseen. */
static mn_status find(const struct mn_dataset_file *d, const char *name, enum object *what) {
  char *part = strdup(name);
  if (!part) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", name);
  mn_status status = MN_OK;
  *what = GROUP;
  for (char *end = part; end && status == MN_OK && *what == GROUP;) {
    end = strchr(end, '/');
    if (end) *end = 0;
    status = identify(d, part, what);
    if (end) *end++ = '/';
    if (end && *what != GROUP) *what = NOTHING;
  }
  free(part);
  return status;
}

struct listing {
  size_t length;
  char text[REASON];
};

static herr_t list_link(hid_t group, const char *name, const H5L_info_t *link, void *data) {
  (void)group, (void)link;
  static const char more[] = ", …";
  struct listing *listing = data;
  char *end = listing->text + listing->length;
  size_t left = sizeof listing->text - listing->length;
  int written = snprintf(end, left, "%s%s", listing->length ? ", " : "", name);
  if (written < 0 || (size_t)written + sizeof more > left) {
    snprintf(end, left, "%s", more); /* fits: each name before left room for it */
    return 1;
  }
  listing->length += (size_t)written;
  return 0;
}

static mn_status missing(const struct mn_dataset_file *d, const struct mn_dataset_array *a) {
  char *group = strdup(a->name);
  if (!group) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", a->name);
  char *slash = strrchr(group, '/');
  enum object what = NOTHING;
  mn_status status = MN_OK;
  if (slash) {
    *slash = 0;
    status = find(d, group, &what);
  }
  if (status == MN_OK) {
    struct listing listing = {0, ""};
    /* A listing that fails only makes the message shorter. */
    H5Literate_by_name(d->file, what == GROUP ? group : "/", H5_INDEX_NAME, H5_ITER_INC, NULL, list_link,
                       &listing, H5P_DEFAULT);
    status =
        mn_fail(MN_BAD_DATA, "%s: holds no dataset %s; %s holds: %s; name another by %s", d->path, a->name,
                what == GROUP ? group : "the file", listing.text[0] ? listing.text : "nothing", a->option);
  }
  free(group);
  return status;
}

/* ---- checking one of them ---- */

static const char *class_name(H5T_class_t kind) {
  switch (kind) {
  case H5T_INTEGER:
    return "an integer";
  case H5T_FLOAT:
    return "a float";
  case H5T_TIME:
    return "a time";
  case H5T_STRING:
    return "a string";
  case H5T_BITFIELD:
    return "a bit field";
  case H5T_OPAQUE:
    return "an opaque";
  case H5T_COMPOUND:
    return "a compound";
  case H5T_REFERENCE:
    return "a reference";
  case H5T_ENUM:
    return "an enumeration (h5py's bool is one)";
  case H5T_VLEN:
    return "a variable-length";
  case H5T_ARRAY:
    return "an array";
  default:
    return "an unknown";
  }
}

static mn_status check_type(const struct mn_dataset_file *d, struct mn_dataset_array *a) {
  hid_t type = H5Dget_type(a->id);
  if (type < 0) return mn_dataset_broken(d, a->name, "reading the type of");
  a->kind = H5Tget_class(type);
  a->stored = H5Tget_size(type);
  a->is_signed = a->kind == H5T_INTEGER && H5Tget_sign(type) != H5T_SGN_NONE;
  if (H5Tclose(type) < 0) return mn_dataset_broken(d, a->name, "reading the type of");
  if (a->kind != H5T_INTEGER && a->kind != H5T_FLOAT)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s has elements of %s type; store integers or floats, or name another by %s",
                   d->path, a->name, class_name(a->kind), a->option);
  if (a->stored < 1 || a->stored > (a->kind == H5T_INTEGER ? 8 : 16))
    return mn_fail(MN_BAD_DATA, "%s: dataset %s has %s type of %zu bytes; %d bytes is the most", d->path,
                   a->name, class_name(a->kind), a->stored, a->kind == H5T_INTEGER ? 8 : 16);
  return MN_OK;
}

static mn_status check_filters(const struct mn_dataset_file *d, const struct mn_dataset_array *a,
                               hid_t creation) {
  int count = H5Pget_nfilters(creation);
  if (count < 0) return mn_dataset_broken(d, a->name, "reading the filters of");
  for (int i = 0; i < count; i++) {
    unsigned flags, config;
    size_t parameters = 0;
    char name[64] = "";
    H5Z_filter_t filter =
        H5Pget_filter2(creation, (unsigned)i, &flags, &parameters, NULL, sizeof name, name, &config);
    if (filter < 0) return mn_dataset_broken(d, a->name, "reading the filters of");
    name[sizeof name - 1] = 0;
    if (H5Zfilter_avail(filter) <= 0)
      return mn_fail(MN_BAD_DATA,
                     "%s: dataset %s is compressed by filter %d (%s), which this HDF5 lacks; set "
                     "HDF5_PLUGIN_PATH to where it is, or convert: h5repack -f GZIP=4",
                     d->path, a->name, (int)filter, name);
  }
  return MN_OK;
}

/* Storage of a chunked dataset: a chunk is decompressed whole, so its size counts too. Asks for a cache that
 * holds two rows of chunks, so that neighbouring reads do not decompress the same ones again. */
static mn_status check_chunks(const struct mn_dataset_file *d, struct mn_dataset_array *a, hid_t creation,
                              double stored) {
  hsize_t chunk[2] = {1, 1};
  if (H5Pget_chunk(creation, 2, chunk) != a->rank)
    return mn_dataset_broken(d, a->name, "reading the chunks of");
  double one = (double)chunk[0] * (a->rank == 2 ? (double)chunk[1] : 1) * (double)a->stored;
  if (one > stored * WILD)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s declares chunks of %.0f bytes and stores %.0f bytes in all, which cannot "
                   "be; write it anew",
                   d->path, a->name, one, stored);
  double across = a->rank == 2 ? ceil((double)a->cols / (double)chunk[1]) : 1;
  double wanted = fmin(2 * one * across, fmax((double)CACHE, one));
  if (wanted <= (double)(1 << 20)) return MN_OK; /* HDF5's own default does */
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  if (access < 0) return mn_dataset_broken(d, a->name, "opening");
  mn_status status = MN_OK;
  if (H5Pset_chunk_cache(access, 10007, (size_t)wanted, 1.0) < 0 || H5Dclose(a->id) < 0 ||
      (a->id = H5Dopen2(d->file, a->name, access)) < 0)
    status = mn_dataset_broken(d, a->name, "opening");
  H5Pclose(access);
  return status;
}

/* Whether the bytes that rows and cols declare can be there. */
static mn_status check_size(const struct mn_dataset_file *d, struct mn_dataset_array *a, hid_t creation,
                            H5D_layout_t layout) {
  double declared = (double)a->rows * (double)a->cols * (double)a->stored;
  double stored = (double)H5Dget_storage_size(a->id);
  int whole = 1;
  if (layout == H5D_CONTIGUOUS) {
    haddr_t at = H5Dget_offset(a->id);
    whole = stored >= declared && at != HADDR_UNDEF && (double)at + stored <= (double)d->bytes;
  } else if (layout == H5D_COMPACT) {
    whole = stored >= declared;
  }
  if (!whole || stored > (double)d->bytes || declared > stored * WILD)
    return mn_fail(
        MN_BAD_DATA,
        "%s: dataset %s declares %lld x %lld elements, %.0f bytes, but %.0f are stored in a file of "
        "%lld; it was never written in full or is damaged: write it anew",
        d->path, a->name, (long long)a->rows, (long long)a->cols, declared, stored, (long long)d->bytes);
  return layout == H5D_CHUNKED ? check_chunks(d, a, creation, stored) : MN_OK;
}

static mn_status refuse_shape(const struct mn_dataset_file *d, const struct mn_dataset_array *a, int rank,
                              const hsize_t *size) {
  char text[200] = "";
  size_t length = 0;
  for (int i = 0; i < rank && length < sizeof text - 32; i++)
    length += (size_t)snprintf(text + length, sizeof text - length, "%s%llu", i ? ", " : "",
                               (unsigned long long)size[i]);
  const char *expected =
      *a->option && a->option[2] == 'x' ? "x is [rows, inputs]" : "y is [rows] or [rows, outputs]";
  for (int i = 0; i < rank; i++)
    if (size[i] == 0)
      return mn_fail(MN_BAD_DATA, "%s: dataset %s is [%s]: there is nothing in it; %s", d->path, a->name,
                     text, expected);
  return mn_fail(MN_BAD_DATA, "%s: dataset %s is [%s], but %s; reshape it, or name another by %s", d->path,
                 a->name, text, expected, a->option);
}

static mn_status check_shape(const struct mn_dataset_file *d, struct mn_dataset_array *a, int least_rank) {
  hsize_t size[H5S_MAX_RANK];
  hid_t space = H5Dget_space(a->id);
  if (space < 0) return mn_dataset_broken(d, a->name, "reading the shape of");
  int rank = H5Sget_simple_extent_dims(space, size, NULL);
  H5Sclose(space);
  if (rank < 0) return mn_dataset_broken(d, a->name, "reading the shape of");
  if (rank < least_rank || rank > 2) return refuse_shape(d, a, rank, size);
  int64_t elements;
  a->rank = rank;
  a->rows = (int64_t)size[0];
  a->cols = rank == 2 ? (int64_t)size[1] : 1;
  if (a->rows == 0 || a->cols == 0) return refuse_shape(d, a, rank, size);
  /* 16: the widest element, here or in memory. */
  if (a->rows < 0 || a->cols < 0 || __builtin_mul_overflow(a->rows, a->cols, &elements) ||
      elements > INT64_MAX / 16)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s declares %llu x %llu elements, which cannot be; write it anew", d->path,
                   a->name, (unsigned long long)size[0], (unsigned long long)(rank == 2 ? size[1] : 1));
  return MN_OK;
}

/* Everything about how the dataset is stored. Before the shape is asked for: that alone would make HDF5 look
 * for a virtual dataset's sources. */
static mn_status check_layout(const struct mn_dataset_file *d, struct mn_dataset_array *a, int least_rank) {
  hid_t creation = H5Dget_create_plist(a->id);
  if (creation < 0) return mn_dataset_broken(d, a->name, "reading the layout of");
  mn_status status;
  H5D_layout_t layout = H5Pget_layout(creation);
  int elsewhere = H5Pget_external_count(creation);
  if (layout < 0 || elsewhere < 0)
    status = mn_dataset_broken(d, a->name, "reading the layout of");
  else if (layout == H5D_VIRTUAL || elsewhere > 0)
    status = mn_fail(MN_BAD_DATA,
                     "%s: dataset %s keeps its data in other files (%s storage), which is refused; copy them "
                     "in, e.g. with h5repack",
                     d->path, a->name, layout == H5D_VIRTUAL ? "virtual" : "external");
  else if ((status = check_shape(d, a, least_rank)) == MN_OK &&
           (status = check_filters(d, a, creation)) == MN_OK)
    status = check_size(d, a, creation, layout);
  H5Pclose(creation);
  return status;
}

/* One of the attributes of packed reals, where it is there. */
static mn_status read_attribute(const struct mn_dataset_file *d, struct mn_dataset_array *a, const char *name,
                                double *value) {
  htri_t exists = H5Aexists(a->id, name);
  if (exists < 0) return mn_dataset_broken(d, a->name, "reading the attributes of");
  if (!exists) return MN_OK;
  hid_t id = H5Aopen(a->id, name, H5P_DEFAULT);
  if (id < 0) return mn_dataset_broken(d, a->name, "reading the attributes of");
  hid_t type = H5Aget_type(id), space = H5Aget_space(id);
  H5T_class_t kind = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
  long long points = space < 0 ? -1 : (long long)H5Sget_simple_extent_npoints(space);
  mn_status status = MN_OK;
  if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || points != 1)
    status = mn_fail(MN_BAD_DATA,
                     "%s: attribute %s of dataset %s is %lld value%s of %s type; it must be one number",
                     d->path, name, a->name, points, points == 1 ? "" : "s", class_name(kind));
  else if (H5Aread(id, H5T_NATIVE_DOUBLE, value) < 0)
    status = mn_dataset_broken(d, a->name, "reading the attributes of");
  else if (!isfinite(*value))
    status = mn_fail(MN_BAD_DATA, "%s: attribute %s of dataset %s is %g; it must be finite", d->path, name,
                     a->name, *value);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  H5Aclose(id);
  a->packed = 1;
  return status;
}

/* Opens a dataset and checks all that can be checked without reading it. a->id stays −1 where there is none
 * and none is `required`. */
static mn_status open_array(struct mn_dataset_file *d, struct mn_dataset_array *a, int least_rank,
                            int required) {
  enum object what;
  MN_TRY(find(d, a->name, &what));
  if (what == NOTHING) return required ? missing(d, a) : MN_OK;
  if (what != DATASET)
    return mn_fail(MN_BAD_DATA, "%s: %s is %s, not a dataset; name another by %s", d->path, a->name,
                   what == GROUP ? "a group" : "a named type", a->option);
  a->id = H5Dopen2(d->file, a->name, H5P_DEFAULT);
  if (a->id < 0) return mn_dataset_broken(d, a->name, "opening dataset");
  MN_TRY(check_type(d, a));
  MN_TRY(check_layout(d, a, least_rank));
  a->scale = 1;
  a->offset = 0;
  MN_TRY(read_attribute(d, a, "scale_factor", &a->scale));
  return read_attribute(d, a, "add_offset", &a->offset);
}

/* ---- x and y ---- */

/* group/name, without the slashes that HDF5 would ignore. */
static mn_status join(struct mn_dataset_array *a, const char *group, const char *name) {
  char *to = a->name = malloc(strlen(group) + strlen(name) + 2);
  if (!to) return mn_fail(MN_NO_MEMORY, "no memory for the name %s", name);
  to = stpcpy(to, group);
  const char *given = name;
  char *start = to;
  for (; *name; name++) {
    if (*name == '/') continue;
    if (to > a->name && (to == start || name[-1] == '/')) *to++ = '/';
    *to++ = *name;
  }
  *to = 0;
  return to > start ? MN_OK : mn_fail(MN_USAGE, "%s \"%s\" names no dataset", a->option, given);
}

mn_status mn_dataset_open_parts(struct mn_dataset_file *d, enum mn_part part, const char *x_name,
                                const char *y_name, int y_required, int *there) {
  MN_TRY(open_file(d));
  const char *group = part == MN_PART_TEST ? "test" : "train";
  enum object what;
  MN_TRY(identify(d, group, &what));
  *there = part != MN_PART_TEST || what == GROUP;
  if (!*there) return MN_OK;
  MN_TRY(join(&d->x, what == GROUP ? group : "", x_name ? x_name : "x"));
  MN_TRY(join(&d->y, what == GROUP ? group : "", y_name ? y_name : "y"));
  MN_TRY(open_array(d, &d->x, 2, 1));
  MN_TRY(open_array(d, &d->y, 1, y_required));
  if (d->y.id >= 0 && d->x.rows != d->y.rows)
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s has %lld rows but %s has %lld; give each row of one its row of the other",
                   d->path, d->x.name, (long long)d->x.rows, d->y.name, (long long)d->y.rows);
  return MN_OK;
}
