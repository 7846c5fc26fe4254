/* Opening and closing HDF5 files; see file.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/hdf5/file.h"
#include "kernels/clock.h"

/* ---- trying a file out ---- */

enum { TRIAL = 2, SECONDS = 5 };

/* Errors are ignored: only a crash counts. */
static mn_status try_object(void *until, struct mn_hdf5_file *file, const struct mn_hdf5_object *object) {
  if (object->id >= 0) mn_hdf5_attributes(file, object, H5_INDEX_NAME, 1, NULL, NULL);
  return mn_seconds() < *(const double *)until ? MN_OK : MN_INTERRUPTED;
}

/* Opens every object of a file and reads its attributes, in a child process: libhdf5 may crash on a damaged
 * group, type or attribute, and these cannot be checked from outside. It stops after 2 s. */
static mn_status try_all(void *data, void *shared) {
  struct mn_hdf5_file *file = data;
  file->root.id = mn_hdf5_disk_open(&file->disk, file->path, -1);
  double until = mn_seconds() + TRIAL;
  if (file->root.id >= 0) mn_hdf5_walk(file, try_object, &until);
  return MN_OK;
}

/* ---- opening and closing ---- */

/* Opens the file without HDF5. After an error the descriptor is open unless it is negative. */
static mn_status open_descriptor(struct mn_hdf5_file *file) {
  struct stat status;
  /* O_NONBLOCK, or opening a FIFO would wait for its writer. */
  file->disk.fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->disk.fd < 0)
    return mn_fail(MN_NO_INPUT, "cannot open %s: %s: check %s", file->path, strerror(errno),
                   errno == EMFILE ? "ulimit -n" : "its name and its permissions");
  if (fstat(file->disk.fd, &status) != 0)
    return mn_fail(MN_IO, "cannot read %s: %s: check the disk", file->path, strerror(errno));
  if (!S_ISREG(status.st_mode))
    return mn_fail(MN_NO_INPUT, "cannot read %s: it is %s, not a regular file: name an HDF5 file", file->path,
                   S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe");
  file->size = (uint64_t)status.st_size;
  return MN_OK;
}

/* A program that writes the file through HDF5 holds a lock on it. If locks are not supported, the file is
 * read without one. */
static mn_status lock_file(struct mn_hdf5_file *file) {
  const char *wanted = getenv("HDF5_USE_FILE_LOCKING");
  if (wanted && strcmp(wanted, "FALSE") == 0) return MN_OK;
  if (flock(file->disk.fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return MN_OK;
  return mn_fail(MN_NO_INPUT,
                 "%s is locked, as another program is writing it: wait for that, or set the environment "
                 "variable HDF5_USE_FILE_LOCKING=FALSE to read it all the same",
                 file->path);
}

/* Whether the file is minnow's own. From version 2 of its first block on, HDF5 has checksums of that and of
 * the root, so that these can be read here. */
static int is_own(struct mn_hdf5_file *file) {
  unsigned char start[9];
  size_t got;
  struct mn_hdf5_value format;
  file->disk.error = mn_read_at(file->disk.fd, 0, sizeof start, start, &got);
  if (file->disk.error || got < sizeof start || start[8] < 2) return 0;
  file->root.id = mn_hdf5_disk_open(&file->disk, file->path, -1);
  return file->root.id >= 0 && mn_hdf5_attribute(file, &file->root, "format", 0, &format) == MN_OK &&
         format.kind == MN_VALUE_TEXT && strcmp(format.text, MN_HDF5_OWN) == 0;
}

mn_status mn_hdf5_apart(struct mn_hdf5_file *file, mn_child_work *work, void *data, int seconds, void *out,
                        size_t bytes, int *died) {
  *died = 0;
  if (!file->trusted) return mn_child_run(file->path, work, data, seconds, out, bytes, died);
  memset(out, 0, bytes);
  return work(data, out);
}

/* Lets a child try out a file that is not trusted, and opens it. */
static mn_status open_root(struct mn_hdf5_file *file) {
  int died = 0;
  file->trusted = file->trusted || is_own(file);
  if (file->disk.error) return mn_hdf5_damaged(file, "its start", NULL);
  if (!file->trusted) MN_TRY(mn_child_run(file->path, try_all, file, SECONDS, NULL, 0, &died));
  if (died) return mn_hdf5_damaged(file, "its objects", MN_HDF5_CRASHED);
  if (file->root.id < 0) file->root.id = mn_hdf5_disk_open(&file->disk, file->path, -1);
  return file->root.id < 0 && file->disk.error ? mn_hdf5_damaged(file, "its start", NULL) : MN_OK;
}

static mn_status open_hdf5(struct mn_hdf5_file *file, int shared) {
  mn_status status = MN_OK;
  MN_TRY(open_descriptor(file));
  if (shared) MN_TRY(lock_file(file));
  MN_TRY(mn_hdf5_begin());
  file->signature = H5Fis_hdf5(file->path) != 0; /* below 0: it cannot be read, which opening it tells */
  if (!file->signature)
    status = mn_fail(MN_BAD_DATA, "%s is no HDF5 file (%" PRIu64 " bytes, without HDF5's signature): %s",
                     file->path, file->size, file->remedy);
  if (status == MN_OK) status = open_root(file);
  if (status != MN_OK && file->root.id >= 0) H5Fclose(file->root.id), file->root.id = -1;
  mn_hdf5_end();
  if (status != MN_OK || file->root.id >= 0) return status;
  return mn_fail(MN_BAD_DATA, "%s is cut short or damaged (%" PRIu64 " bytes; HDF5: %s): %s", file->path,
                 file->size, file->disk.reason, file->remedy);
}

mn_status mn_hdf5_open(struct mn_hdf5_file *file, const char *path, const char *remedy, int how) {
  *file = (struct mn_hdf5_file){.path = path,
                                .remedy = remedy,
                                .trusted = how & MN_HDF5_TRUSTED,
                                .root = {.name = "/", .kind = MN_HDF5_GROUP, .id = -1}};
  mn_status status = open_hdf5(file, how & MN_HDF5_SHARED);
  if (status == MN_OK) return MN_OK;
  if (file->disk.fd >= 0) close(file->disk.fd);
  return status;
}

/* A failing close loses no data of a file that was only read. */
void mn_hdf5_close(struct mn_hdf5_file *file) {
  mn_hdf5_lock();
  H5Fclose(file->root.id);
  mn_hdf5_unlock();
  close(file->disk.fd);
}
