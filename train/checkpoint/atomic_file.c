/* Replacing a file so that a whole one stands at every moment, whatever fails or is killed.
 *
 * With keep 3 and run.h5, run.1.h5, run.2.h5 there, publishing run.h5.saving-A goes:
 *
 *   fsync  run.h5.saving-A            its bytes are on the disk
 *   unlink run.2.h5                   the oldest; if a number is free, only the files before it move
 *   rename run.1.h5 → run.2.h5
 *   link   run.h5 → run.1.h5          now both are the same file (a rename if there are no links)
 *   rename run.h5.saving-A → run.h5   the moment it is published
 *   fsync  the folder                 the names are on the disk
 *
 * A save that fails may leave a free number, which the next save fills. A killed run may leave .saving-
 * files, which the next save removes. */
#include "train/checkpoint/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".saving-"; /* then SUFFIX_DIGITS hex digits */
static const char lock_suffix[] = MN_ATOMIC_FILE_LOCK;
enum { SUFFIX_DIGITS = 16, MOST_LINKS = 40 };

mn_status mn_atomic_file_fail(const char *doing, const char *path, int error) {
  if (error == ENOMEM) return mn_fail(MN_NO_MEMORY, "no memory to %s %s: free some", doing, path);
  const char *remedy = error == ENOSPC || error == EDQUOT ? "free some space or name another folder"
                       : error == EFBIG ? "raise the limit on file sizes (ulimit -f) or name another folder"
                       : error == EROFS || error == EACCES || error == EPERM
                           ? "name a folder that can be written"
                           : "check the disk or name another folder";
  return mn_fail(MN_IO, "cannot %s %s: %s: %s", doing, path, strerror(error), remedy);
}

/* The folder of `path`, or ".". */
static void folder_name(char *out, size_t size, const char *path) {
  size_t length = (size_t)(basename(path) - path);
  if (length == 0)
    snprintf(out, size, ".");
  else
    snprintf(out, size, "%.*s", (int)(length > 1 ? length - 1 : 1), path);
}

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

int mn_atomic_file_number(char *out, size_t size, const char *path, int number) {
  char infix[16] = "";
  if (number > 0) snprintf(infix, sizeof infix, ".%d", number);
  return insert(out, size, path, number == MN_ATOMIC_FILE_BEST ? ".best" : infix);
}

static int is_free(const char *path) {
  struct stat status;
  return lstat(path, &status) != 0 && errno == ENOENT;
}

mn_status mn_atomic_file_resolve(char out[MN_ATOMIC_FILE_PATH], const char *path) {
  size_t length = strlen(path);
  if (length == 0 || *basename(path) == 0)
    return mn_fail(MN_NO_CREATE, "cannot save \"%s\": it names no file", path);
  for (int links = 0; length + sizeof suffix + SUFFIX_DIGITS <= MN_ATOMIC_FILE_PATH; links++) {
    char target[MN_ATOMIC_FILE_PATH];
    memmove(out, path, length + 1);
    ssize_t size = readlink(out, target, sizeof target - 1);
    if (size < 0 && (errno == EIO || errno == ENOMEM)) return mn_atomic_file_fail("look at", out, errno);
    if (size < 0) return MN_OK; /* no link; what else it may be is seen when it is opened */
    if (links == MOST_LINKS)
      return mn_fail(MN_NO_CREATE, "cannot save %s: symbolic links in a circle: name a file", path);
    target[size] = 0;
    size_t folder = target[0] == '/' ? 0 : (size_t)(basename(out) - out);
    length = folder + (size_t)size;
    if (length < MN_ATOMIC_FILE_PATH) memcpy(out + folder, target, (size_t)size + 1);
    path = out;
  }
  return mn_fail(MN_NO_CREATE, "cannot save %.60s…: a path of %zu bytes is too long: name a shorter one",
                 path, length);
}

int mn_atomic_file_follows(const char *entry, const char *base) {
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

/* Calls `take` for each name in the folder of `path`. */
static mn_status list_folder(const char *path, void (*take)(void *to, const char *entry), void *to) {
  char folder[MN_ATOMIC_FILE_PATH];
  folder_name(folder, sizeof folder, path);
  DIR *entries = opendir(folder);
  if (!entries && errno == ENOENT) return MN_OK;
  if (!entries) return mn_atomic_file_fail("list the folder", folder, errno);
  errno = 0;
  for (struct dirent *entry; (entry = readdir(entries)); errno = 0) take(to, entry->d_name);
  mn_status status = errno ? mn_atomic_file_fail("list the folder", folder, errno) : MN_OK;
  closedir(entries);
  return status;
}

struct search {
  const char *path, *base;
  char *first; /* MN_ATOMIC_FILE_PATH bytes: the base, or else the first in order of all that follow */
  int owner;   /* instead: a name that `base` follows from */
};

static void look(void *to, const char *entry) {
  struct search *s = to;
  const int follows =
      s->owner ? mn_atomic_file_follows(s->base, entry) : mn_atomic_file_follows(entry, s->base);
  const int base = !s->owner && strcmp(entry, s->base) == 0,
            found = follows && strcmp(s->first, s->base) != 0;
  if (base || (found && (!*s->first || strcmp(entry, s->first) < 0))) strcpy(s->first, entry);
}

mn_status mn_atomic_file_any(char found[MN_ATOMIC_FILE_PATH], const char *path, int owner) {
  struct search search = {.base = basename(path), .first = found, .owner = owner};
  found[0] = 0;
  return list_folder(path, look, &search);
}

/* Whether `path` has lost its writer. A writer holds a lock that ends with the process, on this machine or
 * another; without locks the file stays. */
static int is_stale(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* NFS locks only what may be written */
  if (fd < 0) return 0;
  int stale = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return stale;
}

static void look_for_lock(void *to, const char *entry) {
  const struct search *s = to;
  char path[2 * MN_ATOMIC_FILE_PATH];
  const int length = (int)strlen(entry) - (int)strlen(lock_suffix), folder = (int)(s->base - s->path);
  if (length <= 0 || strcmp(entry + length, lock_suffix) != 0) return;
  char *base = path + snprintf(path, sizeof path, "%.*s", folder, s->path);
  snprintf(base, sizeof path - (size_t)folder, "%.*s", length, entry);
  if (!mn_atomic_file_follows(s->base, base) && !mn_atomic_file_follows(base, s->base)) return;
  strcat(base, lock_suffix);
  if (!is_stale(path)) snprintf(s->first, MN_ATOMIC_FILE_PATH, "%.*s", length, entry);
}

mn_status mn_atomic_file_locked(char found[MN_ATOMIC_FILE_PATH], const char *path) {
  struct search search = {.path = path, .base = basename(path), .first = found};
  found[0] = 0;
  return list_folder(path, look_for_lock, &search);
}

mn_status mn_atomic_file_exists(const char *path, int *there) {
  *there = access(path, F_OK) == 0;
  return *there || errno == ENOENT || errno == ENOTDIR ? MN_OK : mn_atomic_file_fail("look at", path, errno);
}

/* A unique name beside `path`: at most MN_ATOMIC_FILE_PATH bytes, as create has checked. */
static void temporary_name(char *out, const char *path) {
  uint64_t word;
  MN_REQUIRE(getentropy(&word, sizeof word) == 0);
  int length = snprintf(out, MN_ATOMIC_FILE_PATH, "%s%s%016llx", path, suffix, (unsigned long long)word);
  MN_REQUIRE(length > 0 && length < MN_ATOMIC_FILE_PATH);
}

static int is_temporary(const char *entry, const char *base) {
  size_t length = strlen(base);
  if (strncmp(entry, base, length) != 0 || strncmp(entry + length, suffix, sizeof suffix - 1) != 0) return 0;
  const char *digits = entry + length + sizeof suffix - 1;
  return strlen(digits) == SUFFIX_DIGITS && strspn(digits, "0123456789abcdef") == SUFFIX_DIGITS;
}

static void remove_stale(void *to, const char *entry) {
  const struct mn_atomic_file *file = to;
  char path[2 * MN_ATOMIC_FILE_PATH];
  if (!is_temporary(entry, basename(file->path))) return;
  snprintf(path, sizeof path, "%s/%s", file->folder, entry);
  if (is_stale(path)) unlink(path);
}

/* Refuses a path that is taken by something other than a file. Sets *mode to the permissions of the file
 * there, else to 0. */
static mn_status check_path(const char *path, mode_t *mode) {
  struct stat status;
  *mode = 0;
  if (stat(path, &status) != 0)
    return errno == EIO || errno == ENOMEM ? mn_atomic_file_fail("look at", path, errno) : MN_OK;
  *mode = status.st_mode & 0777;
  if (S_ISREG(status.st_mode)) return MN_OK;
  return mn_fail(MN_NO_CREATE, "cannot save %s: it is %s: name a file", path,
                 S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe");
}

mn_status mn_atomic_file_create(struct mn_atomic_file *file, const char *path) {
  mode_t mode;
  file->fd = -1;
  MN_TRY(mn_atomic_file_resolve(file->path, path));
  folder_name(file->folder, sizeof file->folder, file->path);
  MN_TRY(check_path(file->path, &mode));
  (void)list_folder(file->path, remove_stale, file); /* if it cannot be listed, they stay */
  temporary_name(file->temporary, file->path);
  file->fd = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode ? mode : 0666);
  if (file->fd >= 0) flock(file->fd, LOCK_EX | LOCK_NB);
  /* If the permissions cannot be set, the file keeps those that it has. */
  if (file->fd >= 0 && (mode == 0 || fchmod(file->fd, mode) == 0 || errno == EPERM || errno == EOPNOTSUPP))
    return MN_OK;
  const int error = errno;
  mn_atomic_file_discard(file);
  if (error == ENOSPC || error == EDQUOT || error == EIO)
    return mn_atomic_file_fail("create", file->temporary, error);
  return mn_fail(MN_NO_CREATE, "cannot save %s: cannot create a file in %s: %s: %s", path, file->folder,
                 strerror(error),
                 error == ENOENT         ? "create the folder (mkdir -p) or name another"
                 : error == ENAMETOOLONG ? "name a shorter one"
                                         : "name a folder that can be written");
}

void mn_atomic_file_discard(struct mn_atomic_file *file) {
  if (file->fd < 0) return;
  unlink(file->temporary);
  close(file->fd);
  file->fd = -1;
}

/* Makes the names in a folder durable. A file system that cannot sync it returns EINVAL, which is ignored. */
static mn_status sync_folder(const char *folder) {
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? MN_OK : mn_atomic_file_fail("open the folder", folder, errno);
  int failed = TEMP_FAILURE_RETRY(fsync(fd)) != 0 && errno != EINVAL && errno != ENOTSUP;
  mn_status status = failed ? mn_atomic_file_fail("sync the folder", folder, errno) : MN_OK;
  close(fd);
  return status;
}

/* Renames `from` to `to`, which must be free: 0, or −1 with errno, EEXIST if it is not. On a file system
 * without such a rename the name is checked before. */
static int rename_new(const char *from, const char *to) {
  struct stat status;
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  if (lstat(to, &status) != 0) return errno == ENOENT ? rename(from, to) : -1;
  errno = EEXIST;
  return -1;
}

mn_status mn_atomic_file_set_aside(char name[MN_ATOMIC_FILE_PATH], const char *path, const char *word) {
  char folder[MN_ATOMIC_FILE_PATH], infix[32];
  int number = 1, failed;
  do {
    snprintf(infix, sizeof infix, ".%.9s-%d", word, number++);
    if (insert(name, MN_ATOMIC_FILE_PATH, path, infix) != 0)
      return mn_fail(MN_NO_CREATE, "cannot set %.60s… aside: too long a path: name a shorter one", path);
    failed = rename_new(path, name);
  } while (failed && errno == EEXIST);
  if (failed) return mn_atomic_file_fail("rename", path, errno);
  folder_name(folder, sizeof folder, path);
  return sync_folder(folder);
}

static int links_missing(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK;
}

static void number_name(char *out, const char *path, int number) { /* shorter than the temporary name */
  MN_REQUIRE(mn_atomic_file_number(out, MN_ATOMIC_FILE_PATH, path, number) == 0);
}

/* Moves the files from number 1 on by one, up to a free number; without one, the last is removed. Then gives
 * the file at `path` number 1 as a second name. */
static mn_status make_room(const char *path, int keep) {
  char from[MN_ATOMIC_FILE_PATH], to[MN_ATOMIC_FILE_PATH];
  int last = 1;
  for (number_name(to, path, last); last < keep - 1 && !is_free(to); number_name(to, path, last)) last++;
  if (unlink(to) != 0 && errno != ENOENT) return mn_atomic_file_fail("remove", to, errno);
  for (int i = last; i-- > 0;) {
    number_name(from, path, i);
    number_name(to, path, i + 1);
    int failed = (i == 0 ? link : rename_new)(from, to) != 0;
    if (failed && i == 0 && links_missing(errno)) failed = rename_new(from, to) != 0;
    if (failed) return mn_atomic_file_fail(i == 0 ? "link" : "rename", from, errno);
  }
  return MN_OK;
}

/* After a failure, number 1 becomes `path` again. If both are the same file, rename has no effect. */
static void take_back(const char *path) {
  char first[MN_ATOMIC_FILE_PATH];
  number_name(first, path, 1);
  if (rename(first, path) == 0) unlink(first);
}

static mn_status publish(const struct mn_atomic_file *file, int keep) {
  if (TEMP_FAILURE_RETRY(fsync(file->fd)) != 0) return mn_atomic_file_fail("write", file->path, errno);
  const int fresh = keep == 0 || is_free(file->path), kept = keep > 1 && !fresh;
  if (kept) MN_TRY(make_room(file->path, keep));
  if ((fresh ? rename_new : rename)(file->temporary, file->path) == 0) return sync_folder(file->folder);
  const int error = errno;
  if (kept) take_back(file->path);
  if (error != EEXIST) return mn_atomic_file_fail("replace", file->path, error);
  return mn_fail(MN_NO_CREATE,
                 "cannot save %s: a file of that name has appeared meanwhile, and is not "
                 "replaced: move it away, or name another",
                 file->path);
}

mn_status mn_atomic_file_publish(struct mn_atomic_file *file, int keep) {
  mn_status status = publish(file, keep);
  mn_atomic_file_discard(file); /* after a rename the temporary name is gone already */
  return status;
}
