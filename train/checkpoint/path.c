/* The files at and beside a path that a run may resume from, and that it may replace. A file counts as
 * damaged if two reads fail: HDF5 reports a moment without memory as damage too. */
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

/* Appends `words` in `format`, which has one %s; cuts the text if `size` is too small. */
static void append(char *text, size_t size, const char *format, const char *words) {
  size_t length = strlen(text);
  if (length + 1 < size) snprintf(text + length, size - length, format, words);
}

/* Reads the file `name`. *damaged: it is damaged or missing, and an older one may take its place. */
static mn_status read_one(struct mn_checkpoint **out, const char *name, int *damaged) {
  int there;
  *damaged = 0;
  MN_TRY(mn_atomic_file_exists(name, &there));
  *damaged = 1;
  if (!there) return mn_fail(MN_NO_INPUT, "%s is missing", name);
  mn_status status = mn_checkpoint_read(out, name, damaged, 0, 0);
  if (status == MN_BAD_DATA && *damaged) status = mn_checkpoint_read(out, name, damaged, 0, 0);
  if (status != MN_BAD_DATA) *damaged = 0;
  return status;
}

/* Renames the files of the numbers that are `damaged`, but the best, and appends their new names to
 * `skipped`. */
static mn_status set_aside(const char *path, const char *damaged, char *skipped, size_t size) {
  for (int number = 0; number < MN_ATOMIC_FILE_BEST; number++) {
    char name[MN_ATOMIC_FILE_PATH], renamed[MN_ATOMIC_FILE_PATH];
    if (!damaged[number] || mn_atomic_file_number(name, sizeof name, path, number) != 0) continue;
    MN_TRY(mn_atomic_file_set_aside(renamed, name, "damaged"));
    append(skipped, size, "; kept as %s", renamed);
  }
  return MN_OK;
}

mn_status mn_checkpoint_load_newest(struct mn_checkpoint **out, const char *path,
                                    char used[MN_CHECKPOINT_PATH], char *skipped, size_t skipped_size) {
  char resolved[MN_ATOMIC_FILE_PATH];
  char damaged[MN_ATOMIC_FILE_BEST + 1] = {0}; /* by number: it is there, and does not verify */
  MN_REQUIRE(skipped_size > 0);
  *out = NULL;
  used[0] = skipped[0] = 0;
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  for (int number = 0; number <= MN_ATOMIC_FILE_BEST; number++) {
    int passed;
    if (mn_atomic_file_number(used, MN_CHECKPOINT_PATH, resolved, number) != 0) continue;
    mn_status status = read_one(out, used, &passed);
    if (status != MN_OK && !passed) return status;
    if (status == MN_NO_INPUT && number > 0) continue;
    const char *name =
        status == MN_OK ? mn_text_find((*out)->options, (*out)->option_count, MN_RUN_NAME) : NULL;
    if (status == MN_OK && (number == 0 || !name || strcmp(name, basename(used)) != 0)) {
      status = set_aside(resolved, damaged, skipped, skipped_size);
      if (status != MN_OK) mn_checkpoint_free(*out), *out = NULL;
      return status;
    }
    mn_checkpoint_free(*out), *out = NULL; /* the path of another run: y.2.h5 need not be y.h5's number 2 */
    if (status != MN_OK) append(skipped, skipped_size, *skipped ? "; %s" : "%s", mn_message());
    damaged[number] = status != MN_OK && status != MN_NO_INPUT;
  }
  if (!memchr(damaged, 1, sizeof damaged))
    return mn_fail(MN_NO_INPUT, "there is no checkpoint %s: check the name, or start a new run", resolved);
  return mn_fail(MN_BAD_DATA, "no checkpoint verifies: %s", skipped);
}

/* ---- saving ---- */

/* Whether the file `name` of the run `id` ("" if unknown) belongs to the run `ours`: to the run itself, with
 * any change since it began, or to the run that it was forked from. */
static int owns(const struct mn_run *ours, const char *id, const char *name) {
  const size_t began = strcspn(id, ".");
  if (strcmp(name, ours->name) == 0 && strncmp(id, ours->id, began) == 0 && strcspn(ours->id, ".") == began)
    return 1;
  const size_t source = strcspn(ours->source, ". ");
  const char *blank = strchr(ours->source, ' ');
  return blank && source == began && strncmp(id, ours->source, began) == 0 && strcmp(name, blank + 1) == 0;
}

/* Refuses `name` unless it is a checkpoint of the run `ours`. */
static mn_status check_own(const char *path, const char *name, const struct mn_run *ours, int how) {
  struct mn_checkpoint *there;
  struct mn_run run;
  mn_status status = mn_checkpoint_read(&there, name, NULL, 1, how);
  if (status == MN_NO_MEMORY || status == MN_IO) return status;
  if (status == MN_OK) {
    mn_run_find(&run, there->options, there->option_count);
    mn_checkpoint_free(there);
    if (owns(ours, run.id, run.name)) return MN_OK;
    mn_fail(MN_OK, "%s is a checkpoint of another run", name);
  }
  return mn_fail(
      MN_NO_CREATE,
      "cannot save %s: %s would be replaced, but is no whole checkpoint of this run (%s): move it away or "
      "name another checkpoint",
      path, name, mn_message());
}

mn_status mn_checkpoint_check_files(const char *path, int least, int end, const struct mn_run *ours,
                                    int how) {
  char resolved[MN_ATOMIC_FILE_PATH], name[MN_ATOMIC_FILE_PATH];
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  for (int i = least; i < end && mn_atomic_file_number(name, sizeof name, resolved, i) == 0; i++) {
    struct stat found;
    if (lstat(name, &found) == 0)
      MN_TRY(check_own(path, name, ours, how));
    else if (errno != ENOENT)
      return mn_atomic_file_fail("look at", name, errno);
  }
  return MN_OK;
}

void mn_run_find(struct mn_run *out, const struct mn_text *texts, int count) {
  const char *id = mn_text_find(texts, count, MN_RUN_ID), *name = mn_text_find(texts, count, MN_RUN_NAME);
  const char *source = mn_text_find(texts, count, MN_RUN_SOURCE);
  snprintf(out->id, sizeof out->id, "%s", id ? id : "");
  snprintf(out->name, sizeof out->name, "%s", name ? name : "");
  snprintf(out->source, sizeof out->source, "%s", source ? source : "");
}

_Static_assert((int)MN_CHECKPOINT_PATH == (int)MN_ATOMIC_FILE_PATH, "a checkpoint is an atomic file");
mn_status mn_checkpoint_best(char best[MN_CHECKPOINT_PATH], const char *path) {
  char resolved[MN_ATOMIC_FILE_PATH];
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  if (mn_atomic_file_number(best, MN_CHECKPOINT_PATH, resolved, MN_ATOMIC_FILE_BEST) == 0) return MN_OK;
  return mn_fail(MN_NO_CREATE, "cannot keep the best of %.60s…: too long a path: name a shorter one", path);
}

/* ---- one run at a path ---- */

struct mn_checkpoint_lock {
  int fd;
  int empty; /* the file is empty, as ours are; one that is not stays in the end */
  char path[MN_ATOMIC_FILE_PATH];
};

/* Opens and locks the file; *again: another run removed it meanwhile. */
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

/* Refuses run.1.h5 while the run of run.h5 trains, which may keep a file of that name, and the reverse. The
 * caller holds its own lock, so that of two runs that begin at once one sees the other. */
static mn_status check_names(const char *path, const char *resolved) {
  char other[MN_ATOMIC_FILE_PATH];
  MN_TRY(mn_atomic_file_locked(other, resolved));
  if (!*other) return MN_OK;
  return mn_fail(
      MN_NO_CREATE,
      "cannot save %s: a run is saving to %s beside it, and one of the two may take the other's name: "
      "wait for its end, or name another checkpoint",
      path, other);
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
  int length = snprintf(lock->path, sizeof lock->path, "%s" MN_ATOMIC_FILE_LOCK, resolved);
  MN_REQUIRE(length < MN_ATOMIC_FILE_PATH); /* a temporary name, which is longer, fits */
  do status = take_lock(lock, path, &again);
  while (again);
  if (status != MN_OK) {
    drop(lock);
    return status;
  }
  status = check_names(path, resolved);
  if (status == MN_OK)
    *out = lock;
  else
    mn_checkpoint_unlock(lock);
  return status;
}

void mn_checkpoint_unlock(struct mn_checkpoint_lock *lock) {
  if (!lock) return;
  if (lock->empty) unlink(lock->path); /* before the lock ends: another run notices, and creates it anew */
  drop(lock);
}
