/* Shared by reading, writing, showing and comparing checkpoints. layout.c begins with the layout. */
#ifndef MN_TRAIN_CHECKPOINT_LAYOUT_H
#define MN_TRAIN_CHECKPOINT_LAYOUT_H

#include "data/hdf5/file.h"
#include "train/checkpoint/atomic_file.h"
#include "train/checkpoint/checkpoint.h"

#define MN_CHECKPOINT_FORMAT MN_HDF5_OWN
enum { MN_CHECKPOINT_VERSION = 5 }; /* the newest */

/* An attribute that is a member of struct mn_checkpoint or of its tensors: a number of 8 bytes, an array of
 * such numbers, or a text; then the member is an enum, the text's index in `words`. */
struct mn_checkpoint_field {
  const char *name;
  enum mn_hdf5_value_kind kind;
  size_t offset;
  /* May be missing, which leaves the member as it is: older checkpoints lack it, or it is a factor, a power
   * of two, stored unless it is 0. */
  enum { MN_FIELD_NEWER = 1, MN_FIELD_FACTOR } optional;
  const char *const *words; /* ends with NULL */
  size_t length_offset;     /* of an array [MN_MODEL_DEPTH]: the offset of its length, an earlier field */
};

/* The number, or the word, of a field in `of`. */
const void *mn_checkpoint_value(const struct mn_checkpoint_field *field, const void *of);

/* How many elements an array has; 0 for a number or a text. */
int64_t mn_checkpoint_length(const struct mn_checkpoint_field *field, const void *of);

/* The attributes of /model and of /progress; each list ends with a NULL name. */
extern const struct mn_checkpoint_field mn_checkpoint_model_fields[];
extern const struct mn_checkpoint_field mn_checkpoint_progress_fields[];

/* The factors of a tensor of /model. */
extern const struct mn_checkpoint_field mn_checkpoint_tensor_fields[];

/* The group that has the dataset of each of a tensor's arrays. Those below /optimizer may be missing. */
extern const char *const mn_checkpoint_groups[MN_CHECKPOINT_ARRAYS];

#define MN_CHECKPOINT_CLASSES "/classes" /* the group of `class_names`, in the dataset `names` */
#define MN_CHECKPOINT_TABLE "/table"     /* the group of `table`, in the dataset `columns` */
extern const char *const mn_checkpoint_standards[MN_SIDES]; /* the groups of `standard`: mean, scale */

/* *ours: whether the root's attribute `format` is that of minnow's checkpoints. */
mn_status mn_checkpoint_format(struct mn_hdf5_file *file, int *ours);

/* Writes `checkpoint`, whose tensors mn_checkpoint_lay_out made, to a new file for `path`: H5Fclose, fsync.
 * The caller publishes *file, or discards it; after an error it is gone. Errors: those of atomic_file.h,
 * MN_LIBRARY, MN_NO_MEMORY. Holds the lock of data/hdf5/hdf5.h for 4 MiB at a time. */
mn_status mn_checkpoint_write(const struct mn_checkpoint *checkpoint, struct mn_atomic_file *file,
                              const char *path);

/* mn_checkpoint_load. After an error *damaged is set if the file may be a damaged checkpoint of minnow's: 0
 * for a newer format, for any other kind of file, and for one that cannot be opened. */
mn_status mn_checkpoint_read(struct mn_checkpoint **out, const char *path, int *damaged);

/* mn_checkpoint_load of sizes, constants, classes' names and options: no tensors, progress, fingerprint. */
mn_status mn_checkpoint_read_config(struct mn_checkpoint **out, const char *path);

/* Reads weights alone, and what rows are standardised by, from the files that mn_snapshot_load_weights takes.
 * The tensors of `weights` have their name, rank, rows, cols and real, and no value yet: tensors[i].value is
 * set, owned by it. Errors: those of mn_snapshot_load_weights, and MN_BAD_DATA for a value that differs from
 * its checksum, if the file has any. */
mn_status mn_weights_read(struct mn_checkpoint *weights, const char *path);

/* Sets inputs, depth, hidden and head of *config from the shapes of the weights in `path`; the other members
 * stay. mn_weights_read checks the rest of /model. MN_BAD_DATA: no first block, or a weight that is not a
 * matrix; else errors as above. */
mn_status mn_weights_sizes(const char *path, struct mn_model_config *config);

/* The constants of the order of samples, for training data of `rows`, under their names in /config. */
#define MN_ORDER_NAME "order" /* which minnow 0.3 did not name: it shuffled otherwise */
enum { MN_DESCRIBE_ORDER = 4 };
void mn_describe_order(struct mn_text out[MN_DESCRIBE_ORDER], int64_t rows);

/* The fingerprint of `device`: version, device, precision, libraries, and the grid of ranks if there are any.
 * Returns how many there are. If one differs from a checkpoint's, the last bits of results may. */
int mn_describe_fingerprint(const struct mn_device *device, struct mn_text out[MN_CHECKPOINT_FINGERPRINT]);

/* A checkpoint of `model` with its fingerprint, without progress and options; the arrays of its tensors are
 * NULL. Free *out with mn_checkpoint_free. MN_NO_MEMORY. */
mn_status mn_describe_model(struct mn_checkpoint **out, const struct mn_model *model);

/* The optimizer's array `which` > 0 for a parameter, on the device, or NULL. */
void *mn_describe_kept(const struct mn_optimizer *optimizer, const struct mn_tensor *t, int which);

/* ---- checksums ---- */

/* Checksums of a checkpoint's values: XXH3 of 128 bits, by libxxhash.
 *
 * HDF5 has checksums of its own structures, attributes among them, but not of contiguous datasets. So the
 * root has an attribute `checksums`, a text with a line for each dataset, as xxhsum -H2 prints them: 32 hex
 * digits, two blanks and a path. A line covers the elements, little-endian, row by row. Lines of attributes
 * ("config/", "/") and of the list itself ("checksums"), which minnow 0.3 wrote, are ignored. */
#define MN_SUMS_ATTRIBUTE "checksums"
enum { MN_SUMS_PATH = 128 };

/* The lines, while a file is written or read; they are counted when read. */
struct mn_sums {
  int writing;
  int partial; /* of a file that is being read: values without a line are accepted */
  size_t length;
  int lines, met;          /* of datasets; met: those that values were compared with and agreed */
  char text[MN_HDF5_TEXT]; /* ends with a zero; the largest model takes 52 KB */
};

/* While a file is written, adds a line for `bytes` of a dataset's values, whose group and name make the path
 * ("/model" and "head.bias": model/…). While a file is read, compares them with the line of that path, which
 * must exist unless `partial`; a file without lines agrees with all. MN_BAD_DATA: they are not what was
 * saved. */
mn_status mn_sums_values(struct mn_sums *sums, struct mn_hdf5_file *file, const char *group, const char *name,
                         const void *values, size_t bytes);

/* Reads the lines of a file; lines is 0 if the attribute is missing. MN_BAD_DATA: it is no text of fixed
 * length below MN_HDF5_TEXT, or names no dataset. */
mn_status mn_sums_read(struct mn_sums *sums, struct mn_hdf5_file *file);

#endif
