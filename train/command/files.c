/* Which files are the same, which exist, and which can be written. */
#include "train/command/session.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"

struct file {
  const char *option, *path;
};

/* Whether a save to `checkpoint` may write `path`; both are without links. */
static int is_written(const char *path, const char *checkpoint) {
  const char *base = basename(checkpoint), *lock = checkpoint + strlen(checkpoint);
  const size_t folder = (size_t)(base - checkpoint), whole = (size_t)(lock - checkpoint);
  if (strncmp(path, checkpoint, whole) == 0 && (path[whole] == 0 || strcmp(path + whole, ".lock") == 0))
    return 1;
  return strncmp(path, checkpoint, folder) == 0 && mn_atomic_file_follows(path + folder, base);
}

/* Refuses two options that name one file or, of a `checkpoint`, one of its names. */
static mn_status check_distinct(const struct file *a, const struct file *b, int checkpoint) {
  char real[2][PATH_MAX];
  if (!a->path || !b->path) return MN_OK;
  MN_TRY(mn_owned_real(real[0], a->path));
  MN_TRY(mn_owned_real(real[1], b->path));
  if (!*real[1] || !(checkpoint ? is_written(real[0], real[1]) : strcmp(real[0], real[1]) == 0)) return MN_OK;
  return mn_fail(MN_USAGE, "%s %s is %s %s %s; name another", a->option, a->path,
                 checkpoint ? "a file of" : "the same file as", b->option, b->path);
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

mn_status mn_files_check(const struct mn_options *o) {
  enum { WRITTEN = 3, OTHERS = 5 };
  const struct file files[] = {{"--out", o->out},   {"--log", o->log},   {"--plot", o->plot},
                               {"--data", o->data}, {"--init", o->init}, {"--checkpoint", o->checkpoint}};
  for (int i = 0; i < OTHERS; i++) {
    for (int k = i + 1; i < WRITTEN && k < OTHERS; k++) MN_TRY(check_distinct(&files[i], &files[k], 0));
    if (i < WRITTEN || o->command == MN_COMMAND_TRAIN) MN_TRY(check_distinct(&files[i], &files[OTHERS], 1));
  }
  for (int i = 0; o->command == MN_COMMAND_PLOT && i < o->file_count; i++)
    MN_TRY(check_distinct(&files[0], &(struct file){"the log", o->files[i]}, 0));
  MN_TRY(check_output("out", o->out, o->force, "--force replaces it"));
  MN_TRY(check_output("plot", o->plot, o->force || o->resume, "--force replaces it"));
  MN_TRY(
      check_output("log", o->log, o->resume,
                   "it may be the log of another run, or of one that ended before it saved: move it away"));
  if (o->log && access(o->log, R_OK | W_OK) != 0 && errno != ENOENT)
    return mn_fail(MN_NO_CREATE, "--log %s: %s; name a file that can be read and written", o->log,
                   strerror(errno));
  const int found = o->plot ? system("command -v gnuplot >/dev/null") : 0;
  if (found == 0) return MN_OK;
  if (found < 0) return mn_fail(MN_LIBRARY, "gnuplot cannot be looked for: %s", strerror(errno));
  return mn_fail(MN_LIBRARY, "--plot needs gnuplot, which is not in PATH; install the package gnuplot-nox");
}
