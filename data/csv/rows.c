/* A CSV file's rows as a dataset: columns are stored, rows are put together when they are read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv/table.h"
#include "data/fingerprint.h"
#include "data/held_out.h"

struct mn_csv {
  struct mn_csv_file file;
  struct mn_table table;
  int new, filled;                /* the table is this file's own; mn_csv_fill has set its means */
  int id, weights;                /* the columns of ids, and of weights; or −1 */
  int64_t inputs, outputs, alone; /* alone: as in struct mn_dataset */
  int classes;
  const struct mn_class_names *names; /* of classes that are words */
  size_t real[2];                     /* what holds all values of x, and of y, exactly */
  int64_t *kept, kept_count;          /* rows that have a target, if some lack it; else NULL */
  char notes[MN_CSV_NOTES][600];
};

struct csv_rows {
  struct mn_dataset base; /* first, so that the two convert */
  const struct mn_csv *csv;
};

/* ---- reading ---- */

static double value_at(const struct csv_rows *r, int column, int64_t row) {
  const struct mn_csv_file *f = &r->csv->file;
  return mn_csv_at(&f->column[column], f->header + (r->base.numbers ? r->base.numbers[row] : row));
}

/* Writes the inputs of a column from x's column `at` on. */
static void read_column(const struct csv_rows *r, const struct mn_table_column *t, int64_t first,
                        int64_t count, size_t real, void *x, int64_t at) {
  const int words = t->kind == MN_COLUMN_WORDS && t->words.count > 2;
  for (int64_t i = 0; i < count; i++, at += r->base.inputs) {
    const double value = value_at(r, t->source, first + i);
    for (int64_t k = 0; words && k < t->words.count; k++) mn_real_put(x, real, at + k, value == (double)k);
    if (!words) mn_real_put(x, real, at, isnan(value) ? t->mean : value);
    if (t->gaps) mn_real_put(x, real, at + 1, isnan(value));
  }
}

static mn_status read_targets(const struct csv_rows *r, int64_t first, int64_t count, size_t real, void *y) {
  const struct mn_csv *csv = r->csv;
  int64_t k = 0;
  for (int c = 0; c < csv->table.count; c++) {
    const struct mn_table_column *t = &csv->table.columns[c];
    for (int64_t i = 0; t->target && i < count; i++) {
      const double value = value_at(r, t->source, first + i);
      if (isnan(value))
        return mn_fail(MN_BAD_DATA, "%s: row %lld (from 0) lacks its target, column %s: leave it out",
                       csv->file.path, (long long)mn_dataset_row(&r->base, first + i), t->name);
      if (csv->classes)
        ((int32_t *)y)[i] = (int32_t)fmin(value, INT32_MAX);
      else
        mn_real_put(y, real, i * csv->outputs + k, value);
    }
    k += t->target;
  }
  return csv->classes ? MN_OK
                      : mn_dataset_check_finite(csv->file.path, "of targets", first * csv->outputs,
                                                csv->outputs, count * csv->outputs, y, real);
}

static mn_status csv_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                          void *y) {
  const struct csv_rows *r = (const struct csv_rows *)dataset;
  const struct mn_csv *csv = r->csv;
  int64_t at = 0;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  for (int c = 0; x && c < csv->table.count; c++) {
    const struct mn_table_column *t = &csv->table.columns[c];
    if (!t->target) read_column(r, t, first, count, real, x, at), at += mn_column_width(t);
  }
  if (x && real == sizeof(float) && csv->real[0] != real) /* else all are floats */
    MN_TRY(mn_dataset_check_finite(csv->file.path, "of inputs", first * csv->inputs, csv->inputs,
                                   count * csv->inputs, x, real));
  return y ? read_targets(r, first, count, real, y) : MN_OK;
}

/* ---- rows ---- */

/* Lists the rows that have all targets. */
static mn_status keep_rows(struct mn_csv *csv) {
  const struct csv_rows all = {.csv = csv};
  if (!(csv->kept = malloc((size_t)csv->file.rows * sizeof *csv->kept)))
    return mn_fail(MN_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)csv->file.rows);
  for (int64_t row = 0; row < csv->file.rows; row++) {
    int whole = 1;
    for (int c = 0; c < csv->table.count; c++)
      if (csv->table.columns[c].target && isnan(value_at(&all, csv->table.columns[c].source, row))) whole = 0;
    if (whole) csv->kept[csv->kept_count++] = row;
  }
  return MN_OK;
}

/* A text among the targets that is none of the table's classes is refused, with its row. */
static mn_status check_classes(const struct mn_csv *csv) {
  for (int c = 0; c < csv->table.count; c++) {
    const struct mn_table_column *t = &csv->table.columns[c];
    const struct mn_csv_column *source = &csv->file.column[t->source];
    for (int64_t row = 0; t->target && source->codes && row < csv->file.rows; row++) {
      const struct mn_csv_text *text = &source->texts[source->codes[csv->file.header + row]];
      if (text->kind != MN_CSV_MISSING && isnan(text->value))
        return mn_fail(MN_BAD_DATA,
                       "%s: row %lld (from 0) of column %s is '%s', which is none of the model's classes: "
                       "correct it, or leave out the row",
                       csv->file.path, (long long)row, t->name, text->text);
    }
  }
  return MN_OK;
}

static mn_status weigh(struct csv_rows *r) {
  const struct mn_csv *csv = r->csv;
  const struct mn_csv_column *c = &csv->file.column[csv->weights];
  double *const weights = malloc((size_t)r->base.rows * sizeof *weights);
  if (!weights) return mn_fail(MN_NO_MEMORY, "no memory for the weights of %ld rows", (long)r->base.rows);
  mn_status status = MN_OK;
  for (int64_t row = 0; row < r->base.rows && status == MN_OK; row++) {
    const int64_t in_file = r->base.numbers ? r->base.numbers[row] : row;
    const struct mn_csv_text *text = c->codes ? &c->texts[c->codes[csv->file.header + in_file]] : NULL;
    weights[row] = value_at(r, csv->weights, row);
    /* A table may have replaced a text's value. */
    if (text ? mn_csv_value(text->text, csv->file.decimal, &weights[row]) != MN_CSV_NUMBER
             : isnan(weights[row]) || c->as != MN_CSV_NUMBER)
      status = mn_fail(MN_BAD_DATA, "%s: row %ld (from 0) of column %s is no number: each row has a weight",
                       csv->file.path, (long)in_file, c->name);
  }
  if (status == MN_OK) status = mn_dataset_weigh(&r->base, weights);
  if (status == MN_USAGE)
    status = mn_fail(MN_BAD_DATA, "%s: column %s: %s", csv->file.path, c->name, mn_message());
  free(weights);
  return status;
}

mn_status mn_csv_rows(struct mn_dataset **out, struct mn_csv *csv, int targets) {
  MN_OPENS(out, csv);
  int there = csv->outputs > 0;
  for (int c = 0; c < csv->table.count; c++) {
    const struct mn_table_column *t = &csv->table.columns[c];
    if (t->source < 0 && targets)
      return mn_fail(MN_BAD_DATA, "%s: holds no column %s, the target: predict needs none", csv->file.path,
                     t->name);
    there = there && t->source >= 0;
  }
  const int wanted = there && targets;
  if (wanted && csv->classes && !csv->new) MN_TRY(check_classes(csv));
  if (wanted && !csv->kept) MN_TRY(keep_rows(csv));
  if (targets && csv->kept_count == 0)
    return mn_fail(MN_BAD_DATA, "%s: no row has a target: predict needs none", csv->file.path);
  const int some = wanted && csv->kept_count < csv->file.rows;
  struct csv_rows *r = calloc(1, sizeof *r);
  if (!r) return mn_fail(MN_NO_MEMORY, "no memory for the rows of %s", csv->file.path);
  *r = (struct csv_rows){.base = {.rows = some ? csv->kept_count : csv->file.rows,
                                  .inputs = csv->inputs,
                                  .outputs = there ? csv->outputs : 0,
                                  .classes = there && csv->classes,
                                  .alone = there ? csv->alone : 0,
                                  .class_names = there ? csv->names : NULL,
                                  .parallel = csv->real[0],
                                  .y_parallel = csv->real[1],
                                  .numbers = some ? csv->kept : NULL,
                                  .fingerprinting = &mn_fingerprinting,
                                  .read = csv_read},
                         .csv = csv};
  const mn_status status = csv->weights < 0 ? MN_OK : weigh(r);
  if (status == MN_OK)
    *out = &r->base;
  else
    mn_dataset_close(&r->base);
  return status;
}

mn_status mn_csv_fill(struct mn_csv *csv, struct mn_dataset *train) {
  MN_GIVEN(csv, train);
  if (!csv->new) return MN_OK;
  int64_t *const in_file = malloc((size_t)train->rows * sizeof *in_file);
  if (!in_file)
    return mn_fail(MN_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)train->rows);
  for (int64_t row = 0; row < train->rows; row++)
    in_file[row] = csv->file.header + mn_dataset_row(train, row);
  for (int c = 0; c < csv->table.count; c++) {
    struct mn_table_column *t = &csv->table.columns[c];
    double sum = 0, count = 0;
    if (t->target || (t->kind == MN_COLUMN_WORDS && t->words.count > 2)) continue;
    for (int64_t row = 0; row < train->rows; row++) {
      const double value = mn_csv_at(&csv->file.column[t->source], in_file[row]);
      if (!isnan(value)) sum += value * 0x1p-40, count++; /* no sum overflows */
    }
    t->mean = count > 0 ? sum / count * 0x1p40 : 0;
  }
  free(in_file);
  csv->filled = 1;
  return MN_OK;
}

/* ---- opening and closing ---- */

/* Whether a column's values are all floats. */
static int is_narrow(const struct mn_csv_column *c) {
  for (int i = 0; i < c->count; i++)
    if (c->texts[i].rows && (double)(float)c->texts[i].value != c->texts[i].value &&
        !isnan(c->texts[i].value))
      return 0;
  return !c->wide;
}

/* Sets the sizes of the rows, the width of their reals, and what their targets are. */
static void measure(struct mn_csv *csv) {
  csv->real[0] = csv->real[1] = sizeof(float);
  for (int i = 0; i < csv->table.count; i++) {
    const struct mn_table_column *t = &csv->table.columns[i];
    *(t->target ? &csv->outputs : &csv->inputs) += mn_column_width(t);
    if (t->target) csv->classes = t->kind >= MN_COLUMN_WORDS;
    if (t->target && t->kind == MN_COLUMN_WORDS) csv->names = &t->words;
    if (t->source < 0) continue;
    const struct mn_csv_column *c = &csv->file.column[t->source];
    if (!is_narrow(c)) csv->real[t->target] = sizeof(double);
    double smallest = INFINITY, largest = -1; /* of labels, or words' numbers */
    for (int k = 0; t->target && csv->classes && k < c->count; k++)
      if (c->texts[k].rows && !isnan(c->texts[k].value))
        smallest = fmin(smallest, c->texts[k].value), largest = fmax(largest, c->texts[k].value);
    if (t->kind == MN_COLUMN_LABELS) csv->outputs = (int64_t)fmin(largest, INT32_MAX - 1) + 1;
    if (smallest == largest) csv->alone = (int64_t)largest + 1;
    if (!t->target && t->missing) csv->real[0] = sizeof(double); /* for its mean */
  }
}

static void describe(struct mn_csv *csv, const struct mn_csv_lists *lists) {
  static const char *const forms[] = {
      "", "left out: %s", "missing: %s", "not of their column's kind, so missing: %s",
      "the first line is taken for names, such as %s; --header no takes it for a row"};
  const char *const texts[] = {"", lists->out.text, lists->missing.text, lists->odd.text,
                               csv->file.doubtful ? csv->file.column[0].name : ""};
  int of_kind[MN_COLUMN_KINDS] = {0};
  for (int i = 0; i < csv->table.count; i++)
    of_kind[csv->table.columns[i].kind] += !csv->table.columns[i].target;
  for (int k = 1; k < MN_CSV_NOTES; k++)
    if (*texts[k]) snprintf(csv->notes[k], sizeof csv->notes[k], forms[k], texts[k]);
  char dates[32] = "", words[32] = "";
  if (!csv->new) return;
  if (of_kind[MN_COLUMN_DATE]) snprintf(dates, sizeof dates, ", %d of dates", of_kind[MN_COLUMN_DATE]);
  if (of_kind[MN_COLUMN_WORDS]) snprintf(words, sizeof words, ", %d of words", of_kind[MN_COLUMN_WORDS]);
  snprintf(csv->notes[0], sizeof csv->notes[0], "columns: %d of numbers%s%s; target %.400s",
           of_kind[MN_COLUMN_NUMBER], dates, words, lists->target.text);
}

/* Whether the first line's text is the name of one of the table's columns; numbers may be values too. */
static int is_known(const void *names, const char *name) {
  const struct mn_table *t = names;
  int found = 0;
  for (int i = 0; i < t->count && !found; i++) found = strcmp(t->columns[i].name, name) == 0;
  return found && name[strspn(name, "0123456789")];
}

/* The column of a name; −1 without a name. */
static mn_status find_column(const struct mn_csv *csv, const char *option, const char *name, int *out) {
  const struct mn_csv_file *f = &csv->file;
  MN_TRY(mn_csv_check_names(f, option, name));
  for (*out = name ? 0 : -1; name && *out < f->columns && strcmp(f->column[*out].name, name) != 0;) ++*out;
  return *out < f->columns ? MN_OK : mn_fail(MN_USAGE, "--%s %s: one column works", option, name);
}

static mn_status open_csv(struct mn_csv *csv, const char *path, const struct mn_csv_config *config) {
  struct mn_csv_lists lists = {0};
  if (config->table) MN_TRY(mn_table_parse(&csv->table, config->table));
  MN_TRY(mn_csv_read(&csv->file, path, config->header, config->id, config->table ? is_known : NULL,
                     &csv->table));
  csv->new = !config->table;
  MN_TRY(csv->new ? mn_table_infer(&csv->table, &csv->file, config, &lists)
                  : mn_table_find(&csv->table, &csv->file, &lists));
  MN_TRY(find_column(csv, "id", config->id, &csv->id));
  MN_TRY(find_column(csv, "weights", config->weights, &csv->weights));
  for (int c = 0; c < csv->table.count && config->weights; c++)
    if (csv->table.columns[c].source == csv->weights && csv->table.columns[c].target)
      return mn_fail(MN_USAGE, "--weights %s: this column is the target", config->weights);
  describe(csv, &lists);
  measure(csv);
  return MN_OK;
}

mn_status mn_csv_open(struct mn_csv **out, const char *path, const struct mn_csv_config *config) {
  MN_OPENS(out, path, config);
  struct mn_csv *csv = *out = calloc(1, sizeof *csv);
  if (!csv) return mn_fail(MN_NO_MEMORY, "no memory to open %s", path);
  const mn_status status = open_csv(csv, path, config);
  if (status != MN_OK) mn_csv_close(csv), *out = NULL;
  return status;
}

void mn_csv_close(struct mn_csv *csv) {
  if (!csv) return;
  mn_csv_free(&csv->file);
  mn_table_free(&csv->table);
  free(csv->kept);
  free(csv);
}

const char *mn_csv_id(const struct mn_csv *csv, int64_t row) {
  if (csv->id < 0) return NULL;
  const struct mn_csv_ids *ids = &csv->file.column[csv->id].ids;
  return ids->texts && row >= 0 && row < csv->file.rows ? ids->texts + ids->starts[csv->file.header + row]
                                                        : NULL;
}

const char *mn_csv_input(const struct mn_csv *csv, int64_t input) {
  const struct mn_table_column *t = csv->table.columns;
  for (; t->target || input >= mn_column_width(t); t++)
    if (!t->target) input -= mn_column_width(t);
  return t->name;
}

int mn_csv_named(const char *path) {
  static const char *const endings[] = {".csv", ".tsv", ".txt", ".data", ".dat"};
  const char *dot = strrchr(path, '.');
  for (int i = 0; i < 5; i++)
    if (dot && strcasecmp(dot, endings[i]) == 0) return 1;
  return 0;
}

mn_status mn_csv_table(char **out, const struct mn_csv *csv) {
  if (csv->new && !csv->filled)
    return mn_fail(MN_USAGE, "nothing stands for missing values of %s yet: call mn_csv_fill before",
                   csv->file.path);
  return mn_table_show(out, &csv->table);
}

const char *mn_csv_note(const struct mn_csv *csv, int number) {
  return *csv->notes[number] ? csv->notes[number] : NULL;
}
