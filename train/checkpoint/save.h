/* Saves beside training: a snapshot is taken at once, and a thread of the saver's own writes it to a
 * checkpoint, while the caller trains on.
 *
 * A GPU copies its parameters and optimizer state to memory of their own there, in order with its other work,
 * so that the host does not wait; the thread then downloads the copies. If the GPU has no room for them, and
 * on the CPU, mn_saver_start copies them to the host itself. The saver allocates at the first start and keeps
 * until close: room for these once more on the host, and once more on a GPU that has the room.
 *
 * One thread makes all of these calls: the one that trains. */
#ifndef MN_TRAIN_CHECKPOINT_SAVE_H
#define MN_TRAIN_CHECKPOINT_SAVE_H

#include "train/checkpoint/checkpoint.h"
#include "train/optimizer.h"

struct mn_saver;

/* Opens a saver of `model`, and of the state of its `optimizer` unless that is NULL, to `path`, keeping
 * `keep` checkpoints (mn_checkpoint_save). It borrows the model, and is closed before it and before the
 * optimizer; `path` is copied. `*out` is the caller's, for mn_saver_close. MN_NO_MEMORY. */
MN_API mn_status mn_saver_open(struct mn_saver **out, const char *path, int keep,
                               const struct mn_model *model, const struct mn_optimizer *optimizer);

/* Sets the /history of the saves: `count` texts, at most MN_CHECKPOINT_HISTORY, which are copied. Call it
 * before the first start; without this call /history is left out. */
MN_API void mn_saver_history(struct mn_saver *saver, const struct mn_text *history, int count);

/* What a save writes: the newest checkpoint, to the saver's path, and the best model so far, to the path of
 * mn_checkpoint_best, which keeps one checkpoint. */
enum { MN_SAVE_NEWEST = 1, MN_SAVE_BEST = 2 };

/* Starts to save the model as it is after all work given to its device so far, with `progress`, as `what`:
 * one of these, or both, the best before the newest, so that the newest never names a missing file.
 * `config`, `count` texts of the caller's own (at most MN_CHECKPOINT_OPTIONS − 3), go to /config, before
 * the constants of the order of samples; versions and device go to /fingerprint. All may change as soon as
 * this returns. No save may be running: check mn_saver_busy, or call mn_saver_wait, first. Errors, after
 * which no save runs: MN_USAGE for another `count`, MN_NO_MEMORY, MN_LIBRARY if a copy fails; for the best
 * also those of mn_checkpoint_best. */
MN_API mn_status mn_saver_start(struct mn_saver *saver, int what, const struct mn_progress *progress,
                                const struct mn_text *config, int count);

/* 1 while a save is running, else 0. */
MN_API int mn_saver_busy(struct mn_saver *saver);

/* Without waiting: *saved gets the step of the newest checkpoint that this saver has brought to its path, −1
 * before the first. Returns MN_OK, or the error of the newest save (mn_checkpoint_save's errors,
 * MN_NO_MEMORY, MN_LIBRARY), at each call until another save is started. */
MN_API mn_status mn_saver_poll(struct mn_saver *saver, int64_t *saved);

/* Waits for the running save, if there is one; then as mn_saver_poll. `saved` may be NULL. */
MN_API mn_status mn_saver_wait(struct mn_saver *saver, int64_t *saved);

/* Waits for the running save, but drops its error, which mn_saver_wait returns. NULL is fine. */
MN_API void mn_saver_close(struct mn_saver *saver);

/* Opens a saver, starts its one save, MN_SAVE_NEWEST, waits for it and closes the saver. Errors: those of
 * these calls. */
MN_API mn_status mn_snapshot_save(const char *path, int keep, const struct mn_model *model,
                                  const struct mn_optimizer *optimizer, const struct mn_progress *progress,
                                  const struct mn_text *config, int count);

/* Writes configuration and parameters of `model` to `path`: whole or not at all, as mn_checkpoint_save does.
 * `minnow eval`, `predict` and `train --init` take the file, and h5py reads /model as a state_dict. The plan
 * is not saved. A file that exists is replaced only where mn_model_save has written it: MN_NO_CREATE, also
 * for a checkpoint, whose training would be lost. Else as mn_checkpoint_save, MN_NO_MEMORY, MN_LIBRARY. */
MN_API mn_status mn_model_save(const struct mn_model *model, const char *path);

#endif
