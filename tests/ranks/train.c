/* Trains a small model, alone or as one rank of several (mpirun -n 4 …), and prints what came of it on rank
 * 0: the losses, the gradient's norms and a hash of all parameters. tests/test_ranks.sh compares.
 *
 *   train DEVICE PRECISION CASE [SHARDS]      DEVICE cuda: each rank takes the GPU of its number on its host
 *
 * With fewer SHARDS than ranks the others are replicas (kernels/ranks/collectives.h), whose parameters must be the
 * same. Where a row is not as the others are, it prints what the trainer says of it, and what an evaluation
 * does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/ranks/ranks.h"
#include "kernels/clock.h"
#include "kernels/order.h"
#include "kernels/random.h"
#include "train/evaluate.h"
#include "train/trainer.h"

enum { ROWS = 512, INPUTS = 192, CHANNELS = 256, BATCH = 128, STEPS = 12, CLASSES = 10, SEED = 5 };

/* What is wrong with one row. */
enum flaw {
  NONE,
  INFINITE, /* its inputs are */
  FAR,      /* its targets are so far away that the loss overflows */
  JUMPS,    /* its targets are so much larger than the others' that float16 overflows under their factors */
};
static enum flaw flaw;
static int64_t flawed; /* the row */

/* x (part 0) or y (1) of a row. */
static double value_of(int part, int64_t row, int64_t col, int64_t cols) {
  const double value = (mn_random_word(3, (uint32_t)part, (uint64_t)(row * cols + col)) >> 8) * 0x1p-23 - 1;
  if (row != flawed || flaw == NONE || (flaw == INFINITE) != (part == 0)) return value;
  return flaw == INFINITE ? INFINITY : flaw == FAR ? 1e25 : 1e4 * value;
}

static mn_status read_rows(struct mn_dataset *d, int64_t first, int64_t count, size_t real, void *x,
                           void *y) {
  const struct {
    void *to;
    int64_t cols;
  } parts[] = {{x, d->inputs}, {d->classes ? NULL : y, d->outputs}};
  for (int p = 0; p < 2; p++)
    for (int64_t i = 0; parts[p].to && i < count * parts[p].cols; i++) {
      const double value = value_of(p, first + i / parts[p].cols, i % parts[p].cols, parts[p].cols);
      if (real == sizeof(double))
        ((double *)parts[p].to)[i] = value;
      else
        ((float *)parts[p].to)[i] = (float)value;
    }
  for (int64_t i = 0; d->classes && y && i < count; i++) ((int32_t *)y)[i] = (int32_t)((first + i) % CLASSES);
  return MN_OK;
}

struct job {
  const char *name;
  struct mn_model_config model;
  struct mn_optimizer_config optimizer;
  enum flaw flaw;
  int64_t position; /* of the flawed row in the first epoch's order */
  enum mn_nonfinite on_nonfinite;
};

#define BLOCKS .groups = 8, .eps = 1e-5, .slope = 0.01, .plan = MN_PLAN_BLOCK
#define BLOCK BLOCKS, .inputs = INPUTS, .depth = 1, .hidden = {CHANNELS}, .loss = MN_LOSS_MSE
#define TIED BLOCKS, .inputs = CHANNELS, .depth = 2, .hidden = {CHANNELS, CHANNELS}, .loss = MN_LOSS_MSE
#define STACK                                                                                                \
  BLOCKS, .inputs = INPUTS, .depth = 2, .hidden = {CHANNELS, 2 * CHANNELS}, .head = CLASSES,                 \
          .loss = MN_LOSS_CROSS_ENTROPY
/* One kernel on a GPU, in 16 bits. */
#define NARROW_BLOCKS                                                                                        \
  .groups = 8, .eps = 1e-5, .slope = 0.01, .plan = MN_PLAN_STACK, .inputs = 48, .depth = 3,                  \
  .hidden = {64, 64, 64}
#define NARROW NARROW_BLOCKS, .head = CLASSES, .loss = MN_LOSS_CROSS_ENTROPY
#define SGD .rule = {.momentum = 0.9}, .accumulate = 1
#define ADAMW                                                                                                \
  .rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}, .accumulate = 1

static struct job jobs[] = {
    {"child", .model = {BLOCK}}, /* children beat while another rank waits */
    {"late", .model = {BLOCK}},  /* a rank fails, and the first comes two seconds later to hear of it */
    {"block", .model = {BLOCK}, .optimizer = {SGD}},
    {"block-adamw", .model = {BLOCK}, .optimizer = {ADAMW}},
    /* Weights and gradients whose sizes differ much between the shards. */
    {"block-uneven", .model = {BLOCK}, .optimizer = {ADAMW}},
    {"block-accumulate", .model = {BLOCK}, .optimizer = {.rule = {.momentum = 0.9}, .accumulate = 2}},
    {"block-infinite", .model = {BLOCK},
     .optimizer = {SGD}}, /* the last shard's last weight is; no rank may take a step */
    /* The last row of a batch is the last replica's. Of the second batch of two the gradients that the
     * first has left must stay as they are until the batch is taken again. */
    {"block-retaken", .model = {BLOCK}, .optimizer = {.rule = {.momentum = 0.9}, .accumulate = 2},
     .flaw = JUMPS, .position = 4 * BATCH - 1},
    {"block-row", .model = {BLOCK}, .optimizer = {SGD}, .flaw = INFINITE, .position = 3 * BATCH - 1},
    {"block-far", .model = {BLOCK}, .optimizer = {SGD}, .flaw = FAR, .position = 3 * BATCH - 1},
    {"block-skip", .model = {BLOCK}, .optimizer = {SGD}, .flaw = INFINITE, .position = 3 * BATCH - 1,
     .on_nonfinite = MN_NONFINITE_SKIP},
    {"stack-row", .model = {STACK}, .optimizer = {SGD}, .flaw = INFINITE, .position = 2 * BATCH - 1},
    {"narrow", .model = {NARROW}, .optimizer = {SGD}},
    {"narrow-adamw", .model = {NARROW}, .optimizer = {ADAMW}},
    {"narrow-accumulate", .model = {NARROW}, .optimizer = {.rule = {.momentum = 0.9}, .accumulate = 2}},
    {"narrow-retaken", .model = {NARROW_BLOCKS, .loss = MN_LOSS_MSE},
     .optimizer = {.rule = {.momentum = 0.9}, .accumulate = 2}, .flaw = JUMPS, .position = 4 * BATCH - 1},
    {"narrow-clip", .model = {NARROW}, .optimizer = {SGD, .clip = 0.05}},
    {"narrow-row", .model = {NARROW}, .optimizer = {SGD}, .flaw = INFINITE, .position = 3 * BATCH - 1},
    {"clip", .model = {BLOCK}, .optimizer = {SGD, .clip = 0.05}},
    {"stack", .model = {STACK}, .optimizer = {SGD}},
    {"stack-clip", .model = {STACK}, .optimizer = {SGD, .clip = 0.05}},
    {"tied", .model = {TIED}, .optimizer = {SGD}},
    {"too-many", .model = {BLOCK}, .optimizer = {SGD}}, /* of groups that 2 does not divide */
};

static mn_status poison(const struct mn_model *model) {
  struct mn_tensor *weight = model->layers[0].parameters[MN_BLOCK_WEIGHT];
  const struct mn_ranks *ranks = model->device->ranks;
  static double values[CHANNELS * INPUTS];
  if (ranks && ranks->shards.rank + 1 < ranks->shards.size) return MN_OK;
  MN_TRY(mn_tensor_read(model->device, weight, values));
  values[mn_tensor_count(weight) - 1] = INFINITY;
  return mn_tensor_write(model->device, weight, values);
}

/* The row that comes at a position of the first epoch. */
static mn_status find_row(int64_t *row, int64_t position) {
  struct mn_order order;
  mn_order_begin(&order, ROWS, SEED, 0, 1);
  *row = mn_order_row(&order, mn_order_number(&order, position));
  return MN_OK;
}

/* Multiplies each quarter of the parameter's outputs by `ratio` more than the one before. */
static mn_status stretch(const struct mn_model *model, struct mn_tensor *t, double ratio) {
  const int64_t count = mn_tensor_count(t), outputs = mn_tensor_outputs(t);
  double *values = malloc((size_t)count * sizeof *values);
  MN_REQUIRE(values);
  mn_status status = mn_tensor_read(model->device, t, values);
  for (int64_t i = 0; i < count; i++)
    values[i] *= pow(ratio, (double)((t->first + i / (count / outputs)) * 4 / t->whole));
  if (status == MN_OK) status = mn_tensor_write(model->device, t, values);
  free(values);
  return status;
}

static mn_status make_uneven(struct mn_model *model) {
  struct mn_tensor *const *of = model->layers[0].parameters;
  MN_TRY(stretch(model, of[MN_BLOCK_WEIGHT], 0x1p4));
  MN_TRY(stretch(model, of[MN_BLOCK_GAMMA], 0x1p-4));
  return mn_model_measure(model);
}

/* Both blocks get the first's parameters. */
static void tie(struct mn_model *model) {
  model->count = model->layers[0].kind->parameters;
  for (int i = 0; i < model->count; i++) {
    mn_tensor_free(model->device, model->layers[1].parameters[i]);
    model->layers[1].parameters[i] = model->layers[0].parameters[i];
  }
}

/* Takes a hash of a parameter's whole: outputs are its rows, or its columns where it is a vector. */
static mn_status hash(XXH3_state_t *state, const struct mn_model *model, const struct mn_tensor *t,
                      int64_t outputs) {
  struct mn_device *device = model->device;
  const size_t real = device->real;
  const int64_t mine = mn_tensor_count(t), each = t->rank == 2 ? t->value.cols : 1, all = outputs * each;
  const struct mn_ranks *ranks = device->ranks;
  if (outputs % mn_ranks_shards(ranks)) return MN_OK; /* uneven shares, of a head: the losses tell */
  void *piece, *whole, *values = malloc((size_t)all * real);
  MN_REQUIRE(values);
  MN_TRY(mn_device_allocate(device, &piece, mine, real));
  MN_TRY(mn_device_allocate(device, &whole, all, real));
  MN_TRY(mn_tensor_copy(device, t, piece));
  if (mn_ranks_shards(ranks) > 1) /* as one row of all its numbers, of which the ranks have equal shares */
    MN_TRY(device->collectives->allgather(device, whole, piece, 1, all, real));
  else
    MN_TRY(device->kernels->copy(device, whole, piece, (size_t)all * real));
  MN_TRY(device->kernels->download(device, values, whole, (size_t)all * real));
  MN_REQUIRE(XXH3_64bits_update(state, values, (size_t)all * real) == XXH_OK);
  mn_device_release(device, piece, mine, real);
  mn_device_release(device, whole, all, real);
  free(values);
  return MN_OK;
}

/* Every rank has hashed the whole parameters of its replica. */
static mn_status compare_replicas(struct mn_ranks *ranks, uint64_t digest) {
  uint64_t all[64];
  if (!ranks) return MN_OK;
  MN_REQUIRE(ranks->all.size <= 64);
  MN_TRY(mn_ranks_allgather(ranks, all, &digest, sizeof digest));
  for (int q = 0; q < ranks->all.size; q++)
    if (all[q] != digest)
      return mn_fail(MN_FAILED, "ranks %d and %d have other parameters", ranks->all.rank, q);
  return MN_OK;
}

static int prints;

static int tell(void *to, const struct mn_trainer *t) {
  char words[MN_FAULT_WORDS];
  if (prints) printf("%ld %.17g %.17g\n", (long)t->progress.step, t->loss, t->norm);
  if (prints && t->skipped) printf("skipped: %s\n", mn_fault_words(words, t->skipped));
  return 0;
}

/* In batches that 2 replicas can divide and 4 cannot, but for the last, of 12 rows. */
static mn_status evaluate(struct mn_model *model, struct mn_dataset *data) {
  struct mn_evaluator *evaluator;
  double loss, accuracy;
  char words[MN_FAULT_WORDS];
  MN_TRY(mn_evaluator_open(&evaluator, model, data, 50, MN_PLACE_AUTO));
  const mn_status status = mn_evaluate(evaluator, &loss, &accuracy);
  const struct mn_fault *fault = mn_evaluator_fault(evaluator, NULL, NULL);
  if (status == MN_OK && prints && fault) printf("evaluated: %s\n", mn_fault_words(words, fault));
  mn_evaluator_close(evaluator);
  return status;
}

static mn_status train(struct mn_device *device, const struct job *job) {
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
  const int classes = job->model.loss == MN_LOSS_CROSS_ENTROPY;
  struct mn_dataset data = {.rows = ROWS,
                            .inputs = job->model.inputs,
                            .outputs = mn_model_outputs(&job->model),
                            .classes = classes,
                            .read = read_rows};
  const struct mn_trainer_config config = {
      .batch = BATCH,
      .seed = SEED,
      .schedule = {.kind = MN_SCHEDULE_CONSTANT, .rate = 0.05, .horizon = STEPS},
      .on_nonfinite = job->on_nonfinite};
  flaw = job->flaw;
  MN_TRY(find_row(&flawed, job->position));
  MN_TRY(mn_model_open(&model, device, &job->model));
  MN_TRY(mn_model_initialise(model, 7));
  if (strcmp(job->name, "tied") == 0) tie(model);
  if (strcmp(job->name, "block-infinite") == 0) MN_TRY(poison(model));
  if (strcmp(job->name, "block-uneven") == 0) MN_TRY(make_uneven(model));
  MN_TRY(mn_optimizer_open(&optimizer, model, &job->optimizer));
  MN_TRY(mn_trainer_open(&trainer, model, optimizer, &data, &config, NULL));
  mn_status status = mn_trainer_run(trainer, STEPS, tell, NULL);
  if (job->model.plan == MN_PLAN_STACK && device->type == MN_DEVICE_CUDA && device->planes == 1 &&
      job->optimizer.accumulate == 1 && mn_ranks_shards(device->ranks) == 1)
    MN_REQUIRE(trainer->pass->tape->first == trainer->pass->tape->last); /* one node: replicas took it */
  if (status == MN_FAILED && prints) printf("%s\n", mn_message());
  if (status == MN_FAILED) status = MN_OK; /* its parameters are those before */
  if (status == MN_OK && flaw == JUMPS && trainer->retaken == 0)
    status = mn_fail(MN_FAILED, "no batch was taken again");
  if (status == MN_OK && flaw != NONE) status = evaluate(model, &data);
  if (status == MN_OK)
    status =
        mn_replicas_gather(optimizer->model->device, optimizer->model->parameters, optimizer->model->count);
  XXH3_state_t *state = XXH3_createState();
  MN_REQUIRE(state && XXH3_64bits_reset(state) == XXH_OK);
  for (int i = 0; i < model->depth && status == MN_OK; i++)
    for (int j = 0; j < model->layers[i].kind->parameters && status == MN_OK; j++)
      status = hash(state, model, model->layers[i].parameters[j], model->layers[i].whole);
  const uint64_t digest = XXH3_64bits_digest(state);
  if (prints) printf("parameters %016llx\n", (unsigned long long)digest);
  XXH3_freeState(state);
  if (status == MN_OK) status = compare_replicas(device->ranks, digest);
  mn_trainer_close(trainer);
  mn_optimizer_close(optimizer);
  mn_model_close(model);
  return status;
}

/* A child that a rank forks and waits for, as to try out a file, takes none of the rank's messages. */
static mn_status agree_after_children(struct mn_ranks *ranks) {
  for (int i = 0; i < 10; i++) {
    const pid_t child = mn_ranks_first(ranks) ? -1 : fork();
    for (int beat = 0; child == 0 && beat < 4; beat++) {
      usleep(12000);
      mn_heartbeat();
    }
    if (child == 0) _exit(0);
    if (child > 0) MN_REQUIRE(waitpid(child, NULL, 0) == child);
    MN_TRY(mn_ranks_agree(ranks, MN_OK));
  }
  mn_ranks_close(ranks);
  return MN_OK;
}

static mn_status run(const char *where, const char *precision, const struct job *job, const char *shards) {
  struct mn_ranks *ranks;
  struct mn_device *device;
  char name[32];
  MN_TRY(mn_ranks_open(&ranks));
  MN_TRY(mn_ranks_share_cores(ranks));
  if (strcmp(job->name, "late") == 0) {
    if (mn_ranks_first(ranks)) sleep(2);
    return mn_ranks_agree(ranks, mn_ranks_first(ranks) ? MN_OK : mn_fail(MN_FAILED, "a fault of its own"));
  }
  if (strcmp(job->name, "child") == 0) return agree_after_children(ranks);
  if (shards) MN_TRY(mn_ranks_set_grid(ranks, atoi(shards)));
  prints = mn_ranks_first(ranks);
  snprintf(name, sizeof name, strcmp(where, "cuda") == 0 ? "%s:%d" : "%s", where, ranks ? ranks->local : 0);
  mn_status status =
      mn_ranks_agree(ranks, mn_device_open(&device, name, precision, ranks ? ranks->cores : 0));
  if (status == MN_OK) status = mn_device_join(device, ranks);
  if (status == MN_OK) status = train(device, job);
  const mn_status trained = status;
  if (prints && trained != MN_OK) printf("%d: %s\n", (int)trained, mn_message());
  mn_device_close(device);
  mn_ranks_close(ranks);
  return trained;
}

int main(int count, char **words) {
  MN_REQUIRE(count == 4 || count == 5);
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
    if (strcmp(jobs[i].name, words[3]) == 0) {
      if (strcmp(words[3], "too-many") == 0) jobs[i].model.groups = 1;
      return run(words[1], words[2], &jobs[i], words[4]);
    }
  fprintf(stderr, "no case '%s'\n", words[3]);
  return MN_USAGE;
}
