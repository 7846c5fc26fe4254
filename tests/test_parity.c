/* The golden cases, computed by PyTorch, on every device and in every precision; and that a case with one
 * wrong number is a miss. */
#include "tests/check.h"

#include <hdf5.h>
#include <unistd.h>

#include "train/check/check.h"

static const char golden[] = "tests/golden/block.h5", trained[] = "tests/golden/adamw.h5";

static mn_status run(const char *name, const char *precision, const char *path, char **report) {
  struct mn_device *device = open_or_skip(name, precision);
  size_t size = 0;
  FILE *out = open_memstream(report, &size);
  assert_non_null(out);
  mn_status status = mn_parity(out, device, path, 0, 0);
  fclose(out);
  mn_device_close(device);
  return status;
}

static void must_pass(const char *device, const char *precision) {
  const char *const files[] = {golden, trained};
  for (int i = 0; i < 2; i++) {
    char *report = NULL;
    mn_status status = run(device, precision, files[i], &report);
    if (status != MN_OK) print_message("%s", report);
    free(report);
    if (status != MN_OK) fail_msg("%s, %s, %s: %s", device, precision, files[i], mn_message());
  }
}

static void golden_fp64(void **state) {
  must_pass(*state, "fp64");
}

static void golden_fp32(void **state) {
  must_pass(*state, "fp32");
}

static void golden_tf32(void **state) {
  must_pass(*state, "tf32");
}

static void golden_bf16(void **state) {
  must_pass(*state, "bf16");
}

static void golden_fp16(void **state) {
  must_pass(*state, "fp16");
}

static void golden_fp16x3(void **state) {
  must_pass(*state, "fp16x3");
}

/* A copy of a golden file to spoil; unlink and free it. */
static char *copy_of(const char *file) {
  const char *folder = getenv("TMPDIR");
  char *path = NULL, bytes[65536];
  size_t count;
  assert_true(asprintf(&path, "%s/minnow_parity_XXXXXX", folder && *folder ? folder : "/tmp") > 0);
  int descriptor = mkstemp(path);
  FILE *from = fopen(file, "rb"), *to = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
  assert_non_null(from);
  assert_non_null(to);
  while ((count = fread(bytes, 1, sizeof bytes, from)) > 0) assert_true(fwrite(bytes, 1, count, to) == count);
  fclose(from);
  assert_int_equal(fclose(to), 0);
  return path;
}

/* Changes one number of a dataset: by a thousandth of the largest, or to what is given if that is not 0. */
static void spoil(const char *path, const char *dataset, hsize_t at, double value) {
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set = H5Dopen2(file, dataset, H5P_DEFAULT);
  assert_true(file >= 0 && set >= 0);
  hid_t space = H5Dget_space(set);
  hssize_t count = H5Sget_simple_extent_npoints(space);
  assert_true(count > 0 && (hssize_t)at < count);
  double *values = malloc((size_t)count * sizeof *values), largest = 0;
  assert_true(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  for (hssize_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
  values[at] = value != 0 ? value : values[at] + 1e-3 * (largest > 0 ? largest : 1);
  assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  free(values);
  H5Sclose(space);
  H5Dclose(set);
  assert_true(H5Fclose(file) >= 0);
}

/* A case's name, by whether it is a training run and whether its groups have one channel. */
static void find_case(char *name, size_t size, int training, int single) {
  hid_t file = H5Fopen(golden, H5F_ACC_RDONLY, H5P_DEFAULT);
  H5G_info_t info;
  assert_true(file >= 0 && H5Gget_info(file, &info) >= 0);
  *name = 0;
  for (hsize_t i = 0; i < info.nlinks && !*name; i++) {
    char candidate[64];
    assert_true(H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, candidate, sizeof candidate,
                                   H5P_DEFAULT) > 0);
    hid_t group = H5Gopen2(file, candidate, H5P_DEFAULT);
    int64_t channels = 0, groups = 0;
    hid_t c = H5Aopen(group, "C", H5P_DEFAULT), g = H5Aopen(group, "G", H5P_DEFAULT);
    H5Aread(c, H5T_NATIVE_INT64, &channels);
    H5Aread(g, H5T_NATIVE_INT64, &groups);
    if ((H5Aexists(group, "steps") > 0) == training && (channels == groups) == single)
      snprintf(name, size, "%s", candidate);
    H5Aclose(c);
    H5Aclose(g);
    H5Gclose(group);
  }
  H5Fclose(file);
  assert_true(*name);
}

static void must_miss(const char *file, const char *which, const char *dataset, hsize_t at, double value) {
  char *path = copy_of(file), name[160], *report = NULL;
  snprintf(name, sizeof name, "%s/%s", which, dataset);
  spoil(path, name, at, value);
  mn_status status = run("cpu", "fp64", path, &report);
  unlink(path);
  free(path);
  if (status != MN_FAILED) print_message("%s", report);
  free(report);
  if (status != MN_FAILED) fail_msg("%s[%d] set to %g went unseen: %d", name, (int)at, value, status);
}

/* In each expected tensor, and in the inputs, one number a thousandth off, or NaN. */
static void one_wrong_number_is_a_miss(void **state) {
  static const char *const tensors[] = {
      "x", "fc.weight", "fc.bias",        "gn.weight",    "gn.bias",        "z",           "mean", "rstd",
      "y", "grad/x",    "grad/fc.weight", "grad/fc.bias", "grad/gn.weight", "grad/gn.bias"};
  static const char *const run[] = {"initial/fc.weight", "losses",          "final/fc.weight",
                                    "final/fc.bias",     "final/gn.weight", "final/gn.bias"};
  char which[64];
  find_case(which, sizeof which, 0, 0);
  for (size_t i = 0; i < COUNT(tensors); i++) must_miss(golden, which, tensors[i], 1, i % 2 ? NAN : 0);
  for (size_t i = 5; i < COUNT(tensors); i++) must_miss(golden, which, tensors[i], 0, i % 2 ? 0 : NAN);
  find_case(which, sizeof which, 1, 0);
  for (size_t i = 0; i < COUNT(run); i++) must_miss(golden, which, run[i], 0, i % 2 ? NAN : 0);
  for (size_t i = 0; i < COUNT(run); i++) must_miss(trained, "adamw", run[i], 0, i % 2 ? NAN : 0);
}

/* One channel a group: what is expected is 0 throughout, and so is what comes out. */
static void a_wrong_number_among_zeros_is_a_miss(void **state) {
  char which[64];
  find_case(which, sizeof which, 0, 1);
  must_miss(golden, which, "grad/x", 0, 0);
  must_miss(golden, which, "grad/x", 0, NAN);
  must_miss(golden, which, "grad/fc.bias", 0, NAN);
}

static void errors_are_relative_and_see_nan(void **state) {
  const double ones[] = {1, 1}, none[] = {0, 0}, bad[] = {1, NAN}, infinite[] = {INFINITY, 1};
  assert_true(mn_parity_error(ones, ones, 2) == 0);
  assert_true(mn_parity_error(none, ones, 2) == 1);
  assert_true(mn_parity_error(ones, none, 2) == 1);
  assert_false(mn_parity_error(bad, ones, 2) <= 1e300);
  assert_false(mn_parity_error(ones, bad, 2) <= 1e300);
  assert_false(mn_parity_error(none, bad, 2) <= 1e300);
  assert_false(mn_parity_error(bad, none, 2) <= 1e300);
  assert_false(mn_parity_error(infinite, ones, 2) <= 1e300);
  assert_false(mn_parity_error(ones, infinite, 2) <= 1e300);
}

/* A tolerance that nothing can meet. */
static void a_miss_says_so(void **state) {
  struct mn_device *device = open_or_skip("cpu", "fp32");
  FILE *nowhere = fopen("/dev/null", "w");
  assert_int_equal(mn_parity(nowhere, device, golden, 1e-12, 0), MN_FAILED);
  assert_int_equal(mn_parity(nowhere, device, golden, 1e-12, 1), MN_FAILED);
  assert_int_equal(mn_parity(nowhere, device, "tests/golden/no_such_file.h5", 0, 0), MN_NO_INPUT);
  assert_int_equal(mn_parity(nowhere, device, "tests/test_parity.c", 0, 0), MN_BAD_DATA);
  fclose(nowhere);
  mn_device_close(device);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const struct CMUnitTest tests[] = {
      BOTH(golden_fp64),
      BOTH(golden_fp32),
      BOTH(golden_tf32),
      BOTH(golden_bf16),
      BOTH(golden_fp16),
      BOTH(golden_fp16x3),
      cmocka_unit_test(errors_are_relative_and_see_nan),
      cmocka_unit_test(one_wrong_number_is_a_miss),
      cmocka_unit_test(a_wrong_number_among_zeros_is_a_miss),
      cmocka_unit_test(a_miss_says_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
