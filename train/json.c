/* JSON is written here as it comes, without memory that could be lacking. jansson's tree would not do: its
 * dump prints 0.05 as 0.050000000000000003, and it holds no integer above INT64_MAX. */
#include "train/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/escape.h"
#include "kernels/status.h"

void mn_json_show_real(char *out, size_t size, double value) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(out, size, "%.*g", digits, value);
    if (strtod(out, NULL) == value) return;
  }
}

static void write_string(FILE *out, const char *text) {
  static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
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

/* What goes before a value: the comma and the key. */
static void start_value(struct mn_json *json, const char *key) {
  if (json->depth == 0) {
    MN_REQUIRE(key == NULL);
    return;
  }
  int level = json->depth - 1;
  MN_REQUIRE((key == NULL) == (json->array[level] != 0));
  if (json->used[level]) putc(',', json->out);
  json->used[level] = 1;
  if (key) {
    write_string(json->out, key);
    putc(':', json->out);
  }
}

static void open_level(struct mn_json *json, const char *key, int array) {
  MN_REQUIRE(json->depth < MN_JSON_DEPTH);
  start_value(json, key);
  putc(array ? '[' : '{', json->out);
  json->array[json->depth] = (unsigned char)array;
  json->used[json->depth] = 0;
  json->depth++;
}

void mn_json_begin(struct mn_json *json, FILE *out) {
  *json = (struct mn_json){.out = out};
}

void mn_json_open(struct mn_json *json, const char *key) {
  open_level(json, key, 0);
}

void mn_json_array_open(struct mn_json *json, const char *key) {
  open_level(json, key, 1);
}

void mn_json_close(struct mn_json *json) {
  MN_REQUIRE(json->depth > 0);
  json->depth--;
  putc(json->array[json->depth] ? ']' : '}', json->out);
  if (json->depth == 0) putc('\n', json->out);
}

/* A value that printf can print. */
static void __attribute__((format(printf, 3, 4)))
put(struct mn_json *json, const char *key, const char *format, ...) {
  va_list arguments;
  start_value(json, key);
  va_start(arguments, format);
  vfprintf(json->out, format, arguments);
  va_end(arguments);
}

void mn_json_number(struct mn_json *json, const char *key, double value) {
  char text[MN_JSON_REAL] = "null";
  if (isfinite(value)) mn_json_show_real(text, sizeof text, value);
  put(json, key, "%s", text);
}

void mn_json_integer(struct mn_json *json, const char *key, int64_t value) {
  put(json, key, "%" PRId64, value);
}

void mn_json_unsigned(struct mn_json *json, const char *key, uint64_t value) {
  put(json, key, "%" PRIu64, value);
}

void mn_json_boolean(struct mn_json *json, const char *key, int value) {
  put(json, key, "%s", value ? "true" : "false");
}

void mn_json_null(struct mn_json *json, const char *key) {
  put(json, key, "null");
}

void mn_json_string(struct mn_json *json, const char *key, const char *value) {
  if (!value) {
    mn_json_null(json, key);
    return;
  }
  start_value(json, key);
  write_string(json->out, value);
}
