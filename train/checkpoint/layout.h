/* What the writer and the reader of checkpoints, and the commands that show and compare them, agree on. The
 * layout itself stands at the head of checkpoint.c. */
#ifndef MN_TRAIN_CHECKPOINT_LAYOUT_H
#define MN_TRAIN_CHECKPOINT_LAYOUT_H

#include <hdf5.h>

#include "train/checkpoint/checkpoint.h"

#define MN_CHECKPOINT_FORMAT "minnow checkpoint"
enum { MN_CHECKPOINT_VERSION = 1 };

/* An attribute that is a member of struct mn_checkpoint. */
enum mn_checkpoint_kind { MN_FIELD_INTEGER, MN_FIELD_UNSIGNED, MN_FIELD_REAL, MN_FIELD_TEXT };

struct mn_checkpoint_field {
  const char *name;
  enum mn_checkpoint_kind kind; /* int64_t, uint64_t, double, char[size] */
  size_t offset, size;
};

/* Of /model (`hidden`, an array, comes on top) and of /progress; each ends with a name of NULL. */
extern const struct mn_checkpoint_field mn_checkpoint_model_fields[];
extern const struct mn_checkpoint_field mn_checkpoint_progress_fields[];

/* The types of an element in the file: little-endian everywhere; and in memory. Call while locked. */
hid_t mn_checkpoint_file_type(size_t real);
hid_t mn_checkpoint_memory_type(size_t real);

/* The chunk [rows, cols] in which a tensor is stored: whole rows, or even parts of one, of at most 1 MiB. */
void mn_checkpoint_chunk(hsize_t chunk[2], const struct mn_checkpoint_tensor *tensor);

/* A stretch of a tensor that is read or written at once: whole chunks of at most MN_HDF5_PIECE bytes, and in
 * one piece in memory too. */
struct mn_checkpoint_band {
  hsize_t start[2], count[2];
};

/* The first band, after {{0, 0}, {0, 0}}, then the next; 0 when there is none left. */
int mn_checkpoint_next_band(struct mn_checkpoint_band *band, const struct mn_checkpoint_tensor *tensor);

#endif
