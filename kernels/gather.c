/* The gather on the CPU. Contract: kernels/gather.h. */
#include "kernels/gather.h"

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/real.h"

mn_status mn_gather_cpu(struct mn_device *device, const struct mn_gather *g) {
  (void)device;
  size_t all = (size_t)g->count * (g->of[0].bytes + g->of[1].bytes);
#pragma omp parallel for schedule(static) if (all > MN_PARALLEL_FROM * sizeof(float))
  for (int64_t i = 0; i < g->count; i++)
    for (int k = 0; k < 2; k++)
      if (g->of[k].bytes)
        memcpy((char *)g->of[k].to + (size_t)i * g->of[k].bytes,
               (const char *)g->of[k].from + (size_t)g->rows[i] * g->of[k].bytes, g->of[k].bytes);
  return MN_OK;
}
