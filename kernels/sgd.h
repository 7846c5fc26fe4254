/* The CPU's update of one parameter, and whether a GEMM can add the gradient to the momentum itself. */
#ifndef MN_KERNELS_SGD_H
#define MN_KERNELS_SGD_H

#include "kernels/types.h"

/* Applies struct mn_sgd's rule. gradient NULL: momentum already holds momentum·m + gradient. Does nothing
 * once the nonfinite flag is set. */
void mn_sgd_cpu_fp32(struct mn_device *device, const struct mn_update *update, void *gradient);
void mn_sgd_cpu_fp64(struct mn_device *device, const struct mn_update *update, void *gradient);

/* Whether a GEMM with beta = momentum can compute momentum·m + gradient in place. Not with Nesterov, which
 * needs the gradient by itself, nor with a scale, which must not multiply the old momentum. */
static inline int mn_sgd_by_gemm(const struct mn_sgd *sgd) {
  return sgd->momentum != 0 && !sgd->nesterov && !sgd->scale;
}

#endif
