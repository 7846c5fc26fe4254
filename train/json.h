/* A writer of JSON: what --json prints and what the log holds, one object a line.
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

enum { MN_JSON_DEPTH = 16 };

struct mn_json {
  FILE *out;                          /* borrowed */
  int depth;                          /* levels open */
  unsigned char array[MN_JSON_DEPTH]; /* the level is an array, not an object */
  unsigned char used[MN_JSON_DEPTH];  /* it has a value already: the next needs a comma */
};

void mn_json_begin(struct mn_json *json, FILE *out); /* writes nothing yet */

void mn_json_open(struct mn_json *json, const char *key);       /* an object */
void mn_json_array_open(struct mn_json *json, const char *key); /* an array */
void mn_json_close(struct mn_json *json); /* the innermost of either; the outermost ends the line */

/* As mn_json_show_real prints it; null if not finite. */
void mn_json_number(struct mn_json *json, const char *key, double value);
void mn_json_integer(struct mn_json *json, const char *key, int64_t value);
void mn_json_unsigned(struct mn_json *json, const char *key, uint64_t value);
void mn_json_boolean(struct mn_json *json, const char *key, int value);
void mn_json_null(struct mn_json *json, const char *key);

/* Quotes, backslashes and control characters, of C1 too, are escaped; bytes that are no UTF-8 (file names may
 * hold any) become U+FFFD, since JSON cannot hold them. NULL is null. */
void mn_json_string(struct mn_json *json, const char *key, const char *value);

/* The decimal with the fewest digits, but at least six, that reads back as the same double: 0.05, not
 * 0.050000000000000003. It has less than MN_JSON_REAL characters. */
enum { MN_JSON_REAL = 32 };
void mn_json_show_real(char *out, size_t size, double value);

#endif
