/* A disk that is too small for the checkpoints of a run, told before it trains; and one that is full for a
 * while. */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/command_call.h"

static char path[] = "/tmp/minnow-disk-XXXXXX/run";
static const size_t folder_length = sizeof "/tmp/minnow-disk-XXXXXX" - 1;

/* Over those of the C library: what a disk says of itself, and how many of the writes after the next `room` find
 * it full. */
static struct statvfs disk;
static int asking, room, writes, full;

int statvfs(const char *name, struct statvfs *out) {
  *out = disk;
  if (asking) errno = asking;
  return asking ? -1 : 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
  writes++;
  if (full > 0 && room-- <= 0) {
    full--;
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

/* A model of 8·64 + 3·64 parameters with momentum: 2·704 floats are 5632 bytes a checkpoint. */
enum { BYTES = 5632 };

static mn_status train(const char *more) {
  return call_command("train --device cpu --quiet --synthetic 32 --in 8 --hidden 64 --groups 8 --batch 8 "
                      "--optimizer sgd --run %s %s",
                      path, more);
}

static void assert_says(const char *words) {
  if (!strstr(mn_message(), words)) fail_msg("\"%s\" lacks \"%s\"", mn_message(), words);
}

static int is_there(const char *name) {
  char file[100];
  snprintf(file, sizeof file, "%.*s/%s", (int)folder_length, path, name);
  return access(file, F_OK) == 0;
}

static int set_up(void **state) {
  path[folder_length] = 0;
  const int made = mkdtemp(path) != NULL;
  path[folder_length] = '/';
  disk = (struct statvfs){.f_frsize = 1, .f_blocks = 1000000, .f_bavail = 1000000};
  asking = full = room = 0;
  return !made;
}

static int tear_down(void **state) {
  static const char *const names[] = {"run/checkpoint.h5", "run/log.jsonl", "run/log.unsaved-1.jsonl"};
  char file[100];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(file, sizeof file, "%.*s/%s", (int)folder_length, path, names[i]);
    unlink(file);
  }
  rmdir(path);
  snprintf(file, sizeof file, "%.*s", (int)folder_length, path);
  const int left = rmdir(file);
  memcpy(path + folder_length - 6, "XXXXXX", 6);
  return left;
}

static void a_disk_too_small_is_told_before(void **state) {
  disk.f_bavail = BYTES - 1;
  assert_int_equal(train("--steps 4"), MN_IO);
  assert_says("free some space, or name another folder");
  assert_false(is_there("run/checkpoint.h5"));
  assert_false(is_there("run/lock"));
  disk.f_bavail = BYTES;
  assert_int_equal(train("--steps 4"), MN_OK);
  assert_true(is_there("run/checkpoint.h5"));
  disk.f_bavail = 0;
  assert_int_equal(train("--resume --steps 4"), MN_OK); /* nothing to do */
  assert_int_equal(train("--resume --steps 8"), MN_IO);
}

static void a_file_that_may_not_be_so_large_is_told_before(void **state) {
  struct rlimit limit, most;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &most), 0);
  limit = (struct rlimit){.rlim_cur = BYTES - 1, .rlim_max = most.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  writes = 0;
  const mn_status status = train("--steps 4");
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &most), 0);
  assert_int_equal(status, MN_IO);
  assert_says("raise the limit (ulimit -f)");
  assert_int_equal(writes, 0);
}

static void what_a_disk_does_not_say_refuses_nothing(void **state) {
  disk = (struct statvfs){0};
  assert_int_equal(train("--steps 4 --stop-at 1"), MN_OK);
  asking = ENOSYS;
  assert_int_equal(train("--resume --stop-at 2"), MN_OK);
  assert_int_equal(train("--resume --dry-run"), MN_OK);
  asking = EIO;
  assert_int_equal(train("--resume --stop-at 3"), MN_IO);
  assert_says("check the disk");
}

/* Each save begins with one write that fails, and ends there. */
static void a_disk_that_is_full_for_a_while_ends_no_run(void **state) {
  full = 1;
  assert_int_equal(train("--steps 400 --save-every 100"), MN_IO);
  assert_says("step 400 is saved, but an earlier save failed");
  assert_says("No space left");
  assert_int_equal(full, 0);
  assert_true(is_there("run/checkpoint.h5"));
  assert_int_equal(train("--resume"), MN_OK); /* it is all there */
}

static void the_last_save_is_tried_once_more(void **state) {
  full = 1;
  assert_int_equal(train("--steps 4"), MN_IO);
  assert_says("step 4 is saved, but an earlier save failed");
  assert_true(is_there("run/checkpoint.h5"));
  full = 2;
  assert_int_equal(train("--resume --steps 8"), MN_IO);
  assert_says("cannot write");
  assert_says("; --resume goes on from step 4");
  assert_int_equal(full, 0);
  assert_int_equal(train("--resume --steps 8"), MN_OK); /* from step 4 */
  writes = 0;
  assert_int_equal(train("--resume --steps 12 --save-every 2"), MN_OK);
  room = writes * 3 / 4, full = 10;
  assert_int_equal(train("--resume --steps 16"), MN_IO);
  assert_says("; --resume goes on from step 14");
  full = 0;
  assert_int_equal(train("--resume"), MN_OK); /* from step 14 */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_disk_too_small_is_told_before, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_that_may_not_be_so_large_is_told_before, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_a_disk_does_not_say_refuses_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_disk_that_is_full_for_a_while_ends_no_run, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_last_save_is_tried_once_more, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
