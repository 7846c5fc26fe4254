/* Shared by what reads the files of checkpoints and of weights alone. */
#ifndef MN_TRAIN_CHECKPOINT_READER_H
#define MN_TRAIN_CHECKPOINT_READER_H

#include <stdio.h>

#include "train/checkpoint/layout.h"

/* An error leaves groups and datasets open: mn_hdf5_close closes them with the file. */
struct mn_reader {
  struct mn_hdf5_file file;
  struct mn_checkpoint *checkpoint;
  struct mn_model_config *sizes; /* instead: sizes that follow from the shapes of the weights */
  struct mn_sums sums;           /* partial for weights alone */
  int weights;                   /* weights alone are read */
  int damaged;                   /* the file may be a damaged checkpoint of minnow's */
};

/* `count` tensors, and the group of the file that holds one of the arrays of each. */
struct mn_reader_tensors {
  struct mn_reader *reader;
  FILE *misfits;
  struct mn_hdf5_object group;
  const char *path;
  struct mn_checkpoint_tensor *tensors;
  int count, which;
};

/* Opens a file and reads it by `read`. `remedy` and `shared` are mn_hdf5_open's. */
mn_status mn_reader_run(mn_status (*read)(struct mn_reader *reader), struct mn_reader *reader,
                        const char *path, const char *remedy, int shared);

/* The parameters, and /input and /output, which models lack that take rows as they are; those of weights
 * replace the model's own. */
mn_status mn_reader_model(struct mn_reader *reader);

/* MN_BAD_DATA, with a list of all that does not fit, unless the group has these tensors and no others. */
mn_status mn_reader_fit(struct mn_reader *reader, struct mn_reader_tensors *t);

#endif
