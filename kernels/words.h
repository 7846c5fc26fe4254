/* The words that users write for an enum's values: one list for each enum, read in both directions. */
#ifndef MN_KERNELS_WORDS_H
#define MN_KERNELS_WORDS_H

#include <stddef.h>

#include "kernels/status.h"

/* Defines, for an enum of `count` values and the words in their order:
 *
 *   const char *const mn_WHAT_words[]                              NULL-terminated
 *   const char *mn_WHAT_name(type value)                           NULL: no such value
 *   mn_status mn_WHAT_parse(const char *word, type *out)           MN_USAGE: no such word */
#define MN_WORDS(what, type, count, ...)                                                                     \
  const char *const mn_##what##_words[] = {__VA_ARGS__, NULL};                                               \
  const char *mn_##what##_name(type value) {                                                                 \
    return (unsigned)value < (unsigned)(count) ? mn_##what##_words[value] : NULL;                            \
  }                                                                                                          \
  mn_status mn_##what##_parse(const char *word, type *out) {                                                 \
    int found;                                                                                               \
    MN_TRY(mn_word_find(&found, #what, mn_##what##_words, word));                                            \
    *out = (type)found;                                                                                      \
    return MN_OK;                                                                                            \
  }                                                                                                          \
  _Static_assert(sizeof mn_##what##_words / sizeof *mn_##what##_words == (count) + 1,                        \
                 "a word for each " #what)

/* The index of `word` among the words. MN_USAGE: "no WHAT is called 'x'; a, b and c are". */
mn_status mn_word_find(int *out, const char *what, const char *const *words, const char *word);

/* Writes "a, b and c" to out[size], cut off where it does not fit. between: ", "; before_last: " and ". */
void mn_words_join(char *out, size_t size, const char *const *words, const char *between,
                   const char *before_last);

#endif
