/* All epilogues of the Hopper GEMM, for the file that compiles them for one kind of planes. */
#ifndef MN_KERNELS_HOPPER_EPILOGUES_CUH
#define MN_KERNELS_HOPPER_EPILOGUES_CUH

#include "kernels/hopper/block.cuh"
#include "kernels/hopper/update.cuh"

template <bool Add, enum mn_plane_kind Kind>
static mn_status store(struct mn_device *device, const struct mn_hopper_product *p,
                       const struct mn_epilogue *e) {
  if constexpr (Kind == MN_PLANES_FP16X2)
    if (!mn_tiles_fill<mn_plain_tile<Kind>>(device, p))
      return launch_store<Add, mn_small_tile<Kind>>(device, p, e);
  return launch_store<Add, mn_plain_tile<Kind>>(device, p, e);
}

template <enum mn_plane_kind Kind>
mn_hopper_launcher *mn_hopper<Kind>::plan(const struct mn_device *device, const struct mn_hopper_product *p,
                                          const struct mn_epilogue *epilogue) {
  const enum mn_epilogue_kind kind = epilogue->kind;
  if (mn_is_block(kind)) return plan_block<Kind>(device, p, epilogue);
  if (kind == MN_UPDATE) return plan_update<Kind>(device, p, epilogue->update);
  if (!mn_aligned(16, epilogue->into)) return NULL;
  const bool shares = !epilogue->narrow && shares_pay<Kind>(p);
  if (shares && (kind == MN_STORE || kind == MN_ADD)) return share_out<Kind>;
  if (Kind != MN_PLANES_FP16X2 && !shares && !mn_tiles_fill<mn_plain_tile<Kind>>(device, p)) return NULL;
  return kind == MN_STORE                 ? store<false, Kind>
         : kind == MN_ADD                 ? store<true, Kind>
         : kind == MN_REDUCE_SCATTER      ? mn_hopper_reduce_scatter
         : kind == MN_REDUCE_SCATTER_ROWS ? mn_hopper_reduce_scatter_rows
                                          : NULL;
}

#endif
