/* The words that name an enum's values, as users write them: one list an enum, and the one way to read it. */
#ifndef MN_KERNELS_WORDS_H
#define MN_KERNELS_WORDS_H

#include "kernels/status.h"

/* The place of `word` among the `count` words. MN_USAGE: "no WHAT is called 'x'; a, b and c are". */
mn_status mn_word_find(int *out, const char *what, const char *const *words, int count, const char *word);

#endif
