/* The objects that the commands train, eval and predict open: a device, a model with its parameters, the
 * rows, and the checkpoint that they come from. */
#ifndef MN_TRAIN_COMMAND_SESSION_H
#define MN_TRAIN_COMMAND_SESSION_H

#include "data/columns.h"
#include "data/csv/csv.h"
#include "data/fingerprint.h"
#include "train/command/options.h"
#include "train/json.h"
#include "train/runs/runs.h"
#include "train/trainer.h"

/* The text in /config on how rows were held out. Runs of minnow 0.3 lack it. */
#define MN_VALIDATION_DRAW "validation_draw"

struct mn_session {
  struct mn_options options; /* the command line's, and those that a checkpoint's /config adds */
  struct mn_ranks *ranks;    /* that train together (engine/ranks/ranks.h); NULL for a run without others */
  struct mn_device *device;
  int brief;                         /* it is the CPU because --device auto found the work short */
  struct mn_dataset *train, *test;   /* test may be NULL; eval and predict have test alone */
  struct mn_class_names class_names; /* of classes that are words, in the model's order; count 0 without */
  struct mn_csv *csv; /* what --data is, if it is no HDF5; owned, as is the text `table` of the columns … */
  char *table;        /* … that the run, or the file of --init, knows; NULL for none */
  struct mn_model *model;
  struct mn_optimizer *optimizer; /* train alone */
  int64_t horizon;                /* train alone: the steps of the run */
  struct mn_run_lock *lock;       /* on --run, while training; NULL without it */
  int made;                       /* the folder of --run */
  struct mn_checkpoint *from;     /* what was resumed or read; NULL for a new run and for weights alone */
  char from_path[MN_CHECKPOINT_PATH];
  struct mn_progress progress;         /* of a resumed run */
  struct mn_columns columns[MN_SIDES]; /* of x and real y in a new run, of all rows or some; or cols 0 */
  int64_t whole; /* rows of --data if --validation divided them into train and test; else 0 */
  /* eval, predict: how many of the first `looked` rows the run was trained on; or −1 */
  int64_t seen, looked;
  /* predict: how many rows are far from the columns' means, which is the farthest, and its deviations */
  int64_t outside, farthest_row;
  double farthest;
  /* A resumed run: the name and the old value of each option that it changes. */
  struct mn_text changed[MN_CHECKPOINT_OPTIONS];
  int changes;
  double *class_weights; /* [classes] of --class-weight; NULL without */
  int folds, chosen;     /* --tune and --folds: 0 without; the best setting by `scores`, or −1 */
  struct mn_fold_score scores[MN_SETTINGS][MN_FOLDS_MOST];
  char fingerprint
      [MN_FINGERPRINT_TEXT];         /* of the rows of --data (data/fingerprint.h); "" for synthetic ones */
  char weights[MN_FINGERPRINT_TEXT]; /* of what multiplies their losses; "" without */
  /* What checkpoints record of the run in /config; its first `logged` texts stand in the log too. */
  struct mn_text config[MN_CHECKPOINT_OPTIONS];
  int config_count, logged;
  char data_path[MN_CHECKPOINT_PATH]; /* of --data, if the checkpoint has named it */
};

/* Opens everything for `train`, on all ranks that the launcher started. Only the first rank holds the lock,
 * prints and writes. The weights come with --resume from the newest checkpoint that verifies (resume.c), else
 * from --init or from the seed. --dry-run does not lock, create files or draw weights. MN_NO_MEMORY, before
 * memory is taken: the device has less free than parameters and optimizer state need. Call mn_session_close
 * also after an error. */
mn_status mn_session_train(struct mn_session *session, const struct mn_options *options);

/* Measures the columns of a new run's rows, and has the model standardise them as --standardize says; before
 * trainer and evaluator are opened. By default the rows of a file are standardised unless --init names
 * weights, which keep their own numbers; of more than 2²⁸ values a sample is measured. MN_INTERRUPTED: *stop
 * was set meanwhile. MN_USAGE: a resumed run was trained without. */
mn_status mn_session_columns(struct mn_session *session, const int *stop);

/* Has a model standardise rows as --standardize says; `columns` gets what was measured. */
mn_status mn_session_standardize(const struct mn_options *options, struct mn_model *model,
                                 struct mn_dataset *rows, struct mn_columns columns[MN_SIDES],
                                 const int *stop);

/* ---- tune.c: --tune and --folds ---- */

/* Trains and tests by folds, and puts what was chosen into s->options, s->horizon and s->optimizer. A resumed
 * run does what its checkpoint lacks. After *stop the rest is left to it, with MN_OK. MN_USAGE: among ranks,
 * or fewer rows than folds. */
mn_status mn_session_tune(struct mn_session *session, const int *stop);

/* Lists the scores so far as texts for /config; returns how many. */
int mn_tune_list(const struct mn_session *session, struct mn_text *out);

/* Tells the chosen options and their scores, on stderr and in the answer of train. */
void mn_tune_describe(const struct mn_session *session);
void mn_tune_report(const struct mn_session *session, struct mn_json *json);

/* mn_session_train for `eval` and `predict`: model, parameters and precision come from --run, rows
 * from --data by --part. If a run used --validation and --data has its rows, by their fingerprint, the seed
 * determines which rows it held out. If --run is a file of weights alone, sizes follow from the
 * weights; groups, constants and loss are the options'. MN_USAGE names a missing option. */
mn_status mn_session_read(struct mn_session *session, const struct mn_options *options, int targets);

/* ---- rows.c: the rows of --data ---- */

/* Opens session->train and, given a test part or --validation, session->test. Words of y are classes. */
mn_status mn_session_open_file(struct mn_session *session);

/* Says what weighs the rows. */
void mn_session_tell_weights(const struct mn_session *session);

/* Notes targets that may be meant otherwise: labels of which one has no row, as 1 to 3 have none of 0, and
 * numbers of which one a row is 1 and the others 0. */
void mn_session_note_targets(const struct mn_session *session);

/* Sets s->class_weights by --class-weight. MN_USAGE: no classes, or another number of them. */
mn_status mn_session_weigh_classes(struct mn_session *session);

/* Opens the rows of --part as session->test. If --part is auto, they are the test part's, else those that the
 * run held out, else all. Auto takes all rows of a file without targets, since no run was trained on them. */
mn_status mn_session_open_part(struct mn_session *session, int targets);

/* Rows of a pass over rows to test on: --batch, or as many more as take a device long enough. */
int64_t mn_session_rows_a_pass(const struct mn_session *session);

/* mn_device_open with the number of threads that --threads names, all of which small products have too; else
 * with `share`, a rank's, or 0. MN_USAGE: more than `share`, or than OpenMP has. */
mn_status mn_session_context(struct mn_device **out, const struct mn_options *options, const char *where,
                             const char *precision, int share);

void mn_session_close(struct mn_session *session);

/* Prints device, data and checkpoint of a training session, and under --verbose its plan. Silent under
 * --quiet. Called after all input was checked, so that an error stays the only line. */
void mn_session_describe(const struct mn_session *session);

/* Says on what device, and which rows eval and predict take. Called after success, so that an error is the
 * only line on stderr. */
void mn_session_announce_rows(const struct mn_session *session);

/* ---- files.c: the files that options name ---- */

/* Checks the files of a command before one is opened for writing. MN_USAGE: --out is a file that is also
 * read; MN_NO_CREATE, MN_IO: it exists, without --force, or cannot be created; MN_LIBRARY: --plot
 * without gnuplot in PATH. */
mn_status mn_files_check(const struct mn_options *options);

/* *out: the path of the data that the checkpoint names by `text`, relative to the run's folder: as short as a
 * user in the current folder would write it. One that is too long is cut off. */
void mn_files_find(const struct mn_session *session, const char *text, char out[MN_CHECKPOINT_PATH]);

/* The reverse: the path of --data as the checkpoint is to name it. MN_NO_CREATE: as a text that is too long;
 * MN_NO_INPUT, MN_NO_CREATE: the folder of the data or of the run is gone. */
mn_status mn_files_name(const struct mn_session *session, char out[MN_TEXT_VALUE]);

/* ---- resume.c: options, rows and history that a resumed run takes from its checkpoint ---- */

/* The text called `name` in /config of s->from, which owns it; NULL if there is none. */
const char *mn_resume_find(const struct mn_session *session, const char *name);

/* Takes every option that the command line leaves open from the checkpoint s->from. An option named with
 * another value goes to s->changed if it is a training option (MN_OPTION_COURSE), else it is MN_USAGE.
 * MN_NO_INPUT: the checkpoint's data does not exist any more. */
mn_status mn_resume_options(struct mn_session *session);

/* Sets s->fingerprint to the fingerprint of the rows, which have been read; `test` may be NULL. A resumed run
 * must have the checkpoint's rows unless the command line names the data (MN_BAD_DATA); data so named goes to
 * s->changed. Forgets the best metric in *progress if the rows are others, or the best was not kept before.
 */
mn_status mn_resume_data(struct mn_session *session, struct mn_progress *progress,
                         const struct mn_fingerprint *train, const struct mn_fingerprint *test);

/* Lists in s->config the options, then what a checkpoint keeps for the next run. Errors: mn_files_name's. */
mn_status mn_resume_config(struct mn_session *session);

/* Lists the /history of this run's checkpoints: the history in s->from, then s->changed. The oldest are
 * dropped if there are too many. Returns their number. */
int mn_resume_history(const struct mn_session *session, struct mn_text out[MN_CHECKPOINT_HISTORY]);

/* Prints each change of a resumed run on a line. Silent under --quiet. */
void mn_resume_describe(const struct mn_session *session);

/* ---- agreements.c: what ranks settle before they train; every rank makes each call ---- */

/* Meets the ranks that a launcher started (mn_ranks_open). With --ranks 1 the process trains by itself.
 * MN_USAGE: WORLD_SIZE promises other processes, but they were started without MPI; other errors as
 * mn_ranks_open. */
mn_status mn_ranks_meet(struct mn_session *session);

/* MN_USAGE, on a rank whose options are not the first's: which, and both values. Not alone. */
mn_status mn_ranks_compare_options(const struct mn_session *session);

/* MN_BAD_DATA: a rank has read other rows than the first has (s->fingerprint). */
mn_status mn_ranks_compare_rows(const struct mn_session *session);

/* Under the first rank's --verbose, prints every rank before the devices connect, so that an unreachable one
 * can be identified. MN_USAGE: only some ranks have a GPU. */
mn_status mn_ranks_introduce(const struct mn_session *session);

/* Arranges the ranks in the grid of --ranks, or in one that suits the model and the hosts. MN_USAGE: --ranks
 * has another number of ranks than were started. */
mn_status mn_ranks_choose_grid(const struct mn_session *session, const struct mn_model_config *config);

#endif
