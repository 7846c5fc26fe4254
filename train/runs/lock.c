/* One run at a path. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/runs/names.h"

struct mn_checkpoint_lock {
  int fd;
  int empty; /* the file is empty, as ours are; one that is not stays in the end */
  char path[MN_ATOMIC_FILE_PATH];
};

/* Opens and locks the file; *again: another run removed it meanwhile. */
static mn_status take_lock(struct mn_checkpoint_lock *lock, const char *path, int *again) {
  struct stat held, there;
  *again = lock->empty = 0;
  lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (lock->fd < 0)
    return mn_fail(MN_NO_CREATE, "cannot save %s: cannot create %s: %s: name a folder that can be written",
                   path, lock->path, strerror(errno));
  if (flock(lock->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return mn_fail(MN_NO_CREATE,
                   "cannot save %s: another run is saving to it (%s is locked): wait for its end, or name "
                   "another checkpoint",
                   path, lock->path);
  if (fstat(lock->fd, &held) != 0) return mn_atomic_file_fail("look at", lock->path, errno);
  const int found = stat(lock->path, &there) == 0;
  if (!found && errno != ENOENT) return mn_atomic_file_fail("look at", lock->path, errno);
  *again = !found || there.st_ino != held.st_ino || there.st_dev != held.st_dev;
  if (*again) close(lock->fd);
  lock->empty = S_ISREG(held.st_mode) && held.st_size == 0;
  return MN_OK;
}

mn_status mn_checkpoint_lock(struct mn_checkpoint_lock **out, const char *path) {
  char resolved[MN_ATOMIC_FILE_PATH], other[MN_ATOMIC_FILE_PATH];
  int again;
  mn_status status;
  *out = NULL;
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  struct mn_checkpoint_lock *lock = *out = calloc(1, sizeof *lock);
  if (!lock) return mn_fail(MN_NO_MEMORY, "no memory to lock %s", path);
  int length = snprintf(lock->path, sizeof lock->path, "%s" MN_RUN_FILE_LOCK, resolved);
  MN_REQUIRE(length < MN_ATOMIC_FILE_PATH); /* a temporary name, which is longer, fits */
  do status = take_lock(lock, path, &again);
  while (again);
  /* Refuses run.1.h5 while the run of run.h5 trains, which may keep a file of that name, and the reverse. The
   * own lock is held already, so that of two runs that begin at once one sees the other. */
  if (status == MN_OK) status = mn_run_file_locked(other, resolved);
  if (status == MN_OK && *other)
    status = mn_fail(
        MN_NO_CREATE,
        "cannot save %s: a run is saving to %s beside it, and one of the two may take the other's name: "
        "wait for its end, or name another checkpoint",
        path, other);
  if (status != MN_OK) mn_checkpoint_unlock(lock), *out = NULL;
  return status;
}

void mn_checkpoint_unlock(struct mn_checkpoint_lock *lock) {
  if (!lock) return;
  if (lock->empty) unlink(lock->path); /* before the lock ends: another run notices, and creates it anew */
  if (lock->fd >= 0) close(lock->fd);
  free(lock);
}
