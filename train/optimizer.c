/* SGD and AdamW around a model. The rule itself is the MN_UPDATE epilogue (kernels/types.h). */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/words.h"

MN_WORDS(optimizer, enum mn_rule_kind, MN_RULES, [MN_SGD] = "sgd", [MN_ADAMW] = "adamw");

static mn_status check_share(const char *name, double value) {
  if (value >= 0 && value < 1) return MN_OK;
  return mn_fail(MN_USAGE, "%s %g: 0 up to, but not, 1 works", name, value);
}

static mn_status check(const struct mn_optimizer_config *c) {
  const int adamw = c->rule == MN_ADAMW;
  if (!mn_optimizer_name(c->rule)) return mn_fail(MN_USAGE, "optimizer %d: there is none", (int)c->rule);
  if (adamw ? c->momentum != 0 || c->nesterov : c->beta1 != 0 || c->beta2 != 0 || c->eps != 0)
    return mn_fail(MN_USAGE, "%s",
                   adamw ? "AdamW has beta1 for momentum; leave momentum and nesterov 0"
                         : "SGD has no beta1, beta2 and eps; leave them 0");
  MN_TRY(check_share("momentum", c->momentum));
  MN_TRY(check_share("beta1", c->beta1));
  MN_TRY(check_share("beta2", c->beta2));
  if (adamw && !((float)c->eps > 0))
    return mn_fail(MN_USAGE, "an eps of %g for AdamW: 1e-45, the smallest float, or more works", c->eps);
  if (!(c->weight_decay >= 0)) return mn_fail(MN_USAGE, "weight decay %g: 0 or more works", c->weight_decay);
  if (c->nesterov && c->momentum == 0)
    return mn_fail(MN_USAGE, "Nesterov's momentum needs a momentum above 0");
  if (!(c->clip >= 0)) return mn_fail(MN_USAGE, "a clipping norm of %g: 0 (none) or more works", c->clip);
  if (c->accumulate < 1) return mn_fail(MN_USAGE, "%d batches a step: 1 or more work", c->accumulate);
  return MN_OK;
}

/* Doubles of scratch memory: what the norm of the largest parameter's gradient needs. */
static int64_t scratch_size(const struct mn_model *model) {
  int64_t largest = 1;
  for (int i = 0; i < model->count; i++)
    if (mn_tensor_count(model->parameters[i]) > largest) largest = mn_tensor_count(model->parameters[i]);
  return mn_reduce_scratch(largest);
}

/* A sum of squares for each parameter; among parts, each one's own and then those of all. */
static int64_t square_count(const struct mn_model *model) {
  const int64_t parts = mn_ranks_parts(model->context->device->ranks);
  return model->count * (parts > 1 ? 1 + parts : 1);
}

/* Clipping needs the norm of all gradients before the first update. */
static mn_status take_clip_buffers(struct mn_optimizer *o) {
  struct mn_context *context = o->model->context;
  MN_TRY(mn_context_allocate(context, (void **)&o->scale, 2, sizeof(double)));
  MN_TRY(mn_context_allocate(context, (void **)&o->squares, square_count(o->model), sizeof(double)));
  return mn_context_allocate(context, (void **)&o->scratch, scratch_size(o->model), sizeof(double));
}

mn_status mn_optimizer_open(struct mn_optimizer **out, struct mn_model *model,
                            const struct mn_optimizer_config *config) {
  *out = NULL;
  MN_TRY(check(config));
  struct mn_optimizer *o = calloc(1, sizeof *o);
  if (!o) return mn_fail(MN_NO_MEMORY, "no memory for an optimizer");
  o->model = model;
  o->config = *config;
  o->stored =
      config->clip > 0 || config->accumulate > 1 || mn_ranks_copies(model->context->device->ranks) > 1;
  mn_status status = mn_context_allocate(model->context, (void **)&o->rate, MN_RATES, sizeof(double));
  if (status == MN_OK && config->clip > 0) status = take_clip_buffers(o);
  o->rule = (struct mn_rule){.rate = o->rate,
                             .scale = o->scale,
                             .momentum = config->momentum,
                             .weight_decay = config->weight_decay,
                             .nesterov = config->nesterov,
                             .kind = config->rule,
                             .beta1 = config->beta1,
                             .beta2 = config->beta2,
                             .eps = config->eps};
  mn_optimizer_at(o, NULL, NULL);
  enum mn_training how = config->accumulate > 1 ? MN_TRAIN_ADD : o->stored ? MN_TRAIN_STORE : MN_TRAIN_UPDATE;
  if (status == MN_OK) status = mn_model_train(model, how, &o->rule);
  if (status != MN_OK) {
    mn_optimizer_close(o);
    return status;
  }
  *out = o;
  return MN_OK;
}

void mn_optimizer_close(struct mn_optimizer *o) {
  if (!o) return;
  struct mn_context *context = o->model->context;
  mn_context_release(context, o->rate, MN_RATES, sizeof(double));
  mn_context_release(context, o->scale, 2, sizeof(double));
  mn_context_release(context, o->squares, square_count(o->model), sizeof(double));
  mn_context_release(context, o->scratch, scratch_size(o->model), sizeof(double));
  free(o);
}

void mn_optimizer_rates(const struct mn_optimizer *o, double rate, int64_t step, double out[MN_RATES]) {
  const double t = (double)step + 1;
  out[MN_RATE] = rate;
  out[MN_RATE_FIRST] = 1 / (1 - pow(o->config.beta1, t));
  out[MN_RATE_SECOND] = 1 / sqrt(1 - pow(o->config.beta2, t));
}

mn_status mn_optimizer_rate(struct mn_optimizer *o, double rate, int64_t step) {
  struct mn_context *context = o->model->context;
  mn_optimizer_rates(o, rate, step, o->host_rate);
  o->rule.rate = o->rate;
  return context->kernels->upload(context->device, o->rate, o->host_rate, sizeof o->host_rate);
}

void mn_optimizer_at(struct mn_optimizer *o, const double *rate, double *norm) {
  o->rule.rate = rate ? rate : o->rate;
  o->norm = norm ? norm : o->scale ? o->scale + 1 : NULL;
}

mn_status mn_optimizer_reset(struct mn_optimizer *o) {
  struct mn_context *context = o->model->context;
  if (o->config.accumulate == 1) return MN_OK;
  for (int i = 0; i < o->model->count; i++) {
    const struct mn_tensor *t = o->model->parameters[i];
    MN_TRY(context->kernels->zero(context->device, t->gradient,
                                  (size_t)mn_tensor_count(t) * context->device->real));
  }
  return MN_OK;
}

/* Whether each copy updates its own share of the parameter's rows. Not under accumulation: a step that is
 * taken again goes on from the sums of this copy's own batches, in whose place the sums over copies would be.
 */
static int shares(const struct mn_tensor *t) {
  return t->sink.kind == MN_SUM_SHARE;
}

/* A share is updated a piece of its rows at a time, so that one is gathered while the next is updated. */
static int pieces_of(const struct mn_tensor *t, int64_t rows) {
  enum { PIECES = 4, LEAST = 1 << 19 };
  return shares(t) && rows % PIECES == 0 && rows / PIECES * t->value.cols >= LEAST ? PIECES : 1;
}

/* The rows that this rank updates, and the first of them. */
static int64_t own_rows(const struct mn_optimizer *o, const struct mn_tensor *t, int64_t *first) {
  const struct mn_ranks *ranks = o->model->context->device->ranks;
  *first = 0;
  return shares(t) ? mn_own_rows(ranks, t->value.rows, first) : t->value.rows;
}

static void *row_of(void *matrix, int64_t row, const struct mn_tensor *t, size_t each) {
  return matrix ? (char *)matrix + (size_t)(row * t->value.cols) * each : NULL;
}

/* What a rank's own rows add to the norm; of gradients that all copies have, the first copy's. */
static mn_status sum_squares(struct mn_optimizer *o, const struct mn_tensor *t, double *squares) {
  struct mn_device *device = o->model->context->device;
  int64_t first, rows = own_rows(o, t, &first);
  if (!shares(t) && device->ranks && device->ranks->copies.rank > 0)
    return device->kernels->zero(device, squares, sizeof *squares);
  return device->kernels->sum_of_squares(device, squares, o->scratch,
                                         row_of(t->gradient, first, t, device->real), rows * t->value.cols);
}

static mn_status clip(struct mn_optimizer *o) {
  struct mn_context *context = o->model->context;
  const struct mn_kernels *k = context->kernels;
  const int64_t count = o->model->count;
  for (int i = 0; i < count; i++) MN_TRY(sum_squares(o, o->model->parameters[i], o->squares + i));
  if (mn_ranks_copies(context->device->ranks) > 1)
    MN_TRY(k->all_reduce(context->device, &(struct mn_sum){o->squares, count}, 1, sizeof *o->squares, NULL));
  const int64_t parts = mn_ranks_parts(context->device->ranks), all = parts * count;
  double *of_all = parts > 1 ? o->squares + count : o->squares;
  if (parts > 1) MN_TRY(k->all_gather(context->device, of_all, o->squares, 1, all, sizeof(double)));
  return k->clip(context->device, o->scale, o->norm, of_all, all, o->config.clip);
}

/* Of gradients that were added up, which the tape does not sum, nothing is written where the updates will
 * write nothing. */
static mn_status sum_over_copies(struct mn_optimizer *o) {
  struct mn_device *device = o->model->context->device;
  struct mn_sum sums[MN_MODEL_PARAMETERS];
  const int count = o->model->count;
  for (int i = 0; i < count; i++) {
    const struct mn_tensor *t = o->model->parameters[i];
    sums[i] = (struct mn_sum){t->gradient, mn_tensor_count(t)};
  }
  return device->kernels->all_reduce(device, sums, count, device->real, device->nonfinite);
}

static mn_status update_piece(const struct mn_optimizer *o, const struct mn_tensor *t, int piece,
                              int pieces) {
  struct mn_device *device = o->model->context->device;
  const size_t real = device->real;
  struct mn_operand w = t->value;
  struct mn_update update = t->update;
  int64_t first;
  w.rows = own_rows(o, t, &first) / pieces;
  first += piece * w.rows;
  w.real = row_of(w.real, first, t, real);
  w.low = row_of(w.low, first, t, sizeof *w.low);
  for (int i = 0; i < 2; i++) w.planes[i] = row_of(w.planes[i], first, t, device->plane);
  update.w = &w;
  update.momentum = row_of(update.momentum, first, t, real);
  update.squares = row_of(update.squares, first, t, real);
  const struct mn_epilogue apply = {.kind = MN_UPDATE, .update = &update};
  return device->kernels->epilogue(device, row_of(t->gradient, first, t, real), w.rows, w.cols, &apply);
}

/* Of what an update writes, if it is there. */
static mn_status gather_piece(const struct mn_optimizer *o, const struct mn_tensor *t, void *form,
                              size_t each, int piece, int pieces) {
  struct mn_device *device = o->model->context->device;
  return form ? device->kernels->gather_shares(device, form, mn_tensor_count(t), each, piece, pieces) : MN_OK;
}

static mn_status gather_shares(const struct mn_optimizer *o, const struct mn_tensor *t, void *form,
                               size_t each) {
  return gather_piece(o, t, form, each, 0, 1);
}

/* The forms that GEMMs read, beside what follows. */
static mn_status gather_operand(const struct mn_optimizer *o, const struct mn_tensor *t, int piece,
                                int pieces) {
  struct mn_device *device = o->model->context->device;
  const struct mn_kernels *k = device->kernels;
  MN_TRY(k->branch_fork(device, MN_BRANCH_COPIES));
  MN_TRY(k->branch_begin(device, MN_BRANCH_COPIES));
  mn_status status = MN_OK;
  if (!t->value.planes[0]) status = gather_piece(o, t, t->value.real, device->real, piece, pieces);
  for (int i = 0; i < 2 && status == MN_OK; i++)
    status = gather_piece(o, t, t->value.planes[i], device->plane, piece, pieces);
  const mn_status ended = k->branch_end(device, MN_BRANCH_COPIES);
  return status != MN_OK ? status : ended;
}

mn_status mn_optimizer_gather(const struct mn_optimizer *o) {
  const size_t real = o->model->context->device->real;
  for (int i = 0; i < o->model->count; i++) {
    const struct mn_tensor *t = o->model->parameters[i];
    if (!shares(t)) continue;
    if (t->value.planes[0]) MN_TRY(gather_shares(o, t, t->value.real, real));
    MN_TRY(gather_shares(o, t, t->value.low, sizeof *t->value.low));
    MN_TRY(gather_shares(o, t, t->update.momentum, real));
    MN_TRY(gather_shares(o, t, t->update.squares, real));
  }
  return MN_OK;
}

static mn_status update_all(const struct mn_optimizer *o) {
  for (int i = o->model->count - 1; i >= 0; i--) {
    const struct mn_tensor *t = o->model->parameters[i];
    int64_t first;
    const int pieces = pieces_of(t, own_rows(o, t, &first));
    for (int piece = 0; piece < pieces; piece++) {
      MN_TRY(update_piece(o, t, piece, pieces));
      if (shares(t)) MN_TRY(gather_operand(o, t, piece, pieces));
    }
  }
  return MN_OK;
}

static mn_status update(void *data) {
  struct mn_optimizer *o = data;
  struct mn_device *device = o->model->context->device;
  const struct mn_kernels *k = device->kernels;
  if (mn_ranks_copies(device->ranks) > 1 && o->config.accumulate > 1) MN_TRY(sum_over_copies(o));
  if (o->config.clip > 0) MN_TRY(clip(o));
  MN_TRY(k->branch_fork(device, MN_BRANCH_COPIES));
  mn_status status = update_all(o), joined = k->branch_join(device, MN_BRANCH_COPIES);
  return status != MN_OK ? status : joined;
}

mn_status mn_optimizer_step(struct mn_optimizer *o, struct mn_tape *tape) {
  return o->stored ? mn_tape_run(tape, update, o) : MN_OK;
}
