/* The folder of a run. */
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

int mn_run_plain(const char *name) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+=,@%-";
  return *name != '-' && *name && name[strspn(name, plain)] == 0;
}

/* What stands in a folder's way: the first name of another's file there, else of a run's, in order. */
struct found {
  char name[MN_ATOMIC_FILE_PATH];
  int others;
};

static void look(void *to, const char *entry) {
  static const char *const files[] = {"checkpoint.", MN_RUN_BEST, "log."}; /* how a run's files begin */
  struct found *f = to;
  int other = 1;
  if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0 || strncmp(entry, "log.unsaved-", 12) == 0) return;
  for (int i = 0; i < 3; i++) other = other && strncmp(entry, files[i], strlen(files[i])) != 0;
  if (*f->name && (other < f->others || (other == f->others && strcmp(entry, f->name) > 0))) return;
  snprintf(f->name, sizeof f->name, "%s", entry);
  f->others = other;
}

mn_status mn_run_make(const char *run, int dry, int *made) {
  char inside[MN_ATOMIC_FILE_PATH];
  struct found found = {.others = 0};
  struct stat there;
  *made = !dry && mkdir(run, 0777) == 0;
  if (*made) return MN_OK;
  if (!dry && errno != EEXIST)
    return mn_fail(MN_NO_CREATE,
                   "cannot make the folder --run %s: %s; name one in a folder that can be written", run,
                   strerror(errno));
  if (stat(run, &there) == 0 && !S_ISDIR(there.st_mode))
    return mn_fail(MN_NO_CREATE, "--run %s is a file, not a folder: name a new folder", run);
  if (mn_run_file(inside, run, ".") != 0) return mn_fail(MN_NO_CREATE, "--run %.60s…: too long a path", run);
  MN_TRY(mn_atomic_file_list(inside, look, &found));
  if (!*found.name) return MN_OK;
  if (found.others)
    return mn_fail(MN_NO_CREATE, "--run %s holds %s, which is no file of a run: name a new folder", run,
                   found.name);
  return mn_fail(
      MN_NO_CREATE,
      "--run %s holds %s of a run: --resume goes on with it, or name a new folder, or, if nothing of "
      "it is needed, remove it%s%s",
      run, found.name, mn_run_plain(run) ? ": rm -r " : "", mn_run_plain(run) ? run : "");
}
