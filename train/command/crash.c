/* Crashes and exits that libraries cause, told in one line. */
#include "train/command/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/command/watchdog.h"

static int running;
static mn_status ended; /* with what main has ended */

/* Safe in a signal handler: neither strsignal nor stdio is. */
static void say(const char *line) {
  ssize_t written = write(STDERR_FILENO, line, strlen(line));
  (void)written; /* how the process ends says it too */
}

/* The default action follows, which leaves a core where the system lets it. */
static void tell_of_signal(int number) {
  char line[256] = "minnow: ended by a crash (", digits[24] = "";
  char *first = digits + sizeof digits - 1;
  if (!running) _exit(ended);
  for (int64_t step = mn_watchdog_step(); step > 0; step /= 10) *--first = (char)('0' + step % 10);
  strcat(strcat(line, sigdescr_np(number)), ")");
  if (*first) strcat(strcat(line, " at step "), first);
  say(strcat(line, ": this is a bug of minnow's, or memory ran out; what was saved is whole\n"));
  raise(number); /* comes when this returns */
}

static void tell_of_exit(void) {
  if (!running) return;
  say("minnow: a library ended the program, most likely as memory ran out: free some; what was saved is "
      "whole\n");
  _exit(MN_LIBRARY);
}

void mn_crash_open(void) {
  static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
  static char stack[1 << 16]; /* a recursion of HDF5's, as it starts without memory, has used up the other */
  const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction before, tell = {.sa_handler = tell_of_signal, .sa_flags = SA_RESETHAND | SA_ONSTACK};
  running = 1;
  MN_REQUIRE(sigaltstack(&other, NULL) == 0);
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
    if (sigaction(crashes[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
      MN_REQUIRE(sigaction(crashes[i], &tell, NULL) == 0);
  atexit(tell_of_exit); /* where it fails, such an end is silent, no more */
}

void mn_crash_close(mn_status status) {
  ended = status;
  running = 0;
}
