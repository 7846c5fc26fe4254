/* What a user sets of a rule: the members, their defaults and checks. The rule itself is MN_UPDATE. */
#include "train/rule.h"

#include "kernels/text.h"

MN_WORDS(optimizer, enum mn_rule_kind, MN_RULES, [MN_SGD] = "sgd", [MN_ADAMW] = "adamw");

enum { SGD = 1 << MN_SGD, ADAMW = 1 << MN_ADAMW };
#define MEMBER(member, rule_set, option, ...)                                                                \
  { .name = option, .offset = offsetof(struct mn_rule, member), .rules = rule_set, __VA_ARGS__ }
const struct mn_rule_member mn_rule_members[MN_RULE_MEMBERS] = {
    MEMBER(momentum, SGD, "momentum", .initial = 0.9, .share = 1),
    MEMBER(nesterov, SGD, "nesterov", .flag = 1),
    MEMBER(weight_decay, SGD | ADAMW, "weight-decay"),
    MEMBER(beta1, ADAMW, "beta1", .initial = 0.9, .share = 1),
    MEMBER(beta2, ADAMW, "beta2", .initial = 0.98, .share = 1),
    MEMBER(eps, ADAMW, "adam-eps", .initial = 1e-8, .positive = 1),
};

void mn_rule_set(struct mn_rule *rule, const struct mn_rule_member *member, double value) {
  void *at = (char *)rule + member->offset;
  if (member->flag)
    *(int *)at = value != 0;
  else
    *(double *)at = value;
}

struct mn_optimizer_config mn_optimizer_defaults(enum mn_rule_kind rule) {
  struct mn_optimizer_config config = {.rule = {.kind = rule}, .accumulate = 1};
  for (const struct mn_rule_member *m = mn_rule_members; m < mn_rule_members + MN_RULE_MEMBERS; m++)
    if (m->rules >> rule & 1) mn_rule_set(&config.rule, m, m->initial);
  return config;
}

static mn_status check_member(const struct mn_rule *rule, const struct mn_rule_member *m) {
  const void *at = (const char *)rule + m->offset;
  const double value = m->flag ? *(const int *)at : *(const double *)at;
  if (!(m->rules >> rule->kind & 1))
    return value == 0 ? MN_OK
                      : mn_fail(MN_USAGE, "%s has no %s; leave it 0", mn_optimizer_name(rule->kind), m->name);
  if ((m->positive ? (float)value > 0 : value >= 0) && (!m->share || value < 1)) return MN_OK;
  return mn_fail(MN_USAGE, "%s %g: a %s%s works", m->name, value,
                 m->positive ? "float above 0" : "number from 0", m->share ? " to below 1" : "");
}

mn_status mn_optimizer_check(const struct mn_optimizer_config *c) {
  const struct mn_rule *r = &c->rule;
  if (!mn_optimizer_name(r->kind)) return mn_fail(MN_USAGE, "optimizer %d: there is none", (int)r->kind);
  for (int i = 0; i < MN_RULE_MEMBERS; i++) MN_TRY(check_member(r, &mn_rule_members[i]));
  if (r->nesterov && r->momentum == 0)
    return mn_fail(MN_USAGE, "Nesterov's momentum needs a momentum above 0");
  if (!(c->clip >= 0)) return mn_fail(MN_USAGE, "a clipping norm of %g: 0 (none) or more works", c->clip);
  if (c->accumulate < 1) return mn_fail(MN_USAGE, "%d batches a step: 1 or more work", c->accumulate);
  return MN_OK;
}
