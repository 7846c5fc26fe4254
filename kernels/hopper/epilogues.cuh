/* All epilogues of the Hopper GEMM, for the file that compiles them for one kind of planes. */
#ifndef MN_KERNELS_HOPPER_EPILOGUES_CUH
#define MN_KERNELS_HOPPER_EPILOGUES_CUH

#include "kernels/hopper/block.cuh"
#include "kernels/hopper/store.cuh"
#include "kernels/hopper/update.cuh"

template <enum mn_plane_kind Kind>
mn_status mn_hopper<Kind>::store(struct mn_device *device, const struct mn_hopper_product *p,
                                 const struct mn_epilogue *epilogue) {
  return ::store<false, Kind>(device, p, epilogue);
}

template <enum mn_plane_kind Kind>
mn_hopper_launcher *mn_hopper<Kind>::plan(const struct mn_device *device, const struct mn_hopper_product *p,
                                          const struct mn_epilogue *epilogue) {
  const bool stores = store_fits<Kind>(device, p, epilogue->into);
  switch (epilogue->kind) {
  case MN_STORE:
    return stores ? store : NULL;
  case MN_ADD:
    return stores ? ::store<true, Kind> : NULL;
  case MN_REDUCE_SCATTER:
    return stores ? mn_hopper_reduce_scatter : NULL;
  case MN_REDUCE_SCATTER_ROWS:
    return stores ? mn_hopper_reduce_scatter_rows : NULL;
  case MN_UPDATE:
    return plan_update<Kind>(device, p, epilogue->update);
  case MN_BLOCK:
  case MN_BLOCK_LOSS:
  case MN_BLOCK_BACKWARD:
    return plan_block<Kind>(device, p, epilogue);
  }
  mn_abort(__FILE__, __LINE__, "an epilogue kind");
}

#endif
