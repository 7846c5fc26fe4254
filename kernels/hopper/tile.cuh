/* The tiles of the Hopper GEMM, and when they fill the GPU. The plain tile is the largest that a
 * multiprocessor holds, for the most arithmetic per byte loaded. Two CTAs form a cluster: their tiles lie one
 * above the other and share the same part of b, of which each CTA loads half by multicast to both. The
 * consumers run the epilogue from their registers; the tensor cores idle meanwhile.
 *
 * The streaming tile is for updates. Their memory traffic takes longer than the multiplication or, with two
 * planes, half as long, too long for the tensor cores to wait for it: more warps, the epilogue warps, run the
 * epilogue of one tile while the consumers multiply the next, so that neither the memory nor the tensor cores
 * idle. With one plane it is half as wide, because the staging buffers between consumers and epilogue warps
 * take shared memory.
 *
 * The half tile is for blocks with one plane: of up to 128 channels, or with too few plain tiles to go round.
 * It has half the arithmetic for three quarters of the bytes, but gives work to twice the multiprocessors.
 *
 * The small tile is for products of up to 64 columns, or that would give most multiprocessors no tile: an
 * eighth of the plain tile (with two planes a quarter), without clusters, its stages hold a short depth. */
#ifndef MN_KERNELS_HOPPER_TILE_CUH
#define MN_KERNELS_HOPPER_TILE_CUH

#include "kernels/cuda.cuh"
#include "kernels/hopper/product.cuh"

enum {
  MN_WARPGROUP = 128,                     /* threads */
  MN_SUBTILE_BYTES = 64 * MN_K_BLOCK * 2, /* 64 rows or columns of an operand's k-block: wgmma's m64 */
  MN_STAGING_FLOATS = 8 * 128, /* a staging buffer: 8 rows of 128 columns, or 4 of 256, or 16 of 64 */
};

/* A tile's rows, columns, CTAs in a cluster, pipeline stages, and how many k-blocks' wgmma groups are in
 * flight (with fewer columns a group is shorter). Then: warps that only run the epilogue, staging buffers for
 * each consumer warp, and the registers of a thread in each role (0 for the compiled number). setmaxnreg
 * moves registers between whole warpgroups, so the producer is a warpgroup, of which one warp works. */
template <enum mn_plane_kind Kind> struct mn_plain_tile {
  static constexpr enum mn_plane_kind KIND = Kind;
  enum { PLANES = Kind == MN_PLANES_FP16X2 ? 2 : 1, ROWS = 128, COLS = 256 / PLANES, CLUSTER = 2 };
  enum { STAGES = PLANES == 2 ? 3 : 4, IN_FLIGHT = 2, EPILOGUE_WARPS = 0, STAGING = 1 };
  enum { CONSUMER_REGS = 232, EPILOGUE_REGS = 0, PRODUCER_REGS = 40 };
};
template <enum mn_plane_kind Kind> struct mn_streaming_tile {
  static constexpr enum mn_plane_kind KIND = Kind;
  enum { PLANES = Kind == MN_PLANES_FP16X2 ? 2 : 1, ROWS = 128, COLS = 128, CLUSTER = 2 };
  enum { STAGES = PLANES == 2 ? 3 : 5, IN_FLIGHT = 1 };
  enum { EPILOGUE_WARPS = 8 / PLANES, STAGING = 2 / PLANES, CONSUMER_REGS = PLANES == 2 ? 168 : 0 };
  enum { EPILOGUE_REGS = PLANES == 2 ? 152 : 128, PRODUCER_REGS = 24 };
};
template <enum mn_plane_kind Kind> struct mn_half_tile {
  static constexpr enum mn_plane_kind KIND = Kind;
  enum { PLANES = 1, ROWS = 128, COLS = 128, CLUSTER = 2, STAGES = 6, IN_FLIGHT = 2 };
  enum { EPILOGUE_WARPS = 0, STAGING = 1, CONSUMER_REGS = 232, EPILOGUE_REGS = 0, PRODUCER_REGS = 40 };
};
template <enum mn_plane_kind Kind> struct mn_small_tile {
  static constexpr enum mn_plane_kind KIND = Kind;
  enum { PLANES = Kind == MN_PLANES_FP16X2 ? 2 : 1, ROWS = 64, COLS = 64, CLUSTER = 1 };
  enum { STAGES = 12 / PLANES, IN_FLIGHT = 4 / PLANES, EPILOGUE_WARPS = 0, STAGING = 1 };
  enum { CONSUMER_REGS = 0, EPILOGUE_REGS = 0, PRODUCER_REGS = 0 };
};

template <class Tile> constexpr int mn_consumer_warps = Tile::ROWS / 16;
template <class Tile>
constexpr int mn_tile_threads = 32 * (mn_consumer_warps<Tile> + Tile::EPILOGUE_WARPS + 4);

/* Bytes of one stage: a's planes, then b's. */
template <class Tile> constexpr int mn_plane_bytes_a = Tile::ROWS / 64 * MN_SUBTILE_BYTES;
template <class Tile> constexpr int mn_plane_bytes_b = Tile::COLS / 64 * MN_SUBTILE_BYTES;
template <class Tile>
constexpr int mn_stage_bytes = Tile::PLANES *(mn_plane_bytes_a<Tile> + mn_plane_bytes_b<Tile>);

/* Shared memory: stages, staging buffers, and two mbarriers for each of both. */
template <class Tile>
constexpr int
    mn_shared_bytes = Tile::STAGES *(mn_stage_bytes<Tile> + 16) +
                      mn_consumer_warps<Tile> *Tile::STAGING *(MN_STAGING_FLOATS *(int)sizeof(float) + 16);

/* Tiles that cover a product, whole clusters of them. */
template <class Tile> static int64_t mn_tiles_down(const struct mn_hopper_product *p) {
  return (p->rows + Tile::CLUSTER * Tile::ROWS - 1) / (Tile::CLUSTER * Tile::ROWS) * Tile::CLUSTER;
}
template <class Tile> static int64_t mn_tiles_across(const struct mn_hopper_product *p) {
  return (p->cols + Tile::COLS - 1) / Tile::COLS;
}

/* Whether these tiles keep two thirds of the multiprocessors busy, over all waves, no CTA of a cluster is
 * idle in every tile, and the matrix has more than half of a tile's columns. */
template <class Tile>
static bool mn_tiles_fill(const struct mn_device *device, const struct mn_hopper_product *p) {
  const int64_t tiles = mn_tiles_down<Tile>(p) * mn_tiles_across<Tile>(p),
                all = device->cuda->multiprocessors;
  return p->rows > (Tile::CLUSTER - 1) * Tile::ROWS && p->cols > Tile::COLS / 2 &&
         3 * tiles >= 2 * all * ((tiles + all - 1) / all);
}

/* Whether small tiles pay if large ones do not fill the GPU. If the depth times the number of waves is
 * more than this, the library is faster, with larger tiles or split-K, unless one tile has all columns. */
enum { MN_SMALL_DEPTH = 1024 };

template <enum mn_plane_kind Kind>
static bool mn_small_pays(const struct mn_device *device, const struct mn_hopper_product *p) {
  typedef mn_small_tile<Kind> tile;
  const int64_t tiles = mn_tiles_down<tile>(p) * mn_tiles_across<tile>(p);
  const int64_t all = device->cuda->multiprocessors;
  return (tiles + all - 1) / all * p->depth <= MN_SMALL_DEPTH || (p->cols <= tile::COLS && tiles >= all);
}

#endif
