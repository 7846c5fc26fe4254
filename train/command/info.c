/* The command info: what a file holds. The answer goes through memory, so that a file which turns out to be
 * damaged halfway leaves no half of an answer on stdout. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/advice.h"
#include "data/columns.h"
#include "data/dataset.h"
#include "kernels/escape.h"
#include "train/checkpoint/weights.h"
#include "train/command/inspect.h"

mn_status mn_inspect_flush(FILE *out) {
  if (fflush(out) == 0 && !ferror(out)) return MN_OK;
  return mn_fail(MN_IO, "cannot write the answer: %s", strerror(errno));
}

void mn_inspect_field(struct mn_json *json, const char *key, const void *value,
                      enum mn_hdf5_value_kind kind) {
  switch (kind) {
  case MN_VALUE_INTEGER:
    mn_json_integer(json, key, *(const int64_t *)value);
    break;
  case MN_VALUE_UNSIGNED:
    mn_json_unsigned(json, key, *(const uint64_t *)value);
    break;
  case MN_VALUE_REAL:
    mn_json_number(json, key, *(const double *)value);
    break;
  case MN_VALUE_TEXT:
    mn_json_string(json, key, value);
    break;
  case MN_VALUE_NONE:
  case MN_VALUE_OTHER:
    mn_json_null(json, key);
  }
}

void mn_inspect_print(FILE *out, const void *value, enum mn_hdf5_value_kind kind, int digits) {
  if (kind == MN_VALUE_INTEGER) fprintf(out, "%" PRId64, *(const int64_t *)value);
  if (kind == MN_VALUE_UNSIGNED) fprintf(out, "%" PRIu64, *(const uint64_t *)value);
  if (kind == MN_VALUE_REAL) fprintf(out, "%.*g", digits, *(const double *)value);
  if (kind == MN_VALUE_TEXT) fputs(value, out);
}

/* The answer so far, as text or as JSON. */
struct answer {
  FILE *stream; /* into text[size] */
  char *text;
  size_t size;
  int as_json;
  struct mn_json json;
};

/* Sends the answer to `out` when all went well. Control characters, which only names and texts from the file
 * can hold, could steer a terminal and are shown as escapes. */
static mn_status answer_close(struct answer *answer, FILE *out, mn_status status) {
  if (fclose(answer->stream) != 0 && status == MN_OK)
    status = mn_fail(MN_NO_MEMORY, "no memory for the answer");
  if (status == MN_OK) {
    for (const char *at = answer->text; *at;) {
      char next[5];
      const size_t length = mn_escape_next(next, at);
      fputs(*at == '\n' ? "\n" : next, out);
      at += length;
    }
    status = mn_inspect_flush(out);
  }
  free(answer->text);
  return status;
}

/* A checkpoint. */

static int64_t parameter_count(const struct mn_checkpoint *checkpoint) {
  int64_t total = 0;
  for (int i = 0; i < checkpoint->tensor_count; i++)
    total += checkpoint->tensors[i].rows * checkpoint->tensors[i].cols;
  return total;
}

static void json_fields(struct mn_json *json, const struct mn_checkpoint *checkpoint,
                        const struct mn_checkpoint_field *fields) {
  for (; fields->name; fields++)
    mn_inspect_field(json, fields->name, (const char *)checkpoint + fields->offset, fields->kind);
}

static void json_options(struct mn_json *json, const char *key, const struct mn_text *options, int count) {
  mn_json_open(json, key);
  for (int i = 0; i < count; i++) mn_json_string(json, options[i].name, options[i].value);
  mn_json_close(json);
}

static void json_tensor(struct mn_json *json, const struct mn_checkpoint_tensor *tensor) {
  mn_json_open(json, NULL);
  mn_json_string(json, "name", tensor->name);
  mn_json_string(json, "type", tensor->real == 8 ? "float64" : "float32");
  mn_json_array_open(json, "shape");
  if (tensor->rank == 2) mn_json_integer(json, NULL, tensor->rows);
  mn_json_integer(json, NULL, tensor->cols);
  mn_json_close(json);
  mn_json_close(json);
}

static void json_checkpoint(struct mn_json *json, const char *path, uint64_t size,
                            const struct mn_checkpoint *checkpoint) {
  mn_json_open(json, NULL);
  mn_json_string(json, "file", path);
  mn_json_string(json, "kind", "checkpoint");
  mn_json_integer(json, "format_version", mn_checkpoint_version(checkpoint));
  mn_json_unsigned(json, "bytes", size);
  mn_json_integer(json, "checksums", checkpoint->checksums);
  mn_json_open(json, "model");
  json_fields(json, checkpoint, mn_checkpoint_model_fields);
  mn_json_array_open(json, "hidden");
  for (int i = 0; i < checkpoint->depth; i++) mn_json_integer(json, NULL, checkpoint->hidden[i]);
  mn_json_close(json);
  mn_json_boolean(json, "standardized", checkpoint->input[0].value != NULL);
  mn_json_close(json);
  mn_json_integer(json, "parameters", parameter_count(checkpoint));
  for (int k = MN_CHECKPOINT_VALUE + 1; k < MN_CHECKPOINT_ARRAYS; k++)
    mn_json_boolean(json, mn_checkpoint_kept(k), *mn_checkpoint_array(&checkpoint->tensors[0], k) != NULL);
  mn_json_array_open(json, "tensors");
  for (int i = 0; i < checkpoint->tensor_count; i++) json_tensor(json, &checkpoint->tensors[i]);
  mn_json_close(json);
  if (checkpoint->alone) {
    mn_json_null(json, "progress");
  } else {
    mn_json_open(json, "progress");
    json_fields(json, checkpoint, mn_checkpoint_progress_fields);
    mn_json_close(json);
  }
  json_options(json, "config", checkpoint->options, checkpoint->option_count);
  json_options(json, "fingerprint", checkpoint->fingerprint, checkpoint->fingerprint_count);
  json_options(json, "history", checkpoint->history, checkpoint->history_count);
  mn_json_close(json);
}

static void text_options(FILE *out, const char *title, const struct mn_text *options, int count) {
  for (int i = 0; i < count; i++)
    fprintf(out, "%-13s %s = %s\n", i == 0 ? title : "", options[i].name, options[i].value);
}

static void text_progress(FILE *out, const struct mn_progress *progress) {
  fprintf(out,
          "%-13s step %" PRId64 ", epoch %" PRId64 ", position %" PRId64 ", %" PRId64
          " samples, seed %" PRIu64,
          "progress", progress->step, progress->epoch, progress->position, progress->samples, progress->seed);
  if (progress->skipped > 0) fprintf(out, ", %" PRId64 " of the steps skipped", progress->skipped);
  fprintf(out, ", best metric %g\n", progress->best);
}

static void text_checkpoint(FILE *out, const char *path, uint64_t size,
                            const struct mn_checkpoint *checkpoint) {
  const struct mn_checkpoint_tensor *tensors = checkpoint->tensors;
  fprintf(out, "%s: minnow checkpoint, format_version %d, %" PRIu64 " bytes, whole\n", path,
          mn_checkpoint_version(checkpoint), size);
  if (!checkpoint->checksums)
    fprintf(out, "%-13s of the content: none, it is of minnow 0.2 or older\n", "checksums");
  fprintf(out, "%-13s %" PRId64, "model", checkpoint->inputs);
  for (int i = 0; i < checkpoint->depth; i++) fprintf(out, " → %" PRId64, checkpoint->hidden[i]);
  if (checkpoint->head > 0) fprintf(out, " → head %" PRId64, checkpoint->head);
  fprintf(out, ", %" PRId64 " groups, %s, eps %g, negative slope %g\n", checkpoint->groups, checkpoint->loss,
          checkpoint->eps, checkpoint->slope);
  fprintf(out, "%-13s %" PRId64 " %s, %s\n", "parameters", parameter_count(checkpoint),
          tensors[0].real == 8 ? "float64" : "float32",
          tensors[0].exp_avg    ? "with exp_avg and exp_avg_sq"
          : tensors[0].momentum ? "with momentum"
                                : "no momentum");
  for (int i = 0; i < checkpoint->tensor_count; i++) {
    fprintf(out, "%-13s %s [", "", tensors[i].name);
    if (tensors[i].rank == 2) fprintf(out, "%" PRId64 ", ", tensors[i].rows);
    fprintf(out, "%" PRId64 "]\n", tensors[i].cols);
  }
  if (checkpoint->input[0].value)
    fprintf(out, "%-13s standardised: (x - /input/mean) / /input/scale\n", "inputs");
  if (checkpoint->alone)
    fprintf(out, "%-13s none: a model without its training\n", "progress");
  else
    text_progress(out, &checkpoint->progress);
  const char *rows = mn_text_find(checkpoint->options, checkpoint->option_count, "data_rows");
  if (rows)
    fprintf(out, "%-13s %s tell at a resume whether the data is the same\n", "rows",
            strchr(rows, ' ') ? "all rows" : "4096 rows, spread over the file,");
  text_options(out, "config", checkpoint->options, checkpoint->option_count);
  text_options(out, "fingerprint", checkpoint->fingerprint, checkpoint->fingerprint_count);
  text_options(out, "history", checkpoint->history, checkpoint->history_count);
}

static mn_status info_checkpoint(struct answer *answer, const struct mn_hdf5_file *file) {
  struct mn_checkpoint *checkpoint;
  MN_TRY(mn_checkpoint_load(&checkpoint, file->path));
  if (answer->as_json)
    json_checkpoint(&answer->json, file->path, file->size, checkpoint);
  else
    text_checkpoint(answer->stream, file->path, file->size, checkpoint);
  mn_checkpoint_free(checkpoint);
  return MN_OK;
}

/* Any other HDF5 file. */

/* Prints why rows without targets cannot be trained on. */
static void show_refusal(struct answer *answer, const char *path) {
  struct mn_dataset *whole = NULL;
  if (mn_dataset_open(&whole, path, MN_PART_TRAIN, NULL, NULL, 1) != MN_OK)
    fprintf(answer->stream, "not to be trained on as it is: %s\n", mn_message());
  mn_dataset_close(whole);
}

/* Prints that a file without rows holds weights, or why it cannot be trained on. */
static void show_no_rows(struct answer *answer, const char *path) {
  char why[1024];
  struct mn_model_config sizes = {0};
  snprintf(why, sizeof why, "%s", mn_message());
  if (mn_weights_sizes(path, &sizes) == MN_OK)
    fprintf(answer->stream,
            "weights alone, of %ld inputs and %ld outputs: train --init begins from them, eval and predict "
            "take them as --checkpoint\n",
            (long)sizes.inputs, (long)mn_model_outputs(&sizes));
  else
    fprintf(answer->stream, "not to be trained on as it is: %s\n", why);
}

static void show_column(struct answer *answer, const struct mn_columns *c, int64_t i) {
  const double numbers[] = {c->mean[i], c->deviation[i], c->smallest[i], c->largest[i]};
  static const char *const keys[] = {"mean", "deviation", "smallest", "largest"};
  if (!answer->as_json) {
    fprintf(answer->stream, "%13s %-8" PRId64 " %12.5g %12.5g %12.5g %12.5g%s\n", "", i, numbers[0],
            numbers[1], numbers[2], numbers[3], c->deviation[i] > 0 ? "" : "  constant");
    return;
  }
  mn_json_open(&answer->json, NULL);
  mn_json_integer(&answer->json, "column", i);
  for (int k = 0; k < 4; k++) mn_json_number(&answer->json, keys[k], numbers[k]);
  mn_json_close(&answer->json);
}

/* Text shows the first columns and those with the least deviation above 0 and the largest; JSON all. */
static void show_columns(struct answer *answer, struct mn_dataset *dataset) {
  enum { SHOWN = 8, MOST = 256 << 20 }; /* columns, and bytes that are read, as doubles */
  struct mn_columns c;
  const int64_t most = MOST / (int64_t)sizeof(double) / dataset->inputs;
  if (mn_columns_measure(&c, dataset, MN_COLUMNS_X, most, NULL) != MN_OK) {
    if (answer->as_json)
      mn_json_null(&answer->json, "columns");
    else
      fprintf(answer->stream, "not to be trained on as it is: %s\n", mn_message());
    mn_columns_free(&c);
    return;
  }
  int64_t least, largest;
  mn_columns_extremes(&c, &least, &largest);
  if (answer->as_json)
    mn_json_array_open(&answer->json, "columns");
  else
    fprintf(answer->stream, "%13s %-8s %12s %12s %12s %12s  of %" PRId64 " rows\n", "", "column", "mean",
            "deviation", "smallest", "largest", c.rows);
  int64_t shown = 0;
  for (int64_t i = 0; i < c.cols; i++)
    if (answer->as_json || i < SHOWN || i == least || i == largest) show_column(answer, &c, i), shown++;
  if (answer->as_json)
    mn_json_close(&answer->json);
  else if (shown < c.cols)
    fprintf(answer->stream, "%13s and %" PRId64 " columns more; --json has all\n", "", c.cols - shown);
  mn_columns_free(&c);
}

/* Shows the rows that train would read from one part of the file; a refused file is not an error. */
static mn_status show_part(struct answer *answer, const char *path, enum mn_part part, const char *key) {
  struct mn_dataset *dataset = NULL;
  mn_status status = mn_dataset_open(&dataset, path, part, NULL, NULL, 0);
  if (status == MN_NO_MEMORY || status == MN_IO) return status;
  if (status != MN_OK || !dataset) {
    if (answer->as_json)
      mn_json_null(&answer->json, key);
    else if (status != MN_OK && part == MN_PART_TRAIN)
      show_no_rows(answer, path);
    return MN_OK;
  }
  if (answer->as_json) {
    mn_json_open(&answer->json, key);
    mn_json_integer(&answer->json, "rows", dataset->rows);
    mn_json_integer(&answer->json, "inputs", dataset->inputs);
    mn_json_integer(&answer->json, "outputs", dataset->outputs);
    mn_json_boolean(&answer->json, "classes", dataset->classes);
    show_columns(answer, dataset);
    mn_json_close(&answer->json);
  } else {
    fprintf(answer->stream, "%-13s %" PRId64 " rows of %" PRId64 " inputs, %" PRId64 " %s\n", key,
            dataset->rows, dataset->inputs, dataset->outputs, dataset->classes ? "classes" : "targets");
    show_columns(answer, dataset);
    if (dataset->outputs == 0 && part == MN_PART_TRAIN) show_refusal(answer, path);
  }
  mn_dataset_close(dataset);
  return MN_OK;
}

static mn_status json_value(void *data, const char *name, const struct mn_hdf5_value *value) {
  struct mn_json *json = &((struct answer *)data)->json;
  if (value->scalar || value->kind == MN_VALUE_TEXT || value->kind == MN_VALUE_OTHER) {
    mn_inspect_field(json, name, value->text, value->kind);
    return MN_OK;
  }
  mn_json_array_open(json, name);
  for (int i = 0; i < value->count; i++) mn_inspect_field(json, NULL, &value->integer[i], value->kind);
  mn_json_close(json);
  return MN_OK;
}

static mn_status text_value(void *data, const char *name, const struct mn_hdf5_value *value) {
  FILE *out = ((struct answer *)data)->stream;
  fprintf(out, "    %s = ", name);
  if (value->kind == MN_VALUE_TEXT) fprintf(out, "\"%s\"", value->text);
  if (value->kind == MN_VALUE_OTHER) fprintf(out, "(%s)", value->text);
  for (int i = 0; value->kind < MN_VALUE_TEXT && i < value->count; i++) {
    if (i > 0) fputs(", ", out);
    mn_inspect_print(out, &value->integer[i], value->kind, 9);
  }
  putc('\n', out);
  return MN_OK;
}

static const char *const kinds[] = {[MN_HDF5_NOTHING] = "nothing",
                                    [MN_HDF5_GROUP] = "group",
                                    [MN_HDF5_DATASET] = "dataset",
                                    [MN_HDF5_LINK] = "link",
                                    [MN_HDF5_OTHER] = "other"};
_Static_assert(sizeof kinds / sizeof *kinds == MN_HDF5_OTHER + 1, "a word for each kind of object");

static mn_status json_object(struct answer *answer, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object) {
  struct mn_json *json = &answer->json;
  struct mn_advice advice;
  mn_status status = MN_OK;
  mn_json_open(json, NULL);
  mn_json_string(json, "name", object->name);
  mn_json_string(json, "kind", kinds[object->kind]);
  if (object->kind == MN_HDF5_DATASET) {
    mn_json_string(json, "type", object->type);
    mn_json_array_open(json, "shape");
    for (int i = 0; i < object->rank; i++) mn_json_unsigned(json, NULL, object->shape[i]);
    mn_json_close(json);
    mn_json_unsigned(json, "stored_bytes", object->stored);
    mn_json_boolean(json, "checksums", object->checksum);
    if (mn_advice_find(&advice, object)) {
      mn_json_string(json, "slow", advice.cause);
      mn_json_string(json, "remedy", advice.remedy);
    }
  }
  if (object->id >= 0) {
    mn_json_open(json, "attributes");
    status = mn_hdf5_attributes(file, object, H5_INDEX_NAME, 1, json_value, answer);
    mn_json_close(json);
  }
  mn_json_close(json);
  return status;
}

static mn_status text_object(struct answer *answer, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object) {
  FILE *out = answer->stream;
  struct mn_advice advice;
  fprintf(out, "%-24s", object->name);
  if (object->kind == MN_HDF5_DATASET) {
    char shape[400];
    int outside = object->layout == H5D_VIRTUAL || object->external;
    mn_hdf5_shape(shape, sizeof shape, object);
    fprintf(out, " %s %s, %" PRIu64 " bytes stored%s%s\n", object->type, shape, object->stored,
            object->checksum ? ", checksums" : "", outside ? ", in other files" : "");
  } else {
    fprintf(out, " %s\n",
            object->kind == MN_HDF5_LINK ? "soft or external link, not followed" : kinds[object->kind]);
  }
  if (mn_advice_find(&advice, object))
    fprintf(out, "    %s is slow to read: %s; %s\n", object->name, advice.cause, advice.remedy);
  return object->id >= 0 ? mn_hdf5_attributes(file, object, H5_INDEX_NAME, 1, text_value, answer) : MN_OK;
}

static mn_status show_object(void *data, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object) {
  struct answer *answer = data;
  return answer->as_json ? json_object(answer, file, object) : text_object(answer, file, object);
}

static mn_status info_other(struct answer *answer, const struct mn_hdf5_file *file) {
  const char *path = file->path;
  if (answer->as_json) {
    mn_json_open(&answer->json, NULL);
    mn_json_string(&answer->json, "file", path);
    mn_json_string(&answer->json, "kind", "hdf5");
    mn_json_unsigned(&answer->json, "bytes", file->size);
    mn_json_array_open(&answer->json, "objects");
  } else {
    fprintf(answer->stream, "%s: HDF5, %" PRIu64 " bytes\n", path, file->size);
  }
  MN_TRY(mn_hdf5_walk(file, show_object, answer));
  if (answer->as_json) mn_json_close(&answer->json);
  MN_TRY(show_part(answer, path, MN_PART_TRAIN, "train"));
  MN_TRY(show_part(answer, path, MN_PART_TEST, "test"));
  if (answer->as_json) mn_json_close(&answer->json);
  return MN_OK;
}

mn_status mn_info(FILE *out, const char *path, int json) {
  int checkpoint;
  struct answer answer = {.as_json = json};
  struct mn_hdf5_file file;
  MN_TRY(mn_hdf5_open(&file, path, "take a copy or make it anew", 0));
  mn_status status = mn_checkpoint_format(&file, &checkpoint);
  if (status == MN_OK && !(answer.stream = open_memstream(&answer.text, &answer.size)))
    status = mn_fail(MN_NO_MEMORY, "no memory for the answer");
  if (status == MN_OK) {
    mn_json_begin(&answer.json, answer.stream);
    status = checkpoint ? info_checkpoint(&answer, &file) : info_other(&answer, &file);
    status = answer_close(&answer, out, status);
  }
  mn_hdf5_close(&file);
  return status;
}
