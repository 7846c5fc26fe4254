/* The commands info and verify: what a file holds, and whether it is whole. Their text goes through memory,
 * so that a file which turns out to be damaged halfway leaves no half of an answer on stdout. */
#include "train/command/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "train/checkpoint/atomic_file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/layout.h"
#include "train/command/inspect_hdf5.h"
#include "train/json.h"

/* An answer in the making, as text or as JSON. */
struct answer {
  FILE *stream; /* into text[size] */
  char *text;
  size_t size;
  int as_json;
  struct mn_json json;
};

static mn_status answer_open(struct answer *answer, int json) {
  *answer = (struct answer){.as_json = json};
  answer->stream = open_memstream(&answer->text, &answer->size);
  if (!answer->stream) return mn_fail(MN_NO_MEMORY, "no memory for the answer");
  mn_json_begin(&answer->json, answer->stream);
  return MN_OK;
}

/* Sends the answer to `out` if `send`, and returns `status` unless that fails. */
static mn_status answer_close(struct answer *answer, FILE *out, int send, mn_status status) {
  int failed = fclose(answer->stream) != 0;
  if (failed && status == MN_OK) status = mn_fail(MN_NO_MEMORY, "no memory for the answer");
  if (send && !failed) {
    fwrite(answer->text, 1, answer->size, out);
    if (fflush(out) != 0 || ferror(out))
      status = mn_fail(MN_IO, "cannot write the answer: %s", strerror(errno));
  }
  free(answer->text);
  return status;
}

static mn_status is_checkpoint(const char *path, int *checkpoint) {
  struct mn_hdf5_file file;
  *checkpoint = 0;
  MN_TRY(mn_hdf5_file_open(&file, path));
  mn_status status = mn_hdf5_is_checkpoint(&file, checkpoint);
  mn_hdf5_file_close(&file);
  return status;
}

/* ---- info of a checkpoint ---- */

static int64_t parameter_count(const struct mn_checkpoint *checkpoint) {
  int64_t total = 0;
  for (int i = 0; i < checkpoint->tensor_count; i++)
    total += checkpoint->tensors[i].rows * checkpoint->tensors[i].cols;
  return total;
}

static void json_fields(struct mn_json *json, const struct mn_checkpoint *checkpoint,
                        const struct mn_checkpoint_field *fields) {
  for (; fields->name; fields++) {
    const void *value = (const char *)checkpoint + fields->offset;
    switch (fields->kind) {
    case MN_FIELD_INTEGER:
      mn_json_integer(json, fields->name, *(const int64_t *)value);
      break;
    case MN_FIELD_UNSIGNED:
      mn_json_unsigned(json, fields->name, *(const uint64_t *)value);
      break;
    case MN_FIELD_REAL:
      mn_json_number(json, fields->name, *(const double *)value);
      break;
    case MN_FIELD_TEXT:
      mn_json_string(json, fields->name, value);
      break;
    }
  }
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
  mn_json_integer(json, "format_version", MN_CHECKPOINT_VERSION);
  mn_json_unsigned(json, "bytes", size);
  mn_json_open(json, "model");
  json_fields(json, checkpoint, mn_checkpoint_model_fields);
  mn_json_array_open(json, "hidden");
  for (int i = 0; i < checkpoint->depth; i++) mn_json_integer(json, NULL, checkpoint->hidden[i]);
  mn_json_close(json);
  mn_json_close(json);
  mn_json_integer(json, "parameters", parameter_count(checkpoint));
  mn_json_boolean(json, "momentum", checkpoint->tensors[0].momentum != NULL);
  mn_json_array_open(json, "tensors");
  for (int i = 0; i < checkpoint->tensor_count; i++) json_tensor(json, &checkpoint->tensors[i]);
  mn_json_close(json);
  mn_json_open(json, "progress");
  json_fields(json, checkpoint, mn_checkpoint_progress_fields);
  mn_json_close(json);
  json_options(json, "config", checkpoint->options, checkpoint->option_count);
  json_options(json, "fingerprint", checkpoint->fingerprint, checkpoint->fingerprint_count);
  mn_json_close(json);
}

static void text_options(FILE *out, const char *title, const struct mn_text *options, int count) {
  for (int i = 0; i < count; i++)
    fprintf(out, "%-13s %s = %s\n", i == 0 ? title : "", options[i].name, options[i].value);
}

static void text_checkpoint(FILE *out, const char *path, uint64_t size,
                            const struct mn_checkpoint *checkpoint) {
  const struct mn_checkpoint_tensor *tensors = checkpoint->tensors;
  fprintf(out, "%s: minnow checkpoint, format_version %d, %" PRIu64 " bytes, whole\n", path,
          MN_CHECKPOINT_VERSION, size);
  fprintf(out, "%-13s %" PRId64, "model", checkpoint->inputs);
  for (int i = 0; i < checkpoint->depth; i++) fprintf(out, " → %" PRId64, checkpoint->hidden[i]);
  if (checkpoint->head > 0) fprintf(out, " → head %" PRId64, checkpoint->head);
  fprintf(out, ", %" PRId64 " groups, %s, eps %g, negative slope %g\n", checkpoint->groups, checkpoint->loss,
          checkpoint->eps, checkpoint->slope);
  fprintf(out, "%-13s %" PRId64 " %s, %s\n", "parameters", parameter_count(checkpoint),
          tensors[0].real == 8 ? "float64" : "float32",
          tensors[0].momentum ? "with momentum" : "no momentum");
  for (int i = 0; i < checkpoint->tensor_count; i++) {
    fprintf(out, "%-13s %s [", "", tensors[i].name);
    if (tensors[i].rank == 2) fprintf(out, "%" PRId64 ", ", tensors[i].rows);
    fprintf(out, "%" PRId64 "]\n", tensors[i].cols);
  }
  fprintf(out,
          "%-13s step %" PRId64 ", epoch %" PRId64 ", position %" PRId64 ", %" PRId64
          " samples, seed %" PRIu64,
          "progress", checkpoint->progress.step, checkpoint->progress.epoch, checkpoint->progress.position,
          checkpoint->progress.samples, checkpoint->progress.seed);
  fprintf(out, ", best metric %g\n", checkpoint->progress.best);
  text_options(out, "config", checkpoint->options, checkpoint->option_count);
  text_options(out, "fingerprint", checkpoint->fingerprint, checkpoint->fingerprint_count);
}

static mn_status info_checkpoint(struct answer *answer, const char *path) {
  struct mn_checkpoint *checkpoint;
  uint64_t size = 0;
  MN_TRY(mn_checkpoint_load(&checkpoint, path));
  struct mn_hdf5_file file;
  mn_status status = mn_hdf5_file_open(&file, path);
  if (status == MN_OK) {
    size = file.size;
    mn_hdf5_file_close(&file);
    if (answer->as_json)
      json_checkpoint(&answer->json, path, size, checkpoint);
    else
      text_checkpoint(answer->stream, path, size, checkpoint);
  }
  mn_checkpoint_free(checkpoint);
  return status;
}

/* ---- info of any other HDF5 file ---- */

/* What training makes of one part of the file; a file that is no data to train on is no error here. */
static void show_part(struct answer *answer, const char *path, enum mn_part part, const char *key) {
  struct mn_dataset *dataset = NULL;
  mn_status status = mn_dataset_open(&dataset, path, part, NULL, NULL, 0);
  if (status != MN_OK || !dataset) {
    if (answer->as_json)
      mn_json_null(&answer->json, key);
    else if (status != MN_OK && part == MN_PART_TRAIN)
      fprintf(answer->stream, "not to be trained on as it is: %s\n", mn_message());
    return;
  }
  if (answer->as_json) {
    mn_json_open(&answer->json, key);
    mn_json_integer(&answer->json, "rows", dataset->rows);
    mn_json_integer(&answer->json, "inputs", dataset->inputs);
    mn_json_integer(&answer->json, "outputs", dataset->outputs);
    mn_json_boolean(&answer->json, "classes", dataset->classes);
    mn_json_close(&answer->json);
  } else {
    fprintf(answer->stream, "%-13s %" PRId64 " rows of %" PRId64 " inputs, %" PRId64 " %s\n", key,
            dataset->rows, dataset->inputs, dataset->outputs, dataset->classes ? "classes" : "targets");
  }
  mn_dataset_close(dataset);
}

static void json_number_of(struct mn_json *json, const char *key, const struct mn_hdf5_value *value, int i) {
  if (value->kind == MN_VALUE_INTEGER)
    mn_json_integer(json, key, value->integer[i]);
  else if (value->kind == MN_VALUE_UNSIGNED)
    mn_json_unsigned(json, key, value->whole[i]);
  else
    mn_json_number(json, key, value->real[i]);
}

static void json_value(void *data, const char *name, const struct mn_hdf5_value *value) {
  struct mn_json *json = &((struct answer *)data)->json;
  if (value->kind == MN_VALUE_TEXT) {
    mn_json_string(json, name, value->text);
  } else if (value->kind == MN_VALUE_OTHER) {
    mn_json_null(json, name);
  } else if (value->scalar) {
    json_number_of(json, name, value, 0);
  } else {
    mn_json_array_open(json, name);
    for (int i = 0; i < value->count; i++) json_number_of(json, NULL, value, i);
    mn_json_close(json);
  }
}

static void text_value(void *data, const char *name, const struct mn_hdf5_value *value) {
  FILE *out = ((struct answer *)data)->stream;
  fprintf(out, "    %s = ", name);
  if (value->kind == MN_VALUE_TEXT) fprintf(out, "\"%s\"", value->text);
  if (value->kind == MN_VALUE_OTHER) fprintf(out, "(%s)", value->text);
  for (int i = 0; value->kind < MN_VALUE_TEXT && i < value->count; i++) {
    if (i > 0) fputs(", ", out);
    if (value->kind == MN_VALUE_INTEGER) fprintf(out, "%" PRId64, value->integer[i]);
    if (value->kind == MN_VALUE_UNSIGNED) fprintf(out, "%" PRIu64, value->whole[i]);
    if (value->kind == MN_VALUE_REAL) fprintf(out, "%.9g", value->real[i]);
  }
  putc('\n', out);
}

static const char *const kinds[] = {"group", "dataset", "link", "other"};

static mn_status json_object(struct answer *answer, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object) {
  struct mn_json *json = &answer->json;
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
  }
  if (object->id >= 0) {
    mn_json_open(json, "attributes");
    status = mn_hdf5_attributes(file, object, json_value, answer);
    mn_json_close(json);
  }
  mn_json_close(json);
  return status;
}

static mn_status text_object(struct answer *answer, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object) {
  FILE *out = answer->stream;
  fprintf(out, "%-24s", object->name);
  if (object->kind == MN_HDF5_DATASET) {
    fprintf(out, " %s [", object->type);
    for (int i = 0; i < object->rank; i++)
      fprintf(out, i ? ", %" PRIu64 : "%" PRIu64, (uint64_t)object->shape[i]);
    fprintf(out, "], %" PRIu64 " bytes stored%s%s\n", object->stored, object->checksum ? ", checksums" : "",
            object->outside ? ", in other files" : "");
  } else {
    fprintf(out, " %s\n",
            object->kind == MN_HDF5_LINK ? "soft or external link, not followed" : kinds[object->kind]);
  }
  return object->id >= 0 ? mn_hdf5_attributes(file, object, text_value, answer) : MN_OK;
}

static mn_status show_object(void *data, const struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object) {
  struct answer *answer = data;
  return answer->as_json ? json_object(answer, file, object) : text_object(answer, file, object);
}

static mn_status info_other(struct answer *answer, const char *path) {
  struct mn_hdf5_file file;
  MN_TRY(mn_hdf5_file_open(&file, path));
  if (answer->as_json) {
    mn_json_open(&answer->json, NULL);
    mn_json_string(&answer->json, "file", path);
    mn_json_string(&answer->json, "kind", "hdf5");
    mn_json_unsigned(&answer->json, "bytes", file.size);
    mn_json_array_open(&answer->json, "objects");
  } else {
    fprintf(answer->stream, "%s: HDF5, %" PRIu64 " bytes\n", path, file.size);
  }
  mn_status status = mn_hdf5_walk(&file, show_object, answer);
  mn_hdf5_file_close(&file);
  if (status != MN_OK) return status;
  if (answer->as_json) mn_json_close(&answer->json);
  show_part(answer, path, MN_PART_TRAIN, "train");
  show_part(answer, path, MN_PART_TEST, "test");
  if (answer->as_json) mn_json_close(&answer->json);
  return MN_OK;
}

mn_status mn_info(FILE *out, const char *path, int json) {
  int checkpoint;
  struct answer answer;
  MN_TRY(is_checkpoint(path, &checkpoint));
  MN_TRY(answer_open(&answer, json));
  mn_status status = checkpoint ? info_checkpoint(&answer, path) : info_other(&answer, path);
  return answer_close(&answer, out, status == MN_OK, status);
}

/* ---- verify ---- */

/* What has been read so far, and the first thing that was not whole. */
struct verdict {
  int checkpoint;
  int datasets, checksums, unwritten, links;
  uint64_t bytes;
  mn_status status;
  char reason[1024];
};

static void ignore_value(void *data, const char *name, const struct mn_hdf5_value *value) {
  (void)data;
  (void)name;
  (void)value;
}

static mn_status verify_object(void *data, const struct mn_hdf5_file *file,
                               const struct mn_hdf5_object *object) {
  struct verdict *verdict = data;
  verdict->links += object->kind == MN_HDF5_LINK;
  if (object->id < 0) return MN_OK;
  MN_TRY(mn_hdf5_attributes(file, object, ignore_value, NULL));
  if (object->kind != MN_HDF5_DATASET) return MN_OK;
  MN_TRY(mn_hdf5_read_all(file, object));
  verdict->datasets++;
  verdict->checksums += object->checksum;
  verdict->unwritten += object->stored == 0 && object->bytes > 0;
  verdict->bytes += object->stored ? object->bytes : 0;
  return MN_OK;
}

/* A checkpoint by its own rules; and then, as everything else, object by object, which also counts them. */
static mn_status verify_file(struct verdict *verdict, const char *path) {
  struct mn_hdf5_file file;
  MN_TRY(is_checkpoint(path, &verdict->checkpoint));
  if (verdict->checkpoint) {
    struct mn_checkpoint *checkpoint;
    MN_TRY(mn_checkpoint_load(&checkpoint, path));
    mn_checkpoint_free(checkpoint);
  }
  MN_TRY(mn_hdf5_file_open(&file, path));
  mn_status status = mn_hdf5_walk(&file, verify_object, verdict);
  mn_hdf5_file_close(&file);
  return status;
}

static void json_verdict(struct mn_json *json, const char *path, const struct verdict *verdict) {
  mn_json_open(json, NULL);
  mn_json_string(json, "file", path);
  mn_json_string(json, "kind", verdict->checkpoint ? "checkpoint" : "hdf5");
  mn_json_boolean(json, "whole", verdict->status == MN_OK);
  mn_json_string(json, "reason", verdict->status == MN_OK ? NULL : verdict->reason);
  mn_json_integer(json, "datasets", verdict->datasets);
  mn_json_integer(json, "checksums", verdict->checksums);
  mn_json_integer(json, "unwritten", verdict->unwritten);
  mn_json_integer(json, "links", verdict->links);
  mn_json_unsigned(json, "bytes", verdict->bytes);
  mn_json_close(json);
}

static void text_verdict(FILE *out, const char *path, const struct verdict *verdict) {
  fprintf(out, "%s: %s, whole: %d datasets, %" PRIu64 " bytes read", path,
          verdict->checkpoint ? "minnow checkpoint" : "HDF5", verdict->datasets, verdict->bytes);
  if (verdict->checksums == verdict->datasets)
    fputs(", every checksum right", out);
  else
    fprintf(out, ", %d of them with checksums, all right", verdict->checksums);
  if (verdict->unwritten) fprintf(out, ", %d never written", verdict->unwritten);
  if (verdict->links) fprintf(out, ", %d links not followed", verdict->links);
  putc('\n', out);
}

mn_status mn_verify(FILE *out, const char *path, int json) {
  struct verdict verdict = {0};
  struct answer answer;
  verdict.status = verify_file(&verdict, path);
  if (verdict.status != MN_OK && verdict.status != MN_BAD_DATA) return verdict.status;
  snprintf(verdict.reason, sizeof verdict.reason, "%s", mn_message());
  MN_TRY(answer_open(&answer, json));
  if (json)
    json_verdict(&answer.json, path, &verdict);
  else if (verdict.status == MN_OK)
    text_verdict(answer.stream, path, &verdict);
  return answer_close(&answer, out, 1, verdict.status);
}
