/* The last step of the block's column sums on CUDA: adds the chunks' partial sums to dbias, dgamma and dbeta
 * and applies their sinks. All three, and the sum of a fused loss, take one launch, because in a small
 * step launches are most of the time. */
#include "kernels/parts.cuh"
#include "kernels/reduce.cuh"

template <class Rule, typename Real> struct sinks { mn_sink<Rule, Real> of[3]; };

/* One CTA sums 32 columns of the vector `which`. Each warp adds a range of the chunks in order, then the
 * warps' sums are added in order. The ranges, and so the result's bytes, depend on the number of chunks
 * alone. */
template <class Rule, typename Real>
static __device__ void sum_columns(const Real *sums, int64_t chunks, int64_t channels,
                                   const mn_sink<Rule, Real> &to, const Rule &rule, const int *nonfinite,
                                   int which, int64_t column0) {
  __shared__ Real parts[32][32];
  if (to.kind < 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int64_t column = column0 + lane;
  const int64_t each = (chunks + warps - 1) / warps, first = warp * each;
  const int64_t last = first + each < chunks ? first + each : chunks;
  Real sum = 0;
  if (column < channels)
    for (int64_t k = first; k < last; k++) sum += sums[(which * chunks + k) * channels + column];
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= channels) return;
  for (int i = 1; i < warps; i++) sum += parts[i][lane];
  mn_element<Rule, Real> of = {&to, column};
  of.load();
  of.load_factors(rule);
  of.apply(rule, to.kind != MN_STORE && *nonfinite, sum);
}

/* The loss's CTAs come first, because the last of them to finish has to add the spans' sums as well. */
template <class Rule, typename Real>
static __global__ void __launch_bounds__(1024)
    column_sums_kernel(const Real *sums, int64_t chunks, int64_t channels, const sinks<Rule, Real> all,
                       const Rule rule, const int *nonfinite, const mn_summands loss) {
  if (blockIdx.x < loss.spans) return mn_sum_span<false, Real>(loss, blockIdx.x);
  const unsigned cta = blockIdx.x - loss.spans, which = cta % 3;
  sum_columns(sums, chunks, channels, all.of[which], rule, nonfinite, (int)which, (int64_t)(cta / 3) * 32);
}

template <typename Real>
mn_status mn_column_sums_cuda<Real>::run(struct mn_device *device, void *sums, int64_t chunks,
                                         int64_t channels, const struct mn_epilogue *const targets[3],
                                         const struct mn_reduction *loss) {
  const mn_summands summands = loss ? mn_summands_of(device, loss) : mn_summands{};
  const unsigned grid = mn_cuda_grid(summands.spans + 3 * (int64_t)mn_cuda_grid(channels, 32), 1);
  const unsigned threads = chunks <= 64 ? MN_CUDA_THREADS : 1024; /* a loss's span needs MN_CUDA_THREADS */
  const struct mn_rule *rule = mn_rule_of(targets, 3);
  mn_by_rule<Real>(rule->kind, [&](auto of) {
    typedef decltype(of) Rule;
    sinks<Rule, Real> all;
    for (int i = 0; i < 3; i++) all.of[i] = mn_sink_of<Rule, Real>(device, targets[i]);
    column_sums_kernel<<<grid, threads, 0, device->cuda->stream>>>(static_cast<const Real *>(sums), chunks,
                                                                   channels, all, Rule::of(device, rule),
                                                                   device->nonfinite, summands);
  });
  return mn_cuda_launched("column_sums");
}
MN_CUDA_INSTANTIATE(column_sums);
