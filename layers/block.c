/* The block on the tape: forward and backward of any run of ops, with the GEMM before them or without. */
#include "layers/block.h"

#include <stdio.h>
#include <string.h>

#include "layers/add.h"

enum { X, WEIGHT, BIAS, GAMMA, BETA, TARGET }; /* a node's inputs */

struct saved {
  struct mn_block block; /* what the kernels work on; z, mean, rstd: what the forward saves, or NULL */
  struct mn_operand dz;
  struct mn_epilogue forward;
  struct mn_reduction loss; /* of a fused one's parts */
};

static mn_status forward(struct mn_tape *tape, struct mn_node *node) {
  const struct mn_kernels *k = tape->context->kernels;
  struct mn_device *device = tape->context->device;
  struct saved *saved = node->saved;
  struct mn_block *b = &saved->block;
  if (node->inputs[WEIGHT])
    MN_TRY(k->gemm(device, MN_NT, &node->inputs[X]->value, &node->inputs[WEIGHT]->value, &saved->forward));
  else
    MN_TRY(k->epilogue(device, node->inputs[X]->value.real, b->rows, b->channels, &saved->forward));
  if (!node->inputs[TARGET] || tape->stepping) return MN_OK;
  const struct mn_reduction *loss = &saved->loss;
  return k->reduce(device, loss->out, loss->scratch, loss->parts, loss->count, loss->factor);
}

/* The finish of the column sums beside dW, which is given and has no use for it; in a step with a fused
 * loss's parts, there since the forward, in the same launch. */
static mn_status sum_columns(struct mn_tape *tape, struct mn_node *node) {
  const struct mn_kernels *k = tape->context->kernels;
  struct mn_device *device = tape->context->device;
  struct saved *saved = node->saved;
  const struct mn_block *b = &saved->block;
  MN_TRY(k->branch_begin(device));
  mn_status status = k->column_sums(device, b->sums, mn_chunks(b->rows), b->channels, node->sinks + BIAS,
                                    node->inputs[TARGET] && tape->stepping ? &saved->loss : NULL);
  mn_status joined = k->branch_join(device);
  return status != MN_OK ? status : joined;
}

/* By now dz and the partial column sums stand: the epilogue of whoever computed dy left them, or receive
 * does. No parameter is updated before dx stands, which needs W, and which may find values that are not
 * finite: then none is. */
static mn_status backward(struct mn_tape *tape, struct mn_node *node) {
  const struct mn_kernels *k = tape->context->kernels;
  struct mn_device *device = tape->context->device;
  struct saved *saved = node->saved;
  struct mn_block *b = &saved->block;
  const struct mn_epilogue *dx = node->sinks[X], *dw = node->sinks[WEIGHT];
  if (node->output) MN_TRY(mn_tape_receive(tape, node));
  if (dx && !node->inputs[WEIGHT])
    MN_TRY(k->epilogue(device, saved->dz.real, b->rows, b->channels, dx));
  else if (dx) /* dx = dz·W */
    MN_TRY(k->gemm(device, MN_NN, &saved->dz, &node->inputs[WEIGHT]->value, dx));
  MN_TRY(k->branch_fork(device));
  if (dw) /* dW = dzᵀ·x */
    MN_TRY(k->gemm(device, MN_TN, &saved->dz, &node->inputs[X]->value, dw));
  return sum_columns(tape, node);
}

/* The buffers stand now. dz goes where it is read next: to the GEMMs in their form, in place over dy (over
 * the product, if a loss is fused and no dy ever stored); without a GEMM, straight to where the input's
 * gradient is collected. */
static mn_status bind(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  struct mn_block *b = &saved->block;
  if (!node->inputs[WEIGHT]) b->z = node->inputs[X]->value.real;
  if (node->inputs[TARGET]) b->target = node->inputs[TARGET]->value.real;
  if (!tape->training) return MN_OK;
  const struct mn_epilogue *sink = node->sinks[X];
  void *dy = node->output ? node->output->gradient : saved->forward.into;
  if (!node->inputs[WEIGHT])
    saved->dz.real = sink && sink->kind != MN_ADD ? sink->into : dy;
  else if (tape->context->device->bf16)
    return mn_tape_device(tape, &saved->dz.bf16, b->rows * b->channels, tape->context->device->bf16);
  else
    saved->dz.real = dy;
  return MN_OK;
}

static const struct mn_operation operation = {"block", bind, forward, backward};

/* A later backward reads z, mean and rstd, so a tape that trains saves them. A fused loss goes back in the
 * same pass and needs none of them; nor does a stage that neither normalises nor activates need z. */
static mn_status take_saved(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  struct mn_block *b = &saved->block;
  int64_t elements = b->rows * b->channels, chunks = mn_chunks(b->rows);
  size_t real = tape->context->device->real;
  int later = tape->training && node->output;
  if (node->inputs[WEIGHT]) MN_TRY(mn_tape_device(tape, &saved->forward.into, elements, real));
  if (later && b->ops & (MN_OP_NORM | MN_OP_ACTIVATE)) b->z = saved->forward.into;
  if (later && b->ops & MN_OP_NORM) {
    MN_TRY(mn_tape_device(tape, &b->mean, b->rows * b->groups, real));
    MN_TRY(mn_tape_device(tape, &b->rstd, b->rows * b->groups, real));
  }
  if (node->inputs[TARGET]) {
    int64_t parts = b->rows * b->groups;
    MN_TRY(mn_tape_device(tape, &b->loss_parts, parts, real));
    saved->loss = (struct mn_reduction){
        .out = tape->results, .parts = b->loss_parts, .count = parts, .factor = 1 / (double)elements};
    MN_TRY(mn_tape_device(tape, (void **)&saved->loss.scratch, mn_reduce_scratch(parts), sizeof(double)));
  }
  if (!tape->training) return MN_OK;
  return mn_tape_device(tape, &b->sums, 3 * chunks * b->channels, real);
}

/* Records the node whose inputs and block's ops, groups, eps, slope and scale are given. */
static mn_status record(struct mn_tape *tape, struct mn_tensor **y, struct mn_node node,
                        struct mn_block block) {
  struct saved *saved;
  MN_TRY(mn_tape_host(tape, (void **)&saved, sizeof *saved));
  struct mn_tensor *x = node.inputs[X], *weight = node.inputs[WEIGHT];
  block.rows = x->value.rows;
  block.channels = weight ? weight->value.rows : x->value.cols;
  if (weight && weight->value.cols != x->value.cols)
    return mn_fail(MN_USAGE, "%s takes %ld inputs, but %s has %ld", weight->name, (long)weight->value.cols,
                   x->name, (long)x->value.cols);
  if (block.ops & MN_OP_NORM) MN_TRY(mn_block_check_groups(block.channels, block.groups));
  const void **vectors[] = {[BIAS] = &block.bias, [GAMMA] = &block.gamma, [BETA] = &block.beta};
  for (int i = BIAS; i <= BETA; i++)
    if (node.inputs[i]) {
      MN_REQUIRE(mn_tensor_count(node.inputs[i]) == block.channels);
      *vectors[i] = node.inputs[i]->value.real;
    }
  block.dz = &saved->dz;
  saved->dz = (struct mn_operand){.rows = block.rows, .cols = block.channels};
  node.operation = &operation;
  node.operand[X] = node.operand[WEIGHT] = weight != NULL;
  node.saved = saved;
  if (y) {
    MN_TRY(mn_tape_tensor(tape, y, "block", block.rows, block.channels));
    node.output = *y;
    block.y = &(*y)->value;
    (*y)->sink = (struct mn_epilogue){.kind = MN_BLOCK_BACKWARD, .block = &saved->block};
  }
  saved->block = block;
  saved->forward = (struct mn_epilogue){.kind = y ? MN_BLOCK : MN_BLOCK_LOSS, .block = &saved->block};
  MN_TRY(take_saved(tape, &node));
  return mn_tape_record(tape, &node);
}

mn_status mn_linear_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                           struct mn_tensor *weight, struct mn_tensor *bias) {
  return record(tape, y, (struct mn_node){.inputs = {x, weight, bias}},
                (struct mn_block){.ops = MN_OP_BIAS, .groups = 1});
}

mn_status mn_group_norm_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                               struct mn_tensor *gamma, struct mn_tensor *beta, int64_t groups, double eps) {
  return record(tape, y, (struct mn_node){.inputs = {[X] = x, [GAMMA] = gamma, [BETA] = beta}},
                (struct mn_block){.ops = MN_OP_NORM, .groups = groups, .eps = eps});
}

mn_status mn_leaky_relu_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                               double slope) {
  return record(tape, y, (struct mn_node){.inputs = {x}},
                (struct mn_block){.ops = MN_OP_ACTIVATE, .groups = 1, .slope = slope});
}

/* The first operation of a plan has the GEMM, and the later ones work on its output; each takes the vectors
 * of its ops. */
static mn_status record_stages(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                               const struct mn_block_layer *l, unsigned ops, struct mn_tensor *target,
                               double scale) {
  struct mn_node node = {.inputs = {[X] = x, [TARGET] = target}};
  if (ops & MN_OP_BIAS) node.inputs[WEIGHT] = l->weight, node.inputs[BIAS] = l->bias;
  if (ops & MN_OP_NORM) node.inputs[GAMMA] = l->gamma, node.inputs[BETA] = l->beta;
  return record(tape, y, node,
                (struct mn_block){.ops = ops,
                                  .groups = ops & MN_OP_NORM ? l->groups : 1,
                                  .eps = l->eps,
                                  .slope = l->slope,
                                  .scale = scale});
}

mn_status mn_block_mse_record(struct mn_tape *tape, struct mn_tensor *x, const struct mn_block_layer *layer,
                              struct mn_tensor *target, double scale) {
  MN_REQUIRE(target->value.rows == x->value.rows && target->value.cols == layer->weight->value.rows &&
             tape->training);
  return record_stages(tape, NULL, x, layer, MN_OP_ALL, target, scale);
}

enum { LINEAR = MN_OP_BIAS, NORM = MN_OP_NORM, ACTIVATE = MN_OP_ACTIVATE, SUM = MN_OP_SUM };

static const struct {
  const char *name;
  unsigned parts[5]; /* the ops of each operation; 0 ends */
} plans[MN_PLANS] = {
    [MN_PLAN_NONE] = {"none", {LINEAR, NORM, ACTIVATE, SUM}},
    [MN_PLAN_ACTIVATION] = {"activation", {LINEAR, NORM, ACTIVATE | SUM}},
    [MN_PLAN_NORM_ACTIVATION] = {"norm-activation", {LINEAR, NORM | ACTIVATE, SUM}},
    [MN_PLAN_TAIL] = {"tail", {LINEAR, NORM | ACTIVATE | SUM}},
    [MN_PLAN_LINEAR_NORM] = {"linear-norm", {LINEAR | NORM, ACTIVATE | SUM}},
    [MN_PLAN_BLOCK] = {"block", {MN_OP_ALL}},
};

mn_status mn_block_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                          const struct mn_block_layer *layer, enum mn_plan plan) {
  *y = x;
  for (const unsigned *part = plans[plan].parts; *part; part++) {
    if (*part == SUM)
      MN_TRY(mn_add_record(tape, y, *y, *y));
    else
      MN_TRY(record_stages(tape, y, *y, layer, *part, NULL, 1));
  }
  return MN_OK;
}

const char *mn_plan_name(enum mn_plan plan) {
  return plan < MN_PLANS ? plans[plan].name : NULL;
}

mn_status mn_plan_parse(const char *word, enum mn_plan *out) {
  for (int i = 0; i < MN_PLANS; i++)
    if (strcmp(word, plans[i].name) == 0) {
      *out = (enum mn_plan)i;
      return MN_OK;
    }
  return mn_fail(MN_USAGE,
                 "no plan is called '%s'; none, activation, norm-activation, tail, linear-norm and block are",
                 word);
}

void mn_block_saved(const struct mn_tensor *y, const struct mn_tape *tape, const void **z, const void **mean,
                    const void **rstd) {
  for (const struct mn_node *node = tape->first; node; node = node->next)
    if (node->output == y && node->operation == &operation) {
      const struct saved *saved = node->saved;
      *z = saved->block.z, *mean = saved->block.mean, *rstd = saved->block.rstd;
      return;
    }
  mn_abort(__FILE__, __LINE__, "a block's output");
}

mn_status mn_block_check_groups(int64_t channels, int64_t groups) {
  if (groups >= 1 && channels % groups == 0) return MN_OK;
  char divisors[256] = "";
  size_t length = 0;
  for (int64_t d = 1; d <= channels && length < sizeof divisors - 40; d++)
    if (channels % d == 0)
      length +=
          (size_t)snprintf(divisors + length, sizeof divisors - length, "%s%ld", length ? ", " : "", (long)d);
  return mn_fail(MN_USAGE, "--groups %ld does not divide --hidden %ld; %s do", (long)groups, (long)channels,
                 divisors);
}
