/* Saves that keep older checkpoints. With keep 3 and checkpoint.h5, checkpoint.1.h5, checkpoint.2.h5 there,
 * what comes before checkpoint.h5 is replaced (mn_atomic_file_publish) is
 *
 *   unlink checkpoint.2.h5                     the oldest; if a number is free, only those before it move
 *   rename checkpoint.1.h5 → checkpoint.2.h5
 *   link   checkpoint.h5 → checkpoint.1.h5     now both are the same file (a rename if there are no links)
 *
 * A save that fails may leave a free number, which the next save fills. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint/layout.h"
#include "train/runs/folder.h"

_Static_assert((int)MN_CHECKPOINT_PATH == (int)MN_ATOMIC_FILE_PATH, "a checkpoint is an atomic file");
mn_status mn_checkpoint_best(char best[MN_CHECKPOINT_PATH], const char *path) {
  if (mn_run_file_number(best, path, MN_RUN_FILE_BEST) == 0) return MN_OK;
  return mn_fail(MN_NO_CREATE, "cannot keep the best of %.60s…: too long a path: name a shorter one", path);
}

static void number_name(char *out, const char *path, int number) { /* shorter than the temporary name */
  MN_REQUIRE(mn_run_file_number(out, path, number) == 0);
}

/* Moves the files from number 1 on by one, up to a free number; without one, the last is removed. Then gives
 * the file at `path` number 1 as a second name. */
static mn_status make_room(const char *path, int keep) {
  char from[MN_ATOMIC_FILE_PATH], to[MN_ATOMIC_FILE_PATH];
  int last = 1;
  for (number_name(to, path, last); last < keep - 1 && !mn_atomic_file_is_free(to);
       number_name(to, path, last))
    last++;
  if (unlink(to) != 0 && errno != ENOENT) return mn_atomic_file_fail("remove", to, errno);
  for (int i = last; i-- > 0;) {
    number_name(from, path, i);
    number_name(to, path, i + 1);
    int failed = (i == 0 ? link : mn_atomic_file_rename_new)(from, to) != 0;
    if (failed && i == 0 && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK))
      failed = mn_atomic_file_rename_new(from, to) != 0; /* there are no links */
    if (failed) return mn_atomic_file_fail(i == 0 ? "link" : "rename", from, errno);
  }
  return MN_OK;
}

/* After a rename that failed number 1 becomes `path` again. If that is another file by now, only the sync of
 * the folder failed. */
static void undo(const char *path) {
  char first[MN_ATOMIC_FILE_PATH];
  struct stat now, was;
  number_name(first, path, 1);
  if (stat(first, &was) != 0) return;
  if (stat(path, &now) != 0)
    (void)mn_atomic_file_rename_new(first, path);
  else if (now.st_ino == was.st_ino && now.st_dev == was.st_dev)
    unlink(first);
}

mn_status mn_checkpoint_save(const struct mn_checkpoint *checkpoint, const char *path, int keep) {
  struct mn_atomic_file file;
  if (keep < 1 || keep > MN_CHECKPOINT_KEEP)
    return mn_fail(MN_USAGE, "%d checkpoints cannot be kept: 1 to %d can", keep, MN_CHECKPOINT_KEEP);
  MN_TRY(mn_checkpoint_write(checkpoint, &file, path));
  const int moves = keep > 1 && !mn_atomic_file_is_free(file.path);
  mn_status status = moves ? make_room(file.path, keep) : MN_OK;
  if (status == MN_OK) {
    status = mn_atomic_file_publish(&file, 1);
    if (status != MN_OK && moves) undo(file.path);
  }
  mn_atomic_file_discard(&file); /* once it is published, this does nothing */
  return status;
}
