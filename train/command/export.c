/* `minnow export`: a model as a header of C, or as Python with numpy, that needs nothing of minnow. Templates
 * (export.h.in, export.py.in) have the code; a word between two @ stands for what differs among models. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/csv/table.h"
#include "kernels/text.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/commands.h"
#include "train/model.h"

MN_EMBED(header_template, "train/command/export.h.in");
MN_EMBED(python_template, "train/command/export.py.in");

struct export {
  FILE *out;
  const struct mn_checkpoint *from;
  int python;
  char name[64]; /* of the header, as a word of C */
};

/* The parameters have this type, and a header's x and y. */
static const char *type_of(const struct export *e) {
  return e->from->tensors->real == 8 ? "double" : "float";
}

/* Numbers of `real` bytes: constants of C that have their values; to numpy their bytes. */
static void put_values(const struct export *e, const void *values, size_t real, int64_t count) {
  if (e->python) fprintf(e->out, "_array(\"<f%d\", \"", (int)real);
  for (size_t i = 0; e->python && i < (size_t)count * real; i++)
    fprintf(e->out, "%02x", ((const uint8_t *)values)[i]);
  if (e->python) fputs("\")", e->out);
  for (int64_t i = 0; !e->python && i < count; i++) {
    char text[40];
    snprintf(text, sizeof text, "%.*g", real == 8 ? 17 : 9, mn_real_at(values, real, i));
    fprintf(e->out, "%s%s%s%s", i % 8 ? " " : "\n    ", text, strpbrk(text, ".e") ? "" : ".0",
            real == 8 ? "" : "f");
    if (i + 1 < count) fputc(',', e->out);
  }
}

/* ---- texts ---- */

/* A name in a comment, which it must not end. */
static void put_name(const struct export *e, const char *text) {
  for (; *text; text++) fputc(strchr("*\"\\?\n\r", *text) ? '_' : *text, e->out);
}

/* A text as C and Python write it. */
static void put_text(const struct export *e, const char *text) {
  fputc('"', e->out);
  for (; *text; text++)
    fprintf(e->out, isalnum((unsigned char)*text) || *text & 0x80 || strchr(" _-.", *text) ? "%c" : "\\%03o",
            (unsigned char)*text);
  fputc('"', e->out);
}

/* Begins the line of an input, "x[3]: ". */
static void begin_line(const struct export *e, int64_t *at) {
  fprintf(e->out, "%sx[%lld]: ", e->python ? "" : " * ", (long long)(*at)++);
}

/* A line for each input of a CSV's columns. */
static void put_columns(const struct export *e, const struct mn_table *table) {
  int64_t at = 0;
  for (const struct mn_table_column *t = table->columns; t < table->columns + table->count; t++) {
    const int64_t words = t->kind == MN_COLUMN_WORDS ? t->words.count : 0, own = mn_column_width(t) - t->gaps;
    for (int64_t k = 0; k < own && !t->target; k++) {
      begin_line(e, &at);
      fputs(words ? "1 if " : "", e->out), put_name(e, t->name);
      if (words) fputs(" is ", e->out), put_name(e, t->words.names[words > 2 ? k : words - 1]);
      fputs(words ? ", else 0" : t->kind == MN_COLUMN_DATE ? ", days since 1970" : "", e->out);
      if (t->gaps && words <= 2) fprintf(e->out, "; if it is missing %.9g", t->mean);
      fputc('\n', e->out);
    }
    if (!t->gaps || t->target) continue;
    begin_line(e, &at);
    fputs("1 if ", e->out), put_name(e, t->name), fputs(" is missing, else 0\n", e->out);
  }
}

static mn_status put_meaning(const struct export *e) {
  struct mn_table table = {0};
  mn_status status = e->from->table ? mn_table_parse(&table, e->from->table) : MN_OK;
  if (status == MN_OK) put_columns(e, &table);
  mn_table_free(&table);
  fprintf(e->out, "%s%s\n%s", e->python ? "" : " * ",
          e->from->model.loss == MN_LOSS_CROSS_ENTROPY
              ? "The largest y is the class; softmax makes probabilities of them."
              : "y is in the units of the targets.",
          e->python ? "" : " ");
  return status;
}

static void put_class(const struct export *e) {
  const struct mn_class_names *names = &e->from->class_names;
  if (!e->python && names->count)
    fprintf(e->out, "\nstatic inline const char *%s_class(int k) {\n  static const char *const names[] = {",
            e->name);
  for (int64_t k = 0; k < names->count; k++) fputs(k ? ", " : "", e->out), put_text(e, names->names[k]);
  if (!e->python && names->count) fputs("};\n  return names[k];\n}\n", e->out);
}

/* ---- layers ---- */

static const char *const parts[] = {"weight", "bias", "gamma", "beta"}; /* of a layer, as the tensors stand */

static void put_parameters(const struct export *e) {
  for (int i = 0; i < e->from->tensor_count; i++) {
    const struct mn_checkpoint_tensor *t = &e->from->tensors[i];
    const int64_t count = t->rows * t->cols;
    if (e->python)
      fputs(i % 4 ? ", " : "  (", e->out);
    else
      fprintf(e->out, "static const %s %s_%s%d[%lld] = {", type_of(e), e->name, parts[i % 4], i / 4,
              (long long)count);
    put_values(e, t->value, t->real, count);
    if (!e->python) fputs("};\n", e->out);
    if (e->python && (i % 4 == 3 || i + 1 == e->from->tensor_count)) fputs("),\n", e->out);
  }
}

/* A call for each layer, from a to b and back. */
static void put_layers(const struct export *e) {
  const struct mn_model_config *m = &e->from->model;
  for (int l = 0; l < m->depth + (m->head > 0); l++) {
    fprintf(e->out, "  %s_%s(", e->name, l < m->depth ? "block" : "linear");
    for (int i = 0; i < (l < m->depth ? 4 : 2); i++) fprintf(e->out, "%s_%s%d, ", e->name, parts[i], l);
    fprintf(e->out, "%lld, %lld, %s);\n", (long long)(l ? m->hidden[l - 1] : m->inputs),
            (long long)(l < m->depth ? m->hidden[l] : m->head), l % 2 ? "b, a" : "a, b");
  }
}

/* What x or y is standardised by; without, 0 and 1. */
static mn_status put_standard(const struct export *e, int side, int scale) {
  const struct mn_checkpoint_tensor *t = &e->from->standard[side][scale];
  double *values = t->value ? NULL : malloc((size_t)t->cols * sizeof *values);
  if (!t->value && !values) return mn_fail(MN_NO_MEMORY, "no memory for %ld columns", (long)t->cols);
  for (int64_t i = 0; values && i < t->cols; i++) values[i] = scale;
  put_values(e, values ? values : t->value, sizeof *values, t->cols);
  free(values);
  return MN_OK;
}

/* ---- words of a template ---- */

static mn_status put_word(const struct export *e, const char *word) {
  const struct mn_model_config *m = &e->from->model;
  const int layers = (int)m->depth + (m->head > 0);
  int64_t widest = m->inputs > m->head ? m->inputs : m->head;
  for (int i = 0; i < m->depth; i++) widest = m->hidden[i] > widest ? m->hidden[i] : widest;
  const struct {
    const char *word;
    int64_t number;
  } numbers[] = {
      {"inputs", m->inputs}, {"outputs", mn_model_outputs(m)}, {"groups", m->groups}, {"widest", widest}};
  const struct {
    const char *word, *text;
  } texts[] = {{"version", MINNOW_VERSION},
               {"net", e->name},
               {"real", type_of(e)},
               {"last", layers % 2 ? "b" : "a"},
               {"exp", e->from->log == 0 ? ""
                       : e->python       ? "np.exp"
                                         : "exp"}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (strcmp(word, numbers[i].word) == 0) fprintf(e->out, "%lld", (long long)numbers[i].number);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strcmp(word, texts[i].word) == 0) fputs(texts[i].text, e->out);
  char real[MN_JSON_REAL];
  mn_json_show_real(real, sizeof real, strcmp(word, "eps") == 0 ? m->eps : m->slope);
  if (strcmp(word, "eps") == 0 || strcmp(word, "slope") == 0) fputs(real, e->out);
  if (strcmp(word, "parameters") == 0) put_parameters(e);
  if (strcmp(word, "layers") == 0) put_layers(e);
  if (strcmp(word, "class") == 0) put_class(e);
  if (strcmp(word, "meaning") == 0) return put_meaning(e);
  if (strncmp(word, "x_", 2) == 0 || strncmp(word, "y_", 2) == 0)
    return put_standard(e, *word == 'x' ? MN_X : MN_Y, word[2] == 's');
  return MN_OK;
}

/* An @ that no word follows stays. */
static mn_status put_template(const struct export *e) {
  for (const char *at = e->python ? python_template : header_template; *at; at++) {
    char word[16];
    int length = 0;
    if (sscanf(at, "@%15[a-z_]@%n", word, &length) == 1 && length > 0) {
      MN_TRY(put_word(e, word));
      at += length - 1;
    } else {
      fputc(*at, e->out);
    }
  }
  return MN_OK;
}

/* ---- the file ---- */

static mn_status write_file(const struct mn_options *o, struct export *e, struct mn_atomic_file *file) {
  const int copy = dup(file->fd);
  if (copy < 0 || !(e->out = fdopen(copy, "w")))
    return mn_fail(MN_NO_MEMORY, "%s cannot be written: %s: close other files", o->out, strerror(errno));
  mn_status status = put_template(e);
  const int failed = ferror(e->out);
  errno = 0;
  if ((fclose(e->out) != 0 || failed) && status == MN_OK)
    status = mn_atomic_file_fail("write", o->out, errno ? errno : EIO);
  return status == MN_OK ? mn_atomic_file_publish(file, o->force) : status;
}

mn_status mn_export(FILE *out, const struct mn_options *o, const char *path) {
  struct mn_checkpoint *from;
  struct mn_atomic_file file;
  struct export e = {.python = o->numpy != NULL, .name = "net"};
  const char *base = basename(o->out);
  size_t used = 0;
  for (; base[used] && base[used] != '.' && used + 1 < sizeof e.name; used++)
    e.name[used] = isalnum((unsigned char)base[used]) ? base[used] : '_';
  if (used) e.name[used] = 0;
  if (isdigit((unsigned char)e.name[0])) e.name[0] = '_';
  MN_TRY(mn_checkpoint_load(&from, path));
  e.from = from;
  mn_status status = mn_atomic_file_create(&file, o->out);
  if (status == MN_OK) {
    status = write_file(o, &e, &file);
    mn_atomic_file_discard(&file); /* once it is published, this does nothing */
  }
  if (status == MN_OK && o->c)
    mn_escape_print(out, "%s: void %s_predict(const %s *x, %s *y)\n", o->out, e.name, type_of(&e),
                    type_of(&e));
  if (status == MN_OK && !o->c)
    mn_escape_print(out, "%s: predict(x), x [n, %ld]\n", o->out, (long)from->model.inputs);
  mn_checkpoint_free(from);
  return status;
}
