/* Targets of several datasets side by side, or their logarithms, with the x of the first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/held_out.h"

struct joined {
  struct mn_dataset base; /* first, so that the two convert */
  int count;
  const char *logs;                    /* of this file, borrowed; NULL: of none */
  struct mn_dataset *parts[MN_JOINED]; /* owned */
};

/* Replaces targets by their logarithms. */
static mn_status take_logs(const struct joined *j, int64_t first, int64_t values, size_t real, void *y) {
  for (int64_t i = 0; i < values; i++) {
    const double value = mn_real_at(y, real, i);
    if (!(value > 0))
      return mn_fail(MN_BAD_DATA,
                     "%s: row %ld (from 0) has the target %g: --y-scale log is for those above 0", j->logs,
                     (long)mn_dataset_row(&j->base, first + i / j->base.outputs), value);
    mn_real_put(y, real, i, log(value));
  }
  return MN_OK;
}

static mn_status joined_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                             void *y) {
  struct joined *j = (struct joined *)dataset;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  if (x) MN_TRY(j->parts[0]->read(j->parts[0], first, count, real, x, NULL));
  if (!y) return MN_OK;
  char *const part = malloc((size_t)(count * dataset->outputs) * real), *to = y;
  mn_status status = part ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for %ld targets", (long)count);
  for (int i = 0; i < j->count && status == MN_OK; i++) {
    const size_t bytes = (size_t)j->parts[i]->outputs * real;
    status = j->parts[i]->read(j->parts[i], first, count, real, NULL, part);
    for (int64_t n = 0; n < count && status == MN_OK; n++)
      memcpy(to + (size_t)(n * dataset->outputs) * real, part + (size_t)n * bytes, bytes);
    to += bytes;
  }
  free(part);
  return status == MN_OK && j->logs ? take_logs(j, first, count * dataset->outputs, real, y) : status;
}

static void joined_close(struct mn_dataset *dataset) {
  struct joined *j = (struct joined *)dataset;
  for (int i = 0; i < j->count; i++) mn_dataset_close(j->parts[i]);
  free(j);
}

mn_status mn_dataset_join(struct mn_dataset **out, struct mn_dataset *const parts[], int count,
                          const char *logs) {
  MN_REQUIRE(count >= 1 && count <= MN_JOINED);
  struct joined *j = malloc(sizeof *j);
  if (!j) return mn_fail(MN_NO_MEMORY, "no memory to join %d datasets", count);
  *j = (struct joined){.base = *parts[0], .count = count, .logs = logs};
  memcpy(j->parts, parts, (size_t)count * sizeof *parts);
  parts[0]->weights = NULL; /* they are the joined one's */
  for (int i = 1; i < count; i++) j->base.outputs += parts[i]->outputs;
  j->base.y_parallel = 0, j->base.y_type = NULL;
  j->base.read = joined_read, j->base.close = joined_close;
  *out = &j->base;
  return MN_OK;
}
