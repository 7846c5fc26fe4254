/* A model in a file of its own, without the training that made it: a checkpoint of which there is only
 * /model, with its sizes and constants, and /fingerprint. */
#ifndef MN_TRAIN_CHECKPOINT_MODEL_H
#define MN_TRAIN_CHECKPOINT_MODEL_H

#include "train/model.h"

/* Writes configuration and parameters of `model` to `path`: whole or not at all, as mn_checkpoint_save does.
 * `minnow eval`, `predict` and `train --init` take the file, and h5py reads /model as a state_dict. The plan
 * is not saved. A file that exists is replaced only where mn_model_save has written it: MN_NO_CREATE, also
 * for a checkpoint, whose training would be lost. Else as mn_checkpoint_save, MN_NO_MEMORY, MN_LIBRARY. */
MN_API mn_status mn_model_save(const struct mn_model *model, const char *path);

/* Opens the model in such a file, or that of a checkpoint, on `device`, with MN_PLAN_BLOCK. `*out` is the
 * caller's, for mn_model_close; it borrows `device`. Errors: those of mn_checkpoint_load and mn_model_open.
 * A file of weights alone has no configuration: mn_snapshot_load_weights. */
MN_API mn_status mn_model_load(struct mn_model **out, struct mn_device *device, const char *path);

#endif
