/* The command info: the content of a file. */
#include <stdlib.h>
#include <string.h>

#include "data/columns.h"
#include "data/csv/table.h"
#include "data/dataset.h"
#include "data/dataset_file.h"
#include "train/command/commands.h"

void mn_inspect_field(struct mn_json *json, const char *key, const void *value,
                      enum mn_hdf5_value_kind kind) {
  if (kind == MN_VALUE_INTEGER)
    mn_json_integer(json, key, *(const int64_t *)value);
  else if (kind == MN_VALUE_UNSIGNED)
    mn_json_unsigned(json, key, *(const uint64_t *)value);
  else if (kind == MN_VALUE_REAL)
    mn_json_number(json, key, *(const double *)value);
  else
    mn_json_string(json, key, value);
}

/* The columns of a CSV as a model has them. */
static mn_status show_table(struct mn_json *json, const char *text) {
  struct mn_table table;
  mn_status status = mn_table_parse(&table, text);
  mn_json_array_open(json, "columns");
  for (int i = 0; i < table.count && status == MN_OK; i++) {
    const struct mn_table_column *c = &table.columns[i];
    mn_json_open(json, NULL);
    mn_json_string(json, "name", c->name);
    mn_json_string(json, "kind", mn_column_kinds[c->kind]);
    mn_json_boolean(json, "target", c->target);
    mn_json_boolean(json, "gaps", c->gaps);
    if (!c->target && c->words.count < 3) mn_json_number(json, "mean", c->mean);
    mn_json_array_open(json, "words");
    for (int64_t k = 0; k < c->words.count; k++) mn_json_string(json, NULL, c->words.names[k]);
    mn_json_close(json);
    mn_json_close(json);
  }
  mn_json_close(json);
  mn_table_free(&table);
  return status;
}

static mn_status info_csv(struct mn_json *json, const char *path) {
  const struct mn_csv_config config = {0};
  struct mn_csv *csv;
  struct mn_dataset *rows = NULL;
  char *table = NULL;
  MN_TRY(mn_csv_open(&csv, path, &config));
  mn_status status = mn_csv_rows(&rows, csv, 1);
  if (status == MN_OK) status = mn_csv_fill(csv, rows);
  if (status == MN_OK) status = mn_csv_table(&table, csv);
  if (status == MN_OK) {
    mn_json_integer(json, "rows", rows->rows);
    mn_json_integer(json, "inputs", rows->inputs);
    mn_json_integer(json, "outputs", rows->outputs);
    status = show_table(json, table);
    mn_json_array_open(json, "notes");
    for (int i = 0; i < MN_CSV_NOTES; i++)
      if (mn_csv_note(csv, i)) {
        mn_json_open(json, NULL);
        mn_json_string(json, "note", mn_csv_note(csv, i));
        mn_json_close(json);
      }
    mn_json_close(json);
  }
  free(table);
  mn_dataset_close(rows);
  mn_csv_close(csv);
  return status;
}

/* A checkpoint. */

static void json_fields(struct mn_json *json, const struct mn_checkpoint *checkpoint,
                        const struct mn_checkpoint_field *fields) {
  for (; fields->name; fields++) {
    const int64_t *value = mn_checkpoint_value(fields, checkpoint);
    if (fields->length_offset) mn_json_array_open(json, fields->name);
    for (int i = 0; i < mn_checkpoint_length(fields, checkpoint); i++)
      mn_inspect_field(json, NULL, value + i, fields->kind);
    if (fields->length_offset)
      mn_json_close(json);
    else
      mn_inspect_field(json, fields->name, value, fields->kind);
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

static mn_status info_checkpoint(struct mn_json *json, struct mn_hdf5_file *file) {
  struct mn_checkpoint *checkpoint;
  MN_TRY(mn_checkpoint_load(&checkpoint, file->path));
  mn_json_integer(json, "format_version", checkpoint->version);
  mn_json_bytes(json, "bytes", (double)file->size);
  mn_json_integer(json, "checksums", checkpoint->checksums);
  mn_json_open(json, "model");
  json_fields(json, checkpoint, mn_checkpoint_model_fields);
  mn_json_boolean(json, "standardized", checkpoint->standard[MN_X][0].value != NULL);
  mn_json_boolean(json, "standardized_targets", checkpoint->standard[MN_Y][0].value != NULL);
  mn_json_array_open(json, "classes");
  for (int64_t k = 0; k < checkpoint->class_names.count; k++)
    mn_json_string(json, NULL, checkpoint->class_names.names[k]);
  mn_json_close(json);
  mn_json_close(json);
  if (checkpoint->table) MN_TRY(show_table(json, checkpoint->table));
  mn_json_integer(json, "parameters", mn_model_size(&checkpoint->model));
  for (int k = MN_CHECKPOINT_VALUE + 1; k < MN_CHECKPOINT_ARRAYS; k++)
    mn_json_boolean(json, basename(mn_checkpoint_groups[k]), checkpoint->tensors[0].arrays[k] != NULL);
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
  /* The rows that a resume compares: all, or 4096 spread over the file. */
  const char *rows = mn_text_find(checkpoint->options, checkpoint->option_count, "data_rows");
  if (rows) mn_json_string(json, "compared_rows", strchr(rows, ' ') ? "all" : "4096");
  json_options(json, "config", checkpoint->options, checkpoint->option_count);
  json_options(json, "fingerprint", checkpoint->fingerprint, checkpoint->fingerprint_count);
  json_options(json, "history", checkpoint->history, checkpoint->history_count);
  mn_checkpoint_free(checkpoint);
  return MN_OK;
}

/* Any other HDF5 file. */

/* Shows why the file cannot be trained on as it is. */
static void show_refusal(struct mn_json *json, const char *path) {
  struct mn_dataset *whole = NULL;
  if (mn_dataset_open(&whole, path, MN_PART_TRAIN, NULL, NULL, 1) != MN_OK)
    mn_json_string(json, "refused", mn_message());
  mn_dataset_close(whole);
}

/* Shows the sizes of a file of weights alone, or why the file cannot be trained on. */
static void show_no_rows(struct mn_json *json, const char *path) {
  struct mn_model_config sizes = {0};
  if (mn_weights_sizes(path, &sizes) != MN_OK) {
    show_refusal(json, path);
    return;
  }
  mn_json_open(json, "weights");
  mn_json_integer(json, "inputs", sizes.inputs);
  mn_json_integer(json, "outputs", mn_model_outputs(&sizes));
  mn_json_close(json);
}

/* Reads the names of the columns of x, if the file has a dataset `columns` of as many texts. What cannot be
 * read is as if it were not there. */
static int32_t *read_names(const char *path, int64_t inputs, struct mn_class_names *names) {
  struct mn_hdf5_file file;
  struct mn_hdf5_object o = {.id = -1};
  int32_t *which = NULL;
  *names = (struct mn_class_names){0};
  if (mn_hdf5_open(&file, path, "", 0) != MN_OK) return NULL;
  if (mn_hdf5_find(&file, &file.root, "columns", &o) == MN_OK && o.kind == MN_HDF5_DATASET &&
      mn_has_words(&o) && o.rank == 1 && o.shape[0] == (hsize_t)inputs &&
      (which = malloc((size_t)inputs * sizeof *which)) &&
      (mn_hdf5_check(&file, &o) != MN_OK || mn_read_words(&file, &o, inputs, which, names) != MN_OK))
    free(which), which = NULL;
  mn_hdf5_release(&o);
  mn_hdf5_close(&file);
  return which;
}

static void show_column(struct mn_json *json, const struct mn_columns *c, const char *name, int64_t i) {
  mn_json_open(json, NULL);
  mn_json_integer(json, "column", i);
  if (name) mn_json_string(json, "name", name);
  mn_json_number(json, "mean", c->mean[i]);
  mn_json_number(json, "deviation", c->deviation[i]);
  mn_json_number(json, "smallest", c->smallest[i]);
  mn_json_number(json, "largest", c->largest[i]);
  mn_json_close(json);
}

/* Plain, the first columns and those with the least deviation above 0 and the largest; JSON has all. */
static void show_columns(struct mn_json *json, struct mn_dataset *dataset, const char *path) {
  enum { SHOWN = 8, MOST = 256 << 20 }; /* columns, and bytes that are read, as doubles */
  struct mn_columns c;
  struct mn_class_names names;
  int32_t *which = read_names(path, dataset->inputs, &names);
  const int64_t most = MOST / (int64_t)sizeof(double) / dataset->inputs;
  int64_t least, largest, shown = 0;
  if (mn_columns_measure(&c, dataset, MN_X, most, NULL) == MN_OK) {
    mn_columns_extremes(&c, &least, &largest);
    mn_json_array_open(json, "columns");
    for (int64_t i = 0; i < c.cols; i++)
      if (!json->plain || i < SHOWN || i == least || i == largest)
        show_column(json, &c, which ? names.names[which[i]] : NULL, i), shown++;
    mn_json_close(json);
    if (shown < c.cols) mn_json_string(json, "more_columns", "--json has all");
  } else {
    mn_json_string(json, "refused", mn_message());
  }
  free(which), free(names.names);
  mn_columns_free(&c);
}

/* Shows the rows that train would read from one part of the file; a refused file is not an error. */
static mn_status show_part(struct mn_json *json, const char *path, enum mn_part part, const char *key) {
  struct mn_dataset *dataset = NULL;
  const mn_status status = mn_dataset_open(&dataset, path, part, NULL, NULL, 0);
  if (status == MN_NO_MEMORY || status == MN_IO) return status;
  if (status != MN_OK || !dataset) {
    mn_json_null(json, key);
    if (status != MN_OK && part == MN_PART_TRAIN) show_no_rows(json, path);
    return MN_OK;
  }
  mn_json_open(json, key);
  mn_json_integer(json, "rows", dataset->rows);
  mn_json_integer(json, "inputs", dataset->inputs);
  mn_json_integer(json, "outputs", dataset->outputs);
  mn_json_boolean(json, "classes", dataset->classes);
  show_columns(json, dataset, path);
  if (dataset->outputs == 0 && part == MN_PART_TRAIN) show_refusal(json, path);
  mn_json_close(json);
  mn_dataset_close(dataset);
  return MN_OK;
}

/* Whether the dataset can be read as rows of reals and has 16 MiB or more; a smaller one is read fast in any
 * form. Integers of rank 2 are read as reals. */
static int are_rows(const struct mn_hdf5_object *o) {
  enum { WORTH_IT = 16 << 20 };
  if (o->layout == H5D_VIRTUAL || o->external || o->lacks || o->bytes < WORTH_IT) return 0;
  return (o->class == H5T_FLOAT && (o->rank == 1 || o->rank == 2)) ||
         (o->class == H5T_INTEGER && o->rank == 2);
}

/* Shows what makes rows slow to read, and the remedy. Rows that the file stores as they are in memory are
 * read by several threads, without HDF5 (data/hdf5/dataset_file.c); all others are read, unpacked and
 * converted under HDF5's lock, by one thread at a time. */
static void show_advice(struct mn_json *json, const struct mn_hdf5_object *o) {
  const int chunked = o->layout == H5D_CHUNKED, converted = o->native != sizeof(float);
  if (!are_rows(o) || (!chunked && !converted)) return;
  char chunks[64] = "", cause[200], remedy[400];
  const char *packed = o->filters > o->checksum ? "compressed " : "";
  const hsize_t across = chunked && o->rank == 2 ? (o->shape[1] - 1) / o->chunk[1] + 1 : 1;
  if (across > 1)
    snprintf(chunks, sizeof chunks, ", in %schunks, %llu to a row", packed, (unsigned long long)across);
  else if (chunked)
    snprintf(chunks, sizeof chunks, ", in %schunks", packed);
  snprintf(cause, sizeof cause, "one thread reads it through HDF5%s%s%s%s", chunks,
           converted ? ", converting each " : "", converted && o->swapped ? "big-endian " : "",
           converted ? o->type : "");
  const char *name = o->name + (o->name[0] == '/');
  if (converted)
    snprintf(remedy, sizeof remedy,
             "store it unchunked as float32, in h5py out[\"%.150s\"] = x.astype(\"<f4\")%s", name,
             o->class == H5T_INTEGER ? ", times scale_factor plus add_offset where it has them" : "");
  else
    snprintf(remedy, sizeof remedy, "h5repack -l %.150s:CONTI -f %.150s:NONE in.h5 out.h5", name, name);
  mn_json_string(json, "slow", cause);
  mn_json_string(json, "remedy", remedy);
}

static void show_dataset(struct mn_json *json, const struct mn_hdf5_object *object) {
  mn_json_string(json, "type", object->type);
  mn_json_array_open(json, "shape");
  for (int i = 0; i < object->rank; i++) mn_json_unsigned(json, NULL, object->shape[i]);
  mn_json_close(json);
  mn_json_unsigned(json, "stored_bytes", object->stored);
  mn_json_boolean(json, "checksums", object->checksum);
  mn_json_boolean(json, "in_other_files", object->layout == H5D_VIRTUAL || object->external);
  show_advice(json, object);
}

static const char *const kinds[] = {
    [MN_HDF5_NOTHING] = "nothing", [MN_HDF5_GROUP] = "group", [MN_HDF5_DATASET] = "dataset",
    [MN_HDF5_LINK] = "link",       [MN_HDF5_OTHER] = "other", [MN_HDF5_UNREADABLE] = "unreadable"};
_Static_assert(sizeof kinds / sizeof *kinds == MN_HDF5_UNREADABLE + 1, "a word for each kind of object");

static mn_status show_object(void *data, struct mn_hdf5_file *file, const struct mn_hdf5_object *object) {
  struct mn_json *json = data;
  mn_json_open(json, NULL);
  mn_json_string(json, "name", object->name);
  mn_json_string(json, "kind", kinds[object->kind]);
  if (object->kind == MN_HDF5_DATASET) show_dataset(json, object);
  if (object->kind == MN_HDF5_UNREADABLE) mn_json_string(json, "refused", mn_message());
  mn_json_close(json);
  return MN_OK;
}

static mn_status info_other(struct mn_json *json, struct mn_hdf5_file *file) {
  mn_json_bytes(json, "bytes", (double)file->size);
  mn_json_array_open(json, "objects");
  MN_TRY(mn_hdf5_walk(file, show_object, json));
  mn_json_close(json);
  MN_TRY(show_part(json, file->path, MN_PART_TRAIN, "train"));
  return show_part(json, file->path, MN_PART_TEST, "test");
}

mn_status mn_info(FILE *out, const char *path, int as_json) {
  struct mn_hdf5_file file;
  struct mn_json json;
  int checkpoint;
  if (mn_csv_named(path)) {
    MN_TRY(mn_json_begin_answer(&json, !as_json));
    mn_json_open(&json, NULL);
    mn_json_string(&json, "file", path);
    mn_json_string(&json, "kind", "csv");
    const mn_status read = info_csv(&json, path);
    mn_json_close(&json);
    return mn_json_end_answer(&json, out, read);
  }
  MN_TRY(mn_hdf5_open(&file, path, "take a copy or make it anew", 0));
  mn_status status = mn_checkpoint_format(&file, &checkpoint);
  if (status == MN_BAD_DATA && file.newer) status = MN_OK; /* an attribute is newer, others can be listed */
  if (status == MN_OK) status = mn_json_begin_answer(&json, !as_json);
  if (status == MN_OK) {
    mn_json_open(&json, NULL);
    mn_json_string(&json, "file", path);
    mn_json_string(&json, "kind", checkpoint ? "checkpoint" : "hdf5");
    status = (checkpoint ? info_checkpoint : info_other)(&json, &file);
    mn_json_close(&json);
    status = mn_json_end_answer(&json, out, status);
  }
  mn_hdf5_close(&file);
  return status;
}
