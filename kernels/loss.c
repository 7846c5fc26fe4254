/* The losses on the CPU. Formulas: kernels/kernels.h. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/real.h"

static real weight_of(const void *weights, int64_t n) {
  return weights ? ((const real *)weights)[n] : 1;
}

mn_status mn_mse_cpu(struct mn_device *device, void *parts, void *dy, const void *y, const void *target,
                     const void *weights, int64_t rows, int64_t cols, double scale) {
  const real factor = (real)(2 * scale / ((double)rows * (double)cols));
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (rows * cols > MN_PARALLEL_FROM)
  for (int64_t n = 0; n < rows; n++) {
    const real *a = (const real *)y + n * cols, *t = (const real *)target + n * cols;
    const real weight = weight_of(weights, n), each = weight * factor;
    real sum = 0;
    for (int64_t k = 0; k < cols; k++) sum += (a[k] - t[k]) * (a[k] - t[k]);
    ((real *)parts)[n] = weight * sum;
    if (!dy) continue;
    for (int64_t k = 0; k < cols; k++) ((real *)dy)[n * cols + k] = each * (a[k] - t[k]);
  }
  return MN_OK;
}

/* The first column with the row's largest value, and Σ exp(y − largest) ≥ 1, which does not overflow. */
static real softmax_sum(const real *y, int64_t cols, int64_t *largest) {
  *largest = 0;
  for (int64_t k = 1; k < cols; k++)
    if (y[k] > y[*largest]) *largest = k;
  real sum = 0;
  for (int64_t k = 0; k < cols; k++) sum += (real)exp(y[k] - y[*largest]);
  return sum;
}

mn_status mn_cross_entropy_cpu(struct mn_device *device, void *parts, void *correct, void *dy, const void *y,
                               const int32_t *labels, const void *weights, int64_t rows, int64_t cols,
                               double scale) {
  const real factor = (real)(scale / (double)rows);
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (rows * cols > MN_PARALLEL_FROM)
  for (int64_t n = 0; n < rows; n++) {
    const real *a = (const real *)y + n * cols;
    const real weight = weight_of(weights, n);
    int64_t largest;
    real sum = softmax_sum(a, cols, &largest);
    real at_label = labels[n] >= 0 && labels[n] < cols ? a[labels[n]] : (real)NAN;
    ((real *)parts)[n] = weight * ((real)log(sum) + (a[largest] - at_label));
    ((real *)correct)[n] = largest == labels[n] ? weight : 0;
    if (!dy) continue;
    for (int64_t k = 0; k < cols; k++) {
      real probability = (real)exp(a[k] - a[largest]) / sum;
      ((real *)dy)[n * cols + k] = weight * factor * (probability - (k == labels[n]));
    }
  }
  return MN_OK;
}

mn_status mn_reduce_cpu(struct mn_device *device, const struct mn_reduction *r) {
  const real *u = r->parts, *v = r->others;
  const int64_t count = r->count, spans = mn_reduce_scratch(count);
#pragma omp parallel for schedule(static) num_threads(mn_threads(device)) if (count > MN_PARALLEL_FROM)
  for (int64_t s = 0; s < spans; s++) {
    double sum = 0;
    for (int64_t i = s * MN_REDUCE_SPAN; i < count && i < (s + 1) * MN_REDUCE_SPAN; i++)
      sum += v ? (double)u[i] * v[i] : (double)u[i];
    r->scratch[s] = sum;
  }
  double sum = 0;
  for (int64_t s = 0; s < spans; s++) sum += r->scratch[s];
  if (!isfinite(sum)) mn_raise(device);
  *r->out = r->factor * sum;
  return MN_OK;
}
