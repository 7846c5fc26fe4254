/* The HDF5 driver: pread, pwrite and ftruncate on a descriptor. A failed write is noted and reported by the
 * caller; see hdf5_disk.h for why. */
#include "data/hdf5_disk.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include "data/hdf5.h"

/* What HDF5 holds of an open file. The public part must come first. */
struct disk_file {
  H5FD_t base;
  struct mn_hdf5_disk *disk;
  haddr_t allocated; /* where the library's allocations end ("EOA") */
  haddr_t end;       /* where the file ends ("EOF") */
  int writing;
};

static const haddr_t largest = (haddr_t)INT64_MAX;

static H5FD_t *disk_open(const char *name, unsigned flags, hid_t access, haddr_t maximum) {
  (void)name;
  (void)maximum;
  struct mn_hdf5_disk *const *disk = H5Pget_driver_info(access);
  struct disk_file *file = calloc(1, sizeof *file);
  struct stat status;
  if (!disk || !file || fstat((*disk)->fd, &status) != 0) {
    if (disk) (*disk)->error = errno;
    free(file);
    return NULL;
  }
  file->disk = *disk;
  file->writing = (flags & H5F_ACC_RDWR) != 0;
  file->end = (haddr_t)status.st_size;
  return &file->base;
}

static herr_t disk_close(H5FD_t *base) {
  free(base);
  return 0;
}

static herr_t disk_query(const H5FD_t *base, unsigned long *flags) {
  (void)base;
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

static haddr_t disk_get_eoa(const H5FD_t *base, H5FD_mem_t type) {
  (void)type;
  return ((const struct disk_file *)base)->allocated;
}

static herr_t disk_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address) {
  (void)type;
  ((struct disk_file *)base)->allocated = address;
  return 0;
}

static haddr_t disk_get_eof(const H5FD_t *base, H5FD_mem_t type) {
  (void)type;
  return ((const struct disk_file *)base)->end;
}

static herr_t disk_read(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                        void *buffer) {
  (void)transfer;
  struct disk_file *file = (struct disk_file *)base;
  char *to = buffer;
  if (type == H5FD_MEM_DRAW) {
    file->disk->asked = size;
    if (file->disk->limited && size > file->disk->limit) return -1;
  }
  if (address > largest || size > largest - address) return -1;
  while (size > 0) {
    ssize_t done = pread(file->disk->fd, to, size, (off_t)address);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      if (file->disk->error == 0) file->disk->error = errno;
      return -1;
    }
    if (done == 0 && !file->writing) return -1;
    if (done == 0) { /* allocated and not yet written: the library takes zeros for that */
      memset(to, 0, size);
      break;
    }
    to += done;
    address += (haddr_t)done;
    size -= (size_t)done;
  }
  return 0;
}

static herr_t disk_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                         const void *buffer) {
  (void)type;
  (void)transfer;
  struct disk_file *file = (struct disk_file *)base;
  const char *from = buffer;
  while (size > 0 && file->disk->error == 0) {
    ssize_t done = pwrite(file->disk->fd, from, size, (off_t)address);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      file->disk->error = done < 0 ? errno : ENOSPC;
      break;
    }
    from += done;
    address += (haddr_t)done;
    size -= (size_t)done;
  }
  if (address + size > file->end) file->end = address + size; /* as far as the library may know */
  return 0;
}

/* A closed file is as long as what was allocated in it: HDF5 refuses a shorter one as cut short. */
static herr_t disk_truncate(H5FD_t *base, hid_t transfer, hbool_t closing) {
  (void)transfer;
  (void)closing;
  struct disk_file *file = (struct disk_file *)base;
  if (file->end == file->allocated) return 0;
  if (file->disk->error == 0 && ftruncate(file->disk->fd, (off_t)file->allocated) != 0)
    file->disk->error = errno;
  file->end = file->allocated;
  return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = 511, /* of the range left to programs that register none */
#endif
    .name = "minnow",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct mn_hdf5_disk *), /* a pointer, so that copies of the properties share it */
    .open = disk_open,
    .close = disk_close,
    .query = disk_query,
    .get_eoa = disk_get_eoa,
    .set_eoa = disk_set_eoa,
    .get_eof = disk_get_eof,
    .read = disk_read,
    .write = disk_write,
    .truncate = disk_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* The driver's id, registered once and for good: were a file the last to hold it, HDF5 1.10.8 would free the
 * driver just before calling its close. */
static hid_t registered(void) {
  static hid_t id = H5I_INVALID_HID; /* under the lock, as all of HDF5 */
  if (id < 0 || H5Iget_type(id) != H5I_VFL) id = H5FDregister(&driver);
  return id;
}

hid_t mn_hdf5_disk_open(struct mn_hdf5_disk *disk, const char *name, hid_t creation) {
  hid_t id = registered(), file = -1;
  hid_t access = id < 0 ? -1 : H5Pcreate(H5P_FILE_ACCESS);
  if (access >= 0 && H5Pset_driver(access, id, &disk) >= 0 &&
      H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0) {
    if (creation < 0)
      file = H5Fopen(name, H5F_ACC_RDONLY, access);
    else if (H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0)
      file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
  }
  if (file < 0) mn_hdf5_reason(disk->reason, sizeof disk->reason); /* H5Pclose would clear it */
  if (access >= 0) H5Pclose(access);
  return file;
}
