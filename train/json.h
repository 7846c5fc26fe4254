/* A writer of answers: as JSON, for --json and for the log, one object a line; or plain, the same tree for
 * people: a member of an object is a line "key: value", and an array a line of values; in an array of objects
 * or arrays each of these is a line.
 *
 *   struct mn_json json;
 *   mn_json_begin(&json, stdout);
 *   mn_json_open(&json, NULL);                 {
 *   mn_json_integer(&json, "step", 10);          "step":10
 *   mn_json_array_open(&json, "loss");           ,"loss":[
 *   mn_json_number(&json, NULL, 0.5);              0.5
 *   mn_json_close(&json);                        ]
 *   mn_json_close(&json);                      } and a newline
 *
 * A key belongs to every value in an object, NULL to every element of an array and to the outermost value;
 * anything else, like more than MN_JSON_DEPTH levels, is a broken invariant and aborts. A write that failed
 * is seen with ferror. */
#ifndef MN_TRAIN_JSON_H
#define MN_TRAIN_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/status.h"

enum { MN_JSON_DEPTH = 16 };

struct mn_json {
  FILE *out; /* borrowed; of an answer, into text[size] */
  char *text;
  size_t size;
  int plain;                          /* 1 for people, 0 for JSON */
  int digits;                         /* significant digits of a plain real */
  int width;                          /* of the value that was written last, if it is flat */
  int depth;                          /* levels open */
  unsigned char array[MN_JSON_DEPTH]; /* the level is an array, not an object */
  unsigned char form[MN_JSON_DEPTH];  /* how it is written */
  unsigned char used[MN_JSON_DEPTH];  /* it has a value already: the next needs a comma */
};

void mn_json_begin(struct mn_json *json, FILE *out, int plain); /* 6 digits; does not write yet */

/* The same for an answer that is printed whole or not at all: it is kept in memory. mn_json_end_answer prints
 * it to `out` if `status` is MN_OK, frees it, and returns `status`. MN_NO_MEMORY; MN_IO: `out` cannot be
 * written. */
mn_status mn_json_begin_answer(struct mn_json *json, int plain);
mn_status mn_json_end_answer(struct mn_json *json, FILE *out, mn_status status);

void mn_json_open(struct mn_json *json, const char *key);       /* an object */
void mn_json_array_open(struct mn_json *json, const char *key); /* an array */
void mn_json_close(struct mn_json *json); /* the innermost of either; the outermost ends the line */

/* As mn_json_show_real prints it, and null if not finite; plain with `digits`. */
void mn_json_number(struct mn_json *json, const char *key, double value);
void mn_json_integer(struct mn_json *json, const char *key, int64_t value);
void mn_json_unsigned(struct mn_json *json, const char *key, uint64_t value);
void mn_json_bytes(struct mn_json *json, const char *key, double value); /* plain in MiB too; NaN is null */
void mn_json_boolean(struct mn_json *json, const char *key, int value);  /* plain yes or no */
void mn_json_null(struct mn_json *json, const char *key);

/* JSON: quotes, backslashes and control characters (C0 and C1) are escaped; bytes that are not UTF-8, which
 * file names may have, become U+FFFD; NULL is null. Plain: control characters and bytes that are not UTF-8
 * could steer a terminal and are shown as \x1B; NULL is shown as "none". */
void mn_json_string(struct mn_json *json, const char *key, const char *value);

/* The decimal with the fewest digits, but at least six, that reads back as the same double: 0.05, not
 * 0.050000000000000003. It has less than MN_JSON_REAL characters. */
enum { MN_JSON_REAL = 32 };
void mn_json_show_real(char *out, size_t size, double value);

#endif
