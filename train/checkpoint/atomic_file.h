/* Files that are only replaced whole: a new file is written beside the old one and published in one rename.
 * Checkpoints, predictions and pictures are written so.
 *
 * A symbolic link stands for the file that it leads to: the link stays. */
#ifndef MN_TRAIN_CHECKPOINT_ATOMIC_FILE_H
#define MN_TRAIN_CHECKPOINT_ATOMIC_FILE_H

#include "kernels/status.h"

enum { MN_ATOMIC_FILE_PATH = 4096 };

/* A file being written: it stands beside `path` as PATH.saving-<16 hex digits>, and is locked (flock) while
 * its writer lives, so that the next save recognises the temporary files of killed runs. */
struct mn_atomic_file {
  int fd, synced;                   /* synced: its bytes are on the disk, and are not written any more */
  char path[MN_ATOMIC_FILE_PATH];   /* the final path, links resolved */
  char folder[MN_ATOMIC_FILE_PATH]; /* of both */
  char temporary[MN_ATOMIC_FILE_PATH];
};

/* Creates the new, empty file with the permissions of the file at `path`, or else of any new file (0666
 * without the umask), and removes temporary files of killed runs. MN_NO_CREATE: no such folder, no
 * permission, `path` is not a regular file; MN_IO: no space. */
mn_status mn_atomic_file_create(struct mn_atomic_file *file, const char *path);

/* Makes the bytes of the new, complete file durable; publishing does it where this did not. MN_IO. */
mn_status mn_atomic_file_sync(struct mn_atomic_file *file);

/* Makes the file durable, puts it in place of `path`, and closes it; unless `replace` no file may stand
 * there. After an error the old file stands at `path`, and the new one is gone; if only the sync of the
 * folder fails, the new file stands there. MN_NO_CREATE: a file stands at `path` and is not to be replaced,
 * or has appeared meanwhile; MN_IO. */
mn_status mn_atomic_file_publish(struct mn_atomic_file *file, int replace);

/* Closes and removes the new file instead. */
void mn_atomic_file_discard(struct mn_atomic_file *file);

/* MN_IO, or MN_NO_MEMORY, naming the path, errno `error` and a remedy; `doing` is "write", "rename" … */
mn_status mn_atomic_file_fail(const char *doing, const char *path, int error);

/* *there: whether there is a file, links followed. MN_IO, MN_NO_MEMORY: unknown; a caller that took this for
 * a no would begin anew. */
mn_status mn_atomic_file_exists(const char *path, int *there);

/* ---- for those who move other files beside it ---- */

/* Calls `take` for each name in the folder of `path`; a folder that is missing has none. MN_IO: it cannot be
 * listed; MN_NO_MEMORY. */
mn_status mn_atomic_file_list(const char *path, void (*take)(void *to, const char *entry), void *to);

/* Whether nothing has the name, no link either. */
int mn_atomic_file_is_free(const char *path);

/* Renames `from` to `to`, which must be free: 0, or −1 with errno, EEXIST if it is not. */
int mn_atomic_file_rename_new(const char *from, const char *to);

/* Makes the names in the folder of `path` durable. MN_IO. */
mn_status mn_atomic_file_sync_folder(const char *path);

#endif
