/* What the members of a config can be, as a table for each config. */
#ifndef MN_TRAIN_LIMITS_H
#define MN_TRAIN_LIMITS_H

#include <stddef.h>

#include "kernels/status.h"

struct mn_limit {
  const char *name; /* NULL ends a table */
  size_t offset;    /* in the config */
  enum mn_limit_kind { MN_LIMIT_INT64, MN_LIMIT_DOUBLE, MN_LIMIT_WORD } kind;
  double least, most;       /* of numbers, which are finite */
  int above;                /* greater than `least`, not the same */
  const char *const *words; /* of an enum: its words, which end with NULL */
  const char *such;         /* a value that works, for the message; or NULL */
};

/* Rows of a table: the member `what` of struct `of`. */
#define MN_LIMIT(of, what, type, ...)                                                                        \
  { .name = #what, .offset = offsetof(struct of, what), .kind = MN_LIMIT_##type, __VA_ARGS__ }

/* MN_USAGE: a member is not within its limits; the message calls the config `what`: "a model's". */
mn_status mn_limits_check(const char *what, const void *config, const struct mn_limit *limits);

#endif
