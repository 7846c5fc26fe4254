/* Paths of files: which are the same, which a checkpoint names, and which can be written. */
#include "train/command/session.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/runs/names.h"

/* ---- paths ---- */

/* The path of a file that need not exist, with its folder's links resolved; 0, or −1. */
static int find_in_folder(char out[PATH_MAX], const char *path) {
  char folder[MN_ATOMIC_FILE_PATH];
  const char *base = basename(path);
  if (snprintf(folder, sizeof folder, "%.*s.", (int)(base - path), path) >= (int)sizeof folder) return -1;
  if (!realpath(folder, out)) return -1;
  size_t length = strlen(out);
  if (length > 1) out[length++] = '/';
  return snprintf(out + length, PATH_MAX - length, "%s", base) < (int)(PATH_MAX - length) ? 0 : -1;
}

/* The absolute path of a file that need not exist, links followed; "" if its folder is not there. MN_IO,
 * MN_NO_MEMORY: unknown. */
static mn_status find_real(char out[PATH_MAX], const char *path) {
  char file[MN_ATOMIC_FILE_PATH];
  if (realpath(path, out)) return MN_OK;
  if (mn_atomic_file_resolve(file, path) == MN_OK && find_in_folder(out, file) == 0) return MN_OK;
  *out = 0;
  return errno == EIO || errno == ENOMEM ? mn_atomic_file_fail("look at", path, errno) : MN_OK;
}

/* The folder of the checkpoint, with a slash at its end: as it is named ("" for the current one), and without
 * links. */
static mn_status find_folder(const struct mn_session *s, char named[MN_ATOMIC_FILE_PATH],
                             char real[PATH_MAX]) {
  MN_TRY(mn_atomic_file_resolve(named, s->options.checkpoint));
  if (find_in_folder(real, named) != 0)
    return mn_fail(MN_NO_CREATE, "the folder of --checkpoint %s: %m; name another", s->options.checkpoint);
  named[basename(named) - named] = real[basename(real) - real] = 0;
  return MN_OK;
}

mn_status mn_files_find(const struct mn_session *s, const char *option, const char *text,
                        char out[MN_CHECKPOINT_PATH]) {
  char folder[MN_ATOMIC_FILE_PATH], real[PATH_MAX], file[PATH_MAX];
  MN_TRY(find_folder(s, folder, real));
  const int length = snprintf(out, MN_CHECKPOINT_PATH, "%s%s", *text == '/' ? "" : folder, text);
  if (length >= MN_CHECKPOINT_PATH) return MN_OK;
  MN_TRY(find_real(file, out));
  /* A file that cannot exist cannot be opened either. In a run's folder only the data is elsewhere. */
  if (!*file || s->options.run || strncmp(file, real, strlen(real)) == 0) return MN_OK;
  return mn_fail(
      MN_USAGE,
      "%s names --%s %s, which is outside its folder, so it must be named again: --%s %s goes on with "
      "that file",
      s->from_path, option, out, option, out);
}

mn_status mn_files_name(const struct mn_session *s, const char *path, char out[MN_TEXT_VALUE]) {
  char folder[MN_ATOMIC_FILE_PATH], real[PATH_MAX], file[PATH_MAX];
  size_t same = 0, used = 0;
  MN_TRY(find_folder(s, folder, real));
  if (find_in_folder(file, path) != 0) return mn_fail(MN_NO_INPUT, "%s: %m; name another file", path);
  for (size_t i = 0; real[i] && real[i] == file[i]; i++)
    if (real[i] == '/') same = i + 1;
  for (const char *up = real + same; (up = strchr(up, '/')) && used + 3 < MN_TEXT_VALUE; up++, used += 3)
    memcpy(out + used, "../", 3);
  if (snprintf(out + used, MN_TEXT_VALUE - used, "%s", file + same) < (int)(MN_TEXT_VALUE - used))
    return MN_OK;
  return mn_fail(
      MN_NO_CREATE,
      "%s is more than %d letters away from --checkpoint %s, which is to name it: keep the two nearer "
      "to each other",
      path, MN_TEXT_VALUE - 1, s->options.checkpoint);
}

/* ---- checks ---- */

struct file {
  const char *option, *path;
};

/* Whether a save to `checkpoint` may write `path`; both are without links. */
static int is_written(const char *path, const char *checkpoint) {
  const char *base = basename(checkpoint), *lock = checkpoint + strlen(checkpoint);
  const size_t folder = (size_t)(base - checkpoint), whole = (size_t)(lock - checkpoint);
  if (strncmp(path, checkpoint, whole) == 0 && (path[whole] == 0 || strcmp(path + whole, ".lock") == 0))
    return 1;
  return strncmp(path, checkpoint, folder) == 0 && mn_run_file_follows(path + folder, base);
}

/* Refuses two options that name one file or, of a `checkpoint`, one of its names. */
static mn_status check_distinct(const struct file *a, const struct file *b, int checkpoint) {
  char real[2][PATH_MAX];
  if (!a->path || !b->path) return MN_OK;
  MN_TRY(find_real(real[0], a->path));
  MN_TRY(find_real(real[1], b->path));
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
  const struct file files[] = {{"--out", o->out},   {"--log", o->log},
                               {"--plot", o->plot}, {"--data", o->data},
                               {"--init", o->init}, {o->run ? "--run" : "--checkpoint", o->checkpoint}};
  for (int i = 0; i < OTHERS; i++) {
    for (int k = i + 1; i < WRITTEN && k < OTHERS; k++) MN_TRY(check_distinct(&files[i], &files[k], 0));
    if (i < WRITTEN || o->command == MN_COMMAND_TRAIN) MN_TRY(check_distinct(&files[i], &files[OTHERS], 1));
  }
  for (int i = 0; o->command == MN_COMMAND_PLOT && i < o->file_count; i++)
    MN_TRY(check_distinct(&files[0], &(struct file){"the log", o->files[i]}, 0));
  MN_TRY(check_output("out", o->out, o->force, "--force replaces it"));
  MN_TRY(check_output("plot", o->plot, o->force || o->resume, "--force replaces it"));
  const char *const log = o->run ? NULL : o->log;
  MN_TRY(check_output("log", log, 1, "")); /* mn_owned_check refuses one that is there */
  if (log && access(o->log, R_OK | W_OK) != 0 && errno != ENOENT)
    return mn_fail(MN_NO_CREATE, "--log %s: %s; name a file that can be read and written", o->log,
                   strerror(errno));
  const int found = o->plot ? system("[ -n \"$(command -v gnuplot)\" ]") : 0;
  if (found == 0) return MN_OK;
  if (found < 0) return mn_fail(MN_LIBRARY, "gnuplot cannot be looked for: %s", strerror(errno));
  return mn_fail(MN_LIBRARY, "--plot needs gnuplot, which is not in PATH; install the package gnuplot-nox");
}
