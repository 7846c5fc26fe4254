/* Finding a word in a list, and joining a list's words for a message. */
#include "kernels/words.h"

#include <stdio.h>
#include <string.h>

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
  for (int i = 0; words[i] && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%s",
                             i == 0         ? ""
                             : words[i + 1] ? between
                                            : before_last,
                             words[i]);
}
