/* A narrow stack's run: its kernel, then one that adds the CTAs' parts in their order and applies every
 * parameter's sink to its gradient. */
#include "kernels/parts.cuh"
#include "kernels/stack/shapes.cuh"

template <class Rule> struct sums_args {
  const float *parts;
  int count, stride, width, lane_channels, depth, inputs, outputs;
  double *results, factor;
  int *nonfinite;
  bool measures;
  mn_scale *dz[MN_STACK_DEPTH + 1];
  Rule rule;
  mn_sink<Rule> sinks[MN_STACK_DEPTH + 1][4];
};

/* Element `at` of a weight's fragments: its row and column, as positions. */
static MN_GPU void place(int at, int width, int &row, int &col) {
  const int fragment = at / 128, lane = at / 4 % 32, k = at % 4;
  row = fragment / (width / 8) * 16 + lane / 4 + k / 2 * 8;
  col = fragment % (width / 8) * 8 + lane % 4 * 2 + k % 2;
}

/* The element whose gradient is the sum at `at` of the parts. */
template <class Rule> static MN_GPU mn_element<Rule> find(const sums_args<Rule> &p, int at) {
  const int W = p.width, T = p.lane_channels;
  const mn_stack_part part(W, p.depth, p.outputs > 0);
  mn_element<Rule> e = {};
  int row, col;
  if (at < part.vectors) {
    const int l = at / (W * W), cols = l ? W : p.inputs;
    place(at % (W * W), W, row, col);
    if (l > 0) col = mn_stack_channel(T, col);
    if (col < cols) e.to = &p.sinks[l][0], e.at = mn_stack_channel(T, row) * cols + col;
  } else if (at < part.head) {
    const int of = at - part.vectors;
    e.to = &p.sinks[of / (3 * W)][1 + of / W % 3], e.at = of % W;
  } else if (at < part.head_bias) {
    place(at - part.head, W, row, col);
    if (row < p.outputs) e.to = &p.sinks[p.depth][0], e.at = row * W + mn_stack_channel(T, col);
  } else if (at - part.head_bias < p.outputs) {
    e.to = &p.sinks[p.depth][1], e.at = at - part.head_bias;
  }
  if (e.to && e.to->kind < 0) e.to = NULL;
  return e;
}

/* The loss and the rows classified correctly, each by one warp; then the factors of dz. */
template <class Rule> static __device__ void take_scalars(const sums_args<Rule> &p) {
  const int lane = (int)threadIdx.x % 32, which = (int)threadIdx.x / 32;
  const float *from = p.parts + mn_stack_part(p.width, p.depth, p.outputs > 0).scalars + which;
  double sum = 0;
  float largest = 0;
  if (which >= 2 && (which > 2 + MN_STACK_DEPTH || !p.dz[which - 2])) return;
  for (int c = lane; c < p.count; c += 32) {
    const float value = from[(int64_t)c * p.stride];
    sum += value, largest = fmaxf(largest, value);
  }
  sum = mn_lanes_sum<32>(sum), largest = mn_lanes_largest(largest);
  if (lane > 0) return;
  if (which < 2) {
    p.results[which] = which ? sum : p.factor * sum;
  } else {
    mn_scale *dz = p.dz[which - 2];
    const float stood = p.measures ? dz->factor : mn_scale_next(dz), factor = stood > 0 ? stood : 1;
    *dz = {p.measures ? mn_scale_factor(largest, MN_HEADROOM_DZ, factor) : factor, largest};
  }
}

/* Parameters and moments are loaded, from the L2 cache, before the kernel that writes the parts has ended: it
 * writes none of them, and began when the last update had ended. */
template <class Rule>
static __global__ void __launch_bounds__(MN_SLICES * 32)
    sums_kernel(const __grid_constant__ sums_args<Rule> p) {
  const int at = ((int)blockIdx.x - 1) * MN_SPAN;
  mn_element<Rule> of = {};
  if (threadIdx.x < MN_SPAN && blockIdx.x > 0) of = find(p, at + (int)threadIdx.x), of.load();
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  if (blockIdx.x == 0) return take_scalars(p);
  const int nonfinite = __ldcg(p.nonfinite);
  of.load_factors(p.rule);
  const int end = mn_stack_part(p.width, p.depth, p.outputs > 0).scalars;
  const float sum = mn_parts_sum(p.parts, p.count, p.stride, at, end);
  of.apply(p.rule, nonfinite, sum);
}

/* ---- the host's side ---- */

static mn_stack_plan plan_of(struct mn_device *device, const struct mn_stack *s) {
  int shared = 0, major = 0;
  if (device->planes != 1 || s->depth > MN_STACK_DEPTH || s->outputs > MN_STACK_HEAD ||
      s->inputs > s->channels || s->inputs % 8 || s->rows > INT32_MAX / 2 ||
      !((float)s->slope > -1 && s->slope <= 1)) /* mn_stack_bend divides by 1 + slope */
    return {};
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device->ordinal) != cudaSuccess ||
      cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->ordinal) !=
          cudaSuccess ||
      major < 8)
    return {};
  shared -= 512; /* the kernel's own, and what aligns the rest */
  return device->plane_kind == MN_PLANES_BF16 ? mn_stack_shapes<MN_PLANES_BF16>::choose(s, shared)
                                              : mn_stack_shapes<MN_PLANES_FP16>::choose(s, shared);
}

static int parts_of(const mn_stack_plan &plan) {
  return plan.tiles < MN_STACK_PARTS ? plan.tiles : MN_STACK_PARTS;
}

static int stride_of(const struct mn_stack *s) {
  return (mn_stack_part((int)s->channels, s->depth, s->outputs > 0).end + 31) / 32 * 32;
}

int64_t mn_stack_parts_cuda(struct mn_device *device, const struct mn_stack *s) {
  const mn_stack_plan plan = plan_of(device, s);
  return (int64_t)parts_of(plan) * stride_of(s);
}

static mn_stack_args args_of(struct mn_device *device, const struct mn_stack *s, const mn_stack_plan &plan) {
  mn_stack_args a = {};
  const int layers = s->depth + (s->outputs > 0);
  for (int l = 0; l < layers; l++) {
    const struct mn_stack_layer &of = s->layers[l];
    a.layers[l] = {static_cast<const uint16_t *>(of.weight->planes[0]),
                   static_cast<const float *>(of.bias),
                   static_cast<const float *>(of.gamma),
                   static_cast<const float *>(of.beta),
                   of.weight->scale,
                   of.dz};
  }
  a.x = static_cast<const uint16_t *>(s->x->planes[0]), a.x_scale = s->x->scale;
  a.target = static_cast<const float *>(s->target), a.labels = s->labels;
  a.weights = static_cast<const float *>(s->weights);
  a.y = s->y ? static_cast<float *>(s->y->real) : NULL, a.y_planes = mn_planes_of(device, s->y);
  a.parts = static_cast<float *>(s->parts);
  a.nonfinite = device->nonfinite, a.mark = device->mark;
  a.rows = (int)s->rows, a.inputs = (int)s->inputs, a.depth = s->depth,
  a.group = (int)(s->channels / s->groups);
  a.outputs = (int)s->outputs, a.stride = stride_of(s);
  a.reloads = plan.reloads;
  a.eps = (float)s->eps, a.slope = (float)s->slope, a.bend = mn_stack_bend(a.slope),
  a.scale = (float)s->scale;
  return a;
}

static mn_status run_sums(struct mn_device *device, const struct mn_stack *s, const mn_stack_plan &plan,
                          bool measures) {
  const int sinks = s->sinks ? 4 * s->depth + 2 * (s->outputs > 0) : 0;
  const struct mn_rule *rule = mn_rule_of(s->sinks, sinks);
  return mn_by_rule<float>(rule->kind, [&](auto of) {
    typedef decltype(of) Rule;
    const mn_stack_part part((int)s->channels, s->depth, s->outputs > 0);
    sums_args<Rule> a = {};
    a.parts = static_cast<const float *>(s->parts), a.count = parts_of(plan), a.stride = stride_of(s);
    a.width = (int)s->channels, a.lane_channels = plan.lane_channels, a.depth = s->depth,
    a.inputs = (int)s->inputs;
    a.outputs = (int)s->outputs, a.results = s->results, a.factor = s->factor;
    a.nonfinite = device->nonfinite, a.measures = measures, a.rule = Rule::of(device, rule);
    for (int l = 0; l < s->depth + (s->outputs > 0); l++) {
      a.dz[l] = s->layers[l].dz;
      for (int k = 0; k < (l < s->depth ? 4 : 2); k++)
        a.sinks[l][k] = mn_sink_of<Rule>(device, sinks ? s->sinks[4 * l + k] : NULL);
    }
    const unsigned groups = measures ? 0 : mn_cuda_grid(part.scalars, MN_SPAN);
    return mn_cuda_launch_dependent("stack_sums", device, 1 + groups, MN_SLICES * 32, 0, sums_kernel<Rule>,
                                    a);
  });
}

mn_status mn_stack_cuda(struct mn_device *device, const struct mn_stack *s) {
  const mn_stack_plan plan = plan_of(device, s);
  MN_REQUIRE(plan.kernel);
  mn_stack_args a = args_of(device, s, plan);
  MN_CUDA_TRY(cudaFuncSetAttribute(plan.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared));
  int ctas = parts_of(plan);
  if (s->y) { /* as many as run at a time, with equal numbers of tiles */
    int each = 0;
    MN_CUDA_TRY(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, plan.kernel, plan.threads, (size_t)plan.shared));
    const int most = each * device->cuda->multiprocessors, turns = (plan.tiles + most - 1) / most;
    ctas = (plan.tiles + turns - 1) / turns;
  }
  /* Each run measures one layer's dz more, from the last on: those below follow from it. */
  const int measured = s->measures && s->layers[0].dz && !s->y ? s->depth + (s->outputs > 0) : 0;
  for (int k = 0; k <= measured; k++) {
    a.measures = k < measured;
    MN_TRY(
        mn_cuda_launch_dependent("stack", device, ctas, (unsigned)plan.threads, plan.shared, plan.kernel, a));
    if (!s->y) MN_TRY(run_sums(device, s, plan, a.measures));
  }
  return MN_OK;
}
