/* What the commands train, eval and predict open: a device, a model with its parameters, the rows, and the
 * checkpoint that they come from. */
#ifndef MN_TRAIN_COMMAND_SESSION_H
#define MN_TRAIN_COMMAND_SESSION_H

#include <limits.h>

#include "data/columns.h"
#include "data/fingerprint.h"
#include "train/checkpoint/restore.h"
#include "train/command/options.h"
#include "train/trainer.h"

/* The text in /config that tells how rows were held out; runs of minnow 0.3 have none. */
#define MN_VALIDATION_DRAW "validation_draw"

struct mn_session {
  struct mn_options options; /* the command line's, and what a checkpoint's /config adds */
  struct mn_ranks *ranks;    /* that train together (engine/ranks/ranks.h); NULL: alone */
  struct mn_device *device;
  struct mn_dataset *train, *test; /* test may be NULL; eval and predict have test alone */
  struct mn_model *model;
  struct mn_optimizer *optimizer;  /* train alone */
  struct mn_checkpoint_lock *lock; /* on --checkpoint, while training; NULL without one */
  struct mn_checkpoint *from;      /* what was resumed or read; NULL for a new run and for weights alone */
  char from_path[4096];
  struct mn_progress progress; /* of a resumed run */
  struct mn_columns columns;   /* of x in a new run: of all rows by --standardize, else of some; or cols 0 */
  int64_t whole;               /* rows of --data, where train and test are parts by --validation; else 0 */
  int stratified;              /* they were drawn by mn_dataset_stratify; runs of minnow 0.3 did without */
  /* A resumed run: the name and the old value of each option that it changes; and whether its data cannot be
   * compared, because the checkpoint has no fingerprint of it. */
  struct mn_text changed[MN_CHECKPOINT_OPTIONS];
  int changes, unknown_data;
  char fingerprint[34]; /* of the rows of --data (data/fingerprint.h); "" for synthetic ones */
  struct mn_run run;    /* which it is (owned.c), */
  char begun[40];       /* its id without the changes of this resume, */
  int fork;             /* and whether it begins here, from another run's checkpoint */
  /* Where --data and --log are, which a checkpoint has named. */
  char data_path[MN_CHECKPOINT_PATH], log_path[MN_CHECKPOINT_PATH];
};

/* Opens everything for `train`, on all ranks that the launcher started; the first has the lock, and alone
 * prints and writes: with --resume from the newest checkpoint that verifies (resume.c), else from the weights
 * of --init or from the seed. Under --dry-run nothing is locked or created, and no weight is drawn.
 * MN_NO_MEMORY before anything is taken: parameters and what the optimizer keeps of them are more than the
 * device has free. Closed by mn_session_close, also after an error. */
mn_status mn_session_train(struct mn_session *session, const struct mn_options *options);

/* Measures the columns of a new run's rows, and by --standardize has the model standardise them; before
 * trainer and evaluator are opened. MN_INTERRUPTED: *stop was set meanwhile. MN_USAGE: a resumed run was
 * trained without --standardize. */
mn_status mn_session_columns(struct mn_session *session, const int *stop);

/* mn_session_train for `eval` and `predict`: model, parameters and precision from --checkpoint, rows from
 * --data, as --part says. Those that a run with --validation held out or trained on are known by its seed, if
 * --data has as many rows as the run's. Where --checkpoint is a file of weights alone, the model's sizes are
 * those of the weights, and its groups, constants and loss the options'; MN_USAGE names the option that is
 * missing. */
mn_status mn_session_read(struct mn_session *session, const struct mn_options *options, int targets);

/* mn_device_open with the number of threads that --threads names, all of which small products have too.
 * MN_USAGE: more than OpenMP has. */
mn_status mn_session_context(struct mn_device **out, const struct mn_options *options, const char *where,
                             const char *precision);

void mn_session_close(struct mn_session *session);

/* Says on stderr what device, data and checkpoint a training session took, and under --verbose its plan;
 * nothing under --quiet. Called once nothing can be wrong with the input any more, so that an error is the
 * one line that says so. */
void mn_session_describe(const struct mn_session *session);

/* ---- files.c: the files of a command, looked at before it starts ---- */

/* Sees that no file of the user's is written over and no run ends in a file that cannot be written. Refuses,
 * before anything is opened for writing,
 *
 *   a file to be written that is also one to be read, or to be written under another option: the same inode,
 *   or the same name in the same folder where it is not there yet, links followed (MN_USAGE);
 *   an existing --log without --resume, and an existing --out, or --plot without --resume, without --force; a
 *   folder in which no file can be written (MN_NO_CREATE, MN_IO);
 *   --plot where there is no gnuplot (MN_LIBRARY).
 *
 * Call it again when resuming has added --data from a checkpoint. */
mn_status mn_files_check(const struct mn_options *options);

/* ---- convert.c: --data that is a CSV or .npy file ---- */

/* After --data `path` could not be opened (MN_BAD_DATA): if it is a CSV or .npy file, makes that the message.
 */
mn_status mn_convert_refuse(const char *path);

/* Prints the three lines of Python behind such a message, with that file's name in them; after any other
 * message nothing. */
void mn_convert_show(FILE *out);

/* ---- owned.c: what a training run owns ----
 *
 * These are the names that follow from --checkpoint (run.h5, run.N.h5, run.best.h5, run.damaged-N.h5) and the
 * --log that it was given. A run knows its files by its identity (struct mn_run), a hash of what makes the
 * run: the options that its results depend on, the seed, the data's fingerprint, the weights of --init, and
 * each change that was made at a resume. Equal runs have equal identities.
 *
 * Paths in a checkpoint are relative to its folder. What only a checkpoint names is read or written in its
 * folder or below and nowhere else, links followed: a checkpoint may come from a stranger. */

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

/* The absolute path of a file that need not exist, links followed; 0, or −1. */
int mn_owned_real(char out[PATH_MAX], const char *path);

/* *out: where the file is that the checkpoint names as --`option` `text`. MN_USAGE: outside its folder. */
mn_status mn_owned_find(const struct mn_session *session, const char *option, const char *text,
                        char out[MN_CHECKPOINT_PATH]);

/* The reverse: `path` as the checkpoint is to name it. MN_NO_CREATE: as a text that is too long. */
mn_status mn_owned_name(const struct mn_session *session, const char *path, char out[MN_TEXT_VALUE]);

/* After a run that has failed: where nothing was saved, renames the log that it began, so that nothing is in
 * the way of the same command, and says so. Returns `status`, with its message. */
mn_status mn_owned_leave(const struct mn_session *session, mn_status status);

/* ---- resume.c: what a resumed run takes from its checkpoint, and how it knows its data again ---- */

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

/* ---- ranks.c: what ranks settle before they train; every rank makes each call ---- */

/* Meets the ranks that a launcher started (mn_ranks_open), but where --ranks says 1: that process trains
 * alone, and meets nobody. MN_USAGE: WORLD_SIZE says that there are others, and there is no MPI to meet them
 * by; else the errors of mn_ranks_open. */
mn_status mn_ranks_meet(struct mn_session *session);

/* MN_USAGE, on a rank whose options are not the first's: which, and both values. Not alone. */
mn_status mn_ranks_compare_options(const struct mn_session *session);

/* MN_BAD_DATA: a rank has read other rows than the first has (s->fingerprint). */
mn_status mn_ranks_compare_rows(const struct mn_session *session);

/* Under the first rank's --verbose every rank is named, before they connect their devices: who cannot be
 * reached is then known. MN_USAGE: some have a GPU, and others none. */
mn_status mn_ranks_introduce(const struct mn_session *session);

/* Makes the ranks the grid that --ranks says, or that suits the model and the hosts. MN_USAGE: it says
 * another number of ranks than were started. */
mn_status mn_ranks_choose_grid(const struct mn_session *session, const struct mn_model_config *config);

/* ---- needs.c: what a session that is open to train needs of memory and disk ---- */

/* Refuses, before the first step, a run whose disk has no room for a checkpoint more. A quota is not asked: it
 * is seen when a save fails. MN_NO_CREATE: no file can be written there; MN_IO. */
mn_status mn_needs_check(const struct mn_session *session);

/* Prints what --dry-run tells: model, parameters, FLOPs, memory, the rows' place and disk, of a run that has
 * taken no step. Not counted is the copy that a checkpoint is written from on a GPU
 * (train/checkpoint/save.h). Errors as above. */
mn_status mn_needs_show(FILE *out, const struct mn_session *session, const struct mn_trainer *trainer);

#endif
