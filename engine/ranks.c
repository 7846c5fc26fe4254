/* Finding out which rank this process is, and meeting the others. */
#include "engine/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/link.h"
#include "engine/thread.h"

/* The variables of each launcher. Slurm's are those of a step (srun): a batch script is one process. */
static const struct {
  const char *name, *rank, *size, *local;
} launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK"}, /* PyTorch's: the last, and not by MPI */
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

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

/* Where the ranks can meet without MPI, as PyTorch's launchers say it. At MASTER_PORT itself torchrun
 * listens, for PyTorch's store. */
static mn_status find_address(struct mn_launched *out) {
  MN_TRY(read_number(&out->port, "MASTER_PORT", 0));
  if (out->port > 0 && getenv("TORCHELASTIC_RUN_ID")) out->port++;
  out->address = out->port > 0 && out->port < 1 << 16 ? getenv("MASTER_ADDR") : NULL;
  if (out->address || out->mpi || out->size == 1) return MN_OK;
  return mn_fail(MN_USAGE,
                 "WORLD_SIZE=%d, but not MASTER_ADDR and MASTER_PORT, where the ranks could meet: set both, "
                 "or start them by mpirun or srun",
                 out->size);
}

mn_status mn_launched_find(struct mn_launched *out) {
  *out = (struct mn_launched){.size = 1};
  for (size_t i = 0; i < LAUNCHERS; i++) {
    struct mn_launched found = {.launcher = launchers[i].name, .mpi = i + 1 < LAUNCHERS};
    MN_TRY(read_number(&found.size, launchers[i].size, 0));
    if (found.size <= 1) continue;
    MN_TRY(read_number(&found.rank, launchers[i].rank, -1));
    MN_TRY(read_number(&found.local, launchers[i].local, found.rank));
    if (found.rank < 0 || found.rank >= found.size)
      return mn_fail(MN_USAGE, "%s=%d, but %s is no number below it; the launcher sets both",
                     launchers[i].size, found.size, launchers[i].rank);
    MN_TRY(find_address(&found));
    *out = found;
    return MN_OK;
  }
  return MN_OK;
}

/* ---- opening ---- */

/* The ranks as kernels know them, and the link beside. */
struct linked {
  struct mn_ranks ranks; /* the first, so that one address is both */
  struct mn_link *link;
};

static struct mn_link *link_of(struct mn_ranks *ranks) {
  return ((struct linked *)(void *)ranks)->link;
}

/* Ends the process where MPI, which waits for every rank, does not start in time. */
struct deadline {
  double seconds;
  int rank, status;
  int over; /* read and written atomically */
  pthread_t thread;
};

static void *wait_for_deadline(void *data) {
  const struct deadline *d = data;
  const double tick = 0.02;
  double waited = 0, before = mn_seconds();
  while (!__atomic_load_n(&d->over, __ATOMIC_ACQUIRE)) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(tick * 1e9)}, NULL);
    const double now = mn_seconds();
    waited += now - before < 1 ? now - before : 1; /* not while the process was stopped */
    before = now;
    if (waited < d->seconds) continue;
    char line[128];
    snprintf(line, sizeof line,
             "minnow: rank %d: other ranks have not come within %.3g s; --ranks 1 trains without them\n",
             d->rank, d->seconds);
    mn_say(line);
    _exit(d->status);
  }
  return NULL;
}

/* Starts MPI and has rank 0's place told over it. *mpi is NULL where the launcher is none of MPI's, though it
 * set variables that look so, and the ranks can meet otherwise. */
static mn_status meet_by_mpi(struct mn_mpi **mpi, struct mn_meeting *m, const struct mn_launched *launched) {
  int rank, size;
  mn_status listening = MN_OK;
  MN_TRY(mn_mpi_open(mpi, &rank, &size));
  if (size != launched->size && !(size == 1 && launched->address))
    return mn_fail(MN_LIBRARY, "%s started %d processes, but %s knows of %d: install the MPI of the launcher",
                   launched->launcher, launched->size, mn_mpi_version(), size);
  if (size != launched->size) {
    mn_mpi_close(*mpi);
    *mpi = NULL;
    return MN_OK;
  }
  m->rank = rank;
  if (rank == 0) listening = mn_socket_listen(&m->listener, 0);
  if (rank == 0 && listening == MN_OK) listening = mn_addresses_here(&m->place, m->listener);
  MN_TRY(mn_mpi_broadcast(*mpi, &m->place, sizeof m->place, 0));
  if (rank != 0 && m->place.count == 0) return mn_fail(MN_LIBRARY, "%s", ""); /* rank 0 tells why */
  return listening;
}

static mn_status meet_by_address(struct mn_meeting *m, const struct mn_launched *launched) {
  if (m->rank == 0) return mn_socket_listen(&m->listener, launched->port);
  return mn_addresses_find(&m->place, launched->address, launched->port);
}

static mn_status find_place(struct mn_ranks *ranks, struct mn_meeting *m,
                            const struct mn_launched *launched) {
  struct deadline deadline = {
      .seconds = m->timeout, .rank = m->rank, .status = m->resumable ? MN_INTERRUPTED : MN_LIBRARY};
  mn_status status = MN_OK;
  if (launched->mpi && m->timeout > 0)
    MN_TRY(
        mn_thread_start(&deadline.thread, "the thread that waits for ranks", wait_for_deadline, &deadline));
  if (launched->mpi) status = meet_by_mpi(&ranks->mpi, m, launched);
  __atomic_store_n(&deadline.over, 1, __ATOMIC_RELEASE);
  if (launched->mpi && m->timeout > 0) MN_REQUIRE(pthread_join(deadline.thread, NULL) == 0);
  if (status == MN_OK && !ranks->mpi) status = meet_by_address(m, launched);
  ranks->rank = m->rank;
  ranks->size = m->size;
  return status;
}

mn_status mn_ranks_open(struct mn_ranks **out, double timeout, int resumable) {
  struct mn_launched launched;
  *out = NULL;
  MN_TRY(mn_launched_find(&launched));
  if (launched.size == 1) return MN_OK;
  struct linked *linked = calloc(1, sizeof *linked);
  if (!linked) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  struct mn_ranks *ranks = &linked->ranks;
  ranks->local = launched.local;
  struct mn_meeting meeting = {.rank = launched.rank,
                               .size = launched.size,
                               .timeout = timeout,
                               .begun = mn_seconds(),
                               .resumable = resumable,
                               .listener = -1};
  mn_status status = find_place(ranks, &meeting, &launched);
  if (status == MN_OK) status = mn_link_open(&linked->link, meeting);
  if (meeting.listener >= 0) close(meeting.listener);
  if (status == MN_OK) status = mn_ranks_divide(ranks, ranks->size);
  if (status == MN_OK) {
    *out = ranks;
    return MN_OK;
  }
  free(linked); /* MPI is left as it is: its end would wait for the others */
  return status;
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

/* MPI's end waits for the others, and the link watches that they come. */
void mn_ranks_close(struct mn_ranks *ranks) {
  if (!ranks) return;
  mn_mpi_close(ranks->mpi);
  mn_link_close(link_of(ranks));
  free(ranks);
}

void mn_ranks_watch(struct mn_ranks *ranks, const struct mn_pace *pace, int (*resumable)(void)) {
  if (ranks) mn_heartbeat_watch(mn_link_heartbeat(link_of(ranks)), pace, resumable);
}

void mn_ranks_leave(struct mn_ranks *ranks, mn_status status) {
  mn_heartbeat_leave(mn_link_heartbeat(link_of(ranks)), status, mn_message());
}

/* ---- calls ---- */

struct end {
  mn_status status;
  int rank, has_message;
};

/* The first that has failed; of these the first that has not told yet. */
static void fold_ends(void *value, const void *theirs) {
  struct end *end = value;
  const struct end *other = theirs;
  if (other->status == MN_OK) return;
  if (end->status == MN_OK || (other->has_message && !end->has_message)) *end = *other;
}

mn_status mn_ranks_agree(struct mn_ranks *ranks, mn_status status) {
  if (!ranks) return status;
  struct end end = {status, ranks->rank, status != MN_OK && *mn_message()};
  mn_link_fold(link_of(ranks), &end, sizeof end, fold_ends);
  if (end.status == MN_OK || (end.has_message && end.rank == ranks->rank)) return end.status;
  return mn_fail(end.status, "%s", "");
}

mn_status mn_ranks_tell(struct mn_ranks *ranks, void *data, size_t bytes) {
  if (ranks) mn_link_tell(link_of(ranks), data, bytes);
  return MN_OK;
}

static void fold_most(void *value, const void *theirs) {
  int *most = value;
  const int *other = theirs;
  if (*other > *most) *most = *other;
}

mn_status mn_ranks_most(struct mn_ranks *ranks, int *value) {
  if (ranks) mn_link_fold(link_of(ranks), value, sizeof *value, fold_most);
  return MN_OK;
}

mn_status mn_ranks_collect(struct mn_ranks *ranks, void *all, const void *mine, size_t bytes) {
  if (ranks) mn_link_collect(link_of(ranks), all, mine, bytes);
  return MN_OK;
}

/* The first copy's ranks are the first ones, and have the parts in order; the others give nothing. */
static int64_t share_of(const struct mn_ranks *ranks, int q, int64_t outputs, int64_t *first) {
  *first = 0;
  return q < ranks->parts.size ? mn_share(outputs, q, ranks->parts.size, first) : 0;
}

mn_status mn_ranks_gather(struct mn_ranks *ranks, void *whole, const void *piece, int64_t outputs,
                          size_t each) {
  if (!ranks) return MN_OK;
  void **pieces = malloc((size_t)ranks->size * sizeof *pieces);
  size_t *bytes = malloc((size_t)ranks->size * sizeof *bytes);
  MN_REQUIRE(pieces && bytes); /* a rank that failed alone would leave the others waiting */
  int64_t first;
  for (int q = 0; q < ranks->size && ranks->rank == 0; q++) {
    bytes[q] = (size_t)share_of(ranks, q, outputs, &first) * each;
    pieces[q] = (char *)whole + (size_t)first * each;
  }
  if (ranks->rank == 0)
    memcpy(pieces[0], piece, bytes[0]);
  else
    pieces[0] = (void *)piece, bytes[0] = (size_t)share_of(ranks, ranks->rank, outputs, &first) * each;
  mn_link_gather(link_of(ranks), pieces, bytes);
  free(pieces);
  free(bytes);
  return MN_OK;
}

mn_status mn_context_join(struct mn_context *context, struct mn_ranks *ranks) {
  const struct mn_kernels *k = context->kernels;
  struct mn_ranks_id id = {{0}};
  if (!ranks) return MN_OK;
  if (context->device->type == MN_DEVICE_CPU && !ranks->mpi)
    return mn_fail(MN_USAGE, "CPU ranks exchange rows by MPI: start them by mpirun or srun");
  MN_TRY(mn_ranks_agree(ranks, ranks->rank == 0 ? k->ranks_begin(context->device, &id) : MN_OK));
  MN_TRY(mn_ranks_tell(ranks, &id, sizeof id));
  return k->ranks_join(context->device, ranks, &id);
}
