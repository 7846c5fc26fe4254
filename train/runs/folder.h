/* The folder of a run and the names of its files. */
#ifndef MN_TRAIN_RUNS_FOLDER_H
#define MN_TRAIN_RUNS_FOLDER_H

#include "train/checkpoint/atomic_file.h"
#include "train/runs/runs.h"

#define MN_RUN_CHECKPOINT "checkpoint.h5"
#define MN_RUN_BEST "best.h5"
#define MN_RUN_LOG "log.jsonl"
#define MN_RUN_PLOT "plot.svg"
#define MN_RUN_LOCK "lock"

/* The path of the file `name` in the folder `run`. Returns 0, or −1 if it does not fit. */
int mn_run_file(char out[MN_ATOMIC_FILE_PATH], const char *run, const char *name);

/* The path to read from: of the file `name` if `path` is a folder, else `path`. */
const char *mn_run_read(char out[MN_ATOMIC_FILE_PATH], const char *path, const char *name);

/* Makes the folder of a new run; *made: it was not there. MN_NO_CREATE: it cannot be made. */
mn_status mn_run_make(const char *run, int *made);

/* Checks that it is a folder, if it is there, and what it holds. A new run's holds at most logs of runs that
 * saved nothing. None of a run's files is a symbolic link, which could lead out of the folder. MN_NO_CREATE
 * names the file; MN_IO: the folder cannot be listed. */
mn_status mn_run_check(const char *run, int resume);

/* The name of the older checkpoint `number` beside `path`: checkpoint.h5 → checkpoint.1.h5; number 0 is
 * `path` itself, MN_RUN_FILE_BEST the best. Returns 0, or −1 if the name does not fit. */
enum { MN_RUN_FILE_BEST = 1000 };
int mn_run_file_number(char out[MN_ATOMIC_FILE_PATH], const char *path, int number);

/* Renames `path` to a free name beside it, *name: with the word "damaged", checkpoint.h5 →
 * checkpoint.damaged-1.h5. */
mn_status mn_run_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word);

#endif
