/* Weights alone, from any HDF5 file whose group /model has a dataset of floats for each parameter, under the
 * parameter's name: a few lines of h5py write one, and a checkpoint is one too. A group /input, if there is
 * one, has what rows are standardised by (train/checkpoint/layout.c). Nothing else of the file is read. Where
 * it has checksums of its content (train/checkpoint/sums.h), weights that are stored as a checkpoint stores
 * them are compared with these. Internal to train/. */
#ifndef MN_TRAIN_CHECKPOINT_WEIGHTS_H
#define MN_TRAIN_CHECKPOINT_WEIGHTS_H

#include "train/checkpoint/checkpoint.h"
#include "train/model.h"

/* Reads the values of `weights`, whose tensors have their name, rank, rows, cols and real, and no value yet:
 * tensors[i].value is set, owned by it. MN_NO_INPUT: no such file; MN_IO; MN_NO_MEMORY; MN_BAD_DATA: not
 * HDF5, no group /model, tensors that are missing, left over, or of another shape or type, all of them in one
 * line, or a value that is not finite as a real. */
mn_status mn_weights_read(struct mn_checkpoint *weights, const char *path);

/* Sets inputs, depth, hidden and head of *config to what the shapes of the weights in `path` say; the other
 * members stay. Whether the rest of /model fits these sizes, mn_weights_read finds out. MN_BAD_DATA: no first
 * block, or a weight that is no matrix; else errors as above. */
mn_status mn_weights_sizes(const char *path, struct mn_model_config *config);

#endif
