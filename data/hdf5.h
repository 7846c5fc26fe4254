/* The one door to the HDF5 library, for datasets (data/dataset.c) and checkpoints (train/) alike.
 *
 * Not every build of HDF5 is thread-safe, and the loader's thread reads while the trainer saves: so every
 * call to HDF5, H5T_NATIVE_… and the other macros that open the library included, stands between mn_hdf5_lock
 * and mn_hdf5_unlock. A reader or writer of much data lets go in between, at most 4 MiB a hold
 * (MN_HDF5_PIECE), so that neither side waits long for the other. */
#ifndef MN_DATA_HDF5_H
#define MN_DATA_HDF5_H

#include <stddef.h>

#define MN_HDF5_PIECE ((size_t)4 << 20) /* bytes moved while holding the lock once */

/* Takes and gives back the lock. Recursive: a thread that holds it may take it again, and gives it back as
 * often. The outermost lock turns off HDF5's own error printing for this thread. Cannot fail: a mutex that
 * does is a broken invariant and aborts. */
void mn_hdf5_lock(void);
void mn_hdf5_unlock(void);

/* The innermost HDF5 error of this thread, for a message: copied into text[size] (> 0) and returned. "no
 * reason given" when there is none. Call while locked, before another HDF5 call clears the error. */
const char *mn_hdf5_reason(char *text, size_t size);

#endif
