/* cmocka, and what tests do with calls: they succeed, or a test is skipped with a reason. */
#ifndef MN_TESTS_SKIP_H
#define MN_TESTS_SKIP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The call succeeds. */
#define MUST(call)                                                                                           \
  do {                                                                                                       \
    mn_status must_status_ = (call);                                                                         \
    if (must_status_ != MN_OK) fail_msg("%s: %d, %s", #call, must_status_, mn_message());                    \
  } while (0)

/* Skips the running test of cmocka's; tests/run.sh counts by the reason's words before a colon or a comma. */
#define SKIP(...)                                                                                            \
  do {                                                                                                       \
    print_message("skipped: " __VA_ARGS__);                                                                  \
    print_message("\n");                                                                                     \
    skip();                                                                                                  \
  } while (0)

#endif
