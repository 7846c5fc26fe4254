/* Files of an HDF5 newer than this one: what it can read is read and listed; the rest is told as that, and no
 * checkpoint is set aside for it. */
#include "data/dataset.h"
#include "data/dataset_file.h"
#include "tests/checkpoint_make.h"
#include "train/command/commands.h"

uint32_t H5_checksum_metadata(const void *bytes, size_t size, uint32_t start); /* HDF5's own */

/* In the first datatype of floats of `width` bytes, sets the version to one that no HDF5 has yet; `sum`: the
 * checksum of the object's header follows, as a newer HDF5 would write it. */
static void raise_version(const char *name, int width, int sum) {
  const unsigned char type[] = {0x20, width == 4 ? 0x1f : 0x3f, 0, (unsigned char)width, 0, 0, 0};
  size_t size, header = 0, at = 0;
  unsigned char *bytes = read_bytes(name, &size);
  while (at + sizeof type < size && memcmp(bytes + at + 1, type, sizeof type) != 0) {
    if (memcmp(bytes + at, "OHDR", 4) == 0) header = at;
    at++;
  }
  assert_true(at + sizeof type < size);
  bytes[at] |= 0x80;
  if (sum) {
    const unsigned flags = bytes[header + 5];
    size_t first = header + 6 + (flags & 0x20 ? 16 : 0) + (flags & 0x10 ? 4 : 0), length = 0;
    for (unsigned i = 0; i < 1U << (flags & 3); i++) length |= (size_t)bytes[first + i] << 8 * i;
    first += (1U << (flags & 3)) + length;
    const uint32_t right = H5_checksum_metadata(bytes + header, first - header, 0);
    for (int i = 0; i < 4; i++) bytes[first + (size_t)i] = (unsigned char)(right >> 8 * i);
  }
  write_bytes(name, bytes, size);
  free(bytes);
}

/* x [6, 2] and z of floats and doubles, or of doubles and floats, with labels y. */
static void make_file(H5F_libver_t version, hid_t x_type, hid_t z_type) {
  const hsize_t shape[2] = {6, 2};
  const float values[12] = {1, 2, 3, 4, 5, 6};
  const int labels[6] = {0, 1, 0, 1};
  mn_hdf5_lock();
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, version, H5F_LIBVER_LATEST);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  put_dataset(file, "x", x_type, 2, shape, H5P_DEFAULT, H5T_NATIVE_FLOAT, values);
  put_dataset(file, "y", H5T_STD_I32LE, 1, shape, H5P_DEFAULT, H5T_NATIVE_INT, labels);
  put_dataset(file, "z", z_type, 2, shape, H5P_DEFAULT, H5T_NATIVE_FLOAT, values);
  H5Pclose(access);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
}

static void assert_newer(mn_status status) {
  assert_int_equal(status, MN_BAD_DATA);
  assert_says("a format that this HDF5 does not know (bad version number for datatype message");
  assert_says("a newer one wrote it");
  assert_says("libver=");
  assert_null(strstr(mn_message(), "damaged"));
  assert_null(strchr(mn_message(), '\n'));
}

/* HDF5 1.10.8 leaks a datatype's memory when it refuses the type's version. */
MN_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:libhdf5";
}

static mn_status run(mn_status (*command)(FILE *, const char *, int), char **text, int json) {
  size_t size;
  free(*text);
  FILE *out = open_memstream(text, &size);
  mn_status status = command(out, path, json);
  fclose(out);
  return status;
}

/* info describes the others, and train reads them; verify, which reads all, names what it cannot read. In the
 * oldest format no checksum tells a newer file from a changed byte. */
static void lists_what_it_can(void **state) {
  char *text = NULL;
  struct mn_dataset *d;
  for (int i = 0; i < 2; i++) {
    const H5F_libver_t version = i ? H5F_LIBVER_V110 : H5F_LIBVER_EARLIEST;
    make_file(version, H5T_IEEE_F32LE, H5T_IEEE_F64LE);
    raise_version(path, 8, i);
    for (int json = 0; json < 2; json++) {
      assert_int_equal(run(mn_info, &text, json), MN_OK);
      assert_non_null(strstr(text, json ? "{\"name\":\"/z\",\"kind\":\"unreadable\",\"refused\":\""
                                        : "name /z                  kind unreadable"));
      assert_non_null(strstr(text, "does not know (bad version number for datatype message"));
      assert_non_null(strstr(text, json ? "\"name\":\"/x\",\"kind\":\"dataset\",\"type\":\"float32\""
                                        : "train:\n  rows: 6\n"));
      assert_newer(run(mn_verify, &text, json));
      assert_true(!json || strstr(text, "\"whole\":false,\"reason\":\""));
    }
    assert_int_equal(mn_dataset_open(&d, path, MN_PART_TRAIN, NULL, NULL, 1), MN_OK);
    mn_dataset_close(d);
    make_file(version, H5T_IEEE_F64LE, H5T_IEEE_F32LE);
    raise_version(path, 8, i);
    assert_newer(mn_dataset_open(&d, path, MN_PART_TRAIN, NULL, NULL, 1));
    assert_int_equal(run(mn_info, &text, 0), MN_OK);
    assert_non_null(strstr(text, "train: none\nrefused: "));
  }
  free(text);
}

/* The version of a checkpoint's object stands behind a checksum: where that is right, nothing is damaged. */
static void keeps_newer_checkpoints(void **state) {
  char used[MN_CHECKPOINT_PATH], skipped[2048];
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, 12), *loaded;
  for (int sum = 1; sum >= 0; sum--) {
    assert_int_equal(mn_checkpoint_save(made, path, 2), MN_OK);
    assert_int_equal(mn_checkpoint_save(made, path, 2), MN_OK);
    raise_version(path, 4, sum);
    mn_status status = mn_checkpoint_load_newest(&loaded, path, used, skipped, sizeof skipped);
    if (sum) {
      assert_newer(status);
      assert_string_equal(skipped, "");
    } else {
      assert_int_equal(status, MN_OK);
      assert_non_null(strstr(skipped, "is damaged at"));
      mn_checkpoint_free(loaded);
    }
    assert_int_equal(access(path, F_OK), sum ? 0 : -1);
  }
  mn_checkpoint_free(made);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(lists_what_it_can, setup, teardown),
      cmocka_unit_test_setup_teardown(keeps_newer_checkpoints, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
