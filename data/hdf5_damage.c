/* The messages of a file that is damaged; see hdf5_file.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/hdf5_file.h"

mn_status mn_hdf5_broken(const struct mn_hdf5_file *file, const char *name, const char *reason) {
  const int error = file->reading->disk.error;
  if (error == ENOMEM) return mn_fail(MN_NO_MEMORY, "no memory to read %s: free some", file->path);
  if (error)
    return mn_fail(MN_IO, "cannot read %s: %s: check the disk or take a copy", file->path, strerror(error));
  return mn_fail(MN_BAD_DATA, "%s is damaged at %s (%s): %s", file->path, name, reason, file->remedy);
}

mn_status mn_hdf5_damaged(const struct mn_hdf5_file *file, const char *name) {
  char reason[160] = "HDF5: ";
  mn_hdf5_reason(reason + strlen(reason), sizeof reason - strlen(reason));
  return mn_hdf5_broken(file, name, reason);
}

mn_status mn_hdf5_rows_damaged(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                               const hsize_t *start, const hsize_t *count, const char *reason) {
  char name[160];
  snprintf(name, sizeof name, "%.100s", dataset->name);
  if (dataset->rank > 0)
    snprintf(name, sizeof name, "%.100s, rows %llu to %llu", dataset->name, (unsigned long long)start[0],
             (unsigned long long)(start[0] + count[0] - 1));
  return reason ? mn_hdf5_broken(file, name, reason) : mn_hdf5_damaged(file, name);
}
