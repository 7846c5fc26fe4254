/* The tensors of a file that do not fit a model, in one message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint/reader.h"

/* "float64 [8, 4]", "a group" */
static void describe_object(char *out, size_t size, const struct mn_hdf5_object *object) {
  char shape[200];
  mn_hdf5_shape(shape, sizeof shape, object);
  if (object->kind == MN_HDF5_DATASET)
    snprintf(out, size, "%s %s", object->type, shape);
  else
    snprintf(out, size, "%s", object->kind == MN_HDF5_GROUP ? "a group" : "a named type");
}

/* All tensors of a checkpoint have the width of the first. */
static int has_type(struct mn_reader *reader, const struct mn_hdf5_object *found,
                    struct mn_checkpoint_tensor *tensor) {
  const size_t widest = 16; /* bytes of a long double */
  if (found->kind != MN_HDF5_DATASET || found->class != H5T_FLOAT) return 0;
  if (reader->weights) return found->element <= widest;
  if (tensor->real == 0) tensor->real = found->element;
  return found->element == tensor->real && (tensor->real == 4 || tensor->real == 8);
}

/* Appends "; NAME is …" to the misfits if what was found does not fit the tensor. */
static void compare(struct mn_reader *reader, FILE *misfits, const struct mn_hdf5_object *found,
                    struct mn_checkpoint_tensor *tensor) {
  char has[240], wanted[64];
  const int typed = has_type(reader, found, tensor);
  const char *floats = reader->weights || tensor->real == 0 ? "floats"
                       : tensor->real == 8                  ? "float64"
                                                            : "float32";
  const struct mn_hdf5_object fit = {
      .rank = tensor->rank,
      .shape = {(hsize_t)(tensor->rank == 2 ? tensor->rows : tensor->cols), (hsize_t)tensor->cols}};
  const size_t shape = (size_t)fit.rank * sizeof fit.shape[0];
  mn_hdf5_shape(wanted, sizeof wanted, &fit);
  describe_object(has, sizeof has, found);
  if (found->kind == MN_HDF5_NOTHING)
    fprintf(misfits, "; %s is missing, wanted %s", tensor->name, wanted);
  else if (!typed)
    fprintf(misfits, "; %s is %s, wanted %s %s", tensor->name, has, floats, wanted);
  else if (found->layout != H5D_VIRTUAL && /* a virtual one is refused when read */
           (found->rank != fit.rank || memcmp(found->shape, fit.shape, shape) != 0))
    fprintf(misfits, "; %s is %s, wanted %s", tensor->name, has, wanted);
}

/* Lists a member of the group that is none of the tensors. */
static mn_status list_rest(void *data, const char *name) {
  const struct mn_reader_tensors *t = data;
  struct mn_hdf5_object member;
  char has[240];
  for (int k = 0; k < t->count; k++)
    if (strcmp(t->tensors[k].name, name) == 0) return MN_OK;
  MN_TRY(mn_hdf5_find(&t->reader->file, &t->group, name, &member));
  describe_object(has, sizeof has, &member);
  mn_hdf5_release(&member);
  fprintf(t->misfits, "; %s is left over, %s", name, has);
  return MN_OK;
}

static mn_status list_misfits(struct mn_reader *reader, struct mn_reader_tensors *t) {
  for (int i = 0; i < t->count; i++) {
    struct mn_hdf5_object found;
    MN_TRY(mn_hdf5_find(&reader->file, &t->group, t->tensors[i].name, &found));
    if (i > 0 && !reader->weights) t->tensors[i].real = t->tensors[0].real;
    compare(reader, t->misfits, &found, &t->tensors[i]);
    mn_hdf5_release(&found);
  }
  return mn_hdf5_members(&reader->file, &t->group, list_rest, t);
}

mn_status mn_reader_fit(struct mn_reader *reader, struct mn_reader_tensors *t) {
  enum { MOST = MN_MESSAGE * 3 / 4 }; /* bytes shown */
  char *text = NULL;
  size_t size = 0;
  t->misfits = open_memstream(&text, &size);
  mn_status status = t->misfits ? list_misfits(reader, t) : MN_OK;
  if (!t->misfits || fclose(t->misfits) != 0)
    status = mn_fail(MN_NO_MEMORY, "no memory to check %s of %s", t->path, reader->file.path);
  else if (status == MN_OK && size > 0)
    status = mn_fail(MN_BAD_DATA, "%s: %s does not fit the model: %.*s%s: %s", reader->file.path, t->path,
                     MOST, text + 2, size > MOST + 2 ? " …" : "",
                     reader->weights ? "give the model these sizes, or write the file for it"
                                     : reader->file.remedy);
  free(text);
  return status;
}
