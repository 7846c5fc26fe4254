/* Comparing the members of a config with their limits. */
#include "train/limits.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/text.h"

/* An enum that was never one of its values is read as the int that it is. */
static mn_status check_word(const char *what, const struct mn_limit *l, int value) {
  char known[256];
  int count = 0;
  while (l->words[count]) count++;
  if (value >= 0 && value < count) return MN_OK;
  mn_words_join(known, sizeof known, l->words, ", ", " and ");
  return mn_fail(MN_USAGE, "%s %s is %d: 0 to %d, which are %s, would do", what, l->name, value, count - 1,
                 known);
}

static mn_status check_number(const char *what, const struct mn_limit *l, double value) {
  char range[96] = "any finite number";
  if (isfinite(value) && value <= l->most && (l->above ? value > l->least : value >= l->least)) return MN_OK;
  if (l->most < INFINITY)
    snprintf(range, sizeof range, "%.15g to %.15g", l->least, l->most);
  else if (l->least > -INFINITY)
    snprintf(range, sizeof range, "a finite number %s %.15g", l->above ? "above" : "from", l->least);
  return mn_fail(MN_USAGE, "%s %s is %.15g: %s%s%s would do", what, l->name, value, range,
                 l->such ? ", such as " : "", l->such ? l->such : "");
}

mn_status mn_limits_check(const char *what, const void *config, const struct mn_limit *limits) {
  for (const struct mn_limit *l = limits; l->name; l++) {
    const char *at = (const char *)config + l->offset;
    int64_t whole;
    int number;
    double value;
    memcpy(&number, at, sizeof number);
    if (l->kind == MN_LIMIT_WORD) {
      MN_TRY(check_word(what, l, number));
      continue;
    }
    if (l->kind == MN_LIMIT_INT64)
      memcpy(&whole, at, sizeof whole), value = (double)whole;
    else
      memcpy(&value, at, sizeof value);
    MN_TRY(check_number(what, l, value));
  }
  return MN_OK;
}
