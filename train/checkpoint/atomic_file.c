/* Replacing a file so that a whole one stands at every moment, whatever fails or is killed: publishing run.h5
 * goes
 *
 *   fsync  run.h5.saving-A            its bytes are on the disk
 *   rename run.h5.saving-A → run.h5   the moment it is published
 *   fsync  the folder                 the names are on the disk
 *
 * A killed run may leave .saving- files, which the next save removes. */
#include "train/checkpoint/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".saving-"; /* then SUFFIX_DIGITS hex digits */
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
static void folder_name(char out[MN_ATOMIC_FILE_PATH], const char *path) {
  const int length = (int)(basename(path) - path);
  snprintf(out, MN_ATOMIC_FILE_PATH, "%.*s", length > 1 ? length - 1 : 1, length ? path : ".");
}

int mn_atomic_file_is_free(const char *path) {
  struct stat status;
  return lstat(path, &status) != 0 && errno == ENOENT;
}

/* The file that `path` leads to through symbolic links; it may be missing. MN_NO_CREATE: an empty name, a
 * path that is too long, links in a circle. */
static mn_status resolve(char out[MN_ATOMIC_FILE_PATH], const char *path) {
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

mn_status mn_atomic_file_list(const char *path, void (*take)(void *to, const char *entry), void *to) {
  char folder[MN_ATOMIC_FILE_PATH];
  folder_name(folder, path);
  DIR *entries = opendir(folder);
  if (!entries && errno == ENOENT) return MN_OK;
  if (!entries) return mn_atomic_file_fail("list the folder", folder, errno);
  errno = 0;
  for (struct dirent *entry; (entry = readdir(entries)); errno = 0) take(to, entry->d_name);
  mn_status status = errno ? mn_atomic_file_fail("list the folder", folder, errno) : MN_OK;
  closedir(entries);
  return status;
}

/* Whether a file has lost its writer, which holds a lock that ends with the process, on this machine or
 * another; without locks the file stays. */
static int is_stale(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* NFS locks only what may be written */
  if (fd < 0) return 0;
  int stale = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return stale;
}

mn_status mn_atomic_file_exists(const char *path, int *there) {
  *there = access(path, F_OK) == 0;
  return *there || errno == ENOENT || errno == ENOTDIR ? MN_OK : mn_atomic_file_fail("look at", path, errno);
}

static void remove_stale(void *to, const char *entry) {
  const struct mn_atomic_file *file = to;
  const char *base = basename(file->path);
  const size_t length = strlen(base), digits = length + sizeof suffix - 1;
  char path[2 * MN_ATOMIC_FILE_PATH];
  if (strncmp(entry, base, length) != 0 || strncmp(entry + length, suffix, sizeof suffix - 1) != 0) return;
  if (strlen(entry) != digits + SUFFIX_DIGITS) return;
  if (strspn(entry + digits, "0123456789abcdef") != SUFFIX_DIGITS) return;
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
  uint64_t word;
  file->fd = -1, file->synced = 0;
  MN_TRY(resolve(file->path, path));
  folder_name(file->folder, file->path);
  MN_TRY(check_path(file->path, &mode));
  (void)mn_atomic_file_list(file->path, remove_stale, file); /* if it cannot be listed, they stay */
  MN_REQUIRE(getentropy(&word, sizeof word) == 0);
  const int length =
      snprintf(file->temporary, sizeof file->temporary, "%s%s%016" PRIx64, file->path, suffix, word);
  MN_REQUIRE(length > 0 && length < MN_ATOMIC_FILE_PATH); /* as resolving has checked */
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

mn_status mn_atomic_file_sync(struct mn_atomic_file *file) {
  file->synced = file->synced || TEMP_FAILURE_RETRY(fsync(file->fd)) == 0;
  return file->synced ? MN_OK : mn_atomic_file_fail("write", file->path, errno);
}

/* A file system that cannot sync folders returns EINVAL, which is ignored. */
mn_status mn_atomic_file_sync_folder(const char *path) {
  char folder[MN_ATOMIC_FILE_PATH];
  folder_name(folder, path);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? MN_OK : mn_atomic_file_fail("open the folder", folder, errno);
  int failed = TEMP_FAILURE_RETRY(fsync(fd)) != 0 && errno != EINVAL && errno != ENOTSUP;
  mn_status status = failed ? mn_atomic_file_fail("sync the folder", folder, errno) : MN_OK;
  close(fd);
  return status;
}

/* On a file system without such a rename the name is checked before. */
int mn_atomic_file_rename_new(const char *from, const char *to) {
  struct stat status;
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  if (lstat(to, &status) != 0) return errno == ENOENT ? rename(from, to) : -1;
  errno = EEXIST;
  return -1;
}

/* A file that appears at a free `path` meanwhile is not replaced either. */
static mn_status publish(struct mn_atomic_file *file, int replace) {
  MN_TRY(mn_atomic_file_sync(file));
  const int fresh = !replace || mn_atomic_file_is_free(file->path);
  if ((fresh ? mn_atomic_file_rename_new : rename)(file->temporary, file->path) == 0)
    return mn_atomic_file_sync_folder(file->path);
  if (errno != EEXIST) return mn_atomic_file_fail("replace", file->path, errno);
  return mn_fail(MN_NO_CREATE,
                 "cannot save %s: a file of that name has appeared meanwhile, and is not "
                 "replaced: move it away, or name another",
                 file->path);
}

mn_status mn_atomic_file_publish(struct mn_atomic_file *file, int replace) {
  mn_status status = publish(file, replace);
  mn_atomic_file_discard(file); /* after a rename the temporary name is gone already */
  return status;
}
