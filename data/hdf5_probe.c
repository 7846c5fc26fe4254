/* Trying a file out in a child process; see hdf5_probe.h. */
#include "data/hdf5_probe.h"

#include "data/hdf5_child.h"
#include "kernels/clock.h"

enum { DEEPEST = 16, NAME_SIZE = 1024, SECONDS = 5 };

static const double most_seconds = 2;

/* Errors are passed over: only a crash counts. */
static void try_out(const struct mn_hdf5_file *file, const struct mn_hdf5_object *object, int depth,
                    double until) {
  hsize_t count = 0;
  mn_hdf5_attributes(file, object, H5_INDEX_NAME, 1, NULL, NULL);
  if (object->kind == MN_HDF5_GROUP && depth < DEEPEST) mn_hdf5_count(file, object, &count);
  for (hsize_t i = 0; i < count && mn_seconds() < until; i++) {
    char name[NAME_SIZE];
    struct mn_hdf5_object member;
    if (mn_hdf5_member(file, object, i, name, sizeof name) != MN_OK) continue;
    if (mn_hdf5_find(file, object, name, &member) != MN_OK) continue;
    if (member.id >= 0) try_out(file, &member, depth + 1, until);
    mn_hdf5_release(&member);
  }
}

static mn_status try_all(void *data, void *shared) {
  struct mn_hdf5_file file = *(const struct mn_hdf5_file *)data;
  (void)shared;
  file.root.id = mn_hdf5_disk_open(&file.reading->disk, file.path, -1);
  if (file.root.id >= 0) try_out(&file, &file.root, 0, mn_seconds() + most_seconds);
  return MN_OK;
}

mn_status mn_hdf5_probe(const struct mn_hdf5_file *file) {
  void *shared, *data = (void *)file;
  int died;
  mn_status status = mn_child_run(try_all, data, SECONDS, 1, &shared, &died);
  mn_child_free(shared, 1);
  return status == MN_OK && died ? mn_hdf5_broken(file, "its objects", MN_HDF5_CRASHED) : status;
}
