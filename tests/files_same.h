/* What the tests of runs share: whether two files that they have left are the same. */
#ifndef MN_TESTS_FILES_SAME_H
#define MN_TESTS_FILES_SAME_H

#include "tests/command_run.h"

static inline void assert_same(const char *a, const char *b) {
  static char bytes[2][1 << 20];
  const char *const names[] = {a, b};
  size_t length[2];
  for (int i = 0; i < 2; i++) {
    FILE *file = fopen(names[i], "rb");
    if (!file) fail_msg("there is no %s", names[i]);
    length[i] = fread(bytes[i], 1, sizeof bytes[i], file);
    fclose(file);
  }
  assert_true(length[0] > 100 && length[0] < sizeof bytes[0]);
  if (length[0] != length[1] || memcmp(bytes[0], bytes[1], length[0]) != 0) fail_msg("%s is not %s", a, b);
}

#endif
