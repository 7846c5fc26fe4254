/* Checkpoints: what is saved comes back byte for byte, and nothing that is not whole, or not a checkpoint, is
 * taken for one. What happens when saving fails stands in test_atomic_file.c. */
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>

#include "tests/checkpoint_make.h"
#include "train/checkpoint/layout.h"

static void assert_load_fails(mn_status expected, const char *words) {
  struct mn_checkpoint *loaded = (void *)&loaded;
  assert_int_equal(mn_checkpoint_load(&loaded, path), expected);
  assert_null(loaded);
  assert_says(words);
  assert_says(path);
}

/* ---- round trips ---- */

static void assert_same(const struct mn_checkpoint *a, const struct mn_checkpoint *b) {
  assert_memory_equal(&a->model, &b->model, sizeof a->model);
  assert_int_equal(a->progress.step, b->progress.step);
  assert_int_equal(a->progress.epoch, b->progress.epoch);
  assert_int_equal(a->progress.position, b->progress.position);
  assert_int_equal(a->progress.samples, b->progress.samples);
  assert_true(a->progress.seed == b->progress.seed);
  assert_memory_equal(&a->progress.best, &b->progress.best, sizeof a->progress.best);
  assert_int_equal(a->option_count, b->option_count);
  for (int i = 0; i < a->option_count; i++) {
    assert_string_equal(a->options[i].name, b->options[i].name);
    assert_string_equal(a->options[i].value, b->options[i].value);
  }
  assert_int_equal(a->fingerprint_count, b->fingerprint_count);
  for (int i = 0; i < a->fingerprint_count; i++)
    assert_memory_equal(&a->fingerprint[i], &b->fingerprint[i], sizeof a->fingerprint[i]);
  assert_int_equal(a->history_count, b->history_count);
  for (int i = 0; i < a->history_count; i++)
    assert_memory_equal(&a->history[i], &b->history[i], sizeof a->history[i]);
  assert_int_equal(a->tensor_count, b->tensor_count);
  for (int i = 0; i < a->tensor_count; i++) {
    const struct mn_checkpoint_tensor *x = &a->tensors[i], *y = &b->tensors[i];
    size_t bytes = (size_t)(x->rows * x->cols) * x->real;
    assert_string_equal(x->name, y->name);
    assert_int_equal(x->rank, y->rank);
    assert_int_equal(x->rows, y->rows);
    assert_int_equal(x->cols, y->cols);
    assert_int_equal(x->real, y->real);
    assert_int_equal(memcmp(x->value, y->value, bytes), 0);
    assert_true(x->factor == y->factor && x->gradient_factor == y->gradient_factor);
    for (int k = 1; k < MN_CHECKPOINT_ARRAYS; k++) {
      const void *of_x = x->arrays[k], *of_y = y->arrays[k];
      assert_int_equal(of_x != NULL, of_y != NULL);
      if (of_x) assert_int_equal(memcmp(of_x, of_y, bytes), 0);
    }
  }
}

static void round_trip(int64_t inputs, int64_t channels, int head, size_t real, int kept) {
  struct mn_checkpoint *made = make_checkpoint(inputs, channels, head, real, kept, 17), *loaded;
  if (real == 4) { /* bits that arithmetic would not keep */
    const uint32_t odd[] = {0x7fc12345u, 0xffc00001u, 0x80000000u, 1u};
    memcpy(made->tensors[0].value, odd, sizeof odd);
  }
  assert_int_equal(mn_checkpoint_save(made, path, 1), MN_OK);
  assert_int_equal(mn_checkpoint_load(&loaded, path), MN_OK);
  assert_same(made, loaded);
  size_t sizes[2];
  unsigned char *first = read_bytes(path, &sizes[0]);
  assert_int_equal(mn_checkpoint_save(loaded, path, 1), MN_OK);
  unsigned char *second = read_bytes(path, &sizes[1]);
  assert_int_equal(sizes[0], sizes[1]);
  assert_int_equal(memcmp(first, second, sizes[0]), 0); /* the same content, the same bytes */
  free(first);
  free(second);
  mn_checkpoint_free(loaded);
  mn_checkpoint_free(made);
}

static void test_round_trip(void **state) {
  for (int kept = 0; kept < 3; kept++)
    for (int head = 0; head < 2; head++)
      for (size_t real = 4; real <= 8; real += 4) round_trip(5, 8, head, real, kept);
}

/* More than one call; rows longer than a call. */
static void test_round_trip_large(void **state) {
  round_trip(1030, 1100, 1, 4, 0);
  round_trip(1200007, 2, 0, 4, 0);
  round_trip(300001, 4, 0, 8, 1);
}

/* A file of format_version 1, in chunks, is for the release that converts it. */
static void test_version_1(void **state) {
  struct mn_checkpoint *old;
  int damaged;
  assert_int_equal(mn_checkpoint_read(&old, "tests/golden/checkpoint-1.h5", &damaged), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "format_version 1, which minnow 0.3.0 was the last to read"));
  assert_true(!old && !damaged);
}

/* What PyTorch's side relies on, read with nothing but HDF5. */
static void test_layout(void **state) {
  hsize_t shape[2];
  float values[24];
  assert_int_equal(save_step(path, 4, 1), MN_OK);
  mn_hdf5_lock();
  hid_t file = open_raw(path, H5F_ACC_RDONLY);
  hid_t dataset = H5Dopen2(file, "/model/blocks.0.fc.weight", H5P_DEFAULT);
  hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset), creation = H5Dget_create_plist(dataset);
  assert_int_equal(H5Sget_simple_extent_dims(space, shape, NULL), 2);
  assert_int_equal(shape[0], 4);
  assert_int_equal(shape[1], 6);
  assert_true(H5Tequal(type, H5T_IEEE_F32LE) > 0);
  assert_int_equal(H5Pget_layout(creation), H5D_CONTIGUOUS);
  assert_true(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  assert_true(values[5] == (float)sin(5 * 0.37 + 4));
  assert_true(H5Lexists(file, "/optimizer/momentum/head.bias", H5P_DEFAULT) > 0);
  hbool_t times = 1;
  assert_true(H5Pget_obj_track_times(creation, &times) >= 0 && !times);
  unsigned order = 0;
  hid_t group = H5Gopen2(file, "/model", H5P_DEFAULT), made = H5Gget_create_plist(group);
  assert_true(H5Pget_obj_track_times(made, &times) >= 0 && !times);
  assert_true(H5Pget_link_creation_order(made, &order) >= 0 && order & H5P_CRT_ORDER_INDEXED);
  H5Pclose(made);
  H5Gclose(group);
  /* Factors are there where they are not 0, of the weight and not of its momentum. */
  assert_true(H5Aexists_by_name(file, "/model/blocks.0.fc.weight", "factor", H5P_DEFAULT) > 0);
  assert_true(H5Aexists_by_name(file, "/model/blocks.0.fc.weight", "gradient_factor", H5P_DEFAULT) == 0);
  assert_true(H5Aexists_by_name(file, "/model/blocks.1.fc.weight", "gradient_factor", H5P_DEFAULT) > 0);
  assert_true(H5Aexists_by_name(file, "/model/blocks.1.fc.bias", "factor", H5P_DEFAULT) == 0);
  assert_true(H5Aexists_by_name(file, "/optimizer/momentum/head.weight", "factor", H5P_DEFAULT) == 0);
  int64_t step = 0;
  hid_t attribute = H5Aopen_by_name(file, "/progress", "step", H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Aread(attribute, H5T_NATIVE_INT64, &step) >= 0);
  assert_int_equal(step, 4);
  H5Aclose(attribute);
  H5Pclose(creation);
  H5Tclose(type);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  mn_hdf5_unlock();
}

/* ---- loading what should not be loaded ---- */

static void test_no_input(void **state) {
  assert_load_fails(MN_NO_INPUT, "No such file");
  assert_int_equal(mkdir(path, 0777), 0);
  assert_load_fails(MN_NO_INPUT, "not a regular file");
  rmdir(path);
  write_bytes(path, "", 0);
  assert_load_fails(MN_BAD_DATA, "no HDF5 file (0 bytes");
  write_bytes(path, "hello, world", 12);
  assert_load_fails(MN_BAD_DATA, "no HDF5 file");
}

/* Each changes one thing in a file that was whole. The file stands open for writing. */
static void replace_tensor(hid_t file, const char *name, hid_t type, int rank, hsize_t rows, int chunked,
                           int checksum) {
  const float values[64] = {0};
  hid_t creation = in_chunks(rank, chunked ? (hsize_t[]){2, 2} : NULL);
  if (checksum) H5Pset_fletcher32(creation);
  H5Ldelete(file, name, H5P_DEFAULT);
  put_dataset(file, name, type, rank, (hsize_t[]){rows, 6}, creation, H5T_NATIVE_FLOAT,
              checksum < 2 ? values : NULL);
}

static void external_storage(hid_t file) {
  const char *name = "/model/blocks.0.fc.weight";
  hid_t creation = in_chunks(2, NULL);
  H5Ldelete(file, name, H5P_DEFAULT);
  H5Pset_external(creation, "/etc/passwd", 0, 96);
  put_dataset(file, name, H5T_IEEE_F32LE, 2, (hsize_t[]){4, 6}, creation, H5T_NATIVE_FLOAT, NULL);
}

enum { FOREIGN = 26 };

static const char *make_foreign(hid_t file, int number) {
  static const int64_t zero = 0, two = 2, three = 3, newest = MN_CHECKPOINT_VERSION + 1,
                       huge = INT64_C(1) << 40, less = -1;
  static const double real = 2;
  const char *weight = "/model/blocks.0.fc.weight";
  const int64_t odd[] = {4, 5};
  hid_t text = H5Tcopy(H5T_C_S1);
  const char *words = NULL;
  H5Tset_size(text, H5T_VARIABLE);
  const char *string = "mse";
  switch (number) {
  case 0:
    replace_attribute(file, "/", "format", 0, 0, NULL), words = "no minnow checkpoint";
    break;
  case 1:
    replace_attribute(file, "/", "format", H5T_STD_I64LE, 0, &two), words = "no minnow checkpoint";
    break;
  case 2:
    replace_attribute(file, "/", "format_version", H5T_STD_I64LE, 0, &newest), words = "newer minnow";
    break;
  case 3:
    replace_attribute(file, "/", "format_version", H5T_STD_I64LE, 0, &zero), words = "below 1";
    break;
  case 4:
    H5Ldelete(file, "model", H5P_DEFAULT), words = "model is missing";
    break;
  case 5:
    H5Ldelete(file, weight, H5P_DEFAULT), words = "blocks.0.fc.weight is missing";
    break;
  case 6:
    H5Ldelete(file, "/optimizer/momentum/head.bias", H5P_DEFAULT), words = "head.bias is missing";
    break;
  case 7:
    H5Lmove(file, "model", file, "else", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/else", file, "model", H5P_DEFAULT, H5P_DEFAULT), words = "soft or external";
    break;
  case 8:
    H5Ldelete(file, weight, H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/x", file, weight, H5P_DEFAULT, H5P_DEFAULT),
        words = "soft or external";
    break;
  case 9:
    external_storage(file), words = "in other files";
    break;
  case 10:
    replace_tensor(file, weight, H5T_IEEE_F32LE, 2, 4, 1, 2), words = "declares more";
    break;
  case 11:
    replace_tensor(file, weight, H5T_IEEE_F32LE, 2, 5, 1, 1), words = "is float32 [5, 6], wanted [4, 6]";
    break;
  case 12:
    replace_tensor(file, weight, H5T_IEEE_F32LE, 1, 24, 1, 1), words = "is float32 [24], wanted [4, 6]";
    break;
  case 13:
    replace_tensor(file, weight, H5T_STD_I32LE, 2, 4, 1, 1), words = "is int32 [4, 6], wanted floats [4, 6]";
    break;
  case 14:
    replace_tensor(file, weight, H5T_IEEE_F64LE, 2, 4, 1, 1), words = "is float32 [4], wanted float64 [4]";
    break;
  case 15:
    replace_tensor(file, "/model/extra", H5T_IEEE_F32LE, 2, 4, 1, 1), words = "extra is left over";
    break;
  case 16:
    replace_attribute(file, "/model", "inputs", 0, 0, NULL), words = "inputs is missing";
    break;
  case 17:
    replace_attribute(file, "/model", "inputs", H5T_STD_I64LE, 0, &huge), words = "make no model";
    break;
  case 18:
    replace_attribute(file, "/model", "groups", H5T_STD_I64LE, 0, &three), words = "make no model";
    break;
  case 19:
    replace_attribute(file, "/model", "depth", H5T_STD_I64LE, 0, &huge), words = "out of range";
    break;
  case 20:
    replace_attribute(file, "/model", "hidden", H5T_STD_I64LE, 2, odd), words = "make no model";
    break;
  case 21:
    replace_attribute(file, "/progress", "step", H5T_IEEE_F64LE, 0, &real), words = "another type";
    break;
  case 22:
    replace_attribute(file, "/progress", "epoch", H5T_STD_I64LE, 0, &less), words = "below zero";
    break;
  case 23:
    replace_attribute(file, "/model", "loss", text, 0, &string), words = "another type or shape";
    break;
  case 24:
    replace_attribute(file, weight, "factor", H5T_STD_I64LE, 0, &two), words = "another type";
    break;
  case 25:
    H5Tclose(text);
    text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, sizeof "huber");
    replace_attribute(file, "/model", "loss", text, 0, "huber"), words = "no loss is called 'huber'";
    break;
  }
  H5Tclose(text);
  return words;
}

static void test_foreign(void **state) {
  for (int i = 0; i < FOREIGN; i++) {
    unlink(path); /* a save replaces nothing but checkpoints */
    assert_int_equal(save_step(path, 1, 1), MN_OK);
    mn_hdf5_lock();
    hid_t file = open_raw(path, H5F_ACC_RDWR);
    remove_sums(file);
    const char *words = make_foreign(file, i);
    assert_true(H5Fclose(file) >= 0);
    mn_hdf5_unlock();
    assert_load_fails(MN_BAD_DATA, words);
  }
}

/* Attributes that a later minnow of the same format_version may add are no reason to refuse. */
static void test_additions(void **state) {
  const int64_t two = 2;
  assert_int_equal(save_step(path, 5, 1), MN_OK);
  mn_hdf5_lock();
  hid_t file = open_raw(path, H5F_ACC_RDWR);
  remove_sums(file);
  replace_attribute(file, "/progress", "later", H5T_STD_I64LE, 0, &two);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  assert_int_equal(step_of(path), 5);
}

/* ---- damage ---- */

/* Runs `damage` on variant 0, 1, … of a whole file until it says there are no more, loading each in a process
 * of its own: it must be refused, or have the very content. */
typedef int damage(unsigned char *bytes, size_t *size, long variant);

static int judge(const struct mn_checkpoint *original, const unsigned char *bytes, size_t size, damage *apply,
                 long first, long count) {
  unsigned char *copy = malloc(size + 1);
  for (long variant = first; variant < first + count; variant++) {
    size_t length = size;
    struct mn_checkpoint *loaded;
    memcpy(copy, bytes, size);
    if (!apply(copy, &length, variant)) break;
    alarm(20); /* a reader that hangs is as bad as one that crashes */
    write_bytes(path, copy, length);
    mn_status status = mn_checkpoint_load(&loaded, path);
    if (status == MN_OK) {
      assert_same(original, loaded);
      mn_checkpoint_free(loaded);
    } else if (status != MN_BAD_DATA) {
      print_error("variant %ld: status %d: %s\n", variant, status, mn_message());
      return 1;
    }
  }
  free(copy);
  return 0;
}

static void judge_all(damage *apply, long variants) {
  struct mn_checkpoint *original;
  size_t size;
  assert_int_equal(save_step(path, 1, 1), MN_OK);
  assert_int_equal(mn_checkpoint_load(&original, path), MN_OK);
  unsigned char *bytes = read_bytes(path, &size);
  const long batch = 500;
  for (long first = 0; first < variants; first += batch) {
    pid_t child = fork();
    if (child == 0) {
      int failed = judge(original, bytes, size, apply, first, batch);
      free(bytes);
      mn_checkpoint_free(original);
      H5close(); /* the library must get through its clean-up */
      if (failed) _exit(1);
      raise(SIGKILL); /* all is well; and no leak checker shall count what HDF5 leaks of each header it
                         refuses */
    }
    int status = wait_for(child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
      fail_msg("variants from %ld on: wait status %#x", first, (unsigned)status);
  }
  free(bytes);
  mn_checkpoint_free(original);
}

/* A bit of every eleventh byte, another one from byte to byte; make test-torn goes through all. */
enum { FLIP_STRIDE = 11 };

static int flip_bit(unsigned char *bytes, size_t *size, long variant) {
  size_t bit = (size_t)variant * FLIP_STRIDE * 8 + (size_t)(variant * 5 + 3) % 8;
  if (bit / 8 >= *size) return 0;
  bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
  return 1;
}

static void test_flipped_bits(void **state) {
  size_t size;
  assert_int_equal(save_step(path, 1, 1), MN_OK);
  free(read_bytes(path, &size));
  judge_all(flip_bit, (long)size / FLIP_STRIDE);
}

static int cut(unsigned char *bytes, size_t *size, long variant) {
  size_t length = (size_t)variant * 53;
  if (length >= *size) return 0;
  *size = length;
  return 1;
}

static void test_truncated(void **state) {
  judge_all(cut, 400);
}

/* A write that was lost leaves zeros. */
static void test_zeroed(void **state) {
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, 1);
  for (int i = 0; i < made->tensor_count; i++)
    for (int kept = 0; kept < 2; kept++) {
      const struct mn_checkpoint_tensor *t = &made->tensors[i];
      const size_t bytes = (size_t)(t->rows * t->cols) * 4;
      char words[200];
      size_t size, at = 0;
      unlink(path);
      assert_int_equal(mn_checkpoint_save(made, path, 1), MN_OK);
      unsigned char *all = read_bytes(path, &size);
      while (at + bytes <= size && memcmp(all + at, kept ? t->momentum : t->value, bytes) != 0) at++;
      assert_true(at + bytes <= size);
      memset(all + at, 0, bytes);
      write_bytes(path, all, size);
      free(all);
      snprintf(words, sizeof words, "damaged at %s/%s: it is not what was saved",
               kept ? "optimizer/momentum" : "model", t->name);
      assert_load_fails(MN_BAD_DATA, words);
    }
  mn_checkpoint_free(made);
}

/* A flipped bit in a tensor's values is seen, always: the other half of what the test above allows. */
static void test_flipped_value(void **state) {
  size_t size;
  assert_int_equal(save_step(path, 1, 1), MN_OK);
  unsigned char *bytes = read_bytes(path, &size);
  const float value = (float)sin(1);
  size_t at = 0;
  while (at + 4 <= size && memcmp(bytes + at, &value, 4) != 0) at++;
  assert_true(at + 4 <= size);
  bytes[at] ^= 1;
  write_bytes(path, bytes, size);
  assert_load_fails(MN_BAD_DATA, "damaged at model/blocks.0.fc.weight");
  assert_says("older checkpoint");
  free(bytes);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_round_trip), TEST(test_round_trip_large), TEST(test_version_1),     TEST(test_layout),
      TEST(test_no_input),   TEST(test_foreign),          TEST(test_additions),     TEST(test_flipped_bits),
      TEST(test_truncated),  TEST(test_zeroed),           TEST(test_flipped_value),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
