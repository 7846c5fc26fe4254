/* Sums of many values in double, in an order that depends on their count alone: spans of MN_REDUCE_SPAN, a
 * block each, then the spans' sums, by whichever block is done last. For losses and for gradient norms. */
#ifndef MN_KERNELS_REDUCE_CUH
#define MN_KERNELS_REDUCE_CUH

#include "kernels/cuda.cuh"

/* struct mn_reduction as the device sees it. */
template <typename Real> struct mn_summands {
  double *out, *sums; /* sums: one a span */
  unsigned *done;     /* how many spans' sums stand there */
  const Real *values;
  int64_t count;
  unsigned spans;
  double factor;
};

template <typename Real>
static inline mn_summands<Real> mn_summands_of(struct mn_device *device, const struct mn_reduction *r) {
  return {r->out,
          r->scratch,
          device->cuda->spans_done,
          static_cast<const Real *>(r->parts),
          r->count,
          mn_cuda_grid(r->count, MN_REDUCE_SPAN),
          r->factor};
}

/* True for one block of the sum, and there all spans' sums can be read: which block it is changes from run to
 * run, what it reads does not. atomicInc leaves the count at 0 for the next sum; the stream's sums come one
 * after the other, so they can share it. */
template <typename Real>
static __device__ bool mn_last_span(const mn_summands<Real> &s, unsigned span, double sum) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    s.sums[span] = sum;
    __threadfence();
    last = atomicInc(s.done, s.spans - 1) == s.spans - 1;
  }
  __syncthreads();
  __threadfence();
  return last;
}

/* A block's part of *out = factor·Σ values, or Σ of their squares. However many threads the block has, the
 * first MN_CUDA_THREADS add, so that the order is one. */
template <bool Square, typename Real>
static __device__ void mn_sum_span(const mn_summands<Real> &s, unsigned span) {
  const bool adds = threadIdx.x < MN_CUDA_THREADS;
  const int64_t first = (int64_t)span * MN_REDUCE_SPAN + threadIdx.x;
  double sum = 0;
#pragma unroll
  for (int i = 0; i < MN_REDUCE_SPAN / MN_CUDA_THREADS; i++) {
    int64_t at = first + i * MN_CUDA_THREADS;
    double value = adds && at < s.count ? (double)s.values[at] : 0;
    sum += Square ? value * value : value;
  }
  sum = mn_block_sum(sum);
  if (s.spans > 1) {
    if (!mn_last_span(s, span, sum)) return;
    sum = 0;
    for (unsigned i = threadIdx.x; adds && i < s.spans; i += MN_CUDA_THREADS) sum += __ldcg(s.sums + i);
    sum = mn_block_sum(sum);
  }
  if (threadIdx.x == 0) *s.out = s.factor * sum;
}

template <bool Square, typename Real>
static __global__ void __launch_bounds__(MN_CUDA_THREADS) mn_sum_kernel(const mn_summands<Real> s) {
  mn_sum_span<Square>(s, blockIdx.x);
}

template <bool Square, typename Real>
static mn_status mn_cuda_reduce(struct mn_device *device, double *out, double *scratch, const void *values,
                                int64_t count, double factor) {
  const struct mn_reduction reduction = {out, scratch, values, count, factor};
  const mn_summands<Real> s = mn_summands_of<Real>(device, &reduction);
  mn_sum_kernel<Square><<<s.spans, MN_CUDA_THREADS, 0, device->cuda->stream>>>(s);
  return mn_cuda_launched("reduce");
}

#endif
