/* The settings of SGD and AdamW as a table, which options and checks go by. */
#ifndef MN_TRAIN_RULE_H
#define MN_TRAIN_RULE_H

#include "train/optimizer.h"

/* The members of struct mn_rule that a user sets. A rule that lacks a member has 0 there. */
struct mn_rule_member {
  const char *name; /* the option without its dashes */
  size_t offset;    /* in struct mn_rule, of a double, or of an int if it is a flag */
  unsigned rules;   /* bit 1 << MN_SGD … of each rule that has it */
  int flag, share;  /* a share is below 1 */
  int positive;     /* it has to be above 0 after rounding to float */
  double initial;   /* the default */
};
enum { MN_RULE_MEMBERS = 6 };
extern const struct mn_rule_member mn_rule_members[MN_RULE_MEMBERS];
/* Sets a member of a rule; a flag is 0 or 1. */
void mn_rule_set(struct mn_rule *rule, const struct mn_rule_member *member, double value);

/* MN_USAGE: values that cannot be (mn_optimizer_open). */
mn_status mn_optimizer_check(const struct mn_optimizer_config *config);

#endif
