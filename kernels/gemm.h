/* The matrix product, and what happens to its result: the one heavy operation of the engine. */
#ifndef MN_KERNELS_GEMM_H
#define MN_KERNELS_GEMM_H

#include "kernels/types.h"

enum mn_form {
  MN_NT, /* d[rows, cols] = a[rows, depth] · b[cols, depth]ᵀ    the forward:  z  = x·Wᵀ  */
  MN_NN, /* d[rows, cols] = a[rows, depth] · b[depth, cols]     backward:     dx = dz·W  */
  MN_TN, /* d[rows, cols] = a[depth, rows]ᵀ · b[depth, cols]    backward:     dW = dzᵀ·x */
};

/* d = a·b in `form`, and `epilogue` applied to d. Sizes are the operands'. Where both operands have planes,
 * those are read, which must not be stale; else the real forms. A MN_BLOCK… epilogue's block is [rows, cols]
 * = [N, C]. The product is computed by OpenBLAS on the CPU; on CUDA by the GEMM of our own where
 * kernels/hopper/gemm.h says that it fits, else by cuBLASLt with the heuristic's first algorithm for a fixed
 * workspace (split-K only with a reduction of fixed order). An operand that is a part (`whole`: b of MN_NT, a
 * of MN_TN) gives cuBLASLt's bytes for that part of the whole product, where the algorithm for the whole can
 * compute it. MN_LIBRARY when the library refuses. */
typedef mn_status mn_gemm_function(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                                   const struct mn_operand *b, const struct mn_epilogue *epilogue);

#endif
