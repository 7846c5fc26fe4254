/* Saving checkpoints: which files there are afterwards, and that whatever call fails, or wherever the process
 * is killed, a whole checkpoint stands.
 *
 * The system calls that saving makes are defined here, over those of the C library, so that the k-th can fail
 * or kill. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tests/checkpoint_make.h"
#include "train/checkpoint/atomic_file.h"

/* ---- the calls that can be made to fail ---- */

enum call { NONE, PWRITE, FTRUNCATE, FSYNC, RENAME, LINK, EVERY };

static struct {
  enum call call; /* EVERY: any of them */
  int countdown;  /* the one that reaches 0 fails */
  int lasting;    /* and those after it too */
  int error;      /* with this errno; 0: the process is killed instead, before the call */
} fault;

static int no_links; /* as on a file system without hard links */

static void (*on_fsync)(void); /* called once, in the middle of a save */

static int fails(enum call call) {
  if (fault.call != call && fault.call != EVERY) return 0;
  if (fault.countdown > 0) fault.countdown--;
  if (fault.countdown > 0) return 0;
  if (!fault.lasting) fault.call = NONE;
  if (fault.error == 0) raise(SIGKILL);
  errno = fault.error;
  return 1;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
  return fails(PWRITE) ? -1 : syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int ftruncate(int fd, off_t length) {
  return fails(FTRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int fsync(int fd) {
  void (*now)(void) = on_fsync;
  on_fsync = NULL;
  if (now) now();
  return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to) {
  return fails(RENAME) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned how) {
  return fails(RENAME) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, how);
}

int link(const char *from, const char *to) {
  if (no_links) return errno = EPERM, -1;
  return fails(LINK) ? -1 : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void assert_three_files(void) {
  assert_int_equal(count_files(), 3);
  assert_int_equal(step_of(path), 3);
  assert_int_equal(step_of(in_folder("run.1.h5")), 2);
  assert_int_equal(step_of(in_folder("run.2.h5")), 1);
}

/* ---- rotation ---- */

static void test_rotation(void **state) {
  for (int keep = 1; keep <= 3; keep++) {
    for (int step = 1; step <= 5; step++) {
      assert_int_equal(save_step(path, step, keep), MN_OK);
      assert_int_equal(count_files(), step < keep ? step : keep);
      assert_int_equal(step_of(path), step);
      for (int i = 1; i < keep; i++) {
        char name[32];
        snprintf(name, sizeof name, "run.%d.h5", i);
        assert_int_equal(step_of(in_folder(name)), step > i ? step - i : -1);
      }
    }
    unlink(path);
    unlink(in_folder("run.1.h5"));
    unlink(in_folder("run.2.h5"));
    assert_int_equal(count_files(), 0);
  }
}

/* The number goes before the ending of the name, wherever there are dots; and what is not ours stays. */
static void test_names(void **state) {
  const char *const names[][2] = {{"plain", "plain.1"}, {"a.b.c", "a.b.1.c"}, {".hidden", ".hidden.1"}};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(save_step(in_folder(names[i][0]), 1, 2), MN_OK);
    assert_int_equal(save_step(in_folder(names[i][0]), 2, 2), MN_OK);
    assert_int_equal(step_of(in_folder(names[i][0])), 2);
    assert_int_equal(step_of(in_folder(names[i][1])), 1);
  }
  char here[4096];
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir(folder), 0);
  mn_status status = save_step("relative.h5", 3, 2);
  assert_int_equal(chdir(here), 0);
  assert_int_equal(status, MN_OK);
  assert_int_equal(step_of(in_folder("relative.h5")), 3);
}

/* A smaller keep later leaves older files alone; a gap in the numbers is no obstacle. */
static void test_rotation_gap(void **state) {
  for (int step = 1; step <= 3; step++) assert_int_equal(save_step(path, step, 3), MN_OK);
  assert_int_equal(unlink(in_folder("run.1.h5")), 0);
  assert_int_equal(save_step(path, 4, 3), MN_OK);
  assert_int_equal(step_of(in_folder("run.1.h5")), 3);
  assert_int_equal(step_of(in_folder("run.2.h5")), 1); /* only the gap was filled */
  assert_int_equal(save_step(path, 5, 3), MN_OK);
  assert_int_equal(save_step(path, 6, 1), MN_OK);
  assert_int_equal(step_of(path), 6);
  assert_int_equal(step_of(in_folder("run.1.h5")), 4);
}

/* Without hard links the older file is renamed. */
static void test_no_links(void **state) {
  const int errors[] = {EPERM, EOPNOTSUPP, ENOSYS, EMLINK};
  for (int step = 1; step <= 4; step++) {
    fault.call = LINK, fault.countdown = 1, fault.lasting = 1, fault.error = errors[step - 1];
    assert_int_equal(save_step(path, step, 3), MN_OK);
    fault.call = NONE;
  }
  assert_int_equal(step_of(path), 4);
  assert_int_equal(step_of(in_folder("run.1.h5")), 3);
  assert_int_equal(step_of(in_folder("run.2.h5")), 2);
  assert_int_equal(count_files(), 3);
  fault.call = LINK, fault.countdown = 1, fault.lasting = 1, fault.error = EPERM;
  assert_int_equal(save_step(path, 5, 1), MN_OK);
  fault.call = NONE;
  assert_int_equal(step_of(path), 5);
}

/* ---- failing calls ---- */

/* The newest stands, or the saved one if the sync of its folder alone has failed; of the older ones only that
 * may be gone which a save drops; and the next save finds its way. */
static void assert_unharmed(enum call call, int keep) {
  const int64_t newest = step_of(path);
  int found[4] = {0};
  assert_true(newest == 3 || (newest == 9 && call == FSYNC));
  for (int number = 1, last = 4; number <= 3; number++) {
    char name[32];
    snprintf(name, sizeof name, "run.%d.h5", number);
    const int step = (int)step_of(in_folder(name));
    if (step == -1) continue;
    assert_true(step >= 1 && step < last);
    found[last = step] = 1;
  }
  assert_int_equal(found[3], newest == 9 && keep > 1);
  assert_true((found[2] || keep == 2) && (found[1] || keep == 3));
  assert_int_equal(count_files(), 1 + found[1] + found[2] + found[3]);
  assert_int_equal(save_step(path, 10, 4), MN_OK);
  assert_int_equal(step_of(in_folder("run.1.h5")), newest);
}

static void three_files_alone(void) {
  unlink(in_folder("run.3.h5"));
  three_files();
}

/* Fails the k-th `call` of a save for every k; each time no file is harmed, and before it is published none
 * is moved. The number of ks. */
static int fail_each(enum call call, int error, int keep, const char *words) {
  for (int k = 1;; k++) {
    if (k == 1 || call != PWRITE) three_files_alone();
    fault.call = call, fault.countdown = k, fault.lasting = 0, fault.error = error;
    mn_status status = save_step(path, 9, keep);
    int reached = fault.call == NONE;
    fault.call = NONE;
    if (!reached) {
      assert_int_equal(status, MN_OK);
      return k - 1;
    }
    assert_int_equal(status, MN_IO);
    assert_says(words);
    if (call == PWRITE)
      assert_three_files();
    else
      assert_unharmed(call, keep);
  }
}

static void test_failing_calls(void **state) {
  for (int i = 0; i < 8; i++) {
    const int keep = i / 2 + 1, renames = keep > 1 ? keep - 1 : 1;
    no_links = i % 2;
    const struct {
      enum call call;
      int error, least;
      const char *words;
    } cases[] = {{PWRITE, ENOSPC, 4, "No space left"},
                 {PWRITE, EIO, 4, "check the disk"},
                 {FSYNC, ENOSPC, 2, "free some space"},
                 {RENAME, EIO, renames + (no_links && keep > 1), "disk"},
                 {LINK, ENOSPC, keep > 1 && !no_links, "free some space"}};
    for (size_t c = no_links ? 3 : 0; c < sizeof cases / sizeof *cases; c++) {
      int count = fail_each(cases[c].call, cases[c].error, keep, cases[c].words);
      if (count < cases[c].least) fail_msg("only %d calls of kind %d", count, (int)cases[c].call);
    }
  }
  no_links = 0;
}

/* A save that fails again and again costs no older file but the oldest. */
static void test_failing_again(void **state) {
  three_files();
  for (int i = 0; i < 4; i++) {
    fault.call = RENAME, fault.countdown = i == 0 ? 2 : 1, fault.lasting = 0, fault.error = EIO;
    assert_int_equal(save_step(path, 9, 3), MN_IO);
    assert_int_equal(step_of(path), 3);
    assert_int_equal(step_of(in_folder("run.2.h5")), 2);
    assert_int_equal(count_files(), 2);
  }
  assert_int_equal(save_step(path, 9, 3), MN_OK);
  assert_int_equal(step_of(in_folder("run.1.h5")), 3);
  assert_int_equal(step_of(in_folder("run.2.h5")), 2);
}

/* The same where there is one file, or none, to begin with. */
static void test_failing_first(void **state) {
  for (int files = 0; files < 2; files++) {
    for (enum call call = PWRITE; call <= LINK; call++) {
      for (int k = 1, reached = 1; reached; k++) {
        unlink(path);
        unlink(in_folder("run.1.h5"));
        if (files) assert_int_equal(save_step(path, 1, 1), MN_OK);
        fault.call = call, fault.countdown = k, fault.lasting = 0, fault.error = EIO;
        mn_status status = save_step(path, 9, 3);
        reached = fault.call == NONE;
        fault.call = NONE;
        assert_int_equal(status, reached ? MN_IO : MN_OK);
        int put = !reached || (call == FSYNC && k == 2); /* the folder's sync comes after it */
        assert_int_equal(count_files(), put ? files + 1 : files);
        assert_int_equal(step_of(path), put ? 9 : files ? 1 : -1);
      }
    }
  }
}

/* A disk that is full stays full: every call from the k-th on fails. */
static void test_full_disk(void **state) {
  three_files();
  for (int k = 1; k <= 4; k++) {
    fault.call = PWRITE, fault.countdown = k, fault.lasting = 1, fault.error = ENOSPC;
    assert_int_equal(save_step(path, 9, 3), MN_IO);
    fault.call = NONE;
    assert_three_files();
  }
}

/* A real limit, met inside HDF5's own flushing; and the process must end well after it. */
static void test_file_size_limit(void **state) {
  three_files();
  const rlim_t limits[] = {0, 50, 700, 4000};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      struct rlimit limit = {limits[i], limits[i]};
      setrlimit(RLIMIT_FSIZE, &limit);
      mn_status status = save_step(path, 9, 3);
      exit(status == MN_IO && strstr(mn_message(), "ulimit") ? 3
                                                             : 4); /* exit, not _exit: HDF5 cleans up too */
    }
    int status = wait_for(child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_three_files();
  }
}

/* Killed at any call, a whole run.h5 stands: the old one or the new one; and the next save tidies up. */
static void test_killed(void **state) {
  for (int keep = 1; keep <= 3; keep++) {
    for (int k = 1, killed = 1; killed; k++) {
      char used[MN_CHECKPOINT_PATH], skipped[256];
      struct mn_checkpoint *loaded;
      three_files();
      pid_t child = fork();
      if (child == 0) {
        fault.call = EVERY, fault.countdown = k, fault.lasting = 0, fault.error = 0;
        _exit(save_step(path, 9, keep) == MN_OK ? 0 : 1);
      }
      int status = wait_for(child);
      killed = WIFSIGNALED(status);
      if (!killed) assert_int_equal(WEXITSTATUS(status), 0);
      int64_t step = step_of(path);
      assert_true(step == 9 || (step == 3 && killed));
      assert_int_equal(mn_checkpoint_load_newest(&loaded, path, used, skipped, sizeof skipped), MN_OK);
      assert_string_equal(used, path);
      assert_int_equal(loaded->progress.step, step);
      mn_checkpoint_free(loaded);
      assert_int_equal(save_step(path, 10, 3), MN_OK);
      assert_true(count_files() <= 3);
      assert_int_equal(step_of(path), 10);
      assert_int_equal(step_of(in_folder("run.1.h5")), step);
    }
  }
}

/* ---- stale files, permissions, places ---- */

static void test_stale(void **state) {
  const char *stale = in_folder("run.h5.saving-0123456789abcdef");
  const char *held = in_folder("run.h5.saving-fedcba9876543210");
  write_bytes(stale, "x", 1);
  write_bytes(held, "x", 1);
  write_bytes(in_folder("run.h5.saving-mine"), "x", 1);
  write_bytes(in_folder("other.h5.saving-0123456789abcdef"), "x", 1);
  int fd = open(held, O_RDWR | O_CLOEXEC);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  assert_int_equal(save_step(path, 1, 1), MN_OK);
  assert_int_equal(count_files(), 4); /* run.h5 and what is not stale, or not its own */
  assert_int_equal(access(in_folder("run.h5.saving-0123456789abcdef"), F_OK), -1);
  close(fd);
  assert_int_equal(save_step(path, 2, 1), MN_OK);
  assert_int_equal(count_files(), 3);
}

static void save_beside(void) {
  pid_t child = fork();
  if (child == 0) _exit(save_step(path, 7, 1) == MN_OK ? 0 : 1);
  assert_int_equal(wait_for(child), 0);
}

/* Another process that saves to the same path meanwhile does not take our file for a killed run's. */
static void test_two_savers(void **state) {
  on_fsync = save_beside;
  assert_int_equal(save_step(path, 8, 2), MN_OK);
  assert_null(on_fsync);
  assert_int_equal(step_of(path), 8);
  assert_int_equal(step_of(in_folder("run.1.h5")), 7);
  assert_int_equal(count_files(), 2);
}

/* A new file is published under a name that is free; one that appeared there meanwhile is another's. */
static void test_appeared(void **state) {
  size_t size;
  struct mn_atomic_file file;
  assert_int_equal(mn_atomic_file_create(&file, path), MN_OK);
  write_bytes(path, "mine", 4);
  assert_int_equal(mn_atomic_file_publish(&file, 0), MN_NO_CREATE);
  assert_says("has appeared meanwhile");
  unsigned char *bytes = read_bytes(path, &size);
  assert_true(size == 4 && memcmp(bytes, "mine", 4) == 0);
  free(bytes);
  assert_int_equal(count_files(), 1);
  assert_int_equal(mn_atomic_file_create(&file, path), MN_OK);
  assert_int_equal(mn_atomic_file_publish(&file, 1), MN_OK); /* which replaces */
}

static mode_t mode_of(const char *of) {
  struct stat status;
  assert_int_equal(stat(of, &status), 0);
  return status.st_mode & 07777;
}

static void test_permissions(void **state) {
  const mode_t masks[] = {0022, 0077, 0002, 0};
  for (int i = 0; i < 4; i++) {
    mode_t before = umask(masks[i]);
    mn_status saved = save_step(path, i, 1);
    umask(before);
    assert_int_equal(saved, MN_OK);
    assert_int_equal(mode_of(path), 0666 & ~masks[i]);
    unlink(path);
  }
  /* A file's permissions stay, whatever the umask would make of a new one; also where it is renamed.
   */
  const mode_t modes[] = {0600, 0664};
  for (int i = 0; i < 4; i++) {
    unlink(path);
    assert_int_equal(save_step(path, 1, 1), MN_OK);
    assert_int_equal(chmod(path, modes[i % 2]), 0);
    if (i / 2) fault.call = LINK, fault.countdown = 1, fault.lasting = 1, fault.error = EPERM;
    assert_int_equal(save_step(path, 2, 2), MN_OK);
    fault.call = NONE;
    assert_int_equal(mode_of(path), modes[i % 2]);
    assert_int_equal(mode_of(in_folder("run.1.h5")), modes[i % 2]);
  }
}

/* A symbolic link stays, and what it leads to is what is saved and kept. */
static void test_links(void **state) {
  struct stat status;
  assert_int_equal(mkdir(in_folder("disk"), 0777), 0);
  assert_int_equal(symlink("disk/other.h5", in_folder("second.h5")), 0);
  assert_int_equal(symlink(in_folder("second.h5"), path), 0);
  for (int step = 1; step <= 3; step++) assert_int_equal(save_step(path, step, 2), MN_OK);
  assert_true(lstat(path, &status) == 0 && S_ISLNK(status.st_mode));
  assert_true(lstat(in_folder("second.h5"), &status) == 0 && S_ISLNK(status.st_mode));
  assert_true(lstat(in_folder("disk/other.h5"), &status) == 0 && S_ISREG(status.st_mode));
  assert_int_equal(step_of(in_folder("disk/other.h5")), 3);
  assert_int_equal(step_of(in_folder("disk/other.1.h5")), 2);
  assert_int_equal(unlink(in_folder("disk/other.h5")) | unlink(in_folder("disk/other.1.h5")), 0);
  assert_int_equal(symlink("circle.h5", in_folder("circle.h5")), 0);
  assert_int_equal(save_step(in_folder("circle.h5"), 1, 1), MN_NO_CREATE);
  assert_says("circle");
}

/* ---- one process in a folder ---- */

static void test_lock(void **state) {
  struct mn_run_lock *first, *second;
  char name[1200];
  snprintf(name, sizeof name, "%s/lock", folder);
  assert_int_equal(mn_run_lock(&first, folder), MN_OK);
  assert_int_equal(mn_run_lock(&second, in_folder("")), MN_NO_CREATE);
  assert_null(second);
  assert_says(folder);
  assert_says("another process");
  mn_run_unlock(first);
  mn_run_unlock(NULL);
  assert_int_equal(access(name, F_OK), -1);
  pid_t child = fork();
  if (child == 0) { /* a run that is killed: its lock ends, its file stays */
    mn_run_lock(&first, folder);
    raise(SIGKILL);
  }
  wait_for(child);
  assert_int_equal(access(name, F_OK), 0);
  assert_int_equal(mn_run_lock(&first, folder), MN_OK);
  mn_run_unlock(first);
  assert_int_equal(access(name, F_OK), -1);
  write_bytes(name, "mine", 4); /* a file of the user's by that name */
  assert_int_equal(mn_run_lock(&first, folder), MN_OK);
  mn_run_unlock(first);
  assert_int_equal(access(name, F_OK), 0);
  assert_int_equal(mn_run_lock(&first, in_folder("missing")), MN_NO_CREATE);
}

static void test_places(void **state) {
  assert_int_equal(save_step(in_folder("missing/run.h5"), 1, 1), MN_NO_CREATE);
  assert_says("mkdir -p");
  assert_says("missing");
  write_bytes(in_folder("file"), "x", 1);
  assert_int_equal(save_step(in_folder("file/run.h5"), 1, 1), MN_NO_CREATE);
  assert_says("file");
  assert_int_equal(save_step(folder, 1, 1), MN_NO_CREATE);
  assert_says("folder");
  assert_int_equal(save_step("/dev/null", 1, 1), MN_NO_CREATE);
  assert_says("device");
  assert_int_equal(save_step("", 1, 1), MN_NO_CREATE);
  assert_int_equal(save_step(in_folder(""), 1, 1), MN_NO_CREATE);
  char longest[300];
  memset(longest, 'a', sizeof longest);
  longest[250] = 0;
  assert_int_equal(save_step(in_folder(longest), 1, 1), MN_NO_CREATE);
  assert_says("shorter");
  assert_int_equal(save_step("/proc/run.h5", 1, 1), MN_NO_CREATE);
  assert_int_equal(save_step(path, 1, 0), MN_USAGE);
  assert_says("0 checkpoints");
  assert_int_equal(save_step(path, 1, MN_CHECKPOINT_KEEP + 1), MN_USAGE);
  assert_int_equal(count_files(), 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_rotation),      TEST(test_names),
      TEST(test_rotation_gap),  TEST(test_no_links),
      TEST(test_failing_calls), TEST(test_full_disk),
      TEST(test_failing_again), TEST(test_failing_first),
      TEST(test_two_savers),    TEST(test_file_size_limit),
      TEST(test_killed),        TEST(test_stale),
      TEST(test_permissions),   TEST(test_places),
      TEST(test_links),         TEST(test_lock),
      TEST(test_appeared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
