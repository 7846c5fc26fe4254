/* The message that goes with a mn_status: one buffer a thread, so that a loader thread's error never mixes
 * with the main thread's. */
#include "kernels/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/text.h"

static _Thread_local char message[MN_MESSAGE];

mn_status mn_fail(mn_status status, const char *format, ...) {
  /* Formatted aside first: an argument may be mn_message() itself. */
  char text[sizeof message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mn_escape(message, sizeof message, text); /* so it is one line, too */
  return status;
}

const char *mn_message(void) {
  return message;
}

void mn_abort(const char *file, int line, const char *condition) {
  fprintf(stderr, "minnow: %s:%d: broken invariant: %s\n", file, line, condition);
  abort();
}
