/* A product of few tiles and great depth, such as dzᵀ·x of a narrow block: its depth, the rows, is shared out
 * among some 128 tiles, whatever the number of multiprocessors, and their parts are added in order. A shard's
 * product is shared out as the full one, so that it has the full one's bytes. What was measured:
 * kernels/NOTES.md. */
#ifndef MN_KERNELS_HOPPER_SHARES_CUH
#define MN_KERNELS_HOPPER_SHARES_CUH

#include "kernels/hopper/store.cuh"
#include "kernels/parts.cuh"

enum { MN_SHARED_TILES = 128, MN_SHARE_DEPTH = 256, MN_FEWEST_SHARES = 4 };

template <class Tile> static int shares_of(const struct mn_hopper_product *p) {
  struct mn_hopper_product full = *p;
  full.rows = p->whole_rows;
  return (int)std::min(MN_SHARED_TILES / (mn_tiles_down<Tile>(&full) * mn_tiles_across<Tile>(&full)),
                       p->depth / MN_SHARE_DEPTH);
}

/* Whether plain tiles suit the full product. Sharing these out pays with two planes alone: with one the
 * library is as fast. */
static inline bool is_wide(const struct mn_hopper_product *p) {
  return p->whole_rows > 128 && p->cols >= 128;
}

/* Up to MN_SMALL_DEPTH one kernel of small tiles is faster. */
template <enum mn_plane_kind Kind> static bool shares_pay(const struct mn_hopper_product *p) {
  if (p->form != MN_TN || p->depth <= MN_SMALL_DEPTH) return false;
  if (!is_wide(p)) return shares_of<mn_small_tile<Kind>>(p) >= MN_FEWEST_SHARES;
  return Kind == MN_PLANES_FP16X2 && shares_of<mn_plain_tile<Kind>>(p) >= MN_FEWEST_SHARES;
}

/* The ranks agree on the nonfinite flag beside the product; the update waits for them. */
template <class Tile>
static mn_status share_tiles(struct mn_device *device, const struct mn_hopper_product *p,
                             const struct mn_epilogue *epilogue) {
  typedef store_epilogue<false, Tile> store;
  struct mn_hopper_product all = *p;
  void *&workspace = device->cuda->workspace;
  const int64_t rows = mn_tiles_down<Tile>(p) * Tile::ROWS;
  MN_REQUIRE(p->pitch == 0);
  if (!workspace) MN_CUDA_TRY(cudaMalloc(&workspace, MN_CUDA_WORKSPACE));
  float *parts = static_cast<float *>(workspace);
  all.shares = shares_of<Tile>(p);
  const store_arguments a = {parts, {}, all.shares * rows, p->cols, p->cols, device->nonfinite};
  MN_TRY((mn_hopper_launch<MN_TN, store>(device, &all, a)));
  if (device->cuda->agreement) MN_TRY(mn_branch_join_cuda(device, MN_BRANCH_SUMS));
  return mn_parts_cuda(device, parts, all.shares, rows * p->cols, p->rows * p->cols, epilogue);
}

template <enum mn_plane_kind Kind>
static mn_status share_out(struct mn_device *device, const struct mn_hopper_product *p,
                           const struct mn_epilogue *epilogue) {
  if constexpr (Kind == MN_PLANES_FP16X2)
    if (is_wide(p)) return share_tiles<mn_plain_tile<Kind>>(device, p, epilogue);
  return share_tiles<mn_small_tile<Kind>>(device, p, epilogue);
}

#endif
