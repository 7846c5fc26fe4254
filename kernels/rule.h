/* The CPU's update of one parameter, and whether a GEMM can add the gradient to the momentum itself. */
#ifndef MN_KERNELS_RULE_H
#define MN_KERNELS_RULE_H

#include "kernels/types.h"

/* Applies the update's rule. gradient NULL, SGD alone: m already holds momentum·m + gradient. Does nothing
 * once the nonfinite flag is set. */
void mn_rule_cpu_fp32(struct mn_device *device, const struct mn_update *update, void *gradient);
void mn_rule_cpu_fp64(struct mn_device *device, const struct mn_update *update, void *gradient);

/* Whether a GEMM with beta = momentum can compute momentum·m + gradient in place. Not with Nesterov, which
 * needs the gradient by itself, nor with a scale, which must not multiply the old momentum. */
static inline int mn_rule_by_gemm(const struct mn_rule *rule) {
  return rule->kind == MN_SGD && rule->momentum != 0 && !rule->nesterov && !rule->scale;
}

#endif
