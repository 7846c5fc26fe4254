/* Files that are only replaced whole: a new file is written beside the old one and published in one rename;
 * older files may be kept under numbers. Checkpoints, predictions and pictures are written so.
 *
 * A symbolic link stands for the file that it leads to: the link stays. */
#ifndef MN_TRAIN_CHECKPOINT_ATOMIC_FILE_H
#define MN_TRAIN_CHECKPOINT_ATOMIC_FILE_H

#include <stddef.h>

#include "kernels/status.h"

enum { MN_ATOMIC_FILE_PATH = 4096 };

/* A file being written: it stands beside `path` as PATH.saving-<16 hex digits>, and is locked (flock) while
 * its writer lives, so that the next save recognises the temporary files of killed runs. */
struct mn_atomic_file {
  int fd;
  char path[MN_ATOMIC_FILE_PATH];   /* the final path, links resolved */
  char folder[MN_ATOMIC_FILE_PATH]; /* of both */
  char temporary[MN_ATOMIC_FILE_PATH];
};

/* Creates the new, empty file with the permissions of the file at `path`, or else of any new file (0666
 * without the umask), and removes temporary files of killed runs. MN_NO_CREATE: no such folder, no
 * permission, `path` is not a regular file; MN_IO: no space. */
mn_status mn_atomic_file_create(struct mn_atomic_file *file, const char *path);

/* Makes the file durable, puts it in place of `path`, and closes it. With keep > 1 the file at `path` moves
 * to number 1, number 1 to 2, up to the first free number or keep − 1, whose file is removed. With keep 0 no
 * file may stand at `path`. After an error the old file stands at `path`, and the new one is gone; a number
 * may have become free, and at most the last file is removed. If only the sync of the folder fails, the new
 * file stands at `path`. MN_NO_CREATE: a file stands at `path` with keep 0, or has appeared meanwhile. */
mn_status mn_atomic_file_publish(struct mn_atomic_file *file, int keep);

/* Closes and removes the new file instead. */
void mn_atomic_file_discard(struct mn_atomic_file *file);

/* The file that `path` leads to through symbolic links; it may be missing. MN_NO_CREATE: an empty name, a
 * path that is too long, links in a circle. */
mn_status mn_atomic_file_resolve(char out[MN_ATOMIC_FILE_PATH], const char *path);

/* Renames `path` to a free name beside it, *name: with the word "damaged", run.h5 → run.damaged-1.h5. */
mn_status mn_atomic_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word);

/* MN_IO, or MN_NO_MEMORY, naming the path, errno `error` and a remedy; `doing` is "write", "rename" … */
mn_status mn_atomic_file_fail(const char *doing, const char *path, int error);

/* The name of number `number` of `path`: run.h5 → run.1.h5, run → run.1; number 0 is `path` itself, and the
 * last number is run.best.h5. Returns 0, or −1 if the name does not fit. */
enum { MN_ATOMIC_FILE_BEST = 1000 };
int mn_atomic_file_number(char *out, size_t size, const char *path, int number);

/* Whether a file's name follows from that of `base`: run.N.h5, run.best.h5, run.damaged-N.h5. Neither has a
 * folder. */
int mn_atomic_file_follows(const char *name, const char *base);

/* The name of `path` if that exists, else the first name in its folder, in order, that follows from it; with
 * `owner` the first name from which the name of `path` follows. "" without such a name. MN_IO: the folder
 * cannot be listed; MN_NO_MEMORY. */
mn_status mn_atomic_file_any(char found[MN_ATOMIC_FILE_PATH], const char *path, int owner);

/* The name of a checkpoint beside `path` that a live run has locked, by a file with this suffix, if the name
 * of `path` follows from it, or it from the name of `path`; else "". Errors as above. */
#define MN_ATOMIC_FILE_LOCK ".lock"
mn_status mn_atomic_file_locked(char found[MN_ATOMIC_FILE_PATH], const char *path);

/* *there: whether there is a file, links followed. MN_IO, MN_NO_MEMORY: unknown; a caller that took this for
 * a no would begin anew. */
mn_status mn_atomic_file_exists(const char *path, int *there);

#endif
