/* Chunked datasets, read without HDF5's filters and chunk cache.
 *
 * libhdf5 takes a chunk's size from the file and believes that what its filters give back fills the chunk: it
 * overflows its heap on a file where that is not so. Here the driver refuses a chunk that is larger than the
 * memory for it, and the filters that HDF5 always has (shuffle, deflate, fletcher32) are undone with every
 * length checked. A chunk that other filters wrote is read by HDF5, in a child process. What was unpacked is
 * kept, so that neighbouring reads do not unpack the same chunk again.
 *
 * Call all of it while holding the lock of data/hdf5.h. */
#ifndef MN_DATA_HDF5_CHUNK_H
#define MN_DATA_HDF5_CHUNK_H

#include "data/hdf5_file.h"

/* Sets dataset->chunks for a chunked dataset that is described but for that, by its creation properties. As
 * chunks are read, up to 256 MiB are taken to keep them. MN_BAD_DATA: chunks
 * or filters that make no sense; MN_NO_MEMORY. */
mn_status mn_hdf5_chunks_open(const struct mn_hdf5_file *file, struct mn_hdf5_object *dataset,
                              hid_t creation);
void mn_hdf5_chunks_close(struct mn_hdf5_chunks *chunks); /* NULL is fine */

/* Reads a slab into `out` as elements of type `memory`. Those in the file are not `pointing`. */
mn_status mn_hdf5_chunks_read(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                              hid_t memory, const struct mn_hdf5_slab *slab, void *out);

#endif
