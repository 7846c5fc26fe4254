/* Crashes and exits that libraries cause, told in one line. */
#include "train/command/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int running;
static mn_status ended; /* with what main has ended */

/* Safe in a signal handler: neither strsignal nor stdio is. */
static void end_process(const char *how) {
  char line[256] = "minnow: ";
  strcat(strcat(line, how), ", most likely as memory ran out: free some; what was saved is whole\n");
  ssize_t written = running ? write(STDERR_FILENO, line, strlen(line)) : 0;
  (void)written; /* the exit code says it too */
  _exit(running ? MN_LIBRARY : ended);
}

static void tell_of_signal(int number) {
  char how[128] = "ended by a crash inside a library or minnow (";
  end_process(strcat(strcat(how, sigdescr_np(number)), ")"));
}

static void tell_of_exit(void) {
  if (running) end_process("a library ended the program");
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
