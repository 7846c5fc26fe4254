/* How tests compare the logs of runs. */
#ifndef MN_TESTS_LOG_READ_H
#define MN_TESTS_LOG_READ_H

#include "tests/hdf5_made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lines of a log without what depends on the clock; free() it. Inlined, gcc takes it for dangling. */
static __attribute__((noinline, unused)) char *read_log(const char *name) {
  char *text = NULL, *line = NULL;
  size_t size, room = 0;
  FILE *in = fopen(name, "r"), *out = open_memstream(&text, &size);
  assert_true(in && out);
  while (getline(&line, &room, in) > 0) {
    const char *time = strstr(line, "\"time\":");
    assert_non_null(time);
    fprintf(out, "%.*s\n", (int)(time - line), line);
  }
  free(line);
  fclose(in);
  fclose(out);
  return text;
}

static inline void assert_same_logs(const char *a, const char *b) {
  char *one = read_log(a), *two = read_log(b);
  assert_string_equal(one, two);
  free(one), free(two);
}

#endif
