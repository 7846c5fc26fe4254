/* The command in the test's own process, where calls of the C library can be replaced. */
#ifndef MN_TESTS_COMMAND_CALL_H
#define MN_TESTS_COMMAND_CALL_H

#include "tests/hdf5_made.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "train/command/commands.h"

static inline mn_status call_command(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs "train --lr 0.1 …", split at blanks; what it says on stdout is lost. */
static inline mn_status call_command(const char *format, ...) {
  char text[4096], *argv[64] = {"minnow"};
  int argc = 1, done = 0;
  struct mn_options options;
  FILE *out = fopen("/dev/null", "w");
  va_list arguments;
  va_start(arguments, format);
  assert_true(out && vsnprintf(text, sizeof text, format, arguments) < (int)sizeof text);
  va_end(arguments);
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
    assert_true(argc < 63);
    argv[argc++] = word;
  }
  mn_status status = mn_options_parse(&options, argc, argv, &done);
  if (status == MN_OK) status = mn_command_run(out, &options);
  fclose(out);
  return status;
}

static inline void pause_for(int milliseconds) {
  nanosleep(&(struct timespec){0, milliseconds * 1000000L}, NULL);
}

#endif
