/* Settings and rates of SGD and AdamW, and updates by stored gradients; the rule itself is MN_UPDATE. */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/ranks/collectives.h"
#include "kernels/text.h"

MN_WORDS(optimizer, enum mn_rule_kind, MN_RULES, [MN_SGD] = "sgd", [MN_ADAMW] = "adamw");

MN_WORDS(schedule, enum mn_schedule_kind, MN_SCHEDULES, [MN_SCHEDULE_CONSTANT] = "constant",
         [MN_SCHEDULE_COSINE] = "cosine", [MN_SCHEDULE_STEP] = "step");

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

static mn_status check(const struct mn_optimizer_config *c) {
  const struct mn_rule *r = &c->rule;
  if (!mn_optimizer_name(r->kind)) return mn_fail(MN_USAGE, "optimizer %d: there is none", (int)r->kind);
  for (int i = 0; i < MN_RULE_MEMBERS; i++) MN_TRY(check_member(r, &mn_rule_members[i]));
  if (r->nesterov && r->momentum == 0)
    return mn_fail(MN_USAGE, "Nesterov's momentum needs a momentum above 0");
  if (!(c->clip >= 0)) return mn_fail(MN_USAGE, "a clipping norm of %g: 0 (none) or more works", c->clip);
  if (c->accumulate < 1) return mn_fail(MN_USAGE, "%d batches a step: 1 or more work", c->accumulate);
  return MN_OK;
}

/* Whether the tape clips, by products of rows by rows, and no gradient is stored. In 16 bits on a GPU this is
 * faster if these products have no more multiply-adds than the gradients (kernels/NOTES.md, "Clipping"). */
static int by_grams(const struct mn_model *model, const struct mn_optimizer_config *c) {
  const struct mn_device *device = model->device;
  double grams = 0, gradients = 0;
  for (int i = 0; i < model->depth; i++) {
    const double inputs = (double)model->layers[i].inputs, outputs = (double)model->layers[i].outputs;
    grams += (double)c->rows * (inputs + outputs);
    gradients += inputs * outputs;
  }
  return c->clip > 0 && c->accumulate == 1 && c->rows > 0 && c->rows % 8 == 0 && !device->ranks &&
         device->type == MN_DEVICE_CUDA && device->planes == 1 && grams <= gradients;
}

static mn_status take_buffers(struct mn_optimizer *o) {
  const struct mn_model *m = o->model;
  struct mn_clipping *c = &o->clipping;
  const int64_t shards = mn_ranks_shards(m->device->ranks), rows = c->rows;
  MN_TRY(mn_tape_open(&o->buffers, m->device, 0));
  MN_TRY(mn_tape_device(o->buffers, (void **)&o->rate, MN_RATES, sizeof(double)));
  if (!(o->config.clip > 0)) return MN_OK;
  /* Clipping needs the norm of all gradients before the first update. */
  MN_TRY(mn_tape_device(o->buffers, (void **)&c->scale, 2, sizeof(double)));
  /* A sum of squares for each parameter; with shards, this rank's and then all shards' sums. */
  const int64_t squares = m->count * (shards > 1 ? 1 + shards : 1);
  MN_TRY(mn_tape_device(o->buffers, (void **)&c->squares, squares, sizeof(double)));
  /* More than mn_reduce needs for the largest gradient, or for two grams. */
  const int64_t scratch = mn_reduce_scratch(rows * rows + mn_model_size(&m->config));
  MN_TRY(mn_tape_device(o->buffers, (void **)&c->scratch, scratch, sizeof(double)));
  int64_t channels = 0;
  for (int i = 0; i < m->depth; i++)
    if (m->layers[i].outputs > channels) channels = m->layers[i].outputs;
  return rows ? mn_tape_device(o->buffers, &c->grams, 2 * rows * rows + 3 * channels, m->device->real)
              : MN_OK;
}

mn_status mn_optimizer_open(struct mn_optimizer **out, struct mn_model *model,
                            const struct mn_optimizer_config *config) {
  *out = NULL;
  MN_TRY(check(config));
  struct mn_optimizer *o = calloc(1, sizeof *o);
  if (!o) return mn_fail(MN_NO_MEMORY, "no memory for an optimizer");
  o->model = model;
  o->config = *config;
  o->clipping = (struct mn_clipping){.max = config->clip, .rows = by_grams(model, config) ? config->rows : 0};
  o->stored = (config->clip > 0 && !o->clipping.rows) || config->accumulate > 1 ||
              mn_ranks_replicas(model->device->ranks) > 1;
  mn_status status = take_buffers(o);
  o->config.rule.scale = o->clipping.scale;
  mn_optimizer_at(o, NULL, NULL);
  enum mn_epilogue_kind how = config->accumulate > 1 ? MN_ADD : o->stored ? MN_STORE : MN_UPDATE;
  if (status == MN_OK) status = mn_model_train(model, how, &o->config.rule);
  if (status != MN_OK) {
    mn_optimizer_close(o);
    return status;
  }
  model->clipping = o->clipping.rows ? &o->clipping : NULL;
  *out = o;
  return MN_OK;
}

void mn_optimizer_close(struct mn_optimizer *o) {
  if (!o) return;
  if (o->model->clipping == &o->clipping) o->model->clipping = NULL;
  mn_tape_close(o->buffers);
  free(o);
}

void mn_optimizer_rates(const struct mn_optimizer *o, double rate, int64_t step, double out[MN_RATES]) {
  const double t = (double)step + 1;
  out[MN_RATE] = rate;
  out[MN_RATE_FIRST] = 1 / (1 - pow(o->config.rule.beta1, t));
  out[MN_RATE_SECOND] = 1 / sqrt(1 - pow(o->config.rule.beta2, t));
}

mn_status mn_optimizer_rate(struct mn_optimizer *o, double rate, int64_t step) {
  struct mn_device *device = o->model->device;
  mn_optimizer_rates(o, rate, step, o->host_rate);
  o->config.rule.rate = o->rate;
  return mn_copy(device, o->rate, o->host_rate, sizeof o->host_rate);
}

void mn_optimizer_at(struct mn_optimizer *o, const double *rate, double *norm) {
  o->config.rule.rate = rate ? rate : o->rate;
  o->clipping.norm = norm ? norm : o->clipping.scale ? o->clipping.scale + 1 : NULL;
}

mn_status mn_optimizer_reset(struct mn_optimizer *o) {
  struct mn_device *device = o->model->device;
  if (o->config.accumulate == 1) return MN_OK;
  for (int i = 0; i < o->model->count; i++) {
    const struct mn_tensor *t = o->model->parameters[i];
    MN_TRY(mn_zero(device, t->gradient, (size_t)mn_tensor_count(t) * device->real));
  }
  return MN_OK;
}

static mn_status clip(struct mn_optimizer *o) {
  const struct mn_model *m = o->model;
  struct mn_device *device = m->device;
  const struct mn_clipping *c = &o->clipping;
  double *squares = c->squares;
  int64_t count = m->count;
  for (int i = 0; i < m->count && !device->hooks; i++) {
    const struct mn_tensor *t = m->parameters[i];
    const struct mn_reduction sum = {squares + i, c->scratch,         t->gradient,
                                     t->gradient, mn_tensor_count(t), 1};
    MN_TRY(mn_reduce(device, &sum));
  }
  if (device->hooks) MN_TRY(device->hooks->square(device, m->parameters, m->count, c, &squares, &count));
  return mn_clip(device, c->scale, c->norm, squares, count, c->max);
}

static mn_status update(void *data) {
  struct mn_optimizer *o = data;
  const struct mn_model *m = o->model;
  struct mn_device *device = m->device;
  const struct mn_tape_hooks *hooks = device->hooks;
  if (hooks && o->config.accumulate > 1) MN_TRY(hooks->sum(device, m->parameters, m->count));
  if (o->config.clip > 0) MN_TRY(clip(o));
  if (hooks) return hooks->update(device, m->parameters, m->count);
  for (int i = m->count - 1; i >= 0; i--) {
    const struct mn_tensor *t = m->parameters[i];
    const struct mn_epilogue apply = {.kind = MN_UPDATE, .update = &t->update};
    MN_TRY(mn_epilogue(device, t->gradient, t->value.rows, t->value.cols, &apply));
  }
  return MN_OK;
}

mn_status mn_optimizer_step(struct mn_optimizer *o, struct mn_tape *tape) {
  return o->stored ? mn_tape_run(tape, update, o) : MN_OK;
}

double mn_schedule_rate(const struct mn_schedule *s, int64_t step) {
  MN_REQUIRE(step >= 0 && (unsigned)s->kind < MN_SCHEDULES);
  if (step < s->warmup) return s->rate * (double)(step + 1) / (double)s->warmup;
  int64_t done = step - s->warmup, span = s->horizon - s->warmup;
  if (s->kind == MN_SCHEDULE_CONSTANT) return s->rate;
  if (s->kind == MN_SCHEDULE_STEP) {
    MN_REQUIRE(s->every > 0);
    return s->rate * pow(s->factor, (double)(done / s->every));
  }
  /* Past the horizon the cosine would rise again; the rate stays 0. */
  return done >= span ? 0 : s->rate * 0.5 * (1 + cos(M_PI * (double)done / (double)span));
}
