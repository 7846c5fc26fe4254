/* JSON is written here as it comes, without memory that could be lacking. jansson's tree would not do: its
 * dump prints 0.05 as 0.050000000000000003, and it holds no integer above INT64_MAX. */
#include "train/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"

void mn_json_show_real(char *out, size_t size, double value) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(out, size, "%.*g", digits, value);
    if (strtod(out, NULL) == value) return;
  }
}

static void write_string(struct mn_json *json, const char *text) {
  static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  FILE *out = json->out;
  for (char next[5]; json->plain && *text; fputs(next, out)) text += mn_escape_next(next, text);
  if (json->plain) return;
  putc('"', out);
  for (const unsigned char *at = (const unsigned char *)text; *at;) {
    const size_t length = mn_escape_character((const char *)at);
    const char *found = strchr(escaped, *at);
    const int c1 = *at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
    if (found)
      fprintf(out, "\\%c", letters[found - escaped]);
    else if (length && *at != '$' && *at != '`') /* which a shell or make would act on */
      fprintf(out, "%.*s", (int)length, (const char *)at);
    else if (*at < 0x80 || c1)
      fprintf(out, "\\u%04X", at[c1]);
    else
      fputs("\xef\xbf\xbd", out);
    at += length ? length : 1 + (size_t)c1;
  }
  putc('"', out);
}

/* The forms of a level. In plain text a LINES object has a member a line, a LIST is an array in a LINES
 * object, and the elements of a LIST are FLAT: in one line. */
enum { JSON, LINES, LIST, FLAT };
enum { COLUMN = 11, TEXT_COLUMN = 18 }; /* widths of a number and of a text in a FLAT object */

/* What goes before a value: separator, key. `container`: it is an object or an array. */
static void start_value(struct mn_json *json, const char *key, int container) {
  MN_REQUIRE((key == NULL) == (json->depth == 0 || json->array[json->depth - 1]));
  if (json->depth == 0) return;
  const int level = json->depth - 1, form = json->form[level];
  if (form == LINES)
    fprintf(json->out, "%*s", 2 * level, "");
  else if (form == LIST && container)
    fprintf(json->out, "\n%*s", 2 * level, "");
  else if (form == LIST)
    putc(' ', json->out);
  else if (json->used[level] && form == FLAT &&
           !json->array[level]) /* members in columns, if they are short */
    fprintf(json->out, "%*s", json->width < COLUMN ? COLUMN + 2 - json->width : 2, "");
  else if (json->used[level])
    fputs(form == JSON ? "," : ", ", json->out);
  json->used[level] = 1;
  if (!key) return;
  write_string(json, key);
  fputs(form == FLAT ? " " : form == LINES && !container ? ": " : ":", json->out);
}

static void end_value(struct mn_json *json) {
  if (json->depth > 0 && json->form[json->depth - 1] == LINES) putc('\n', json->out);
}

static void open_level(struct mn_json *json, const char *key, int array) {
  const int level = json->depth, outer = level > 0 ? json->form[level - 1] : LINES;
  MN_REQUIRE(level < MN_JSON_DEPTH);
  start_value(json, key, 1);
  const int form = !json->plain ? JSON : outer != LINES ? FLAT : array ? LIST : LINES;
  if (form == JSON || (form == FLAT && (array || outer == FLAT))) putc(array ? '[' : '{', json->out);
  if (form == LINES && level > 0) putc('\n', json->out);
  json->form[level] = (unsigned char)form;
  json->array[level] = (unsigned char)array;
  json->used[level] = 0;
  json->depth++;
}

void mn_json_begin(struct mn_json *json, FILE *out, int plain) {
  *json = (struct mn_json){.out = out, .plain = plain, .digits = 6};
}

mn_status mn_json_begin_answer(struct mn_json *json, int plain) {
  mn_json_begin(json, NULL, plain);
  json->out = open_memstream(&json->text, &json->size);
  return json->out ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for the answer");
}

mn_status mn_json_end_answer(struct mn_json *json, FILE *out, mn_status status) {
  if (fclose(json->out) != 0 && status == MN_OK) status = mn_fail(MN_NO_MEMORY, "no memory for the answer");
  if (status == MN_OK) fputs(json->text, out);
  free(json->text);
  if (status != MN_OK || (fflush(out) == 0 && !ferror(out))) return status;
  return mn_fail(MN_IO, "cannot write the answer: %s", strerror(errno));
}

void mn_json_open(struct mn_json *json, const char *key) {
  open_level(json, key, 0);
}

void mn_json_array_open(struct mn_json *json, const char *key) {
  open_level(json, key, 1);
}

void mn_json_close(struct mn_json *json) {
  MN_REQUIRE(json->depth > 0);
  const int level = --json->depth, form = json->form[level], array = json->array[level];
  const int nested = level > 0 && json->form[level - 1] == FLAT;
  if (form == JSON || (form == FLAT && (array || nested))) putc(array ? ']' : '}', json->out);
  if (form == LIST || (form == JSON && level == 0)) putc('\n', json->out);
  json->width = COLUMN;
}

/* A value that printf can print. */
static void __attribute__((format(printf, 3, 4)))
put(struct mn_json *json, const char *key, const char *format, ...) {
  va_list arguments;
  start_value(json, key, 0);
  va_start(arguments, format);
  json->width = vfprintf(json->out, format, arguments);
  va_end(arguments);
  end_value(json);
}

void mn_json_number(struct mn_json *json, const char *key, double value) {
  char text[MN_JSON_REAL] = "null";
  if (json->plain)
    snprintf(text, sizeof text, isnan(value) ? "none" : "%.*g", json->digits, value);
  else if (isfinite(value))
    mn_json_show_real(text, sizeof text, value);
  put(json, key, "%s", text);
}

void mn_json_integer(struct mn_json *json, const char *key, int64_t value) {
  put(json, key, "%" PRId64, value);
}

void mn_json_unsigned(struct mn_json *json, const char *key, uint64_t value) {
  put(json, key, "%" PRIu64, value);
}

void mn_json_bytes(struct mn_json *json, const char *key, double value) {
  if (isnan(value))
    mn_json_null(json, key);
  else if (json->plain && value >= 1 << 20)
    put(json, key, "%.0f, %.1f MiB", value, value / (1 << 20));
  else
    put(json, key, "%.0f", value);
}

void mn_json_boolean(struct mn_json *json, const char *key, int value) {
  const char *const words[2][2] = {{"false", "true"}, {"no", "yes"}};
  put(json, key, "%s", words[json->plain][value != 0]);
}

void mn_json_null(struct mn_json *json, const char *key) {
  put(json, key, "%s", json->plain ? "none" : "null");
}

void mn_json_string(struct mn_json *json, const char *key, const char *value) {
  if (!value) {
    mn_json_null(json, key);
    return;
  }
  start_value(json, key, 0);
  write_string(json, value);
  json->width = (int)strlen(value) + COLUMN - TEXT_COLUMN;
  end_value(json);
}
