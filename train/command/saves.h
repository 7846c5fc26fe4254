/* When a training run saves, and what becomes of saves that fail.
 *
 * Training never waits for the disk: a save that falls due while another is being written is taken as soon as
 * that is done. Training goes on after a save that fails: a warning is printed, the next save is tried when
 * it is due, and the run ends with the error. */
#ifndef MN_TRAIN_COMMAND_SAVES_H
#define MN_TRAIN_COMMAND_SAVES_H

#include "train/command/announce.h"
#include "train/command/session.h"

struct mn_saves {
  const struct mn_session *session;   /* its first rank decides and writes, all send it their shard */
  const struct mn_progress *progress; /* of the run, as it is now */
  struct mn_saver *saver;             /* NULL if no checkpoint is kept */
  int64_t snapshot; /* the last snapshot's step, even if it is being saved; −1: none yet, or it failed */
  double snapshot_time;      /* and when it was taken, or the start */
  int due;                   /* a save has fallen due and waits for the one that is being written */
  struct mn_outcome failure; /* of the last save that failed */
  int has_best;              /* the newest save writes the best, alone or with the newest checkpoint */
  int64_t told;              /* the step of the newest save that --verbose has reported */
};

/* Opens the saves of the session's run, in its folder; under --dry-run no file is written. Both
 * arguments are borrowed, and session->config is listed. Close the saver before the session. MN_NO_MEMORY. */
mn_status mn_saves_open(struct mn_saves *saves, const struct mn_session *session,
                        const struct mn_progress *progress);

/* At a pause of the run: saves if a save is due, and with `better` the current parameters as the best. An
 * error ends the run: if a save of the best fails, a later newest would name a missing file. */
mn_status mn_saves_at_pause(struct mn_saves *saves, int better);

/* After each step: reports a save once it is on the disk, and a save that failed. */
void mn_saves_tell(struct mn_saves *saves);

/* Whether the run is to pause for a save: one that falls due by the clock or a signal, one that has waited
 * for another, or the failure of the best. */
int mn_saves_want_a_pause(const struct mn_saves *saves);

/* Saves the last step if it is not saved yet, waits until it is on the disk, and reports it. A save that
 * fails is tried once more. MN_IO, MN_NO_CREATE, … if it is not saved, with the step that --resume goes on
 * from, if there is one. */
mn_status mn_saves_end(struct mn_saves *saves);

#endif
