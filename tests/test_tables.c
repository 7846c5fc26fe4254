/* Groups and objects of which one name or attribute cannot be read: refused. HDF5, asked for all in an order,
 * fills a table and, on the way out of the error, frees what it had not set, which may crash the child that
 * tries the file out. */
#include "tests/checkpoint_make.h"
#include "train/command/commands.h"

enum { MANY = 20 }; /* more than a header keeps: they stand in a heap beside it */

static hid_t create(H5F_libver_t version) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  assert_true(H5Pset_libver_bounds(access, version, H5F_LIBVER_LATEST) >= 0);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  assert_true(file >= 0 && H5Pclose(access) >= 0);
  return file;
}

static void put_attributes(hid_t file, int count) {
  hid_t space = H5Screate(H5S_SCALAR);
  for (int i = 0; i < count; i++) {
    char name[24];
    snprintf(name, sizeof name, "attribute-%02d", i);
    hid_t id = H5Acreate2(file, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0 && H5Aclose(id) >= 0);
  }
  assert_true(H5Sclose(space) >= 0);
}

/* Changes the byte `distance` behind the first place of the file that holds `text`. */
static void damage(const char *text, int distance) {
  size_t size, at = 0, length = strlen(text);
  unsigned char *bytes = read_bytes(path, &size);
  while (at + length <= size && memcmp(bytes + at, text, length) != 0) at++;
  assert_true(at + length <= size);
  bytes[at + (size_t)distance] ^= 0x80;
  write_bytes(path, bytes, size);
  free(bytes);
}

/* verify refuses it; so does info, which reads no attributes, unless these are what is damaged. */
static void assert_refused(int attributes, const char *words) {
  FILE *out = fopen("/dev/null", "w");
  assert_non_null(out);
  assert_int_equal(mn_verify(out, path, 0), MN_BAD_DATA);
  assert_says(words);
  if (!attributes) assert_int_equal(mn_info(out, path, 0), MN_BAD_DATA);
  if (!attributes) assert_says(words);
  fclose(out);
}

static void names_in_a_heap(void **state) {
  mn_hdf5_lock();
  hid_t file = create(H5F_LIBVER_V110);
  for (int i = 0; i < MANY; i++) {
    char name[24];
    snprintf(name, sizeof name, "group-%02d", i);
    hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(group >= 0 && H5Gclose(group) >= 0);
  }
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  damage("group-07", 0); /* the heap's block has a checksum */
  assert_refused(0, "is damaged at /");
}

static void attributes_in_a_header(void **state) {
  mn_hdf5_lock();
  hid_t file = create(H5F_LIBVER_EARLIEST);
  put_attributes(file, 5);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  damage("attribute-03", -8); /* the version of its message, which no checksum guards */
  assert_refused(1, "take a copy or make it anew");
}

static void attributes_in_a_heap(void **state) {
  mn_hdf5_lock();
  hid_t file = create(H5F_LIBVER_V110);
  put_attributes(file, MANY);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  damage("attribute-07", 0);
  assert_refused(1, "is damaged at /");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(names_in_a_heap), TEST(attributes_in_a_header),
                                     TEST(attributes_in_a_heap)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
