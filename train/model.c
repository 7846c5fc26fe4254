/* A model as a list of layers, and their parameters. */
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/clock.h"
#include "kernels/ranks/collectives.h"
#include "kernels/text.h"
#include "train/limits.h"
#include "train/prepared.h"

MN_WORDS(loss, enum mn_loss, MN_LOSSES, [MN_LOSS_MSE] = "mse", [MN_LOSS_CROSS_ENTROPY] = "cross-entropy");

struct mn_model_config mn_model_defaults(void) {
  return (struct mn_model_config){
      .groups = 8, .eps = 1e-5, .slope = 0.01, .loss = MN_LOSS_MSE, .plan = MN_PLAN_STACK};
}

int64_t mn_model_outputs(const struct mn_model_config *config) {
  return config->head ? config->head : config->hidden[config->depth - 1];
}

/* The list of layers that a configuration means; returns how many. */
static int list_layers(const struct mn_model_config *c, struct mn_layer layers[MN_MODEL_LAYERS]) {
  int count = 0;
  int64_t inputs = c->inputs;
  for (; count < c->depth; count++) {
    layers[count] = (struct mn_layer){.kind = &mn_block_kind,
                                      .inputs = inputs,
                                      .outputs = c->hidden[count],
                                      .groups = c->groups,
                                      .eps = c->eps,
                                      .slope = c->slope,
                                      .plan = c->plan};
    snprintf(layers[count].name, sizeof layers[count].name, "blocks.%d", count);
    inputs = c->hidden[count];
  }
  if (c->head)
    layers[count++] =
        (struct mn_layer){.kind = &mn_linear_kind, .name = "head", .inputs = inputs, .outputs = c->head};
  return count;
}

/* A layer's description of a parameter, under the model's name for it. */
static struct mn_parameter describe_parameter(const struct mn_layer *layer, int index) {
  const struct mn_parameter own = layer->kind->parameter(layer, index);
  struct mn_parameter p = own;
  snprintf(p.name, sizeof p.name, "%.31s.%.31s", layer->name, own.name);
  return p;
}

int mn_model_parameter(const struct mn_model_config *config, int index, struct mn_parameter *out) {
  struct mn_layer layers[MN_MODEL_LAYERS];
  int count = list_layers(config, layers);
  for (int i = 0; i < count; index -= layers[i++].kind->parameters)
    if (index < layers[i].kind->parameters) return *out = describe_parameter(&layers[i], index), 1;
  return 0;
}

mn_status mn_model_measure(struct mn_model *model) {
  for (int i = 0; i < model->count; i++)
    if (model->parameters[i]->scales)
      MN_TRY(mn_round(model->device, &model->parameters[i]->value, MN_MEASURE_TOGETHER));
  return MN_OK;
}

/* Makes of a layer this rank's shard: neighbouring outputs; of a block, whole groups. */
static mn_status divide(struct mn_layer *layer, const struct mn_ranks *ranks) {
  const int shards = mn_ranks_shards(ranks);
  layer->whole = layer->outputs;
  if (shards == 1) return MN_OK;
  if (layer->groups % shards)
    return mn_fail(MN_USAGE,
                   "the %ld groups of %s cannot be divided among %d ranks, each with whole groups; "
                   "as many groups as a multiple of the ranks would do",
                   (long)layer->groups, layer->name, shards);
  if (layer->outputs < shards)
    return mn_fail(MN_USAGE, "the %ld outputs of %s are fewer than the %d ranks", (long)layer->outputs,
                   layer->name, shards);
  layer->groups /= shards;
  layer->outputs = mn_share(layer->whole, ranks->shards.rank, shards, &layer->first);
  return MN_OK;
}

int64_t mn_model_size(const struct mn_model_config *config) {
  struct mn_parameter p;
  int64_t size = 0;
  for (int i = 0; mn_model_parameter(config, i, &p); i++) size += p.rows * p.cols;
  return size;
}

static mn_status open_layer(struct mn_model *model, struct mn_layer *layer) {
  if (layer->kind->check) MN_TRY(layer->kind->check(layer));
  MN_TRY(divide(layer, model->device->ranks));
  for (int i = 0; i < layer->kind->parameters; i++) {
    struct mn_parameter p = describe_parameter(layer, i);
    MN_TRY(mn_tensor_parameter(model->device, &layer->parameters[i], p.name, p.rank, p.rows, p.cols,
                               layer->first, layer->whole));
    model->parameters[model->count++] = layer->parameters[i];
  }
  return MN_OK;
}

static const struct mn_limit limits[] = {
    MN_LIMIT(mn_model_config, inputs, INT64, .least = 1, .most = INT32_MAX),
    MN_LIMIT(mn_model_config, depth, INT64, .least = 1, .most = MN_MODEL_DEPTH),
    MN_LIMIT(mn_model_config, groups, INT64, .least = 1, .most = INT32_MAX),
    MN_LIMIT(mn_model_config, head, INT64, .least = 0, .most = INT32_MAX),
    MN_LIMIT(mn_model_config, eps, DOUBLE, .least = 0, .most = INFINITY, .above = 1, .such = "1e-5"),
    MN_LIMIT(mn_model_config, slope, DOUBLE, .least = -INFINITY, .most = INFINITY),
    MN_LIMIT(mn_model_config, loss, WORD, .words = mn_loss_words),
    MN_LIMIT(mn_model_config, plan, WORD, .words = mn_plan_words),
    {0},
};

mn_status mn_model_open(struct mn_model **out, struct mn_device *device,
                        const struct mn_model_config *config) {
  MN_OPENS(out, device, config);
  MN_TRY(mn_limits_check("a model's", config, limits));
  struct mn_model *model = *out = calloc(1, sizeof *model);
  if (!model) return mn_fail(MN_NO_MEMORY, "no memory for a model");
  *model = (struct mn_model){.device = device, .config = *config};
  model->depth = list_layers(config, model->layers);
  mn_status status = MN_OK;
  for (int i = 0; i < model->depth && status == MN_OK; i++) status = open_layer(model, &model->layers[i]);
  if (status != MN_OK) mn_model_close(model), *out = NULL;
  return status;
}

void mn_model_close(struct mn_model *model) {
  if (!model) return;
  mn_prepared_free(model);
  for (int i = 0; i < model->count; i++) mn_tensor_free(model->device, model->parameters[i]);
  for (int side = 0; side < MN_SIDES; side++) free(model->standard[side].mean);
  free(model->class_names.names), free(model->table), free(model->trained);
  free(model);
}

static mn_status initialise(struct mn_device *device, struct mn_tensor *t, const struct mn_parameter *p,
                            uint64_t seed, uint32_t sequence, int64_t first) {
  const int64_t count = mn_tensor_count(t);
  mn_heartbeat();
  if (p->bound > 0) return mn_tensor_uniform(device, t, seed, sequence, (uint64_t)first, p->bound);
  double *values = malloc((size_t)count * sizeof *values);
  if (!values) return mn_fail(MN_NO_MEMORY, "no memory to initialise %s", t->name);
  for (int64_t i = 0; i < count; i++) values[i] = p->initial;
  mn_status status = mn_tensor_write(device, t, values);
  free(values);
  return status;
}

mn_status mn_model_initialise(struct mn_model *model, uint64_t seed) {
  MN_GIVEN(model);
  uint32_t sequence = MN_RANDOM_PARAMETER;
  for (int i = 0; i < model->depth; i++) {
    const struct mn_layer *layer = &model->layers[i];
    for (int j = 0; j < layer->kind->parameters; j++) {
      const struct mn_parameter p = describe_parameter(layer, j);
      const int64_t first = layer->first * (p.rank == 2 ? p.cols : 1);
      MN_TRY(initialise(model->device, layer->parameters[j], &p, seed, sequence++, first));
    }
  }
  mn_count_change(&model->changes);
  return mn_model_measure(model);
}

mn_status mn_model_train(struct mn_model *model, enum mn_epilogue_kind how, const struct mn_rule *rule) {
  for (int i = 0; i < model->count; i++)
    MN_TRY(mn_tensor_train(model->device, model->parameters[i], how, rule));
  return MN_OK;
}

const struct mn_model_config *mn_model_sizes(const struct mn_model *model) {
  return &model->config;
}

const char *mn_model_class(const struct mn_model *model, int64_t k) {
  return k >= 0 && k < model->class_names.count ? model->class_names.names[k] : NULL;
}

const char *mn_model_table(const struct mn_model *model) {
  return model->table;
}
