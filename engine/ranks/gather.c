/* The all-gather on the tape. Its backward is the epilogue of the product that computes the gradient, a
 * reduce-scatter; or a copy of the columns that are this rank's own. */
#include "engine/ranks/ranks.h"

struct saved {
  struct mn_scatter scatter; /* its piece is the gradient of y, if a sink reads it */
  struct mn_arrival arrival;
  int partial;
};

/* In the form that is read. Planes that are scaled are written from the whole: each rank's y has a scale of
 * its own. */
static mn_status forward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_device *device = tape->device;
  const struct mn_operand *y = &node->inputs[0]->value;
  struct mn_operand *whole = &node->output->value;
  if (whole->real && y->real)
    MN_TRY(mn_allgather(device, whole->real, y->real, whole->rows, whole->cols, device->real));
  if (!node->operand[0]) {
    whole->stale = 1;
    return mn_operand_prepare(tape->device, whole);
  }
  return mn_gather_plane(device, whole, y->planes[0]);
}

static mn_status backward(struct mn_tape *tape, struct mn_node *node) {
  struct mn_device *device = tape->device;
  const struct saved *saved = node->saved;
  const struct mn_operand *whole = &node->output->value, *y = &node->inputs[0]->value;
  if (!node->sinks[0]) return MN_OK;
  if (saved->partial) return mn_tape_receive(tape, node);
  const size_t real = device->real;
  int64_t first;
  (void)mn_share(whole->cols, device->ranks->shards.rank, device->ranks->shards.size, &first);
  const struct mn_gather own = {.count = whole->rows,
                                .of[0] = {.to = saved->scatter.piece,
                                          .from = (const char *)node->output->gradient + (size_t)first * real,
                                          .bytes = (size_t)y->cols * real,
                                          .apart = (size_t)whole->cols * real}};
  MN_TRY(mn_gather(device, &own));
  return mn_epilogue(device, saved->scatter.piece, y->rows, y->cols, node->sinks[0]);
}

static mn_status bind(struct mn_tape *tape, struct mn_node *node) {
  struct saved *saved = node->saved;
  saved->scatter.then = node->sinks[0];
  return MN_OK;
}

static const struct mn_operation operation = {.bind = bind, .forward = forward, .backward = backward};

mn_status mn_ranks_record_allgather(struct mn_tape *tape, struct mn_tensor **whole, int64_t cols,
                                    int partial) {
  struct mn_device *device = tape->device;
  const struct mn_team *shards = &device->ranks->shards;
  struct mn_tensor *y = *whole;
  struct saved *saved;
  if (shards->size == 1) return MN_OK;
  MN_TRY(mn_tape_host(tape, (void **)&saved, sizeof *saved));
  saved->partial = partial;
  if (tape->training) MN_TRY(mn_tape_device(tape, &saved->scatter.piece, mn_tensor_count(y), device->real));
  MN_TRY(mn_tape_tensor(tape, whole, "the whole", y->value.rows, cols));
  if (tape->training && partial) {
    saved->scatter.share = y->value.cols;
    (*whole)->sink = (struct mn_epilogue){.kind = MN_REDUCE_SCATTER, .scatter = &saved->scatter};
    if (device->has_own_gemm)
      MN_TRY(mn_tape_shared(tape, &saved->scatter.staging, mn_tensor_count(*whole), device->real));
  }
  const int planes = partial && device->planes == 1 && !device->scaled;
  (*whole)->keep = !planes;
  (*whole)->shared = shards;
  if (planes && device->has_own_gemm && cols % (128 * shards->size) == 0) { /* else no GEMM can wait */
    struct mn_arrival *a = (*whole)->value.arrival = &saved->arrival;
    *a = (struct mn_arrival){.shard = shards->rank, .shards = shards->size};
    MN_TRY(mn_tape_shared(tape, (void **)&a->arrived, a->shards, sizeof *a->arrived));
    MN_TRY(mn_zero(device, a->arrived, a->shards * sizeof *a->arrived));
  }
  const struct mn_node node = {
      .operation = &operation, .inputs = {y}, .operand = {planes}, .output = *whole, .saved = saved};
  return mn_tape_record(tape, &node);
}
