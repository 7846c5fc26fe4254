/* From a file back to a model: a checkpoint that is resumed, weights alone, a model without its training. */
#ifndef MN_TRAIN_CHECKPOINT_RESTORE_H
#define MN_TRAIN_CHECKPOINT_RESTORE_H

#include "train/checkpoint/checkpoint.h"
#include "train/optimizer.h"

/* Copies parameters with their scales, what the optimizer keeps and progress (each unless NULL) from
 * `from` into a model of the same sizes. MN_BAD_DATA: a tensor is missing or has another shape, as all do
 * that another rule has kept, or the order of samples has other constants here; MN_NO_MEMORY. */
MN_API mn_status mn_snapshot_restore(const struct mn_checkpoint *from, struct mn_model *model,
                                     struct mn_optimizer *optimizer, struct mn_progress *progress);

/* Loads the weights alone of an HDF5 file into a model that mn_model_open made: a dataset of floats of any
 * width for each parameter, in the group /model under the parameter's name (mn_model_parameter), [rows, cols]
 * or, of a vector, [cols]. If the file has a group /input, the model standardises rows by its mean
 * and scale (mn_model_standardize). A checkpoint is such a file; its optimizer, progress, factors of planes
 * and configuration are not looked at, and planes get factors as after mn_model_initialise. `path` is
 * borrowed during the call. After these errors the model is as it was: MN_NO_INPUT: no such file, or another
 * program writes it; MN_IO: a disk that cannot be read; MN_BAD_DATA: not HDF5, no group /model, tensors that
 * are missing, left over, or of another shape or type, which one message lists all together, or a value that
 * is not finite in the model's reals. After MN_NO_MEMORY and MN_LIBRARY, where a copy to the device may have
 * failed, some parameters may have the file's values and others not. */
MN_API mn_status mn_snapshot_load_weights(const char *path, struct mn_model *model);

/* Adds the weights that this would load to *hash. Errors as above. */
mn_status mn_snapshot_hash_weights(uint64_t *hash, const char *path, const struct mn_model *model);

/* Calls `tell` with `to` for each item of `here`'s fingerprint that `from` has otherwise or lacks: name,
 * value then ("unknown" if it lacks one) and value now. If one differs, the last bits of results may. */
MN_API void mn_snapshot_compare(const struct mn_checkpoint *from, const struct mn_device *here,
                                void (*tell)(void *to, const char *name, const char *then, const char *now),
                                void *to);

/* Opens the model in a file of mn_model_save, or in a checkpoint, on `device`, with MN_PLAN_BLOCK. `*out` is
 * the caller's, for mn_model_close; it borrows `device`. Errors: those of mn_checkpoint_load and
 * mn_model_open. A file of weights alone has no configuration: mn_snapshot_load_weights. */
MN_API mn_status mn_model_load(struct mn_model **out, struct mn_device *device, const char *path);

#endif
