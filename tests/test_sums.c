/* The checksums of a checkpoint's datasets: that they are XXH3's, cover each, and that old files do without.
 * What a lost write or a flipped bit does to a file is in test_checkpoint.c. */
#include "tests/checkpoint_make.h"

#include <xxhash.h>

#include "train/command/commands.h"

static void assert_refused(const char *words) {
  struct mn_checkpoint *loaded;
  mn_status status = mn_checkpoint_load(&loaded, path);
  if (status != MN_BAD_DATA) fail_msg("'%s': status %d", words, status);
  assert_says(words);
}

static hid_t open_locked(void) {
  mn_hdf5_lock();
  return open_raw(path, H5F_ACC_RDWR);
}

static void close_locked(hid_t file) {
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
}

/* The text of the attribute, malloc'ed. */
static char *read_list(void) {
  mn_hdf5_lock();
  hid_t file = open_raw(path, H5F_ACC_RDONLY), attribute = H5Aopen(file, MN_SUMS_ATTRIBUTE, H5P_DEFAULT);
  hid_t type = H5Aget_type(attribute);
  char *list = calloc(H5Tget_size(type) + 1, 1);
  assert_true(H5Aread(attribute, type, list) >= 0);
  H5Tclose(type);
  H5Aclose(attribute);
  close_locked(file);
  return list;
}

static void write_list(const char *list) {
  hid_t file = open_locked(), type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, *list ? strlen(list) : 1);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  replace_attribute(file, "/", MN_SUMS_ATTRIBUTE, type, 0, list);
  H5Tclose(type);
  close_locked(file);
}

static void show(char digits[33], const void *values, size_t bytes) {
  XXH128_canonical_t bigendian;
  XXH128_canonicalFromHash(&bigendian, XXH3_128bits(values, bytes));
  for (int i = 0; i < 16; i++) sprintf(digits + 2 * i, "%02x", bigendian.digest[i]);
}

/* Each line is what xxhsum -H2 prints of a dataset's bytes. */
static void lines_are_of_the_values(void **state) {
  char line[200], digits[33];
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 2, 1);
  assert_int_equal(mn_checkpoint_save(made, path, 1), MN_OK);
  char *list = read_list();
  for (int i = 0; i < made->tensor_count; i++) {
    const struct mn_checkpoint_tensor *t = &made->tensors[i];
    const void *const values[] = {t->value, t->exp_avg, t->exp_avg_sq};
    const char *const groups[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};
    for (int k = 0; k < 3; k++) {
      show(digits, values[k], (size_t)(t->rows * t->cols) * 4);
      snprintf(line, sizeof line, "%s  %s/%s\n", digits, groups[k], t->name);
      if (!strstr(list, line)) fail_msg("the list lacks %s", line);
    }
  }
  free(list);
  mn_checkpoint_free(made);
}

/* Values that are written anew through HDF5 have its checksum, and not ours. */
static void a_changed_value_is_refused(void **state) {
  static const char *const groups[] = {"model", "optimizer/momentum"};
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, 1);
  for (int i = 0; i < made->tensor_count; i++) {
    for (int k = 0; k < 2; k++) {
      char name[200];
      unlink(path);
      assert_int_equal(mn_checkpoint_save(made, path, 1), MN_OK);
      snprintf(name, sizeof name, "%s/%s", groups[k], made->tensors[i].name);
      hid_t file = open_locked(), dataset = H5Dopen2(file, name, H5P_DEFAULT);
      float values[64] = {0};
      assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
      H5Dclose(dataset);
      close_locked(file);
      assert_refused(name);
    }
  }
  mn_checkpoint_free(made);
}

/* Attributes have HDF5's checksums alone: what another program changes through HDF5 is read as it is. */
static void a_changed_attribute_is_read(void **state) {
  struct mn_checkpoint *loaded;
  const double eps = 2e-5, factor = 2;
  const int64_t step = 1;
  assert_int_equal(save_step(path, 5, 1), MN_OK);
  hid_t file = open_locked(), type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, 3);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  replace_attribute(file, "/model", "eps", H5T_IEEE_F64LE, 0, &eps);
  replace_attribute(file, "/model/head.weight", "factor", H5T_IEEE_F64LE, 0, &factor);
  replace_attribute(file, "/progress", "step", H5T_STD_I64LE, 0, &step);
  replace_attribute(file, "/history", "step 2 --lr", type, 0, "mse");
  H5Tclose(type);
  close_locked(file);
  if (mn_checkpoint_load(&loaded, path) != MN_OK) fail_msg("%s", mn_message());
  assert_true(loaded->model.eps == eps && loaded->tensors[loaded->tensor_count - 2].factor == factor);
  assert_int_equal(loaded->progress.step, 1);
  assert_string_equal(loaded->history[0].value, "mse");
  mn_checkpoint_free(loaded);
}

/* A line changed, one too few, one of what is not there; no line at all, no text, and a longer one than any
 * that is written. */
static void a_changed_list_is_refused(void **state) {
  static char longer[80000];
  assert_int_equal(save_step(path, 5, 1), MN_OK);
  char *list = read_list(), *line = strstr(list, "  model/head.bias\n") - 32;
  line[3] ^= 1;
  write_list(list);
  assert_refused("model/head.bias: it is not what was saved");
  line[3] ^= 1;
  snprintf(longer, sizeof longer, "%.*s%s", (int)(line - list), list, strchr(line, '\n') + 1);
  write_list(longer);
  assert_refused("model/head.bias: it has no checksum");
  snprintf(longer, sizeof longer, "%s%.32s  model/tail.bias\n", list, list);
  write_list(longer);
  assert_refused("1 of the");
  for (int i = 0; i < 3; i++) {
    memset(strcpy(longer, list) + strlen(list), '\n', 70000);
    write_list(i == 0 ? "none" : i == 1 ? "" : longer);
    assert_refused("list of checksums");
  }
  hid_t file = open_locked();
  replace_attribute(file, "/", MN_SUMS_ATTRIBUTE, H5T_STD_I64LE, 0, &(int64_t){1});
  close_locked(file);
  assert_refused("list of checksums");
  free(list);
}

static void what_is_gone_is_missed(void **state) {
  assert_int_equal(save_step(path, 5, 1), MN_OK);
  hid_t file = open_locked();
  assert_true(H5Ldelete(file, "optimizer/momentum", H5P_DEFAULT) >= 0);
  close_locked(file);
  assert_refused("10 of the 20");
}

/* Of minnow 0.2 or older: it loads, and info and verify count 0. */
static void an_older_file_does_without(void **state) {
  struct mn_checkpoint *loaded;
  char *text = NULL;
  size_t size;
  assert_int_equal(save_step(path, 5, 1), MN_OK);
  assert_int_equal(mn_checkpoint_load(&loaded, path), MN_OK);
  assert_int_equal(loaded->checksums, 2 * 10); /* values and momentum */
  mn_checkpoint_free(loaded);
  hid_t file = open_locked();
  remove_sums(file);
  close_locked(file);
  assert_int_equal(mn_checkpoint_load(&loaded, path), MN_OK);
  assert_int_equal(loaded->checksums, 0);
  mn_checkpoint_free(loaded);
  for (int verify = 0; verify < 2; verify++) {
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(verify ? mn_verify(out, path, 0) : mn_info(out, path, 0), MN_OK);
    fclose(out);
    assert_non_null(strstr(text, verify ? "\ncontent_checksums: 0\n" : "\nchecksums: 0\n"));
    free(text);
  }
}

/* The largest model there is: its list has to fit into an attribute. */
static void the_largest_list_fits(void **state) {
  struct mn_checkpoint *small = make_checkpoint(2, 2, 1, 4, 2, 1), large = *small, *loaded;
  large.model.depth = MN_MODEL_DEPTH;
  for (int i = 0; i < large.model.depth; i++) large.model.hidden[i] = 2;
  MN_REQUIRE(mn_checkpoint_lay_out(&large) == MN_OK);
  double values[6] = {0};
  for (int i = 0; i < large.tensor_count; i++) {
    struct mn_checkpoint_tensor *t = &large.tensors[i];
    t->real = 4, t->factor = t->rank == 1 ? 0 : 2;
    t->value = t->exp_avg = t->exp_avg_sq = values;
  }
  if (mn_checkpoint_save(&large, path, 1) != MN_OK) fail_msg("%s", mn_message());
  if (mn_checkpoint_load(&loaded, path) != MN_OK) fail_msg("%s", mn_message());
  assert_int_equal(loaded->checksums, 3 * 258);
  mn_checkpoint_free(loaded);
  free(large.tensors);
  mn_checkpoint_free(small);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(lines_are_of_the_values),   TEST(a_changed_value_is_refused), TEST(a_changed_attribute_is_read),
      TEST(a_changed_list_is_refused), TEST(what_is_gone_is_missed),     TEST(an_older_file_does_without),
      TEST(the_largest_list_fits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
