/* When a training run saves, and what becomes of saves that fail.
 *
 * Training never waits for the disk: a save that falls due while another is being written is taken as soon as
 * that is done. A save that fails lets training go on: it is told of, the next is tried when it is due, and
 * the run's end says so. */
#ifndef MN_TRAIN_COMMAND_SAVES_H
#define MN_TRAIN_COMMAND_SAVES_H

#include "train/checkpoint/saver.h"
#include "train/command/progress_bar.h"
#include "train/command/session.h"

struct mn_saves {
  const struct mn_options *options;
  struct mn_ranks *ranks; /* the first rank decides and writes, all give it their shard; NULL: alone */
  const struct mn_progress *progress; /* of the run, as it is now */
  struct mn_progress_bar *bar;
  struct mn_saver *saver; /* NULL: no checkpoint is kept */
  const struct mn_text *config;
  int config_count;
  int64_t
      snapshot; /* the step of the last snapshot, saved or being saved; −1: there is none, or it is lost */
  double snapshot_time;      /* and when it was taken, or the start */
  int due;                   /* a save has fallen due and waits for the one that is being written */
  int64_t taken, late;       /* snapshots taken; those that had to wait */
  int64_t failures;          /* saves that failed, */
  struct mn_outcome failure; /* the last of them, */
  int failure_noted;         /* and whether that of the newest save is among them */
  int has_best;              /* the newest save is, or has, that of the best */
  int64_t told;              /* the step of the newest save that --verbose has told of */
};

/* Of the session's run, to its --checkpoint; under --dry-run nothing is saved. All is borrowed until close.
 * MN_NO_MEMORY. */
mn_status mn_saves_open(struct mn_saves *saves, const struct mn_session *session,
                        const struct mn_progress *progress, struct mn_progress_bar *bar);
void mn_saves_close(struct mn_saves *saves);

/* What the checkpoints say of the run: config[config_count] is borrowed, history[history_count] copied. */
void mn_saves_describe(struct mn_saves *saves, const struct mn_text *config, int config_count,
                       const struct mn_text *history, int history_count);

/* At a pause of the run: saves if that is due; saves its parameters of now as the best. What is returned ends
 * the run: a save of the best that failed, since a newest that came later would tell of a best that is
 * nowhere. */
mn_status mn_saves_if_due(struct mn_saves *saves);
mn_status mn_saves_best(struct mn_saves *saves);

/* After each step: tells of a save once it is on the disk, not before, and of one that failed. */
void mn_saves_tell(struct mn_saves *saves);

/* Whether the run is to pause for a save: one that falls due by the clock or a signal, one that has waited
 * for another, or the failure of the best. */
int mn_saves_want_a_pause(const struct mn_saves *saves);

/* The next step that is a multiple of --save-every; INT64_MAX without. */
int64_t mn_saves_next(const struct mn_saves *saves);

/* Saves the last step if it is not saved yet, waits until it is on the disk, and says so. A save that fails
 * is tried once more. MN_IO, MN_NO_CREATE, …: it is not saved. */
mn_status mn_saves_end(struct mn_saves *saves);

/* How many saves had to wait, if any did. */
void mn_saves_summarise(const struct mn_saves *saves);

/* The status of the last save that failed, for the end of a run of which all is saved, but not when it was to
 * be; MN_OK if none did. */
mn_status mn_saves_failed(const struct mn_saves *saves);

#endif
