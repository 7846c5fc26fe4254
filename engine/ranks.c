/* Finding out which rank this process is, and meeting the others. */
#include "engine/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The variables of each launcher. Slurm's are those of a step (srun): a batch script is one process. */
static const struct {
  const char *name, *rank, *size, *local;
} launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

/* The number in a variable, `otherwise` where it is not set. */
static mn_status read_number(int *out, const char *name, int otherwise) {
  const char *text = getenv(name);
  char *end;
  *out = otherwise;
  if (!text) return MN_OK;
  errno = 0;
  const long number = strtol(text, &end, 10);
  if (errno || end == text || *end || number < 0 || number > 1 << 20)
    return mn_fail(MN_USAGE, "%s='%s' is no number of a process; the launcher sets it", name, text);
  *out = (int)number;
  return MN_OK;
}

mn_status mn_launched_find(struct mn_launched *out) {
  *out = (struct mn_launched){.size = 1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    struct mn_launched found = {.launcher = launchers[i].name};
    MN_TRY(read_number(&found.size, launchers[i].size, 0));
    if (found.size <= 1) continue;
    MN_TRY(read_number(&found.rank, launchers[i].rank, -1));
    MN_TRY(read_number(&found.local, launchers[i].local, found.rank));
    if (found.rank < 0 || found.rank >= found.size)
      return mn_fail(MN_USAGE, "%s=%d, but %s is no number below it; the launcher sets both",
                     launchers[i].size, found.size, launchers[i].rank);
    *out = found;
    return MN_OK;
  }
  return MN_OK;
}

mn_status mn_ranks_open(struct mn_ranks **out) {
  struct mn_launched launched;
  *out = NULL;
  MN_TRY(mn_launched_find(&launched));
  if (launched.size == 1) return MN_OK;
  struct mn_ranks *ranks = calloc(1, sizeof *ranks);
  if (!ranks) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  ranks->local = launched.local;
  mn_status status = mn_mpi_open(&ranks->mpi, &ranks->rank, &ranks->size);
  if (status == MN_OK && ranks->size != launched.size)
    status =
        mn_fail(MN_LIBRARY, "%s started %d processes, but %s knows of %d: install the MPI of the launcher",
                launched.launcher, launched.size, mn_mpi_version(), ranks->size);
  if (status != MN_OK) {
    mn_ranks_close(ranks);
    return status;
  }
  *out = ranks;
  return mn_ranks_divide(ranks, ranks->size);
}

mn_status mn_ranks_divide(struct mn_ranks *ranks, int parts) {
  if (!ranks) return MN_OK;
  if (parts < 1 || ranks->size % parts)
    return mn_fail(MN_USAGE, "%d ranks cannot be copies of %d parts each", ranks->size, parts);
  ranks->all = (struct mn_team){.rank = ranks->rank, .size = ranks->size};
  ranks->parts = (struct mn_team){.rank = ranks->rank % parts, .size = parts};
  ranks->copies = (struct mn_team){.rank = ranks->rank / parts, .size = ranks->size / parts};
  return MN_OK;
}

void mn_ranks_close(struct mn_ranks *ranks) {
  if (!ranks) return;
  mn_mpi_close(ranks->mpi);
  free(ranks);
}

mn_status mn_ranks_all_gather(struct mn_ranks *ranks, void *all, const void *mine, size_t bytes) {
  return mn_mpi_all_gather(ranks->mpi, 0, all, mine, bytes);
}

mn_status mn_ranks_agree(struct mn_ranks *ranks, mn_status status) {
  struct end {
    mn_status status;
    int has_message;
  } mine = {status, status != MN_OK && *mn_message()}, *all;
  if (!ranks) return status;
  all = malloc((size_t)ranks->size * sizeof *all);
  MN_REQUIRE(all); /* a rank that failed alone would leave the others waiting */
  MN_TRY(mn_ranks_all_gather(ranks, all, &mine, sizeof mine));
  int failed = 0, first = 0; /* the first that has failed; of these the first that has not told yet */
  while (failed < ranks->size && all[failed].status == MN_OK) failed++;
  while (first < ranks->size && !all[first].has_message) first++;
  if (first < ranks->size) failed = first;
  const mn_status agreed = failed < ranks->size ? all[failed].status : MN_OK;
  free(all);
  return agreed == MN_OK || first == ranks->rank ? agreed : mn_fail(agreed, "%s", "");
}

mn_status mn_ranks_tell(struct mn_ranks *ranks, void *data, size_t bytes) {
  return ranks ? mn_mpi_broadcast(ranks->mpi, data, bytes, 0) : MN_OK;
}

mn_status mn_ranks_most(struct mn_ranks *ranks, int *value) {
  if (!ranks) return MN_OK;
  int *all = malloc((size_t)ranks->size * sizeof *all);
  MN_REQUIRE(all);
  mn_status status = mn_ranks_all_gather(ranks, all, value, sizeof *all);
  for (int q = 0; q < ranks->size && status == MN_OK; q++)
    if (all[q] > *value) *value = all[q];
  free(all);
  return status;
}

/* A slice of every rank's piece at a time. */
mn_status mn_ranks_gather(struct mn_ranks *ranks, void *whole, const void *piece, int64_t outputs,
                          size_t each) {
  if (!ranks) return MN_OK;
  int64_t first;
  const size_t most = (size_t)(MN_RANKS_ROOM / ranks->size);
  const struct mn_team *parts = &ranks->parts;
  const size_t mine = (size_t)mn_share(outputs, parts->rank, parts->size, &first) * each;
  const size_t widest = (size_t)((outputs + parts->size - 1) / parts->size) * each;
  char *room = malloc((size_t)(ranks->size + 1) * most), *slice = room + (size_t)ranks->size * most;
  MN_REQUIRE(room);
  mn_status status = MN_OK;
  for (size_t at = 0; at < widest && status == MN_OK; at += most) {
    const size_t length = widest - at < most ? widest - at : most;
    if (at < mine) memcpy(slice, (const char *)piece + at, mine - at < length ? mine - at : length);
    status = mn_ranks_all_gather(ranks, room, slice, length);
    for (int q = 0; q < parts->size && ranks->rank == 0 && status == MN_OK; q++) {
      const size_t theirs = (size_t)mn_share(outputs, q, parts->size, &first) * each;
      if (at < theirs)
        memcpy((char *)whole + (size_t)first * each + at, room + (size_t)q * length,
               theirs - at < length ? theirs - at : length);
    }
  }
  free(room);
  return status;
}

mn_status mn_context_join(struct mn_context *context, struct mn_ranks *ranks) {
  const struct mn_kernels *k = context->kernels;
  struct mn_ranks_id id = {{0}};
  if (!ranks) return MN_OK;
  MN_TRY(mn_ranks_agree(ranks, ranks->rank == 0 ? k->ranks_begin(context->device, &id) : MN_OK));
  MN_TRY(mn_ranks_tell(ranks, &id, sizeof id));
  return k->ranks_join(context->device, ranks, &id);
}
