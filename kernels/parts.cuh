/* Gradients that CTAs computed in parts: their sums, added in order, go to the sinks of their parameters. */
#ifndef MN_KERNELS_PARTS_CUH
#define MN_KERNELS_PARTS_CUH

#include "kernels/planes.cuh"
#include "kernels/rule.cuh"

enum { MN_SLICES = 16, MN_SPAN = 128 }; /* a CTA adds MN_SPAN sums, each in MN_SLICES of the parts */

/* A parameter's sink. */
template <class Rule, typename Real = float> struct mn_sink {
  int kind; /* enum mn_epilogue_kind; −1 if not wanted */
  Real *into;
  mn_weight<Real> w; /* of a gradient of 16 bits its planes alone */
  mn_moments<Rule, Real> moments;
};

/* An element of a parameter, and what its update reads. */
template <class Rule, typename Real = float> struct mn_element {
  const mn_sink<Rule, Real> *to; /* NULL: not wanted */
  int64_t at;
  Real value[1], moments[Rule::MOMENTS];
  float factor;
  typename Rule::loaded rates;
  MN_GPU void load() {
    if (!to) return;
    if (to->kind == MN_ADD) value[0] = __ldcg(to->into + at);
    if (to->kind != MN_UPDATE) return;
    value[0] = to->w.low ? mn_join_halves(__ldcg(to->w.planes.high + at), __ldcg(to->w.low + at))
                         : __ldcg(to->w.real + at);
    MN_UNROLL(int k = 0; k < Rule::MOMENTS; k++)
      moments[k] = to->moments.of[k] ? __ldcg(to->moments.of[k] + at) : Real(0);
  }
  MN_GPU void load_factors(const Rule &rule) {
    if (to && to->kind == MN_UPDATE) factor = mn_planes_factor(to->w.planes), rates = rule.load();
  }
  MN_GPU void apply(const Rule &rule, int nonfinite, Real gradient) {
    if (!to || (to->kind != MN_STORE && nonfinite)) return;
    if (to->kind != MN_UPDATE)
      return mn_forms_store<1>(to->into, to->w.planes, 1, at,
                               {to->kind == MN_ADD ? value[0] + gradient : gradient});
    rule.step(rates, to->moments.of[0] != NULL, gradient, value[0], moments[0], moments[Rule::MOMENTS - 1]);
    MN_UNROLL(int k = 0; k < Rule::MOMENTS; k++)
      if (to->moments.of[k]) to->moments.of[k][at] = moments[k];
    mn_weight_store<1>(to->w, factor, at, value, 1);
  }
};

/* The sum of value `at` + threadIdx.x of each of `count` parts, `stride` values apart, for the first MN_SPAN
 * threads of MN_SLICES warps; 0 from `end` on. at and stride: multiples of 4. */
static MN_GPU float mn_parts_sum(const float *parts, int count, int64_t stride, int64_t at, int64_t end) {
  __shared__ float4 slices[MN_SLICES][32];
  const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
  const float4 *from = reinterpret_cast<const float4 *>(parts + at) + lane;
  float4 sum = make_float4(0, 0, 0, 0);
  _Pragma("unroll 8") for (int c = slice; c < count && at + 4 * lane < end; c += MN_SLICES) {
    const float4 v = __ldcg(from + c * (stride / 4));
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  slices[slice][lane] = sum;
  __syncthreads();
  float all = 0;
  if (threadIdx.x < MN_SPAN)
    MN_UNROLL(int k = 0; k < MN_SLICES; k++) all += reinterpret_cast<const float *>(slices[k])[threadIdx.x];
  return all;
}

template <class Rule, typename Real = float>
static mn_sink<Rule, Real> mn_sink_of(struct mn_device *device, const struct mn_epilogue *epilogue) {
  mn_sink<Rule, Real> to = {};
  to.kind = epilogue ? (int)epilogue->kind : -1;
  if (!epilogue) return to;
  if (epilogue->kind == MN_REDUCE_SCATTER_ROWS) to.kind = MN_STORE; /* the caller sums */
  MN_REQUIRE(to.kind == MN_STORE || to.kind == MN_ADD || to.kind == MN_UPDATE);
  Real *const into = static_cast<Real *>(epilogue->into);
  if (epilogue->narrow) to.w.planes = mn_planes_at(into, device->plane_kind);
  if (!epilogue->narrow) to.into = into;
  if (epilogue->kind != MN_UPDATE) return to;
  to.w = mn_weight_of<Real>(device, epilogue->update->w);
  to.moments = mn_moments_of<Rule, Real>(epilogue->update, 0);
  return to;
}

/* MN_STORE, MN_ADD or MN_UPDATE on the sums of `count` parts of `values` values each. */
mn_status mn_parts_cuda(struct mn_device *device, const float *parts, int count, int64_t stride,
                        int64_t values, const struct mn_epilogue *epilogue);

#endif
