/* SGD's rule on CUDA, for the pass over a weight (update.cu), for the GEMM's update epilogue
 * (hopper/update.cuh) and for the column sums, which update bias, gamma and beta. Formula: struct mn_sgd. */
#ifndef MN_KERNELS_SGD_CUH
#define MN_KERNELS_SGD_CUH

#include "kernels/cuda.cuh"

template <typename Real> struct mn_sgd_rule {
  const double *rate, *scale; /* on the device; scale may be NULL */
  const int *nonfinite;
  Real momentum, decay;
  bool nesterov;
};

template <typename Real>
static inline mn_sgd_rule<Real> mn_sgd_rule_of(const struct mn_device *device, const struct mn_sgd *sgd) {
  return {sgd->rate,         sgd->scale, device->nonfinite, (Real)sgd->momentum, (Real)sgd->weight_decay,
          sgd->nesterov != 0};
}

/* Updates one weight w and, where there is momentum, m. rate and scale are *rule.rate and *rule.scale, which
 * the caller has loaded. */
template <typename Real>
__device__ __forceinline__ void mn_sgd_step(const mn_sgd_rule<Real> &rule, Real rate, Real scale,
                                            bool has_momentum, Real gradient, Real &w, Real &m) {
  Real g = scale * gradient + rule.decay * w, step = g;
  if (has_momentum) {
    m = rule.momentum * m + g;
    step = rule.nesterov ? g + rule.momentum * m : m;
  }
  w -= rate * step;
}

/* The MN_ADD epilogue on `count` values (block.cu). */
template <typename Real>
mn_status mn_cuda_accumulate(struct mn_device *device, Real *into, const Real *d, int64_t count);

/* The MN_UPDATE epilogue on `count` weights from index `offset` on, with their gradients d. */
template <typename Real>
mn_status mn_cuda_update(struct mn_device *device, const struct mn_update *update, Real *d, int64_t offset,
                         int64_t count);

#endif
