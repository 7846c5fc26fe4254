/* The GEMM of our own for Hopper, in bfloat16: one main loop, and what becomes of its result, the epilogue,
 * as a template parameter.
 *
 * A block is two warpgroups that consume and a warp that produces. The producer keeps TMA loads of both
 * operands going, through a ring of stages in shared memory; each consumer multiplies (wgmma) its 64 rows of
 * the block's tile, 128 rows by Cols columns. Two blocks make a cluster: they work on tiles one above the
 * other, which share b's part; each loads half of it for both. Blocks stay and go through the tiles in an
 * order that keeps the operands in the L2 cache; the producer runs ahead, so that the next tile's operands
 * arrive during the epilogue.
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
  MN_TILE_PANEL = 8,                    /* tile pairs (2048 rows) that go along b together */
};

/* What depends on the width of a tile: stages in the ring, warps that write, floats of a warp's piece, and
 * the registers of each thread by its role (0: an even share). To hand over registers the producer is a whole
 * warpgroup, of which one warp works. */
template <int Cols> struct mn_tile;
template <> struct mn_tile<256> {
  enum { STAGES = 4, WRITERS = 0, PIECE = 8 * 128, CONSUME = 232, WRITE = 0, PRODUCE = 40 };
};
template <> struct mn_tile<128> {
  enum { STAGES = 5, WRITERS = MN_TILE_WARPS, PIECE = 16 * 128, CONSUME = 0, WRITE = 128, PRODUCE = 24 };
};
template <int Cols> constexpr int mn_tile_threads = 32 * (MN_TILE_WARPS + mn_tile<Cols>::WRITERS + 4);

/* Bytes of one stage: a's part, then b's. */
template <int Cols> constexpr int mn_tile_stage = (MN_TILE_ROWS + Cols) / 64 * MN_TILE_BOX;

/* Shared memory: stages, a piece of the result for each consuming warp (PIECE floats), barriers. */
template <int Cols>
constexpr int mn_tile_memory = mn_tile<Cols>::STAGES *(mn_tile_stage<Cols> + 16) +
                               MN_TILE_WARPS *(mn_tile<Cols>::PIECE *(int)sizeof(float) + 16);

/* How the tiles of a product are walked over. */
struct mn_walk {
  int pairs, cols, depths; /* tile pairs down, tiles across, stages deep */
};

/* Down a panel of pairs, then across: what runs at the same time is about square. */
static __device__ __forceinline__ void mn_walk_to(const mn_walk &walk, int tile, int &pair, int &col) {
  int panel = tile / (MN_TILE_PANEL * walk.cols), within = tile - panel * MN_TILE_PANEL * walk.cols;
  int height = min((int)MN_TILE_PANEL, walk.pairs - panel * MN_TILE_PANEL);
  pair = panel * MN_TILE_PANEL + within % height;
  col = within / height;
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

/* The loads of one stage, by one thread of each block: all of its own a, its half of the pair's b. An operand
 * whose depth runs along memory is one box of 64 of the depth, any other one for each 64 rows or columns. */
template <enum mn_form Form, int Cols>
static __device__ __forceinline__ void mn_tile_load(const CUtensorMap *a, const CUtensorMap *b, uint32_t to,
                                                    uint32_t full, int row, int col, int depth, int rank) {
  const uint32_t to_b = to + MN_TILE_ROWS / 64 * MN_TILE_BOX + rank * (Cols / 128 * MN_TILE_BOX);
  const int first = col + rank * (Cols / 2);
  if constexpr (Form == MN_TN) {
#pragma unroll
    for (int i = 0; i < MN_TILE_ROWS / 64; i++)
      mn_tma_load(to + i * MN_TILE_BOX, a, full, row + i * 64, depth);
  } else {
    mn_tma_load(to, a, full, depth, row);
  }
  if constexpr (Form == MN_NT) {
    mn_tma_multicast(to_b, b, full, depth, first, 3);
  } else {
#pragma unroll
    for (int i = 0; i < Cols / 128; i++)
      mn_tma_multicast(to_b + i * MN_TILE_BOX, b, full, first + i * 64, depth, 3);
  }
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
  const int rank = mn_cluster_rank(), lane = threadIdx.x % 32;
  for (int t = blockIdx.x / 2; t < walk.pairs * walk.cols; t += gridDim.x / 2) {
    int pair, col;
    mn_walk_to(walk, t, pair, col);
    const int row = (2 * pair + rank) * MN_TILE_ROWS;
    Epilogue::prefetch(arguments, row, (int64_t)col * Cols, lane);
    for (int k = 0; k < walk.depths; k++, ring.next()) {
      const uint32_t full = at.full + 8 * ring.stage;
      mn_barrier_wait(at.empty + 8 * ring.stage, ring.parity ^ 1);
      if (lane == 0) {
        mn_barrier_expect(full, mn_tile_stage<Cols>);
        mn_tile_load<Form, Cols>(map_a, map_b, at.stages + ring.stage * mn_tile_stage<Cols>, full, row,
                                 col * Cols, k * MN_TILE_DEPTH, rank);
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
template <int Wide, int High, int Count>
static __device__ __forceinline__ void mn_piece_put(float *piece, const float (&d)[Count], int col, int row) {
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

/* One tile's product, in the registers of the warpgroup. */
template <enum mn_form Form, int Cols>
static __device__ __forceinline__ void
mn_tile_product(float (&d)[Cols / 2], mn_ring<mn_tile<Cols>::STAGES> &ring, int depths, const mn_places &at) {
  const int thread = threadIdx.x % MN_TILE_GROUP;
  const uint32_t own = threadIdx.x / MN_TILE_GROUP * MN_TILE_BOX;
  int last = 0;
  for (int k = 0; k < depths; k++) {
    const uint32_t stage = at.stages + ring.stage * mn_tile_stage<Cols>;
    mn_barrier_wait(at.full + 8 * ring.stage, ring.parity);
    mn_tile_multiply<Form, Cols>(d, stage + own, stage + MN_TILE_ROWS / 64 * MN_TILE_BOX);
    /* The stage before this one has been read: both blocks' producers may fill it again. */
    mn_wgmma_wait<1>();
    if (k > 0 && thread < 2) mn_barrier_arrive(at.empty + 8 * last, thread);
    last = ring.stage;
    ring.next();
  }
  mn_wgmma_wait<0>();
  if (thread < 2) mn_barrier_arrive(at.empty + 8 * last, thread);
  mn_wgmma_hold(d);
}

template <enum mn_form Form, int Cols, class Epilogue>
static __device__ __forceinline__ void
mn_tile_consume(const mn_walk &walk, const typename Epilogue::arguments &arguments, const mn_places &at) {
  mn_ring<mn_tile<Cols>::STAGES> ring;
  const int rank = mn_cluster_rank(), warp = threadIdx.x / 32;
  float *piece = at.pieces + warp * mn_tile<Cols>::PIECE;
  uint32_t parity = 1; /* the writer has not been given a piece yet */
  for (int t = blockIdx.x / 2; t < walk.pairs * walk.cols; t += gridDim.x / 2, parity ^= 1) {
    int pair, col;
    float d[Cols / 2] = {};
    mn_walk_to(walk, t, pair, col);
    mn_tile_product<Form, Cols>(d, ring, walk.depths, at);
    if constexpr (mn_tile<Cols>::WRITERS > 0) {
      mn_barrier_wait(at.free + 8 * warp, parity);
      mn_piece_put<Cols, 8>(piece, d, 0, 0);
      mn_piece_put<Cols, 8>(piece + 8 * Cols, d, 0, 8);
      if (threadIdx.x % 32 == 0) mn_barrier_signal(at.ready + 8 * warp);
    } else {
      const int64_t row = (int64_t)(2 * pair + rank) * MN_TILE_ROWS + warp * 16;
      Epilogue::finish(arguments, d, row, (int64_t)col * Cols, piece);
    }
  }
}

/* The epilogue of the narrow tile: each writer takes what the consumer with its number leaves. */
template <int Cols, class Epilogue>
static __device__ __forceinline__ void
mn_tile_write(const mn_walk &walk, const typename Epilogue::arguments &arguments, const mn_places &at) {
  const int rank = mn_cluster_rank(), warp = threadIdx.x / 32 - MN_TILE_WARPS;
  float *piece = at.pieces + warp * mn_tile<Cols>::PIECE;
  uint32_t parity = 0;
  for (int t = blockIdx.x / 2; t < walk.pairs * walk.cols; t += gridDim.x / 2, parity ^= 1) {
    int pair, col;
    mn_walk_to(walk, t, pair, col);
    typename Epilogue::ahead ahead;
    const int64_t row = (int64_t)(2 * pair + rank) * MN_TILE_ROWS + warp * 16;
    Epilogue::begin(arguments, ahead, row, (int64_t)col * Cols);
    mn_barrier_wait(at.ready + 8 * warp, parity);
    Epilogue::finish(arguments, ahead, row, (int64_t)col * Cols, piece);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mn_barrier_signal(at.free + 8 * warp);
  }
}

template <int Cols> static __device__ __forceinline__ void mn_tile_barriers(const mn_places &at) {
  for (int i = 0; i < mn_tile<Cols>::STAGES; i++) {
    mn_barrier_init(at.full + 8 * i, 1);
    mn_barrier_init(at.empty + 8 * i, 4); /* two consumers in each of two blocks */
  }
  for (int i = 0; i < MN_TILE_WARPS; i++) {
    mn_barrier_init(at.ready + 8 * i, 1);
    mn_barrier_init(at.free + 8 * i, 1);
  }
  mn_barrier_publish();
}

template <enum mn_form Form, int Cols, class Epilogue>
static __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(mn_tile_threads<Cols>, 1)
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
  for (int64_t r = row + lane; r < min(row + MN_TILE_ROWS, rows); r += 32)
    mn_prefetch(matrix + r * cols + col, inside);
}

/* The product, on as many blocks as there is room for. */
template <enum mn_form Form, int Cols, class Epilogue>
static mn_status mn_hopper_launch(struct mn_stream *stream, const struct mn_hopper_product *p,
                                  const typename Epilogue::arguments &arguments) {
  constexpr int memory = mn_tile_memory<Cols>;
  static_assert(memory <= 227 * 1024);
  CUtensorMap a, b;
  MN_TRY(mn_hopper_map(stream, &a, p->a, Form == MN_TN, p->rows, p->depth, MN_TILE_ROWS));
  MN_TRY(mn_hopper_map(stream, &b, p->b, Form != MN_NT, p->cols, p->depth, Cols / 2));
  const mn_walk walk = {(int)((p->rows + 2 * MN_TILE_ROWS - 1) / (2 * MN_TILE_ROWS)),
                        (int)((p->cols + Cols - 1) / Cols),
                        (int)((p->depth + MN_TILE_DEPTH - 1) / MN_TILE_DEPTH)};
  const int pairs = std::min(walk.pairs * walk.cols, stream->cuda->multiprocessors / 2);
  auto kernel = mn_hopper_kernel<Form, Cols, Epilogue>;
  MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  kernel<<<2 * pairs, mn_tile_threads<Cols>, memory, stream->cuda->stream>>>(a, b, walk, arguments);
  return mn_cuda_launched("gemm");
}

#endif
