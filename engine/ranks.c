/* Finding out which rank this process is, and meeting the others. */
#include "engine/ranks.h"

#include <errno.h>
#include <stdlib.h>

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
  return MN_OK;
}

void mn_ranks_close(struct mn_ranks *ranks) {
  if (!ranks) return;
  mn_mpi_close(ranks->mpi);
  free(ranks);
}

mn_status mn_context_join(struct mn_context *context, struct mn_ranks *ranks) {
  return ranks ? context->kernels->ranks_join(context->device, ranks) : MN_OK;
}
