/* What a checkpoint of a model says beside its arrays: sizes and constants, names and shapes, options, the
 * constants of the order of samples, and what computed it. Internal to this folder. */
#ifndef MN_TRAIN_CHECKPOINT_DESCRIBE_H
#define MN_TRAIN_CHECKPOINT_DESCRIBE_H

#include "train/checkpoint/checkpoint.h"
#include "train/optimizer.h"

/* What the order of samples depends on, for training data of `rows`, under the names that /config has had
 * from the first version on. */
enum { MN_DESCRIBE_ORDER = 3 };
void mn_describe_order(struct mn_text out[MN_DESCRIBE_ORDER], int64_t rows);

/* The fingerprint of `device`: version, device, precision, libraries. Returns how many there are. */
int mn_describe_fingerprint(const struct mn_device *device, struct mn_text out[MN_CHECKPOINT_FINGERPRINT]);

/* A checkpoint of `model` with fingerprint, without progress and options, and with no array yet: those of
 * every tensor are NULL. `*out` is the caller's, for mn_checkpoint_free. MN_NO_MEMORY. */
mn_status mn_describe_model(struct mn_checkpoint **out, const struct mn_model *model);

/* Where on the device the optimizer keeps a parameter's array `which` > 0 of mn_checkpoint_arrays; NULL: it
 * does not. */
void *mn_describe_kept(const struct mn_optimizer *optimizer, const struct mn_tensor *t, int which);

/* Sets progress and options: `count` texts of the caller's, then those of the order. What the checkpoint had
 * before is replaced. MN_USAGE: `count` is not from 0 to MN_CHECKPOINT_OPTIONS − MN_DESCRIBE_ORDER. */
mn_status mn_describe_moment(struct mn_checkpoint *checkpoint, const struct mn_progress *progress,
                             const struct mn_text *config, int count);

#endif
