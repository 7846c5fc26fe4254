/* The passes over memory that are not an epilogue, on CUDA: a thread takes 16 bytes of each array. */
#include "kernels/cuda.cuh"

template <typename Real, int W>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    add_kernel(Real *y, mn_bf16 *bf16, const Real *a, const Real *b, int64_t count) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W;
  if (at >= count) return;
  Real va[W], vb[W];
  mn_load_some<W>(va, a + at, count - at);
  mn_load_some<W>(vb, b + at, count - at);
#pragma unroll
  for (int i = 0; i < W; i++) va[i] += vb[i];
  mn_store_forms<W>(y, bf16, at, va, count - at);
}

template <typename Real>
mn_status mn_cuda_add<Real>::run(struct mn_device *device, struct mn_operand *y, const void *a,
                                 const void *b) {
  const Real *pa = static_cast<const Real *>(a), *pb = static_cast<const Real *>(b);
  Real *real = static_cast<Real *>(y->real);
  mn_bf16 *bf16 = static_cast<mn_bf16 *>(y->bf16);
  constexpr int W = mn_width<Real>;
  const int64_t count = y->rows * y->cols;
  const bool wide = mn_aligned(16, pa, pb, real) && mn_aligned(2 * W, bf16);
  return mn_cuda_launch("add", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? add_kernel<Real, W> : add_kernel<Real, 1>, real, bf16, pa, pb, count);
}
MN_CUDA_INSTANTIATE(add);

template <typename Real, int W>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    round_kernel(mn_bf16 *bf16, const Real *from, int64_t count) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W;
  if (at >= count) return;
  Real values[W];
  mn_load_some<W>(values, from + at, count - at);
  mn_store_forms<W>((Real *)NULL, bf16, at, values, count - at);
}

template <typename Real>
mn_status mn_cuda_round<Real>::run(struct mn_device *device, struct mn_operand *operand) {
  const Real *from = static_cast<const Real *>(operand->real);
  mn_bf16 *bf16 = static_cast<mn_bf16 *>(operand->bf16);
  MN_REQUIRE(from && bf16);
  constexpr int W = 8; /* 16 bytes of the result */
  const int64_t count = operand->rows * operand->cols;
  const bool wide = mn_aligned(W * sizeof(Real), from) && mn_aligned(2 * W, bf16);
  operand->stale = 0;
  return mn_cuda_launch("round", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? round_kernel<Real, W> : round_kernel<Real, 1>, bf16, from, count);
}
MN_CUDA_INSTANTIATE(round);

template <typename Real, int W>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    narrow_kernel(float *out, const Real *from, int64_t count) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W;
  if (at >= count) return;
  Real values[W];
  float floats[W];
  mn_load_some<W>(values, from + at, count - at);
#pragma unroll
  for (int i = 0; i < W; i++) floats[i] = (float)values[i];
  mn_store_some<W>(out + at, floats, count - at);
}

template <typename Real>
mn_status mn_cuda_narrow<Real>::run(struct mn_device *device, float *out, const void *from, int64_t count) {
  const Real *values = static_cast<const Real *>(from);
  constexpr int W = 4; /* 16 bytes of the result */
  const bool wide = mn_aligned(16, values, out);
  return mn_cuda_launch("narrow", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? narrow_kernel<Real, W> : narrow_kernel<Real, 1>, out, values, count);
}
MN_CUDA_INSTANTIATE(narrow);
