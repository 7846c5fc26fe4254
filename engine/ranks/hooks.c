/* The hooks of a device among ranks: the exchanges of a tape's run. */
#include "engine/ranks/ranks.h"

/* Replicas' sums run beside the rest of the backward. Column sums with a loss, of which each shard has its
 * own, wait for them. */
static mn_status finish(struct mn_tape *tape) {
  struct mn_tape_ranks *r = tape->ranks;
  size_t nodes = 0;
  for (const struct mn_node *node = tape->first; node; node = node->next) nodes++;
  MN_TRY(mn_tape_host(tape, (void **)&r->sums, nodes * MN_NODE_INPUTS * sizeof *r->sums));
  MN_TRY(mn_tape_host(tape, (void **)&r->scales, nodes * MN_NODE_INPUTS * sizeof *r->scales));
  for (const struct mn_node *node = tape->last; node; node = node->previous)
    for (int i = 0; i < MN_NODE_INPUTS; i++) {
      const struct mn_tensor *t = node->inputs[i];
      /* The largest dz of a weight chooses the next step's factor. A tied one's layers have their own. */
      if (t && t->update.w && t->scales && t->uses == 1) r->scales[r->scale_count++] = &t->scales[1];
      if (t && t->sink.kind == MN_REDUCE_SCATTER_ROWS && !r->gathered.whole) tape->early = 1;
      /* Of several consumers one stores the gradient. */
      if (node->sinks[i] && t->summed && node->sinks[i]->kind == MN_STORE)
        r->sums[r->sum_count++] = (struct mn_sum){t->gradient, mn_tensor_count(t)};
    }
  return MN_OK;
}

/* A fused loss's results exist only after a step's updates. */
static mn_status sum_results(struct mn_tape *tape) {
  struct mn_device *device = tape->device;
  const struct mn_sum results = {tape->results, 2};
  return tape->replicas > 1 ? mn_allreduce(device, &results, 1, sizeof *tape->results, NULL) : MN_OK;
}

/* Waits for the work that a gather has left on its branch (struct mn_arrival); in a step `ended` does. */
static mn_status forwarded(struct mn_tape *tape) {
  struct mn_device *device = tape->device;
  MN_TRY(mn_branch_fork(device, MN_BRANCH_SHARDS));
  if (!tape->stepping) MN_TRY(mn_branch_join(device, MN_BRANCH_SHARDS));
  if (!tape->stepping) MN_TRY(sum_results(tape));
  if (!tape->training) return MN_OK;
  tape->ranks->reserved_sms = device->reserved_sms;
  MN_TRY(mn_branch_fork(device, MN_BRANCH_SHARDS));
  return mn_branch_fork(device, MN_BRANCH_REPLICAS);
}

/* The updates of every rank stop if one rank's values are not finite. */
static mn_status before_updates(struct mn_tape *tape) {
  struct mn_device *device = tape->device;
  const struct mn_tape_ranks *r = tape->ranks;
  MN_TRY(mn_agree(device, tape->stepping ? r->gathered.whole : NULL, r->gathered.piece, r->gathered.rows,
                  r->gathered.cols));
  return r->scale_count > 0 ? mn_agree_scales(device, r->scales, r->scale_count) : MN_OK;
}

/* The remaining exchanges; the replicas' sums of weights may still run. */
static mn_status ended(struct mn_tape *tape, mn_status status) {
  struct mn_device *device = tape->device;
  const struct mn_tape_ranks *r = tape->ranks;
  mn_status joined = mn_branch_join(device, MN_BRANCH_SHARDS);
  if (status == MN_OK) status = joined;
  if (status == MN_OK && r->sum_count > 0)
    status = mn_allreduce(device, r->sums, r->sum_count, device->real, NULL);
  if (status == MN_OK && tape->stepping) status = sum_results(tape);
  device->reserved_sms = r->reserved_sms;
  joined = mn_branch_join(device, MN_BRANCH_REPLICAS);
  return status != MN_OK ? status : joined;
}

static void gather_parts(struct mn_tape *tape, void *whole, const void *piece, int64_t rows, int64_t cols) {
  struct mn_tape_ranks *r = tape->ranks;
  r->gathered.whole = whole, r->gathered.piece = piece;
  r->gathered.rows = rows, r->gathered.cols = cols;
}

static void agree(struct mn_tape *tape, struct mn_scale *scale) {
  tape->ranks->scales[tape->ranks->scale_count++] = scale;
}

static mn_status allgather_host(struct mn_device *device, void *all, const void *mine, size_t bytes) {
  return mn_mpi_allgather(0, all, mine, bytes);
}

const struct mn_tape_hooks mn_ranks_on_tape = {.bytes = sizeof(struct mn_tape_ranks),
                                               .finish = finish,
                                               .forwarded = forwarded,
                                               .before_updates = before_updates,
                                               .ended = ended,
                                               .record_allgather = mn_ranks_record_allgather,
                                               .gather_parts = gather_parts,
                                               .agree = agree,
                                               .allgather_host = allgather_host,
                                               .sum = mn_replicas_sum,
                                               .square = mn_replicas_square,
                                               .update = mn_replicas_update};
