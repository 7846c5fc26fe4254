/* `minnow predict --out F.csv`: predictions in the words and units of the targets. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data/csv/table.h"
#include "data/held_out.h"
#include "kernels/text.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/outputs.h"
#include "train/fit.h"
#include "train/prepared.h"

/* The most deviations by which a row x, as the model takes it, lies from a column's mean or, of a column of 0
 * and 1, whose variance is mean·(1 − mean), from these, since a rare 1 is many deviations off. */
static double distance(const struct mn_session *s, const void *x) {
  const struct mn_standard *by = &s->model->standard[MN_X];
  const size_t real = s->model->device->real;
  const int64_t cols = s->model->config.inputs;
  double most = 0;
  if (!by->mean || mn_find_outside(x, cols, real, -1, 1) < 0)
    return 0; /* of scales, which are MN_X_DEVIATIONS deviations */
  for (int64_t c = 0; c < cols; c++) {
    const double mean = by->mean[c], scale = by->scale[c], deviation = scale / MN_X_DEVIATIONS;
    const int binary = fabs(mean * (1 - mean) - deviation * deviation) < 1e-6 * deviation * deviation;
    const double off = mn_real_at(x, real, c) * scale, beyond = fabs(off + mean - 0.5) - 0.5;
    most = fmax(most, (binary ? beyond : fabs(off)) / deviation);
  }
  return most;
}

mn_status mn_outputs_each(struct mn_session *s, mn_status (*take)(void *to, const struct mn_outputs *outputs),
                          void *to) {
  const int64_t rows = s->test->rows, batch = s->options.batch < rows ? s->options.batch : rows;
  struct mn_predictor *predictor;
  double *y = malloc((size_t)batch * ((size_t)mn_model_outputs(&s->model->config) * sizeof *y + 1));
  if (!y) return mn_fail(MN_NO_MEMORY, "no memory for the outputs of a batch");
  uint8_t *const outside = (uint8_t *)(y + batch * mn_model_outputs(&s->model->config));
  mn_status status = mn_predictor_open(&predictor, s->model, batch);
  for (int64_t first = 0, count; first < rows && status == MN_OK; first += count) {
    count = rows - first < batch ? rows - first : batch;
    status = mn_predict_rows(predictor, s->test, first, count, y);
    for (int64_t n = 0; n < count && status == MN_OK; n++) {
      const size_t row = (size_t)(n * s->model->config.inputs) * s->model->device->real;
      const double far = distance(s, (const char *)mn_predictor_x(predictor) + row);
      outside[n] = far >= MN_X_DEVIATIONS;
      if (far > s->farthest) s->farthest = far, s->farthest_row = mn_dataset_row(s->test, first + n);
      s->outside += outside[n];
    }
    if (status == MN_OK) status = take(to, &(struct mn_outputs){y, outside, first, count});
  }
  mn_predictor_close(predictor);
  free(y);
  return status;
}

struct csv_output {
  FILE *file;
  const struct mn_session *session;
  struct mn_table table; /* the run's; count 0 if it was trained on HDF5 */
  int64_t cols;
  char separator;
  double *probabilities; /* [cols] */
};

/* A field, in quotes where it needs them. */
static void put_text(const struct csv_output *o, const char *text) {
  const char special[] = {o->separator, '"', '\r', '\n', 0};
  if (!strpbrk(text, special)) {
    fputs(text, o->file);
    return;
  }
  fputc('"', o->file);
  for (; *text; text++) fputs(*text == '"' ? "\"\"" : (char[]){*text, 0}, o->file);
  fputc('"', o->file);
}

/* The i-th target of the table; NULL if it has none. */
static const struct mn_table_column *target_of(const struct csv_output *o, int64_t i) {
  for (int c = 0; c < o->table.count; c++)
    if (o->table.columns[c].target && i-- == 0) return &o->table.columns[c];
  return NULL;
}

static void put_class(const struct csv_output *o, int64_t class) {
  const struct mn_class_names *names = &o->session->model->class_names;
  if (names->count)
    put_text(o, names->names[class]);
  else
    fprintf(o->file, "%lld", (long long)class);
}

/* A number or, of days, the date and time. */
static void put_value(const struct csv_output *o, const struct mn_table_column *target, double value) {
  const time_t seconds = (time_t)fmin(fmax(value * 86400, -6e10), 2.5e11); /* years 68 to 9892 */
  struct tm date;
  char text[32];
  if (target && target->kind == MN_COLUMN_DATE && gmtime_r(&seconds, &date)) {
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &date);
    fputs(text, o->file);
  } else {
    fprintf(o->file, "%.9g", value);
  }
}

static void put_names(const struct csv_output *o) {
  const struct mn_session *s = o->session;
  const int classes = s->model->config.loss == MN_LOSS_CROSS_ENTROPY;
  put_text(o, s->options.id ? s->options.id : "row");
  for (int64_t k = 0; k < (classes ? 1 : o->cols); k++) {
    const struct mn_table_column *target = target_of(o, k);
    fputc(o->separator, o->file);
    if (target)
      put_text(o, target->name);
    else
      fprintf(o->file, classes ? "label" : "y%lld", (long long)k);
  }
  for (int64_t k = 0; k < o->cols && o->probabilities; k++) fputc(o->separator, o->file), put_class(o, k);
  if (s->options.outside) fprintf(o->file, "%coutside", o->separator);
  fputc('\n', o->file);
}

static mn_status put_rows(void *to, const struct mn_outputs *outputs) {
  const struct csv_output *o = to;
  const double *y = outputs->y;
  const struct mn_session *s = o->session;
  const int classes = s->model->config.loss == MN_LOSS_CROSS_ENTROPY;
  for (int64_t n = 0, at = 0; n < outputs->count; n++, at += o->cols) {
    const int64_t row = mn_dataset_row(s->test, outputs->first + n);
    if (s->options.id)
      put_text(o, mn_csv_id(s->csv, row));
    else
      fprintf(o->file, "%lld", (long long)row);
    if (classes) fputc(o->separator, o->file), put_class(o, mn_class_of(y + at, o->cols));
    for (int64_t k = 0; k < o->cols && !classes; k++)
      fputc(o->separator, o->file), put_value(o, target_of(o, k), y[at + k]);
    if (o->probabilities) mn_softmax(o->probabilities, y + at, o->cols);
    for (int64_t k = 0; k < o->cols && o->probabilities; k++)
      fprintf(o->file, "%c%.9g", o->separator, o->probabilities[k]);
    if (s->options.outside) fprintf(o->file, "%c%d", o->separator, outputs->outside[n]);
    fputc('\n', o->file);
  }
  return MN_OK;
}

static mn_status write_all(struct csv_output *o, struct mn_session *s) {
  put_names(o);
  return mn_outputs_each(s, put_rows, o);
}

mn_status mn_write_csv(FILE *out, struct mn_session *s) {
  const struct mn_options *options = &s->options;
  struct mn_atomic_file on_disk;
  const char *ending = strrchr(options->out, '.');
  struct csv_output o = {.session = s,
                         .cols = mn_model_outputs(&s->model->config),
                         .separator = strcasecmp(ending, ".tsv") == 0 ? '\t' : ','};
  mn_status status = s->model->table ? mn_table_parse(&o.table, s->model->table) : MN_OK;
  if (options->probabilities && !(o.probabilities = malloc((size_t)o.cols * sizeof *o.probabilities)))
    status = mn_fail(MN_NO_MEMORY, "no memory for %ld probabilities", (long)o.cols);
  if (status == MN_OK) status = mn_atomic_file_create(&on_disk, options->out);
  if (status == MN_OK) {
    o.file = fdopen(dup(on_disk.fd), "w");
    status = o.file ? write_all(&o, s) : mn_fail(MN_NO_MEMORY, "no memory to write %s", options->out);
    const int failed = o.file && ferror(o.file);
    errno = 0;
    if (o.file && (fclose(o.file) != 0 || failed) && status == MN_OK)
      status = mn_atomic_file_fail("write", options->out, errno ? errno : EIO);
    if (status == MN_OK)
      status = mn_atomic_file_publish(&on_disk, options->force);
    else
      mn_atomic_file_discard(&on_disk);
  }
  mn_table_free(&o.table);
  free(o.probabilities);
  MN_TRY(status);
  mn_session_announce_rows(s);
  mn_escape_print(out, "%s: %ld rows\n", options->out, (long)s->test->rows);
  return MN_OK;
}
