/* The GEMM of our own for Hopper, in bfloat16: one main loop, and what becomes of its result, the epilogue,
 * as a template parameter.
 *
 * A block is two warpgroups that consume and a warp that produces. The producer keeps TMA loads of both
 * operands going, through a ring of stages in shared memory; each consumer multiplies (wgmma) its 64 rows of
 * the block's tile, 128 rows by Cols columns. The blocks of a cluster work on neighbouring tiles, two down
 * and ACROSS across, and load together what they share: of b's part each block loads the half for its column
 * of blocks, and, two across, of a's part the half for its row of blocks. Blocks stay and go through the
 * tiles in an order that keeps the operands in the L2 cache; the producer runs ahead, so that the next tile's
 * operands arrive during the epilogue.
 *
 * Cols 256 does the most arithmetic for each byte that comes from the L2 cache: for products bound by
 * arithmetic. The consumers end in the epilogue themselves, from their registers.
 * Cols 128 is for epilogues that move more bytes than the multiplication takes time: eight more warps, the
 * writers, do nothing but the epilogue, of the tile before the one that is being multiplied, so that the
 * memory never rests. */
#ifndef MN_KERNELS_GEMM_HOPPER_CUH
#define MN_KERNELS_GEMM_HOPPER_CUH

#include <algorithm>

#include "kernels/cuda.cuh"
#include "kernels/gemm_hopper.h"
#include "kernels/hopper.cuh"

enum {
  MN_TILE_ROWS = 128,
  MN_TILE_DEPTH = 64,                   /* 128 bytes: the width of the swizzle */
  MN_TILE_GROUP = 128,                  /* threads of a warpgroup */
  MN_TILE_WARPS = 8,                    /* that consume, 16 rows each */
  MN_TILE_BOX = 64 * MN_TILE_DEPTH * 2, /* bytes of 64 rows or columns of an operand's stage */
  MN_TILE_LATE = 16, /* stages before a tile's last, at which what its epilogue reads is sent for */
};

/* What depends on the width of a tile: stages in the ring, blocks of a cluster side by side, warps that
 * write, floats of a warp's piece, and the registers of each thread by its role (0: an even share). To hand
 * over registers the producer is a whole warpgroup, of which one warp works. */
template <int Cols> struct mn_tile;
template <> struct mn_tile<256> {
  enum { STAGES = 4, ACROSS = 1, WRITERS = 0, PIECE = 8 * 128, CONSUME = 232, WRITE = 0, PRODUCE = 40 };
};
template <> struct mn_tile<128> {
  enum {
    STAGES = 5,
    ACROSS = 1,
    WRITERS = MN_TILE_WARPS,
    PIECE = 16 * 128,
    CONSUME = 0,
    WRITE = 128,
    PRODUCE = 24
  };
};
template <int Cols> constexpr int mn_tile_threads = 32 * (MN_TILE_WARPS + mn_tile<Cols>::WRITERS + 4);

/* Bytes of one stage: a's part, then b's. */
template <int Cols> constexpr int mn_tile_stage = (MN_TILE_ROWS + Cols) / 64 * MN_TILE_BOX;

/* Shared memory: stages, a piece of the result for each consuming warp (PIECE floats), barriers. */
template <int Cols>
constexpr int mn_tile_memory = mn_tile<Cols>::STAGES *(mn_tile_stage<Cols> + 16) +
                               MN_TILE_WARPS *(mn_tile<Cols>::PIECE *(int)sizeof(float) + 16);

/* How the tiles of a product are walked over, a cluster's at a time. */
struct mn_walk {
  int down, across, depths; /* clusters down and across, stages deep */
  int panel;                /* clusters that go across together */
};

/* Where a tile, or a warp's strip of it, begins. Beyond the last tile: beyond the last row. */
struct mn_corner {
  int64_t row, col;
};

/* The tile of this block in the cluster's turn: down a panel, then across, so that what runs at the same time
 * shares its operands in the L2 cache. */
template <int Cols> static __device__ __forceinline__ mn_corner mn_walk_to(const mn_walk &walk, int turn) {
  const int panel = turn / (walk.panel * walk.across), within = turn - panel * walk.panel * walk.across;
  const int height = max(min(walk.panel, walk.down - panel * walk.panel), 1), rank = mn_cluster_rank();
  const int down = panel * walk.panel + within % height, across = within / height;
  return {(int64_t)(2 * down + rank % 2) * MN_TILE_ROWS,
          (int64_t)(mn_tile<Cols>::ACROSS * across + rank / 2) * Cols};
}

/* The 16 rows of a warp, in a tile: of a consumer, and of the writer that takes over from it. */
template <int Cols> static __device__ __forceinline__ mn_corner mn_strip_of(const mn_walk &walk, int turn) {
  const mn_corner tile = mn_walk_to<Cols>(walk, turn);
  return {tile.row + threadIdx.x / 32 % MN_TILE_WARPS * 16, tile.col};
}

/* A place in the ring of stages, and how often it has come round. */
template <int Stages> struct mn_ring {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++stage < Stages) return;
    stage = 0, parity ^= 1;
  }
};

/* Where things are in a block's shared memory. Barriers, 8 bytes apart: full and empty, one a stage; ready
 * and free, one a piece that is handed to a writer. */
struct mn_places {
  uint32_t stages, full, empty, ready, free;
  float *pieces;
};

/* A block's share of the loads of one stage. An operand whose depth runs along memory is one box of 64 of the
 * depth, any other one for each 64 rows or columns. */
template <enum mn_form Form, int Cols>
static __device__ __forceinline__ void mn_tile_load(const CUtensorMap *a, const CUtensorMap *b, uint32_t to,
                                                    uint32_t full, const mn_corner &corner, int depth) {
  constexpr int ACROSS = mn_tile<Cols>::ACROSS, BOXES_A = MN_TILE_ROWS / 64 / ACROSS, BOXES_B = Cols / 128;
  const int rank = mn_cluster_rank(), down = rank % 2, across = rank / 2;
  const uint32_t to_a = to + across * BOXES_A * MN_TILE_BOX;
  const uint32_t to_b = to + (MN_TILE_ROWS / 64 + down * BOXES_B) * MN_TILE_BOX;
  const int row = (int)corner.row + across * BOXES_A * 64, col = (int)corner.col + down * BOXES_B * 64;
  const uint16_t same_row = (ACROSS == 2 ? 5 : 1) << down, same_col = 3 << 2 * across;
#pragma unroll
  for (int i = 0; i < (Form == MN_TN ? BOXES_A : 1); i++)
    mn_tma_load(to_a + i * MN_TILE_BOX, a, full, Form == MN_TN ? row + i * 64 : depth,
                Form == MN_TN ? depth : row, same_row);
#pragma unroll
  for (int i = 0; i < (Form == MN_NT ? 1 : BOXES_B); i++)
    mn_tma_load(to_b + i * MN_TILE_BOX, b, full, Form == MN_NT ? depth : col + i * 64,
                Form == MN_NT ? col : depth, same_col);
}

/* One stage's multiplications, given to the tensor cores and not waited for. */
template <enum mn_form Form, int Cols>
static __device__ __forceinline__ void mn_tile_multiply(float (&d)[Cols / 2], uint32_t a, uint32_t b) {
  constexpr int DOWN_A = Form == MN_TN, DOWN_B = Form != MN_NT;
  /* 16 of the depth: 32 bytes along a row, or 16 rows down. */
  constexpr int STEP_A = DOWN_A ? 2048 : 32, STEP_B = DOWN_B ? 2048 : 32;
  mn_wgmma_begin();
#pragma unroll
  for (int k = 0; k < MN_TILE_DEPTH / 16; k++)
    mn_wgmma<DOWN_A, DOWN_B>(d, mn_wgmma_operand(a + k * STEP_A, MN_TILE_BOX),
                             mn_wgmma_operand(b + k * STEP_B, MN_TILE_BOX));
  mn_wgmma_commit();
}

template <enum mn_form Form, int Cols, class Epilogue>
static __device__ __forceinline__ void
mn_tile_produce(const CUtensorMap *map_a, const CUtensorMap *map_b, const mn_walk &walk,
                const typename Epilogue::arguments &arguments, const mn_places &at) {
  mn_ring<mn_tile<Cols>::STAGES> ring;
  const int lane = threadIdx.x % 32, late = max(walk.depths - MN_TILE_LATE, 0);
  for (int t = mn_cluster(); t < walk.down * walk.across; t += mn_clusters()) {
    const mn_corner corner = mn_walk_to<Cols>(walk, t);
    for (int k = 0; k < walk.depths; k++, ring.next()) {
      const uint32_t full = at.full + 8 * ring.stage;
      if (k == late) Epilogue::prefetch(arguments, corner.row, corner.col, lane);
      mn_barrier_wait(at.empty + 8 * ring.stage, ring.parity ^ 1);
      if (lane == 0) {
        mn_barrier_expect(full, mn_tile_stage<Cols>);
        mn_tile_load<Form, Cols>(map_a, map_b, at.stages + ring.stage * mn_tile_stage<Cols>, full, corner,
                                 k * MN_TILE_DEPTH);
      }
      __syncwarp();
    }
  }
}

/* The accumulators lie in registers as wgmma leaves them: of each 8 columns a thread has two neighbours in
 * its row and in the row 8 below. They reach the epilogue through shared memory, a warp by itself, in pieces
 * of Wide columns by High rows: then a lane has 4 neighbours, a warp whole stretches of rows, and the rest is
 * a loop. Columns are swizzled by the row, so that neither side meets a bank twice. */
template <int Wide> static __device__ __forceinline__ float *mn_piece_at(float *piece, int row, int col) {
  return piece + row * Wide + (col ^ (row & 3) * 8);
}

/* Columns from `col`, rows from `row` of the warp's 16; High is 8, or 4 where the piece is wide. */
template <int Wide, int High>
static __device__ __forceinline__ void mn_piece_put(float *piece, const float *d, int col, int row) {
  const int lane = threadIdx.x % 32, mine = lane / 4 - row % 8;
  __syncwarp(); /* the piece before has been read */
  if (High == 8 || (mine >= 0 && mine < High))
#pragma unroll
    for (int j = 0; j < Wide / 8; j++) {
      const int first = (col / 8 + j) * 4 + row / 8 * 2;
      *reinterpret_cast<float2 *>(mn_piece_at<Wide>(piece, mine, j * 8 + lane % 4 * 2)) = {d[first],
                                                                                           d[first + 1]};
    }
  __syncwarp();
}

/* Four neighbours of a row of a piece. */
template <int Wide>
static __device__ __forceinline__ void mn_piece_get(float (&out)[4], float *piece, int row, int col) {
  mn_load<4>(out, mn_piece_at<Wide>(piece, row, col));
}

/* A stage has been read: every block that loads a part of it may do so again. */
template <int Cols> static __device__ __forceinline__ void mn_tile_release(const mn_places &at, int stage) {
  const int thread = threadIdx.x % MN_TILE_GROUP;
  if (thread <= mn_tile<Cols>::ACROSS) mn_barrier_arrive(at.empty + 8 * stage, mn_cluster_rank() ^ thread);
}

/* One tile's product, in the registers of the warpgroup. */
template <enum mn_form Form, int Cols>
static __device__ __forceinline__ void
mn_tile_product(float (&d)[Cols / 2], mn_ring<mn_tile<Cols>::STAGES> &ring, int depths, const mn_places &at) {
  const uint32_t own = threadIdx.x / MN_TILE_GROUP * MN_TILE_BOX;
  int last = 0;
  for (int k = 0; k < depths; k++) {
    const uint32_t stage = at.stages + ring.stage * mn_tile_stage<Cols>;
    mn_barrier_wait(at.full + 8 * ring.stage, ring.parity);
    mn_tile_multiply<Form, Cols>(d, stage + own, stage + MN_TILE_ROWS / 64 * MN_TILE_BOX);
    mn_wgmma_wait<1>();
    if (k > 0) mn_tile_release<Cols>(at, last);
    last = ring.stage;
    ring.next();
  }
  mn_wgmma_wait<0>();
  mn_tile_release<Cols>(at, last);
  mn_wgmma_hold(d);
}

template <enum mn_form Form, int Cols, class Epilogue>
static __device__ __forceinline__ void
mn_tile_consume(const mn_walk &walk, const typename Epilogue::arguments &arguments, const mn_places &at) {
  mn_ring<mn_tile<Cols>::STAGES> ring;
  const int warp = threadIdx.x / 32;
  float *piece = at.pieces + warp * mn_tile<Cols>::PIECE;
  uint32_t parity = 1; /* the writer has not been given a piece yet */
  typename Epilogue::ahead ahead;
  if constexpr (mn_tile<Cols>::WRITERS == 0)
    Epilogue::begin(arguments, ahead, mn_strip_of<Cols>(walk, mn_cluster()));
  for (int t = mn_cluster(); t < walk.down * walk.across; t += mn_clusters(), parity ^= 1) {
    float d[Cols / 2] = {};
    mn_tile_product<Form, Cols>(d, ring, walk.depths, at);
    if constexpr (mn_tile<Cols>::WRITERS > 0) {
      mn_barrier_wait(at.free + 8 * warp, parity);
      mn_piece_put<Cols, 8>(piece, d, 0, 0);
      mn_piece_put<Cols, 8>(piece + 8 * Cols, d, 0, 8);
      if (threadIdx.x % 32 == 0) mn_barrier_signal(at.ready + 8 * warp);
    } else {
      Epilogue::finish(arguments, ahead, d, mn_strip_of<Cols>(walk, t),
                       mn_strip_of<Cols>(walk, t + mn_clusters()), piece);
    }
  }
}

/* The epilogue of the narrow tile: each writer takes what the consumer with its number leaves. */
template <int Cols, class Epilogue>
static __device__ __forceinline__ void
mn_tile_write(const mn_walk &walk, const typename Epilogue::arguments &arguments, const mn_places &at) {
  const int warp = threadIdx.x / 32 - MN_TILE_WARPS;
  float *piece = at.pieces + warp * mn_tile<Cols>::PIECE;
  uint32_t parity = 0;
  typename Epilogue::ahead ahead;
  Epilogue::begin(arguments, ahead, mn_strip_of<Cols>(walk, mn_cluster()));
  for (int t = mn_cluster(); t < walk.down * walk.across; t += mn_clusters(), parity ^= 1) {
    mn_barrier_wait(at.ready + 8 * warp, parity);
    Epilogue::finish(arguments, ahead, NULL, mn_strip_of<Cols>(walk, t),
                     mn_strip_of<Cols>(walk, t + mn_clusters()), piece);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mn_barrier_signal(at.free + 8 * warp);
  }
}

template <int Cols> static __device__ __forceinline__ void mn_tile_barriers(const mn_places &at) {
  for (int i = 0; i < mn_tile<Cols>::STAGES; i++) {
    mn_barrier_init(at.full + 8 * i, 1);
    mn_barrier_init(at.empty + 8 * i, 2 * (1 + mn_tile<Cols>::ACROSS)); /* see mn_tile_release */
  }
  for (int i = 0; i < MN_TILE_WARPS; i++) {
    mn_barrier_init(at.ready + 8 * i, 1);
    mn_barrier_init(at.free + 8 * i, 1);
  }
  mn_barrier_publish();
}

template <enum mn_form Form, int Cols, class Epilogue>
static __global__ void __cluster_dims__(2 * mn_tile<Cols>::ACROSS, 1, 1)
    __launch_bounds__(mn_tile_threads<Cols>, 1)
        mn_hopper_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                         const mn_walk walk, const __grid_constant__ typename Epilogue::arguments arguments) {
  typedef mn_tile<Cols> tile;
  extern __shared__ __align__(1024) char stages[]; /* the swizzle counts from multiples of 1024 */
  float *pieces = reinterpret_cast<float *>(stages + tile::STAGES * mn_tile_stage<Cols>);
  const uint32_t full = mn_shared(pieces + MN_TILE_WARPS * tile::PIECE), empty = full + 8 * tile::STAGES;
  const uint32_t ready = empty + 8 * tile::STAGES;
  const mn_places at = {mn_shared(stages), full, empty, ready, ready + 8 * MN_TILE_WARPS, pieces};
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    mn_tma_fetch_map(&map_a);
    mn_tma_fetch_map(&map_b);
    mn_tile_barriers<Cols>(at);
  }
  __syncwarp();
  mn_cluster_sync();
  if (warp < MN_TILE_WARPS) {
    mn_registers_up<tile::CONSUME>();
    mn_tile_consume<Form, Cols, Epilogue>(walk, arguments, at);
  } else if (warp < MN_TILE_WARPS + tile::WRITERS) {
    mn_registers_up<tile::WRITE>();
    if constexpr (tile::WRITERS > 0) mn_tile_write<Cols, Epilogue>(walk, arguments, at);
  } else {
    mn_registers_down<tile::PRODUCE>();
    if (warp == MN_TILE_WARPS + tile::WRITERS)
      mn_tile_produce<Form, Cols, Epilogue>(&map_a, &map_b, walk, arguments, at);
  }
  __syncwarp();
  mn_cluster_sync(); /* the other block may still tell this one's barriers */
}

/* The part of a tile that is inside the matrix comes into the L2 cache: a lane for every 32nd row. */
template <typename T>
static __device__ __forceinline__ void mn_tile_prefetch(const T *matrix, int64_t rows, int64_t cols,
                                                        int64_t row, int64_t col, int width, int lane) {
  const int inside = (int)min((int64_t)width, cols - col) * (int)sizeof(T);
  const T *from = matrix + (row + lane) * cols + col;
#pragma unroll 1
  for (int left = (int)min(rows - row, (int64_t)MN_TILE_ROWS) - lane; left > 0; left -= 32, from += 32 * cols)
    mn_prefetch(from, inside);
}

/* The product, on as many clusters as there is room for. */
template <enum mn_form Form, int Cols, class Epilogue>
static mn_status mn_hopper_launch(struct mn_stream *stream, const struct mn_hopper_product *p,
                                  const typename Epilogue::arguments &arguments) {
  constexpr int memory = mn_tile_memory<Cols>, across = mn_tile<Cols>::ACROSS;
  static_assert(memory <= 227 * 1024);
  CUtensorMap a, b;
  MN_TRY(mn_hopper_map(stream, &a, p->a, Form == MN_TN, p->rows, p->depth, MN_TILE_ROWS / across));
  MN_TRY(mn_hopper_map(stream, &b, p->b, Form != MN_NT, p->cols, p->depth, Cols / 2));
  const mn_walk walk = {(int)((p->rows + 2 * MN_TILE_ROWS - 1) / (2 * MN_TILE_ROWS)),
                        (int)((p->cols + across * Cols - 1) / (across * Cols)),
                        (int)((p->depth + MN_TILE_DEPTH - 1) / MN_TILE_DEPTH), Epilogue::PANEL};
  auto kernel = mn_hopper_kernel<Form, Cols, Epilogue>;
  MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2 * across * walk.down * walk.across), config.blockDim = dim3(mn_tile_threads<Cols>);
  config.dynamicSmemBytes = memory;
  int room = 0;
  MN_CUDA_TRY(cudaOccupancyMaxActiveClusters(&room, kernel, &config));
  MN_REQUIRE(room > 0);
  config.gridDim.x = 2 * across * std::min(walk.down * walk.across, room);
  config.stream = stream->cuda->stream;
  MN_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, a, b, walk, arguments));
  return mn_cuda_launched("gemm");
}

#endif
