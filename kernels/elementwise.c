/* The passes over memory that are not an epilogue, on the CPU. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/real.h"

mn_status mn_add_cpu(struct mn_device *device, struct mn_operand *y, const void *a, const void *b) {
  const real *pa = a, *pb = b;
  real *out = y->real;
  float *plane = y->planes[0];
  int64_t count = y->rows * y->cols;
  MN_REQUIRE(!plane || !y->scale);
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) {
    real sum = pa[i] + pb[i];
    if (out) out[i] = sum;
    if (plane) plane[i] = mn_to_plane(device->plane_kind, (float)sum, 1);
  }
  return MN_OK;
}

/* The largest finite |value|; NaN is not counted. */
static float largest_of(const struct mn_device *device, const real *values, int64_t count) {
  float largest = 0;
#pragma omp parallel for simd schedule(static) num_threads(mn_threads(device))                               \
    reduction(max                                                                                            \
              : largest) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) largest = mn_scale_larger(largest, (float)values[i]);
  return largest;
}

mn_status mn_round_cpu(struct mn_device *device, struct mn_operand *operand, int measure) {
  const real *from = operand->real;
  float *plane = operand->planes[0];
  struct mn_scale *scale = operand->scale;
  int64_t count = operand->rows * operand->cols;
  if (scale && measure) {
    scale->largest = largest_of(device, from, count);
    if (measure == MN_MEASURE_TOGETHER && device->ranks) MN_TRY(mn_agree_scales(device, &scale, 1));
    scale->factor = mn_scale_factor(scale->largest, operand->headroom, 1);
  }
  const float factor = scale ? scale->factor : 1;
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) plane[i] = mn_to_plane_of(device, operand, (float)from[i], factor);
  operand->stale = 0;
  return MN_OK;
}

mn_status mn_rescale_cpu(struct mn_device *device, struct mn_scale *dz, struct mn_scale *y,
                         const struct mn_block *b) {
  if (dz) {
    dz->factor = mn_scale_next(dz);
    dz->largest = 0;
  }
  if (!y) return MN_OK;
  const double width = (double)b->channels / (double)b->groups;
  const double gamma = largest_of(device, b->gamma, b->channels),
               beta = largest_of(device, b->beta, b->channels);
  const double bound = 2 * fmax(1, fabs(b->slope)) * (sqrt(width - 1) * gamma + beta);
  y->factor = mn_scale_factor((float)bound, MN_HEADROOM_X, 1);
  return MN_OK;
}

mn_status mn_narrow_cpu(struct mn_device *device, float *out, const struct mn_operand *from, int64_t first,
                        int64_t count) {
  const real *values = (const real *)from->real + first;
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) out[i] = (float)values[i];
  return MN_OK;
}
