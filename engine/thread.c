/* Starting threads, and carrying messages between them. */
#include "engine/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

mn_status mn_thread_start(pthread_t *out, const char *what, void *(*run)(void *data), void *data) {
  sigset_t all, before;
  MN_REQUIRE(sigfillset(&all) == 0 && pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
  int failed = pthread_create(out, NULL, run, data);
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
