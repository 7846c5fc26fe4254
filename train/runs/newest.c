/* The newest checkpoint that a run may resume from. A file counts as damaged if two reads fail: HDF5 reports
 * a moment without memory as damage too. */
#include <stdio.h>
#include <string.h>

#include "train/checkpoint/layout.h"
#include "train/runs/folder.h"

/* Reads the file `name`. *damaged: it is damaged or missing, and an older one may take its place. */
static mn_status read_one(struct mn_checkpoint **out, const char *name, int *damaged) {
  int there;
  *damaged = 0;
  MN_TRY(mn_atomic_file_exists(name, &there));
  *damaged = 1;
  if (!there) return mn_fail(MN_NO_INPUT, "%s is missing", name);
  mn_status status = mn_checkpoint_read(out, name, damaged);
  if (status == MN_BAD_DATA && *damaged) status = mn_checkpoint_read(out, name, damaged);
  if (status != MN_BAD_DATA) *damaged = 0;
  return status;
}

/* Renames the files of the numbers that are `damaged`, but the best, and appends their new names to
 * `skipped`. */
static mn_status set_aside(const char *path, const char *damaged, char *skipped, size_t size) {
  for (int number = 0; number < MN_RUN_FILE_BEST; number++) {
    char name[MN_ATOMIC_FILE_PATH], renamed[MN_ATOMIC_FILE_PATH];
    if (!damaged[number] || mn_run_file_number(name, path, number) != 0) continue;
    MN_TRY(mn_run_file_set_aside(renamed, name, "damaged"));
    const size_t length = strlen(skipped);
    snprintf(skipped + length, size - length, "; kept as %s", renamed);
  }
  return MN_OK;
}

mn_status mn_checkpoint_load_newest(struct mn_checkpoint **out, const char *path,
                                    char used[MN_CHECKPOINT_PATH], char *skipped, size_t skipped_size) {
  MN_OPENS(out, path, used, skipped);
  char damaged[MN_RUN_FILE_BEST + 1] = {0}; /* by number: it is there, and does not verify */
  if (skipped_size < 1) return mn_fail(MN_USAGE, "no room for the names of files that are skipped");
  used[0] = skipped[0] = 0;
  for (int number = 0; number <= MN_RUN_FILE_BEST; number++) {
    int passed;
    if (mn_run_file_number(used, path, number) != 0) continue;
    mn_status status = read_one(out, used, &passed);
    if (status != MN_OK && !passed) return status;
    if (status == MN_NO_INPUT && number > 0) continue;
    if (status == MN_OK) {
      status = set_aside(path, damaged, skipped, skipped_size);
      if (status != MN_OK) mn_checkpoint_free(*out), *out = NULL;
      return status;
    }
    const size_t length = strlen(skipped);
    snprintf(skipped + length, skipped_size - length, *skipped ? "; %s" : "%s", mn_message());
    damaged[number] = status != MN_NO_INPUT;
  }
  if (!memchr(damaged, 1, sizeof damaged))
    return mn_fail(MN_NO_INPUT, "there is no checkpoint %s: check the name, or start a new run", path);
  return mn_fail(MN_BAD_DATA, "no checkpoint verifies: %s", skipped);
}
