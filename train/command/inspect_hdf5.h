/* Looking into HDF5 files of any making: walking them, saying what is in them, reading all of it. Nothing
 * here follows a soft or external link or reads storage outside the file. */
#ifndef MN_TRAIN_COMMAND_INSPECT_HDF5_H
#define MN_TRAIN_COMMAND_INSPECT_HDF5_H

#include <hdf5.h>

#include "data/hdf5_disk.h"
#include "kernels/status.h"

enum { MN_HDF5_RANK = 32, MN_HDF5_VALUES = 64, MN_HDF5_TEXT = 1024 };

/* An open file. Every call below takes the lock of data/hdf5.h itself. */
struct mn_hdf5_file {
  const char *path;
  uint64_t size; /* bytes */
  struct mn_hdf5_disk disk;
  hid_t id;
};

/* MN_NO_INPUT, MN_BAD_DATA (not HDF5, truncated) or MN_IO; nothing to close then. */
mn_status mn_hdf5_file_open(struct mn_hdf5_file *file, const char *path);
void mn_hdf5_file_close(struct mn_hdf5_file *file);

/* Whether the file says of itself that it is a checkpoint of minnow's. */
mn_status mn_hdf5_is_checkpoint(const struct mn_hdf5_file *file, int *checkpoint);

enum mn_hdf5_kind { MN_HDF5_GROUP, MN_HDF5_DATASET, MN_HDF5_LINK, MN_HDF5_OTHER };

/* What is under one name. */
struct mn_hdf5_object {
  const char *name; /* from the root: "/train/x" */
  enum mn_hdf5_kind kind;
  hid_t id; /* open during the visit; −1 for a link */
  /* datasets */
  char type[24]; /* "float32", "int64", "string", "compound" … */
  int rank;
  hsize_t shape[MN_HDF5_RANK];
  uint64_t bytes,
      stored; /* of its elements; of what is kept in the file for them, 0 before the first write */
  int chunked, checksum, outside; /* in chunks; with fletcher32; in other files (external, virtual) */
};

/* Calls `visit` for every object, groups before what is in them, in order of name. Stops at the first status
 * that is not MN_OK and returns it. MN_BAD_DATA: damaged, or nested deeper than anyone means to. */
typedef mn_status mn_hdf5_visit(void *data, const struct mn_hdf5_file *file,
                                const struct mn_hdf5_object *object);
mn_status mn_hdf5_walk(const struct mn_hdf5_file *file, mn_hdf5_visit *visit, void *data);

/* The value of an attribute: numbers up to MN_HDF5_VALUES, or a text. */
struct mn_hdf5_value {
  enum { MN_VALUE_INTEGER, MN_VALUE_UNSIGNED, MN_VALUE_REAL, MN_VALUE_TEXT, MN_VALUE_OTHER } kind;
  int scalar, count;
  union {
    int64_t integer[MN_HDF5_VALUES];
    uint64_t whole[MN_HDF5_VALUES];
    double real[MN_HDF5_VALUES];
    char text[MN_HDF5_TEXT]; /* MN_VALUE_OTHER: its type */
  };
};

typedef void mn_hdf5_take(void *data, const char *name, const struct mn_hdf5_value *value);
mn_status mn_hdf5_attributes(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                             mn_hdf5_take *take, void *data);

/* Reads all of a dataset, in pieces, and forgets it: the checksums, and that all of it is there. MN_BAD_DATA.
 */
mn_status mn_hdf5_read_all(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object);

#endif
