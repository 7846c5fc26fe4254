/* `minnow predict`: the outputs of a model, as HDF5. */
#include "train/command/outputs.h"

#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5/file.h"
#include "data/hdf5/hdf5.h"
#include "data/held_out.h"
#include "kernels/text.h"
#include "train/checkpoint/atomic_file.h"
#include "train/fit.h"

/* The datasets of the file of outputs. */
enum { Y, LABEL, ROW, OUTSIDE, TARGET, NAMES, SETS };
static const char *const set_names[SETS] = {"y", "label", "row", "outside", "target", "classes"};

/* The file of outputs, which is renamed to --out when it is complete. */
struct output {
  struct mn_atomic_file on_disk;
  struct mn_hdf5_disk disk;
  hid_t file, sets[SETS]; /* below 0 if the file lacks it */
  struct mn_dataset *rows;
  int64_t cols;
  size_t real; /* bytes of an output in the file */
  int classes, targets, probabilities, outside;
  const struct mn_class_names *names;
  void *room; /* for a batch of one of the datasets */
};

static mn_status cannot_write(const struct output *o) {
  if (o->disk.error) return mn_atomic_file_fail("write", o->on_disk.path, o->disk.error);
  return mn_fail(MN_LIBRARY, "--out %s: HDF5 failed: %s", o->on_disk.path,
                 o->disk.reason ? o->disk.reason : mn_hdf5_reason());
}

/* Creates one of the datasets: [rows], or with cols above 0 [rows, cols]. */
static mn_status create(struct output *o, int set, hid_t type, int64_t cols) {
  mn_hdf5_lock();
  o->sets[set] = mn_hdf5_create(o->file, set_names[set], type, cols ? 2 : 1,
                                (hsize_t[]){(hsize_t)o->rows->rows, (hsize_t)cols});
  mn_status status = o->sets[set] < 0 ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

static mn_status create_output(struct output *o) {
  mn_hdf5_lock();
  o->disk.fd = o->on_disk.fd;
  hid_t creation = H5Pcreate(H5P_FILE_CREATE);
  if (creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0)
    o->file = mn_hdf5_disk_open(&o->disk, o->on_disk.path, creation);
  if (creation >= 0) H5Pclose(creation);
  mn_status status = o->file < 0 ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  MN_TRY(status);
  MN_TRY(create(o, Y, o->real == sizeof(double) ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, o->cols));
  if (o->classes) MN_TRY(create(o, LABEL, H5T_STD_I32LE, 0));
  if (o->outside) MN_TRY(create(o, OUTSIDE, H5T_STD_U8LE, 0));
  return create(o, ROW, H5T_STD_I64LE, 0);
}

/* The names of the classes: that of label l has the index l. */
static mn_status write_names(struct output *o) {
  const hsize_t count = (hsize_t)o->names->count;
  const struct mn_hdf5_slab all = {.rank = 1, .count = {count}};
  if (count == 0) return MN_OK;
  mn_hdf5_lock();
  hid_t type = mn_hdf5_text_type(MN_CLASS_NAME);
  if (type >= 0) o->sets[NAMES] = mn_hdf5_create(o->file, set_names[NAMES], type, 1, &count);
  const int failed = o->sets[NAMES] < 0 || mn_hdf5_write(o->sets[NAMES], type, &all, o->names->names) < 0;
  mn_status status = failed ? cannot_write(o) : MN_OK;
  if (type >= 0) H5Tclose(type);
  mn_hdf5_unlock();
  return status;
}

/* Writes rows first … first + count − 1 of a dataset; cols as for `create`. */
static mn_status put(struct output *o, int set, hid_t type, int64_t cols, int64_t first, int64_t count,
                     const void *values) {
  struct mn_hdf5_slab rows = {
      .rank = cols ? 2 : 1, .start = {(hsize_t)first}, .count = {(hsize_t)count, (hsize_t)cols}};
  mn_hdf5_lock();
  mn_status status = mn_hdf5_write(o->sets[set], type, &rows, values) < 0 ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

static mn_status write_targets(struct output *o, int64_t batch) {
  const struct mn_dataset *d = o->rows;
  const int64_t cols = d->classes ? 0 : d->outputs;
  const int wide = o->real == sizeof(double);
  const hid_t stored = d->classes ? H5T_STD_I32LE : wide ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
  const hid_t memory = d->classes ? H5T_NATIVE_INT32 : wide ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
  MN_TRY(create(o, TARGET, stored, cols));
  for (int64_t first = 0, count; first < d->rows; first += count) {
    count = d->rows - first < batch ? d->rows - first : batch;
    MN_TRY(d->read(o->rows, first, count, o->real, NULL, o->room));
    MN_TRY(put(o, TARGET, memory, cols, first, count, o->room));
  }
  return MN_OK;
}

/* Targets that cannot be read, such as NaN for a target to be predicted, are left out: the outputs do not
 * depend on them. */
static mn_status copy_targets(struct output *o, int64_t batch) {
  o->targets = o->rows->outputs > 0;
  mn_status status = o->targets ? write_targets(o, batch) : MN_OK;
  if (status != MN_BAD_DATA) return status;
  o->targets = 0;
  mn_escape_print(stderr, "minnow: warning: %s gets no target: %s\n", o->on_disk.path, mn_message());
  mn_hdf5_lock();
  int failed = H5Dclose(o->sets[TARGET]) < 0 || H5Ldelete(o->file, set_names[TARGET], H5P_DEFAULT) < 0;
  o->sets[TARGET] = -1;
  status = failed ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

static mn_status write_rows(void *to, const struct mn_outputs *outputs) {
  struct output *o = to;
  const double *y = outputs->y;
  const int64_t first = outputs->first, count = outputs->count;
  int32_t *labels = o->room;
  int64_t *rows = o->room;
  if (o->classes) {
    for (int64_t n = 0; n < count; n++) labels[n] = mn_class_of(y + n * o->cols, o->cols);
    MN_TRY(put(o, LABEL, H5T_NATIVE_INT32, 0, first, count, labels));
  }
  for (int64_t n = 0; n < count; n++) rows[n] = mn_dataset_row(o->rows, first + n);
  MN_TRY(put(o, ROW, H5T_NATIVE_INT64, 0, first, count, rows));
  if (o->outside) MN_TRY(put(o, OUTSIDE, H5T_NATIVE_UINT8, 0, first, count, outputs->outside));
  for (int64_t n = 0; n < count && o->probabilities; n++)
    mn_softmax((double *)o->room + n * o->cols, y + n * o->cols, o->cols);
  return put(o, Y, H5T_NATIVE_DOUBLE, o->cols, first, count, o->probabilities ? o->room : y);
}

/* Closes the file, and renames it to --out if all went well. */
static mn_status finish_output(struct output *o, int replace, mn_status status) {
  int failed = 0;
  mn_hdf5_lock();
  for (int i = 0; i < SETS; i++) failed = (o->sets[i] >= 0 && H5Dclose(o->sets[i]) < 0) || failed;
  failed = (o->file >= 0 && H5Fclose(o->file) < 0) || failed;
  if ((failed || o->disk.error) && status == MN_OK) status = cannot_write(o);
  mn_hdf5_unlock();
  if (status == MN_OK) return mn_atomic_file_publish(&o->on_disk, replace);
  mn_atomic_file_discard(&o->on_disk);
  return status;
}

static mn_status fill_output(struct output *o, struct mn_session *s) {
  MN_TRY(create_output(o));
  MN_TRY(write_names(o));
  MN_TRY(copy_targets(o, s->options.batch));
  return mn_outputs_each(s, write_rows, o);
}

static mn_status write_hdf5(FILE *out, struct mn_session *s) {
  struct output o = {.file = -1,
                     .sets = {-1, -1, -1, -1, -1, -1},
                     .names = &s->model->class_names,
                     .rows = s->test,
                     .cols = mn_model_outputs(&s->model->config),
                     .real = s->model->standard[MN_Y].mean ? sizeof(double) : s->model->device->real,
                     .classes = s->model->config.loss == MN_LOSS_CROSS_ENTROPY,
                     .probabilities = s->options.probabilities,
                     .outside = s->options.outside};
  const int64_t widest = s->test->classes || o.cols > s->test->outputs ? o.cols : s->test->outputs;
  if (!(o.room = calloc((size_t)s->options.batch * (size_t)widest, sizeof(double))))
    return mn_fail(MN_NO_MEMORY, "no memory for the outputs of a batch");
  mn_status status = mn_atomic_file_create(&o.on_disk, s->options.out);
  if (status == MN_OK) status = finish_output(&o, s->options.force, fill_output(&o, s));
  free(o.room);
  MN_TRY(status);
  mn_session_announce_rows(s);
  mn_escape_print(out, "%s: y [%ld, %ld]%s%s, row%s%s%s\n", s->options.out, (long)s->test->rows, (long)o.cols,
                  o.probabilities ? " of probabilities" : "", o.classes ? ", label" : "",
                  o.outside ? ", outside" : "", o.targets ? ", target" : "",
                  o.names->count ? ", classes" : "");
  return MN_OK;
}

mn_status mn_write_outputs(FILE *out, struct mn_session *s) {
  if (s->options.probabilities && s->model->config.loss != MN_LOSS_CROSS_ENTROPY)
    return mn_fail(MN_USAGE,
                   "--probabilities is for classes, but the loss of %s is mse: leave --probabilities out",
                   s->options.checkpoint);
  if (s->options.outside && !s->model->standard[MN_X].mean)
    return mn_fail(MN_USAGE, "--outside goes by the columns' means, and %s was trained without: leave it out",
                   s->from_path);
  if (s->options.id && !mn_csv_named(s->options.out))
    return mn_fail(MN_USAGE, "--id is for a CSV, but --out %s is none: let it end in .csv, or leave --id out",
                   s->options.out);
  return (mn_csv_named(s->options.out) ? mn_write_csv : write_hdf5)(out, s);
}
