/* Threads of the host's, and an error's way from one to another: mn_message() is a thread's own. */
#ifndef MN_ENGINE_THREAD_H
#define MN_ENGINE_THREAD_H

#include <pthread.h>

#include "kernels/status.h"

/* Starts run(data) in a thread, on a stack of 2 MiB, with every signal blocked: signals are for the thread
 * that started it. MN_NO_MEMORY, with `what` in the message: "the thread that saves". */
mn_status mn_thread_start(pthread_t *out, const char *what, void *(*run)(void *data), void *data);

/* A status with its message. */
struct mn_outcome {
  mn_status status;
  char message[MN_MESSAGE];
};

/* Notes `status` with this thread's message; and makes a noted error this thread's, at every call. */
void mn_outcome_note(struct mn_outcome *outcome, mn_status status);
mn_status mn_outcome_tell(const struct mn_outcome *outcome);

#endif
