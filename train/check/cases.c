/* Reading cases. All of HDF5 behind the one lock; a case is small, so it is held for a case at a time. */
#include "train/check/cases.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/hdf5.h"

static mn_status open_file(const char *path, hid_t *file) {
  if (access(path, R_OK) != 0)
    return mn_fail(MN_NO_INPUT, "%s: %s; parity needs a file of cases, such as tests/golden/block.h5", path,
                   strerror(errno));
  *file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  char reason[160];
  if (*file < 0)
    return mn_fail(MN_BAD_DATA, "%s is not a whole HDF5 file: %s", path,
                   mn_hdf5_reason(reason, sizeof reason));
  return MN_OK;
}

mn_status mn_cases_count(const char *path, int *count) {
  hid_t file = -1;
  mn_hdf5_lock();
  mn_status status = open_file(path, &file);
  H5G_info_t info = {0};
  if (status == MN_OK && (H5Gget_info(file, &info) < 0 || info.nlinks == 0))
    status = mn_fail(MN_BAD_DATA, "%s holds no cases", path);
  *count = (int)info.nlinks;
  if (file >= 0) H5Fclose(file);
  mn_hdf5_unlock();
  return status;
}

static mn_status read_number(hid_t group, const char *of, const char *name, double *out) {
  hid_t attribute = H5Aopen(group, name, H5P_DEFAULT);
  herr_t read = attribute >= 0 ? H5Aread(attribute, H5T_NATIVE_DOUBLE, out) : -1;
  if (attribute >= 0) H5Aclose(attribute);
  return read >= 0 ? MN_OK : mn_fail(MN_BAD_DATA, "case %s: no attribute '%s' that is a number", of, name);
}

static mn_status read_integer(hid_t group, const char *of, const char *name, int64_t *out) {
  double value;
  MN_TRY(read_number(group, of, name, &value));
  if (!(value >= 0 && value < 1e9))
    return mn_fail(MN_BAD_DATA, "case %s: attribute '%s' is %g", of, name, value);
  *out = (int64_t)value;
  return MN_OK;
}

static mn_status read_array(hid_t group, struct mn_case *into, const char *name, int64_t count) {
  MN_REQUIRE(into->count < MN_CASE_ARRAYS && count > 0);
  hid_t set = H5Dopen2(group, name, H5P_DEFAULT), space = set >= 0 ? H5Dget_space(set) : -1;
  hssize_t stored = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  mn_status status = MN_OK;
  double *values = NULL;
  if (stored != count)
    status = mn_fail(MN_BAD_DATA, "case %s: dataset '%s' should hold %ld numbers, not %ld", into->name, name,
                     (long)count, (long)stored);
  else if (!(values = malloc((size_t)count * sizeof *values)))
    status = mn_fail(MN_NO_MEMORY, "no memory for case %s", into->name);
  else if (H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
    status = mn_fail(MN_BAD_DATA, "case %s: dataset '%s' cannot be read", into->name, name);
  if (space >= 0) H5Sclose(space);
  if (set >= 0) H5Dclose(set);
  if (status != MN_OK) {
    free(values);
    return status;
  }
  snprintf(into->arrays[into->count].name, sizeof into->arrays[0].name, "%s", name);
  into->arrays[into->count].count = count;
  into->arrays[into->count++].values = values;
  return MN_OK;
}

/* fc.weight, fc.bias, gn.weight and gn.bias under `prefix`. */
static mn_status read_parameters(hid_t group, struct mn_case *c, const char *prefix) {
  static const char *const names[] = {"fc.weight", "fc.bias", "gn.weight", "gn.bias"};
  for (int i = 0; i < 4; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", prefix, names[i]);
    MN_TRY(read_array(group, c, name, i == 0 ? c->channels * c->inputs : c->channels));
  }
  return MN_OK;
}

static mn_status read_training(hid_t group, struct mn_case *c) {
  int64_t steps = 0, nesterov = 0;
  MN_TRY(read_integer(group, c->name, "steps", &steps));
  MN_TRY(read_integer(group, c->name, "nesterov", &nesterov));
  c->steps = (int)steps, c->nesterov = (int)nesterov;
  MN_TRY(read_number(group, c->name, "lr", &c->rate));
  MN_TRY(read_number(group, c->name, "momentum", &c->momentum));
  MN_TRY(read_number(group, c->name, "weight_decay", &c->weight_decay));
  MN_TRY(read_array(group, c, "target", c->rows * c->channels));
  MN_TRY(read_array(group, c, "losses", steps));
  MN_TRY(read_parameters(group, c, "initial/"));
  return read_parameters(group, c, "final/");
}

static mn_status read_gradients(hid_t group, struct mn_case *c) {
  int64_t elements = c->rows * c->channels;
  MN_TRY(read_parameters(group, c, ""));
  MN_TRY(read_array(group, c, "dy", elements));
  MN_TRY(read_array(group, c, "z", elements));
  MN_TRY(read_array(group, c, "y", elements));
  MN_TRY(read_array(group, c, "mean", c->rows * c->groups));
  MN_TRY(read_array(group, c, "rstd", c->rows * c->groups));
  MN_TRY(read_array(group, c, "grad/x", c->rows * c->inputs));
  return read_parameters(group, c, "grad/");
}

static mn_status read_case(hid_t group, struct mn_case *c) {
  MN_TRY(read_integer(group, c->name, "N", &c->rows));
  MN_TRY(read_integer(group, c->name, "I", &c->inputs));
  MN_TRY(read_integer(group, c->name, "C", &c->channels));
  MN_TRY(read_integer(group, c->name, "G", &c->groups));
  if (!c->rows || !c->inputs || !c->channels || !c->groups || c->channels % c->groups)
    return mn_fail(MN_BAD_DATA, "case %s: N, I, C and G must be 1 or more, and G divide C", c->name);
  MN_TRY(read_number(group, c->name, "eps", &c->eps));
  MN_TRY(read_number(group, c->name, "negative_slope", &c->slope));
  MN_TRY(read_array(group, c, "x", c->rows * c->inputs));
  return H5Aexists(group, "steps") > 0 ? read_training(group, c) : read_gradients(group, c);
}

mn_status mn_case_read(const char *path, int index, struct mn_case *out) {
  *out = (struct mn_case){0};
  hid_t file = -1, group = -1;
  mn_hdf5_lock();
  mn_status status = open_file(path, &file);
  if (status == MN_OK && (H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, (hsize_t)index, out->name,
                                             sizeof out->name, H5P_DEFAULT) < 0 ||
                          (group = H5Gopen2(file, out->name, H5P_DEFAULT)) < 0))
    status = mn_fail(MN_BAD_DATA, "%s: '%s' is no group, so no case; parity wants one group a case", path,
                     out->name);
  if (status == MN_OK) status = read_case(group, out);
  if (group >= 0) H5Gclose(group);
  if (file >= 0) H5Fclose(file);
  mn_hdf5_unlock();
  if (status != MN_OK) mn_case_free(out);
  return status;
}

void mn_case_free(struct mn_case *c) {
  for (int i = 0; i < c->count; i++) free(c->arrays[i].values);
  c->count = 0;
}

const double *mn_case_array(const struct mn_case *c, const char *name, int64_t *count) {
  for (int i = 0; i < c->count; i++)
    if (strcmp(c->arrays[i].name, name) == 0) {
      if (count) *count = c->arrays[i].count;
      return c->arrays[i].values;
    }
  mn_abort(__FILE__, __LINE__, name);
}
