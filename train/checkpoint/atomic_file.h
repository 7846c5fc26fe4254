/* Files that are only ever replaced whole: a new one beside the old ones, published in one rename, and older
 * ones kept under numbers where that is asked for. Checkpoints, predictions and pictures are written so.
 *
 * A path that is a symbolic link stands for the file that it leads to: the link stays. */
#ifndef MN_TRAIN_CHECKPOINT_ATOMIC_FILE_H
#define MN_TRAIN_CHECKPOINT_ATOMIC_FILE_H

#include <stddef.h>

#include "kernels/status.h"

enum { MN_ATOMIC_FILE_PATH = 4096 };

/* A file being written: stands beside `path` as PATH.saving-<16 hex digits>, and is locked (flock) as long as
 * its writer lives, so that the next save recognises the temporary files of killed runs. */
struct mn_atomic_file {
  int fd;
  char path[MN_ATOMIC_FILE_PATH];   /* where it will stand, links resolved */
  char folder[MN_ATOMIC_FILE_PATH]; /* of both */
  char temporary[MN_ATOMIC_FILE_PATH];
};

/* Creates the new, empty file with the permissions of the file that stands at `path`, else those of any new
 * file (0666 without the umask), and removes temporary files of killed runs. MN_NO_CREATE: no such folder, no
 * permission, `path` is no regular file; MN_IO: no space. */
mn_status mn_atomic_file_create(struct mn_atomic_file *file, const char *path);

/* Makes it durable and puts it in place of `path`; with keep > 1 the file that stood there moves to number 1,
 * that one to 2, up to the first free number or keep − 1, whose file is removed. keep 0: no file may stand
 * there. Closes the file. On an error the file at `path` stands, and the new one is gone; a number may have
 * become free, and of the others at most the last is removed. If only the sync of the folder fails, the new
 * file stands at `path`. MN_NO_CREATE: there is a file at `path` where none was to be, or it appeared in the
 * midst. */
mn_status mn_atomic_file_publish(struct mn_atomic_file *file, int keep);

/* Closes and removes it instead. */
void mn_atomic_file_discard(struct mn_atomic_file *file);

/* The file that `path` leads to through symbolic links, which need not exist. MN_NO_CREATE: an empty name, a
 * path that is too long, links in a circle. */
mn_status mn_atomic_file_resolve(char out[MN_ATOMIC_FILE_PATH], const char *path);

/* Renames `path` to a free name beside it, *name: run.h5 → run.damaged-1.h5, where the word is "damaged". */
mn_status mn_atomic_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word);

/* MN_IO naming path, errno `error`, and what would do about it; `doing` is "write", "rename" … */
mn_status mn_atomic_file_fail(const char *doing, const char *path, int error);

/* The name of number `number` of `path`: run.h5 → run.1.h5, run → run.1; number 0 is `path` itself, and the
 * number behind all others is run.best.h5. 0, or −1 when it does not fit. */
enum { MN_ATOMIC_FILE_BEST = 1000 };
int mn_atomic_file_number(char *out, size_t size, const char *path, int number);

/* Whether a file's name follows from that of `base`: its number; −1 for run.damaged-N.h5; 0: it does not.
 * Neither has a folder. */
int mn_atomic_file_follows(const char *name, const char *base);

/* *next: the least number above `number` for which there is a file; −1: there is none. MN_IO: the folder
 * cannot be listed, so that nobody knows; MN_NO_MEMORY. */
mn_status mn_atomic_file_next(const char *path, int number, int *next);

/* The first name, in order, in the folder of `path` that is `path`'s or follows from it; with `owner` the
 * first from which that of `path` follows. "": there is none. Errors as above. */
mn_status mn_atomic_file_any(char found[MN_ATOMIC_FILE_PATH], const char *path, int owner);

/* *there: whether there is a file, links followed. Where that cannot be known it is an error and not taken
 * for a no, since what is done with a no is to begin anew: MN_IO, MN_NO_MEMORY. */
mn_status mn_atomic_file_exists(const char *path, int *there);

#endif
