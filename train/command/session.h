/* What the commands train, eval and predict open: a device, a model with its parameters, the rows, and the
 * checkpoint that they come from. */
#ifndef MN_TRAIN_COMMAND_SESSION_H
#define MN_TRAIN_COMMAND_SESSION_H

#include "data/columns.h"
#include "train/checkpoint/snapshot.h"
#include "train/command/options.h"

/* The text in /config that tells how rows were held out; runs of minnow 0.3 have none. */
#define MN_VALIDATION_DRAW "validation_draw"

struct mn_session {
  struct mn_options options; /* the command line's, and what a checkpoint's /config adds */
  struct mn_ranks *ranks;    /* that train together (engine/ranks/ranks.h); NULL: alone */
  struct mn_context *context;
  struct mn_dataset *train, *test; /* test may be NULL; eval and predict have test alone */
  struct mn_model *model;
  struct mn_optimizer *optimizer;  /* train alone */
  struct mn_checkpoint_lock *lock; /* on --checkpoint, while training; NULL without one */
  struct mn_checkpoint *from;      /* what was resumed or read; NULL for a new run and for weights alone */
  char from_path[4096];
  struct mn_progress progress; /* of a resumed run */
  struct mn_columns columns;   /* of x in a new run: of all rows by --standardize, else of some; or cols 0 */
  struct mn_columns targets;   /* of y in a new run on --data, of some rows; or cols 0 */
  int64_t whole;               /* rows of --data, where train and test are parts by --validation; else 0 */
  int stratified;              /* they were drawn by mn_dataset_stratify; runs of minnow 0.3 did without */
  /* Of a resumed run: name, and value then, of each option that it has otherwise; the data cannot be
   * compared, because the checkpoint has no fingerprint of it. */
  struct mn_text changed[MN_CHECKPOINT_OPTIONS];
  int changes, unknown_data;
  char fingerprint[34]; /* of the rows of --data (data/fingerprint.h); "" for synthetic ones */
  struct mn_run run;    /* which it is (train/command/owned.h), */
  char begun[40];       /* its id without the changes of this resume, */
  int fork;             /* and whether it begins here, from another run's checkpoint */
  /* Where --data and --log are, which a checkpoint has named. */
  char data_path[MN_CHECKPOINT_PATH], log_path[MN_CHECKPOINT_PATH];
};

/* Opens everything for `train`, on all ranks that the launcher started; the first has the lock, and alone
 * prints and writes: with --resume from the newest checkpoint that verifies (see
 * train/command/resume.h), else from the weights of --init or from the seed. Under --dry-run nothing is
 * locked or created, and no weight is drawn. MN_NO_MEMORY before anything is taken: parameters and what the
 * optimizer keeps of them are more than the device has free. Closed by mn_session_close, also after an error.
 */
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

/* mn_context_open with the number of threads that --threads names, all of which small products have too.
 * MN_USAGE: more than OpenMP has. */
mn_status mn_session_context(struct mn_context **out, const struct mn_options *options, const char *device,
                             const char *precision);

void mn_session_close(struct mn_session *session);

/* Says on stderr what device, data and checkpoint a training session took, and under --verbose its plan;
 * nothing under --quiet. Called once nothing can be wrong with the input any more, so that an error is the
 * one line that says so. */
void mn_session_describe(const struct mn_session *session);

#endif
