/* The gather on the CPU. Contract: kernels/memory.h. */
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/real.h"

/* Bytes of a batch; below, a second thread would gain less than what waiting for it costs on a busy core. */
enum { GATHER_PARALLEL_FROM = 1 << 20 };

/* Row i of x's plane. */
static void round_row(const struct mn_gather *g, int64_t i, const float *from) {
  const int64_t cols = (int64_t)(g->of[0].bytes / sizeof *from);
  const float factor = g->scales[i / g->batch].factor;
  float *to = (float *)g->planes[0] + i * cols;
  for (int64_t c = 0; c < cols; c++) to[c] = mn_to_plane(from[c], factor, 1);
}

mn_status mn_gather_cpu(struct mn_device *device, const struct mn_gather *g) {
  (void)device;
  MN_REQUIRE(!g->planes[1]);
  size_t all = (size_t)g->count * (g->of[0].bytes + g->of[1].bytes);
#pragma omp parallel for schedule(static) if (all > GATHER_PARALLEL_FROM)
  for (int64_t i = 0; i < g->count; i++)
    for (int k = 0; k < 2; k++) {
      const size_t bytes = g->of[k].bytes, apart = g->of[k].apart ? g->of[k].apart : bytes;
      if (!bytes) continue;
      const char *from = (const char *)g->of[k].from + (size_t)(g->rows ? g->rows[i] : i) * apart;
      if (k == 0 && g->planes[0])
        round_row(g, i, (const float *)from);
      else
        memcpy((char *)g->of[k].to + (size_t)i * bytes, from, bytes);
    }
  return MN_OK;
}
