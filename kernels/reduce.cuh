/* Sums of many values in double, in an order that depends on their count alone: each CTA sums a span of
 * MN_REDUCE_SPAN values, and the CTA that finishes last adds the spans' sums. For losses and gradient norms.
 */
#ifndef MN_KERNELS_REDUCE_CUH
#define MN_KERNELS_REDUCE_CUH

#include "kernels/cuda.cuh"

/* A reduction as a kernel's argument; `done`: the number of spans that are done. */
struct mn_summands : mn_reduction {
  unsigned *done, spans;
  int *nonfinite, mark;
};

static inline mn_summands mn_summands_of(struct mn_device *device, const struct mn_reduction *r) {
  return {*r, device->cuda->spans_done, mn_cuda_grid(r->count, MN_REDUCE_SPAN), device->nonfinite,
          device->mark};
}

/* One CTA's part of *out = factor·Σ parts, or factor·Σ parts·others. Whatever the number of threads in the
 * CTA, the first MN_CUDA_THREADS of them add, so that the order is always the same. The CTA that writes its
 * span's sum last adds all of them; which CTA that is differs from run to run, what it reads does not.
 * atomicInc wraps the counter to 0 for the next sum; sums run one after the other in the device's stream, so
 * they share one counter. */
template <bool Products, typename Real>
static __device__ void mn_sum_span(const mn_summands &s, unsigned span) {
  const Real *parts = static_cast<const Real *>(s.parts), *others = static_cast<const Real *>(s.others);
  const bool adds = threadIdx.x < MN_CUDA_THREADS;
  const int64_t first = (int64_t)span * MN_REDUCE_SPAN + threadIdx.x;
  double sum = 0;
  MN_UNROLL(int i = 0; i < MN_REDUCE_SPAN / MN_CUDA_THREADS; i++) {
    int64_t at = first + i * MN_CUDA_THREADS;
    if (adds && at < s.count) sum += Products ? (double)parts[at] * others[at] : (double)parts[at];
  }
  sum = mn_cta_sum(sum);
  if (s.spans > 1) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
      s.scratch[span] = sum;
      __threadfence();
      last = atomicInc(s.done, s.spans - 1) == s.spans - 1;
    }
    __syncthreads();
    __threadfence();
    if (!last) return;
    sum = 0;
    for (unsigned i = threadIdx.x; adds && i < s.spans; i += MN_CUDA_THREADS) sum += __ldcg(s.scratch + i);
    sum = mn_cta_sum(sum);
  }
  if (threadIdx.x != 0) return;
  if (!isfinite(sum)) mn_raise(s.nonfinite, s.mark);
  *s.out = s.factor * sum;
}

template <bool Products, typename Real> MN_CUDA_KERNEL mn_sum_kernel(const mn_summands s) {
  mn_sum_span<Products, Real>(s, blockIdx.x);
}

#endif
