/* An HDF5 file open for reading, and how datasets, checkpoints, cases and the command `info` look into it.
 *
 * A file may come from anywhere, and libhdf5 has memory errors on files that are damaged or made to mislead
 * it. So a file is tried out in a child process before it is opened (data/hdf5_probe.h); nothing here follows
 * a soft or external link or opens storage in another file; mn_hdf5_check compares what a dataset declares
 * with what is stored before anyone asks for memory; chunks are unpacked without HDF5 (data/hdf5_chunk.h);
 * and what only HDF5 can read, elements of variable length and other filters' chunks, is read in a child
 * process.
 *
 * Every function takes the lock of data/hdf5.h itself. Errors: MN_IO when the disk failed, else MN_BAD_DATA,
 * with one line that names the file, the object and what would do. */
#ifndef MN_DATA_HDF5_FILE_H
#define MN_DATA_HDF5_FILE_H

#include <hdf5.h>
#include <stdint.h>

#include "data/hdf5_disk.h"
#include "kernels/status.h"

enum { MN_HDF5_RANK = H5S_MAX_RANK, MN_HDF5_VALUES = 64, MN_HDF5_TEXT = 1024 };
enum { MN_HDF5_SECONDS = 60 }; /* of computing, for what is read in a child process at a time */

/* What a name in a file leads to. A soft or external link is not followed. */
enum mn_hdf5_kind { MN_HDF5_NOTHING, MN_HDF5_GROUP, MN_HDF5_DATASET, MN_HDF5_LINK, MN_HDF5_OTHER };

struct mn_hdf5_object {
  const char *name; /* for messages; borrowed */
  enum mn_hdf5_kind kind;
  hid_t id; /* −1 for nothing and for a link; else open, until mn_hdf5_release */
  /* of a dataset */
  H5T_class_t class;
  char type[24]; /* "float32", "int64", "string", "compound" … */
  size_t element;
  size_t native; /* its elements stand in the file as C's float or double: bytes of that; else 0 */
  int swapped;   /* they are in the other byte order */
  int is_signed;
  int rank;
  hsize_t shape[MN_HDF5_RANK]; /* rank 0 where it is virtual: asking would open the other files */
  hsize_t chunk[MN_HDF5_RANK]; /* where the layout is H5D_CHUNKED */
  H5D_layout_t layout;
  int external;           /* its storage is in other files; so is that of layout H5D_VIRTUAL */
  int filters, checksum;  /* how many; whether fletcher32 is one */
  int lacks;              /* the number of a filter that this HDF5 does not have, else 0 */
  char lacking[64];       /* that filter's name */
  haddr_t offset;         /* of contiguous elements in the file, else HADDR_UNDEF */
  uint64_t bytes, stored; /* of its elements (at most UINT64_MAX); of what is kept in the file for them */
  int pointing;           /* its elements point elsewhere: of variable length, or references */
  struct mn_hdf5_chunks *chunks; /* where the layout is H5D_CHUNKED; data/hdf5_chunk.h */
};

/* What changes while a file is read, under the lock, though it is const to its readers. */
struct mn_hdf5_reading {
  struct mn_hdf5_disk disk;
  struct mn_hdf5_chunks *chunks; /* those of all datasets that are open */
  int doubts; /* a chunk of zeros, with their checksum 0, is told on stderr: nothing else can tell */
};

struct mn_hdf5_file {
  const char *path; /* borrowed, like `remedy`: what to do when the file is damaged, the end of a message */
  const char *remedy;
  uint64_t size; /* bytes */
  int signature; /* it has the signature of HDF5 files; set also where opening fails */
  struct mn_hdf5_reading *reading;
  struct mn_hdf5_object root;
};

/* How a file is opened: MN_HDF5_SHARED locks it against writers while it is open, as HDF5's own driver does;
 * files that are only ever replaced whole need no lock. MN_HDF5_TRIED leaves out that a child process tries
 * the file out (data/hdf5_probe.h): of one that was tried before, where a fork would disturb a training run.
 */
enum { MN_HDF5_SHARED = 1, MN_HDF5_TRIED = 2 };

/* Opens a file; `how`: of the above, or 0. MN_NO_INPUT: no such file, no permission, no regular file, another
 * program writes it; MN_BAD_DATA: not HDF5, cut short, damaged, or so that libhdf5 crashes on it. There is
 * nothing to close then. */
mn_status mn_hdf5_open(struct mn_hdf5_file *file, const char *path, const char *remedy, int how);

/* Closes it, and the objects in it that are still open. */
void mn_hdf5_close(struct mn_hdf5_file *file);

/* A name that no link or attribute has: it is longer than the header that would hold it may be. To ask for it
 * reads every link or attribute in an object's header. Whatever has an order, HDF5 1.10.8 goes through in a
 * table that it first fills, and where one of its entries cannot be read it frees the rest of the table,
 * which is not set: so all are read before anything is asked in an order. Call while locked. */
const char *mn_hdf5_absent(void);

/* The message after an HDF5 call on `name` failed. Call while locked, before another HDF5 call. */
mn_status mn_hdf5_damaged(const struct mn_hdf5_file *file, const char *name);

/* The same for a reason of our own; and for elements that cannot be read, `count` of them from `start` on, by
 * HDF5's reason where `reason` is NULL. */
#define MN_HDF5_CRASHED "reading it crashes the HDF5 library, or never ends"
mn_status mn_hdf5_broken(const struct mn_hdf5_file *file, const char *name, const char *reason);
mn_status mn_hdf5_rows_damaged(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                               const hsize_t *start, const hsize_t *count, const char *reason);

/* What `name` in the group `parent` is, which may lead through other groups ("train/x"): kind MN_HDF5_NOTHING
 * where there is none; a dataset is described. A soft or external link on the way, or at the end, is
 * MN_BAD_DATA. Close it with mn_hdf5_release. */
mn_status mn_hdf5_find(const struct mn_hdf5_file *file, const struct mn_hdf5_object *parent, const char *name,
                       struct mn_hdf5_object *object);
void mn_hdf5_release(struct mn_hdf5_object *object);

/* The number of links in a group, and the name of number `index` in order of name. Count before you ask for
 * a name: that reads every link and refuses a group of which one cannot be read. */
mn_status mn_hdf5_count(const struct mn_hdf5_file *file, const struct mn_hdf5_object *group, hsize_t *count);
mn_status mn_hdf5_member(const struct mn_hdf5_file *file, const struct mn_hdf5_object *group, hsize_t index,
                         char *name, size_t size);

/* Refuses a dataset that cannot be read: one with storage in other files, with a filter that this HDF5 lacks,
 * or with more elements, or larger chunks, than its stored bytes can hold. */
mn_status mn_hdf5_check(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset);

/* The name of a type ("float32", "string" …) and the shape of a dataset ("[100, 8]"), for messages. The first
 * is to be called while locked, and returns 0 where HDF5 cannot tell. */
int mn_hdf5_type_name(char *out, size_t size, hid_t type);
void mn_hdf5_shape(char *out, size_t size, const struct mn_hdf5_object *dataset);

/* ---- elements ---- */

/* A slab: a box of elements that is read or written in one call; and the walk over a dataset, slab by slab:
 *
 *   for (mn_hdf5_slab_rows(&slab, …); slab.elements; mn_hdf5_slab_next(&slab)) … */
struct mn_hdf5_slab {
  int rank;
  hsize_t start[MN_HDF5_RANK], count[MN_HDF5_RANK];
  hsize_t elements;                              /* in this slab; 0 after the last */
  hsize_t end[MN_HDF5_RANK], step[MN_HDF5_RANK]; /* where the walk ends; the largest count */
};

/* Starts a walk over rows `first` … shape[0] − 1 in slabs that are contiguous in memory: whole rows, or part
 * of one. A slab is at most MN_HDF5_TRANSFER bytes, `element` bytes an element, and where `chunk` is given it
 * is whole chunks. */
void mn_hdf5_slab_rows(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, const hsize_t *chunk,
                       hsize_t first, size_t element);

/* Starts a walk over all of `shape` in slabs of `step`. */
void mn_hdf5_slab_start(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, const hsize_t *step);
void mn_hdf5_slab_next(struct mn_hdf5_slab *slab);

/* The type of an element in memory. */
enum mn_hdf5_memory {
  MN_HDF5_FLOAT,
  MN_HDF5_DOUBLE,
  MN_HDF5_INT64,
  MN_HDF5_UINT64,
  MN_HDF5_STORED, /* the file's own, only to see that it can be read: memory that elements of variable length
                     point to is freed before mn_hdf5_read returns */
};

/* Reads one slab into `out`, its elements next to each other. */
mn_status mn_hdf5_read(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                       enum mn_hdf5_memory memory, const struct mn_hdf5_slab *slab, void *out);

/* Writes one slab of `values` of the type `memory`; negative when HDF5 failed. Call while locked. */
herr_t mn_hdf5_write(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, const void *values);

/* ---- attributes ---- */

enum mn_hdf5_value_kind {
  MN_VALUE_NONE,     /* there is no such attribute */
  MN_VALUE_INTEGER,  /* in `integer` */
  MN_VALUE_UNSIGNED, /* in `whole` */
  MN_VALUE_REAL,     /* in `real` */
  MN_VALUE_TEXT,     /* in `text` */
  MN_VALUE_OTHER     /* of any other type, which `text` names */
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
mn_status mn_hdf5_attribute(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                            const char *name, int variable, struct mn_hdf5_value *value);

/* Reads a text of fixed length whole: text[size] with a zero behind it, *length bytes, 0 where there is no
 * such attribute. MN_BAD_DATA: it is none, or does not fit. */
mn_status mn_hdf5_text(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object, const char *name,
                       char *text, size_t size, size_t *length);

/* Sets *number to a value that is one number; else returns 0. */
int mn_hdf5_number(const struct mn_hdf5_value *value, double *number);

/* Reads every attribute of an object and calls `take` (NULL is fine), in order of name or of creation, until
 * one fails. Strings of variable length are read where `variable`. */
typedef mn_status mn_hdf5_take(void *data, const char *name, const struct mn_hdf5_value *value);
mn_status mn_hdf5_attributes(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                             H5_index_t order, int variable, mn_hdf5_take *take, void *data);

/* ---- everything ---- */

/* Calls `visit` for every object, groups before what is in them, in order of name; object->name is its path
 * from the root. Stops at the first error. MN_BAD_DATA: damaged, or groups nested too deeply. */
typedef mn_status mn_hdf5_visit(void *data, const struct mn_hdf5_file *file,
                                const struct mn_hdf5_object *object);
mn_status mn_hdf5_walk(const struct mn_hdf5_file *file, mn_hdf5_visit *visit, void *data);

#endif
