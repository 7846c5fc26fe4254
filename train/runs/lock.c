/* One process at a time writes into a run's folder. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train/runs/folder.h"

/* Each 50 ms: a child of a process that was killed, which has the lock too, ends a moment later. */
enum { TRIES = 20 };

struct mn_run_lock {
  int fd;
  int empty; /* the file is empty, as ours are; one that is not stays in the end */
  char path[MN_ATOMIC_FILE_PATH];
};

/* Opens and locks the file; *again: another run removed it meanwhile. */
static mn_status take_lock(struct mn_run_lock *lock, const char *run, int *again) {
  struct stat held, there;
  *again = lock->empty = 0;
  lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (lock->fd < 0)
    return mn_fail(MN_NO_CREATE, "cannot save in %s: cannot create %s: %s: name a folder that can be written",
                   run, lock->path, strerror(errno));
  for (int tries = 0; flock(lock->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; tries++) {
    if (tries == TRIES)
      return mn_fail(
          MN_NO_CREATE,
          "another process trains --run %s (%s is locked): wait for its end, or name another folder", run,
          lock->path);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  if (fstat(lock->fd, &held) != 0) return mn_atomic_file_fail("look at", lock->path, errno);
  const int found = stat(lock->path, &there) == 0;
  if (!found && errno != ENOENT) return mn_atomic_file_fail("look at", lock->path, errno);
  *again = !found || there.st_ino != held.st_ino || there.st_dev != held.st_dev;
  if (*again) close(lock->fd);
  lock->empty = S_ISREG(held.st_mode) && held.st_size == 0;
  return MN_OK;
}

mn_status mn_run_lock(struct mn_run_lock **out, const char *run) {
  int again = 1;
  mn_status status = MN_OK;
  struct mn_run_lock *lock = *out = calloc(1, sizeof *lock);
  if (!lock) return mn_fail(MN_NO_MEMORY, "no memory to lock %s", run);
  lock->fd = -1;
  if (mn_run_file(lock->path, run, MN_RUN_LOCK) != 0)
    status = mn_fail(MN_NO_CREATE, "--run %.60s…: too long a path", run);
  while (status == MN_OK && again) status = take_lock(lock, run, &again);
  if (status != MN_OK) mn_run_unlock(lock), *out = NULL;
  return status;
}

void mn_run_unlock(struct mn_run_lock *lock) {
  if (!lock) return;
  if (lock->empty) unlink(lock->path); /* before the lock ends: another run notices, and creates it anew */
  if (lock->fd >= 0) close(lock->fd);
  free(lock);
}
