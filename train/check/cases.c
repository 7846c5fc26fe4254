/* Reading cases. A case file may come from anywhere: all of it is read through data/hdf5/file.h. */
#include "train/check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5/file.h"
#include "kernels/text.h"
#include "train/rule.h"

/* A case on its way from a file. mn_hdf5_close closes the group, and a dataset that an error leaves open. */
struct reader {
  struct mn_hdf5_file file;
  struct mn_hdf5_object group;
  struct mn_case *into;
  int index; /* of the case in its file */
};

static mn_status read_number(struct reader *reader, const char *name, double *out) {
  struct mn_hdf5_value value;
  MN_TRY(mn_hdf5_attribute(&reader->file, &reader->group, name, 0, &value));
  if (value.count == 1 && mn_hdf5_number(&value, 0, out)) return MN_OK;
  return mn_fail(MN_BAD_DATA, "case %s: no attribute '%s' that is a number", reader->into->name, name);
}

static mn_status read_integer(struct reader *reader, const char *name, int64_t *out) {
  double value;
  MN_TRY(read_number(reader, name, &value));
  if (!(value >= 0 && value < 1e9))
    return mn_fail(MN_BAD_DATA, "case %s: attribute '%s' is %g", reader->into->name, name, value);
  *out = (int64_t)value;
  return MN_OK;
}

/* Refuses a dataset unless it holds `count` numbers that can be read. */
static mn_status check_array(struct reader *reader, const struct mn_hdf5_object *set, int64_t count) {
  const char *of = reader->into->name;
  if (set->kind != MN_HDF5_DATASET) return mn_fail(MN_BAD_DATA, "case %s: no dataset '%s'", of, set->name);
  if (set->class != H5T_INTEGER && set->class != H5T_FLOAT)
    return mn_fail(MN_BAD_DATA, "case %s: dataset '%s' is of type %s, not of numbers", of, set->name,
                   set->type);
  MN_TRY(mn_hdf5_check(&reader->file, set));
  if (set->bytes / set->element == (uint64_t)count) return MN_OK;
  return mn_fail(MN_BAD_DATA, "case %s: dataset '%s' should hold %ld numbers, not %ld", of, set->name,
                 (long)count, (long)(set->bytes / set->element));
}

static mn_status read_array(struct reader *reader, const char *name, int64_t count) {
  struct mn_case *into = reader->into;
  struct mn_hdf5_object set;
  struct mn_hdf5_slab slab;
  MN_REQUIRE(into->count < MN_CASE_ARRAYS && count > 0);
  MN_TRY(mn_hdf5_find(&reader->file, &reader->group, name, &set));
  MN_TRY(check_array(reader, &set, count));
  double *values = malloc((size_t)count * sizeof *values);
  if (!values) return mn_fail(MN_NO_MEMORY, "no memory for case %s", into->name);
  snprintf(into->arrays[into->count].name, sizeof into->arrays[0].name, "%s", name);
  into->arrays[into->count].count = count;
  into->arrays[into->count++].values = values;
  mn_hdf5_slab_rows(&slab, set.rank, set.shape, 0, sizeof *values);
  for (; slab.elements; values += slab.elements, mn_hdf5_slab_next(&slab))
    MN_TRY(mn_hdf5_read(&reader->file, &set, MN_HDF5_DOUBLE, &slab, values));
  mn_hdf5_release(&set);
  return MN_OK;
}

/* fc.weight, fc.bias, gn.weight and gn.bias under `prefix`. */
static mn_status read_parameters(struct reader *reader, const char *prefix) {
  const struct mn_case *c = reader->into;
  static const char *const names[] = {"fc.weight", "fc.bias", "gn.weight", "gn.bias"};
  for (int i = 0; i < 4; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", prefix, names[i]);
    MN_TRY(read_array(reader, name, i == 0 ? c->model.hidden[0] * c->model.inputs : c->model.hidden[0]));
  }
  return MN_OK;
}

/* Without the attribute `optimizer` it is SGD, as in the first files of cases. */
static mn_status read_optimizer(struct reader *reader, struct mn_rule *rule) {
  struct mn_hdf5_value optimizer;
  int kind = MN_SGD;
  MN_TRY(mn_hdf5_attribute(&reader->file, &reader->group, "optimizer", 0, &optimizer));
  if (optimizer.kind != MN_VALUE_NONE &&
      (optimizer.kind != MN_VALUE_TEXT ||
       mn_word_find(&kind, "optimizer", mn_optimizer_words, optimizer.text) != MN_OK))
    return mn_fail(MN_BAD_DATA, "case %s: attribute 'optimizer' is neither \"sgd\" nor \"adamw\"",
                   reader->into->name);
  rule->kind = (enum mn_rule_kind)kind;
  for (int i = 0; i < MN_RULE_MEMBERS; i++) {
    const struct mn_rule_member *member = &mn_rule_members[i];
    char name[32];
    double value;
    snprintf(name, sizeof name, "%s", member->name);
    for (char *dash; (dash = strchr(name, '-'));) *dash = '_';
    if (!(member->rules >> kind & 1)) continue;
    MN_TRY(read_number(reader, name, &value));
    if (member->flag && value != 0 && value != 1)
      return mn_fail(MN_BAD_DATA, "case %s: attribute '%s' is %g, not 0 or 1", reader->into->name, name,
                     value);
    mn_rule_set(rule, member, value);
  }
  return MN_OK;
}

static mn_status read_training(struct reader *reader) {
  struct mn_case *c = reader->into;
  int64_t steps = 0;
  MN_TRY(read_integer(reader, "steps", &steps));
  if (steps < 1) return mn_fail(MN_BAD_DATA, "case %s: attribute 'steps' must be 1 or more", c->name);
  c->steps = (int)steps;
  MN_TRY(read_number(reader, "lr", &c->rate));
  c->optimizer.accumulate = 1;
  MN_TRY(read_optimizer(reader, &c->optimizer.rule));
  MN_TRY(read_array(reader, "target", c->rows * c->model.hidden[0]));
  struct mn_hdf5_object weights;
  MN_TRY(mn_hdf5_find(&reader->file, &reader->group, "weights", &weights));
  const int weighs = weights.kind != MN_HDF5_NOTHING;
  mn_hdf5_release(&weights);
  if (weighs) MN_TRY(read_array(reader, "weights", c->rows));
  MN_TRY(read_array(reader, "losses", steps));
  MN_TRY(read_parameters(reader, "initial/"));
  return read_parameters(reader, "final/");
}

static mn_status read_gradients(struct reader *reader) {
  struct mn_case *c = reader->into;
  int64_t elements = c->rows * c->model.hidden[0];
  MN_TRY(read_parameters(reader, ""));
  MN_TRY(read_array(reader, "dy", elements));
  MN_TRY(read_array(reader, "z", elements));
  MN_TRY(read_array(reader, "y", elements));
  MN_TRY(read_array(reader, "mean", c->rows * c->model.groups));
  MN_TRY(read_array(reader, "rstd", c->rows * c->model.groups));
  MN_TRY(read_array(reader, "grad/x", c->rows * c->model.inputs));
  return read_parameters(reader, "grad/");
}

/* Counts the cases, and opens this one. */
static mn_status take_case(void *data, const char *name) {
  struct reader *reader = data;
  struct mn_case *c = reader->into;
  if (c->cases++ != reader->index) return MN_OK;
  snprintf(c->name, sizeof c->name, "%s", name);
  return mn_hdf5_find(&reader->file, &reader->file.root, c->name, &reader->group);
}

static mn_status read_case(struct reader *reader) {
  struct mn_hdf5_file *file = &reader->file;
  struct mn_case *c = reader->into;
  struct mn_model_config *m = &c->model;
  struct mn_hdf5_value steps;
  MN_TRY(mn_hdf5_members(file, &file->root, take_case, reader));
  if (c->cases == 0) return mn_fail(MN_BAD_DATA, "%s holds no objects, so no cases", file->path);
  if (reader->group.kind != MN_HDF5_GROUP)
    return mn_fail(MN_BAD_DATA, "%s: '%s' is no group, so no case; parity wants one group a case", file->path,
                   c->name);
  MN_TRY(read_integer(reader, "N", &c->rows));
  MN_TRY(read_integer(reader, "I", &m->inputs));
  MN_TRY(read_integer(reader, "C", &m->hidden[0]));
  MN_TRY(read_integer(reader, "G", &m->groups));
  if (!c->rows || !m->inputs || !m->hidden[0] || !m->groups || m->hidden[0] % m->groups)
    return mn_fail(MN_BAD_DATA, "case %s: N, I, C and G must be 1 or more, and G divide C", c->name);
  MN_TRY(read_number(reader, "eps", &m->eps));
  MN_TRY(read_number(reader, "negative_slope", &m->slope));
  MN_TRY(read_array(reader, "x", c->rows * c->model.inputs));
  MN_TRY(mn_hdf5_attribute(file, &reader->group, "steps", 0, &steps));
  return steps.kind == MN_VALUE_NONE ? read_gradients(reader) : read_training(reader);
}

mn_status mn_case_read(const char *path, int index, struct mn_case *out) {
  struct reader reader = {.into = out, .index = index};
  *out = (struct mn_case){.model = mn_model_defaults()};
  out->model.depth = 1;
  MN_TRY(mn_hdf5_open(&reader.file, path, "parity needs a file of cases, such as tests/golden/block.h5", 1));
  mn_status status = read_case(&reader);
  mn_hdf5_close(&reader.file);
  if (status == MN_BAD_DATA && strncmp(mn_message(), "case ", 5) == 0)
    status = mn_fail(status, "%s: %s", path, mn_message());
  if (status != MN_OK) mn_case_free(out);
  return status;
}

void mn_case_free(struct mn_case *c) {
  for (int i = 0; i < c->count; i++) free(c->arrays[i].values);
  c->count = 0;
}

double *mn_case_array(const struct mn_case *c, const char *name, int64_t *count) {
  for (int i = 0; i < c->count; i++)
    if (strcmp(c->arrays[i].name, name) == 0) {
      if (count) *count = c->arrays[i].count;
      return c->arrays[i].values;
    }
  MN_REQUIRE(strcmp(name, "weights") == 0);
  return NULL;
}
