/* The program `minnow`: reads its options, runs one command, and turns what that returns into one line on
 * stderr and an exit code. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/command/commands.h"
#include "train/command/convert.h"
#include "train/command/room.h"

/* SIGUSR1 asks training to save; nothing of what else goes on, loading libraries included, is to die of it.
 */
static void before_main(int count, char **words, char **environment) {
  signal(SIGUSR1, SIG_IGN);
  mn_room_before_main(count, words, environment);
}

/* A section that programs alone may have, so it is not room.c's, which is in the library. */
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = before_main;

/* With stdin, stdout or stderr closed, the next file opened would get its descriptor, and results or warnings
 * would be written into a checkpoint. So /dev/null gets it: read-only as stdout, where a write then fails and
 * the lost result is noticed. */
static void hold_standard_files(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      int held = open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR);
      (void)held; /* the lowest free number, so fd */
    }
}

/* Results that could not be written are a failure, also where only closing shows it. */
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
  /* A reader that went away and a file at its largest size are errors to report, not deaths. */
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  /* Results are short. Buffered until the end, a failed write is reported by close_stdout. */
  static char results[1 << 18];
  if (!isatty(STDOUT_FILENO)) setvbuf(stdout, results, _IOFBF, sizeof results);
  struct mn_options options;
  int done = 0;
  mn_status status = mn_options_parse(&options, argc, argv, &done);
  if (status == MN_OK && !done) status = mn_command_run(stdout, &options);
  status = close_stdout(status);
  /* Among ranks, the one that failed first has told. */
  if (status != MN_OK && *mn_message()) {
    fprintf(stderr, "minnow: %s\n", mn_message());
    mn_convert_show(stderr);
  }
  return status;
}
