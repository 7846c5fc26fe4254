/* cmocka, and what tests do with calls: they succeed, or a test is skipped with a reason. */
#ifndef MN_TESTS_SKIP_H
#define MN_TESTS_SKIP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* While a drawn case is tried (tests/draws.h), the first thing that is wrong with it. */
static struct {
  int on;
  char wrong[300];
} trial __attribute__((unused));

/* Fails the test, or the case that is tried. */
#define WRONG(...)                                                                                           \
  do {                                                                                                       \
    if (!trial.on) fail_msg(__VA_ARGS__);                                                                    \
    if (!*trial.wrong) snprintf(trial.wrong, sizeof trial.wrong, __VA_ARGS__);                               \
  } while (0)

/* The call succeeds. */
#define MUST(call)                                                                                           \
  do {                                                                                                       \
    mn_status must_status_ = (call);                                                                         \
    if (must_status_ != MN_OK) WRONG("%s: %d, %s", #call, must_status_, mn_message());                       \
  } while (0)

/* Skips the running test of cmocka's; tests/run.sh counts by the reason's words before a colon or a comma. */
#define SKIP(...)                                                                                            \
  do {                                                                                                       \
    print_message("skipped: " __VA_ARGS__);                                                                  \
    print_message("\n");                                                                                     \
    skip();                                                                                                  \
  } while (0)

#endif
