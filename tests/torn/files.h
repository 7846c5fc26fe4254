/* Small files of every kind that minnow reads, for those that damage them: tests/torn and tests/fuzz. */
#ifndef MN_TESTS_TORN_FILES_H
#define MN_TESTS_TORN_FILES_H

enum torn_kind { TORN_CHECKPOINT, TORN_DATASET, TORN_CASES, TORN_KINDS };

struct torn_file {
  const char *name; /* "adamw.h5" */
  enum torn_kind kind;
  int covered; /* checksums cover all of it: what reads without an error must be what was written */
};

extern const struct torn_file torn_files[]; /* ends with a NULL name */

/* Writes all of them into `folder`, which is there. The same bytes every time. Aborts where that fails. */
void torn_make(const char *folder);

#endif
