/* HDF5 on a file descriptor of ours: the calls through which every HDF5 file is read and written.
 *
 * HDF5's own driver cannot be trusted with a failing disk: when a write or a close fails, H5Fclose fails too,
 * the file stays open inside the library, and 1.10.8 crashes when the process exits. This driver never lets
 * HDF5 see a failed write: it keeps the first error number, writes nothing more, and reports success; the
 * caller looks at `error` afterwards and removes the file. That number also tells a failing disk from a
 * damaged file, whatever words HDF5 has for either. It takes no file locks: mn_hdf5_open does where they are
 * needed.
 *
 * A file that is read ends where it ends: a read beyond is an error, not zeros. And libhdf5 reads as many
 * bytes of a chunk as the file says, whatever memory there is for them, so the driver can be given a limit.
 */
#ifndef MN_DATA_HDF5_DISK_H
#define MN_DATA_HDF5_DISK_H

#include <hdf5.h>

struct mn_hdf5_disk {
  int fd;      /* borrowed: open while the HDF5 file is */
  int error;   /* errno of the first read or write that failed, else 0 */
  int limited; /* a read of elements of more than `limit` bytes is refused */
  size_t limit;
  size_t asked;     /* bytes that the last read of elements asked for */
  char reason[160]; /* HDF5's own words where creating or opening failed */
};

/* The HDF5 file in disk->fd, to be closed with H5Fclose, which closes all objects in it too; a negative
 * number on an error. With the file creation properties `creation` it is a new one, version bounds V110, in
 * an empty file open for reading and writing; with −1 it is opened for reading. `name` is for HDF5's messages
 * alone; `disk` must outlive the file. Call while holding the lock of data/hdf5.h. */
hid_t mn_hdf5_disk_open(struct mn_hdf5_disk *disk, const char *name, hid_t creation);

#endif
