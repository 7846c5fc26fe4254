/* Reads the value of an option from text, shows it as text that reads back as the same value, and describes
 * the values that are valid. */
#include "train/command/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"
#include "train/json.h"

/* From text. All return 0, or −1 for an invalid text. */

static int in_bounds(const struct mn_option_row *row, double value) {
  if (!(value >= row->low) || (row->flags & MN_OPTION_ABOVE && value == row->low)) return 0;
  return row->high == 0 || value < row->high || (value == row->high && !(row->flags & MN_OPTION_BELOW));
}

/* Digits alone: strtoll would take blanks and signs too. */
static int read_unsigned(uint64_t *out, const char *text, size_t length) {
  if (length == 0 || strspn(text, "0123456789") != length) return -1;
  errno = 0;
  uint64_t value = strtoull(text, NULL, 10);
  if (errno != 0) return -1;
  *out = value;
  return 0;
}

/* A number or, if the row has words, the index of one. */
static int read_integer(int64_t *out, const struct mn_option_row *row, const char *text, size_t length) {
  uint64_t value;
  for (int i = 0; row->words && row->words[i]; i++)
    if (strlen(row->words[i]) == length && memcmp(row->words[i], text, length) == 0) return *out = i, 0;
  if (row->words || read_unsigned(&value, text, length) != 0 || value > INT64_MAX ||
      !in_bounds(row, (double)value))
    return -1;
  *out = (int64_t)value;
  return 0;
}

/* Decimal numbers alone: strtod would take nan, inf and hexadecimal too. */
static int read_real(double *out, const struct mn_option_row *row, const char *text) {
  char *end;
  if (*text == 0 || strspn(text, "0123456789.eE+-") != strlen(text)) return -1;
  double value = strtod(text, &end);
  if (*end != 0 || !isfinite(value) || !in_bounds(row, value)) return -1;
  *out = value;
  return 0;
}

static int read_list(struct mn_list *out, const struct mn_option_row *row, const char *text) {
  struct mn_list list = {.count = 0};
  for (;; text++) {
    size_t length = strcspn(text, ",");
    if (list.count == MN_MODEL_DEPTH || read_integer(&list.items[list.count++], row, text, length) != 0)
      return -1;
    text += length;
    if (*text == 0) break;
  }
  *out = list;
  return 0;
}

/* Sets an option to "auto": a number, or a list. */
static int read_auto(struct mn_options *options, const struct mn_option_row *row) {
  void *field = (char *)options + row->offset;
  if (row->kind == MN_KIND_INTEGER)
    *(int64_t *)field = (int64_t)row->auto_value;
  else if (row->kind == MN_KIND_REAL)
    *(double *)field = row->auto_value;
  else
    *(struct mn_list *)field = (struct mn_list){.count = 0};
  return 0;
}

int mn_option_read(struct mn_options *options, int index, enum mn_command command, const char *text) {
  const struct mn_option_row *row = &mn_option_rows[index];
  void *field = (char *)options + row->offset;
  if (row->alone && strcmp(text, "yes") == 0) text = row->alone;
  if (strcmp(text, "auto") == 0 && row->automatic >> command & 1) return read_auto(options, row);
  const size_t length = strlen(text);
  switch (row->kind) {
  case MN_KIND_FLAG: /* as /config has it */
    *(int *)field = strcmp(text, "yes") == 0;
    return *(int *)field || strcmp(text, "no") == 0 ? 0 : -1;
  case MN_KIND_INTEGER:
    return read_integer(field, row, text, length);
  case MN_KIND_SEED:
    return read_unsigned(field, text, length);
  case MN_KIND_REAL:
    return read_real(field, row, text);
  case MN_KIND_LIST:
    return read_list(field, row, text);
  case MN_KIND_EVERY:
    options->save_seconds = length > 1 && text[length - 1] == 's';
    return read_integer(field, row, text, length - (size_t)options->save_seconds);
  /* A forgotten value must not make the next option a file's name. */
  case MN_KIND_TEXT:
    if (*text == 0 || strncmp(text, "--", 2) == 0) return -1;
    break;
  case MN_KIND_HEADING:
    return -1;
  }
  *(const char **)field = text;
  return 0;
}

void mn_option_reset(struct mn_options *options, int index, enum mn_command command) {
  const struct mn_option_row *row = &mn_option_rows[index];
  const char *text = mn_option_of(index, command).initial;
  if (!text) return;
  /* Read here, because a command that does not take the option would not read it. */
  int automatic = row->automatic && strcmp(text, "auto") == 0;
  MN_REQUIRE((automatic ? read_auto(options, row) : mn_option_read(options, index, command, text)) == 0);
}

/* To text. */

static int show_list(char *out, size_t size, const struct mn_list *list) {
  int length = snprintf(out, size, "%s", list->count ? "" : "auto");
  for (int i = 0; i < list->count; i++)
    length +=
        snprintf(out + (length < (int)size ? length : 0), length < (int)size ? size - (size_t)length : 0,
                 "%s%" PRId64, i ? "," : "", list->items[i]);
  return length;
}

int mn_option_show(char *out, size_t size, const struct mn_options *options, int index) {
  const struct mn_option_row *row = &mn_option_rows[index];
  const void *field = (const char *)options + row->offset;
  const char *text;
  switch (row->kind) {
  case MN_KIND_FLAG:
    return snprintf(out, size, "%s", *(const int *)field ? "yes" : "no");
  case MN_KIND_INTEGER:
    if (row->automatic && (double)*(const int64_t *)field == row->auto_value)
      return snprintf(out, size, "auto");
    if (row->words) return snprintf(out, size, "%s", row->words[*(const int64_t *)field]);
    return snprintf(out, size, "%" PRId64, *(const int64_t *)field);
  case MN_KIND_SEED:
    return snprintf(out, size, "%" PRIu64, *(const uint64_t *)field);
  case MN_KIND_REAL:
    if (row->automatic && *(const double *)field == row->auto_value) return snprintf(out, size, "auto");
    mn_json_show_real(out, size, *(const double *)field);
    return (int)strlen(out);
  case MN_KIND_LIST:
    return show_list(out, size, field);
  case MN_KIND_EVERY:
    return snprintf(out, size, "%" PRId64 "%s", options->save_every, options->save_seconds ? "s" : "");
  case MN_KIND_TEXT:
    text = *(const char *const *)field;
    return snprintf(out, size, "%s", text ? text : "");
  case MN_KIND_HEADING:
    break;
  }
  mn_abort(__FILE__, __LINE__, "an option");
}

/* Which values are valid. */

void mn_option_describe(char *out, size_t size, int index, enum mn_command command, const char *value) {
  const struct mn_option_row *row = &mn_option_rows[index];
  const char *or_auto = row->automatic >> command & 1 ? " or auto" : "";
  char high[40] = "", words[160];
  int too_large = value && *value && value[strspn(value, "0123456789")] == 0;
  if (row->high > 0 && (row->flags & MN_OPTION_BELOW || row->high < MN_OPTION_WIDEST || too_large))
    snprintf(high, sizeof high, " to %s%.0f", row->flags & MN_OPTION_BELOW ? "below " : "", row->high);
  static const char *const needed[] = {
      [MN_KIND_FLAG] = "yes or no is needed",
      [MN_KIND_SEED] = "a whole number from 0 to 18446744073709551615 is needed",
      [MN_KIND_TEXT] = "a name is needed",
      [MN_KIND_EVERY] = "a number of steps such as 500, or of seconds such as 30s, is needed",
  };
  if (row->words) {
    mn_words_join(words, sizeof words, row->words, ", ", " or ");
    snprintf(out, size, "%s%s is needed", words, or_auto);
  } else if (row->kind == MN_KIND_INTEGER || row->kind == MN_KIND_REAL) {
    snprintf(out, size, "a %snumber %s %g%s%s is needed", row->kind == MN_KIND_INTEGER ? "whole " : "",
             row->flags & MN_OPTION_ABOVE ? "above" : "from", row->low, high, or_auto);
  } else if (row->kind == MN_KIND_LIST) {
    snprintf(out, size,
             "whole numbers from 1 to %.0f are needed, one for each of at most %d blocks, such as 128,128",
             row->high, MN_MODEL_DEPTH);
  } else {
    snprintf(out, size, "%s", needed[row->kind]);
  }
}
