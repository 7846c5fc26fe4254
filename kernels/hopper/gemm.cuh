/* The GEMM of our own for Hopper: one persistent, warp-specialised main loop with float accumulators, with
 * the kind of planes and the epilogue as template parameters.
 *
 * A CTA has consumer warpgroups and one producer warp. The producer issues TMA loads of both operands into a
 * pipeline of stages in shared memory; each consumer warpgroup multiplies (wgmma) its 64 rows of the CTA
 * tile. CTAs are persistent: each computes tiles in an order that keeps the operands in the L2 cache, and the
 * producer runs ahead, so that the next tile's operands arrive during the epilogue. The tiles stand in
 * tile.cuh.
 *
 * With two planes a stage holds both planes of both operands, and three products are summed, the small ones
 * first. wgmma truncates what it adds, so a long chain in one accumulator loses float's accuracy: after
 * MN_PROMOTE k-blocks the accumulators are added to a second set, in float. This second set leaves room for
 * half the columns. With the streaming tile the consumers copy it to the staging buffers while the first
 * wgmmas of the next tile run. */
#ifndef MN_KERNELS_HOPPER_GEMM_CUH
#define MN_KERNELS_HOPPER_GEMM_CUH

#include <algorithm>

#include "kernels/hopper/ptx.cuh"
#include "kernels/hopper/tile.cuh"
#include "kernels/planes.cuh"

enum {
  MN_PANEL = 8,              /* height of a panel of the tile schedule, in clusters */
  MN_PROMOTE = 2,            /* k-blocks that are added in one accumulator, with two planes */
  MN_PREFETCH_DISTANCE = 16, /* k-blocks between the epilogue's L2 prefetch and a tile's last load */
};

/* The contract of an epilogue: a class with these three types and three static device functions.
 *
 * arguments: plain data from the host (mn_hopper_launch), a __grid_constant__ parameter of the kernel.
 * tile: one of the tiles (tile.cuh).
 * state: a thread's registers that persist from call to call, for what it has loaded ahead.
 *
 * prefetch(arguments, row, col, lane): called by all lanes of the producer warp, once for each tile, whose
 *   first element is (row, col). That is MN_PREFETCH_DISTANCE k-blocks before the tile's last load, or when
 *   the pipeline is first full if that is later. It may only prefetch global memory into the L2 cache
 *   (mn_tile_prefetch), with at most PRODUCER_REGS registers.
 *
 * begin(arguments, state, first): called by every epilogue thread once, before its warp's first slice, which
 *   starts at the element `first`. It may load what that slice needs.
 *
 * finish(arguments, state, result, at, next, staging): called by every epilogue thread once for each slice of
 *   its warp: result.ROWS rows by tile::COLS columns from the element `at` on. The next call's slice starts
 *   at `next`; finish may load ahead for it. result.stage<WIDE, HIGH>(staging, col, row) copies HIGH rows of
 *   WIDE columns (MN_STAGING_FLOATS in all) of the slice into the buffer `staging`, overwriting what was
 *   there, and mn_staging_lane<WIDE> reads them. All lanes of the warp must call stage together.
 *
 * If tile::EPILOGUE_WARPS is 0, the epilogue threads are the consumers, with 16 rows a warp. Their
 * accumulators, tile::COLS / 2 registers a thread, are live during finish but not during begin. Otherwise
 * they are the epilogue warps, and a slice has 8 rows: it is one staging buffer (WIDE = COLS), which a
 * consumer has filled, so stage does nothing. The main loop waits for that buffer before finish and releases
 * it afterwards.
 *
 * A slice may lie partly or wholly outside the matrix (after the last tile, `next` always does): finish must
 * check every access to global memory against the sizes in `arguments`. It may use registers, global memory,
 * its staging buffer (those of the consumer warps are consecutive, so that after a barrier with a neighbour
 * it may read the neighbour's), and the named barriers 1 to 15 among warps of the same role. It must not
 * touch the pipeline's stages or any mbarrier, nor use __syncthreads (named barrier 0) or a cluster barrier:
 * other roles do not join. */

/* The tile schedule. Work item w is the tiles of one cluster; cluster c computes items c, c + clusters, … */
struct mn_tile_schedule {
  int down, across, k_blocks; /* clusters down, tiles across, k-blocks deep */
  int panel;                  /* clusters down that are computed before the next column of tiles */
  int share; /* rows of the result for each share of the depth, which has k_blocks; with those that pad it */
};

/* An element of the result. */
struct mn_coord {
  int64_t row, col;
};

/* The first element of consumer `warp`'s 16 rows in a work item. Items go down a panel, then across it, so
 * that clusters that run at the same time share operands in the L2 cache. Items past the last lie outside the
 * matrix. */
template <class Tile>
static MN_GPU mn_coord mn_warp_coord(const mn_tile_schedule &schedule, int item, int warp) {
  const int panel = item / (schedule.panel * schedule.across);
  const int within = item - panel * schedule.panel * schedule.across;
  const int height = max(min(schedule.panel, schedule.down - panel * schedule.panel), 1);
  const int row = (panel * schedule.panel + within % height) * Tile::CLUSTER + __clusterRelativeBlockRank();
  return {(int64_t)row * Tile::ROWS + warp * 16, (int64_t)(within / height) * Tile::COLS};
}

/* A position in a pipeline: the stage, and the parity of its mbarriers' phase. */
template <int Stages> struct mn_pipeline {
  int stage = 0;
  uint32_t parity = 0;

  MN_GPU void advance() {
    if (++stage < Stages) return;
    stage = 0, parity ^= 1;
  }
};

/* Addresses in a CTA's shared memory. The mbarriers, 8 bytes apart: full and empty, one for each stage;
 * staging_full and staging_empty, one for each staging buffer. */
struct mn_shared {
  uint32_t stages, full, empty, staging_full, staging_empty;
  float *staging;
};

/* Both operands' planes as the TMA sees them, and their scales (NULL in bfloat16). */
template <int Planes> struct mn_operands {
  CUtensorMap a[Planes], b[Planes];
  const struct mn_scale *scale_a, *scale_b;
  /* For a gathered operand, a of MN_NT or b of MN_TN: this shard's columns, `each` from `first` on (0, 0 if
   * not gathered), whether they are read in `own`, and struct mn_arrival's flags (NULL if the other shards'
   * columns are there). */
  int first, each;
  bool apart;
  bool alone; /* the stream's next kernel starts when this one has ended */
  CUtensorMap own;
  const unsigned *arrived;
};

/* A CTA's TMA loads of one stage, of a's planes and b's: its part of a, and its share of the cluster's part
 * of b. A K-major operand (the depth contiguous in memory) is one box; an MN-major one is a box for each 64
 * rows or columns. */
template <enum mn_form Form, class Tile>
static MN_GPU void mn_stage_load(const CUtensorMap *a, const CUtensorMap *b, uint32_t to, uint32_t full,
                                 int row, int col, int depth_a, int depth_b) {
  constexpr int SUBTILES_A = Tile::ROWS / 64, SUBTILES_B = Tile::COLS / Tile::CLUSTER / 64;
  const int rank = __clusterRelativeBlockRank();
  const uint64_t keep = mn_l2_evict_last(); /* the epilogue's traffic must not evict the operands */
  MN_UNROLL(int p = 0; p < Tile::PLANES; p++) {
    const uint32_t to_a = to + p * mn_plane_bytes_a<Tile>;
    const uint32_t to_b = to + Tile::PLANES * mn_plane_bytes_a<Tile> + p * mn_plane_bytes_b<Tile> +
                          rank * SUBTILES_B * MN_SUBTILE_BYTES;
    MN_UNROLL(int i = 0; i < (Form == MN_TN ? SUBTILES_A : 1); i++)
      mn_tma_load(to_a + i * MN_SUBTILE_BYTES, &a[p], full, Form == MN_TN ? row + i * 64 : depth_a,
                  Form == MN_TN ? depth_a : row, 1 << rank, keep);
    MN_UNROLL(int i = 0; i < (Form == MN_NT ? 1 : SUBTILES_B); i++)
      mn_tma_load(to_b + i * MN_SUBTILE_BYTES, &b[p], full, Form == MN_NT ? depth_b : col + i * 64,
                  Form == MN_NT ? col : depth_b, (1 << Tile::CLUSTER) - 1, keep);
  }
}

/* Issues one product of a stage's planes; `add`: to what d holds. */
template <enum mn_form Form, bool Fp16, int Count>
static MN_GPU void mn_planes_multiply(float (&d)[Count], uint32_t a, uint32_t b, int add) {
  constexpr int MN_MAJOR_A = Form == MN_TN, MN_MAJOR_B = Form != MN_NT;
  /* One wgmma's depth of 16: 32 bytes along a row if K-major, 16 rows of 128 bytes if MN-major. */
  constexpr int STEP_A = MN_MAJOR_A ? 2048 : 32, STEP_B = MN_MAJOR_B ? 2048 : 32;
  MN_UNROLL(int k = 0; k < MN_K_BLOCK / 16; k++)
    mn_wgmma<Fp16, MN_MAJOR_A, MN_MAJOR_B>(d, mn_wgmma_descriptor(a + k * STEP_A, MN_SUBTILE_BYTES),
                                           mn_wgmma_descriptor(b + k * STEP_B, MN_SUBTILE_BYTES),
                                           k > 0 ? 1 : add);
}

/* Issues a stage's wgmmas of the first, or only, planes, as one committed group. a: the warpgroup's rows. */
template <enum mn_form Form, class Tile, int Count>
static MN_GPU void mn_stage_multiply(float (&d)[Count], uint32_t a, uint32_t b) {
  mn_wgmma_fence();
  mn_planes_multiply<Form, Tile::KIND != MN_PLANES_BF16>(d, a, b, 1);
  mn_wgmma_commit();
}

/* Issues the wgmmas of the small products, a second plane's with a first's; `add`: to what d holds. */
template <enum mn_form Form, class Tile, int Count>
static MN_GPU void mn_stage_multiply_small(float (&d)[Count], uint32_t a, uint32_t b, int add) {
  mn_wgmma_fence();
  mn_planes_multiply<Form, true>(d, a + mn_plane_bytes_a<Tile>, b, add);
  mn_planes_multiply<Form, true>(d, a, b + mn_plane_bytes_b<Tile>, 1);
}

/* The columns that a product x·Wᵀ of a gathered x reads next: from `depth` in the order of reading to x's map
 * and column (depth_a) and W's column (depth). This shard's columns come first; another shard's are waited
 * for. */
template <int Planes>
static MN_GPU const CUtensorMap *mn_gathered_at(const mn_operands<Planes> &from, int whole, int &depth_a,
                                                int &depth) {
  const bool own = from.apart && depth < from.each;
  depth += from.first;
  if (depth >= whole) depth -= whole;
  if (own) return &from.own;
  depth_a = depth;
  if (from.arrived && depth % from.each == 0) {
    while (!mn_peer_has_arrived(from.arrived + depth / from.each)) continue;
    mn_tma_fence();
  }
  return from.a;
}

/* Apart: in dzᵀ·x, x is gathered and this shard's columns are read in `own`. A kernel of its own, because the
 * others have no registers to spare for the choice. */
template <enum mn_form Form, class Epilogue, bool Apart>
static MN_GPU void mn_producer(const mn_operands<Epilogue::tile::PLANES> &operands,
                               const mn_tile_schedule &schedule,
                               const typename Epilogue::arguments &arguments, const mn_shared &shared) {
  typedef typename Epilogue::tile Tile;
  mn_pipeline<Tile::STAGES> pipeline;
  const int lane = threadIdx.x % 32;
  /* Not before the pipeline is full: the consumers wait for the first operands. */
  const int prefetch =
      max(schedule.k_blocks - MN_PREFETCH_DISTANCE, min(schedule.k_blocks, (int)Tile::STAGES) - 1);
  for (int item = mn_cluster(); item < schedule.down * schedule.across; item += mn_clusters()) {
    const mn_coord tile = mn_warp_coord<Tile>(schedule, item, 0);
    const int share = Form == MN_TN && Tile::EPILOGUE_WARPS == 0 ? (int)tile.row / schedule.share : 0;
    int col = (int)tile.col + __clusterRelativeBlockRank() * (Tile::COLS / Tile::CLUSTER);
    const CUtensorMap *b = operands.b;
    if (Apart && col >= operands.first && col < operands.first + operands.each)
      b = &operands.own, col -= operands.first;
    for (int k = 0; k < schedule.k_blocks; k++, pipeline.advance()) {
      const uint32_t full = shared.full + 8 * pipeline.stage;
      mn_barrier_wait(shared.empty + 8 * pipeline.stage, pipeline.parity ^ 1);
      if (lane == 0) {
        mn_barrier_expect(full, mn_stage_bytes<Tile>);
        int depth = (share * schedule.k_blocks + k) * MN_K_BLOCK, depth_a = depth;
        const CUtensorMap *a = operands.a;
        if (Form == MN_NT && Tile::KIND == MN_PLANES_BF16 && operands.each > 0)
          a = mn_gathered_at(operands, schedule.k_blocks * MN_K_BLOCK, depth_a, depth);
        mn_stage_load<Form, Tile>(a, b, shared.stages + pipeline.stage * mn_stage_bytes<Tile>, full,
                                  (int)tile.row - share * schedule.share, col, depth_a, depth);
      }
      __syncwarp();
      if (k == prefetch) Epilogue::prefetch(arguments, tile.row, tile.col, lane);
    }
  }
  /* Not earlier: the next kernel's CTAs would take the multiprocessors that are reserved. */
  if (!operands.alone) cudaTriggerProgrammaticLaunchCompletion();
}

/* The accumulators are in wgmma's fragment layout: of each 8 columns a thread has two neighbours in one row
 * and in the row 8 below. The epilogue reads them through a staging buffer of the warp's own, High rows of
 * Wide columns at a time: there a lane gets 4 neighbouring columns, and a warp whole rows. Columns are
 * swizzled by the row, so that neither the writes nor the reads have bank conflicts. */
template <int Wide> static MN_GPU float *mn_staging_at(float *staging, int row, int col) {
  return staging + row * Wide + (col ^ (row & 3) * 8);
}

/* Copies the accumulators of High rows from `row` (of the warp's 16) and Wide columns from `col`, if the
 * operands are scaled times `unscale`. */
template <int Wide, int High, bool Scaled>
static MN_GPU void mn_staging_write(float *staging, const float *d, float unscale, int col, int row) {
  const int lane = threadIdx.x % 32;
  __syncwarp(); /* until all lanes have read the old values */
  MN_UNROLL(int eight = row / 8; eight * 8 < row + High; eight++) {
    const int mine = lane / 4 + eight * 8 - row;
    if (High >= 8 || (mine >= 0 && mine < High))
      MN_UNROLL(int j = 0; j < Wide / 8; j++) {
        const int first = (col / 8 + j) * 4 + eight * 2;
        *reinterpret_cast<float2 *>(mn_staging_at<Wide>(staging, mine, j * 8 + lane % 4 * 2)) =
            Scaled ? float2{unscale * d[first], unscale * d[first + 1]} : float2{d[first], d[first + 1]};
      }
  }
  __syncwarp();
}

/* The values of a staging buffer that a lane reads, as vectors of 4 columns: VECTORS of them, ROW_STEP rows
 * apart from `row` on, at `col`; with Wide = 256 there are VECTORS more, 128 columns to the right. */
template <int Wide> struct mn_staging_lane {
  enum { ROW_STEP = Wide < 128 ? 128 / Wide : 1, VECTORS = MN_STAGING_FLOATS / Wide / ROW_STEP };
  const int row = threadIdx.x % 32 * 4 / Wide, col = threadIdx.x % 32 * 4 % Wide;

  MN_GPU void read(float (&out)[4], float *staging, int vector, int right = 0) const {
    mn_load<4>(out, mn_staging_at<Wide>(staging, vector * ROW_STEP + row, right + col));
  }
};

/* The slice of the result that finish is given; see the contract above. */
template <class Tile> struct mn_result {
  enum { ROWS = Tile::EPILOGUE_WARPS == 0 ? 16 : 8 };
  const float *accumulators; /* NULL if the slice is in the staging buffer already */
  float unscale;             /* 1 over both operands' factors */

  template <int Wide, int High> MN_GPU void stage(float *staging, int col, int row) const {
    static_assert(Wide * High == MN_STAGING_FLOATS);
    if constexpr (Tile::EPILOGUE_WARPS == 0)
      mn_staging_write<Wide, High, Tile::KIND != MN_PLANES_BF16>(staging, accumulators, unscale, col, row);
  }
};

/* A warpgroup has read a stage: it arrives at the stage's empty barrier in every CTA of the cluster, since
 * each loads a part of it. */
template <class Tile> static MN_GPU void mn_stage_release(const mn_shared &shared, int stage) {
  const int thread = threadIdx.x % MN_WARPGROUP;
  if (thread < Tile::CLUSTER) mn_barrier_arrive_remote(shared.empty + 8 * stage, thread);
}

/* One tile's product of single planes, in the registers of the warpgroup. */
template <enum mn_form Form, class Tile>
static MN_GPU void mn_tile_product(float (&d)[Tile::COLS / 2], mn_pipeline<Tile::STAGES> &pipeline,
                                   int k_blocks, const mn_shared &shared) {
  const uint32_t own = threadIdx.x / MN_WARPGROUP * MN_SUBTILE_BYTES;
  mn_pipeline<Tile::STAGES> done = pipeline;
  MN_UNROLL(int i = 0; i < Tile::COLS / 2; i++) d[i] = 0;
  for (int k = 0; k < k_blocks; k++, pipeline.advance()) {
    const uint32_t stage = shared.stages + pipeline.stage * mn_stage_bytes<Tile>;
    mn_barrier_wait(shared.full + 8 * pipeline.stage, pipeline.parity);
    mn_stage_multiply<Form, Tile>(d, stage + own, stage + mn_plane_bytes_a<Tile>);
    mn_wgmma_wait<Tile::IN_FLIGHT - 1>();
    if (k < Tile::IN_FLIGHT - 1) continue;
    mn_stage_release<Tile>(shared, done.stage);
    done.advance();
  }
  mn_wgmma_wait<0>();
  for (; done.stage != pipeline.stage; done.advance()) mn_stage_release<Tile>(shared, done.stage);
  mn_wgmma_define(d);
}

/* Two planes: issues the products of `count` k-blocks, 1 or MN_PROMOTE, as one partial sum. The small
 * products of both come first, because each wgmma truncates to what its accumulators hold. */
template <enum mn_form Form, class Tile>
static MN_GPU void mn_part_multiply(float (&part)[Tile::COLS / 2], mn_pipeline<Tile::STAGES> &pipeline,
                                    int count, const mn_shared &shared) {
  static_assert(MN_PROMOTE == 2);
  const uint32_t own = threadIdx.x / MN_WARPGROUP * MN_SUBTILE_BYTES;
  uint32_t stages[MN_PROMOTE];
  MN_UNROLL(int i = 0; i < MN_PROMOTE; i++) {
    if (i >= count) break;
    stages[i] = shared.stages + pipeline.stage * mn_stage_bytes<Tile>;
    mn_barrier_wait(shared.full + 8 * pipeline.stage, pipeline.parity);
    mn_stage_multiply_small<Form, Tile>(part, stages[i] + own, stages[i] + 2 * mn_plane_bytes_a<Tile>, i > 0);
    pipeline.advance();
  }
  MN_UNROLL(int i = 0; i < MN_PROMOTE; i++)
    if (i < count)
      mn_stage_multiply<Form, Tile>(part, stages[i] + own, stages[i] + 2 * mn_plane_bytes_a<Tile>);
}

/* Waits for that partial sum and releases its stages. */
template <class Tile>
static MN_GPU void mn_part_wait(float (&part)[Tile::COLS / 2], mn_pipeline<Tile::STAGES> &done, int count,
                                const mn_shared &shared) {
  if (count == 2) {
    mn_wgmma_wait<1>();
    mn_stage_release<Tile>(shared, done.stage);
    done.advance();
  }
  mn_wgmma_wait<0>();
  mn_wgmma_define(part);
  mn_stage_release<Tile>(shared, done.stage);
  done.advance();
}

/* One tile's product of two planes: d = the sum of partial sums of MN_PROMOTE k-blocks each. The second
 * warpgroup's first partial sum is of one k-block, so that one warpgroup adds while the other multiplies; a
 * row's last bits therefore depend on which half of a tile it lies in. take() is called while the first is
 * computed; until then d is the product of the tile before. */
template <enum mn_form Form, class Tile, typename Take>
static MN_GPU void mn_tile_product_promoted(float (&d)[Tile::COLS / 2], mn_pipeline<Tile::STAGES> &pipeline,
                                            int k_blocks, const mn_shared &shared, Take take) {
  float part[Tile::COLS / 2];
  mn_pipeline<Tile::STAGES> done = pipeline;
  int count = min(MN_PROMOTE - (int)threadIdx.x / MN_WARPGROUP % MN_PROMOTE, k_blocks);
  mn_part_multiply<Form, Tile>(part, pipeline, count, shared);
  take();
  mn_part_wait<Tile>(part, done, count, shared);
  MN_UNROLL(int i = 0; i < Tile::COLS / 2; i++) d[i] = part[i];
  for (int k = count; k < k_blocks; k += count) {
    count = min(MN_PROMOTE, k_blocks - k);
    mn_part_multiply<Form, Tile>(part, pipeline, count, shared);
    mn_part_wait<Tile>(part, done, count, shared);
    MN_UNROLL(int i = 0; i < Tile::COLS / 2; i++) d[i] += part[i];
  }
}

/* Copies the warp's accumulators to its staging buffers, 8 rows at a time, for the epilogue warps. */
template <class Tile>
static MN_GPU void mn_staging_fill(const float (&d)[Tile::COLS / 2], mn_pipeline<Tile::STAGING> &staging,
                                   float unscale, const mn_shared &shared) {
  const int warp = threadIdx.x / 32;
  MN_UNROLL(int down = 0; down < 16; down += 8, staging.advance()) {
    const int own = warp * Tile::STAGING + staging.stage;
    mn_barrier_wait(shared.staging_empty + 8 * own, staging.parity ^ 1);
    mn_staging_write<Tile::COLS, 8, Tile::KIND != MN_PLANES_BF16>(shared.staging + own * MN_STAGING_FLOATS, d,
                                                                  unscale, 0, down);
    mn_barrier_arrive(shared.staging_full + 8 * own);
  }
}

template <enum mn_form Form, class Epilogue>
static MN_GPU void mn_consumer(const mn_tile_schedule &schedule,
                               const typename Epilogue::arguments &arguments, const mn_shared &shared,
                               const struct mn_scale *scale_a, const struct mn_scale *scale_b) {
  typedef typename Epilogue::tile Tile;
  constexpr bool STREAMS = Tile::EPILOGUE_WARPS > 0;
  const float unscale = Tile::KIND != MN_PLANES_BF16 ? 1 / (scale_a->factor * scale_b->factor) : 1;
  mn_pipeline<Tile::STAGES> pipeline;
  mn_pipeline<Tile::STAGING> staging;
  const int warp = threadIdx.x / 32;
  float d[Tile::COLS / 2];
  typename Epilogue::state state;
  if constexpr (!STREAMS)
    Epilogue::begin(arguments, state, mn_warp_coord<Tile>(schedule, mn_cluster(), warp));
  for (int item = mn_cluster(); item < schedule.down * schedule.across; item += mn_clusters()) {
    if constexpr (Tile::PLANES == 2)
      mn_tile_product_promoted<Form, Tile>(d, pipeline, schedule.k_blocks, shared, [&] {
        if (STREAMS && item != mn_cluster()) mn_staging_fill<Tile>(d, staging, unscale, shared);
      });
    else
      mn_tile_product<Form, Tile>(d, pipeline, schedule.k_blocks, shared);
    if constexpr (!STREAMS) {
      const mn_result<Tile> result = {d, unscale};
      Epilogue::finish(arguments, state, result, mn_warp_coord<Tile>(schedule, item, warp),
                       mn_warp_coord<Tile>(schedule, item + mn_clusters(), warp),
                       shared.staging + warp * MN_STAGING_FLOATS);
    } else if constexpr (Tile::PLANES == 1) {
      mn_staging_fill<Tile>(d, staging, unscale, shared);
    }
  }
  if constexpr (STREAMS && Tile::PLANES == 2) mn_staging_fill<Tile>(d, staging, unscale, shared);
}

/* The streaming tile's epilogue: an epilogue warp takes the 16 rows of each of its consumer warps, which are
 * EPILOGUE_WARPS apart, 8 at a time. */
template <class Epilogue>
static MN_GPU void mn_epilogue_warp(const mn_tile_schedule &schedule,
                                    const typename Epilogue::arguments &arguments, const mn_shared &shared) {
  typedef typename Epilogue::tile Tile;
  constexpr int OWNERS = mn_consumer_warps<Tile> / Tile::EPILOGUE_WARPS, SLICES = 2 * OWNERS;
  mn_pipeline<Tile::STAGING> staging;
  const int warp = threadIdx.x / 32 - mn_consumer_warps<Tile>;
  typename Epilogue::state state;
  mn_coord at = mn_warp_coord<Tile>(schedule, mn_cluster(), warp), first = at;
  Epilogue::begin(arguments, state, at);
  for (int item = mn_cluster(); item < schedule.down * schedule.across; item += mn_clusters())
#pragma unroll 1
    for (int slice = 0; slice < SLICES; slice++) {
      const int after = slice + 1, owner = warp + slice % OWNERS * Tile::EPILOGUE_WARPS;
      const int own = owner * Tile::STAGING + staging.stage;
      mn_coord next = {at.row + 8, at.col};
      if (OWNERS > 1) next.row = first.row + after % OWNERS * Tile::EPILOGUE_WARPS * 16 + after / OWNERS * 8;
      if (after == SLICES) next = first = mn_warp_coord<Tile>(schedule, item + mn_clusters(), warp);
      mn_barrier_wait(shared.staging_full + 8 * own, staging.parity);
      Epilogue::finish(arguments, state, mn_result<Tile>{}, at, next,
                       shared.staging + own * MN_STAGING_FLOATS);
      mn_barrier_arrive(shared.staging_empty + 8 * own);
      if (after % OWNERS == 0) staging.advance();
      at = next;
    }
}

template <class Tile> static MN_GPU void mn_barriers_init(const mn_shared &shared) {
  for (int i = 0; i < Tile::STAGES; i++) {
    mn_barrier_init(shared.full + 8 * i, 1);
    mn_barrier_init(shared.empty + 8 * i, Tile::ROWS / 64 * Tile::CLUSTER); /* the cluster's warpgroups */
  }
  for (int i = 0; i < mn_consumer_warps<Tile> * Tile::STAGING; i++) {
    mn_barrier_init(shared.staging_full + 8 * i, 32); /* every lane of a warp arrives */
    mn_barrier_init(shared.staging_empty + 8 * i, 32);
  }
  mn_barrier_init_fence();
}

template <enum mn_form Form, class Epilogue, bool Apart = false>
static __global__ void __cluster_dims__(Epilogue::tile::CLUSTER, 1, 1)
    __launch_bounds__(mn_tile_threads<typename Epilogue::tile>, 1)
        mn_hopper_kernel(const __grid_constant__ mn_operands<Epilogue::tile::PLANES> operands,
                         const mn_tile_schedule schedule,
                         const __grid_constant__ typename Epilogue::arguments arguments) {
  typedef typename Epilogue::tile tile;
  extern __shared__ __align__(1024) char stages[]; /* the 128-byte swizzle repeats every 1024 bytes */
  constexpr int CONSUMERS = mn_consumer_warps<tile>, BUFFERS = CONSUMERS * tile::STAGING;
  float *staging = reinterpret_cast<float *>(stages + tile::STAGES * mn_stage_bytes<tile>);
  const uint32_t full = mn_shared_of(staging + BUFFERS * MN_STAGING_FLOATS);
  const uint32_t empty = full + 8 * tile::STAGES, staging_full = empty + 8 * tile::STAGES;
  const mn_shared shared = {mn_shared_of(stages),       full,   empty, staging_full,
                            staging_full + 8 * BUFFERS, staging};
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    if (shared.stages % 1024) __trap();
    for (int p = 0; p < tile::PLANES; p++) {
      mn_tma_prefetch_map(&operands.a[p]);
      mn_tma_prefetch_map(&operands.b[p]);
    }
    mn_barriers_init<tile>(shared);
  }
  mn_cluster_sync();
  cudaGridDependencySynchronize();
  if (warp < CONSUMERS) {
    mn_registers_up<tile::CONSUMER_REGS>();
    mn_consumer<Form, Epilogue>(schedule, arguments, shared, operands.scale_a, operands.scale_b);
  } else if (warp < CONSUMERS + tile::EPILOGUE_WARPS) {
    mn_registers_up<tile::EPILOGUE_REGS>();
    if constexpr (tile::EPILOGUE_WARPS > 0) mn_epilogue_warp<Epilogue>(schedule, arguments, shared);
  } else {
    mn_registers_down<tile::PRODUCER_REGS>();
    if (warp == CONSUMERS + tile::EPILOGUE_WARPS)
      mn_producer<Form, Epilogue, Apart>(operands, schedule, arguments, shared);
  }
  /* A CTA must not exit while the other may still arrive at its barriers. */
  if (tile::CLUSTER > 1) mn_cluster_sync();
}

/* Prefetches the part of a CTA tile that is inside the matrix into the L2 cache; a lane takes every 32nd row.
 */
template <class Tile, typename T>
static MN_GPU void mn_tile_prefetch(const T *matrix, int64_t rows, int64_t cols, int64_t row, int64_t col,
                                    int lane) {
  const int inside = (int)min((int64_t)Tile::COLS, cols - col) * (int)sizeof(T);
  const T *from = matrix + (row + lane) * cols + col;
#pragma unroll 1
  for (int left = (int)min(rows - row, (int64_t)Tile::ROWS) - lane; left > 0; left -= 32, from += 32 * cols)
    mn_l2_prefetch(from, inside);
}

/* Launches the product on all clusters that the GPU holds beside the reserved multiprocessors, or one a tile
 * if that is less. The result does not depend on their number. */
template <enum mn_form Form, class Epilogue>
static mn_status mn_hopper_launch(struct mn_device *device, const struct mn_hopper_product *p,
                                  const typename Epilogue::arguments &arguments, int panel = MN_PANEL) {
  typedef typename Epilogue::tile tile;
  constexpr int bytes = mn_shared_bytes<tile>;
  static_assert(bytes <= 227 * 1024);
  mn_operands<tile::PLANES> operands = {};
  operands.scale_a = p->scale_a, operands.scale_b = p->scale_b;
  for (int i = 0; i < tile::PLANES; i++) {
    MN_TRY(mn_hopper_tensor_map(device, &operands.a[i], p->planes, p->a[i], Form == MN_TN, p->rows, p->depth,
                                0, tile::ROWS));
    MN_TRY(mn_hopper_tensor_map(device, &operands.b[i], p->planes, p->b[i], Form != MN_NT, p->cols, p->depth,
                                p->pitch, tile::COLS / tile::CLUSTER));
  }
  const int high = (int)mn_tiles_down<tile>(p), shares = std::max(p->shares, 1);
  const int down = shares * high / tile::CLUSTER, deep = shares * MN_K_BLOCK;
  const mn_tile_schedule schedule = {down, (int)mn_tiles_across<tile>(p), (int)((p->depth + deep - 1) / deep),
                                     std::min(panel, down), high * tile::ROWS};
  int reserved_sms = device->reserved_sms;
  if (device->cuda->agreement) { /* whose CTAs must find a multiprocessor while this kernel waits for them */
    reserved_sms += MN_AGREEMENT_MULTIPROCESSORS;
    operands.alone = true;
  }
  if (const struct mn_arrival *a = p->arrival) {
    const int64_t all = Form == MN_NT ? p->depth : p->cols, each = all / a->shards;
    operands.first = (int)(a->shard * each), operands.each = (int)each;
    operands.apart = a->own;
    if (a->own)
      MN_TRY(mn_hopper_tensor_map(device, &operands.own, p->planes, a->own, Form != MN_NT,
                                  Form == MN_NT ? p->rows : each, Form == MN_NT ? each : p->depth, 0,
                                  tile::ROWS));
    if (a->pending) {
      operands.arrived = a->arrived;
      reserved_sms = std::max(reserved_sms, 2); /* for what starts the copies that it waits for */
    }
  }
  const int clusters = std::min(schedule.down * schedule.across,
                                (device->cuda->multiprocessors - reserved_sms) / tile::CLUSTER);
  auto kernel = mn_hopper_kernel<Form, Epilogue>;
  if constexpr (Form == MN_TN && tile::KIND == MN_PLANES_BF16)
    if (operands.apart) kernel = mn_hopper_kernel<Form, Epilogue, true>;
  MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  return mn_cuda_launch_dependent("gemm", device, tile::CLUSTER * clusters, mn_tile_threads<tile>, bytes,
                                  kernel, operands, schedule, arguments);
}

#endif
