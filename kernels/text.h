/* Texts: those from files and the command line, shown so that they steer no terminal and stay one line; and
 * the words that users write for an enum's values, one list for each enum. */
#ifndef MN_KERNELS_TEXT_H
#define MN_KERNELS_TEXT_H

#include <stddef.h>
#include <stdio.h>

#include "kernels/status.h"

/* The bytes of the UTF-8 character at `text`. Returns 0 for other bytes and for a control character (of C0,
 * DEL, or of C1 as U+009B), which may steer a terminal; surrogates, overlong forms, U+FFFE, U+FFFF and
 * numbers above U+10FFFF do not count as characters. */
size_t mn_escape_character(const char *text);

/* Writes the character at `text` to out, its first byte as \x9B if it is none. Returns its bytes. */
size_t mn_escape_next(char out[5], const char *text);

/* Writes all of `text` in this way to out[size], cut off if it does not fit. */
void mn_escape(char *out, size_t size, const char *text);

/* Prints a line, or its beginning, in one write, so shown: names and texts from files and the command line do
 * not steer a terminal. A newline at its end stays. */
void mn_escape_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Defines, for an enum of `count` values and the words in their order:
 *
 *   const char *const mn_WHAT_words[]                              NULL-terminated
 *   const char *mn_WHAT_name(type value)                           NULL: no such value */
#define MN_WORDS(what, type, count, ...)                                                                     \
  const char *const mn_##what##_words[] = {__VA_ARGS__, NULL};                                               \
  const char *mn_##what##_name(type value) {                                                                 \
    return (unsigned)value < (unsigned)(count) ? mn_##what##_words[value] : NULL;                            \
  }                                                                                                          \
  _Static_assert(sizeof mn_##what##_words / sizeof *mn_##what##_words == (count) + 1,                        \
                 "a word for each " #what)

/* The index of `word` among the words. MN_USAGE: "no WHAT is called 'x'; a, b and c are". */
mn_status mn_word_find(int *out, const char *what, const char *const *words, const char *word);

/* Writes "a, b and c" to out[size], cut off if it does not fit. between: ", "; before_last: " and ". */
void mn_words_join(char *out, size_t size, const char *const *words, const char *between,
                   const char *before_last);

#endif
