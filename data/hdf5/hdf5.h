/* The surroundings of the HDF5 library: a lock, a driver, and child processes for calls that may crash.
 *
 * Not every build of HDF5 is thread-safe, and the loader's thread reads while the trainer saves. So every
 * call to HDF5, including H5T_NATIVE_… and the other macros that open the library, stands between
 * mn_hdf5_lock and mn_hdf5_unlock. A reader or writer of much data unlocks after every 4 MiB
 * (MN_HDF5_TRANSFER), and a thread that locks again goes behind the waiting ones: so neither waits long for
 * the other. */
#ifndef MN_DATA_HDF5_HDF5_H
#define MN_DATA_HDF5_HDF5_H

#include <hdf5.h>
#include <stddef.h>

#include "kernels/status.h"

#define MN_HDF5_TRANSFER ((size_t)4 << 20) /* the most bytes read or written under one lock */

/* For the command: starts HDF5, which the first call would else do and hide a failure, and turns its own
 * error printing off for good, also for its end, where it tells of damaged files that it could not close.
 * MN_NO_MEMORY. */
mn_status mn_hdf5_start(void);

/* Recursive: a thread that holds the lock may take it again, and unlocks as often. HDF5's own error printing
 * is off for this thread until the outermost unlock. A mutex that fails aborts. */
void mn_hdf5_lock(void);
void mn_hdf5_unlock(void);

/* The same around the opening or the writing of a file, with room for what libhdf5 takes for that: it crashes
 * where it finds no memory. The room is held from the first end on, and given back by the next begin.
 * MN_NO_MEMORY, and not locked: it cannot be had. */
mn_status mn_hdf5_begin(void);
void mn_hdf5_end(void);

/* The innermost HDF5 error of this thread, for a message, valid until this thread's next mn_hdf5_reason. "no
 * reason given" without an error. Call while locked, before another HDF5 call clears the error. */
const char *mn_hdf5_reason(void);

/* ---- the driver ---- */

/* Our driver reads and writes every HDF5 file, on a file descriptor of ours.
 *
 * HDF5's own driver is not safe on a failing disk: if a write or a close fails, H5Fclose fails too, the file
 * stays open inside the library, and 1.10.8 crashes when the process exits. Our driver hides a failed write
 * from HDF5: it keeps the first error number, writes no more, and reports success; the caller looks at
 * `error` afterwards and removes the file. That number also distinguishes a failing disk from a damaged file.
 * The driver takes no file locks: mn_hdf5_open does if they are needed.
 *
 * A read beyond the end of a file that is open for reading is an error, not zeros. libhdf5 reads as many
 * bytes of a chunk as the file says, and takes them for all of it, so the driver can be told how many. */
struct mn_hdf5_disk {
  int fd;             /* borrowed: open while the HDF5 file is */
  int error;          /* errno of the first read or write that failed, else 0 */
  size_t exact;       /* bytes that each read of elements has to have; 0: any number */
  const char *reason; /* mn_hdf5_reason, if creating or opening failed */
};

/* Reads bytes of a file, without HDF5; *got is less than `bytes` if the file ends. Returns errno or 0. */
int mn_read_at(int fd, uint64_t offset, size_t bytes, void *out, size_t *got);

/* Opens the HDF5 file in disk->fd; a negative number is an error. H5Fclose closes it and all objects in it.
 * With file creation properties `creation` the file is created, version bounds V110, in an empty file open
 * for reading and writing; with −1 it is opened for reading. `name` is for HDF5's messages alone; `disk` must
 * outlive the file. Call while locked. */
hid_t mn_hdf5_disk_open(struct mn_hdf5_disk *disk, const char *name, hid_t creation);

/* ---- child processes ---- */

/* Work that may crash, done in a child process: libhdf5 has memory errors on files that are damaged or made
 * to mislead it, and not everything that it reads can be checked beforehand. All that the work changes in the
 * child is lost except the bytes of `shared`, which are zeros at first. */
typedef mn_status mn_child_work(void *data, void *shared);

/* Calls `work`, which reads the file `path`, in a child process, a copy of this one with the calling thread
 * alone, and waits for it.
 * Returns its status, and sets its message here; after MN_OK the `bytes` of `shared` are in `out`. *died: the
 * work crashed, or computed for longer than `seconds`; the status is MN_OK then, and `out` is as it was.
 *
 * The child runs no exit handler, must not use a GPU or print, and ends with this thread; a signal that stops
 * this process does not stop the child. Call while locked if `work` locks. MN_NO_MEMORY: the memory or
 * another process cannot be had, or the child was killed from outside (SIGKILL); MN_LIBRARY: by another
 * signal. Neither says anything of the file. */
mn_status mn_child_run(const char *path, mn_child_work *work, void *data, int seconds, void *out,
                       size_t bytes, int *died);

#endif
