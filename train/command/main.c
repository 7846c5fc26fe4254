/* The program `minnow`: reads its options, runs one command, and turns what that returns into one line on
 * stderr and an exit code. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "train/command/commands.h"

/* SIGUSR1 asks training to save. It is ignored before that, even while libraries load. */
static void ignore_usr1(void) {
  signal(SIGUSR1, SIG_IGN);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = ignore_usr1;

/* libgomp reads GOMP_SPINCOUNT once, when it is loaded, so the program is executed anew with it, unless the
 * user has said how threads wait. It counts turns of a loop: 300 take some 10 µs. Without it a thread spins
 * for 300,000 at the end of each parallel region, on a core that the thread that it waits for may need
 * (kernels/NOTES.md). */
static void limit_spinning(char **argv) {
  if (omp_get_max_threads() == 1 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
  if (setenv("GOMP_SPINCOUNT", "300", 1) == 0) execv("/proc/self/exe", argv);
}

/* With stdin, stdout or stderr closed, the next file opened would get its descriptor, and results or warnings
 * would be written into a checkpoint. So the root folder gets it, which is always there: every read and write
 * fails, and a result that is lost is noticed. */
static void hold_standard_files(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/", O_RDONLY); /* gets the lowest free number, so fd */
}

/* libgomp and other libraries call exit(1) when they cannot go on; 1 would mean a failed check. */
static int returned;
static void end_by_library(int code, void *data) {
  static const char line[] = "minnow: a library has ended the program; its line above says why\n";
  if (returned || code != EXIT_FAILURE) return;
  (void)!write(STDERR_FILENO, line, sizeof line - 1);
  _exit(MN_LIBRARY);
}

/* Results that could not be written are a failure, even if only closing reveals it. */
static mn_status close_stdout(mn_status status) {
  int failed = ferror(stdout);
  errno = 0;
  if (fclose(stdout) == 0 && !failed) return status;
  const char *reason = errno ? strerror(errno) : "a write failed";
  if (status != MN_OK) return status;
  return mn_fail(MN_IO, "cannot write to stdout: %s; redirect it to a file that can be written", reason);
}

int main(int argc, char **argv) {
  hold_standard_files();
  /* Under ulimit -v a thread gets no arena of its own, and each of its mallocs takes whole pages then. */
  mallopt(M_ARENA_MAX, 1);
  limit_spinning(argv);
  on_exit(end_by_library, NULL);
  omp_set_dynamic(0); /* each parallel region has the threads that it asks for, in spite of OMP_DYNAMIC */
  prctl(PR_SET_NAME, program_invocation_short_name); /* else ps and pkill call it "exe" */
  /* A reader that went away and a file at its largest size are errors to report, not deaths. */
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGCHLD, SIG_DFL); /* a parent may have ignored it; gnuplot is waited for */
  /* Results are short. Buffered until the end, a failed write is reported by close_stdout. */
  static char results[1 << 18];
  if (!isatty(STDOUT_FILENO)) setvbuf(stdout, results, _IOFBF, sizeof results);
  struct mn_options options = {.data = NULL};
  int done = 0;
  mn_status status = mn_options_parse(&options, argc, argv, &done);
  if (status == MN_OK && !done) status = mn_command_run(stdout, &options);
  status = close_stdout(status);
  /* Among ranks, the one that failed first has printed its message. */
  if (status != MN_OK && *mn_message()) {
    fprintf(stderr, "minnow: %s\n", mn_message());
    if (status == MN_BAD_DATA || status == MN_USAGE) mn_show_conversion(stderr, &options);
  }
  returned = 1;
  return status;
}
