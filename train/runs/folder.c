/* The folder of a run. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "train/runs/names.h"

int mn_run_file(char out[MN_ATOMIC_FILE_PATH], const char *run, const char *name) {
  size_t length = strlen(run);
  while (length > 1 && run[length - 1] == '/') length--;
  return snprintf(out, MN_ATOMIC_FILE_PATH, "%.*s/%s", (int)length, run, name) < MN_ATOMIC_FILE_PATH ? 0 : -1;
}

const char *mn_run_read(char out[MN_ATOMIC_FILE_PATH], const char *path, const char *name) {
  struct stat found;
  return stat(path, &found) == 0 && S_ISDIR(found.st_mode) && mn_run_file(out, path, name) == 0 ? out : path;
}

/* The first name in the folder, in order, but for logs of runs that saved nothing; "" without one. */
static void look(void *to, const char *entry) {
  char *first = to;
  const int unsaved = strncmp(entry, "log.unsaved-", 12) == 0;
  if (strcmp(entry, ".") != 0 && strcmp(entry, "..") != 0 && !unsaved &&
      (!*first || strcmp(entry, first) < 0))
    snprintf(first, MN_ATOMIC_FILE_PATH, "%s", entry);
}

mn_status mn_run_make(const char *run, int dry, int *made) {
  char any[MN_ATOMIC_FILE_PATH], found[MN_ATOMIC_FILE_PATH] = "";
  *made = !dry && mkdir(run, 0777) == 0;
  if (*made) return MN_OK;
  if (!dry && errno != EEXIST)
    return mn_fail(MN_NO_CREATE,
                   "cannot make the folder --run %s: %s; name one in a folder that can be written", run,
                   strerror(errno));
  if (mn_run_file(any, run, ".") != 0) return mn_fail(MN_NO_CREATE, "--run %.60s…: too long a path", run);
  MN_TRY(mn_atomic_file_list(any, look, found));
  if (!*found) return MN_OK;
  return mn_fail(
      MN_NO_CREATE,
      "--run %s holds %s, and a new run begins in a new folder: --resume goes on with a run that is "
      "there, or name another folder, or, if nothing of it is needed, remove it: rm -r %s",
      run, found, run);
}
