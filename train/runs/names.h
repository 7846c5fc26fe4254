/* The names of a run's files beside the path that it saves to. */
#ifndef MN_TRAIN_RUNS_NAMES_H
#define MN_TRAIN_RUNS_NAMES_H

#include "train/checkpoint/atomic_file.h"
#include "train/runs/runs.h"

/* The path of the file `name` in the folder `run`. Returns 0, or −1 if it does not fit. */
int mn_run_file(char out[MN_ATOMIC_FILE_PATH], const char *run, const char *name);

/* The path to read from: of the file `name` if `path` is a folder, else `path`. */
const char *mn_run_read(char out[MN_ATOMIC_FILE_PATH], const char *path, const char *name);

/* Whether a shell takes the name as it stands. */
int mn_run_plain(const char *name);

/* Makes the folder of a new run, unless it is there and holds at most logs of runs that saved nothing; *made:
 * it was not there. dry: looks alone. MN_NO_CREATE: it holds something, or cannot be made; MN_IO: it cannot
 * be listed. */
mn_status mn_run_make(const char *run, int dry, int *made);
#define MN_RUN_CHECKPOINT "checkpoint.h5"
#define MN_RUN_BEST "best.h5"
#define MN_RUN_LOG "log.jsonl"

/* The name of number `number` of `path`: run.h5 → run.1.h5, run → run.1; number 0 is `path` itself, and the
 * last number is run.best.h5, of checkpoint.h5 best.h5. Returns 0, or −1 if the name does not fit. */
enum { MN_RUN_FILE_BEST = 1000 };
int mn_run_file_number(char *out, size_t size, const char *path, int number);

/* Whether a file's name follows from that of `base`: run.N.h5, run.best.h5, run.damaged-N.h5. Neither has a
 * folder. */
int mn_run_file_follows(const char *name, const char *base);

/* The name of `path` if that exists, else the first name in its folder, in order, that follows from it; with
 * `owner` the first name from which the name of `path` follows. "" without such a name. MN_IO: the folder
 * cannot be listed; MN_NO_MEMORY. */
mn_status mn_run_file_any(char found[MN_ATOMIC_FILE_PATH], const char *path, int owner);

/* The name of a checkpoint beside `path` that a live run has locked, by a file with this suffix, if the name
 * of `path` follows from it, or it from the name of `path`; else "". Errors as above. */
#define MN_RUN_FILE_LOCK ".lock"
mn_status mn_run_file_locked(char found[MN_ATOMIC_FILE_PATH], const char *path);

/* Renames `path` to a free name beside it, *name: with the word "damaged", run.h5 → run.damaged-1.h5. */
mn_status mn_run_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word);

/* MN_NO_CREATE: of the files of `path`, one whose number is `least` … end − 1 is not a checkpoint of the run
 * `ours`. `how` is mn_hdf5_open's. */
mn_status mn_run_check_files(const char *path, int least, int end, const struct mn_run *ours, int how);

#endif
