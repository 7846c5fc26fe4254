/* Skipping a test with a reason. */
#ifndef MN_TESTS_SKIP_H
#define MN_TESTS_SKIP_H

/* Skips the running test of cmocka's; tests/run.sh counts by the reason's words before a colon or a comma. */
#define SKIP(...)                                                                                            \
  do {                                                                                                       \
    print_message("skipped: " __VA_ARGS__);                                                                  \
    print_message("\n");                                                                                     \
    skip();                                                                                                  \
  } while (0)

#endif
