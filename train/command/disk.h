/* Whether the disk has room for the checkpoints of a run. */
#ifndef MN_TRAIN_COMMAND_DISK_H
#define MN_TRAIN_COMMAND_DISK_H

#include "train/command/session.h"
#include "train/trainer.h"

struct mn_disk {
  double checkpoint; /* bytes of one: the values alone, so a little less than the file */
  double available;  /* bytes that the disk has free where they go; NaN: it does not say */
};

/* Of a training session with --checkpoint. MN_NO_CREATE: no file can be written there; MN_IO: the disk cannot
 * be asked. */
mn_status mn_disk_ask(struct mn_disk *disk, const struct mn_session *session);

/* Refuses, before the first step, a run for whose checkpoints the disk has no room: at its fullest those that
 * --keep and --best ask for, or as many as it saves, and the one that is being written; those that are there
 * already are among them. MN_IO. What a quota leaves, no one asks: that is seen when a save fails. */
mn_status mn_disk_check(const struct mn_session *session, const struct mn_trainer *trainer);

#endif
