/* Which files at and beside a path a run may resume from, and which it may replace.
 *
 * Resuming takes the newest checkpoint that verifies: a run must not end because the last file it wrote is
 * damaged while the one before it is whole. Damaged ones that it passes over are renamed, so that no save
 * replaces them; a newest file that is anything else is an error. A file is damaged when it is found so
 * twice: HDF5 does not tell damage from memory that it lacked for a moment. Saving replaces and moves nothing
 * but checkpoints of minnow's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/layout.h"

/* ---- resuming ---- */

/* Appends `words` in `format`, which has one %s; cut where `size` is too small. */
static void append(char *text, size_t size, const char *format, const char *words) {
  size_t length = strlen(text);
  if (length + 1 < size) snprintf(text + length, size - length, format, words);
}

/* Renames the files before number `used`, which were passed over, and says so. */
static mn_status set_aside(const char *path, int used, char *skipped, size_t size) {
  for (int number = 0; number >= 0 && number < used;) {
    char name[MN_ATOMIC_FILE_PATH], renamed[MN_ATOMIC_FILE_PATH];
    int there = mn_atomic_file_number(name, sizeof name, path, number) == 0;
    if (there) MN_TRY(mn_atomic_file_exists(name, &there));
    if (there) MN_TRY(mn_atomic_file_set_aside(renamed, name));
    if (there) append(skipped, size, "; kept as %s", renamed);
    MN_TRY(mn_atomic_file_next(path, number, &number));
  }
  return MN_OK;
}

/* Reads the file `name`. *damaged: it is not whole, or not there, and an older one may take its place. */
static mn_status read_one(struct mn_checkpoint **out, const char *name, int *found, int *damaged) {
  int there;
  *damaged = 0;
  MN_TRY(mn_atomic_file_exists(name, &there));
  *damaged = 1;
  if (!there) return mn_fail(MN_NO_INPUT, "%s is missing", name);
  *found = 1;
  mn_status status = mn_checkpoint_read(out, name, damaged);
  if (status == MN_BAD_DATA && *damaged) status = mn_checkpoint_read(out, name, damaged);
  if (status == MN_NO_MEMORY || status == MN_IO) *damaged = 0;
  return status;
}

mn_status mn_checkpoint_load_newest(struct mn_checkpoint **out, const char *path, char *used,
                                    size_t used_size, char *skipped, size_t skipped_size) {
  char resolved[MN_ATOMIC_FILE_PATH];
  int found = 0;
  MN_REQUIRE(used_size > 0 && skipped_size > 0);
  *out = NULL;
  used[0] = skipped[0] = 0;
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  for (int number = 0, damaged; number >= 0;) {
    if (mn_atomic_file_number(used, used_size, resolved, number) != 0)
      return mn_fail(MN_NO_INPUT, "%.60s…: too long a path", resolved);
    mn_status status = read_one(out, used, &found, &damaged);
    if (status == MN_OK) {
      status = set_aside(resolved, number, skipped, skipped_size);
      if (status == MN_OK) return MN_OK;
      mn_checkpoint_free(*out);
      *out = NULL;
      return status;
    }
    if (!damaged) return status;
    append(skipped, skipped_size, *skipped ? "; %s" : "%s", mn_message());
    MN_TRY(mn_atomic_file_next(resolved, number, &number));
  }
  if (!found)
    return mn_fail(MN_NO_INPUT, "there is no checkpoint %s: check the name, or start a new run", resolved);
  return mn_fail(MN_BAD_DATA, "no checkpoint verifies: %s", skipped);
}

/* ---- saving ---- */

/* Refuses `name` unless it is a checkpoint of minnow's, of any version, or there is no such file. */
static mn_status check_ours(const char *path, const char *name, int how) {
  struct mn_hdf5_file file;
  struct stat there;
  int ours = 0;
  if (lstat(name, &there) != 0) return errno == ENOENT ? MN_OK : mn_atomic_file_fail("look at", name, errno);
  mn_status status = mn_hdf5_open(&file, name, "it is damaged, or another program's", how);
  if (status == MN_OK) {
    status = mn_checkpoint_format(&file, &ours);
    mn_hdf5_close(&file);
  }
  if (status == MN_NO_MEMORY || status == MN_IO || (status == MN_OK && ours)) return status;
  if (status == MN_OK) mn_fail(MN_OK, "%s is an HDF5 file of another kind", name);
  return mn_fail(
      MN_NO_CREATE,
      "cannot save %s: %s would be replaced, but is no whole checkpoint (%s): move it away or name "
      "another checkpoint",
      path, name, mn_message());
}

mn_status mn_checkpoint_check_files(const char *path, int keep, int how) {
  char resolved[MN_ATOMIC_FILE_PATH], name[MN_ATOMIC_FILE_PATH];
  if (keep < 1 || keep > MN_CHECKPOINT_KEEP)
    return mn_fail(MN_USAGE, "%d checkpoints cannot be kept: 1 to %d can", keep, MN_CHECKPOINT_KEEP);
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  for (int i = 0; i < keep && mn_atomic_file_number(name, sizeof name, resolved, i) == 0; i++)
    MN_TRY(check_ours(path, name, how));
  return MN_OK;
}

mn_status mn_checkpoint_check_path(const char *path, int keep) {
  struct mn_atomic_file file;
  MN_TRY(mn_atomic_file_create(&file, path));
  mn_atomic_file_discard(&file);
  return mn_checkpoint_check_files(path, keep, 0);
}

_Static_assert((int)MN_CHECKPOINT_PATH == (int)MN_ATOMIC_FILE_PATH, "a checkpoint is an atomic file");
mn_status mn_checkpoint_best(char best[MN_CHECKPOINT_PATH], const char *path) {
  char resolved[MN_ATOMIC_FILE_PATH];
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  if (mn_atomic_file_best(best, MN_CHECKPOINT_PATH, resolved) == 0) return MN_OK;
  return mn_fail(MN_NO_CREATE, "cannot keep the best of %.60s…: too long a path: name a shorter one", path);
}

/* ---- one run at a path ---- */

struct mn_checkpoint_lock {
  int fd;
  int empty; /* the file is empty, as ours are; one that is not stays in the end */
  char path[MN_ATOMIC_FILE_PATH];
};

/* Opens and locks the file; *again where another run removed it in between. */
static mn_status take_lock(struct mn_checkpoint_lock *lock, const char *path, int *again) {
  struct stat held, there;
  *again = 0;
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

static void drop(struct mn_checkpoint_lock *lock) {
  if (lock->fd >= 0) close(lock->fd);
  free(lock);
}

mn_status mn_checkpoint_lock(struct mn_checkpoint_lock **out, const char *path) {
  char resolved[MN_ATOMIC_FILE_PATH];
  int again;
  mn_status status;
  *out = NULL;
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  struct mn_checkpoint_lock *lock = calloc(1, sizeof *lock);
  if (!lock) return mn_fail(MN_NO_MEMORY, "no memory to lock %s", path);
  int length = snprintf(lock->path, sizeof lock->path, "%s.lock", resolved);
  MN_REQUIRE(length < MN_ATOMIC_FILE_PATH); /* a temporary name, which is longer, fits */
  do status = take_lock(lock, path, &again);
  while (again);
  if (status == MN_OK)
    *out = lock;
  else
    drop(lock);
  return status;
}

void mn_checkpoint_unlock(struct mn_checkpoint_lock *lock) {
  if (!lock) return;
  if (lock->empty) unlink(lock->path); /* before the lock ends: another run notices, and creates it anew */
  drop(lock);
}
