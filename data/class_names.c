/* The names of classes. */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

static int by_name(const void *a, const void *b) {
  return strcmp(a, b);
}

void mn_class_names_sort(struct mn_class_names *names) {
  qsort(names->names, (size_t)names->count, sizeof *names->names, by_name);
}

int64_t mn_class_find(const struct mn_class_names *names, const char *name) {
  const char(*found)[MN_CLASS_NAME] =
      bsearch(name, names->names, (size_t)names->count, sizeof *names->names, by_name);
  return found ? found - (const char(*)[MN_CLASS_NAME])names->names : -1;
}

mn_status mn_class_names_copy(struct mn_class_names *to, const struct mn_class_names *from) {
  const size_t bytes = (size_t)from->count * sizeof *from->names;
  void *copy = realloc(to->names, bytes + 1); /* of no names too */
  if (!copy) return mn_fail(MN_NO_MEMORY, "no memory for the names of %lld classes", (long long)from->count);
  *to = (struct mn_class_names){from->count, copy};
  if (bytes) memcpy(copy, from->names, bytes);
  return MN_OK;
}
