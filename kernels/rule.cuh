/* The rules of updates on CUDA, for the pass over a weight (update.cu), for the GEMM's update epilogue
 * (hopper/update.cuh) and for the column sums, which update bias, gamma and beta. Formulas: struct mn_rule.
 *
 * A rule is a class. MOMENTS: how many reals it keeps of each weight: m, or v, or both. OPTIONAL: an update
 * may be without them. loaded: a thread's constants. step: updates one weight w and its moments; `kept`:
 * whether there are moments. */
#ifndef MN_KERNELS_RULE_CUH
#define MN_KERNELS_RULE_CUH

#include "kernels/cuda.cuh"

template <typename Real> struct mn_sgd {
  enum { MOMENTS = 1, OPTIONAL = 1 };
  const double *rate, *scale; /* on the device; scale may be NULL */
  const int *nonfinite;
  Real momentum, decay;
  bool nesterov;

  struct loaded {
    Real rate, scale;
    __device__ __forceinline__ loaded() {}
    __device__ __forceinline__ loaded(const mn_sgd &rule)
        : rate((Real)*rule.rate), scale(rule.scale ? (Real)*rule.scale : Real(1)) {}
  };

  static mn_sgd of(const struct mn_device *device, const struct mn_rule *rule) {
    return {
        rule->rate,         rule->scale, device->nonfinite, (Real)rule->momentum, (Real)rule->weight_decay,
        rule->nesterov != 0};
  }

  __device__ __forceinline__ void step(const loaded &of, bool kept, Real gradient, Real &w,
                                       Real (&moments)[MOMENTS]) const {
    Real g = of.scale * gradient + decay * w, step = g;
    if (kept) {
      Real &m = moments[0];
      m = momentum * m + g;
      step = nesterov ? g + momentum * m : m;
    }
    w -= of.rate * step;
  }
};

template <typename Real> struct mn_adamw {
  enum { MOMENTS = 2, OPTIONAL = 0 };
  const double *rate, *scale; /* as above; rate [MN_RATES] */
  const int *nonfinite;
  Real beta1, beta2, rest1, rest2, eps; /* rest1: 1 − beta1, rounded once */
  double decay;

  struct loaded {
    Real shrink, rate, second, scale;
    __device__ __forceinline__ loaded() {}
    __device__ __forceinline__ loaded(const mn_adamw &rule)
        : shrink((Real)(1 - rule.rate[MN_RATE] * rule.decay)),
          rate((Real)(rule.rate[MN_RATE] * rule.rate[MN_RATE_FIRST])),
          second((Real)rule.rate[MN_RATE_SECOND]), scale(rule.scale ? (Real)*rule.scale : Real(1)) {}
  };

  static mn_adamw of(const struct mn_device *device, const struct mn_rule *rule) {
    return {rule->rate,
            rule->scale,
            device->nonfinite,
            (Real)rule->beta1,
            (Real)rule->beta2,
            (Real)(1 - rule->beta1),
            (Real)(1 - rule->beta2),
            (Real)rule->eps,
            rule->weight_decay};
  }

  __device__ __forceinline__ void step(const loaded &of, bool, Real gradient, Real &w,
                                       Real (&moments)[MOMENTS]) const {
    Real g = of.scale * gradient, &m = moments[0], &v = moments[1];
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    w = of.shrink * w - of.rate * m / (sqrt(v) * of.second + eps);
  }
};

/* Calls `work` with an object of the rule's class, of which it uses the type alone; returns its result. */
template <typename Real, typename Work> static auto mn_by_rule(enum mn_rule_kind kind, Work work) {
  switch (kind) {
  case MN_SGD:
    return work(mn_sgd<Real>());
  case MN_ADAMW:
    return work(mn_adamw<Real>());
  case MN_RULES:
    break;
  }
  mn_abort(__FILE__, __LINE__, "a rule");
}

/* Updates number i of several weights, whose moments are moments[k][…]. */
template <class Rule, typename Real, int W>
__device__ __forceinline__ void mn_step(const Rule &rule, const typename Rule::loaded &of, bool kept,
                                        Real gradient, Real &w, Real (&moments)[Rule::MOMENTS][W], int i) {
  Real own[Rule::MOMENTS];
#pragma unroll
  for (int k = 0; k < Rule::MOMENTS; k++) own[k] = moments[k][i];
  rule.step(of, kept, gradient, w, own);
#pragma unroll
  for (int k = 0; k < Rule::MOMENTS; k++) moments[k][i] = own[k];
}

/* The moments of an update's weights, from element `offset` on: those that it has. */
template <class Rule, typename Real> struct mn_moments {
  Real *of[Rule::MOMENTS]; /* NULL in an update without them */
};
template <class Rule, typename Real>
static inline mn_moments<Rule, Real> mn_moments_of(const struct mn_update *update, int64_t offset) {
  mn_moments<Rule, Real> moments = {};
  int k = 0;
  MN_REQUIRE(update->m || !mn_rule_keeps_m(update->rule));
  MN_REQUIRE(update->v || !mn_rule_keeps_v(update->rule));
  for (void *moment : {update->m, update->v})
    if (moment && k < Rule::MOMENTS) moments.of[k++] = static_cast<Real *>(moment) + offset;
  return moments;
}

/* An epilogue that adds, on `count` values from index `offset` of its `into` on (elementwise.cu). */
template <typename Real> struct mn_accumulate_cuda {
  static mn_status run(struct mn_device *device, const struct mn_epilogue *epilogue, const Real *d,
                       int64_t offset, int64_t count);
};

/* The MN_UPDATE epilogue on `count` weights from index `offset` on, with their gradients d. */
template <typename Real> struct mn_update_cuda {
  static mn_status run(struct mn_device *device, const struct mn_update *update, Real *d, int64_t offset,
                       int64_t count);
};

#endif
