/* Sums of many values in double, in an order that depends on their count alone: spans of MN_REDUCE_SPAN, a
 * block each, then the spans' sums in one block. For losses and for gradient norms. */
#ifndef MN_KERNELS_REDUCE_CUH
#define MN_KERNELS_REDUCE_CUH

#include "kernels/cuda.cuh"

template <bool Square, typename Real>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    mn_span_kernel(double *out, const Real *values, int64_t count, double factor) {
  int64_t first = (int64_t)blockIdx.x * MN_REDUCE_SPAN;
  double sum = 0;
#pragma unroll
  for (int i = 0; i < MN_REDUCE_SPAN / MN_CUDA_THREADS; i++) {
    int64_t at = first + i * MN_CUDA_THREADS + threadIdx.x;
    double value = at < count ? (double)values[at] : 0;
    sum += Square ? value * value : value;
  }
  sum = mn_block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = factor * sum;
}

static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    mn_spans_kernel(double *out, const double *sums, int64_t count, double factor) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += MN_CUDA_THREADS) sum += sums[i];
  sum = mn_block_sum(sum);
  if (threadIdx.x == 0) *out = factor * sum;
}

/* *out = factor·Σ values, or Σ of their squares. Up to one span is one launch. */
template <bool Square, typename Real>
static mn_status mn_cuda_reduce(struct mn_stream *stream, double *out, double *scratch, const void *values,
                                int64_t count, double factor) {
  int64_t spans = mn_reduce_scratch(count);
  cudaStream_t on = stream->cuda->stream;
  mn_span_kernel<Square><<<mn_cuda_grid(spans, 1), MN_CUDA_THREADS, 0, on>>>(
      spans == 1 ? out : scratch, static_cast<const Real *>(values), count, spans == 1 ? factor : 1.0);
  MN_TRY(mn_cuda_launched("reduce"));
  if (spans == 1) return MN_OK;
  mn_spans_kernel<<<1, MN_CUDA_THREADS, 0, on>>>(out, scratch, spans, factor);
  return mn_cuda_launched("reduce");
}

#endif
