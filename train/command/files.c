/* Paths of files: the data that a checkpoint names, and what a command may write. */
#include "train/command/session.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/runs/folder.h"

/* ---- the data of a run ---- */

/* The absolute path of a file, links in its folder resolved. Returns 0, or −1 with errno. */
static int find_real(char out[PATH_MAX], const char *path) {
  char folder[PATH_MAX];
  const char *base = basename(path);
  snprintf(folder, sizeof folder, "%.*s.", (int)(base - path), path);
  if (!realpath(folder, out)) return -1;
  snprintf(out + strlen(out), PATH_MAX - strlen(out), "/%s", base);
  return 0;
}

void mn_files_find(const struct mn_session *s, const char *text, char out[MN_CHECKPOINT_PATH]) {
  char here[PATH_MAX], real[PATH_MAX];
  if (*text == '/' || mn_run_file(out, s->options.run, text) != 0)
    snprintf(out, MN_CHECKPOINT_PATH, "%s", text);
  if (!getcwd(here, sizeof here) || find_real(real, out) != 0) return;
  const size_t above = strlen(here);
  const int inside = strncmp(real, here, above) == 0 && real[above] == '/';
  snprintf(out, MN_CHECKPOINT_PATH, "%s", inside ? real + above + 1 : real);
}

mn_status mn_files_name(const struct mn_session *s, char out[MN_TEXT_VALUE]) {
  const struct mn_options *o = &s->options;
  char run[PATH_MAX], data[PATH_MAX];
  size_t same = 0, used = 0;
  if (!realpath(o->run, run)) return mn_fail(MN_NO_CREATE, "--run %s: %m; name another folder", o->run);
  if (find_real(data, o->data) != 0) return mn_fail(MN_NO_INPUT, "--data %s: %m; name another file", o->data);
  strncat(run, "/", sizeof run - strlen(run) - 1);
  for (size_t i = 0; run[i] && run[i] == data[i]; i++)
    if (run[i] == '/') same = i + 1;
  for (const char *up = run + same; (up = strchr(up, '/')) && used + 3 < MN_TEXT_VALUE; up++, used += 3)
    memcpy(out + used, "../", 3);
  if (snprintf(out + used, MN_TEXT_VALUE - used, "%s", data + same) < (int)(MN_TEXT_VALUE - used))
    return MN_OK;
  return mn_fail(
      MN_NO_CREATE,
      "%s is more than %d letters away from --run %s, which is to name it: keep the two nearer to each other",
      o->data, MN_TEXT_VALUE - 1, o->run);
}

/* ---- checks ---- */

static const char *out_name(const struct mn_options *o) {
  return o->c ? "c" : o->numpy ? "numpy" : "out";
}

/* Refuses an --out that is also read. */
static mn_status check_read(const struct mn_options *o, const char *option, const char *path) {
  struct stat out, other;
  if (!path || stat(o->out, &out) != 0 || stat(path, &other) != 0 || out.st_ino != other.st_ino ||
      out.st_dev != other.st_dev)
    return MN_OK;
  return mn_fail(MN_USAGE, "--%s %s is the same file as %s %s; name another", out_name(o), o->out, option,
                 path);
}

static mn_status check_out(const struct mn_options *o) {
  struct mn_atomic_file file;
  char log[MN_ATOMIC_FILE_PATH];
  int there;
  MN_TRY(check_read(o, "--data", o->data));
  MN_TRY(check_read(o, "--run", o->checkpoint));
  const int logs = o->command == MN_COMMAND_PLOT;
  for (int i = 0; i < o->file_count; i++)
    MN_TRY(check_read(o, logs ? "the log" : "the run's",
                      mn_run_read(log, o->files[i], logs ? MN_RUN_LOG : MN_RUN_CHECKPOINT)));
  MN_TRY(mn_atomic_file_create(&file, o->out));
  mn_atomic_file_discard(&file);
  MN_TRY(mn_atomic_file_exists(o->out, &there));
  if (o->force || !there) return MN_OK;
  return mn_fail(MN_NO_CREATE, "--%s %s exists; --force replaces it, or name another file", out_name(o),
                 o->out);
}

mn_status mn_files_check(const struct mn_options *o) {
  if (o->out) MN_TRY(check_out(o));
  const int found = o->plot ? system("[ -n \"$(command -v gnuplot)\" ]") : 0;
  if (found == 0) return MN_OK;
  if (found < 0) return mn_fail(MN_LIBRARY, "gnuplot cannot be looked for: %s", strerror(errno));
  return mn_fail(MN_LIBRARY, "--plot needs gnuplot, which is not in PATH; install the package gnuplot-nox");
}
