/* Adds the parts of a product whose depth was shared out (hopper/shares.cuh), and applies its epilogue.
 * Weights and moments are loaded before the product has ended: it writes none of them, and began when the
 * kernels before it had ended. */
#include "kernels/parts.cuh"

template <class Rule>
static __global__ void __launch_bounds__(MN_SLICES * 32)
    parts_kernel(const float *parts, int count, int64_t stride, int64_t values, const int *nonfinite,
                 const __grid_constant__ mn_sink<Rule> sink, const Rule rule) {
  const int64_t at = (int64_t)blockIdx.x * MN_SPAN;
  mn_element<Rule> of = {};
  if (threadIdx.x < MN_SPAN && at + threadIdx.x < values) of.to = &sink, of.at = at + threadIdx.x;
  of.load();
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  const int stop = __ldcg(nonfinite);
  of.load_factors(rule);
  of.apply(rule, stop, mn_parts_sum(parts, count, stride, at, values));
}

mn_status mn_parts_cuda(struct mn_device *device, const float *parts, int count, int64_t stride,
                        int64_t values, const struct mn_epilogue *epilogue) {
  const struct mn_rule *rule = mn_rule_of(&epilogue, 1);
  return mn_by_rule<float>(rule->kind, [&](auto of) {
    typedef decltype(of) Rule;
    return mn_cuda_launch_dependent("parts", device, mn_cuda_grid(values, MN_SPAN), MN_SLICES * 32, 0,
                                    parts_kernel<Rule>, parts, count, stride, values, device->nonfinite,
                                    mn_sink_of<Rule>(device, epilogue), Rule::of(device, rule));
  });
}
