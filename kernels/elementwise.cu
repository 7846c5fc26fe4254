/* The passes over memory that are nobody's epilogue, on CUDA: a thread takes 16 bytes of each array. */
#include "kernels/elementwise.h"

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
static mn_status add(struct mn_device *device, struct mn_operand *y, const void *a, const void *b) {
  const Real *pa = static_cast<const Real *>(a), *pb = static_cast<const Real *>(b);
  Real *real = static_cast<Real *>(y->real);
  mn_bf16 *bf16 = static_cast<mn_bf16 *>(y->bf16);
  constexpr int W = mn_width<Real>;
  int64_t count = y->rows * y->cols;
  if (mn_aligned(16, pa, pb, real) && mn_aligned(2 * W, bf16))
    add_kernel<Real, W>
        <<<mn_cuda_grid(count, MN_CUDA_THREADS * W), MN_CUDA_THREADS, 0, device->cuda->stream>>>(
            real, bf16, pa, pb, count);
  else
    add_kernel<Real, 1><<<mn_cuda_grid(count, MN_CUDA_THREADS), MN_CUDA_THREADS, 0, device->cuda->stream>>>(
        real, bf16, pa, pb, count);
  return mn_cuda_launched("add");
}

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
static mn_status round_operand(struct mn_device *device, struct mn_operand *operand) {
  const Real *from = static_cast<const Real *>(operand->real);
  mn_bf16 *bf16 = static_cast<mn_bf16 *>(operand->bf16);
  MN_REQUIRE(from && bf16);
  constexpr int W = 8; /* 16 bytes of the result */
  int64_t count = operand->rows * operand->cols;
  if (mn_aligned(W * sizeof(Real), from) && mn_aligned(2 * W, bf16))
    round_kernel<Real, W>
        <<<mn_cuda_grid(count, MN_CUDA_THREADS * W), MN_CUDA_THREADS, 0, device->cuda->stream>>>(bf16, from,
                                                                                                 count);
  else
    round_kernel<Real, 1><<<mn_cuda_grid(count, MN_CUDA_THREADS), MN_CUDA_THREADS, 0, device->cuda->stream>>>(
        bf16, from, count);
  operand->stale = 0;
  return mn_cuda_launched("round");
}

extern "C" mn_status mn_add_cuda_fp32(struct mn_device *device, struct mn_operand *y, const void *a,
                                      const void *b) {
  return add<float>(device, y, a, b);
}
extern "C" mn_status mn_add_cuda_fp64(struct mn_device *device, struct mn_operand *y, const void *a,
                                      const void *b) {
  return add<double>(device, y, a, b);
}
extern "C" mn_status mn_round_cuda_fp32(struct mn_device *device, struct mn_operand *operand) {
  return round_operand<float>(device, operand);
}
extern "C" mn_status mn_round_cuda_fp64(struct mn_device *device, struct mn_operand *operand) {
  return round_operand<double>(device, operand);
}
