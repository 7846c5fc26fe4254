/* A model as a list of layers, and their parameters. */
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/class_names.h"
#include "kernels/clock.h"
#include "kernels/ranks/collectives.h"
#include "kernels/text.h"

MN_WORDS(loss, enum mn_loss, MN_LOSSES, [MN_LOSS_MSE] = "mse", [MN_LOSS_CROSS_ENTROPY] = "cross-entropy");

struct mn_model_config mn_model_defaults(void) {
  return (struct mn_model_config){
      .groups = 8, .eps = 1e-5, .slope = 0.01, .loss = MN_LOSS_MSE, .plan = MN_PLAN_BLOCK};
}

int64_t mn_model_outputs(const struct mn_model_config *config) {
  return config->head ? config->head : config->hidden[config->depth - 1];
}

const char *mn_model_words(char out[MN_MODEL_WORDS], const struct mn_model_config *c) {
  int used = snprintf(out, MN_MODEL_WORDS, "%ld inputs", (long)c->inputs);
  for (int i = 0; i < c->depth; i++)
    used += snprintf(out + used, MN_MODEL_WORDS - (size_t)used, "%s%ld", i ? " -> " : ", blocks of ",
                     (long)c->hidden[i]);
  used += snprintf(out + used, MN_MODEL_WORDS - (size_t)used, " channels in %ld groups", (long)c->groups);
  if (c->head) used += snprintf(out + used, MN_MODEL_WORDS - (size_t)used, ", a head of %ld", (long)c->head);
  snprintf(out + used, MN_MODEL_WORDS - (size_t)used, ", %s", mn_loss_name(c->loss));
  return out;
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
static struct mn_parameter describe(const struct mn_layer *layer, int index) {
  struct mn_parameter p = layer->kind->parameter(layer, index);
  char name[sizeof p.name];
  snprintf(name, sizeof name, "%s", p.name);
  snprintf(p.name, sizeof p.name, "%.31s.%.31s", layer->name, name);
  return p;
}

int mn_model_parameter(const struct mn_model_config *config, int index, struct mn_parameter *out) {
  struct mn_layer layers[MN_MODEL_LAYERS];
  int count = list_layers(config, layers);
  for (int i = 0; i < count; index -= layers[i++].kind->parameters)
    if (index < layers[i].kind->parameters) return *out = describe(&layers[i], index), 1;
  return 0;
}

mn_status mn_model_check_data(const struct mn_model_config *c, const char *model, struct mn_dataset *d,
                              const char *data, int targets) {
  int classes = c->loss == MN_LOSS_CROSS_ENTROPY;
  int64_t outputs = mn_model_outputs(c);
  if (c->inputs != d->inputs)
    return mn_fail(MN_BAD_DATA, "%s takes %ld inputs, but %s has %ld", model, (long)c->inputs, data,
                   (long)d->inputs);
  if (targets && classes && d->classes && outputs < d->outputs)
    MN_TRY(mn_labels_check_all(d, outputs, data, model));
  if (targets && (classes != d->classes || (classes ? outputs < d->outputs : outputs != d->outputs)))
    return mn_fail(MN_BAD_DATA, "%s gives %ld %s, but %s has %ld %s%s", model, (long)outputs,
                   classes ? "classes" : "numbers", data, (long)d->outputs,
                   d->classes ? "classes" : "numbers",
                   classes == d->classes ? "" : "; cross-entropy is the loss of classes, mse of numbers");
  return MN_OK;
}

mn_status mn_model_measure(struct mn_model *model) {
  for (int i = 0; i < model->count; i++) {
    struct mn_tensor *t = model->parameters[i];
    if (!t->scales) continue;
    MN_TRY(mn_round(model->device, &t->value, MN_MEASURE_TOGETHER));
  }
  return MN_OK;
}

/* The forward, dW and, except in the first layer, dx: each multiplies and adds once for every weight. */
double mn_model_step_flops(const struct mn_model *model) {
  double flops = 0;
  for (int i = 0; i < model->depth; i++)
    flops += (i == 0 ? 4.0 : 6.0) * (double)model->layers[i].inputs * (double)model->layers[i].whole;
  return flops;
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
    struct mn_parameter p = describe(layer, i);
    MN_TRY(mn_tensor_parameter(model->device, &layer->parameters[i], p.name, p.rank, p.rows, p.cols,
                               layer->first, layer->whole));
    model->parameters[model->count++] = layer->parameters[i];
  }
  return MN_OK;
}

mn_status mn_model_open(struct mn_model **out, struct mn_device *device,
                        const struct mn_model_config *config) {
  *out = NULL;
  if (config->depth < 1 || config->depth > MN_MODEL_DEPTH)
    return mn_fail(MN_USAGE, "a model of %ld blocks: 1 to %d work", (long)config->depth, MN_MODEL_DEPTH);
  if (!(config->eps > 0))
    return mn_fail(MN_USAGE, "a model with eps %g: one above 0, such as 1e-5, works", config->eps);
  struct mn_model *model = calloc(1, sizeof *model);
  if (!model) return mn_fail(MN_NO_MEMORY, "no memory for a model");
  model->device = device;
  model->config = *config;
  model->depth = list_layers(config, model->layers);
  mn_status status = MN_OK;
  for (int i = 0; i < model->depth && status == MN_OK; i++) status = open_layer(model, &model->layers[i]);
  if (status != MN_OK) {
    mn_model_close(model);
    return status;
  }
  *out = model;
  return MN_OK;
}

void mn_model_close(struct mn_model *model) {
  if (!model) return;
  for (int i = 0; i < model->count; i++) mn_tensor_free(model->device, model->parameters[i]);
  for (int side = 0; side < MN_SIDES; side++) free(model->standard[side].mean);
  free(model->class_names.names);
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
  uint32_t sequence = MN_RANDOM_PARAMETER;
  for (int i = 0; i < model->depth; i++) {
    const struct mn_layer *layer = &model->layers[i];
    for (int j = 0; j < layer->kind->parameters; j++) {
      const struct mn_parameter p = describe(layer, j);
      const int64_t first = layer->first * (p.rank == 2 ? p.cols : 1);
      MN_TRY(initialise(model->device, layer->parameters[j], &p, seed, sequence++, first));
    }
  }
  return mn_model_measure(model);
}

static mn_status standardize(struct mn_model *model, int side, const double *mean, const double *scale) {
  const char *what = side == MN_X ? "input" : "target";
  const int64_t count = side == MN_X ? model->config.inputs : mn_model_outputs(&model->config);
  struct mn_standard *s = &model->standard[side];
  for (int64_t i = 0; mean && i < count; i++)
    if (!isfinite(mean[i]) || !isfinite(scale[i]) || !(scale[i] > 0))
      return mn_fail(MN_USAGE, "%s %ld has the mean %g and the scale %g: finite ones, a scale above 0, work",
                     what, (long)i, mean[i], scale[i]);
  double *all = mean ? malloc(3 * (size_t)count * sizeof *all) : NULL;
  if (mean && !all)
    return mn_fail(MN_NO_MEMORY, "no memory for the means and scales of %ld %ss", (long)count, what);
  free(s->mean);
  *s = (struct mn_standard){0};
  if (mean) *s = (struct mn_standard){all, all + count, all + 2 * count};
  for (int64_t i = 0; mean && i < count; i++)
    s->mean[i] = mean[i], s->scale[i] = scale[i], s->inverse[i] = 1 / scale[i];
  return MN_OK;
}

mn_status mn_model_standardize(struct mn_model *model, const double *mean, const double *scale) {
  return standardize(model, MN_X, mean, scale);
}

mn_status mn_model_standardize_targets(struct mn_model *model, const double *mean, const double *scale) {
  if (model->config.loss != MN_LOSS_MSE)
    return mn_fail(MN_USAGE, "the targets of a model of classes cannot be standardised");
  return standardize(model, MN_Y, mean, scale);
}

double mn_model_loss_unit(const struct mn_model *model) {
  const double *scale = model->standard[MN_Y].scale;
  for (int64_t k = 1; scale && k < mn_model_outputs(&model->config); k++)
    if (scale[k] != scale[0]) return 0;
  return scale ? scale[0] * scale[0] : 1;
}

size_t mn_model_real(const struct mn_model *model) {
  return model->standard[MN_Y].mean ? sizeof(double) : model->device->real;
}

mn_status mn_model_name_classes(struct mn_model *model, const struct mn_class_names *names) {
  if (names->count != mn_model_outputs(&model->config))
    return mn_fail(MN_USAGE, "%lld names for %ld classes: as many are needed", (long long)names->count,
                   (long)mn_model_outputs(&model->config));
  return mn_class_names_copy(&model->class_names, names);
}

mn_status mn_model_train(struct mn_model *model, enum mn_epilogue_kind how, const struct mn_rule *rule) {
  for (int i = 0; i < model->count; i++)
    MN_TRY(mn_tensor_train(model->device, model->parameters[i], how, rule));
  return MN_OK;
}
