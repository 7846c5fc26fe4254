/* The names of a run's files, and whose names follow from whose. */
#include "train/runs/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The start of `path`'s ending (".h5"), or its end. A leading dot starts no ending. */
static const char *ending(const char *path) {
  const char *base = basename(path), *dot = strrchr(base, '.');
  return dot && dot != base ? dot : path + strlen(path);
}

/* `path` with `infix` before its ending. 0, or −1 when it does not fit. */
static int insert(char *out, size_t size, const char *path, const char *infix) {
  const char *end = ending(path);
  int length = snprintf(out, size, "%.*s%s%s", (int)(end - path), path, infix, end);
  return length > 0 && (size_t)length < size ? 0 : -1;
}

int mn_run_file_number(char *out, size_t size, const char *path, int number) {
  char infix[16] = "";
  if (number > 0) snprintf(infix, sizeof infix, ".%d", number);
  const int folder = (int)(basename(path) - path);
  if (number == MN_RUN_FILE_BEST && strcmp(path + folder, MN_RUN_CHECKPOINT) == 0)
    return snprintf(out, size, "%.*s" MN_RUN_BEST, folder, path) < (int)size ? 0 : -1;
  return insert(out, size, path, number == MN_RUN_FILE_BEST ? ".best" : infix);
}

int mn_run_file_follows(const char *entry, const char *base) {
  if (strcmp(base, MN_RUN_CHECKPOINT) == 0 && strcmp(entry, MN_RUN_BEST) == 0) return 1;
  const char *end = ending(base);
  const size_t stem = (size_t)(end - base), length = strlen(entry), after = strlen(end);
  if (length <= stem + 1 + after || strncmp(entry, base, stem) != 0 || entry[stem] != '.' ||
      strcmp(entry + length - after, end) != 0)
    return 0;
  const char *infix = entry + stem + 1;
  size_t left = length - stem - 1 - after;
  if (left == 4 && strncmp(infix, "best", 4) == 0) return 1;
  if (left > 8 && strncmp(infix, "damaged-", 8) == 0) infix += 8, left -= 8;
  return strspn(infix, "0123456789") >= left && infix[0] != '0' && left <= 3;
}

struct search {
  const char *path, *base;
  char *first; /* MN_ATOMIC_FILE_PATH bytes: the base, or else the first in order of all that follow */
  int owner;   /* instead: a name that `base` follows from */
};

static void look(void *to, const char *entry) {
  struct search *s = to;
  const int follows = s->owner ? mn_run_file_follows(s->base, entry) : mn_run_file_follows(entry, s->base);
  const int base = !s->owner && strcmp(entry, s->base) == 0,
            found = follows && strcmp(s->first, s->base) != 0;
  if (base || (found && (!*s->first || strcmp(entry, s->first) < 0))) strcpy(s->first, entry);
}

mn_status mn_run_file_any(char found[MN_ATOMIC_FILE_PATH], const char *path, int owner) {
  struct search search = {.base = basename(path), .first = found, .owner = owner};
  found[0] = 0;
  return mn_atomic_file_list(path, look, &search);
}

static void look_for_lock(void *to, const char *entry) {
  const struct search *s = to;
  char path[2 * MN_ATOMIC_FILE_PATH];
  const int length = (int)strlen(entry) - (int)strlen(MN_RUN_FILE_LOCK), folder = (int)(s->base - s->path);
  if (length <= 0 || strcmp(entry + length, MN_RUN_FILE_LOCK) != 0) return;
  char *base = path + snprintf(path, sizeof path, "%.*s", folder, s->path);
  snprintf(base, sizeof path - (size_t)folder, "%.*s", length, entry);
  if (!mn_run_file_follows(s->base, base) && !mn_run_file_follows(base, s->base)) return;
  strcat(base, MN_RUN_FILE_LOCK);
  if (!mn_atomic_file_is_stale(path)) snprintf(s->first, MN_ATOMIC_FILE_PATH, "%.*s", length, entry);
}

mn_status mn_run_file_locked(char found[MN_ATOMIC_FILE_PATH], const char *path) {
  struct search search = {.path = path, .base = basename(path), .first = found};
  found[0] = 0;
  return mn_atomic_file_list(path, look_for_lock, &search);
}

mn_status mn_run_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word) {
  char infix[32];
  int number = 1, failed;
  do {
    snprintf(infix, sizeof infix, ".%.9s-%d", word, number++);
    if (insert(name, MN_ATOMIC_FILE_PATH, path, infix) != 0)
      return mn_fail(MN_NO_CREATE, "cannot set %.60s… aside: too long a path: name a shorter one", path);
    failed = mn_atomic_file_rename_new(path, name);
  } while (failed && errno == EEXIST);
  if (failed) return mn_atomic_file_fail("rename", path, errno);
  return mn_atomic_file_sync_folder(path);
}
