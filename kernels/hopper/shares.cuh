/* A product of few tiles and great depth, such as dzᵀ·x of a narrow block: its depth, the rows, is shared out
 * among some 128 tiles, whatever the number of multiprocessors, and their parts are added in order. */
#ifndef MN_KERNELS_HOPPER_SHARES_CUH
#define MN_KERNELS_HOPPER_SHARES_CUH

#include "kernels/hopper/store.cuh"
#include "kernels/parts.cuh"

enum { MN_SHARED_TILES = 128, MN_SHARE_DEPTH = 256, MN_FEWEST_SHARES = 4 };

template <class Tile> static int shares_of(const struct mn_hopper_product *p) {
  return (int)std::min(MN_SHARED_TILES / (mn_tiles_down<Tile>(p) * mn_tiles_across<Tile>(p)),
                       p->depth / MN_SHARE_DEPTH);
}

/* Whether it would take plain tiles, which pay with two planes alone: the library shares out one plane's. */
static inline bool is_wide(const struct mn_hopper_product *p) {
  return p->rows > 128 && p->cols >= 128;
}

template <enum mn_plane_kind Kind> static bool shares_pay(const struct mn_hopper_product *p) {
  if (p->form != MN_TN || p->depth <= MN_SMALL_DEPTH) return false;
  if (!is_wide(p)) return shares_of<mn_small_tile<Kind>>(p) >= MN_FEWEST_SHARES;
  return Kind == MN_PLANES_FP16X2 && shares_of<mn_plain_tile<Kind>>(p) >= MN_FEWEST_SHARES;
}

/* Column sums go on beside the product, but not beside the update, whose flag they may set. */
template <class Tile>
static mn_status share_tiles(struct mn_device *device, const struct mn_hopper_product *p,
                             const struct mn_epilogue *epilogue) {
  typedef store_epilogue<false, Tile> store;
  struct mn_hopper_product all = *p;
  float *parts = static_cast<float *>(device->cuda->workspace);
  const int64_t rows = mn_tiles_down<Tile>(p) * Tile::ROWS;
  all.shares = shares_of<Tile>(p);
  const store_arguments a = {parts, {}, all.shares * rows, p->cols, p->cols, device->nonfinite};
  MN_TRY((mn_hopper_launch<MN_TN, store>(device, &all, a)));
  if (device->cuda->agreement) MN_TRY(mn_branch_join_cuda(device, MN_BRANCH_SUMS));
  return mn_parts_cuda(device, parts, all.shares, rows * p->cols, p->rows * p->cols, epilogue);
}

template <enum mn_plane_kind Kind>
static mn_status share_out(struct mn_device *device, const struct mn_hopper_product *p,
                           const struct mn_epilogue *epilogue) {
  if (p->pitch > 0)
    return launch_store<false, mn_small_tile<Kind>>(device, p, epilogue); /* terms.cu's piece */
  if constexpr (Kind == MN_PLANES_FP16X2)
    if (is_wide(p)) return share_tiles<mn_plain_tile<Kind>>(device, p, epilogue);
  return share_tiles<mn_small_tile<Kind>>(device, p, epilogue);
}

#endif
