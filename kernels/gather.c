/* The gather on the CPU. Contract: kernels/gather.h. */
#include "kernels/gather.h"

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/real.h"

mn_status mn_gather_cpu(struct mn_device *device, const struct mn_gather *g) {
  (void)device;
  const size_t bytes = (size_t)g->cols * g->size;
#pragma omp parallel for schedule(static) if (g->count * g->cols > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < g->count; i++)
    memcpy((char *)g->to + (size_t)i * bytes, (const char *)g->from + (size_t)g->rows[i] * bytes, bytes);
  return MN_OK;
}
