/* Rates of SGD and AdamW, and updates by stored gradients; the rule itself is MN_UPDATE. */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/ranks/collectives.h"
#include "kernels/text.h"
#include "train/clipping.h"
#include "train/limits.h"
#include "train/rule.h"

MN_WORDS(schedule, enum mn_schedule_kind, MN_SCHEDULES, [MN_SCHEDULE_CONSTANT] = "constant",
         [MN_SCHEDULE_COSINE] = "cosine", [MN_SCHEDULE_STEP] = "step");

mn_status mn_optimizer_open(struct mn_optimizer **out, struct mn_model *model,
                            const struct mn_optimizer_config *config) {
  MN_OPENS(out, model, config);
  MN_TRY(mn_optimizer_check(config));
  if (model->optimizer)
    return mn_fail(MN_USAGE, "a second optimizer of a model: close the first, or train by that");
  if (model->training > 0)
    return mn_fail(MN_USAGE, "an optimizer of a model with open passes that train: open it before them");
  struct mn_optimizer *o = *out = calloc(1, sizeof *o);
  if (!o) return mn_fail(MN_NO_MEMORY, "no memory for an optimizer");
  *o = (struct mn_optimizer){.model = model, .config = *config};
  o->clipping =
      (struct mn_clipping){.max = config->clip, .rows = mn_clips_by_grams(model, config) ? config->rows : 0};
  o->stored = (config->clip > 0 && !o->clipping.rows) || config->accumulate > 1 ||
              mn_ranks_replicas(model->device->ranks) > 1;
  mn_status status = mn_tape_open(&o->buffers, model->device, 0);
  if (status == MN_OK) status = mn_tape_device(o->buffers, (void **)&o->rate, MN_RATES, sizeof(double));
  if (status == MN_OK) status = mn_clipping_open(&o->clipping, o->buffers, model);
  o->config.rule.scale = o->clipping.scale;
  mn_optimizer_at(o, NULL, NULL);
  enum mn_epilogue_kind how = config->accumulate > 1 ? MN_ADD : o->stored ? MN_STORE : MN_UPDATE;
  if (status == MN_OK) status = mn_model_train(model, how, &o->config.rule);
  if (status == MN_OK) model->clipping = o->clipping.rows ? &o->clipping : NULL, model->optimizer = o;
  if (status != MN_OK) mn_optimizer_close(o), *out = NULL;
  return status;
}

void mn_optimizer_close(struct mn_optimizer *o) {
  if (!o) return;
  if (o->model->optimizer == o) {
    o->model->optimizer = NULL, o->model->clipping = NULL;
    for (int i = 0; i < o->model->count; i++)
      o->model->parameters[i]->needs_gradient = 0, o->model->parameters[i]->sink = (struct mn_epilogue){0};
  }
  mn_tape_close(o->buffers);
  free(o);
}

void mn_optimizer_rates(const struct mn_optimizer *o, double rate, int64_t step, double out[MN_RATES]) {
  const double t = (double)step + 1;
  out[MN_RATE] = rate;
  out[MN_RATE_FIRST] = 1 / (1 - pow(o->config.rule.beta1, t));
  out[MN_RATE_SECOND] = 1 / sqrt(1 - pow(o->config.rule.beta2, t));
}

mn_status mn_optimizer_rate(struct mn_optimizer *optimizer, double rate, int64_t step) {
  MN_GIVEN(optimizer);
  if (!isfinite(rate) || rate < 0 || step < 0)
    return mn_fail(MN_USAGE, "the rate %g for step %ld: a finite rate from 0, and a step from 0, work", rate,
                   (long)step);
  optimizer->rated = 1;
  mn_optimizer_rates(optimizer, rate, step, optimizer->host_rate);
  optimizer->config.rule.rate = optimizer->rate;
  return mn_copy(optimizer->model->device, optimizer->rate, optimizer->host_rate,
                 sizeof optimizer->host_rate);
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

static mn_status update(void *data) {
  struct mn_optimizer *o = data;
  const struct mn_model *m = o->model;
  struct mn_device *device = m->device;
  const struct mn_tape_hooks *hooks = device->hooks;
  if (hooks && o->config.accumulate > 1) MN_TRY(hooks->sum(device, m->parameters, m->count));
  if (o->config.clip > 0) MN_TRY(mn_clip_stored(&o->clipping, m));
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

static const struct mn_limit schedule_limits[] = {
    MN_LIMIT(mn_schedule, kind, WORD, .words = mn_schedule_words),
    MN_LIMIT(mn_schedule, rate, DOUBLE, .least = 0, .most = INFINITY),
    MN_LIMIT(mn_schedule, horizon, INT64, .least = 0, .most = 0x1p62),
    MN_LIMIT(mn_schedule, warmup, INT64, .least = 0, .most = 0x1p62),
    {0},
};
static const struct mn_limit drop_limits[] = {
    MN_LIMIT(mn_schedule, every, INT64, .least = 1, .most = 0x1p62),
    MN_LIMIT(mn_schedule, factor, DOUBLE, .least = 0, .most = INFINITY),
    {0},
};

mn_status mn_schedule_check(const struct mn_schedule *s) {
  MN_TRY(mn_limits_check("a schedule's", s, schedule_limits));
  return s->kind == MN_SCHEDULE_STEP ? mn_limits_check("a schedule's", s, drop_limits) : MN_OK;
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
