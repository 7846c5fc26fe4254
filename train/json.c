/* Writes JSON as it comes, to a device, with no tree in between: commas and nesting are all there is to keep.
 */
#include "train/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/status.h"

/* The length of the well-formed UTF-8 sequence that starts at `text` (which ends in 0), or 0. Overlong forms,
 * surrogates and what lies beyond U+10FFFF are not well-formed. */
static int sequence_length(const unsigned char *text) {
  unsigned char c = text[0];
  if (c < 0x80) return 1;
  int length = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
  for (int i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f)) return 0;
  if ((c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] > 0x8f)) return 0;
  return length;
}

static void write_quoted(FILE *out, const char *string) {
  const unsigned char *text = (const unsigned char *)string;
  putc('"', out);
  while (*text) {
    int length = sequence_length(text);
    if (length == 0) {
      fputs("\\ufffd", out);
      length = 1;
    } else if (*text == '"' || *text == '\\') {
      fprintf(out, "\\%c", *text);
    } else if (*text < 0x20 || *text == 0x7f) {
      fprintf(out, "\\u%04x", *text);
    } else {
      fwrite(text, 1, (size_t)length, out);
    }
    text += length;
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
    write_quoted(json->out, key);
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
  memset(json, 0, sizeof *json);
  json->out = out;
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

void mn_json_number(struct mn_json *json, const char *key, double value) {
  start_value(json, key);
  if (isfinite(value))
    fprintf(json->out, "%.17g", value);
  else
    fputs("null", json->out);
}

void mn_json_integer(struct mn_json *json, const char *key, int64_t value) {
  start_value(json, key);
  fprintf(json->out, "%" PRId64, value);
}

void mn_json_unsigned(struct mn_json *json, const char *key, uint64_t value) {
  start_value(json, key);
  fprintf(json->out, "%" PRIu64, value);
}

void mn_json_boolean(struct mn_json *json, const char *key, int value) {
  start_value(json, key);
  fputs(value ? "true" : "false", json->out);
}

void mn_json_null(struct mn_json *json, const char *key) {
  start_value(json, key);
  fputs("null", json->out);
}

void mn_json_string(struct mn_json *json, const char *key, const char *value) {
  start_value(json, key);
  if (value)
    write_quoted(json->out, value);
  else
    fputs("null", json->out);
}
