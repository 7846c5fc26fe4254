/* Resuming takes the newest checkpoint that verifies: a run must not end because the last file it wrote is
 * bad while the one before it is whole. Which were passed over, and why, is told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"
#include "train/checkpoint/checkpoint.h"

/* Adds to skipped[size] why a file was passed over: the message at hand, which names it. */
static void note_skipped(char *skipped, size_t size) {
  size_t length = strlen(skipped);
  if (length + 1 < size) snprintf(skipped + length, size - length, "%s%s", length ? "; " : "", mn_message());
}

/* Tries `path` as number `number`. *there is set if there is such a file at all. */
static mn_status try_number(struct mn_checkpoint **out, const char *path, int number, char *used,
                            size_t used_size, int *there) {
  char name[MN_ATOMIC_FILE_PATH];
  if (mn_atomic_file_number(name, sizeof name, path, number) != 0)
    return mn_fail(MN_NO_INPUT, "%.60s…: too long a path", path);
  *there = access(name, F_OK) == 0;
  mn_status status = mn_checkpoint_load(out, name);
  if (status == MN_OK && used_size > 0) snprintf(used, used_size, "%s", name);
  return status;
}

mn_status mn_checkpoint_load_newest(struct mn_checkpoint **out, const char *path, char *used,
                                    size_t used_size, char *skipped, size_t skipped_size) {
  int *numbers, found = 0;
  char reasons[768] = "";
  *out = NULL;
  if (used_size > 0) used[0] = 0;
  if (skipped_size > 0) skipped[0] = 0;
  int count = mn_atomic_file_numbers(&numbers, path);
  if (count < 0) return mn_fail(MN_NO_MEMORY, "no memory for the names beside %s", path);
  mn_status status = MN_NO_INPUT;
  for (int i = -1; i < count; i++) {
    int there = 0;
    status = try_number(out, path, i < 0 ? 0 : numbers[i], used, used_size, &there);
    found |= there;
    if (status == MN_OK || status == MN_NO_MEMORY || status == MN_LIBRARY) break;
    if (!there && count > 0) mn_fail(status, "%s is missing", path);
    note_skipped(reasons, sizeof reasons);
  }
  free(numbers);
  if (skipped_size > 0) snprintf(skipped, skipped_size, "%s", reasons);
  if (status == MN_OK || status == MN_NO_MEMORY || status == MN_LIBRARY) return status;
  if (!found)
    return mn_fail(MN_NO_INPUT, "there is no checkpoint %s: check the name, or start without --resume", path);
  return mn_fail(MN_BAD_DATA, "no checkpoint verifies: %s", reasons);
}
