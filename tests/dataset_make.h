/* What the tests of datasets share: data.h5 in a folder of one's own, made up from arrays, and the message of
 * a file that is refused. */
#ifndef MN_TESTS_DATASET_MAKE_H
#define MN_TESTS_DATASET_MAKE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/dataset_file.h"
#include "data/hdf5/hdf5.h"
#include "tests/hdf5_made.h"

/* ---- a folder for the program, and data.h5 in it, which each test leaves behind ---- */

static char folder[256], file[512];

static inline int make_folder(void **state) {
  const char *root = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/minnow-dataset-XXXXXX", root && *root ? root : "/tmp");
  if (!mkdtemp(folder)) return -1;
  snprintf(file, sizeof file, "%s/data.h5", folder);
  mn_hdf5_lock(); /* HDF5's own error printing off, for this program's calls too */
  mn_hdf5_unlock();
  return 0;
}

static inline int remove_file(void **state) {
  return unlink(file) && errno != ENOENT ? -1 : 0;
}

static inline int remove_folder(void **state) {
  return rmdir(folder);
}

#define TEST(name) cmocka_unit_test_teardown(name, remove_file)

/* ---- making the file ---- */

static inline hid_t create(void) {
  return create_file(file);
}

/* Writes [rows, cols] (cols 0: rank 1) values of `memory` type as `stored` type. */
static inline void put(hid_t at, const char *name, hid_t stored, hsize_t rows, hsize_t cols, hid_t memory,
                       const void *values) {
  put_dataset(at, name, stored, cols ? 2 : 1, (hsize_t[]){rows, cols}, H5P_DEFAULT, memory, values);
}

static inline void put_floats(hid_t at, const char *name, hsize_t rows, hsize_t cols) {
  hsize_t count = rows * (cols ? cols : 1);
  float *values = malloc(count * sizeof *values);
  assert_non_null(values);
  for (hsize_t i = 0; i < count; i++) values[i] = (float)i;
  put(at, name, H5T_IEEE_F32LE, rows, cols, H5T_NATIVE_FLOAT, values);
  free(values);
}

static inline void put_labels(hid_t at, const char *name, hsize_t rows) {
  int *values = calloc(rows, sizeof *values);
  assert_non_null(values);
  for (hsize_t i = 0; i < rows; i++) values[i] = (int)(i % 3);
  put(at, name, H5T_STD_I32LE, rows, 0, H5T_NATIVE_INT, values);
  free(values);
}

static inline void put_attribute(hid_t at, const char *dataset, const char *name, hid_t type, hsize_t count,
                                 hid_t memory, const void *value) {
  hid_t id = H5Dopen2(at, dataset, H5P_DEFAULT);
  hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(id, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, memory, value) >= 0);
  assert_true(H5Aclose(attribute) >= 0 && H5Sclose(space) >= 0 && H5Dclose(id) >= 0);
}

/* ---- opening it ---- */

static inline struct mn_dataset *opened(void) {
  struct mn_dataset *d;
  mn_status status = mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 1);
  if (status != MN_OK) print_error("%s\n", mn_message());
  assert_int_equal(status, MN_OK);
  assert_non_null(d);
  return d;
}

/* That `status` is `wanted`, and the message one line that holds each of the strings, up to a NULL. */
static inline void assert_message(mn_status status, mn_status wanted, ...) {
  if (status != wanted) print_error("status %d: %s\n", status, mn_message());
  assert_int_equal(status, wanted);
  va_list strings;
  va_start(strings, wanted);
  for (const char *s = va_arg(strings, const char *); s; s = va_arg(strings, const char *)) {
    if (!strstr(mn_message(), s)) print_error("no \"%s\" in: %s\n", s, mn_message());
    assert_non_null(strstr(mn_message(), s));
  }
  va_end(strings);
  assert_null(strchr(mn_message(), '\n'));
  if (getenv("SHOW")) print_message("%s\n", mn_message());
}

#endif
