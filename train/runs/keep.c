/* Saves that keep older checkpoints and replace none of another run. With keep 3 and run.h5, run.1.h5,
 * run.2.h5 there, what comes before run.h5 is replaced (mn_atomic_file_publish) is
 *
 *   unlink run.2.h5                   the oldest; if a number is free, only the files before it move
 *   rename run.1.h5 → run.2.h5
 *   link   run.h5 → run.1.h5          now both are the same file (a rename if there are no links)
 *
 * A save that fails may leave a free number, which the next save fills. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint/layout.h"
#include "train/runs/names.h"

/* ---- whose files may be replaced ---- */

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

mn_status mn_run_check_files(const char *path, int least, int end, const struct mn_run *ours, int how) {
  char resolved[MN_ATOMIC_FILE_PATH], name[MN_ATOMIC_FILE_PATH];
  MN_TRY(mn_atomic_file_resolve(resolved, path));
  for (int i = least; i < end && mn_run_file_number(name, sizeof name, resolved, i) == 0; i++) {
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
  if (mn_run_file_number(best, MN_CHECKPOINT_PATH, resolved, MN_RUN_FILE_BEST) == 0) return MN_OK;
  return mn_fail(MN_NO_CREATE, "cannot keep the best of %.60s…: too long a path: name a shorter one", path);
}

/* ---- keeping ---- */

static void number_name(char *out, const char *path, int number) { /* shorter than the temporary name */
  MN_REQUIRE(mn_run_file_number(out, MN_ATOMIC_FILE_PATH, path, number) == 0);
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

/* A save: of which run, to which path as it was named, how many files it keeps, and whether one has moved. */
struct save {
  struct mn_run run;
  const char *path;
  int keep, moved;
};

static mn_status before(void *data, const char *resolved, int fresh) {
  struct save *save = data;
  MN_TRY(mn_run_check_files(save->path, 0, save->keep, &save->run, MN_HDF5_TRIED));
  if (save->keep == 1 || fresh) return MN_OK;
  save->moved = 1;
  return make_room(resolved, save->keep);
}

/* Number 1 becomes `resolved` again. If both are the same file, rename has no effect. */
static void undo(void *data, const char *resolved) {
  const struct save *save = data;
  char first[MN_ATOMIC_FILE_PATH];
  number_name(first, resolved, 1);
  if (save->moved && rename(first, resolved) == 0) unlink(first);
}

mn_status mn_checkpoint_save(const struct mn_checkpoint *checkpoint, const char *path, int keep) {
  struct save save = {.path = path, .keep = keep};
  const struct mn_atomic_file_hook hook = {before, undo, &save};
  if (keep < 1 || keep > MN_CHECKPOINT_KEEP)
    return mn_fail(MN_USAGE, "%d checkpoints cannot be kept: 1 to %d can", keep, MN_CHECKPOINT_KEEP);
  mn_run_find(&save.run, checkpoint->options, checkpoint->option_count);
  return mn_checkpoint_write(checkpoint, path, &hook);
}
