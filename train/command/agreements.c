/* The agreements among the ranks of a run. */
#include "train/command/session.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/fingerprint.h"
#include "engine/ranks/ranks.h"
#include "train/command/announce.h"
#include "train/command/watchdog.h"

/* Reads "PxD", or "P" for Px1. Returns 0 for any other text. */
static int read_grid(const char *text, long *p, long *d) {
  char *end;
  *d = 1;
  *p = strtol(text, &end, 10);
  if (*end == 'x') *d = strtol(end + 1, &end, 10);
  return *end == 0 && *p >= 1 && *d >= 1 && *p <= INT_MAX && *d <= INT_MAX;
}

mn_status mn_ranks_meet(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  const char *size = getenv("WORLD_SIZE");
  const long wanted = size && mn_ranks_started() == 1 ? strtol(size, NULL, 10) : 1;
  long p, d;
  const int one = read_grid(o->ranks, &p, &d) && p * d == 1, alone = one || mn_ranks_started() == 1;
  /* torchrun and its like set WORLD_SIZE, and start no MPI: each of their processes would train alone. */
  if (!one && wanted > 1)
    return mn_fail(
        MN_USAGE,
        "WORLD_SIZE is %ld, but this process was started without MPI: mpirun -n %ld minnow train … or "
        "srun --mpi=pmix starts ranks, and --ranks 1 trains alone",
        wanted, wanted);
  /* A new run is refused where its file exists: that is another run's. */
  const int own = o->checkpoint && (o->resume || access(o->checkpoint, F_OK) != 0);
  MN_TRY(mn_watchdog_open(!alone, (double)o->rank_timeout, own ? o->checkpoint : NULL));
  if (alone) return MN_OK;
  MN_TRY(mn_ranks_open(&s->ranks));
  mn_watchdog_rank(s->ranks->all.rank);
  return MN_OK;
}

mn_status mn_ranks_compare_options(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  struct mn_text mine[MN_CHECKPOINT_OPTIONS + 2] = {0}, first[MN_CHECKPOINT_OPTIONS + 2];
  const int count =
      mn_options_list(o, MN_OPTION_CONFIG, mine, MN_CHECKPOINT_OPTIONS); /* the same names on every rank */
  strcpy(mine[count].name, "ranks");
  snprintf(mine[count].value, sizeof mine->value, "%s", o->ranks);
  strcpy(mine[count + 1].name, "rank-timeout");
  snprintf(mine[count + 1].value, sizeof mine->value, "%ld", (long)o->rank_timeout);
  memcpy(first, mine, sizeof first);
  MN_TRY(mn_ranks_broadcast(s->ranks, first, sizeof first));
  for (int i = 0; i < count + 2; i++)
    if (strcmp(mine[i].value, first[i].value) != 0)
      return mn_fail(MN_USAGE, "--%s is '%s' for rank %d, but '%s' for rank 0; give all the same",
                     mine[i].name, mine[i].value, s->ranks->all.rank, first[i].value);
  return MN_OK;
}

mn_status mn_ranks_compare_rows(const struct mn_session *s) {
  char first[sizeof s->fingerprint];
  memcpy(first, s->fingerprint, sizeof first);
  MN_TRY(mn_ranks_broadcast(s->ranks, first, sizeof first));
  mn_status status = MN_OK;
  if (!mn_fingerprint_same(first, s->fingerprint))
    status = mn_fail(MN_BAD_DATA, "%s has other rows for rank %d than for rank 0; give all the same file",
                     s->options.data, s->ranks->all.rank);
  return mn_ranks_agree(s->ranks, status);
}

mn_status mn_ranks_introduce(const struct mn_session *s) {
  struct {
    enum mn_device_type type;
    char text[512];
  } mine = {.text = ""}, *all;
  if (!s->ranks) return MN_OK;
  const int size = s->ranks->all.size;
  all = calloc((size_t)size, sizeof *all);
  MN_REQUIRE(all); /* a rank that failed alone would leave the others waiting */
  mine.type = s->device->type;
  mn_host_describe(mine.text, sizeof mine.text, s->device);
  mn_status status = mn_ranks_allgather(s->ranks, all, &mine, sizeof *all);
  for (int q = 0; q < size && status == MN_OK && s->options.verbose; q++)
    mn_announce(&s->options, "rank %d of %d: %s", q, size, all[q].text);
  for (int q = 1; q < size && status == MN_OK; q++)
    if (all[q].type != all[0].type)
      status =
          mn_fail(MN_USAGE,
                  "rank %d has another kind of device than rank 0 (%s; %s): start a rank for each GPU, or "
                  "train on the CPU (--device cpu)",
                  q, all[q].text, all[0].text);
  free(all);
  return mn_ranks_agree(s->ranks, status);
}

/* The grid is that of --ranks, else, among as many ranks, the one that a resumed checkpoint was saved by: its
 * bytes depend on it. By default it has the most shards, up to the ranks of a host, whose number
 * divides ranks and groups; the rest are replicas. A batch that the replicas do not divide, or a layer that
 * the shards do not, is refused later. */
mn_status mn_ranks_choose_grid(const struct mn_session *s, const struct mn_model_config *c) {
  const char *text = s->options.ranks;
  const char *then = s->from ? mn_text_find(s->from->fingerprint, s->from->fingerprint_count, "ranks") : NULL;
  const int size = s->ranks ? s->ranks->all.size : 1;
  long shards = s->ranks ? s->ranks->neighbours : 1, replicas, p, d;
  mn_status status = MN_OK;
  if (strcmp(text, "auto") == 0 && then && read_grid(then, &p, &d) && p * d == size) text = then;
  while (shards > 1 && (size % shards || c->groups % shards)) shards--;
  if (strcmp(text, "auto") != 0 && !read_grid(text, &shards, &replicas))
    status = mn_fail(MN_USAGE, "--ranks '%s': 4x2, for 2 replicas of 4 shards each, is an example", text);
  else if (strcmp(text, "auto") != 0 && shards * replicas != size)
    status = mn_fail(MN_USAGE, "--ranks %s is %ld ranks, but %d %s started: mpirun -n %ld starts as many",
                     text, shards * replicas, size, size == 1 ? "was" : "were", shards * replicas);
  if (status == MN_OK) status = mn_ranks_set_grid(s->ranks, (int)shards);
  return mn_ranks_agree(s->ranks, status);
}
