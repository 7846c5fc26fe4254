/* Checksums of a checkpoint's content: XXH3 of 128 bits, by libxxhash.
 *
 * HDF5 has checksums of its own structures, but not of contiguous datasets. So the root has an attribute
 * `checksums`, a text with a line for each object, as xxhsum -H2 prints them: 32 hex digits, two blanks and a
 * path. The path of a dataset covers its elements, little-endian, row by row; a path with a slash behind it
 * ("config/") covers an object's attributes, and "/" the root's other attributes. The last line, "checksums",
 * covers the lines before it. */
#ifndef MN_TRAIN_CHECKPOINT_SUMS_H
#define MN_TRAIN_CHECKPOINT_SUMS_H

#include "data/hdf5_file.h"

#define MN_SUMS_ATTRIBUTE "checksums"
enum {
  MN_SUMS_TEXT = 65000, /* HDF5 holds less than 64 KiB in an object's header; the largest model takes 57 KB */
  MN_SUMS_PATH = 128,
};

/* The lines, while a file is written or read. */
struct mn_sums {
  int writing;
  int partial; /* of a file that is being read: values without a line are no error */
  size_t length;
  int lines, met;          /* met: lines of a file that content was compared with and agreed */
  char text[MN_SUMS_TEXT]; /* ends with a zero */
};

/* While a file is written, each adds a line: for `bytes` of a dataset's values, whose group and name make the
 * path ("/model" and "head.bias": model/…); for the attributes that `object` has now, whose `path` ends with
 * a slash. While a file is read, each compares them with the line of that path, which must exist unless
 * `partial`; a file without lines agrees with all. MN_BAD_DATA: they are not what was saved. */
mn_status mn_sums_values(struct mn_sums *sums, struct mn_hdf5_file *file, const char *group, const char *name,
                         const void *values, size_t bytes);
mn_status mn_sums_attributes(struct mn_sums *sums, struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object, const char *path);

/* Adds the last line, which covers the lines so far. */
void mn_sums_end(struct mn_sums *sums);

/* Reads the lines of a file; lines is 0 if the attribute is missing. MN_BAD_DATA: they do not agree with the
 * last line, or are no lines. */
mn_status mn_sums_read(struct mn_sums *sums, struct mn_hdf5_file *file);

/* Refuses a file with lines that no content was compared with: the content is missing. */
mn_status mn_sums_check_met(const struct mn_sums *sums, struct mn_hdf5_file *file);

#endif
