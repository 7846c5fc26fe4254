/* `minnow eval` and `minnow predict`: a trained model on other rows. */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/hdf5_file.h"
#include "kernels/escape.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/announce.h"
#include "train/command/session.h"
#include "train/command/train.h"
#include "train/evaluate.h"
#include "train/json.h"

typedef mn_status work(FILE *out, struct mn_session *s, struct mn_evaluator *evaluator);

/* Does `run` with a session and an evaluator over its rows. */
static mn_status with_evaluator(FILE *out, const struct mn_options *options, enum mn_pass_kind kind,
                                work *run) {
  struct mn_session s;
  struct mn_evaluator *evaluator = NULL;
  mn_status status = mn_session_read(&s, options, kind == MN_PASS_EVALUATE);
  enum mn_place place = MN_PLACE_AUTO;
  if (status == MN_OK) status = mn_place_parse(s.options.place, &place);
  if (status == MN_OK) status = mn_evaluator_open(&evaluator, s.model, s.test, kind, s.options.batch, place);
  if (status == MN_OK) status = run(out, &s, evaluator);
  mn_evaluator_close(evaluator);
  mn_session_close(&s);
  return status;
}

/* Said once all went well, so that an error is the one line that says so. */
static void describe(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  mn_announce_model(s->model, o);
  if (s->whole)
    mn_announce(o, "rows: %ld of %ld, those that the run %s by --validation %g; --part all takes all",
                (long)s->test->rows, (long)s->whole,
                strcmp(o->part, "train") == 0 ? "trained on, others being held out" : "held out",
                o->validation);
}

static mn_status eval(FILE *out, struct mn_session *s, struct mn_evaluator *evaluator) {
  double loss, accuracy;
  int64_t batches, all;
  char where[MN_FAULT_WORDS];
  MN_TRY(mn_evaluate(evaluator, &loss, &accuracy));
  const struct mn_fault *fault = mn_evaluator_fault(evaluator, &batches, &all);
  if (fault)
    return mn_fail(MN_FAILED, "there is no loss: %s is not finite (so in %ld of %ld batches of %s); %s",
                   mn_fault_words(where, fault), (long)batches, (long)all, s->options.data,
                   mn_fault_remedy(fault));
  describe(s);
  if (s->options.json) {
    struct mn_json json;
    mn_json_begin(&json, out);
    mn_json_open(&json, NULL);
    mn_json_integer(&json, "rows", s->test->rows);
    mn_json_number(&json, "loss", loss);
    mn_json_number(&json, "accuracy", accuracy);
    mn_json_close(&json);
  } else {
    fprintf(out, "%ld rows: loss %.6g", (long)s->test->rows, loss);
    if (!isnan(accuracy)) fprintf(out, ", accuracy %.2f %%", 100 * accuracy);
    fputc('\n', out);
  }
  return MN_OK;
}

mn_status mn_eval(FILE *out, const struct mn_options *options) {
  return with_evaluator(out, options, MN_PASS_EVALUATE, eval);
}

/* The file of outputs, which is renamed to --out when it is complete. */
struct output {
  struct mn_atomic_file on_disk;
  struct mn_hdf5_disk disk;
  hid_t file, y, label;
  int64_t cols;
  size_t real;
  int32_t *labels; /* room for a batch's; NULL without classes */
  int replace;     /* --out may exist */
};

static mn_status cannot_write(const struct output *o) {
  char reason[160];
  if (o->disk.error) return mn_atomic_file_fail("write", o->on_disk.path, o->disk.error);
  return mn_fail(MN_LIBRARY, "--out %s: HDF5 failed: %s", o->on_disk.path,
                 mn_hdf5_reason(reason, sizeof reason));
}

/* Creation properties of a file or dataset, to be closed, that store no times: equal outputs are equal files.
 */
static hid_t creation_of(hid_t class) {
  hid_t creation = H5Pcreate(class);
  if (creation < 0 || H5Pset_obj_track_times(creation, 0) >= 0) return creation;
  H5Pclose(creation);
  return -1;
}

static hid_t create(hid_t file, const char *name, hid_t type, int rank, int64_t rows, int64_t cols) {
  hid_t space = H5Screate_simple(rank, (hsize_t[]){(hsize_t)rows, (hsize_t)cols}, NULL);
  hid_t creation = creation_of(H5P_DATASET_CREATE), set = -1;
  if (space >= 0 && creation >= 0)
    set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  if (creation >= 0) H5Pclose(creation);
  if (space >= 0) H5Sclose(space);
  return set;
}

static mn_status create_output(struct output *o, int64_t rows) {
  mn_hdf5_lock();
  o->disk.fd = o->on_disk.fd;
  hid_t creation = creation_of(H5P_FILE_CREATE);
  if (creation >= 0) o->file = mn_hdf5_disk_open(&o->disk, o->on_disk.path, creation);
  if (creation >= 0) H5Pclose(creation);
  if (o->file >= 0)
    o->y =
        create(o->file, "y", o->real == sizeof(double) ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, 2, rows, o->cols);
  if (o->y >= 0 && o->labels) o->label = create(o->file, "label", H5T_STD_I32LE, 1, rows, 1);
  mn_status status = o->y < 0 || (o->labels && o->label < 0) ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

static double at(const struct output *o, const void *y, int64_t i) {
  return o->real == sizeof(double) ? ((const double *)y)[i] : ((const float *)y)[i];
}

static mn_status take(void *to, const void *y, int64_t first, int64_t count) {
  struct output *o = to;
  for (int64_t n = 0; n < count && o->labels; n++) {
    o->labels[n] = 0;
    for (int64_t k = 1; k < o->cols; k++)
      if (at(o, y, n * o->cols + k) > at(o, y, n * o->cols + o->labels[n])) o->labels[n] = (int32_t)k;
  }
  struct mn_hdf5_slab rows = {
      .rank = 2, .start = {(hsize_t)first}, .count = {(hsize_t)count, (hsize_t)o->cols}};
  mn_hdf5_lock();
  hid_t type = o->real == sizeof(double) ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
  int failed = mn_hdf5_write(o->y, type, &rows, y) < 0;
  rows.rank = 1;
  failed = failed || (o->labels && mn_hdf5_write(o->label, H5T_NATIVE_INT32, &rows, o->labels) < 0);
  mn_status status = failed ? cannot_write(o) : MN_OK;
  mn_hdf5_unlock();
  return status;
}

/* Closes the file, and renames it to --out if all went well. */
static mn_status finish_output(struct output *o, mn_status status) {
  mn_hdf5_lock();
  int failed = (o->label >= 0 && H5Dclose(o->label) < 0);
  failed = (o->y >= 0 && H5Dclose(o->y) < 0) || failed;
  failed = (o->file >= 0 && H5Fclose(o->file) < 0) || failed;
  if ((failed || o->disk.error) && status == MN_OK) status = cannot_write(o);
  mn_hdf5_unlock();
  if (status == MN_OK) return mn_atomic_file_publish(&o->on_disk, o->replace);
  mn_atomic_file_discard(&o->on_disk);
  return status;
}

static mn_status predict(FILE *out, struct mn_session *s, struct mn_evaluator *evaluator) {
  struct output o = {.file = -1,
                     .y = -1,
                     .label = -1,
                     .cols = mn_model_outputs(&s->model->config),
                     .real = s->context->device->real,
                     .replace = s->options.force};
  if (s->model->config.loss == MN_LOSS_CROSS_ENTROPY &&
      !(o.labels = calloc((size_t)s->options.batch, sizeof *o.labels)))
    return mn_fail(MN_NO_MEMORY, "no memory for the labels");
  mn_status status = mn_atomic_file_create(&o.on_disk, s->options.out);
  if (status == MN_OK) {
    status = create_output(&o, s->test->rows);
    if (status == MN_OK) status = mn_evaluator_predict(evaluator, o.real, take, &o);
    status = finish_output(&o, status);
  }
  free(o.labels);
  MN_TRY(status);
  describe(s);
  mn_escape_print(out, "%s: y [%ld, %ld]%s\n", s->options.out, (long)s->test->rows, (long)o.cols,
                  s->model->config.loss == MN_LOSS_CROSS_ENTROPY ? ", label" : "");
  return MN_OK;
}

mn_status mn_predict(FILE *out, const struct mn_options *options) {
  return with_evaluator(out, options, MN_PASS_PREDICT, predict);
}
