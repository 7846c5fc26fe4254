/* The lock around the HDF5 library, and what the library says when it fails.
 *
 * Not every build of HDF5 is thread-safe, and the loader's thread reads while the trainer saves: so every
 * call to HDF5, H5T_NATIVE_… and the other macros that open the library included, stands between mn_hdf5_lock
 * and mn_hdf5_unlock. A reader or writer of much data unlocks after every 4 MiB (MN_HDF5_TRANSFER), and a
 * thread that locks again goes behind those that wait: so neither waits long for the other. */
#ifndef MN_DATA_HDF5_H
#define MN_DATA_HDF5_H

#include <stddef.h>

#include "kernels/status.h"

#define MN_HDF5_TRANSFER ((size_t)4 << 20) /* the most bytes read or written under one lock */

/* Starts HDF5, which the first call to it would do otherwise without telling of a failure. MN_NO_MEMORY. */
mn_status mn_hdf5_start(void);

/* Recursive: a thread that holds the lock may take it again, and unlocks as often. The outermost lock turns
 * off HDF5's own error printing for this thread. A mutex that fails aborts. */
void mn_hdf5_lock(void);
void mn_hdf5_unlock(void);

/* The innermost HDF5 error of this thread, for a message: copied into text[size] (> 0) and returned. "no
 * reason given" when there is none. Call while locked, before another HDF5 call clears the error. */
const char *mn_hdf5_reason(char *text, size_t size);

#endif
