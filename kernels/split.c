/* Split weights on the CPU, where the float is kept beside its plane. Contract: kernels/memory.h. */
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/real.h"

static void check(const struct mn_operand *w, int64_t first, int64_t count) {
  MN_REQUIRE(w->split && w->real && w->planes[0]);
  MN_REQUIRE(first >= 0 && count > 0 && first + count <= w->rows * w->cols);
}

mn_status mn_split_cpu(struct mn_device *device, struct mn_operand *w, int64_t first, const float *from,
                       int64_t count) {
  (void)device;
  check(w, first, count);
  float *value = (float *)w->real + first, *plane = (float *)w->planes[0] + first;
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) {
    value[i] = from[i];
    plane[i] = mn_to_upper_half(from[i]);
  }
  return MN_OK;
}

mn_status mn_join_cpu(struct mn_device *device, float *to, const struct mn_operand *w, int64_t first,
                      int64_t count) {
  (void)device;
  check(w, first, count);
  memcpy(to, (const float *)w->real + first, (size_t)count * sizeof *to);
  return MN_OK;
}
