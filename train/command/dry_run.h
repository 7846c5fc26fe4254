/* train --dry-run: what a run takes, told without a step. */
#ifndef MN_TRAIN_COMMAND_DRY_RUN_H
#define MN_TRAIN_COMMAND_DRY_RUN_H

#include "train/command/session.h"
#include "train/trainer.h"

/* Prints model, parameters, FLOPs, memory, the rows' place and disk, against what this machine has, of a run
 * that is open and has taken no step. Not counted is the copy that a checkpoint is written from on a GPU,
 * which is made where there is room (train/checkpoint/saver.h). MN_IO: the disk cannot be asked. */
mn_status mn_dry_run(FILE *out, const struct mn_session *session, const struct mn_trainer *trainer);

#endif
