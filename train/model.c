/* A model's parameters, and recording passes over them. */
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/loss.h"

static const char *const losses[] = {[MN_LOSS_MSE] = "mse", [MN_LOSS_CROSS_ENTROPY] = "cross-entropy"};

const char *mn_loss_name(enum mn_loss loss) {
  return loss < sizeof losses / sizeof *losses ? losses[loss] : NULL;
}

mn_status mn_loss_parse(const char *word, enum mn_loss *out) {
  for (int i = 0; i < 2; i++)
    if (strcmp(word, losses[i]) == 0) {
      *out = (enum mn_loss)i;
      return MN_OK;
    }
  return mn_fail(MN_USAGE, "no loss is called '%s'; mse and cross-entropy are", word);
}

int64_t mn_model_outputs(const struct mn_model_config *config) {
  return config->head ? config->head : config->hidden[config->depth - 1];
}

static mn_status check(const struct mn_model_config *c) {
  if (c->inputs < 1) return mn_fail(MN_USAGE, "--in %ld: at least 1 input is needed", (long)c->inputs);
  if (c->depth < 1 || c->depth > MN_MODEL_DEPTH)
    return mn_fail(MN_USAGE, "--hidden names %d blocks; 1 to %d work", c->depth, MN_MODEL_DEPTH);
  for (int i = 0; i < c->depth; i++) {
    if (c->hidden[i] < 1)
      return mn_fail(MN_USAGE, "--hidden %ld: a block needs at least 1 channel", (long)c->hidden[i]);
    MN_TRY(mn_block_check_groups(c->hidden[i], c->groups));
  }
  if (c->head < 0) return mn_fail(MN_USAGE, "--head %ld: 0 (none) or more outputs work", (long)c->head);
  return MN_OK;
}

static mn_status add_parameter(struct mn_model *model, struct mn_tensor **out, const char *name, int rank,
                               int64_t rows, int64_t cols) {
  MN_TRY(mn_tensor_parameter(model->context, out, name, rank, rows, cols));
  model->parameters[model->count++] = *out;
  return MN_OK;
}

static mn_status add_block(struct mn_model *model, int i, int64_t inputs) {
  const struct mn_model_config *c = &model->config;
  struct mn_block_layer *b = &model->blocks[i];
  *b = (struct mn_block_layer){.groups = c->groups, .eps = c->eps, .slope = c->slope};
  struct mn_tensor **const places[] = {&b->weight, &b->bias, &b->gamma, &b->beta};
  static const char *const names[] = {"fc.weight", "fc.bias", "gn.weight", "gn.bias"};
  for (int k = 0; k < 4; k++) {
    char name[64];
    snprintf(name, sizeof name, "blocks.%d.%s", i, names[k]);
    MN_TRY(add_parameter(model, places[k], name, k == 0 ? 2 : 1, k == 0 ? c->hidden[i] : 1,
                         k == 0 ? inputs : c->hidden[i]));
  }
  return MN_OK;
}

static mn_status add_parameters(struct mn_model *model) {
  const struct mn_model_config *c = &model->config;
  for (int i = 0; i < c->depth; i++) MN_TRY(add_block(model, i, i ? c->hidden[i - 1] : c->inputs));
  if (!c->head) return MN_OK;
  MN_TRY(add_parameter(model, &model->head_weight, "head.weight", 2, c->head, c->hidden[c->depth - 1]));
  return add_parameter(model, &model->head_bias, "head.bias", 1, 1, c->head);
}

mn_status mn_model_open(struct mn_model **out, struct mn_context *context,
                        const struct mn_model_config *config) {
  *out = NULL;
  MN_TRY(check(config));
  struct mn_model *model = calloc(1, sizeof *model);
  if (!model) return mn_fail(MN_NO_MEMORY, "no memory for a model");
  model->context = context;
  model->config = *config;
  mn_status status = add_parameters(model);
  if (status != MN_OK) {
    mn_model_close(model);
    return status;
  }
  *out = model;
  return MN_OK;
}

void mn_model_close(struct mn_model *model) {
  if (!model) return;
  for (int i = 0; i < model->count; i++) mn_tensor_free(model->context, model->parameters[i]);
  free(model);
}

static mn_status fill(struct mn_context *context, struct mn_tensor *tensor, double value) {
  int64_t count = mn_tensor_count(tensor);
  double *values = malloc((size_t)count * sizeof *values);
  if (!values) return mn_fail(MN_NO_MEMORY, "no memory to initialise %s", tensor->name);
  for (int64_t i = 0; i < count; i++) values[i] = value;
  mn_status status = mn_tensor_write(context, tensor, values);
  free(values);
  return status;
}

mn_status mn_model_initialise(struct mn_model *model, uint64_t seed) {
  for (int i = 0; i < model->count; i++) {
    struct mn_tensor *t = model->parameters[i];
    if (strstr(t->name, "gn.")) {
      MN_TRY(fill(model->context, t, strstr(t->name, "gn.weight") ? 1 : 0));
      continue;
    }
    /* A bias has the bound of the weight before it. */
    const struct mn_tensor *weight = t->rank == 2 ? t : model->parameters[i - 1];
    double bound = 1 / sqrt((double)weight->value.cols);
    MN_TRY(model->context->kernels->uniform(model->context->device, t->value.real, mn_tensor_count(t), seed,
                                            MN_RANDOM_PARAMETER + (uint32_t)i, 0, bound));
    t->value.stale = 1;
    MN_TRY(mn_operand_prepare(model->context, &t->value));
  }
  return MN_OK;
}

mn_status mn_model_train(struct mn_model *model, enum mn_training how, const struct mn_sgd *sgd) {
  for (int i = 0; i < model->count; i++)
    MN_TRY(mn_tensor_train(model->context, model->parameters[i], how, sgd));
  return MN_OK;
}

/* Everything up to y, or, where the loss can be fused into the last block, up to its input. */
static mn_status record_layers(struct mn_pass *pass, int blocks) {
  const struct mn_model *m = pass->model;
  pass->y = pass->x;
  for (int i = 0; i < blocks; i++) {
    MN_TRY(mn_block_record(pass->tape, &pass->y, pass->y, &m->blocks[i], m->config.plan));
    snprintf(pass->y->name, sizeof pass->y->name, "the output of blocks.%d", i);
  }
  if (!m->config.head) return MN_OK;
  MN_TRY(mn_linear_record(pass->tape, &pass->y, pass->y, m->head_weight, m->head_bias));
  snprintf(pass->y->name, sizeof pass->y->name, "the output of the head");
  return MN_OK;
}

static mn_status record(struct mn_pass *pass, enum mn_pass_kind kind, double scale, int inputs_too) {
  const struct mn_model *m = pass->model;
  const struct mn_model_config *c = &m->config;
  int mse = c->loss == MN_LOSS_MSE;
  int has_loss = kind == MN_PASS_EVALUATE || kind == MN_PASS_TRAIN || kind == MN_PASS_EXPLAIN;
  int fused = kind == MN_PASS_TRAIN && mse && !c->head && c->plan == MN_PLAN_BLOCK;
  MN_TRY(mn_tape_input(pass->tape, &pass->x, "the input", pass->rows, c->inputs));
  pass->x->needs_gradient = inputs_too;
  if (has_loss && mse)
    MN_TRY(mn_tape_input(pass->tape, &pass->target, "the target", pass->rows, mn_model_outputs(c)));
  if (has_loss && !mse)
    MN_TRY(mn_tape_device(pass->tape, (void **)&pass->labels, pass->rows, sizeof(int32_t)));
  MN_TRY(record_layers(pass, fused ? c->depth - 1 : c->depth));
  if (kind == MN_PASS_FORWARD) pass->y->operand = 1;
  if (kind == MN_PASS_EXPLAIN)
    for (struct mn_node *node = pass->tape->first; node; node = node->next) node->output->keep = 1;
  if (fused) {
    MN_TRY(mn_block_mse_record(pass->tape, pass->y, &m->blocks[c->depth - 1], pass->target, scale));
    pass->y = NULL;
  } else if (has_loss && mse) {
    MN_TRY(mn_mse_record(pass->tape, pass->y, pass->target, scale));
  } else if (has_loss) {
    MN_TRY(mn_cross_entropy_record(pass->tape, pass->y, pass->labels, scale));
  }
  return mn_tape_finish(pass->tape);
}

mn_status mn_pass_open(struct mn_pass **out, struct mn_model *model, enum mn_pass_kind kind, int64_t rows,
                       double scale, int inputs_too) {
  *out = NULL;
  if (rows < 1) return mn_fail(MN_USAGE, "--batch %ld: at least 1 row is needed", (long)rows);
  struct mn_pass *pass = calloc(1, sizeof *pass);
  if (!pass) return mn_fail(MN_NO_MEMORY, "no memory for a pass");
  pass->model = model;
  pass->rows = rows;
  mn_status status =
      mn_tape_open(&pass->tape, model->context, kind == MN_PASS_TRAIN || kind == MN_PASS_SEEDED);
  if (status == MN_OK) status = record(pass, kind, scale, inputs_too);
  if (status != MN_OK) {
    mn_pass_close(pass);
    return status;
  }
  *out = pass;
  return MN_OK;
}

void mn_pass_close(struct mn_pass *pass) {
  if (!pass) return;
  mn_tape_close(pass->tape);
  free(pass);
}

mn_status mn_pass_load(struct mn_pass *pass, const void *x, const void *y) {
  struct mn_context *context = pass->model->context;
  const struct mn_kernels *k = context->kernels;
  size_t real = context->device->real;
  MN_TRY(k->upload(context->device, pass->x->value.real, x, (size_t)mn_tensor_count(pass->x) * real));
  pass->x->value.stale = 1;
  MN_TRY(mn_operand_prepare(context, &pass->x->value));
  if (y && pass->target)
    return k->upload(context->device, pass->target->value.real, y,
                     (size_t)mn_tensor_count(pass->target) * real);
  if (y && pass->labels)
    return k->upload(context->device, pass->labels, y, (size_t)pass->rows * sizeof(int32_t));
  return MN_OK;
}

/* The first row of a tensor that holds a value that is not finite, or −1. */
static mn_status find_nonfinite(struct mn_context *context, const struct mn_tensor *tensor, int64_t *row) {
  int64_t count = mn_tensor_count(tensor);
  double *values = malloc((size_t)count * sizeof *values);
  if (!values) return mn_fail(MN_NO_MEMORY, "no memory to look at %s", tensor->name);
  mn_status status = mn_tensor_read(context, tensor, values);
  *row = -1;
  for (int64_t i = 0; i < count && status == MN_OK && *row < 0; i++)
    if (!isfinite(values[i])) *row = i / tensor->value.cols;
  free(values);
  return status;
}

static mn_status explain(struct mn_pass *pass, const void *x, const void *y, char *text, size_t size) {
  struct mn_model *m = pass->model;
  int64_t row = -1;
  for (int i = 0; i < m->count; i++) {
    MN_TRY(find_nonfinite(m->context, m->parameters[i], &row));
    if (row >= 0) return snprintf(text, size, "%s, row %ld", m->parameters[i]->name, (long)row), MN_OK;
  }
  MN_TRY(mn_pass_load(pass, x, y));
  MN_TRY(mn_tape_forward(pass->tape));
  for (struct mn_node *node = pass->tape->first; node && node->output; node = node->next) {
    MN_TRY(find_nonfinite(m->context, node->output, &row));
    if (row >= 0) return snprintf(text, size, "%s, row %ld", node->output->name, (long)row), MN_OK;
  }
  double loss;
  MN_TRY(mn_tape_results(pass->tape, &loss, NULL));
  snprintf(text, size, isfinite(loss) ? "a gradient" : "the loss");
  return MN_OK;
}

mn_status mn_pass_explain(struct mn_model *model, int64_t rows, const void *x, const void *y, char *text,
                          size_t size) {
  struct mn_pass *pass;
  MN_TRY(mn_pass_open(&pass, model, MN_PASS_EXPLAIN, rows, 1, 0));
  mn_status status = explain(pass, x, y, text, size);
  mn_pass_close(pass);
  return status;
}
