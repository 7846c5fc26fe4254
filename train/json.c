/* The nesting, the commas and the numbers of JSON are written here as they come, strings by jansson.
 * jansson's own tree would not do: its dump prints 0.05 as 0.050000000000000003, and it holds no integer
 * above INT64_MAX. */
#include "train/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/status.h"

void mn_json_show_real(char *out, size_t size, double value) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(out, size, "%.*g", digits, value);
    if (strtod(out, NULL) == value) return;
  }
}

/* A string of jansson's with U+FFFD in place of each byte that is not part of a UTF-8 character; NULL: no
 * memory. */
static json_t *replace_bytes(const char *text) {
  size_t left = strlen(text);
  char *clean = malloc(3 * left + 1), *end = clean;
  if (!clean) return NULL;
  while (left > 0) {
    size_t length = 0;
    json_t *character = NULL;
    while (!character && length < 4 && length < left) character = json_stringn(text, ++length);
    if (character)
      end = mempcpy(end, text, length);
    else
      end = mempcpy(end, "\xef\xbf\xbd", 3), length = 1;
    json_decref(character);
    text += length;
    left -= length;
  }
  json_t *string = json_stringn(clean, (size_t)(end - clean));
  free(clean);
  return string;
}

static void write_string(FILE *out, const char *text) {
  json_t *string = json_string(text); /* NULL: no UTF-8, or no memory */
  if (!string) string = replace_bytes(text);
  if (!string) mn_abort(__FILE__, __LINE__, "memory for a string of JSON");
  json_dumpf(string, out, JSON_ENCODE_ANY); /* a failure is seen with ferror */
  json_decref(string);
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
