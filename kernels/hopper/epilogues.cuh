/* All epilogues of the Hopper GEMM, for the file that compiles them for one kind of planes. */
#ifndef MN_KERNELS_HOPPER_EPILOGUES_CUH
#define MN_KERNELS_HOPPER_EPILOGUES_CUH

#include "kernels/hopper/block.cuh"
#include "kernels/hopper/kinds.cuh"
#include "kernels/hopper/store.cuh"
#include "kernels/hopper/update.cuh"

template <enum mn_plane_kind Kind>
mn_status mn_hopper<Kind>::run(struct mn_device *device, const struct mn_hopper_product *p,
                               const struct mn_epilogue *epilogue) {
  switch (epilogue->kind) {
  case MN_STORE:
    return store<false, Kind>(device, p, epilogue);
  case MN_ADD:
    return store<true, Kind>(device, p, epilogue);
  case MN_UPDATE:
    return update<Kind>(device, p, epilogue->update);
  case MN_BLOCK:
  case MN_BLOCK_LOSS:
  case MN_BLOCK_BACKWARD:
    return block<Kind>(device, p, epilogue);
  case MN_REDUCE_SCATTER:
  case MN_REDUCE_SCATTER_ROWS:
    break; /* mn_hopper_gemm */
  }
  mn_abort(__FILE__, __LINE__, "an epilogue kind");
}

template <enum mn_plane_kind Kind>
bool mn_hopper<Kind>::fits(const struct mn_device *device, const struct mn_hopper_product *p,
                           const struct mn_epilogue *epilogue) {
  switch (epilogue->kind) {
  case MN_STORE:
  case MN_ADD:
  case MN_REDUCE_SCATTER:
  case MN_REDUCE_SCATTER_ROWS:
    return store_fits<Kind>(device, p, epilogue->into);
  case MN_UPDATE:
    return update_fits<Kind>(device, p, epilogue->update);
  case MN_BLOCK:
  case MN_BLOCK_LOSS:
  case MN_BLOCK_BACKWARD:
    return block_fits<Kind>(device, p, epilogue);
  }
  mn_abort(__FILE__, __LINE__, "an epilogue kind");
}

#endif
