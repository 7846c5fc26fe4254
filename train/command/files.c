/* Which files are the same, which exist, and which can be written. */
#include "train/command/session.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"

/* Whether two paths lead to one file, links followed. Files that do not exist are the same if they would be
 * created in one folder under one name. */
static mn_status compare(const char *a, const char *b, int *same) {
  const char *const paths[] = {a, b};
  char real[2][PATH_MAX];
  struct stat at[2];
  int there = 0;
  for (int i = 0; i < 2; i++) {
    if (stat(paths[i], &at[i]) == 0)
      there++;
    else if (errno == EIO || errno == ENOMEM)
      return mn_atomic_file_fail("look at", paths[i], errno);
  }
  *same = there == 2 ? at[0].st_dev == at[1].st_dev && at[0].st_ino == at[1].st_ino
                     : there == 0 && mn_owned_real(real[0], a) == 0 && mn_owned_real(real[1], b) == 0 &&
                           strcmp(real[0], real[1]) == 0;
  return MN_OK;
}

/* The file `path` of option `name`, to be written, against every other file of the command. */
static mn_status check_distinct(const struct mn_options *o, const char *name, const char *path) {
  const struct {
    const char *name, *path;
  } others[] = {{"data", o->data},
                {"init", o->init},
                {"checkpoint", o->checkpoint},
                {"log", o->log},
                {"plot", o->plot}};
  for (int i = 0, same; path && i < (int)(sizeof others / sizeof *others); i++) {
    if (!others[i].path || strcmp(others[i].name, name) == 0) continue;
    MN_TRY(compare(path, others[i].path, &same));
    if (same)
      return mn_fail(MN_USAGE, "%s of --%s is the same file as --%s %s; name another", path, name,
                     others[i].name, others[i].path);
  }
  for (int i = 0, same; path && o->command == MN_COMMAND_PLOT && i < o->file_count; i++) {
    MN_TRY(compare(path, o->files[i], &same));
    if (same)
      return mn_fail(MN_USAGE, "%s of --%s is the same file as the log %s; name another", path, name,
                     o->files[i]);
  }
  return MN_OK;
}

/* Whether a file can be written is tried out by creating one beside it. One that exists already is refused
 * unless `may_exist`. */
static mn_status check_output(const char *name, const char *path, int may_exist, const char *remedy) {
  struct mn_atomic_file file;
  int there;
  if (!path) return MN_OK;
  MN_TRY(mn_atomic_file_create(&file, path));
  mn_atomic_file_discard(&file);
  MN_TRY(mn_atomic_file_exists(path, &there));
  if (may_exist || !there) return MN_OK;
  return mn_fail(MN_NO_CREATE, "--%s %s exists; %s, or name another file", name, path, remedy);
}

static mn_status check_log(const char *path, int resume) {
  int there = 0;
  MN_TRY(check_output("log", path, resume, "it is the log of another run: move it away"));
  if (path) MN_TRY(mn_atomic_file_exists(path, &there));
  if (!there || access(path, R_OK | W_OK) == 0) return MN_OK;
  return mn_fail(MN_NO_CREATE, "--log %s: %s; name a file that can be read and written", path,
                 strerror(errno));
}

mn_status mn_files_check(const struct mn_options *o) {
  int trains = o->command == MN_COMMAND_TRAIN;
  MN_TRY(check_distinct(o, "out", o->out));
  MN_TRY(check_distinct(o, "log", o->log));
  MN_TRY(check_distinct(o, "plot", o->plot));
  char path[MN_ATOMIC_FILE_PATH];
  if (trains && o->checkpoint && snprintf(path, sizeof path, "%s.lock", o->checkpoint) < (int)sizeof path)
    MN_TRY(check_distinct(o, "checkpoint", path));
  for (int number = 0; trains && o->checkpoint && number < o->keep; number++) {
    if (mn_atomic_file_number(path, sizeof path, o->checkpoint, number) == 0)
      MN_TRY(check_distinct(o, "checkpoint", path));
  }
  if (o->best) {
    MN_TRY(mn_checkpoint_best(path, o->checkpoint));
    MN_TRY(check_distinct(o, "best", path));
  }
  MN_TRY(check_output("out", o->out, o->force, "--force replaces it"));
  MN_TRY(check_output("plot", o->plot, o->force || o->resume, "--force replaces it"));
  MN_TRY(check_log(o->log, o->resume));
  if (!o->plot || system("command -v gnuplot >/dev/null") == 0) return MN_OK;
  return mn_fail(MN_LIBRARY, "--plot needs gnuplot, which is not in PATH; install the package gnuplot-nox");
}
