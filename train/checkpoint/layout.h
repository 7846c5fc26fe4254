/* What the files of this folder share, and the commands that show and compare checkpoints. The layout itself
 * stands at the head of layout.c. */
#ifndef MN_TRAIN_CHECKPOINT_LAYOUT_H
#define MN_TRAIN_CHECKPOINT_LAYOUT_H

#include "data/hdf5_file.h"
#include "train/checkpoint/checkpoint.h"

#define MN_CHECKPOINT_FORMAT "minnow checkpoint"
enum { MN_CHECKPOINT_VERSION = 1 };

/* An attribute that is a member of struct mn_checkpoint: a number of 8 bytes or a text. */
struct mn_checkpoint_field {
  const char *name;
  enum mn_hdf5_value_kind kind;
  size_t offset, size;
};

/* Of /model (`hidden`, an array, comes on top) and of /progress; each ends with a name of NULL. */
extern const struct mn_checkpoint_field mn_checkpoint_model_fields[];
extern const struct mn_checkpoint_field mn_checkpoint_progress_fields[];

/* The chunk [rows, cols] in which a tensor is stored: whole rows, or equal parts of one, of at most 1 MiB. */
void mn_checkpoint_chunk(hsize_t chunk[2], const struct mn_checkpoint_tensor *tensor);

/* Starts the walk over a tensor in slabs of whole chunks, contiguous in memory. */
void mn_checkpoint_slabs(struct mn_hdf5_slab *slab, const struct mn_checkpoint_tensor *tensor);

/* Whether an HDF5 file says of itself that it is a checkpoint of minnow's. */
mn_status mn_checkpoint_format(const struct mn_hdf5_file *file, int *ours);

/* That `keep` can be, and that saving to `path` would replace and move checkpoints of ours alone. */
mn_status mn_checkpoint_check_files(const char *path, int keep);

/* mn_checkpoint_load that tells, after an error, whether the file may be a checkpoint of ours that is
 * damaged: *damaged is 0 for one of a newer format, for any other kind of file, and where it cannot be
 * opened. */
mn_status mn_checkpoint_read(struct mn_checkpoint **out, const char *path, int *damaged);

#endif
