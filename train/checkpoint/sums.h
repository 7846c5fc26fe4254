/* The checksums of what a checkpoint holds: XXH3 of 128 bits, by libxxhash.
 *
 * HDF5 guards its own structures, and no dataset of a checkpoint. So the root has an attribute `checksums`, a
 * text with a line for each thing that it covers, as xxhsum -H2 prints them: 32 hex digits, two blanks and a
 * path. The path of a dataset stands for its elements, little-endian, row by row; with a slash behind it
 * ("config/"), it stands for the object's attributes, and "/" for those of the root without this one. The
 * last line, "checksums", is of the lines before it. */
#ifndef MN_TRAIN_CHECKPOINT_SUMS_H
#define MN_TRAIN_CHECKPOINT_SUMS_H

#include "data/hdf5_file.h"

#define MN_SUMS_ATTRIBUTE "checksums"
enum {
  MN_SUMS_TEXT = 65000, /* HDF5 holds less than 64 KiB in an object's header; the largest model takes 57 KB */
  MN_SUMS_PATH = 128,
};

/* The lines: those that are being written, or those of a file that is being read. */
struct mn_sums {
  int writing;
  int partial; /* of a file that is being read: values without a line are no error */
  size_t length;
  int lines, met;          /* met: lines of a file that were asked for, and agreed */
  char text[MN_SUMS_TEXT]; /* ends with a zero */
};

/* While a file is written, each adds a line: that of a dataset's values, `bytes` of them, whose group and
 * name make its path ("/model" and "head.bias": model/…); that of all attributes that `object` has now,
 * whose `path` ends with a slash. While one is read, each compares them with the line of their path, which
 * has to be there; a file without lines agrees with all. MN_BAD_DATA: they are not what was saved. */
mn_status mn_sums_values(struct mn_sums *sums, const struct mn_hdf5_file *file, const char *group,
                         const char *name, const void *values, size_t bytes);
mn_status mn_sums_attributes(struct mn_sums *sums, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object, const char *path);

/* Adds the last line, that of the lines so far. */
void mn_sums_end(struct mn_sums *sums);

/* Reads the lines of a file, none (lines 0) where it has no such attribute. MN_BAD_DATA: they do not agree
 * with the last of them, or are no lines. */
mn_status mn_sums_read(struct mn_sums *sums, const struct mn_hdf5_file *file);

/* Refuses lines of a file that nothing was compared with: what they cover is not there. */
mn_status mn_sums_check_met(const struct mn_sums *sums, const struct mn_hdf5_file *file);

#endif
