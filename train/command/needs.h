/* What a training session that is open needs of memory and disk. */
#ifndef MN_TRAIN_COMMAND_NEEDS_H
#define MN_TRAIN_COMMAND_NEEDS_H

#include "train/command/session.h"
#include "train/trainer.h"

/* Refuses, before the first step, a run for whose checkpoints the disk has no room: at its fullest those that
 * --keep and --best ask for, or as many as it saves, and the one that is being written; those that are there
 * already are among them. A quota is not asked: it is seen when a save fails. MN_NO_CREATE: no file can be
 * written there; MN_IO. */
mn_status mn_needs_check(const struct mn_session *session, const struct mn_trainer *trainer);

/* Prints what --dry-run tells: model, parameters, FLOPs, memory, the rows' place and disk, of a run that has
 * taken no step. Not counted is the copy that a checkpoint is written from on a GPU (train/checkpoint/saver.h).
 * Errors as above. */
mn_status mn_needs_show(FILE *out, const struct mn_session *session, const struct mn_trainer *trainer);

#endif
