/* SGD on the CPU. Formulas: struct mn_sgd, kernels/update.h. */
#include "kernels/update.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/real.h"
#include "kernels/sgd.h"

void MN_CPU(mn_sgd)(struct mn_device *device, const struct mn_update *update, void *gradient) {
  if (*device->nonfinite) return;
  const struct mn_sgd *sgd = update->sgd;
  const real rate = (real)*sgd->rate, scale = sgd->scale ? (real)*sgd->scale : 1;
  const real momentum = (real)sgd->momentum, decay = (real)sgd->weight_decay;
  const real *g = gradient;
  real *w = update->w->real, *m = update->momentum;
  float *plane = update->w->planes[0];
  const float factor = update->w->scale ? update->w->scale->factor : 1;
  int64_t count = update->w->rows * update->w->cols;
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) {
    real at = (g ? scale * g[i] : 0) + decay * w[i], step = at;
    if (m) {
      m[i] = (g ? momentum * m[i] : m[i]) + at;
      step = sgd->nesterov ? at + momentum * m[i] : m[i];
    }
    w[i] -= rate * step;
    if (plane) plane[i] = mn_to_plane_of(update->w, (float)w[i], factor);
  }
  if (update->clears) memset(gradient, 0, (size_t)count * sizeof(real));
}

mn_status MN_CPU(mn_sum_of_squares)(struct mn_device *device, double *out, double *scratch,
                                    const void *values, int64_t count) {
  (void)device;
  const real *v = values;
  int64_t spans = mn_reduce_scratch(count);
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t s = 0; s < spans; s++) {
    double sum = 0;
    for (int64_t i = s * MN_REDUCE_SPAN; i < count && i < (s + 1) * MN_REDUCE_SPAN; i++)
      sum += (double)v[i] * v[i];
    scratch[s] = sum;
  }
  *out = 0;
  for (int64_t s = 0; s < spans; s++) *out += scratch[s];
  return MN_OK;
}

mn_status MN_CPU(mn_clip)(struct mn_device *device, double *scale, double *norm, const double *squares,
                          int64_t count, double max_norm) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += squares[i];
  *norm = sqrt(sum);
  if (!isfinite(sum)) mn_raise(device);
  *scale = max_norm / (*norm + 1e-6) < 1 ? max_norm / (*norm + 1e-6) : 1;
  return MN_OK;
}
