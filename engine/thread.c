/* Starting threads, and carrying messages between them. */
#include "engine/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* glibc keeps up to 40 MiB of ended threads' stacks for the next threads: a file's 16 readers fit. With 8 MiB
 * only 5 fit, and reading is up to 39 % slower (kernels/NOTES.md, "From a file"). */
#define STACK_BYTES ((size_t)2 << 20)

mn_status mn_thread_start(pthread_t *out, const char *what, void *(*run)(void *data), void *data) {
  static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL}; /* these reach no other thread */
  sigset_t others, before;
  pthread_attr_t attributes;
  MN_REQUIRE(sigfillset(&others) == 0);
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) sigdelset(&others, crashes[i]);
  MN_REQUIRE(pthread_sigmask(SIG_SETMASK, &others, &before) == 0);
  MN_REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
  int failed = pthread_create(out, &attributes, run, data);
  MN_REQUIRE(pthread_attr_destroy(&attributes) == 0);
  MN_REQUIRE(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
  return failed ? mn_fail(MN_NO_MEMORY, "%s cannot be started: %s", what, strerror(failed)) : MN_OK;
}

void mn_outcome_note(struct mn_outcome *outcome, mn_status status) {
  outcome->status = status;
  snprintf(outcome->message, sizeof outcome->message, "%s", status == MN_OK ? "" : mn_message());
}

mn_status mn_outcome_tell(const struct mn_outcome *outcome) {
  return outcome->status == MN_OK ? MN_OK : mn_fail(outcome->status, "%s", outcome->message);
}
