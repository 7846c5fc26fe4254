/* What a training run owns: the names that follow from --checkpoint, run.h5, run.N.h5, run.best.h5 and
 * run.damaged-N.h5, and the --log that it was given; and its identity, by which it knows them again.
 *
 * The identity (struct mn_run) is a hash of what makes the run: the options that its results depend on, the
 * seed, the data's fingerprint, the weights of --init; and of each change that was made at a resume. Equal
 * runs have equal identities.
 *
 * Paths in a checkpoint are relative to its folder, and what only a checkpoint names is read or written there
 * or below it and nowhere else, links followed: it may come from a stranger. */
#ifndef MN_TRAIN_COMMAND_OWNED_H
#define MN_TRAIN_COMMAND_OWNED_H

#include "train/command/session.h"

/* Sets s->run for a run that goes on from s->from. One that was saved under another name than --checkpoint's
 * is a fork (s->fork): a run of its own from there on, as is one of an older minnow, which has no identity.
 * MN_NO_CREATE: a fork whose name follows from another checkpoint's, such as run.best.h5, which is that run's
 * to replace; MN_BAD_DATA: the texts are none of minnow's. */
mn_status mn_owned_resume(struct mn_session *session);

/* Refuses, by name, a new run of which one of the names exists, a resumed one of which one is not its own
 * (MN_NO_CREATE), and a folder in which no file can be created. */
mn_status mn_owned_check(const struct mn_session *session);

/* Completes s->run, once s->fingerprint and s->changed are known; s->begun gets the id without these changes.
 * Errors: those of reading --init. */
mn_status mn_owned_identify(struct mn_session *session);

/* *out: where the file is that the checkpoint names as --`option` `text`. MN_USAGE: outside its folder. */
mn_status mn_owned_find(const struct mn_session *session, const char *option, const char *text,
                        char out[MN_CHECKPOINT_PATH]);

/* The reverse: `path` as the checkpoint is to name it. MN_NO_CREATE: as a text that is too long. */
mn_status mn_owned_name(const struct mn_session *session, const char *path, char out[MN_TEXT_VALUE]);

/* After a run that has failed: where nothing was saved, renames the log that it began, so that nothing is in
 * the way of the same command, and says so. Returns `status`, with its message. */
mn_status mn_owned_leave(const struct mn_session *session, mn_status status);

#endif
