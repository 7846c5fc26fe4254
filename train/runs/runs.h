/* The checkpoints of a run, in its folder: the newest, the older ones that it keeps, the best; and the lock
 * that keeps other processes away. */
#ifndef MN_TRAIN_RUNS_RUNS_H
#define MN_TRAIN_RUNS_RUNS_H

#include "train/checkpoint/checkpoint.h"

/* Writes `checkpoint`, whose tensors mn_checkpoint_lay_out made, as atomic_file.h says. With keep > 1 the
 * file that stood at PATH moves to PATH with .1 before its ending (checkpoint.h5 → checkpoint.1.h5), that one
 * to .2, up to keep − 1, by hard links and renames, so that at no moment there is no whole `path`; a file
 * system without links has a moment between two renames. On any error `path` stands as it was, or, if only
 * the sync of the folder failed, whole and new; the oldest may be dropped already. MN_USAGE: keep outside 1 …
 * MN_CHECKPOINT_KEEP; and the errors of mn_checkpoint_write. One thread saves to a path at a time. */
mn_status mn_checkpoint_save(const struct mn_checkpoint *checkpoint, const char *path, int keep);

/* The best checkpoint that a run keeps: *best gets the name of best.h5 beside `path`. MN_NO_CREATE: a path
 * that is too long. */
mn_status mn_checkpoint_best(char best[MN_CHECKPOINT_PATH], const char *path);

/* Locks the folder `run` while a process trains, by flock on the file `lock` in it, which mn_run_unlock
 * removes; the kernel ends the lock of a process that is killed. MN_NO_CREATE: another process holds it, or
 * the file cannot be created. On a file system without locks the run goes on without. */
struct mn_run_lock;
mn_status mn_run_lock(struct mn_run_lock **out, const char *run);
void mn_run_unlock(struct mn_run_lock *lock); /* NULL is fine */

/* ---- saving beside training ---- */

/* mn_saver_start (train/minnow.h) takes memory for the copies of parameters and optimizer state: on the host
 * once, when it is opened (among ranks at the first start), and on a GPU that has the room once more at the
 * first start; both until close. Of both parts of a save the best is written before the newest, so that the
 * newest never names a missing file. */

/* Sets the /history of the saves: `count` texts, at most MN_CHECKPOINT_HISTORY, which are copied. Call it
 * before the first start; without this call /history is left out. */
void mn_saver_history(struct mn_saver *saver, const struct mn_text *history, int count);

/* Without waiting: *saved gets the step of the newest checkpoint that this saver has brought to its path, −1
 * before the first. Returns MN_OK, or the error of the newest save (mn_checkpoint_save's errors,
 * MN_NO_MEMORY, MN_LIBRARY), at each call until another save is started. */
mn_status mn_saver_poll(struct mn_saver *saver, int64_t *saved);

#endif
