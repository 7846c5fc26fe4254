/* Uniform numbers on the CPU. Formula: kernels/random.h. */
#include "kernels/random.h"

#include "kernels/kernels.h"
#include "kernels/real.h"

mn_status mn_uniform_cpu(struct mn_device *device, void *out, int64_t count, uint64_t seed, uint32_t sequence,
                         uint64_t first, double bound) {
  uint64_t last = first + (uint64_t)count;
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (count > MN_PARALLEL_FROM)
  for (uint64_t quad = first / 4; quad < (last + 3) / 4; quad++) {
    uint32_t words[4];
    mn_philox(seed, sequence, quad, words);
    for (uint64_t i = 4 * quad; i < 4 * quad + 4; i++) {
      if (i < first || i >= last) continue;
      real t = (real)(words[i % 4] >> 8) * (real)0x1p-23 - 1; /* exact: 24 bits */
      ((real *)out)[i - first] = (real)bound * t;
    }
  }
  return MN_OK;
}
