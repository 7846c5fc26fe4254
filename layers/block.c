/* The block on the tape: forward and backward of consecutive operations of it, with its GEMM or without. */
#include "engine/hooks.h"
#include "engine/planes.h"
#include "layers/layer.h"
#include "layers/norms.h"

#include <math.h>
#include <stdio.h>

#include "kernels/text.h"

enum { X, WEIGHT, BIAS, GAMMA, BETA, TARGET }; /* inputs; mn_column_sums takes three neighbours' sinks */

struct saved {
  struct mn_block block;            /* the kernels' argument; z, mean, rstd: saved by the forward, or NULL */
  struct mn_operand dz, written[2]; /* dz; copies of it and of y with the forms that are written */
  struct mn_epilogue forward;
  struct mn_reduction loss; /* sums the loss's parts, if it is fused */
  void *gathered;           /* among shards: block.loss_parts of all of them */
};

static mn_status run_forward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_device *device = tape->device;
  const struct saved *saved = node->saved;
  if (node->inputs[WEIGHT])
    return mn_gemm(device, MN_NT, &node->inputs[X]->value, &node->inputs[WEIGHT]->value, &saved->forward);
  return mn_epilogue(device, node->inputs[X]->value.real, saved->block.rows, saved->block.channels,
                     &saved->forward);
}

static mn_status forward(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  struct mn_block *b = &saved->block;
  struct mn_operand *y = node->output ? &node->output->value : NULL;
  if (node->inputs[TARGET]) b->target = node->inputs[TARGET]->value.real; /* may be another each time */
  b->weights = tape->weights;
  saved->written[0] = saved->dz;
  if (y) saved->written[1] = *y;
  MN_TRY(mn_planes_choose(tape, b, y));
  saved->loss.out = tape->results;
  MN_TRY(run_forward(tape, node));
  if (y) return mn_operand_prepare(tape->device, y);
  if (tape->stepping) return MN_OK; /* sum_columns does it, after the tape has gathered what it sums */
  if (saved->gathered)
    MN_TRY(mn_allgather(tape->device, saved->gathered, b->loss_parts, b->rows, saved->loss.count / b->rows,
                        tape->device->real));
  return mn_reduce(tape->device, &saved->loss);
}

/* Finishes the column sums (db, dgamma, dbeta), on the tape's branch: dW's GEMM does not read them, so the
 * two run at the same time on a GPU. Within a step the fused loss is reduced too, which saves a launch. */
static mn_status sum_columns(struct mn_tape *tape, struct mn_node *node) {
  struct mn_device *device = tape->device;
  struct saved *saved = node->saved;
  const struct mn_block *b = &saved->block;
  MN_TRY(mn_branch_begin(device, MN_BRANCH_SUMS));
  mn_status status = mn_column_sums(device, b->sums, mn_chunks(b->rows), b->channels, node->sinks + BIAS,
                                    node->inputs[TARGET] && tape->stepping ? &saved->loss : NULL);
  mn_status ended = mn_branch_end(device, MN_BRANCH_SUMS);
  return status != MN_OK ? status : ended;
}

/* dz and the partial column sums were written by the epilogue of the GEMM that computed dy, or are written by
 * mn_tape_receive. dx = dz·W. */
static mn_status backward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_device *device = tape->device;
  struct saved *saved = node->saved;
  const struct mn_epilogue *dx = node->sinks[X];
  if (node->output) MN_TRY(mn_tape_receive(tape, node));
  MN_TRY(mn_planes_measured(tape, &saved->dz));
  if (!dx) return MN_OK;
  if (!node->inputs[WEIGHT]) return mn_epilogue(device, saved->dz.real, saved->dz.rows, saved->dz.cols, dx);
  return mn_gemm(device, MN_NN, &saved->dz, &node->inputs[WEIGHT]->value, dx);
}

/* dW = dzᵀ·x; its epilogue updates W. */
static mn_status update(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  const struct mn_epilogue *dw = node->sinks[WEIGHT];
  if (dw) MN_TRY(mn_gemm(tape->device, MN_TN, &saved->dz, &node->inputs[X]->value, dw));
  return sum_columns(tape, node);
}

static mn_status square(struct mn_tape *tape, struct mn_node *node, const struct mn_clipping *c,
                        int64_t *count) {
  const struct saved *saved = node->saved;
  const struct mn_epilogue *const *sinks = node->sinks;
  const int wanted[] = {sinks[BIAS] != NULL, sinks[GAMMA] != NULL, sinks[BETA] != NULL};
  const struct mn_operand *x = sinks[WEIGHT] ? &node->inputs[X]->value : NULL;
  return mn_block_squares(tape->device, &saved->dz, x, saved->block.sums, wanted, c, count);
}

/* Chooses the memory of dz, once the buffers are allocated. Planes, if a GEMM reads them, have memory of
 * their own. A real dz overwrites dy or, if a loss is fused, the product. A dz with scaled planes has that
 * memory too, for steps that measure. Without a GEMM dz is the input's gradient: if the sink stores, dz is
 * written where it stores. */
static mn_status bind(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  if (!node->inputs[WEIGHT]) saved->block.z = node->inputs[X]->value.real;
  if (!tape->training) return MN_OK;
  const struct mn_tensor *weight = node->inputs[WEIGHT];
  const struct mn_epilogue *dx = node->sinks[X];
  const int planes = weight && weight->value.planes[0];
  if (planes) MN_TRY(mn_planes_of_gradient(tape, &saved->dz, weight));
  if (!weight && dx && dx->kind == MN_STORE)
    saved->dz.real = dx->into;
  else if (!planes || saved->dz.scale)
    saved->dz.real = node->output ? node->output->gradient : saved->forward.into;
  return MN_OK;
}

static void resize(struct mn_node *node, int64_t rows) {
  ((struct saved *)node->saved)->block.rows = rows;
}

static const struct mn_operation operation = {.bind = bind,
                                              .forward = forward,
                                              .backward = backward,
                                              .square = square,
                                              .update = update,
                                              .resize = resize};

/* Allocates the forward's saved values: z, mean and rstd if a later backward reads them. A fused loss runs
 * its backward in the same epilogue, so it needs no saved values. */
static mn_status take_saved(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  struct mn_block *b = &saved->block;
  int64_t elements = b->rows * b->channels, chunks = mn_chunks(b->rows);
  size_t real = tape->device->real;
  int later = tape->training && node->output;
  if (node->inputs[WEIGHT]) MN_TRY(mn_tape_device(tape, &saved->forward.into, elements, real));
  if (later && b->ops & (MN_OP_NORM | MN_OP_ACTIVATE)) b->z = saved->forward.into;
  if (later && b->ops & MN_OP_NORM) {
    MN_TRY(mn_tape_device(tape, &b->mean, b->rows * b->groups, real));
    MN_TRY(mn_tape_device(tape, &b->rstd, b->rows * b->groups, real));
  }
  if (node->inputs[TARGET]) {
    const int64_t shards = mn_ranks_shards(tape->device->ranks), parts = b->rows * b->groups * shards;
    const double elements_of_all = (double)elements * (double)shards * tape->replicas;
    MN_TRY(mn_tape_device(tape, &b->loss_parts, b->rows * b->groups, real));
    if (shards > 1) MN_TRY(mn_tape_shared(tape, &saved->gathered, parts, real));
    if (tape->ranks)
      tape->device->hooks->gather_parts(tape, saved->gathered, b->loss_parts, b->rows, parts / b->rows);
    saved->loss = (struct mn_reduction){
        .parts = shards > 1 ? saved->gathered : b->loss_parts, .count = parts, .factor = 1 / elements_of_all};
    /* The kernel divides by this rank's elements alone. */
    b->scale *= (double)elements / elements_of_all;
    MN_TRY(mn_tape_device(tape, (void **)&saved->loss.scratch, mn_reduce_scratch(parts), sizeof(double)));
  }
  if (!tape->training) return MN_OK;
  return mn_tape_device(tape, &b->sums, 3 * chunks * b->channels, real);
}

/* Records consecutive operations as one node, with the parameters that they have. The node with the bias has
 * the GEMM. y is NULL if the loss is fused. */
static mn_status record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                        const struct mn_layer *l, unsigned ops, struct mn_tensor *target, double scale) {
  struct saved *saved;
  MN_TRY(mn_tape_host(tape, (void **)&saved, sizeof *saved));
  struct mn_node node = {.operation = &operation, .inputs = {[X] = x, [TARGET] = target}, .saved = saved};
  if (ops & MN_OP_BIAS)
    node.inputs[WEIGHT] = l->parameters[MN_BLOCK_WEIGHT], node.inputs[BIAS] = l->parameters[MN_BLOCK_BIAS];
  if (ops & MN_OP_NORM)
    node.inputs[GAMMA] = l->parameters[MN_BLOCK_GAMMA], node.inputs[BETA] = l->parameters[MN_BLOCK_BETA];
  const struct mn_tensor *weight = node.inputs[WEIGHT];
  struct mn_block *b = &saved->block;
  *b = (struct mn_block){.ops = ops,
                         .rows = x->value.rows,
                         .channels = weight ? weight->value.rows : x->value.cols,
                         .groups = ops & MN_OP_NORM ? l->groups : 1,
                         .eps = l->eps,
                         .slope = l->slope,
                         .scale = scale,
                         .dz = &saved->written[0]};
  MN_REQUIRE(!weight || weight->value.cols == x->value.cols);
  if (ops & MN_OP_NORM) MN_TRY(mn_block_check_groups(b->channels, b->groups));
  const void **vectors[] = {[BIAS] = &b->bias, [GAMMA] = &b->gamma, [BETA] = &b->beta};
  for (int i = BIAS; i <= BETA; i++)
    if (node.inputs[i]) *vectors[i] = node.inputs[i]->value.real;
  saved->dz =
      (struct mn_operand){.rows = b->rows, .cols = b->channels, .whole = weight ? weight->value.whole : 0};
  node.operand[X] = node.operand[WEIGHT] = weight && weight->value.planes[0];
  const double product = weight ? (double)mn_tensor_count(x) * (double)weight->value.rows : 0;
  tape->largest_product = fmax(tape->largest_product, product);
  if (y) {
    MN_TRY(mn_tape_tensor(tape, y, l->name, b->rows, b->channels));
    (*y)->keep = tape->device->scaled && !(ops & MN_OP_NORM);
    node.output = *y;
    b->y = &saved->written[1];
    (*y)->sink = (struct mn_epilogue){.kind = MN_BLOCK_BACKWARD, .block = b};
  }
  saved->forward = (struct mn_epilogue){.kind = y ? MN_BLOCK : MN_BLOCK_LOSS, .block = b};
  MN_TRY(take_saved(tape, &node));
  return mn_tape_record(tape, &node);
}

mn_status mn_block_ops_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                              const struct mn_layer *layer, unsigned ops) {
  return record(tape, y, x, layer, ops, NULL, 1);
}

static mn_status record_mse(struct mn_tape *tape, struct mn_tensor *x, const struct mn_layer *layer,
                            struct mn_tensor *target, double scale) {
  MN_REQUIRE(tape->training);
  return record(tape, NULL, x, layer, MN_OP_ALL, target, scale);
}

enum { LINEAR = MN_OP_BIAS, NORM = MN_OP_NORM, ACTIVATE = MN_OP_ACTIVATE, SUM = MN_OP_SUM };

/* The operations that each node of a plan fuses; 0 ends. */
static const unsigned plans[][5] = {
    [MN_PLAN_NONE] = {LINEAR, NORM, ACTIVATE, SUM},
    [MN_PLAN_ACTIVATION] = {LINEAR, NORM, ACTIVATE | SUM},
    [MN_PLAN_NORM_ACTIVATION] = {LINEAR, NORM | ACTIVATE, SUM},
    [MN_PLAN_TAIL] = {LINEAR, NORM | ACTIVATE | SUM},
    [MN_PLAN_LINEAR_NORM] = {LINEAR | NORM, ACTIVATE | SUM},
    [MN_PLAN_BLOCK] = {MN_OP_ALL},
    [MN_PLAN_STACK] = {MN_OP_ALL},
};
_Static_assert(sizeof plans / sizeof *plans == MN_PLANS, "every plan has its operations");
MN_WORDS(plan, enum mn_plan, MN_PLANS, [MN_PLAN_NONE] = "none", [MN_PLAN_ACTIVATION] = "activation",
         [MN_PLAN_NORM_ACTIVATION] = "norm-activation", [MN_PLAN_TAIL] = "tail",
         [MN_PLAN_LINEAR_NORM] = "linear-norm", [MN_PLAN_BLOCK] = "block", [MN_PLAN_STACK] = "stack");

static mn_status record_block(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                              const struct mn_layer *layer) {
  *y = x;
  for (const unsigned *ops = plans[layer->plan]; *ops; ops++)
    MN_TRY(*ops == SUM ? mn_add_record(tape, y, *y, *y) : mn_block_ops_record(tape, y, *y, layer, *ops));
  return MN_OK;
}

const struct mn_block *mn_block_saved(const struct mn_tensor *y, const struct mn_tape *tape) {
  for (const struct mn_node *node = tape->first; node; node = node->next)
    if (node->output == y && node->operation == &operation) return &((struct saved *)node->saved)->block;
  mn_abort(__FILE__, __LINE__, "a block's output");
}

mn_status mn_block_check_groups(int64_t channels, int64_t groups) {
  if (groups >= 1 && channels % groups == 0) return MN_OK;
  int64_t below = groups < 1 ? 1 : groups > channels ? channels : groups, above = below;
  while (channels % below) below--;
  while (channels % above) above++;
  if (below == above)
    return mn_fail(MN_USAGE, "%ld groups do not divide %ld channels; %ld does", (long)groups, (long)channels,
                   (long)below);
  return mn_fail(MN_USAGE, "%ld groups do not divide %ld channels; %ld and %ld do", (long)groups,
                 (long)channels, (long)below, (long)above);
}

static mn_status check(const struct mn_layer *layer) {
  if (!(layer->eps >= 0) || !isfinite(layer->eps) || !isfinite(layer->slope))
    return mn_fail(MN_USAGE, "eps %g and slope %g: eps from 0 up and any finite slope work", layer->eps,
                   layer->slope);
  MN_TRY(mn_tensor_check_shape(layer->name, layer->outputs, layer->inputs));
  return mn_block_check_groups(layer->outputs, layer->groups);
}

static mn_status record_linear(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *x,
                               const struct mn_layer *layer) {
  return mn_block_ops_record(tape, y, x, layer, LINEAR);
}

/* torch.nn's names and initial values: weight and bias uniform on ±1/√I, gamma 1, beta 0. */
static struct mn_parameter parameter(const struct mn_layer *layer, int index) {
  static const char *const of_block[] = {"fc.weight", "fc.bias", "gn.weight", "gn.bias"};
  static const char *const of_linear[] = {"weight", "bias"};
  int matrix = index == MN_BLOCK_WEIGHT;
  struct mn_parameter p = {.rank = matrix ? 2 : 1,
                           .rows = matrix ? layer->outputs : 1,
                           .cols = matrix ? layer->inputs : layer->outputs,
                           .initial = index == MN_BLOCK_GAMMA,
                           .bound = index <= MN_BLOCK_BIAS ? 1 / sqrt((double)layer->inputs) : 0};
  snprintf(p.name, sizeof p.name, "%s", (layer->kind == &mn_block_kind ? of_block : of_linear)[index]);
  return p;
}

const struct mn_layer_kind mn_block_kind = {4, parameter, check, record_block, record_mse};
const struct mn_layer_kind mn_linear_kind = {2, parameter, NULL, record_linear, NULL};
