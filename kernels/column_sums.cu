/* The last step of the block's column sums on CUDA: adds the chunks' partial sums to dbias, dgamma and dbeta
 * and applies their sinks. All three, and the sum of a fused loss, take one launch, because in a small
 * step launches are most of the time. */
#include "kernels/planes.cuh"
#include "kernels/reduce.cuh"
#include "kernels/rule.cuh"

/* The sink of one vector of column sums. */
template <class Rule, typename Real> struct sink {
  int kind; /* enum mn_epilogue_kind; −1 if not wanted */
  Real *into;
  mn_planes planes; /* the parameter's planes, beside its reals */
  mn_moments<Rule, Real> moments;
  const int *nonfinite;
  Rule rule;
};
template <class Rule, typename Real> struct sinks { sink<Rule, Real> of[3]; };

/* One CTA sums 32 columns of the vector `which`. Each warp adds a range of the chunks in order, then the
 * warps' sums are added in order. The ranges, and so the result's bytes, depend on the number of chunks
 * alone. */
template <class Rule, typename Real>
static __device__ void sum_columns(const Real *sums, int64_t chunks, int64_t channels,
                                   const sink<Rule, Real> &to, int which, int64_t column0) {
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
  if (to.kind != MN_STORE && *to.nonfinite) return;
  if (to.kind == MN_ADD) sum += to.into[column];
  if (to.kind == MN_UPDATE) {
    Real w = to.into[column], moments[Rule::MOMENTS];
    MN_UNROLL(int k = 0; k < Rule::MOMENTS; k++)
      moments[k] = to.moments.of[k] ? to.moments.of[k][column] : Real(0);
    to.rule.step(to.rule.load(), to.moments.of[0] != NULL, sum, w, moments[0], moments[Rule::MOMENTS - 1]);
    MN_UNROLL(int k = 0; k < Rule::MOMENTS; k++)
      if (to.moments.of[k]) to.moments.of[k][column] = moments[k];
    sum = w;
  }
  mn_forms_store<1>(to.into, to.planes, mn_planes_factor(to.planes), column, {sum});
}

/* The loss's CTAs come first, because the last of them to finish has to add the spans' sums as well. */
template <class Rule, typename Real>
static __global__ void __launch_bounds__(1024)
    column_sums_kernel(const Real *sums, int64_t chunks, int64_t channels, const sinks<Rule, Real> all,
                       const mn_summands loss) {
  if (blockIdx.x < loss.spans) return mn_sum_span<false, Real>(loss, blockIdx.x);
  const unsigned cta = blockIdx.x - loss.spans, which = cta % 3;
  sum_columns(sums, chunks, channels, all.of[which], (int)which, (int64_t)(cta / 3) * 32);
}

template <class Rule, typename Real>
static sink<Rule, Real> sink_of(struct mn_device *device, int64_t channels,
                                const struct mn_epilogue *epilogue) {
  sink<Rule, Real> to = {};
  to.kind = epilogue ? (int)epilogue->kind : -1;
  if (!epilogue) return to;
  MN_REQUIRE(epilogue->kind == MN_STORE || epilogue->kind == MN_ADD || epilogue->kind == MN_UPDATE);
  to.into = epilogue->narrow ? NULL : static_cast<Real *>(epilogue->into);
  if (epilogue->narrow) to.planes = mn_planes_at(static_cast<Real *>(epilogue->into), device->plane_kind);
  to.nonfinite = device->nonfinite;
  if (epilogue->kind == MN_UPDATE) {
    const struct mn_update *update = epilogue->update;
    MN_REQUIRE(update->w->rows * update->w->cols == channels);
    to.planes = mn_planes_of(device, update->w);
    to.into = static_cast<Real *>(update->w->real);
    to.moments = mn_moments_of<Rule, Real>(update, 0);
    to.rule = Rule::of(device, update->rule);
  }
  MN_REQUIRE(to.into || to.planes.high);
  return to;
}

template <typename Real>
mn_status mn_column_sums_cuda<Real>::run(struct mn_device *device, void *sums, int64_t chunks,
                                         int64_t channels, const struct mn_epilogue *const targets[3],
                                         const struct mn_reduction *loss) {
  const mn_summands summands = loss ? mn_summands_of(device, loss) : mn_summands{};
  const unsigned grid = mn_cuda_grid(summands.spans + 3 * (int64_t)mn_cuda_grid(channels, 32), 1);
  const unsigned threads = chunks <= 64 ? MN_CUDA_THREADS : 1024; /* a loss's span needs MN_CUDA_THREADS */
  mn_by_rule<Real>(mn_rule_of(targets, 3)->kind, [&](auto rule) {
    typedef decltype(rule) Rule;
    sinks<Rule, Real> all;
    for (int i = 0; i < 3; i++) all.of[i] = sink_of<Rule, Real>(device, channels, targets[i]);
    column_sums_kernel<<<grid, threads, 0, device->cuda->stream>>>(static_cast<const Real *>(sums), chunks,
                                                                   channels, all, summands);
  });
  return mn_cuda_launched("column_sums");
}
MN_CUDA_INSTANTIATE(column_sums);
