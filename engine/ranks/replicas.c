/* Shares of weights, and sums over replicas. */
#include "engine/ranks/ranks.h"

#include <stdlib.h>

/* Whether each replica updates its own share of the parameter's rows. Not under accumulation: a step that
 * is taken again goes on from the sums of this replica's own batches, in whose place the sums over
 * replicas would be. */
static int shares(const struct mn_tensor *t) {
  return t->sink.kind == MN_REDUCE_SCATTER_ROWS;
}

/* A share is updated a piece of its rows at a time, so that one is gathered while the next is updated. */
static int pieces_of(const struct mn_tensor *t, int64_t rows) {
  enum { PIECES = 4, LEAST = 1 << 19 };
  return shares(t) && rows % PIECES == 0 && rows / PIECES * t->value.cols >= LEAST ? PIECES : 1;
}

static int64_t own_rows(const struct mn_device *device, const struct mn_tensor *t, int64_t *first) {
  *first = 0;
  return shares(t) ? mn_own_rows(device->ranks, t->value.rows, first) : t->value.rows;
}

static void *row_of(void *matrix, int64_t row, const struct mn_tensor *t, size_t each) {
  return matrix ? (char *)matrix + (size_t)(row * t->value.cols) * each : NULL;
}

mn_status mn_replicas_square(struct mn_device *device, struct mn_tensor *const *of, int count,
                             const struct mn_clipping *clipping, double **squares, int64_t *number) {
  const int shards = device->ranks->shards.size;
  double *own = clipping->squares;
  for (int i = 0; i < count; i++) {
    int64_t row;
    const int64_t rows = own_rows(device, of[i], &row);
    const void *first = row_of(of[i]->gradient, row, of[i], device->real);
    const int adds = shares(of[i]) || device->ranks->replicas.rank == 0; /* the first adds what all have */
    const struct mn_reduction sum = {own + i, clipping->scratch, first, first, rows * of[i]->value.cols, 1};
    MN_TRY(adds ? mn_reduce(device, &sum) : mn_zero(device, own + i, sizeof *own));
  }
  *squares = shards > 1 ? own + count : own;
  *number = shards * count;
  if (device->ranks->replicas.size > 1)
    MN_TRY(mn_allreduce(device, &(struct mn_sum){own, count}, 1, sizeof *own, NULL));
  return shards > 1 ? mn_allgather(device, *squares, own, 1, *number, sizeof *own) : MN_OK;
}

mn_status mn_replicas_sum(struct mn_device *device, struct mn_tensor *const *of, int count) {
  if (device->ranks->replicas.size == 1) return MN_OK;
  struct mn_sum *sums = malloc((size_t)count * sizeof *sums);
  MN_REQUIRE(sums); /* a rank that failed alone would leave the others waiting */
  for (int i = 0; i < count; i++) sums[i] = (struct mn_sum){of[i]->gradient, mn_tensor_count(of[i])};
  const mn_status status = mn_allreduce(device, sums, count, device->real, device->nonfinite);
  free(sums);
  return status;
}

static mn_status update_piece(struct mn_device *device, const struct mn_tensor *t, int piece, int pieces) {
  const size_t real = device->real;
  struct mn_operand w = t->value;
  struct mn_update update = t->update;
  int64_t first;
  w.rows = own_rows(device, t, &first) / pieces;
  first += piece * w.rows;
  w.real = row_of(w.real, first, t, real);
  w.low = row_of(w.low, first, t, sizeof *w.low);
  for (int i = 0; i < 2; i++) w.planes[i] = row_of(w.planes[i], first, t, device->plane);
  update.w = &w;
  update.m = row_of(update.m, first, t, real);
  update.v = row_of(update.v, first, t, real);
  const struct mn_epilogue apply = {.kind = MN_UPDATE, .update = &update};
  return mn_epilogue(device, row_of(t->gradient, first, t, real), w.rows, w.cols, &apply);
}

/* Gathers one form that an update writes; a tensor that lacks the form (NULL) is left as it is. */
static mn_status gather_piece(struct mn_device *device, const struct mn_tensor *t, void *form, size_t each,
                              int piece, int pieces) {
  return form ? mn_allgather_rows(device, form, mn_tensor_count(t), each, piece, pieces) : MN_OK;
}

/* The forms that GEMMs read, beside what follows. */
static mn_status gather_operand(struct mn_device *device, const struct mn_tensor *t, int piece, int pieces) {
  MN_TRY(mn_branch_fork(device, MN_BRANCH_REPLICAS));
  MN_TRY(mn_branch_begin(device, MN_BRANCH_REPLICAS));
  mn_status status = MN_OK;
  if (!t->value.planes[0]) status = gather_piece(device, t, t->value.real, device->real, piece, pieces);
  for (int i = 0; i < 2 && status == MN_OK; i++)
    status = gather_piece(device, t, t->value.planes[i], device->plane, piece, pieces);
  const mn_status ended = mn_branch_end(device, MN_BRANCH_REPLICAS);
  return status != MN_OK ? status : ended;
}

static mn_status update_all(struct mn_device *device, struct mn_tensor *const *of, int count) {
  for (int i = count - 1; i >= 0; i--) {
    int64_t first;
    const int pieces = pieces_of(of[i], own_rows(device, of[i], &first));
    for (int piece = 0; piece < pieces; piece++) {
      MN_TRY(update_piece(device, of[i], piece, pieces));
      if (shares(of[i])) MN_TRY(gather_operand(device, of[i], piece, pieces));
    }
  }
  return MN_OK;
}

mn_status mn_replicas_update(struct mn_device *device, struct mn_tensor *const *of, int count) {
  MN_TRY(mn_branch_fork(device, MN_BRANCH_REPLICAS));
  const mn_status status = update_all(device, of, count), joined = mn_branch_join(device, MN_BRANCH_REPLICAS);
  return status != MN_OK ? status : joined;
}

mn_status mn_replicas_gather(struct mn_device *device, struct mn_tensor *const *of, int count) {
  for (int i = 0; i < count; i++) {
    const struct mn_tensor *t = of[i];
    if (!shares(t)) continue;
    if (t->value.planes[0]) MN_TRY(gather_piece(device, t, t->value.real, device->real, 0, 1));
    MN_TRY(gather_piece(device, t, t->value.low, sizeof *t->value.low, 0, 1));
    MN_TRY(gather_piece(device, t, t->update.m, device->real, 0, 1));
    MN_TRY(gather_piece(device, t, t->update.v, device->real, 0, 1));
  }
  return MN_OK;
}
