/* What makes the rows of a dataset slow to read, and what mends it. */
#ifndef MN_DATA_ADVICE_H
#define MN_DATA_ADVICE_H

#include "data/hdf5_file.h"

struct mn_advice {
  char cause[200], remedy[400]; /* one line each */
};

/* Rows that stand in the file as they are in memory are read by several threads, without HDF5
 * (data/dataset.c); all others go through HDF5, which lets one thread in at a time and decompresses and
 * converts on it. Returns 0 where there is nothing to mend: rows that are read the fast way, less than 16
 * MiB, labels, and what is no dataset of numbers. */
int mn_advice_find(struct mn_advice *advice, const struct mn_hdf5_object *object);

#endif
