/* Trying a file out before it is opened. */
#ifndef MN_DATA_HDF5_PROBE_H
#define MN_DATA_HDF5_PROBE_H

#include "data/hdf5_file.h"

/* Opens everything in a file that mn_hdf5_open has opened but for HDF5, and reads its attributes, in a child
 * process: libhdf5 may crash on what is damaged, a group, a type, an attribute, and nothing of that can be
 * checked from outside. For 2 s at most, after which the rest goes untried. MN_BAD_DATA: it crashed or hung.
 * Whatever else is wrong is left to those who ask for it. Call while holding the lock of data/hdf5.h. */
mn_status mn_hdf5_probe(const struct mn_hdf5_file *file);

#endif
