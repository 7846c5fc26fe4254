/* The Hopper GEMM with each epilogue, for one kind of planes. */
#ifndef MN_KERNELS_HOPPER_KINDS_CUH
#define MN_KERNELS_HOPPER_KINDS_CUH

#include "kernels/hopper/gemm.h"

/* mn_hopper_fits and mn_hopper_gemm (gemm.h) for products of planes of this kind. The file that includes
 * epilogues.cuh instantiates it. */
template <enum mn_plane_kind Kind> struct mn_hopper {
  static bool fits(const struct mn_device *device, const struct mn_hopper_product *p,
                   const struct mn_epilogue *epilogue);
  static mn_status run(struct mn_device *device, const struct mn_hopper_product *p,
                       const struct mn_epilogue *epilogue);
};

#endif
