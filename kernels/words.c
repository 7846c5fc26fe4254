/* Looking a word up, and naming those there are. */
#include "kernels/words.h"

#include <stdio.h>
#include <string.h>

mn_status mn_word_find(int *out, const char *what, const char *const *words, int count, const char *word) {
  char known[256] = "";
  for (int i = 0; i < count; i++) {
    if (strcmp(word, words[i]) == 0) {
      *out = i;
      return MN_OK;
    }
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s",
             i == 0          ? ""
             : i + 1 < count ? ", "
                             : " and ",
             words[i]);
  }
  return mn_fail(MN_USAGE, "no %s is called '%s'; %s are", what, word, known);
}
