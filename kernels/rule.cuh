/* The rules of updates on CUDA, for the pass over a weight (update.cu), for the GEMM's update epilogue
 * (hopper/update.cuh) and for the column sums, which update bias, gamma and beta. Formulas: struct mn_rule.
 *
 * A rule is a class. MOMENTS: how many reals it keeps of each weight: m, or m and v. OPTIONAL: an update may
 * be without them. loaded: a thread's constants. step: updates one weight w and its moments, the first and
 * the last of those that it keeps; `kept`: whether there are moments. */
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
  };

  MN_GPU loaded load() const { return {(Real)*rate, scale ? (Real)*scale : Real(1)}; }

  static mn_sgd of(const struct mn_device *device, const struct mn_rule *rule) {
    const Real momentum = (Real)rule->momentum, decay = (Real)rule->weight_decay;
    return {rule->rate, rule->scale, device->nonfinite, momentum, decay, rule->nesterov != 0};
  }

  MN_GPU void step(const loaded &of, bool kept, Real gradient, Real &w, Real &m, Real &) const {
    Real g = of.scale * gradient + decay * w, step = g;
    if (kept) {
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
  };

  MN_GPU loaded load() const {
    return {(Real)(1 - rate[MN_RATE] * decay), (Real)(rate[MN_RATE] * rate[MN_RATE_FIRST]),
            (Real)rate[MN_RATE_SECOND], scale ? (Real)*scale : Real(1)};
  }

  static mn_adamw of(const struct mn_device *device, const struct mn_rule *rule) {
    const Real beta1 = (Real)rule->beta1, beta2 = (Real)rule->beta2, eps = (Real)rule->eps;
    const Real rest1 = (Real)(1 - rule->beta1), rest2 = (Real)(1 - rule->beta2);
    return {rule->rate, rule->scale, device->nonfinite, beta1, beta2, rest1, rest2, eps, rule->weight_decay};
  }

  MN_GPU void step(const loaded &of, bool, Real gradient, Real &w, Real &m, Real &v) const {
    const Real g = of.scale * gradient;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    w = of.shrink * w - of.rate * m / (sqrt(v) * of.second + eps);
  }
};

/* Calls `work` with an object of the rule's class, of which it uses the type alone; returns its result. */
template <typename Real, typename Work> static auto mn_by_rule(enum mn_rule_kind kind, Work work) {
  MN_REQUIRE(kind == MN_SGD || kind == MN_ADAMW);
  return kind == MN_SGD ? work(mn_sgd<Real>()) : work(mn_adamw<Real>());
}

/* The rule by which sinks, of which some may be NULL, update: of one kind. Without an update any will do. */
static inline const struct mn_rule *mn_rule_of(const struct mn_epilogue *const *sinks, int count) {
  static const struct mn_rule none = {};
  const struct mn_rule *rule = &none;
  for (int i = 0; i < count; i++) {
    if (!sinks[i] || sinks[i]->kind != MN_UPDATE) continue;
    MN_REQUIRE(rule == &none || rule->kind == sinks[i]->update->rule->kind);
    rule = sinks[i]->update->rule;
  }
  return rule;
}

/* The moments of an update's weights, from element `offset` on: those that it has. */
template <class Rule, typename Real> struct mn_moments {
  Real *of[Rule::MOMENTS]; /* NULL in an update without them */
};
template <class Rule, typename Real>
static inline mn_moments<Rule, Real> mn_moments_of(const struct mn_update *update, int64_t offset) {
  mn_moments<Rule, Real> moments = {};
  int k = 0;
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
