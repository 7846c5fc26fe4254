/* Signals to the program: what each does to training and to the other commands, and that a run which cannot
 * act on one ends all the same. What does not end, for a minute, comes from a library that is
 * loaded before the others: reads of 100 kB and more, which are rows and nothing else, and products. */
#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/command_run.h"

#define RUN "train --device cpu --hidden 8 --groups 2 --batch 10 "
#define LONG RUN "--synthetic 100 --in 8 --steps 1000000000 "

static void doze(void) {
  nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* A command under way, with what it says. */
struct child {
  pid_t pid;
  int out, err;
};

static struct child begin(const char *line) {
  struct child c = {.out = temporary_file(), .err = temporary_file()};
  c.pid = start(line, c.out, c.err, &(struct circumstances){0});
  return c;
}

static struct result end(struct child c) {
  struct result r = {.status = wait_for(c.pid)};
  read_all(r.out, c.out);
  read_all(r.err, c.err);
  close(c.out);
  close(c.err);
  return r;
}

static void send(struct child c, int number) {
  assert_int_equal(kill(c.pid, number), 0);
}

/* Whether /proc has signal `number` among those that the process ignores (SigIgn) or catches (SigCgt). */
static int has(struct child c, const char *kind, int number) {
  char path[64], line[256];
  unsigned long long mask = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)c.pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    if (strncmp(line, kind, strlen(kind)) == 0) mask = strtoull(line + strlen(kind) + 1, NULL, 16);
  fclose(file);
  return mask >> (number - 1) & 1;
}

/* Waits until that is so; 0: the process ended before. */
static int wait_until(struct child c, const char *kind, int number) {
  siginfo_t ended = {0};
  for (int i = 0; i < 3000; i++, doze()) {
    if (has(c, kind, number)) return 1;
    assert_int_equal(waitid(P_PID, (id_t)c.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    if (ended.si_pid) return 0;
  }
  fail_msg("signal %d is not in %s", number, kind);
  return 0;
}

static void wait_for_file(const char *path) {
  struct stat status;
  for (int i = 0; i < 3000; i++, doze())
    if (stat(path, &status) == 0 && status.st_size > 0) return;
  fail_msg("%s did not come", path);
}

static void wait_for_growth(const char *path) {
  struct stat before, status;
  assert_int_equal(stat(path, &before), 0);
  for (int i = 0; i < 3000; i++, doze())
    if (stat(path, &status) == 0 && status.st_size > before.st_size) return;
  fail_msg("%s does not grow", path);
}

static void wait_for_words(struct child c, const char *words) {
  for (int i = 0; i < 3000; i++, doze()) {
    char text[8192];
    const ssize_t length = pread(c.err, text, sizeof text - 1, 0);
    assert_true(length >= 0);
    text[length] = 0;
    if (strstr(text, words)) return;
  }
  fail_msg("'%s' did not come", words);
}

/* Exit code `status`, and on stderr one line with both words. */
static void assert_line(const struct result *r, int status, const char *a, const char *b) {
  if (r->status != status || lines(r->err) != 1 || !strstr(r->err, a) || !strstr(r->err, b))
    fail_msg("exit code %d, '%s'; not %d and one line with '%s' and '%s'", r->status, r->err, status, a, b);
}

/* The first of each saves; a SIGHUP may follow any, as when a terminal goes or a session ends. */
static void each_ends_a_run_that_is_saved(void **state) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  const int can_draw = system("command -v gnuplot >/dev/null 2>&1") == 0;
  for (int i = 0; i < 3; i++) {
    char line[256];
    snprintf(line, sizeof line, LONG "--quiet --run end-%d%s", i,
             i == 1 && can_draw ? " --log-every 1000000000 --plot" : "");
    struct child c = begin(line);
    snprintf(line, sizeof line, "end-%d/log.jsonl", i);
    wait_for_file(line);
    send(c, numbers[i]);
    while (has(c, "ShdPnd", numbers[i])) doze(); /* two that wait are delivered by number, not in order */
    send(c, SIGHUP);
    struct result r = end(c);
    assert_line(&r, 75, strsignal(numbers[i]), "--resume");
    snprintf(line, sizeof line, "verify end-%d/checkpoint.h5", i);
    assert_succeeds(line, run(line));
  }
}

/* What is ignored at the start, as nohup does with SIGHUP, stays ignored. */
static void nohup_stays_without_effect(void **state) {
  assert_true(signal(SIGHUP, SIG_IGN) != SIG_ERR);
  struct child c = begin(LONG "--quiet --run nohup");
  assert_true(signal(SIGHUP, SIG_DFL) != SIG_ERR);
  wait_for_file("nohup/log.jsonl");
  assert_true(has(c, "SigIgn", SIGHUP));
  send(c, SIGHUP);
  send(c, SIGTERM);
  struct result r = end(c);
  assert_line(&r, 75, "stopped by Terminated", "");
}

static void usr1_saves_and_changes_nothing(void **state) {
#define SHORT RUN "--synthetic 50000 --in 8 --steps 100000 "
  struct child c = begin(SHORT "--verbose --run usr1");
  wait_for_file("usr1/log.jsonl");
  send(c, SIGUSR1);
  wait_for_words(c, "saved step "); /* by the file alone, the end's save might be told in its place */
  send(c, SIGTERM);
  struct result r = end(c);
  assert_int_equal(r.status, 75);
  const char *first = strstr(r.err, "saved step ");
  assert_true(first && strstr(first + 1, "saved step "));
  assert_succeeds("resume", run("train --device cpu --quiet --run usr1 --resume"));
  assert_succeeds("train", run(SHORT "--quiet --run whole"));
  assert_succeeds("diff", run("diff usr1/checkpoint.h5 whole/checkpoint.h5"));
}

/* Sends to the thread that was started last. */
static void send_to_a_thread(struct child c, int number) {
  char path[64];
  long last = 0;
  snprintf(path, sizeof path, "/proc/%d/task", (int)c.pid);
  DIR *tasks = opendir(path);
  assert_non_null(tasks);
  for (struct dirent *task; (task = readdir(tasks));)
    if (atol(task->d_name) > last) last = atol(task->d_name);
  closedir(tasks);
  assert_true(last > c.pid);
  assert_int_equal(syscall(SYS_tgkill, c.pid, last, number), 0);
}

/* In the first thread and in another: no handler of minnow's stands between a crash and its core. SIGTERM ends what does not end. */
static void a_crash_keeps_its_signal(void **state) {
#ifdef __SANITIZE_ADDRESS__
  SKIP("ASan: it tells of crashes itself");
#endif
  static const int numbers[] = {SIGSEGV, SIGABRT, SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  for (int i = 0; i < 6; i++) {
    char path[64], line[256];
    snprintf(path, sizeof path, "crash-%d/log.jsonl", i);
    snprintf(line, sizeof line, LONG "--quiet --run crash-%d", i);
    struct child c = begin(line);
    wait_for_file(path);
    wait_for_growth(path); /* the first step */
    (i < 2 ? send : send_to_a_thread)(c, numbers[i]);
    for (int j = 0; j < 20; j++) doze();
    send(c, SIGTERM);
    struct result r = end(c);
    assert_int_equal(r.status, 128 + numbers[i]);
    assert_null(strstr(r.err, "minnow:"));
  }
}

static void usr1_without_a_checkpoint_is_told(void **state) {
  struct child c = begin(LONG "");
  wait_for_words(c, "training: ");
  send(c, SIGUSR1);
  for (int i = 0; i < 50; i++) doze();
  send(c, SIGTERM);
  struct result r = end(c);
  assert_int_equal(r.status, 75);
  assert_non_null(strstr(r.err, "nothing is saved: SIGUSR1 asks for it, but there is no --run\n"));
}

static void usr1_is_harmless_while_a_run_opens(void **state) {
  struct child c = begin(RUN "--quiet --synthetic 3000000 --in 64 --steps 1 --run opens");
  assert_true(wait_until(c, "SigCgt", SIGUSR1));
  send(c, SIGUSR1);
  send(c, SIGTERM);
  struct result r = end(c);
  assert_line(&r, 75, "stopped by Terminated", "before the first step");
}

static const char *const others[] = {
    "eval --quiet --device cpu --run run --data good.h5",
    "predict --quiet --device cpu --run run --data good.h5 --out p.h5 --force",
    "gradcheck --quiet --device cpu",
    "bench --quiet --device cpu --batch 8 --in 8 --hidden 16",
    "parity --quiet --device cpu cases.h5",
    "info run",
    "verify run",
    "diff run run",
    "plot run --out p.svg --force",
};
enum { OTHERS = sizeof others / sizeof *others };

static int cannot_draw(const struct result *r) {
  return r->status == 70 && strstr(r->err, "gnuplot");
}

static void usr1_is_nothing_to_other_commands(void **state) {
  for (int i = 0; i < OTHERS; i++) {
    struct child c = begin(others[i]);
    if (wait_until(c, "SigIgn", SIGUSR1))
      for (int k = 0; k < 3; k++) send(c, SIGUSR1);
    struct result r = end(c);
    if (!cannot_draw(&r)) assert_succeeds(others[i], &r);
  }
}

/* Nothing of theirs has to be brought to an end. */
static void term_ends_other_commands_at_once(void **state) {
  struct child c = begin("bench --quiet --device cpu --batch 1024 --in 2048 --hidden 2048");
  assert_true(wait_until(c, "SigIgn", SIGUSR1));
  send(c, SIGTERM);
  assert_int_equal(end(c).status, 128 + SIGTERM);
}

/* A reader that went away: a result that is lost is an error, a remark is not. */
static void nobody_reads(void **state) {
  static const char *const commands[] = {"info run", RUN "--synthetic 100 --in 8 --steps 3"};
  for (int i = 0; i < 2; i++) {
    const char *line = commands[i];
    int prints = 0;
    for (int of_err = 1; of_err >= 0; of_err--) {
      int ends[2];
      struct child c = {.out = temporary_file(), .err = temporary_file()};
      assert_int_equal(pipe(ends), 0);
      close(ends[0]);
      c.pid = start(line, of_err ? c.out : ends[1], of_err ? ends[1] : c.err, &(struct circumstances){0});
      close(ends[1]);
      struct result r = end(c);
      if (of_err) prints = r.out[0] != 0;
      const int wanted = of_err || !prints ? 0 : 74;
      if (r.status != wanted) fail_msg("'%s' exits with %d, not %d: %s", line, r.status, wanted, r.err);
    }
  }
}

/* ---- what does not end ---- */

static const char *const library =
    "#define _GNU_SOURCE\n"
    "#include <fcntl.h>\n"
    "#include <signal.h>\n"
    "#include <stdlib.h>\n"
    "#include <sys/syscall.h>\n"
    "#include <unistd.h>\n"
    "__attribute__((constructor)) static void start(void) {\n"
    "  if (getenv(\"STARTS\")) raise(SIGUSR1);\n"
    "}\n"
    "static void wait_while(const char *variable) {\n"
    "  const char *name = getenv(variable);\n"
    "  for (int i = 0; i < 6000 && name && access(name, F_OK) == 0; i++) usleep(10000);\n"
    "}\n"
    "ssize_t pread64(int fd, void *to, size_t bytes, off_t at) {\n"
    "  if (bytes >= 100000) wait_while(\"READS\");\n"
    "  return syscall(SYS_pread64, fd, to, bytes, at);\n"
    "}\n"
    "ssize_t pread(int fd, void *to, size_t bytes, off_t at) { return pread64(fd, to, bytes, at); }\n";

static void make_library(void) {
  const char *cc = getenv("CC");
  char command[512];
  write_text("hang.c", library);
  snprintf(command, sizeof command, "%s -shared -fPIC -o hang.so hang.c -ldl", cc ? cc : "cc");
  assert_int_equal(system(command), 0);
}

static void write_rows(const char *name, size_t rows) {
  enum { COLS = 64 };
  hid_t file = create_file(name);
  float *x = calloc(rows * COLS, sizeof *x);
  int *y = calloc(rows, sizeof *y);
  assert_true(x && y);
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){rows, COLS}, x);
  put(file, "y", H5T_NATIVE_INT, 1, (hsize_t[]){rows}, y);
  free(x), free(y);
  assert_true(H5Fclose(file) >= 0);
}

static struct child begin_to_hang(const char *what, const char *file, const char *line) {
  char path[PATH_MAX];
  assert_non_null(realpath("hang.so", path));
  setenv("LD_PRELOAD", path, 1);
  setenv(what, file, 1);
  setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  struct child c = begin(line);
  unsetenv("LD_PRELOAD");
  unsetenv(what);
  unsetenv("ASAN_OPTIONS");
  return c;
}

/* The preloaded library's constructor sends it, as libraries start before main does. */
static void usr1_is_harmless_while_libraries_load(void **state) {
  make_library();
  struct result r = end(begin_to_hang("STARTS", "now", RUN "--quiet --synthetic 100 --in 8 --steps 3"));
  assert_succeeds("train", &r);
}

/* A run that hangs as it reads: the first signal waits for it, the second does not. */
static void the_second_signal_ends_at_once(void **state) {
  make_library();
  write_rows("much.h5", 4000);
  write_text("hang", "now");
  struct child c = begin_to_hang("READS", "hang", RUN "--quiet --data much.h5 --place host --run twice");
  assert_true(wait_until(c, "SigCgt", SIGTERM));
  for (int i = 0; i < 50; i++) doze();
  send(c, SIGTERM);
  for (int i = 0; i < 20; i++) doze();
  send(c, SIGINT);
  const struct result r = end(c);
  assert_int_equal(r.status, 128 + SIGINT);
  assert_string_equal(r.err, "");
}

int main(void) {
  signal(SIGHUP, SIG_DFL); /* which a test that is itself run by nohup would hand on as ignored */
  alarm(600);              /* a run that hangs is not waited for without end */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_ends_a_run_that_is_saved),
      cmocka_unit_test(nohup_stays_without_effect),
      cmocka_unit_test(usr1_saves_and_changes_nothing),
      cmocka_unit_test(usr1_without_a_checkpoint_is_told),
      cmocka_unit_test(a_crash_keeps_its_signal),
      cmocka_unit_test(usr1_is_harmless_while_a_run_opens),
      cmocka_unit_test(usr1_is_harmless_while_libraries_load),
      cmocka_unit_test(usr1_is_nothing_to_other_commands),
      cmocka_unit_test(term_ends_other_commands_at_once),
      cmocka_unit_test(nobody_reads),
      cmocka_unit_test(the_second_signal_ends_at_once),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
