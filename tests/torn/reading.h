/* Reads a file of torn_make's in every way that minnow reads files of its kind, and compares what comes with
 * what the undamaged file held. */
#ifndef MN_TESTS_TORN_READING_H
#define MN_TESTS_TORN_READING_H

#include <stddef.h>

#include "tests/torn/files.h"

enum torn_outcome {
  TORN_REFUSED,           /* by MN_BAD_DATA and one line */
  TORN_EQUAL,             /* read, and as it was */
  TORN_OTHER,             /* read, with other values, in a file that checksums do not cover */
  TORN_BAD,               /* from here on what must not be */
  TORN_UNSEEN = TORN_BAD, /* read, with other values, in one that they do */
  TORN_WRONG,             /* another status, a message of several lines, objects left open */
  TORN_CRASH,             /* a signal, or a sanitizer's report */
  TORN_HANG,
  TORN_OUTCOMES
};

/* What the file at `path` holds, undamaged; to be freed with torn_forget. Aborts where it cannot be read. */
struct torn_content;
struct torn_content *torn_learn(const struct torn_file *file, const char *path);
void torn_forget(struct torn_content *content);

/* Reads the file at `path`. After TORN_BAD and above, *what says more. */
enum torn_outcome torn_read(const struct torn_content *content, const char *path, char *what, size_t size);

#endif
