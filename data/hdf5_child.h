/* Work that may crash, done in a child process: libhdf5 has memory errors on files that are damaged or made
 * to mislead it, and some of what it reads cannot be checked beforehand. */
#ifndef MN_DATA_HDF5_CHILD_H
#define MN_DATA_HDF5_CHILD_H

#include <stddef.h>

#include "kernels/status.h"

/* What is done in the child. All it changes is lost but the bytes of `shared`. */
typedef mn_status mn_child_work(void *data, void *shared);

/* Calls `work` in a child process, a copy of this one with the calling thread alone, and waits for it. Its
 * status is returned and its message set here. *shared is `bytes` (> 0) of memory, zeros at first, that holds
 * what the child wrote into it: to be given back with mn_child_free, also after an error (it may be NULL
 * then). *died: the child crashed, or computed for longer than `seconds`; the status is MN_OK then.
 *
 * The child runs no exit handler, must not use a GPU, prints nothing, and ends with this thread; a signal
 * that asks this process to stop does not stop the child. Call while holding the lock of data/hdf5.h where
 * `work` takes it. MN_NO_MEMORY: there is no room for the memory or for another process. */
mn_status mn_child_run(mn_child_work *work, void *data, int seconds, size_t bytes, void **shared, int *died);
void mn_child_free(void *shared, size_t bytes);

#endif
