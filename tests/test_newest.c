/* Which checkpoint a run resumes from: the newest that verifies, what is passed over for it, and what never
 * is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "tests/checkpoint_make.h"

/* The call with which a file is read, over that of the C library: the one that counts down to 0 fails, or
 * gives zeros. */
static int reads_until_fault, gives_zeros;

ssize_t pread(int fd, void *bytes, size_t size, off_t offset) {
  const int fault = reads_until_fault > 0 && --reads_until_fault == 0;
  if (fault && !gives_zeros) {
    errno = EIO;
    return -1;
  }
  if (fault) return memset(bytes, 0, size), (ssize_t)size;
  return syscall(SYS_pread64, fd, bytes, size, offset);
}

/* The one with which a file is looked for: not 0, it fails so. */
static int looking;

int access(const char *name, int mode) {
  if (looking) errno = looking;
  return looking ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, name, mode);
}

static void assert_newest(mn_status expected, const char *file, int64_t step, const char *words) {
  char used[MN_CHECKPOINT_PATH] = "?", skipped[2048] = "?";
  struct mn_checkpoint *loaded;
  assert_int_equal(mn_checkpoint_load_newest(&loaded, path, used, skipped, sizeof skipped), expected);
  if (expected == MN_OK) {
    assert_string_equal(used, in_folder(file));
    assert_int_equal(loaded->progress.step, step);
    mn_checkpoint_free(loaded);
  } else {
    assert_null(loaded);
  }
  if (*words == 0)
    assert_string_equal(skipped, "");
  else if (!strstr(skipped, words))
    fail_msg("skipped \"%s\" lacks \"%s\"", skipped, words);
}

/* Cuts a file to half, or, given the step it was saved at, changes one value of its first tensor. */
static void damage_file(const char *name, int step) {
  size_t size;
  unsigned char *bytes = read_bytes(in_folder(name), &size);
  const float value = (float)sin(step);
  for (size_t at = 0; step && at + 4 <= size; at++)
    if (memcmp(bytes + at, &value, 4) == 0) bytes[at] ^= 4;
  write_bytes(in_folder(name), bytes, step ? size : size / 2);
  free(bytes);
}

static void test_newest(void **state) {
  assert_newest(MN_NO_INPUT, "", 0, "run.h5 is missing");
  assert_says("start a new run");
  three_files();
  assert_newest(MN_OK, "run.h5", 3, "");
  damage_file("run.h5", 0);
  assert_newest(MN_OK, "run.1.h5", 2, "run.h5");
  damage_file("run.1.h5", 2);
  assert_newest(MN_OK, "run.2.h5", 1, "run.1.h5 is damaged at model/blocks.0.fc.weight");
  assert_newest(MN_OK, "run.2.h5", 1, "run.h5 is missing");
  damage_file("run.2.h5", 0);
  assert_newest(MN_BAD_DATA, "", 0, "run.2.h5");
  assert_says("no checkpoint verifies");
  write_bytes(in_folder("run.03.h5"), "x", 1); /* no number of ours */
  write_bytes(in_folder("run.x.h5"), "x", 1);
  assert_newest(MN_BAD_DATA, "", 0, "run.2.h5");
}

/* ---- what is passed over ---- */

/* In a process of its own, since libhdf5 leaks memory when a read fails. Exit code: 0 read, 1 MN_IO, 2 other.
 */
static int load_with_fault(int reads) {
  pid_t child = fork();
  if (child) return WEXITSTATUS(wait_for(child));
  char used[MN_CHECKPOINT_PATH], skipped[2048];
  struct mn_checkpoint *loaded;
  reads_until_fault = reads;
  mn_status status = mn_checkpoint_load_newest(&loaded, path, used, skipped, sizeof skipped);
  int untouched = reads_until_fault > 0 && status == MN_OK && strcmp(used, path) == 0;
  _exit(untouched ? 0 : status == MN_IO ? 1 : 2);
}

/* A disk that fails to give a byte says nothing of the checkpoint, whichever read it is. */
static void test_unreadable_is_not_passed_over(void **state) {
  three_files();
  int reads = 1, code;
  for (; (code = load_with_fault(reads)) == 1; reads++) {
  }
  if (code != 0) fail_msg("read %d fails, but is not MN_IO", reads);
  assert_true(reads > 10);
  assert_int_not_equal(access(in_folder("run.damaged-1.h5"), F_OK), 0);
}

/* Nor does a look for it that fails say that it is not there. */
static void test_not_seen_is_not_passed_over(void **state) {
  three_files();
  looking = EIO;
  assert_newest(MN_IO, "", 0, "");
  assert_says("cannot look at");
  looking = ENOMEM;
  assert_newest(MN_NO_MEMORY, "", 0, "");
  looking = 0;
  assert_newest(MN_OK, "run.h5", 3, "");
}

/* What is damaged once, and whole when it is read again, was not damaged: memory was lacking, or a cable. */
static void test_damaged_once_is_not_damaged(void **state) {
  three_files();
  reads_until_fault = 3, gives_zeros = 1;
  assert_newest(MN_OK, "run.h5", 3, "");
  assert_int_equal(reads_until_fault, 0);
  gives_zeros = 0;
}

static void assert_bytes(const char *of, const unsigned char *bytes, size_t size) {
  size_t length;
  unsigned char *found = read_bytes(in_folder(of), &length);
  assert_int_equal(length, size);
  assert_memory_equal(found, bytes, size);
  free(found);
}

/* A damaged newest file is kept, byte for byte, however often is saved afterwards; and every one of several.
 */
static void test_damaged_is_kept(void **state) {
  for (int i = 1; i <= 2; i++) {
    char kept[32];
    size_t size;
    snprintf(kept, sizeof kept, "run.damaged-%d.h5", i);
    unlink(in_folder("run.2.h5"));
    three_files();
    damage_file("run.h5", i == 1 ? 0 : 3);
    unsigned char *bytes = read_bytes(path, &size);
    assert_newest(MN_OK, "run.1.h5", 2, kept);
    assert_bytes(kept, bytes, size);
    for (int step = 3; step <= 6; step++) assert_int_equal(save_step(path, step, 2), MN_OK);
    assert_bytes(kept, bytes, size);
    free(bytes);
  }
}

/* Puts a file at run.h5 that is newer, or no checkpoint at all, or not to be read, or of a loss that is
 * unknown. */
static const char *make_other(int number) {
  const int64_t newer = MN_CHECKPOINT_VERSION + 1;
  unlink(path);
  if (number < 2) {
    write_bytes(path, "my notes", number ? 0 : 8);
    return "no HDF5 file";
  }
  assert_int_equal(save_step(path, 9, 1), MN_OK);
  mn_hdf5_lock();
  hid_t file = open_raw(path, H5F_ACC_RDWR);
  if (number < 4) {
    replace_attribute(file, "/", number == 2 ? "format_version" : "format", H5T_STD_I64LE, 0, &newer);
  } else {
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, sizeof "huber");
    remove_sums(file);
    replace_attribute(file, "/model", "loss", text, 0, "huber");
    H5Tclose(text);
  }
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  return number == 2   ? "take a newer minnow"
         : number == 3 ? "no minnow checkpoint"
                       : "no loss is called 'huber'";
}

static void test_others_are_not_passed_over(void **state) {
  three_files();
  for (int i = 0; i < 5; i++) {
    const char *words = make_other(i);
    size_t size;
    unsigned char *bytes = read_bytes(path, &size);
    assert_newest(MN_BAD_DATA, "", 0, "");
    assert_says(words);
    assert_says(path);
    assert_bytes("run.h5", bytes, size);
    free(bytes);
  }
  unlink(path);
  assert_int_equal(save_step(path, 9, 1), MN_OK);
  assert_int_equal(chmod(path, 0), 0);
  int root = geteuid() == 0; /* whom permissions do not stop */
  if (root) assert_int_equal(chmod(folder, 0755) | seteuid(65534), 0);
  assert_newest(MN_NO_INPUT, "", 0, "");
  assert_says("permissions");
  if (root) assert_int_equal(seteuid(0), 0);
}
int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_newest),
      TEST(test_unreadable_is_not_passed_over),
      TEST(test_not_seen_is_not_passed_over),
      TEST(test_damaged_once_is_not_damaged),
      TEST(test_damaged_is_kept),
      TEST(test_others_are_not_passed_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
