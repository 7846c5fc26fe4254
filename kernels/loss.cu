/* The losses on CUDA: a warp computes a row, or a whole CTA if rows are long. Formulas: kernels/kernels.h. */
#include <math_constants.h>

#include "kernels/reduce.cuh"

/* Rows of this many columns or more get a CTA each, shorter ones a warp. */
static const int64_t LONG_ROW = 1024;

/* Launches the kernel of warps, or of CTAs if rows are long. */
template <typename... Parameters, typename... Arguments>
static mn_status launch(const char *name, struct mn_device *device, int64_t rows, int64_t cols,
                        void (*of_warps)(Parameters...), void (*of_ctas)(Parameters...),
                        const Arguments &...arguments) {
  const bool wide = cols >= LONG_ROW;
  return mn_cuda_launch(name, device, rows, wide ? 1 : MN_CUDA_THREADS / 32, wide ? of_ctas : of_warps,
                        arguments...);
}

/* T consecutive threads, a team, work on one row. */
template <int T, typename Real> static __device__ Real team_sum(Real x) {
  return T == 32 ? mn_lanes_sum<32>(x) : mn_cta_sum(x);
}

/* dy and weights may be NULL. */
template <int T, typename Real>
MN_CUDA_KERNEL mse_kernel(Real *parts, Real *dy, const Real *y, const Real *target, const Real *weights,
                          int64_t rows, int64_t cols, Real factor) {
  const int64_t row = (int64_t)blockIdx.x * (MN_CUDA_THREADS / T) + threadIdx.x / T, first = row * cols;
  if (row >= rows) return; /* the same for the whole team */
  const Real weight = weights ? weights[row] : Real(1);
  Real sum = 0;
  for (int64_t k = threadIdx.x % T; k < cols; k += T) {
    const Real error = y[first + k] - target[first + k];
    sum += error * error;
    if (dy) dy[first + k] = weight * factor * error;
  }
  sum = team_sum<T>(sum);
  if (threadIdx.x % T == 0) parts[row] = weight * sum;
}

/* A row's largest value and the first column that has it. */
template <typename Real> struct largest {
  Real value;
  int64_t at;
};

template <typename Real> static __device__ void take_larger(largest<Real> &a, const largest<Real> &b) {
  if (b.value > a.value || (b.value == a.value && b.at < a.at)) a = b;
}

template <int T, typename Real> static __device__ largest<Real> team_largest(const Real *y, int64_t cols) {
  largest<Real> best = {Real(-CUDART_INF), INT64_MAX};
  for (int64_t k = threadIdx.x % T; k < cols; k += T) take_larger(best, {y[k], k});
  MN_UNROLL(int offset = 16; offset > 0; offset /= 2)
    take_larger(best, {__shfl_xor_sync(MN_CUDA_WARP, best.value, offset),
                       (int64_t)__shfl_xor_sync(MN_CUDA_WARP, (long long)best.at, offset)});
  if constexpr (T > 32) {
    __shared__ largest<Real> parts[T / 32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;
    __syncthreads();
    for (int w = 0; w < T / 32; w++) take_larger(best, parts[w]);
  }
  return best;
}

template <int T, typename Real>
MN_CUDA_KERNEL cross_entropy_kernel(Real *parts, Real *correct, Real *dy, const Real *y,
                                    const int32_t *labels, const Real *weights, int64_t rows, int64_t cols,
                                    Real factor) {
  const int64_t row = (int64_t)blockIdx.x * (MN_CUDA_THREADS / T) + threadIdx.x / T;
  if (row >= rows) return;
  y += row * cols;
  const largest<Real> most = team_largest<T>(y, cols);
  Real sum = 0; /* Σ exp(y − largest), which is at least 1 and does not overflow */
  for (int64_t k = threadIdx.x % T; k < cols; k += T) sum += exp(y[k] - most.value);
  sum = team_sum<T>(sum);
  const int32_t label = labels[row];
  const Real weight = weights ? weights[row] : Real(1);
  if (threadIdx.x % T == 0) {
    const Real at_label = label >= 0 && label < cols ? y[label] : Real(CUDART_NAN);
    parts[row] = weight * (log(sum) + (most.value - at_label));
    correct[row] = most.at == label ? weight : Real(0);
  }
  if (!dy) return;
  for (int64_t k = threadIdx.x % T; k < cols; k += T) {
    const Real probability = exp(y[k] - most.value) / sum;
    dy[row * cols + k] = weight * factor * (probability - (k == label ? Real(1) : Real(0)));
  }
}

template <typename Real>
mn_status mn_mse_cuda<Real>::run(struct mn_device *device, void *parts, void *dy, const void *y,
                                 const void *target, const void *weights, int64_t rows, int64_t cols,
                                 double scale) {
  return launch("mse", device, rows, cols, mse_kernel<32, Real>, mse_kernel<MN_CUDA_THREADS, Real>,
                static_cast<Real *>(parts), static_cast<Real *>(dy), static_cast<const Real *>(y),
                static_cast<const Real *>(target), static_cast<const Real *>(weights), rows, cols,
                (Real)(2 * scale / ((double)rows * (double)cols)));
}
MN_CUDA_INSTANTIATE(mse);

template <typename Real>
mn_status mn_cross_entropy_cuda<Real>::run(struct mn_device *device, void *parts, void *correct, void *dy,
                                           const void *y, const int32_t *labels, const void *weights,
                                           int64_t rows, int64_t cols, double scale) {
  return launch("cross_entropy", device, rows, cols, cross_entropy_kernel<32, Real>,
                cross_entropy_kernel<MN_CUDA_THREADS, Real>, static_cast<Real *>(parts),
                static_cast<Real *>(correct), static_cast<Real *>(dy), static_cast<const Real *>(y), labels,
                static_cast<const Real *>(weights), rows, cols, (Real)(scale / (double)rows));
}
MN_CUDA_INSTANTIATE(cross_entropy);

template <typename Real>
mn_status mn_reduce_cuda<Real>::run(struct mn_device *device, const struct mn_reduction *reduction) {
  const mn_summands s = mn_summands_of(device, reduction);
  return mn_cuda_launch("reduce", device, s.spans, 1,
                        s.others ? mn_sum_kernel<true, Real> : mn_sum_kernel<false, Real>, s);
}
MN_CUDA_INSTANTIATE(reduce);
