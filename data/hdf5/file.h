/* Reading HDF5 files: for datasets, checkpoints, cases and the command `info`.
 *
 * A file may come from anywhere, and libhdf5 has memory errors on files that are damaged or made to mislead
 * it. So a child process tries a file out before it is opened (open.c), unless it is one of minnow's own, in
 * which checksums guard all that libhdf5 goes by, or the caller trusts it. Soft and external links are not
 * followed, and storage in another file is not opened. mn_hdf5_check compares a dataset's declared size with
 * the stored bytes before memory is allocated. Elements of variable length are read in a child process.
 * Chunks are HDF5's to unpack: a file that was made with filtered chunks that are too short has no defence.
 *
 * Every function takes the lock of hdf5.h itself. Errors: MN_IO if the disk failed, else MN_BAD_DATA, with
 * one line that names the file, the object and a remedy. */
#ifndef MN_DATA_HDF5_FILE_H
#define MN_DATA_HDF5_FILE_H

#include <stdint.h>

#include "data/hdf5/hdf5.h"
#include "kernels/status.h"

struct mn_class_names;

enum { MN_HDF5_RANK = H5S_MAX_RANK, MN_HDF5_VALUES = 64, MN_HDF5_TEXT = 1 << 16 };

/* The kind of object behind a name. A soft or external link is not followed. */
enum mn_hdf5_kind {
  MN_HDF5_NOTHING,
  MN_HDF5_GROUP,
  MN_HDF5_DATASET,
  MN_HDF5_LINK,
  MN_HDF5_OTHER,
  MN_HDF5_UNREADABLE /* for mn_hdf5_visit alone: mn_message says why */
};

struct mn_hdf5_object {
  const char *name; /* for messages; borrowed */
  enum mn_hdf5_kind kind;
  hid_t id; /* open until mn_hdf5_release; −1 for MN_HDF5_NOTHING and MN_HDF5_LINK */
  /* of a dataset */
  H5T_class_t class;
  char type[24]; /* "float32", "int64", "string", "compound" … */
  size_t element;
  size_t native;     /* bytes of an element if the file stores C's float or double; else 0 */
  int swapped;       /* elements are in the other byte order */
  H5T_str_t padding; /* of texts */
  int rank;
  hsize_t shape[MN_HDF5_RANK]; /* rank 0 if the layout is virtual: asking would open other files */
  hsize_t chunk[MN_HDF5_RANK]; /* if the layout is H5D_CHUNKED, … */
  uint64_t unpacked;           /* … and the bytes of a chunk without filters (at most UINT64_MAX); else 0 */
  H5D_layout_t layout;
  int external;           /* the storage is in other files, as also with the layout H5D_VIRTUAL */
  int filters, checksum;  /* the number of filters; whether fletcher32 is one */
  int lacks;              /* the number of a filter that this HDF5 lacks, else 0 */
  char lacking[64];       /* that filter's name */
  haddr_t offset;         /* of contiguous elements in the file, else HADDR_UNDEF */
  uint64_t bytes, stored; /* of all elements (at most UINT64_MAX); stored for them in the file */
  int pointing;           /* elements are references or of variable length */
};

/* An open file. It must not be moved in memory. */
struct mn_hdf5_file {
  const char *path, *remedy; /* borrowed; the end of a message: what to do if the file is damaged */
  uint64_t size;             /* bytes */
  int trusted;               /* MN_HDF5_TRUSTED, or minnow's own */
  int signature;             /* the file has HDF5's signature; set also if opening fails */
  struct mn_hdf5_object root;
  struct mn_hdf5_disk disk;
  int newer; /* the last error may come of a newer HDF5's format */
};

/* How a file is opened. MN_HDF5_SHARED locks it against writers while it is open, as HDF5's own driver does;
 * files that are only replaced whole need no lock. MN_HDF5_TRUSTED: without a child process, whatever it is.
 */
enum { MN_HDF5_SHARED = 1, MN_HDF5_TRUSTED = 2 };
#define MN_HDF5_OWN "minnow checkpoint" /* the root's attribute `format` in files of minnow's own */

/* Opens a file. MN_NO_INPUT: no such file, no permission, not a regular file, or
 * another program writes it; MN_BAD_DATA: not HDF5, cut short, damaged, or libhdf5 crashes on it. After an
 * error the file is closed. */
mn_status mn_hdf5_open(struct mn_hdf5_file *file, const char *path, const char *remedy, int how);

/* mn_child_run of work on a file, or, if it is trusted, the work itself. */
mn_status mn_hdf5_apart(struct mn_hdf5_file *file, mn_child_work *work, void *data, int seconds, void *out,
                        size_t bytes, int *died);

/* Closes a file and the objects in it that are still open. */
void mn_hdf5_close(struct mn_hdf5_file *file);

/* The error for a `name` that is damaged, or of a newer HDF5. With reason NULL it is HDF5's, of a call that
 * failed: call while locked, before another HDF5 call. */
#define MN_HDF5_CRASHED "reading it crashes the HDF5 library, or never ends"
mn_status mn_hdf5_damaged(struct mn_hdf5_file *file, const char *name, const char *reason);

/* Opens `name` in the group `parent`; it may lead through other groups ("train/x"). A missing name has the
 * kind MN_HDF5_NOTHING; a dataset is described. MN_BAD_DATA: a soft or external link on the way or at the
 * end. Close the object with mn_hdf5_release. */
mn_status mn_hdf5_find(struct mn_hdf5_file *file, const struct mn_hdf5_object *parent, const char *name,
                       struct mn_hdf5_object *object);
void mn_hdf5_release(struct mn_hdf5_object *object);

/* Calls `take` with the name of each link in a group, in order, under the lock, until one fails; take may be
 * NULL. All links are read before: MN_BAD_DATA if one is unreadable. */
typedef mn_status mn_hdf5_take_name(void *data, const char *name);
mn_status mn_hdf5_members(struct mn_hdf5_file *file, const struct mn_hdf5_object *group,
                          mn_hdf5_take_name *take, void *data);

/* MN_BAD_DATA for a dataset that cannot be read: its storage is in other files, this HDF5 lacks a filter, or
 * it has more elements, or larger chunks, than its stored bytes can hold. */
mn_status mn_hdf5_check(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset);

/* The shape of a dataset ("[100, 8]"), for messages. */
void mn_hdf5_shape(char *out, size_t size, const struct mn_hdf5_object *dataset);

/* Bytes of a text without its padding: up to the first zero, or without zeros or blanks at the end. */
size_t mn_hdf5_text_length(H5T_str_t padding, const char *text, size_t size);

/* ---- elements ---- */

/* A slab is a box of elements that one call reads or writes. It also walks over a dataset, slab by slab:
 *
 *   for (mn_hdf5_slab_rows(&slab, …); slab.elements; mn_hdf5_slab_next(&slab)) … */
struct mn_hdf5_slab {
  int rank;
  hsize_t start[MN_HDF5_RANK], count[MN_HDF5_RANK];
  hsize_t elements; /* in this slab; 0 after the last */
  /* the walk's start, its end, and the largest count */
  hsize_t from[MN_HDF5_RANK], end[MN_HDF5_RANK], step[MN_HDF5_RANK];
};

/* Starts a walk over rows `first` … shape[0] − 1 in slabs that are contiguous in memory: whole rows, or part
 * of one. A slab has at most MN_HDF5_TRANSFER bytes, with `element` bytes an element. */
void mn_hdf5_slab_rows(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, hsize_t first,
                       size_t element);

void mn_hdf5_slab_next(struct mn_hdf5_slab *slab);

/* The type of an element in memory. */
enum mn_hdf5_memory {
  MN_HDF5_FLOAT,
  MN_HDF5_DOUBLE,
  MN_HDF5_STORED, /* the file's own, to check that it can be read: mn_hdf5_read frees the memory that elements
                     of variable length point to */
};

/* Reads one slab into `out`, its elements next to each other. */
mn_status mn_hdf5_read(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                       enum mn_hdf5_memory memory, const struct mn_hdf5_slab *slab, void *out);

/* Whether a dataset's elements are words: text, bools or members of an enum. */
int mn_has_words(const struct mn_hdf5_object *dataset);

/* Reads labels that are words (words.c): classes from 0 of `rows` rows into `labels`, and their names, sorted
 * by their bytes; names->names is the caller's to free. MN_BAD_DATA: a word that is empty, or longer than
 * MN_CLASS_NAME − 1 bytes, with its row; more than MN_CLASSES_MOST different ones; no words after all, or the
 * dataset is damaged; MN_NO_MEMORY. */
mn_status mn_read_words(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset, int64_t rows,
                        int32_t *labels, struct mn_class_names *names);

/* Creates a contiguous dataset, without times and fill values: equal contents are equal files. Negative if
 * HDF5 failed; else to be closed. Call while locked. */
hid_t mn_hdf5_create(hid_t group, const char *name, hid_t type, int rank, const hsize_t *shape);

/* The type of texts of `length` bytes, UTF-8 and padded with zeros; of length 0, which HDF5 lacks, one zero.
 * Negative if HDF5 failed; else to be closed. Call while locked. */
hid_t mn_hdf5_text_type(size_t length);

/* Writes one slab of `values` of the type `memory`; negative if HDF5 failed. Call while locked. */
herr_t mn_hdf5_write(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, const void *values);

/* ---- attributes ---- */

enum mn_hdf5_value_kind {
  MN_VALUE_NONE,     /* the attribute is missing */
  MN_VALUE_INTEGER,  /* in `integer` */
  MN_VALUE_UNSIGNED, /* in `whole` */
  MN_VALUE_REAL,     /* in `real` */
  MN_VALUE_TEXT,     /* in `text` */
  MN_VALUE_OTHER     /* another type, named in `text`; or a text that holds a zero */
};

/* The value of an attribute: numbers, up to MN_HDF5_VALUES, or a text, cut at MN_HDF5_TEXT. */
struct mn_hdf5_value {
  enum mn_hdf5_value_kind kind;
  int scalar;     /* it has no dimensions */
  int count;      /* numbers */
  size_t element; /* bytes of a number or of the text in the file */
  union {
    int64_t integer[MN_HDF5_VALUES];
    uint64_t whole[MN_HDF5_VALUES];
    double real[MN_HDF5_VALUES];
    char text[MN_HDF5_TEXT];
  };
};

/* Reads an attribute. A string of variable length is MN_VALUE_OTHER unless `variable`. */
mn_status mn_hdf5_attribute(struct mn_hdf5_file *file, const struct mn_hdf5_object *object, const char *name,
                            int variable, struct mn_hdf5_value *value);

/* Sets *number to a number of the value; returns 0 if it has none of this index. */
int mn_hdf5_number(const struct mn_hdf5_value *value, int index, double *number);

/* Reads every attribute of an object and calls `take` (NULL is fine), in order of name or of creation, until
 * one fails. Strings of variable length are read if `variable`. */
typedef mn_status mn_hdf5_take(void *data, const char *name, const struct mn_hdf5_value *value);
mn_status mn_hdf5_attributes(struct mn_hdf5_file *file, const struct mn_hdf5_object *object, H5_index_t order,
                             int variable, mn_hdf5_take *take, void *data);

/* ---- everything ---- */

/* The members of deeper groups are read neither by the child that tries out a file nor by a walk. */
enum { MN_HDF5_DEEPEST = 16 };

/* Calls `visit` for every object, a group before its members, in order of name; object->name is the path
 * from the root. One that cannot be described, or lies too deep, is visited as MN_HDF5_UNREADABLE, unless it
 * is the root. Stops at the first other error, or error of `visit`. */
typedef mn_status mn_hdf5_visit(void *data, struct mn_hdf5_file *file, const struct mn_hdf5_object *object);
mn_status mn_hdf5_walk(struct mn_hdf5_file *file, mn_hdf5_visit *visit, void *data);

#endif
