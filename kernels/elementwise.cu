/* The passes over memory that are not an epilogue, on CUDA: a thread takes 16 bytes of each array. */
#include <algorithm>

#include "kernels/planes.cuh"
#include "kernels/rule.cuh"

/* The flag, if it is not NULL, is loaded together with the data and guards the store. */
template <typename Real, int W>
MN_CUDA_KERNEL add_kernel(Real *y, const mn_planes planes, const Real *a, const Real *b, int64_t count,
                          const int *nonfinite) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W;
  if (at >= count) return;
  Real va[W], vb[W];
  mn_load_some<W>(va, a + at, count - at);
  mn_load_some<W>(vb, b + at, count - at);
  const int stop = nonfinite ? *nonfinite : 0;
  MN_UNROLL(int i = 0; i < W; i++) va[i] += vb[i];
  if (!stop) mn_forms_store<W>(y, planes, 1, at, va, count - at);
}

template <typename Real>
static mn_status add(struct mn_device *device, Real *y, const mn_planes &planes, const Real *a, const Real *b,
                     int64_t count, const int *nonfinite) {
  constexpr int W = mn_width<Real>;
  const bool wide = mn_aligned(16, a, b, y) && mn_aligned(2 * W, planes.high);
  return mn_cuda_launch("add", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? add_kernel<Real, W> : add_kernel<Real, 1>, y, planes, a, b, count, nonfinite);
}

template <typename Real>
mn_status mn_accumulate_cuda<Real>::run(struct mn_device *device, const struct mn_epilogue *epilogue,
                                        const Real *d, int64_t offset, int64_t count) {
  Real *into = static_cast<Real *>(epilogue->into) + offset;
  return add<Real>(device, into, {}, into, d, count, device->nonfinite);
}
MN_CUDA_INSTANTIATE(accumulate);

template <typename Real>
mn_status mn_add_cuda<Real>::run(struct mn_device *device, struct mn_operand *y, const void *a,
                                 const void *b) {
  const mn_planes planes = mn_planes_of(device, y);
  MN_REQUIRE(!planes.scale);
  return add(device, static_cast<Real *>(y->real), planes, static_cast<const Real *>(a),
             static_cast<const Real *>(b), y->rows * y->cols, NULL);
}
MN_CUDA_INSTANTIATE(add);

/* The largest finite |value|; `largest` is 0 before. */
template <typename Real>
MN_CUDA_KERNEL largest_kernel(struct mn_scale *scale, const Real *from, int64_t count) {
  float largest = 0;
  for (int64_t i = (int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x; i < count;
       i += (int64_t)gridDim.x * MN_CUDA_THREADS)
    largest = mn_scale_larger(largest, (float)from[i]);
  mn_scale_note(scale, largest);
}

/* measure: the factor follows from the largest |value|, in every CTA, and the first one notes it. `lower`, of
 * a split weight: the destination of the lower halves, or NULL. */
template <typename Real, int W>
MN_CUDA_KERNEL round_kernel(const mn_planes planes, uint16_t *lower, const Real *from, int64_t count,
                            bool split, bool measure, int headroom) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W;
  float factor = measure ? mn_scale_factor(planes.scale->largest, headroom, 1) : mn_planes_factor(planes);
  if (measure && at == 0) planes.scale->factor = factor;
  if (at >= count) return;
  Real values[W];
  mn_load_some<W>(values, from + at, count - at);
  if (split) {
    uint16_t high[W], low[W];
    mn_split<W>(high, low, values);
    mn_store_some<W>(planes.high + at, high, count - at);
    if (lower) mn_store_some<W>(lower + at, low, count - at);
  } else {
    mn_planes_store<W>(planes, factor, at, values, count - at);
  }
}

template <typename Real>
mn_status mn_round_cuda<Real>::run(struct mn_device *device, struct mn_operand *operand, int measure) {
  const Real *from = static_cast<const Real *>(operand->real);
  const mn_planes planes = mn_planes_of(device, operand);
  MN_REQUIRE(from && planes.high);
  constexpr int W = 8; /* 16 bytes of the result */
  const int64_t count = operand->rows * operand->cols;
  const bool wide = mn_aligned(16, from) && mn_aligned(2 * W, planes.high, planes.low, operand->low);
  const bool measured = measure && planes.scale;
  if (measured) {
    MN_TRY(mn_zero_cuda(device, &planes.scale->largest, sizeof planes.scale->largest));
    const int64_t ctas = std::min((count + 2047) / 2048, (int64_t)8 * device->cuda->multiprocessors);
    MN_TRY(mn_cuda_launch("largest", device, ctas, 1, largest_kernel<Real>, planes.scale, from, count));
    struct mn_scale *scale = planes.scale;
    if (measure == MN_MEASURE_TOGETHER && device->ranks) MN_TRY(mn_agree_scales_cuda(device, &scale, 1));
  }
  operand->stale = 0;
  return mn_cuda_launch("round", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? round_kernel<Real, W> : round_kernel<Real, 1>, planes, operand->low, from,
                        count, operand->split != 0, measured, operand->headroom);
}
MN_CUDA_INSTANTIATE(round);

/* The largest |value| of two vectors, in thread 0. */
template <int W, typename Real>
static __device__ void cta_largest(float (&largest)[2], const Real *gamma, const Real *beta, int64_t count) {
  __shared__ float parts[2][32];
  largest[0] = largest[1] = 0;
#pragma unroll 2
  for (int64_t at = threadIdx.x * W; at < count; at += blockDim.x * W) {
    Real both[2][W];
    mn_load_some<W>(both[0], gamma + at, count - at);
    mn_load_some<W>(both[1], beta + at, count - at);
    MN_UNROLL(int i = 0; i < 2 * W; i++)
      largest[i / W] = mn_scale_larger(largest[i / W], (float)both[i / W][i % W]);
  }
  for (int i = 0; i < 2; i++) {
    largest[i] = mn_lanes_largest(largest[i]);
    if (threadIdx.x % 32 == 0) parts[i][threadIdx.x / 32] = largest[i];
  }
  __syncthreads();
  for (int i = 0; i < 2; i++) largest[i] = mn_lanes_largest(parts[i][threadIdx.x % 32]);
}

/* One CTA, of 1024 threads if there is y. `bound` is of a normalised value, `dy_dv` the factor of the
 * activation and the sum. */
template <typename Real, int W>
static __global__ void __launch_bounds__(1024)
    rescale_kernel(struct mn_scale *dz, struct mn_scale *y, const Real *gamma, const Real *beta,
                   int64_t channels, double bound, double dy_dv) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
  if (dz && threadIdx.x == 0) {
    dz->factor = mn_scale_next(dz);
    dz->largest = 0;
  }
  if (!y) return;
  float largest[2];
  cta_largest<W>(largest, gamma, beta, channels);
  if (threadIdx.x == 0)
    y->factor = mn_scale_factor((float)(dy_dv * (bound * largest[0] + largest[1])), MN_HEADROOM_X, 1);
}

template <typename Real>
mn_status mn_rescale_cuda<Real>::run(struct mn_device *device, struct mn_scale *dz, struct mn_scale *y,
                                     const struct mn_block *block) {
  static const struct mn_block none = {};
  const struct mn_block *b = y ? block : &none;
  const double width = y ? (double)b->channels / (double)b->groups : 1;
  const Real *gamma = static_cast<const Real *>(b->gamma), *beta = static_cast<const Real *>(b->beta);
  constexpr int W = mn_width<Real>;
  const auto kernel = mn_aligned(16, gamma, beta) ? rescale_kernel<Real, W> : rescale_kernel<Real, 1>;
  return mn_cuda_launch_dependent("rescale", device, 1, y ? 1024 : 32, 0, kernel, dz, y, gamma, beta,
                                  b->channels, sqrt(width - 1), 2 * std::max(1.0, fabs(b->slope)));
}
MN_CUDA_INSTANTIATE(rescale);

template <typename Real, int W>
MN_CUDA_KERNEL narrow_kernel(float *out, const mn_weight<Real> from, int64_t count) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W;
  if (at >= count) return;
  Real values[W];
  float floats[W];
  mn_weight_load<W>(values, from, at, count - at);
  MN_UNROLL(int i = 0; i < W; i++) floats[i] = (float)values[i];
  mn_store_some<W>(out + at, floats, count - at);
}

template <typename Real>
mn_status mn_narrow_cuda<Real>::run(struct mn_device *device, float *out, const struct mn_operand *from,
                                    int64_t first, int64_t count) {
  constexpr int W = 4; /* 16 bytes of the result */
  const mn_weight<Real> w = mn_weight_of<Real>(device, from, first);
  const bool wide = mn_aligned(16, w.real, out) && mn_aligned(2 * W, w.planes.high, w.low);
  return mn_cuda_launch("narrow", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? narrow_kernel<Real, W> : narrow_kernel<Real, 1>, out, w, count);
}
MN_CUDA_INSTANTIATE(narrow);
