/* Tables as JSON, and how one is made from a file, or found in it. */
#include "data/csv/table.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  FEW_CLASSES = 30,
  FEW_WORDS = 10,
  GAPS = 100
}; /* gaps: an input of their own above a row in so many */
const char *const mn_column_kinds[MN_COLUMN_KINDS] = {"number", "date", "words", "labels"};

int64_t mn_column_width(const struct mn_table_column *c) {
  const int words = c->kind == MN_COLUMN_WORDS;
  if (c->target) return words ? c->words.count : 1;
  return (words && c->words.count > 2 ? c->words.count : 1) + c->gaps;
}

/* ---- JSON ---- */

static mn_status no_memory(void) {
  return mn_fail(MN_NO_MEMORY, "no memory for the table of a CSV file");
}

mn_status mn_table_show(char **out, const struct mn_table *table) {
  json_t *all = json_array();
  int failed = !all;
  for (int i = 0; i < table->count && !failed; i++) {
    const struct mn_table_column *c = &table->columns[i];
    json_t *words = c->words.count ? json_array() : NULL;
    for (int64_t k = 0; k < c->words.count && !failed; k++)
      failed = json_array_append_new(words, json_string(c->words.names[k])) != 0;
    json_t *o = json_pack("{s:s, s:s, s:f, s:o*}", "name", c->name, "kind", mn_column_kinds[c->kind], "mean",
                          isnan(c->mean) ? 0 : c->mean, "words", words);
    if (c->gaps) failed = json_object_set_new(o, "gaps", json_true()) != 0 || failed;
    if (c->target) failed = json_object_set_new(o, "target", json_true()) != 0 || failed;
    failed = json_array_append_new(all, o) != 0 || failed;
  }
  *out = failed ? NULL : json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17));
  json_decref(all);
  return *out ? MN_OK : no_memory();
}

/* Reads one column's object. Returns 0 if it is none. */
static int parse_column(struct mn_table_column *c, json_t *o, mn_status *status) {
  const char *name, *kind;
  json_t *words = json_object_get(o, "words");
  if (json_unpack(o, "{s:s, s:s, s:F, s?b, s?b}", "name", &name, "kind", &kind, "mean", &c->mean, "gaps",
                  &c->gaps, "target", &c->target) != 0)
    return 0;
  while (c->kind < MN_COLUMN_KINDS && strcmp(kind, mn_column_kinds[c->kind]) != 0) c->kind++;
  c->name = strdup(name);
  c->words.count = (int64_t)json_array_size(words);
  c->words.names = calloc((size_t)c->words.count + 1, sizeof *c->words.names);
  if (!c->name || !c->words.names) return *status = no_memory(), 1;
  if (c->kind == MN_COLUMN_KINDS || c->words.count > MN_CLASSES_MOST ||
      (c->kind == MN_COLUMN_WORDS) != (c->words.count > 0))
    return 0;
  for (int64_t k = 0; k < c->words.count; k++) {
    const char *word = json_string_value(json_array_get(words, (size_t)k));
    if (!word || strlen(word) >= MN_CLASS_NAME || (k && strcmp(c->words.names[k - 1], word) >= 0)) return 0;
    strcpy(c->words.names[k], word);
  }
  return 1;
}

mn_status mn_table_parse(struct mn_table *out, const char *text) {
  json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  const size_t count = json_array_size(all);
  mn_status status = MN_OK;
  int good = count > 0;
  *out = (struct mn_table){.columns = calloc(count + 1, sizeof *out->columns)};
  if (!out->columns) status = no_memory();
  for (size_t i = 0; i < count && good && status == MN_OK; i++, out->count++)
    good = parse_column(&out->columns[i], json_array_get(all, i), &status);
  out->count += !good; /* what it has is freed */
  json_decref(all);
  return good ? status : mn_fail(MN_BAD_DATA, "its /table is no list of columns");
}

void mn_table_free(struct mn_table *t) {
  for (int i = 0; i < t->count; i++) free(t->columns[i].name), free(t->columns[i].words.names);
  free(t->columns);
  *t = (struct mn_table){0};
}

/* ---- lists for messages ---- */

static void note(struct mn_csv_list *list, const char *format, ...) {
  const size_t used = strlen(list->text), room = sizeof list->text - used;
  char *end = list->text + used;
  va_list values;
  if (room < 8) return;
  va_start(values, format);
  const int length = snprintf(end, room, used ? ", " : "%s", "");
  const int more = vsnprintf(end + length, room - (size_t)length, format, values);
  va_end(values);
  if ((size_t)(length + more) + 8 >= room) memset(end, 0, room), snprintf(end, room, ", …");
}

/* ---- a column's kind ---- */

static int64_t present(const struct mn_csv_column *c) {
  return c->of_kind[MN_CSV_NUMBER] + c->of_kind[MN_CSV_DATE] + c->of_kind[MN_CSV_WORD];
}

/* How many different texts are not missing; if there are too many, INT_MAX. */
static int distinct(const struct mn_csv_column *c) {
  int count = c->codes ? 0 : INT_MAX;
  for (int i = 0; i < c->count; i++) count += c->texts[i].rows > 0 && c->texts[i].kind != MN_CSV_MISSING;
  return count;
}

/* What a column holds: what nine tenths of its texts are; else words. */
static enum mn_column_kind kind_of(const struct mn_csv_column *c) {
  if (10 * c->of_kind[MN_CSV_NUMBER] >= 9 * present(c)) return MN_COLUMN_NUMBER;
  return 10 * c->of_kind[MN_CSV_DATE] >= 9 * present(c) ? MN_COLUMN_DATE : MN_COLUMN_WORDS;
}

/* A word as the table has it. Of numbers it is the shortest text: 3 for 3.0. */
static const char *word_of(char out[MN_CLASS_NAME], const struct mn_csv_text *t, int numbers) {
  if (numbers) snprintf(out, MN_CLASS_NAME, "%.15g", t->value);
  return numbers ? out : t->text;
}

static int longest(const struct mn_csv_column *c) {
  size_t most = 0;
  for (int i = 0; i < c->count; i++)
    if (c->texts[i].rows && strlen(c->texts[i].text) > most) most = strlen(c->texts[i].text);
  return (int)most;
}

/* Lists a column's words, of numbers if `numbers`; equal ones once. */
static mn_status list_words(struct mn_table_column *t, const struct mn_csv_column *c, int numbers) {
  char number[MN_CLASS_NAME];
  struct mn_class_names *w = &t->words;
  if (!(w->names = calloc((size_t)c->count + 1, sizeof *w->names))) return no_memory();
  for (int i = 0; i < c->count; i++)
    if (c->texts[i].rows &&
        (numbers ? c->texts[i].kind == MN_CSV_NUMBER : c->texts[i].kind != MN_CSV_MISSING))
      strcpy(w->names[w->count++], word_of(number, &c->texts[i], numbers));
  mn_class_names_sort(w);
  int64_t kept = 0;
  for (int64_t i = 0; i < w->count; i++)
    if (i == 0 || strcmp(w->names[kept - 1], w->names[i]) != 0)
      memmove(w->names[kept++], w->names[i], MN_CLASS_NAME);
  w->count = kept;
  return MN_OK;
}

/* Replaces the values of a column's texts by what they stand for: a number, or the number of a word; NaN if
 * it is none. */
static void set_values(const struct mn_table_column *t, struct mn_csv_column *c) {
  for (int i = 0; i < c->count; i++) {
    struct mn_csv_text *text = &c->texts[i];
    char number[MN_CLASS_NAME];
    const int is_number = text->kind == MN_CSV_NUMBER;
    if (t->kind == MN_COLUMN_WORDS) {
      int64_t word = text->kind == MN_CSV_MISSING ? -1 : mn_class_find(&t->words, text->text);
      if (word < 0 && is_number) word = mn_class_find(&t->words, word_of(number, text, 1));
      text->value = word < 0 ? NAN : (double)word;
    } else if (t->kind == MN_COLUMN_DATE ? text->kind != MN_CSV_DATE : !is_number) {
      text->value = NAN;
    } else if (t->kind == MN_COLUMN_LABELS && !(text->value >= 0 && text->value <= 2 * MN_CLASSES_MOST + 2 &&
                                                text->value == floor(text->value))) {
      text->value = NAN;
    }
  }
}

/* Counts the rows in which a column is missing, and tells which texts were taken as that. */
static void note_missing(struct mn_table_column *t, const struct mn_csv_column *c,
                         struct mn_csv_lists *lists) {
  char words[64];
  int64_t odd = c->codes ? 0 : present(c) - c->of_kind[c->as];
  snprintf(words, sizeof words, "%s", c->odd);
  for (int i = 0; i < c->count; i++) {
    const struct mn_csv_text *text = &c->texts[i];
    if (!text->rows || text->kind == MN_CSV_MISSING || !isnan(text->value)) continue;
    odd += text->rows;
    if (strlen(words) + strlen(text->text) + 3 < sizeof words)
      strcat(strcat(words, *words ? ", " : ""), text->text);
  }
  if (odd) note(&lists->odd, "%s %lld (%s)", t->name, (long long)odd, words);
  t->missing = odd + c->of_kind[MN_CSV_MISSING];
  if (t->missing)
    note(&lists->missing, t->target ? "%s %lld (the target: rows for predict alone)" : "%s %lld", t->name,
         (long long)t->missing);
}

/* ---- a new table ---- */

/* Whether `name` is one of the names between commas, or all of them. */
static int is_listed(const char *list, const char *name) {
  const size_t length = strlen(name);
  if (!list || strcmp(list, name) == 0) return list != NULL;
  for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
    if (strncmp(p, name, length) == 0 && (p[length] == ',' || !p[length])) return 1;
  return 0;
}

mn_status mn_csv_check_names(const struct mn_csv_file *f, const char *option, const char *list) {
  struct mn_csv_list names = {""};
  int all = !list;
  for (int i = 0; i < f->columns; i++) {
    all = all || strcmp(list, f->column[i].name) == 0; /* with commas in its name */
    note(&names, "%s", f->column[i].name);
  }
  for (const char *p = list; p && !all; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
    const size_t length = strcspn(p, ",");
    int found = 0;
    for (int i = 0; i < f->columns && !found; i++)
      found = strncmp(p, f->column[i].name, length) == 0 && !f->column[i].name[length];
    if (!found)
      return mn_fail(MN_USAGE, "--%s %s: %.*s is no column of %s, which has: %s", option, list, (int)length,
                     p, f->path, names.text);
  }
  return MN_OK;
}

/* The option that says that a column is no input; or NULL. */
static const char *left_out(const struct mn_csv_config *config, const char *name) {
  return is_listed(config->drop, name)                           ? "--drop"
         : config->weights && strcmp(config->weights, name) == 0 ? "--weights"
                                                                 : NULL;
}

/* Why a column is no input; NULL if it is one. */
static const char *why_not(const struct mn_csv_file *f, int index, const struct mn_csv_config *config) {
  const struct mn_csv_column *c = &f->column[index];
  const int different = distinct(c), used = is_listed(config->use, c->name),
            words = kind_of(c) == MN_COLUMN_WORDS;
  if (left_out(config, c->name)) return left_out(config, c->name);
  if (present(c) == 0) return "empty";
  if (words && different > MN_CLASSES_MOST) return "more than 1000 words";
  if (words && longest(c) >= MN_CLASS_NAME) return "long texts";
  if (used) return NULL;
  if (c->unnamed && index == 0) return "without a name";
  if (words && different > MN_CSV_WORDS) return "more than 100 words";
  if (words && different > FEW_WORDS && 2 * different > present(c)) return "hardly a word twice";
  const double first = mn_csv_at(c, f->header);
  int64_t row = 0;
  while (row < f->rows && mn_csv_at(c, f->header + row) == first + (double)row) row++;
  return row == f->rows && row > 2 && (first == 0 || first == 1) ? "numbers the rows" : NULL;
}

static int is_class(const struct mn_csv_column *c, int numbers) {
  if (kind_of(c) == MN_COLUMN_WORDS || numbers < 0) return 1;
  int whole = numbers == 0 && kind_of(c) == MN_COLUMN_NUMBER && distinct(c) <= FEW_CLASSES &&
              2 * distinct(c) <= present(c);
  for (int i = 0; i < c->count; i++)
    if (c->texts[i].rows && c->texts[i].kind == MN_CSV_NUMBER)
      whole = whole && fmod(c->texts[i].value, 1) == 0;
  return whole;
}

/* Sets the kind of a target. Whole numbers from 0 or 1 on are labels, as in HDF5; others are words. */
static mn_status infer_target(struct mn_table_column *t, const struct mn_csv_file *f,
                              const struct mn_csv_config *config, int several) {
  const struct mn_csv_column *c = &f->column[t->source];
  const int numbers = kind_of(c) == MN_COLUMN_NUMBER;
  t->kind = kind_of(c), t->target = 1;
  if (present(c) == 0)
    return mn_fail(MN_BAD_DATA, "%s: the target, column %s, is empty; --target NAME takes another", f->path,
                   t->name);
  if (!is_class(c, several ? 1 : config->numbers)) return MN_OK;
  if (several || config->numbers > 0)
    return mn_fail(MN_BAD_DATA, "%s: the target, column %s, holds words, such as %s: %s", f->path, t->name,
                   c->codes ? c->texts[c->codes[f->header]].text : c->odd,
                   several ? "of several targets each is numbers" : "leave --loss mse out");
  if (!c->codes || longest(c) >= MN_CLASS_NAME)
    return mn_fail(MN_BAD_DATA,
                   "%s: the target, column %s, has more than %d different texts, or some above %d bytes: no "
                   "classes; --target NAME takes another column",
                   f->path, t->name, MN_CLASSES_MOST, MN_CLASS_NAME - 1);
  double largest = 0;
  int labels = numbers;
  for (int i = 0; i < c->count; i++) {
    const double value = c->texts[i].rows && c->texts[i].kind == MN_CSV_NUMBER ? c->texts[i].value : 0;
    labels = labels && value >= 0 && value == floor(value);
    largest = fmax(largest, value);
  }
  t->kind = labels && largest < 2 * distinct(c) + 2 ? MN_COLUMN_LABELS : MN_COLUMN_WORDS;
  return t->kind == MN_COLUMN_WORDS ? list_words(t, c, numbers) : MN_OK;
}

static mn_status infer_column(struct mn_table_column *t, const struct mn_csv_file *f,
                              const struct mn_csv_config *config, struct mn_csv_lists *lists, int target,
                              int several) {
  struct mn_csv_column *c = &f->column[t->source];
  if (!(t->name = strdup(c->name))) return no_memory();
  t->mean = NAN;
  t->kind = kind_of(c);
  if (target)
    MN_TRY(infer_target(t, f, config, several));
  else if (t->kind == MN_COLUMN_WORDS)
    MN_TRY(list_words(t, c, 0));
  set_values(t, c);
  if (target && t->kind >= MN_COLUMN_WORDS)
    note(&lists->target, "%s, %d classes", t->name,
         t->kind == MN_COLUMN_WORDS ? (int)t->words.count : distinct(c));
  else if (target)
    note(&lists->target, "%s, %s", t->name, t->kind == MN_COLUMN_DATE ? "dates" : "numbers");
  note_missing(t, c, lists);
  t->gaps = !target && GAPS * t->missing > f->rows && (t->kind != MN_COLUMN_WORDS || t->words.count == 2);
  return MN_OK;
}

mn_status mn_table_infer(struct mn_table *table, struct mn_csv_file *f, const struct mn_csv_config *config,
                         struct mn_csv_lists *lists) {
  int targets = 0, last = f->columns - 1;
  *table = (struct mn_table){.columns = calloc((size_t)f->columns, sizeof *table->columns)};
  if (!table->columns) return no_memory();
  MN_TRY(mn_csv_check_names(f, "target", config->target));
  MN_TRY(mn_csv_check_names(f, "drop", config->drop));
  MN_TRY(mn_csv_check_names(f, "use", config->use));
  for (const struct mn_csv_column *c; last > 0; last--) /* a separator may end each line */
    if (c = &f->column[last], !left_out(config, c->name) && !(c->unnamed && present(c) == 0)) break;
  for (int i = 0; i < f->columns; i++) targets += is_listed(config->target, f->column[i].name);
  for (int i = 0; i < f->columns; i++) {
    const int target = config->target ? is_listed(config->target, f->column[i].name) : i == last;
    const char *why = target ? NULL : why_not(f, i, config);
    if (why && is_listed(config->use, f->column[i].name))
      return mn_fail(MN_USAGE, "--use %s: of %s this column cannot be an input: %s", f->column[i].name,
                     f->path, why);
    if (why && *why != '-') note(&lists->out, "%s (%s)", f->column[i].name, why);
    if (why) continue;
    struct mn_table_column *t = &table->columns[table->count++];
    t->source = i;
    MN_TRY(infer_column(t, f, config, lists, target, targets > 1));
  }
  if (table->count > (targets ? targets : 1)) return MN_OK;
  return mn_fail(
      MN_BAD_DATA,
      "%s: no column is an input beside the target, %s%s%s: --use NAME takes a column; separators are , ; "
      "| and tabs",
      f->path, config->target ? config->target : f->column[last].name, *lists->out.text ? "; left out: " : "",
      lists->out.text);
}

/* ---- a table in another file ---- */

/* By its name, from column *next on, which is the one behind it afterwards: files have the model's order. */
static mn_status find_column(struct mn_table_column *t, struct mn_csv_file *f, int *next,
                             struct mn_csv_lists *lists) {
  int tried = 0;
  while (tried < f->columns && strcmp(f->column[(*next + tried) % f->columns].name, t->name) != 0) tried++;
  const int found = tried < f->columns;
  struct mn_csv_column *c = &f->column[(*next + tried) % f->columns];
  t->source = found ? (*next + tried) % f->columns : -1;
  if (found) *next = t->source + 1;
  if (!found && t->target) return MN_OK;
  if (!found)
    return mn_fail(MN_BAD_DATA, "%s: holds no column %s, an input of the model: add it%s", f->path, t->name,
                   f->header ? "" : ", or a first line of names");
  const enum mn_csv_kind as = t->kind == MN_COLUMN_DATE ? MN_CSV_DATE : MN_CSV_NUMBER;
  if (!c->codes && (t->kind >= MN_COLUMN_WORDS || as != c->as))
    return mn_fail(MN_BAD_DATA,
                   "%s: column %s has more than %d different texts, but is %s to the model: leave out some",
                   f->path, t->name, MN_CLASSES_MOST, mn_column_kinds[t->kind]);
  set_values(t, c);
  note_missing(t, c, lists);
  return MN_OK;
}

mn_status mn_table_find(struct mn_table *table, struct mn_csv_file *f, struct mn_csv_lists *lists) {
  int next = 0;
  for (int i = 0; i < table->count; i++) MN_TRY(find_column(&table->columns[i], f, &next, lists));
  return MN_OK;
}
