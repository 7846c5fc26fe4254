/* How tests make HDF5 files. */
#ifndef MN_TESTS_HDF5_MADE_H
#define MN_TESTS_HDF5_MADE_H

#include <hdf5.h>

#include "tests/skip.h"

static inline hid_t create_file(const char *name) {
  hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  return file;
}

static inline void done(hid_t file) {
  assert_true(H5Fclose(file) >= 0);
}

/* The properties of a dataset in chunks of this shape, or, where that is NULL, of any. */
static inline hid_t in_chunks(int rank, const hsize_t *chunk) {
  hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(creation >= 0 && (!chunk || H5Pset_chunk(creation, rank, chunk) >= 0));
  return creation;
}

/* A dataset stored as `stored` that holds values of the type `memory`, if not NULL. Groups on the way are
 * made, and the properties closed. */
static inline void put_dataset(hid_t at, const char *name, hid_t stored, int rank, const hsize_t *size,
                               hid_t creation, hid_t memory, const void *values) {
  hid_t space = H5Screate_simple(rank, size, NULL), link = H5Pcreate(H5P_LINK_CREATE);
  assert_true(H5Pset_create_intermediate_group(link, 1) >= 0);
  hid_t set = H5Dcreate2(at, name, stored, space, link, creation, H5P_DEFAULT);
  assert_true(set >= 0);
  if (values) assert_true(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  if (creation != H5P_DEFAULT) assert_true(H5Pclose(creation) >= 0);
  assert_true(H5Dclose(set) >= 0 && H5Sclose(space) >= 0 && H5Pclose(link) >= 0);
}

#endif
