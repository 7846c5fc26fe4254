/* Updates on CUDA: the one pass of an update over a weight's forms and its moments, the global gradient norm
 * and the clipping scale. */
#include "kernels/planes.cuh"
#include "kernels/rule.cuh"

/* The flag is loaded together with the data and only guards the stores, so that no load waits for it. */
template <class Rule, typename Real, int W>
MN_CUDA_KERNEL update_kernel(const mn_weight<Real> w, const mn_moments<Rule, Real> moments, const Real *d,
                             Real *cleared, int64_t count, const Rule rule) {
  int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W, n = count - at;
  if (n <= 0) return;
  Real vw[W], vd[W], vm[Rule::MOMENTS][W] = {};
  mn_weight_load<W>(vw, w, at, n);
  mn_load_some<W>(vd, d + at, n);
  MN_UNROLL(int k = 0; k < Rule::MOMENTS; k++)
    if (moments.of[k]) mn_load_some<W>(vm[k], moments.of[k] + at, n);
  const int stop = *rule.nonfinite;
  const float factor = mn_planes_factor(w.planes);
  const auto loaded = rule.load();
  MN_UNROLL(int i = 0; i < W; i++)
    rule.step(loaded, moments.of[0] != NULL, vd[i], vw[i], vm[0][i], vm[Rule::MOMENTS - 1][i]);
  if (stop) return;
  MN_UNROLL(int k = 0; k < Rule::MOMENTS; k++)
    if (moments.of[k]) mn_store_some<W>(moments.of[k] + at, vm[k], n);
  mn_weight_store<W>(w, factor, at, vw, n);
  const Real zeros[W] = {};
  if (cleared) mn_store_some<W>(cleared + at, zeros, n);
}

template <typename Real>
mn_status mn_update_cuda<Real>::run(struct mn_device *device, const struct mn_update *update, Real *d,
                                    int64_t offset, int64_t count) {
  MN_REQUIRE(d);
  constexpr int W = mn_width<Real>;
  const mn_weight<Real> w = mn_weight_of<Real>(device, update->w, offset);
  return mn_by_rule<Real>(update->rule->kind, [&](auto rule) {
    typedef decltype(rule) Rule;
    const mn_moments<Rule, Real> moments = mn_moments_of<Rule, Real>(update, offset);
    bool wide = mn_aligned(16, w.real, d) && mn_aligned(2 * W, w.planes.high, w.planes.low, w.low);
    for (Real *moment : moments.of) wide = wide && mn_aligned(16, moment);
    return mn_cuda_launch("update", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                          wide ? update_kernel<Rule, Real, W> : update_kernel<Rule, Real, 1>, w, moments, d,
                          update->clears ? d : NULL, count, Rule::of(device, update->rule));
  });
}
MN_CUDA_INSTANTIATE(update);

/* A norm that is not finite sets the flag, which stops the update whatever the scale. */
MN_CUDA_KERNEL clip_kernel(double *scale, double *norm_out, int *nonfinite, int mark, const double *squares,
                           int64_t count, double max_norm) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += MN_CUDA_THREADS) sum += squares[i];
  sum = mn_cta_sum(sum);
  const double norm = sum < 0 ? 0 : sqrt(sum);
  if (threadIdx.x != 0) return;
  if (!isfinite(norm)) mn_raise(nonfinite, mark);
  *norm_out = norm;
  double ratio = max_norm / (norm + 1e-6);
  *scale = ratio < 1 ? ratio : 1;
}

template <typename Real>
mn_status mn_clip_cuda<Real>::run(struct mn_device *device, double *scale, double *norm,
                                  const double *squares, int64_t count, double max_norm) {
  return mn_cuda_launch("clip", device, 1, 1, clip_kernel, scale, norm, device->nonfinite, device->mark,
                        squares, count, max_norm);
}
MN_CUDA_INSTANTIATE(clip);
