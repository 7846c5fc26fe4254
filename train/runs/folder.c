/* The folder of a run. */
#include "train/runs/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ---- */

int mn_run_file(char out[MN_ATOMIC_FILE_PATH], const char *run, const char *name) {
  size_t length = strlen(run);
  while (length > 1 && run[length - 1] == '/') length--;
  return snprintf(out, MN_ATOMIC_FILE_PATH, "%.*s/%s", (int)length, run, name) < MN_ATOMIC_FILE_PATH ? 0 : -1;
}

const char *mn_run_read(char out[MN_ATOMIC_FILE_PATH], const char *path, const char *name) {
  struct stat found;
  return stat(path, &found) == 0 && S_ISDIR(found.st_mode) && mn_run_file(out, path, name) == 0 ? out : path;
}

/* `path` with `infix` before its ending, if it has one. A leading dot starts none. */
static int insert(char out[MN_ATOMIC_FILE_PATH], const char *path, const char *infix) {
  const char *base = basename(path), *dot = strrchr(base, '.');
  const char *end = dot && dot != base ? dot : path + strlen(path);
  const int length = snprintf(out, MN_ATOMIC_FILE_PATH, "%.*s%s%s", (int)(end - path), path, infix, end);
  return length > 0 && length < MN_ATOMIC_FILE_PATH ? 0 : -1;
}

int mn_run_file_number(char out[MN_ATOMIC_FILE_PATH], const char *path, int number) {
  char infix[16] = "";
  const int folder = (int)(basename(path) - path);
  if (number == MN_RUN_FILE_BEST)
    return snprintf(out, MN_ATOMIC_FILE_PATH, "%.*s" MN_RUN_BEST, folder, path) < MN_ATOMIC_FILE_PATH ? 0
                                                                                                      : -1;
  if (number > 0) snprintf(infix, sizeof infix, ".%d", number);
  return insert(out, path, infix);
}

mn_status mn_run_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word) {
  char infix[32];
  int number = 1, failed;
  do {
    snprintf(infix, sizeof infix, ".%.9s-%d", word, number++);
    if (insert(name, path, infix) != 0)
      return mn_fail(MN_NO_CREATE, "cannot set %.60s… aside: too long a path: name a shorter one", path);
    failed = mn_atomic_file_rename_new(path, name);
  } while (failed && errno == EEXIST);
  if (failed) return mn_atomic_file_fail("rename", path, errno);
  return mn_atomic_file_sync_folder(path);
}

/* ---- the folder ---- */

mn_status mn_run_make(const char *run, int *made) {
  *made = mkdir(run, 0777) == 0;
  if (*made || errno == EEXIST) return MN_OK;
  return mn_fail(MN_NO_CREATE, "cannot make the folder --run %s: %s; %s", run, strerror(errno),
                 errno == ENOENT         ? "make the folder above it (mkdir -p), or name another"
                 : errno == ENAMETOOLONG ? "name a shorter one"
                                         : "name one in a folder that can be written");
}

struct search {
  char inside[MN_ATOMIC_FILE_PATH];
  char other[MN_ATOMIC_FILE_PATH], own[MN_ATOMIC_FILE_PATH], link[MN_ATOMIC_FILE_PATH]; /* each the first */
};

static void note_entry(void *to, const char *entry) {
  static const char *const files[] = {"checkpoint.", MN_RUN_BEST, "log.", MN_RUN_PLOT, MN_RUN_LOCK};
  struct search *s = to;
  char path[2 * MN_ATOMIC_FILE_PATH];
  struct stat about;
  int own = 0;
  for (int i = 0; i < 5; i++) own = own || strncmp(entry, files[i], strlen(files[i])) == 0;
  snprintf(path, sizeof path, "%.*s%s", (int)strlen(s->inside) - 1, s->inside, entry);
  const int link = own && lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
  char *first = link ? s->link : own ? s->own : s->other;
  if (!link && (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0 || strcmp(entry, MN_RUN_LOCK) == 0 ||
                strncmp(entry, "log.unsaved-", 12) == 0))
    return;
  if (!*first || strcmp(entry, first) < 0) snprintf(first, MN_ATOMIC_FILE_PATH, "%s", entry);
}

/* Whether a shell takes the name as it stands. */
static int is_plain(const char *name) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+=,@%-";
  return *name != '-' && *name && name[strspn(name, plain)] == 0;
}

mn_status mn_run_check(const char *run, int resume) {
  struct search s = {.inside = ""};
  struct stat there;
  if (stat(run, &there) == 0 && !S_ISDIR(there.st_mode))
    return mn_fail(MN_NO_CREATE, "--run %s is a file, not a folder: name a new folder", run);
  if (mn_run_file(s.inside, run, ".") != 0)
    return mn_fail(MN_NO_CREATE, "--run %.60s…: too long a path", run);
  MN_TRY(mn_atomic_file_list(s.inside, note_entry, &s));
  if (*s.link)
    return mn_fail(MN_NO_CREATE,
                   "%s in --run %s is a symbolic link, which a run does not write through: put a copy there",
                   s.link, run);
  if (resume || (!*s.other && !*s.own)) return MN_OK;
  if (*s.other)
    return mn_fail(MN_NO_CREATE, "--run %s holds %s, which is no file of a run: name a new folder", run,
                   s.other);
  return mn_fail(MN_NO_CREATE,
                 "--run %s holds %s of a run: --resume goes on with it, or name a new folder, or, if nothing "
                 "of it is needed, remove it%s%s",
                 run, s.own, is_plain(run) ? ": rm -r " : "", is_plain(run) ? run : "");
}
