/* `minnow export`: a model as a header of C, or as Python with numpy, that needs nothing of minnow. */
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

struct export {
  FILE *out;
  const struct mn_checkpoint *from;
  char name[64]; /* of the header, as a word of C */
};

/* Of the parameters, which x and y have too. */
static const char *type_of(const struct export *e) {
  return e->from->tensors->real == 8 ? "double" : "float";
}

/* ---- numbers ---- */

/* A constant of C that has the value: "0.1f", and for doubles "0.1". */
static void put_constant(FILE *out, const void *values, size_t real, int64_t i) {
  char text[40];
  snprintf(text, sizeof text, "%.*g", real == 8 ? 17 : 9, mn_real_at(values, real, i));
  fprintf(out, "%s%s%s", text, strpbrk(text, ".e") ? "" : ".0", real == 8 ? "" : "f");
}

static void put_array(const struct export *e, const char *name, int number, const void *values, size_t real,
                      int64_t count) {
  fprintf(e->out, "static const %s %s_%s", real == 8 ? "double" : "float", e->name, name);
  if (number >= 0) fprintf(e->out, "%d", number);
  fprintf(e->out, "[%lld] = {", (long long)count);
  for (int64_t i = 0; i < count; i++) {
    fputs(i == 0 ? "\n    " : i % 8 ? ", " : ",\n    ", e->out);
    put_constant(e->out, values, real, i);
  }
  fputs("};\n", e->out);
}

/* The bytes of an array, which numpy takes as they are. */
static void put_bytes(const struct export *e, const void *values, size_t real, int64_t rows, int64_t cols) {
  fprintf(e->out, "_array(\"<f%d\", (", (int)real);
  if (rows > 1) fprintf(e->out, "%lld, ", (long long)rows);
  fprintf(e->out, "%lld,), \"", (long long)cols);
  for (size_t i = 0; i < (size_t)(rows * cols) * real; i++)
    fprintf(e->out, "%02x", ((const uint8_t *)values)[i]);
  fputs("\")", e->out);
}

/* ---- what inputs and outputs are ---- */

static void put_name(const struct export *e, const char *text) {
  for (; *text; text++) { /* no name ends a comment, or a text of Python */
    const int ends = (*text == '/' && text[1] == '*') || (*text == '*' && text[1] == '/') ||
                     (*text == '?' && text[1] == '?');
    fputc(ends || strchr("\"\\\n\r", *text) ? '_' : *text, e->out);
  }
}

/* A text as C and Python write it. */
static void put_text(const struct export *e, const char *text) {
  fputc('"', e->out);
  for (; *text; text++)
    fprintf(e->out, isalnum((unsigned char)*text) || *text & 0x80 || strchr(" _-.", *text) ? "%c" : "\\%03o",
            (unsigned char)*text);
  fputc('"', e->out);
}

static void put_classes(const struct export *e) {
  for (int64_t k = 0; k < e->from->class_names.count; k++)
    fputs(k ? ", " : "", e->out), put_text(e, e->from->class_names.names[k]);
}

/* A line for each input of a CSV's columns. */
static void put_columns(const struct export *e, const char *line, const struct mn_table *table) {
  int64_t at = 0;
  for (int c = 0; c < table->count; c++) {
    const struct mn_table_column *t = &table->columns[c];
    const int64_t words = t->kind == MN_COLUMN_WORDS ? t->words.count : 0, own = mn_column_width(t) - t->gaps;
    for (int64_t k = 0; k < own && !t->target; k++, at++) {
      fprintf(e->out, "%sx[%lld]: ", line, (long long)at);
      if (words) fputs("1 if ", e->out);
      put_name(e, t->name);
      if (t->kind == MN_COLUMN_DATE) fputs(", days since 1970", e->out);
      if (words)
        fputs(" is ", e->out), put_name(e, t->words.names[words > 2 ? k : words - 1]),
            fputs(", else 0", e->out);
      if (t->gaps && words <= 2) fprintf(e->out, "; if it is missing %.9g", t->mean);
      fputc('\n', e->out);
    }
    if (!t->gaps || t->target) continue;
    fprintf(e->out, "%sx[%lld]: 1 if ", line, (long long)at++);
    put_name(e, t->name), fputs(" is missing, else 0\n", e->out);
  }
}

static mn_status put_meaning(const struct export *e, const char *line) {
  const struct mn_checkpoint *c = e->from;
  struct mn_table table = {0};
  mn_status status = c->table ? mn_table_parse(&table, c->table) : MN_OK;
  if (status == MN_OK) put_columns(e, line, &table);
  mn_table_free(&table);
  fprintf(e->out, "%s%s\n", line,
          c->model.loss == MN_LOSS_CROSS_ENTROPY
              ? "The largest y is the class; softmax makes probabilities of them."
              : "y is in the units of the targets.");
  return status;
}

/* ---- C ---- */

static const char c_parts[] =
    "static inline void NAME_linear(const REAL *weight, const REAL *bias, int inputs, int outputs,\n"
    "                               const REAL *x, REAL *y) {\n"
    "  for (int k = 0; k < outputs; k++) {\n"
    "    double sum = bias[k];\n"
    "    for (int i = 0; i < inputs; i++) sum += (double)weight[(long)k * inputs + i] * x[i];\n"
    "    y[k] = (REAL)sum;\n"
    "  }\n"
    "}\n\n"
    "static inline void NAME_block(const REAL *weight, const REAL *bias, const REAL *gamma, const REAL "
    "*beta,\n"
    "                              int inputs, int channels, const REAL *x, REAL *y) {\n"
    "  const int size = channels / NAME_groups;\n"
    "  NAME_linear(weight, bias, inputs, channels, x, y);\n"
    "  for (int first = 0; first < channels; first += size) {\n"
    "    double mean = 0, variance = 0;\n"
    "    for (int k = first; k < first + size; k++) mean += y[k] / (double)size;\n"
    "    for (int k = first; k < first + size; k++) variance += (y[k] - mean) * (y[k] - mean) / size;\n"
    "    for (int k = first; k < first + size; k++) {\n"
    "      const double v = (y[k] - mean) / sqrt(variance + NAME_eps) * gamma[k] + beta[k];\n"
    "      y[k] = (REAL)(2 * (v > 0 ? v : NAME_slope * v));\n"
    "    }\n"
    "  }\n"
    "}\n\n";

/* Writes a text in which NAME is the header's name and REAL the type of the parameters. */
static void put_code(const struct export *e, const char *text) {
  for (; *text; text++)
    if (strncmp(text, "NAME", 4) == 0 || strncmp(text, "REAL", 4) == 0)
      fputs(*text == 'N' ? e->name : type_of(e), e->out), text += 3;
    else
      fputc(*text, e->out);
}

/* The layers in turn, from a to b and back; returns the buffer that has the outputs. */
static char put_layers(const struct export *e) {
  const struct mn_model_config *m = &e->from->model;
  int64_t width = m->inputs;
  char from = 'a';
  for (int i = 0; i < m->depth; i++, from ^= 'a' ^ 'b') {
    fprintf(e->out, "  %s_block(%s_weight%d, %s_bias%d, %s_gamma%d, %s_beta%d, %lld, %lld, %c, %c);\n",
            e->name, e->name, i, e->name, i, e->name, i, e->name, i, (long long)width,
            (long long)m->hidden[i], from, from ^ 'a' ^ 'b');
    width = m->hidden[i];
  }
  if (!m->head) return from;
  fprintf(e->out, "  %s_linear(%s_weight%d, %s_bias%d, %lld, %lld, %c, %c);\n", e->name, e->name,
          (int)m->depth, e->name, (int)m->depth, (long long)width, (long long)m->head, from,
          from ^ 'a' ^ 'b');
  return from ^ 'a' ^ 'b';
}

static mn_status put_c(const struct export *e) {
  static const char *const parts[] = {"weight", "bias", "gamma", "beta"};
  const struct mn_checkpoint *c = e->from;
  const struct mn_model_config *m = &c->model;
  const struct mn_checkpoint_tensor *x = c->standard[MN_X], *y = c->standard[MN_Y];
  int64_t widest = m->inputs > m->head ? m->inputs : m->head;
  for (int i = 0; i < m->depth; i++) widest = m->hidden[i] > widest ? m->hidden[i] : widest;
  fprintf(e->out, "/* A network that minnow %s trained. %s_predict computes y [%lld] of x [%lld].\n",
          MINNOW_VERSION, e->name, (long long)mn_model_outputs(m), (long long)m->inputs);
  MN_TRY(put_meaning(e, " * "));
  put_code(e, " */\n#ifndef NAME_predict_h\n#define NAME_predict_h\n\n#include <math.h>\n\n");
  fprintf(e->out, "enum { %s_inputs = %lld, %s_outputs = %lld, %s_groups = %lld };\n", e->name,
          (long long)m->inputs, e->name, (long long)mn_model_outputs(m), e->name, (long long)m->groups);
  char eps[MN_JSON_REAL], slope[MN_JSON_REAL];
  mn_json_show_real(eps, sizeof eps, m->eps), mn_json_show_real(slope, sizeof slope, m->slope);
  fprintf(e->out, "static const double %s_eps = %s, %s_slope = %s;\n", e->name, eps, e->name, slope);
  for (int side = 0; side < MN_SIDES; side++)
    for (int k = 0; k < 2 && c->standard[side][0].value; k++)
      put_array(e, (const char *[]){"mean", "scale", "y_mean", "y_scale"}[2 * side + k], -1,
                c->standard[side][k].value, 8, c->standard[side][k].cols);
  for (int i = 0; i < c->tensor_count; i++) {
    const struct mn_checkpoint_tensor *t = &c->tensors[i];
    put_array(e, parts[i % 4], i / 4, t->value, t->real, t->rows * t->cols);
  }
  fputc('\n', e->out);
  put_code(e, c_parts);
  put_code(e, "static inline void NAME_predict(const REAL *x, REAL *y) {\n");
  fprintf(e->out, "  %s a[%lld], b[%lld];\n", type_of(e), (long long)widest, (long long)widest);
  put_code(
      e,
      x->value
          ? "  for (int i = 0; i < NAME_inputs; i++) a[i] = (REAL)((x[i] - NAME_mean[i]) / NAME_scale[i]);\n"
          : "  for (int i = 0; i < NAME_inputs; i++) a[i] = x[i];\n");
  const char last = put_layers(e);
  fprintf(e->out, "  for (int k = 0; k < %s_outputs; k++) y[k] = (%s)%s(%c[k]", e->name, type_of(e),
          c->log != 0 ? "exp" : "", last);
  if (y->value) fprintf(e->out, " * %s_y_scale[k] + %s_y_mean[k]", e->name, e->name);
  fputs(");\n}\n", e->out);
  if (c->class_names.count) {
    put_code(e, "\nstatic inline const char *NAME_class(int k) {\n  static const char *const names[] = {");
    put_classes(e);
    fputs("};\n  return names[k];\n}\n", e->out);
  }
  put_code(e, "\n#endif\n");
  return MN_OK;
}

/* ---- Python ---- */

static mn_status put_numpy(const struct export *e) {
  const struct mn_checkpoint *c = e->from;
  const struct mn_model_config *m = &c->model;
  const int real = (int)c->tensors->real;
  fprintf(e->out, "\"\"\"A network that minnow %s trained. predict computes y [n, %lld] of x [n, %lld].\n",
          MINNOW_VERSION, (long long)mn_model_outputs(m), (long long)m->inputs);
  MN_TRY(put_meaning(e, ""));
  fputs(
      "\"\"\"\nimport numpy as np\n\n\ndef _array(kind, shape, text):\n"
      "  return np.frombuffer(bytes.fromhex(text), kind).reshape(shape)\n\n\nLAYERS = [  # weight, bias; of "
      "blocks also gamma, beta\n",
      e->out);
  for (int i = 0; i < c->tensor_count; i++) {
    const struct mn_checkpoint_tensor *t = &c->tensors[i];
    fputs(i % 4 ? ", " : "  (", e->out);
    put_bytes(e, t->value, t->real, t->rows, t->cols);
    if (i % 4 == 3 || i == c->tensor_count - 1) fputs("),\n", e->out);
  }
  fputs("]\n", e->out);
  for (int side = 0; side < MN_SIDES; side++)
    for (int k = 0; k < 2; k++) {
      const struct mn_checkpoint_tensor *t = &c->standard[side][k];
      fprintf(e->out, "%s = ", (const char *[]){"MEAN", "SCALE", "Y_MEAN", "Y_SCALE"}[2 * side + k]);
      if (t->value)
        put_bytes(e, t->value, 8, 1, t->cols);
      else
        fprintf(e->out, "%d.0", k);
      fputc('\n', e->out);
    }
  if (c->class_names.count) fputs("CLASSES = [", e->out), put_classes(e), fputs("]\n", e->out);
  fprintf(e->out,
          "\n\ndef predict(x):\n  x = ((np.asarray(x, float) - MEAN) / SCALE).astype(\"f%d\")\n"
          "  for weight, bias, *norm in LAYERS:\n    x = x @ weight.reshape(len(bias), -1).T + bias\n    if "
          "norm:\n"
          "      z = x.reshape(len(x), %lld, -1).astype(float)\n"
          "      z = (z - z.mean(2, keepdims=True)) / np.sqrt(z.var(2, keepdims=True) + %.17g)\n"
          "      v = z.reshape(x.shape) * norm[0] + norm[1]\n      x = (2 * np.where(v > 0, v, %.17g * "
          "v)).astype(\"f%d\")\n"
          "  return %s\n",
          real, (long long)m->groups, m->eps, m->slope, real,
          c->log != 0 ? "np.exp(x * Y_SCALE + Y_MEAN)" : "x * Y_SCALE + Y_MEAN");
  return MN_OK;
}

/* ---- the file ---- */

static mn_status write_file(const struct mn_options *o, struct export *e, struct mn_atomic_file *file) {
  const int copy = dup(file->fd);
  if (copy < 0 || !(e->out = fdopen(copy, "w")))
    return mn_fail(MN_NO_MEMORY, "%s cannot be written: %s: close other files", o->out, strerror(errno));
  mn_status status = (o->c ? put_c : put_numpy)(e);
  const int failed = ferror(e->out);
  errno = 0;
  if ((fclose(e->out) != 0 || failed) && status == MN_OK)
    status = mn_atomic_file_fail("write", o->out, errno ? errno : EIO);
  return status;
}

mn_status mn_export(FILE *out, const struct mn_options *o, const char *path) {
  struct mn_checkpoint *from;
  struct mn_atomic_file file;
  struct export e = {.name = "net"};
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
    if (status == MN_OK) status = mn_atomic_file_publish(&file, o->force);
    mn_atomic_file_discard(&file);
  }
  if (status == MN_OK && o->c)
    mn_escape_print(out, "%s: void %s_predict(const %s *x, %s *y)\n", o->out, e.name, type_of(&e),
                    type_of(&e));
  if (status == MN_OK && !o->c)
    mn_escape_print(out, "%s: predict(x), x [n, %ld]\n", o->out, (long)from->model.inputs);
  mn_checkpoint_free(from);
  return status;
}
