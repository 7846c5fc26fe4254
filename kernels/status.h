/* The status that a call returns if it can fail, and its message.
 *
 * Two tiers. A failure that a user can cause (files, arguments, memory, a missing device) is a mn_status with
 * a message; the codes are the command's exit codes, from sysexits.h. For a broken invariant of our own
 * MN_REQUIRE aborts with file, line and condition, in release builds too.
 *
 * This lives in kernels/, the lowest folder, because the kernels return it. Of the headers above them they
 * include train/minnow.h alone, by this one: the public types, which include nothing of ours. */
#ifndef MN_KERNELS_STATUS_H
#define MN_KERNELS_STATUS_H

#include <stdint.h>
#include <string.h>

#include "train/minnow.h"

/* MN_C declares a function with C linkage, also if a .cu file includes the header. MN_API does the same and
 * exports it from libminnow.so, for minnow_torch; else that exports what train/minnow.h declares. */
#ifdef __cplusplus
#define MN_C extern "C"
#else
#define MN_C
#endif
#define MN_API MN_C __attribute__((visibility("default")))

/* Bytes of a message, with its end: a longer one is cut off. */
enum { MN_MESSAGE = 4096 };

/* Sets the calling thread's message (printf-like: what, its value, and what would do) and returns `status`.
 */
MN_C mn_status mn_fail(mn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints file, line and the broken condition to stderr and aborts. */
MN_C void mn_abort(const char *file, int line, const char *condition) __attribute__((noreturn));

/* Returns from the calling function, with its status, when `call` fails. */
#define MN_TRY(call)                                                                                         \
  do {                                                                                                       \
    mn_status try_status_ = (call);                                                                          \
    if (try_status_ != MN_OK) return try_status_;                                                            \
  } while (0)

/* For what programs call: MN_USAGE, by name, if one of the arguments is NULL. MN_OPENS: the first is an
 * `out`, which is NULL after any error. */
#define MN_GIVEN(...) MN_GIVEN_OR_OPENS(0, __VA_ARGS__)
#define MN_OPENS(...) MN_GIVEN_OR_OPENS(1, __VA_ARGS__)
#define MN_GIVEN_OR_OPENS(opens, ...)                                                                        \
  do {                                                                                                       \
    const void *const given_[] = {__VA_ARGS__};                                                              \
    const int count_ = (int)(sizeof given_ / sizeof *given_);                                                \
    if (opens && given_[0]) memset((void *)(uintptr_t)given_[0], 0, sizeof(void *));                         \
    for (int i_ = 0; i_ < count_; i_++)                                                                      \
      if (!given_[i_]) return mn_lacks(__func__, #__VA_ARGS__, i_);                                          \
  } while (0)
/* The error for argument `index` of a function, of whose arguments `names` are between commas. */
MN_C mn_status mn_lacks(const char *function, const char *names, int index);

/* An invariant of ours, checked in release builds too. */
#define MN_REQUIRE(condition)                                                                                \
  do {                                                                                                       \
    if (!(condition)) mn_abort(__FILE__, __LINE__, #condition);                                              \
  } while (0)

#endif
