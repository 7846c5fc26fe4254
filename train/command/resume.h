/* --resume: what a run takes from the checkpoint that it goes on from, what it may have otherwise, and how it
 * knows its data again. A step between opening a session (session.c) and training. */
#ifndef MN_TRAIN_COMMAND_RESUME_H
#define MN_TRAIN_COMMAND_RESUME_H

#include "data/fingerprint.h"
#include "train/command/session.h"

/* Takes every option that the command line leaves open from the checkpoint s->from; its files are found by
 * mn_owned_find. An option that is named with another value goes to s->changed where
 * it is one of the course of training (MN_OPTION_COURSE), and is MN_USAGE where it is not. MN_NO_INPUT: the
 * checkpoint's data is not there any more. */
mn_status mn_resume_options(struct mn_session *session);

/* Sets s->progress, as the checkpoint has it, to the rows that there are: the next sample is as many samples
 * on as before, in the order of these rows. */
void mn_resume_rows(struct mn_session *session);

/* Sets s->fingerprint to that of the rows, which have been read; `test` may be NULL. Those of a resumed run
 * have to be the checkpoint's, unless the command line names them (MN_BAD_DATA); they go to s->changed then.
 */
mn_status mn_resume_data(struct mn_session *session, const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test);

/* Forgets the best metric of a run that has other rows, or has not kept the best of before. */
void mn_resume_best(const struct mn_session *session, struct mn_progress *progress);

/* What a checkpoint keeps for the next run beside mn_options_config: returns how many texts. */
int mn_resume_kept(const struct mn_session *session, struct mn_text *out, int room);

/* The /history of this run's checkpoints: that of s->from, and s->changed. The oldest go where there are too
 * many. Returns how many. */
int mn_resume_history(const struct mn_session *session, struct mn_text out[MN_CHECKPOINT_HISTORY]);

/* Says what is otherwise, a line each; nothing under --quiet. */
void mn_resume_describe(const struct mn_session *session);

#endif
