/* What gemm.cu asks of the GEMM of our own: whether it does for a product, and then the product. */
#ifndef MN_KERNELS_HOPPER_GEMM_H
#define MN_KERNELS_HOPPER_GEMM_H

#include <cuda.h>

#include "kernels/gemm.h"

/* d[rows, cols] = a·b in `form`, all row-major and dense; a and b bfloat16. */
struct mn_hopper_product {
  enum mn_form form;
  int64_t rows, cols, depth;
  const void *a, *b;
};

/* Whether GPU, precision, sizes, addresses and epilogue suit it: compute capability 9.0; rows of 16-byte
 * multiples; a whole block of groups of 8, 16 … 256 whose loss or backward leaves dz for GEMMs alone, or
 * another epilogue in its usual form; and tiles that fill the GPU, or little depth. Of an epilogue's `into`
 * only MN_STORE and MN_ADD make use. */
bool mn_hopper_fits(const struct mn_device *device, const struct mn_hopper_product *p,
                    const struct mn_epilogue *epilogue);
mn_status mn_hopper_gemm(struct mn_device *device, const struct mn_hopper_product *p,
                         const struct mn_epilogue *epilogue);

/* The part of both that is in block.cu: MN_BLOCK, MN_BLOCK_LOSS, MN_BLOCK_BACKWARD. */
bool mn_hopper_block_fits(const struct mn_device *device, const struct mn_hopper_product *p,
                          const struct mn_epilogue *epilogue);
mn_status mn_hopper_block(struct mn_device *device, const struct mn_hopper_product *p,
                          const struct mn_epilogue *epilogue);

/* Describes an operand to the TMA: [across, depth], or, `down`, [depth, across]; a box is `box` by 64 of the
 * depth, or, `down`, 64 by 64. */
mn_status mn_hopper_map(struct mn_device *device, CUtensorMap *out, const void *matrix, bool down,
                        int64_t across, int64_t depth, int box);

#endif
