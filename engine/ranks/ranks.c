/* Meeting the other ranks, and what all agree on. */
#include "engine/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

/* Slurm's variable is a step's (srun): a batch script is one process. */
int mn_ranks_started(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    if (text && atoi(text) > 1) return atoi(text);
  }
  return 1;
}

mn_status mn_ranks_open(struct mn_ranks **out) {
  const int started = mn_ranks_started();
  *out = NULL;
  if (started == 1) return MN_OK;
  struct mn_ranks *ranks = calloc(1, sizeof *ranks);
  if (!ranks) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  ranks->attend = mn_mpi_attend;
  mn_status status = mn_mpi_open(&ranks->all.rank, &ranks->all.size);
  if (status == MN_OK && ranks->all.size != started)
    status = mn_fail(MN_LIBRARY, "%d processes were started, but %s knows of %d: install the launcher's MPI",
                     started, mn_mpi_version(), ranks->all.size);
  if (status == MN_OK) status = mn_ranks_set_grid(ranks, ranks->all.size);
  if (status != MN_OK) {
    free(ranks); /* MPI is left as it is: its end would wait for the others */
    return status;
  }
  *out = ranks;
  return MN_OK;
}

mn_status mn_ranks_set_grid(struct mn_ranks *ranks, int shards) {
  if (!ranks) return MN_OK;
  if (shards < 1 || ranks->all.size % shards)
    return mn_fail(MN_USAGE, "%d ranks cannot be replicas of %d shards each", ranks->all.size, shards);
  ranks->shards = (struct mn_team){.rank = ranks->all.rank % shards, .size = shards};
  ranks->replicas = (struct mn_team){.rank = ranks->all.rank / shards, .size = ranks->all.size / shards};
  return MN_OK;
}

void mn_ranks_close(struct mn_ranks *ranks) {
  if (!ranks) return;
  mn_mpi_close();
  free(ranks);
}

mn_status mn_ranks_allgather(struct mn_ranks *ranks, void *all, const void *mine, size_t bytes) {
  return ranks ? mn_mpi_allgather(0, all, mine, bytes) : MN_OK;
}

mn_status mn_ranks_broadcast(struct mn_ranks *ranks, void *data, size_t bytes) {
  return ranks ? mn_mpi_broadcast(data, bytes, 0) : MN_OK;
}

mn_status mn_ranks_allreduce_max(struct mn_ranks *ranks, int *value) {
  if (!ranks) return MN_OK;
  int *all = malloc((size_t)ranks->all.size * sizeof *all);
  MN_REQUIRE(all); /* a rank that failed alone would leave the others waiting */
  const mn_status status = mn_ranks_allgather(ranks, all, value, sizeof *all);
  for (int q = 0; q < ranks->all.size && status == MN_OK; q++)
    if (all[q] > *value) *value = all[q];
  free(all);
  return status;
}

mn_status mn_ranks_agree(struct mn_ranks *ranks, mn_status status) {
  struct end {
    mn_status status;
    int has_message;
  } mine = {status, status != MN_OK && *mn_message()}, *all;
  if (!ranks) return status;
  all = malloc((size_t)ranks->all.size * sizeof *all);
  MN_REQUIRE(all); /* as above */
  if (mine.has_message) mn_mpi_tell_if_late();
  MN_TRY(mn_ranks_allgather(ranks, all, &mine, sizeof mine));
  int first = -1; /* that has failed; of these the first whose error was not printed yet */
  for (int q = 0; q < ranks->all.size; q++)
    if (all[q].status != MN_OK && (first < 0 || (all[q].has_message && !all[first].has_message))) first = q;
  if (first >= 0) status = all[first].status;
  const int tells = first == ranks->all.rank && mine.has_message;
  free(all);
  return status == MN_OK || tells ? status : mn_fail(status, "%s", "");
}

/* The first replica's ranks are the first ones, and have the shards in order; the others do not send. */
mn_status mn_ranks_gather(struct mn_ranks *ranks, void *whole, const void *piece, int64_t outputs,
                          size_t each) {
  if (!ranks || ranks->all.rank >= ranks->shards.size) return MN_OK;
  int64_t first;
  size_t bytes = (size_t)mn_share(outputs, ranks->all.rank, ranks->shards.size, &first) * each;
  if (ranks->all.rank > 0) return mn_mpi_move((void *)piece, bytes, 0, 1);
  memcpy(whole, piece, bytes);
  for (int q = 1; q < ranks->shards.size; q++) {
    bytes = (size_t)mn_share(outputs, q, ranks->shards.size, &first) * each;
    MN_TRY(mn_mpi_move((char *)whole + (size_t)first * each, bytes, q, 0));
  }
  return MN_OK;
}

mn_status mn_device_join(struct mn_device *device, struct mn_ranks *ranks) {
  if (!ranks) return MN_OK;
  if (device->type == MN_DEVICE_CPU) device->collectives = &mn_collectives_cpu;
  const struct mn_collectives *c = device->collectives;
  device->hooks = &mn_ranks_on_tape;
  device->ranks = ranks;
  mn_status status = MN_OK;
  for (int i = 0; i < 2 && status == MN_OK; i++)
    status = mn_allocate(device, &ranks->staging[i], MN_RANKS_STAGING);
  if (status == MN_OK && c->ranks_begin) status = mn_ranks_begin(device);
  MN_TRY(mn_ranks_agree(ranks, status));
  status = mn_ranks_broadcast(ranks, ranks->id, sizeof ranks->id);
  if (status == MN_OK) status = mn_ranks_join(device);
  return mn_ranks_agree(ranks, status);
}
