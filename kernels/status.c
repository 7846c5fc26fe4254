/* The message that goes with a mn_status: one buffer a thread, so that a loader thread's error never mixes
 * with the main thread's. And the texts of kernels/text.h, which messages are made of. */
#include "kernels/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"

static _Thread_local char message[MN_MESSAGE];

mn_status mn_fail(mn_status status, const char *format, ...) {
  /* Formatted aside first: an argument may be mn_message() itself. */
  char text[sizeof message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mn_escape(message, sizeof message, text); /* so it is one line, too */
  return status;
}

const char *mn_message(void) {
  return message;
}

const char *mn_version(void) {
  return MINNOW_VERSION;
}

void mn_abort(const char *file, int line, const char *condition) {
  fprintf(stderr, "minnow: %s:%d: broken invariant: %s\n", file, line, condition);
  abort();
}

size_t mn_escape_character(const char *text) {
  const unsigned char *bytes = (const unsigned char *)text;
  const unsigned first = bytes[0], second = first ? bytes[1] : 0;
  const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < ' ' || (first >= 0x7f && first < 0xc2) || first > 0xf4) return 0;
  for (size_t i = 1; i < length; i++) /* the zero at the end does not count */
    if (bytes[i] >> 6 != 2) return 0;
  if ((first == 0xc2 && second < 0xa0) || (first == 0xe0 && second < 0xa0) ||
      (first == 0xed && second >= 0xa0) || (first == 0xf0 && second < 0x90) ||
      (first == 0xef && second == 0xbf && bytes[2] >= 0xbe) || (first == 0xf4 && second >= 0x90))
    return 0;
  return length;
}

size_t mn_escape_next(char out[5], const char *text) {
  const size_t length = mn_escape_character(text);
  if (length == 0) return snprintf(out, 5, "\\x%02X", (unsigned char)*text), 1;
  memcpy(out, text, length);
  out[length] = 0;
  return length;
}

void mn_escape(char *out, size_t size, const char *text) {
  char next[5];
  for (*out = 0; *text; out += strlen(next), size -= strlen(next)) {
    text += mn_escape_next(next, text);
    if (strlen(next) >= size) return;
    strcpy(out, next);
  }
}

void mn_escape_print(FILE *out, const char *format, ...) {
  char text[MN_MESSAGE + 2], shown[sizeof text];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const size_t length = strlen(text);
  const int ends = length > 0 && text[length - 1] == '\n';
  if (ends) text[length - 1] = 0;
  mn_escape(shown, sizeof shown, text);
  fprintf(out, "%s%s", shown, ends ? "\n" : "");
}

mn_status mn_word_find(int *out, const char *what, const char *const *words, const char *word) {
  for (int i = 0; words[i]; i++)
    if (strcmp(word, words[i]) == 0) return *out = i, MN_OK;
  char known[256];
  mn_words_join(known, sizeof known, words, ", ", " and ");
  return mn_fail(MN_USAGE, "no %s is called '%s'; %s are", what, word, known);
}

void mn_words_join(char *out, size_t size, const char *const *words, const char *between,
                   const char *before_last) {
  size_t used = 0;
  for (int i = 0; words[i] && used < size; i++) {
    const char *before = i == 0 ? "" : words[i + 1] ? between : before_last;
    used += (size_t)snprintf(out + used, size - used, "%s%s", before, words[i]);
  }
}

mn_status mn_lacks(const char *function, const char *names, int index) {
  for (; index > 0; index--) names = strchr(names, ',') + 2;
  return mn_fail(MN_USAGE, "%s: %.*s is NULL", function, (int)strcspn(names, ","), names);
}
