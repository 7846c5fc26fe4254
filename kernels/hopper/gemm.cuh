/* The GEMM of our own for Hopper, in bfloat16: one main loop, and what becomes of its result, the epilogue,
 * as a template parameter.
 *
 * A block is some warpgroups that consume and a warp that produces. The producer keeps TMA loads of both
 * operands going, through a ring of stages in shared memory; each consumer multiplies (wgmma) its 64 rows of
 * the block's tile. Blocks stay and go through the tiles in an order that keeps the operands in the L2 cache;
 * the producer runs ahead, so that the next tile's operands arrive during the epilogue.
 *
 * Three tiles. The plain one is as large as a multiprocessor holds, the most work for what it reads; two
 * blocks make a cluster, on tiles one above the other that share b's part: each loads half of it for both.
 * The consumers do the epilogue, from their registers, while the tensor cores rest. The streaming one is for
 * epilogues that move more bytes than the multiplication takes time: eight more warps, the writers, do
 * nothing else, of one tile while the next is being multiplied, so that the memory never rests; it is half as
 * wide, because a tile on its way to the writers takes shared memory. The small one is for products that
 * would leave most of the multiprocessors without a tile: an eighth of the plain one, in blocks by
 * themselves, with so many stages that a short depth is all on its way at once. */
#ifndef MN_KERNELS_HOPPER_GEMM_CUH
#define MN_KERNELS_HOPPER_GEMM_CUH

#include <algorithm>

#include "kernels/cuda.cuh"
#include "kernels/hopper/gemm.h"
#include "kernels/hopper/ptx.cuh"

enum {
  MN_TILE_DEPTH = 64,                   /* 128 bytes: the width of the swizzle */
  MN_TILE_GROUP = 128,                  /* threads of a warpgroup */
  MN_TILE_BOX = 64 * MN_TILE_DEPTH * 2, /* bytes of 64 rows or columns of an operand's stage */
  MN_TILE_PIECE = 8 * 128, /* floats of a piece of the result: 8 rows; 4 twice, 16 half as wide */
  MN_TILE_PANEL = 8,       /* clusters that go across together, as a rule */
  MN_TILE_LATE = 16,       /* stages before a tile's last, at which what its epilogue reads is sent for */
};

/* What the tiles differ in: rows and columns, blocks in a cluster, stages in the ring, how many of them the
 * tensor cores are given before the first has to be done (the fewer columns, the sooner it is), warps that
 * write, pieces of the result that a consuming warp has (each MN_TILE_PIECE floats), the registers of each
 * thread by its role (0: as at the start). To hand over registers the producer is a whole warpgroup, of which
 * one warp works. */
struct mn_plain_tile {
  enum { ROWS = 128, COLS = 256, CLUSTER = 2, STAGES = 4, RUNNING = 2 };
  enum { WRITERS = 0, PIECES = 1, CONSUME = 232, WRITE = 0, PRODUCE = 40 };
};
struct mn_streaming_tile {
  enum { ROWS = 128, COLS = 128, CLUSTER = 2, STAGES = 5, RUNNING = 2 };
  enum { WRITERS = 8, PIECES = 2, CONSUME = 0, WRITE = 128, PRODUCE = 24 };
};
struct mn_small_tile {
  enum { ROWS = 64, COLS = 64, CLUSTER = 1, STAGES = 12, RUNNING = 4 };
  enum { WRITERS = 0, PIECES = 1, CONSUME = 0, WRITE = 0, PRODUCE = 0 };
};

template <class Tile> constexpr int mn_tile_warps = Tile::ROWS / 16; /* that consume, 16 rows each */
template <class Tile> constexpr int mn_tile_threads = 32 * (mn_tile_warps<Tile> + Tile::WRITERS + 4);

/* Bytes of one stage: a's part, then b's. */
template <class Tile> constexpr int mn_tile_a = Tile::ROWS / 64 * MN_TILE_BOX;
template <class Tile> constexpr int mn_tile_stage = mn_tile_a<Tile> + Tile::COLS / 64 * MN_TILE_BOX;

/* Shared memory: stages, pieces of the result, barriers. */
template <class Tile>
constexpr int mn_tile_memory = Tile::STAGES *(mn_tile_stage<Tile> + 16) +
                               mn_tile_warps<Tile> *Tile::PIECES *(MN_TILE_PIECE *(int)sizeof(float) + 16);

/* Tiles that cover a product, whole clusters of them. */
template <class Tile> static int64_t mn_tiles_down(const struct mn_hopper_product *p) {
  return (p->rows + Tile::CLUSTER * Tile::ROWS - 1) / (Tile::CLUSTER * Tile::ROWS) * Tile::CLUSTER;
}
template <class Tile> static int64_t mn_tiles_across(const struct mn_hopper_product *p) {
  return (p->cols + Tile::COLS - 1) / Tile::COLS;
}

/* How the tiles of a product are walked over, a cluster's at a time. */
struct mn_walk {
  int down, across, depths; /* clusters down, tiles across, stages deep */
  int panel;                /* clusters that go across together */
};

/* Where a tile, a warp's strip of 16 rows of it, or a piece of that begins. */
struct mn_strip {
  int64_t row, col;
};

/* The strip of consumer `warp` in the cluster's turn: down a panel, then across, so that what runs at the
 * same time shares its operands in the L2 cache. After the last turn a strip is outside of the matrix. */
template <class Tile>
static __device__ __forceinline__ mn_strip mn_strip_of(const mn_walk &walk, int turn, int warp) {
  const int panel = turn / (walk.panel * walk.across), within = turn - panel * walk.panel * walk.across;
  const int height = max(min(walk.panel, walk.down - panel * walk.panel), 1);
  const int row = (panel * walk.panel + within % height) * Tile::CLUSTER + mn_cluster_rank();
  return {(int64_t)row * Tile::ROWS + warp * 16, (int64_t)(within / height) * Tile::COLS};
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

/* A block's loads of one stage: its own part of a, and the part of b's that it loads for its cluster. An
 * operand whose depth runs along memory is one box of 64 of the depth, any other one for each 64 rows or
 * columns. */
template <enum mn_form Form, class Tile>
static __device__ __forceinline__ void mn_tile_load(const CUtensorMap *a, const CUtensorMap *b, uint32_t to,
                                                    uint32_t full, const mn_strip &tile, int depth) {
  constexpr int BOXES_A = Tile::ROWS / 64, BOXES_B = Tile::COLS / Tile::CLUSTER / 64;
  const int rank = mn_cluster_rank(), row = (int)tile.row, col = (int)tile.col + rank * BOXES_B * 64;
  const uint32_t to_b = to + mn_tile_a<Tile> + rank * BOXES_B * MN_TILE_BOX;
  const uint64_t keep = mn_l2_keep(); /* what epilogues read and write streams past */
#pragma unroll
  for (int i = 0; i < (Form == MN_TN ? BOXES_A : 1); i++)
    mn_tma_load(to + i * MN_TILE_BOX, a, full, Form == MN_TN ? row + i * 64 : depth,
                Form == MN_TN ? depth : row, 1 << rank, keep);
#pragma unroll
  for (int i = 0; i < (Form == MN_NT ? 1 : BOXES_B); i++)
    mn_tma_load(to_b + i * MN_TILE_BOX, b, full, Form == MN_NT ? depth : col + i * 64,
                Form == MN_NT ? col : depth, (1 << Tile::CLUSTER) - 1, keep);
}

/* One stage's multiplications, given to the tensor cores and not waited for. */
template <enum mn_form Form, int Count>
static __device__ __forceinline__ void mn_tile_multiply(float (&d)[Count], uint32_t a, uint32_t b) {
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

template <enum mn_form Form, class Epilogue>
static __device__ __forceinline__ void
mn_tile_produce(const CUtensorMap *map_a, const CUtensorMap *map_b, const mn_walk &walk,
                const typename Epilogue::arguments &arguments, const mn_places &at) {
  typedef typename Epilogue::tile Tile;
  mn_ring<Tile::STAGES> ring;
  const int lane = threadIdx.x % 32;
  /* Not before the ring is full: the first operands are waited for. */
  const int late = max(walk.depths - MN_TILE_LATE, min(walk.depths, (int)Tile::STAGES) - 1);
  for (int t = mn_cluster(); t < walk.down * walk.across; t += mn_clusters()) {
    const mn_strip tile = mn_strip_of<Tile>(walk, t, 0);
    for (int k = 0; k < walk.depths; k++, ring.next()) {
      const uint32_t full = at.full + 8 * ring.stage;
      mn_barrier_wait(at.empty + 8 * ring.stage, ring.parity ^ 1);
      if (lane == 0) {
        mn_barrier_expect(full, mn_tile_stage<Tile>);
        mn_tile_load<Form, Tile>(map_a, map_b, at.stages + ring.stage * mn_tile_stage<Tile>, full, tile,
                                 k * MN_TILE_DEPTH);
      }
      __syncwarp();
      if (k == late) Epilogue::prefetch(arguments, tile.row, tile.col, lane);
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

/* Columns from `col`, rows from `row` of the warp's 16. */
template <int Wide, int High>
static __device__ __forceinline__ void mn_piece_put(float *piece, const float *d, int col, int row) {
  const int lane = threadIdx.x % 32;
  __syncwarp(); /* the piece before has been read */
#pragma unroll
  for (int eighth = row / 8; eighth * 8 < row + High; eighth++) {
    const int mine = lane / 4 + eighth * 8 - row;
    if (High >= 8 || (mine >= 0 && mine < High))
#pragma unroll
      for (int j = 0; j < Wide / 8; j++) {
        const int first = (col / 8 + j) * 4 + eighth * 2;
        *reinterpret_cast<float2 *>(mn_piece_at<Wide>(piece, mine, j * 8 + lane % 4 * 2)) = {d[first],
                                                                                             d[first + 1]};
      }
  }
  __syncwarp();
}

/* What a lane has of a piece, 4 neighbours at a time: in rows ROWS apart from `row` on, the columns from
 * `col`, and where the piece is wide those 128 further on. */
template <int Wide> struct mn_piece_lane {
  enum { ROWS = Wide < 128 ? 128 / Wide : 1, SLOTS = MN_TILE_PIECE / Wide / ROWS };
  const int row = threadIdx.x % 32 * 4 / Wide, col = threadIdx.x % 32 * 4 % Wide;

  __device__ __forceinline__ void get(float (&out)[4], float *piece, int slot, int across = 0) const {
    mn_load<4>(out, mn_piece_at<Wide>(piece, slot * ROWS + row, across + col));
  }
};

/* A stage has been read: the blocks of the cluster, which load parts of it, may do so again. */
template <class Tile> static __device__ __forceinline__ void mn_tile_release(const mn_places &at, int stage) {
  const int thread = threadIdx.x % MN_TILE_GROUP;
  if (thread < Tile::CLUSTER) mn_barrier_arrive(at.empty + 8 * stage, thread);
}

/* One tile's product, in the registers of the warpgroup. */
template <enum mn_form Form, class Tile>
static __device__ __forceinline__ void
mn_tile_product(float (&d)[Tile::COLS / 2], mn_ring<Tile::STAGES> &ring, int depths, const mn_places &at) {
  const uint32_t own = threadIdx.x / MN_TILE_GROUP * MN_TILE_BOX;
  mn_ring<Tile::STAGES> done = ring;
  for (int k = 0; k < depths; k++, ring.next()) {
    const uint32_t stage = at.stages + ring.stage * mn_tile_stage<Tile>;
    mn_barrier_wait(at.full + 8 * ring.stage, ring.parity);
    mn_tile_multiply<Form>(d, stage + own, stage + mn_tile_a<Tile>);
    mn_wgmma_wait<Tile::RUNNING - 1>();
    if (k < Tile::RUNNING - 1) continue;
    mn_tile_release<Tile>(at, done.stage);
    done.next();
  }
  mn_wgmma_wait<0>();
  for (; done.stage != ring.stage; done.next()) mn_tile_release<Tile>(at, done.stage);
  mn_wgmma_hold(d);
}

template <enum mn_form Form, class Epilogue>
static __device__ __forceinline__ void
mn_tile_consume(const mn_walk &walk, const typename Epilogue::arguments &arguments, const mn_places &at) {
  typedef typename Epilogue::tile Tile;
  mn_ring<Tile::STAGES> ring;
  mn_ring<Tile::PIECES> hand;
  const int warp = threadIdx.x / 32;
  typename Epilogue::ahead ahead;
  if constexpr (Tile::WRITERS == 0)
    Epilogue::begin(arguments, ahead, mn_strip_of<Tile>(walk, mn_cluster(), warp));
  for (int t = mn_cluster(); t < walk.down * walk.across; t += mn_clusters()) {
    float d[Tile::COLS / 2] = {};
    mn_tile_product<Form, Tile>(d, ring, walk.depths, at);
    if constexpr (Tile::WRITERS == 0) {
      Epilogue::finish(arguments, ahead, d, mn_strip_of<Tile>(walk, t, warp),
                       mn_strip_of<Tile>(walk, t + mn_clusters(), warp), at.pieces + warp * MN_TILE_PIECE);
    } else {
#pragma unroll
      for (int down = 0; down < 16; down += 8, hand.next()) {
        const int own = warp * Tile::PIECES + hand.stage;
        mn_barrier_wait(at.free + 8 * own, hand.parity ^ 1);
        mn_piece_put<Tile::COLS, 8>(at.pieces + own * MN_TILE_PIECE, d, 0, down);
        mn_barrier_signal(at.ready + 8 * own);
      }
    }
  }
}

/* The epilogue of the streaming tile, 8 rows at a time: each writer takes over from the consumer with its
 * number. */
template <class Epilogue>
static __device__ __forceinline__ void
mn_tile_write(const mn_walk &walk, const typename Epilogue::arguments &arguments, const mn_places &at) {
  typedef typename Epilogue::tile Tile;
  mn_ring<Tile::PIECES> hand;
  const int warp = threadIdx.x / 32 - mn_tile_warps<Tile>;
  typename Epilogue::ahead ahead;
  mn_strip strip = mn_strip_of<Tile>(walk, mn_cluster(), warp);
  Epilogue::begin(arguments, ahead, strip);
  for (int t = mn_cluster(); t < walk.down * walk.across; t += mn_clusters())
#pragma unroll 1
    for (int down = 0; down < 16; down += 8, hand.next()) {
      const int own = warp * Tile::PIECES + hand.stage;
      mn_strip next = {strip.row + 8, strip.col};
      if (down == 8) next = mn_strip_of<Tile>(walk, t + mn_clusters(), warp);
      mn_barrier_wait(at.ready + 8 * own, hand.parity);
      Epilogue::finish(arguments, ahead, strip, next, at.pieces + own * MN_TILE_PIECE);
      mn_barrier_signal(at.free + 8 * own);
      strip = next;
    }
}

template <class Tile> static __device__ __forceinline__ void mn_tile_barriers(const mn_places &at) {
  for (int i = 0; i < Tile::STAGES; i++) {
    mn_barrier_init(at.full + 8 * i, 1);
    mn_barrier_init(at.empty + 8 * i, Tile::ROWS / 64 * Tile::CLUSTER); /* the warpgroups that read it */
  }
  for (int i = 0; i < mn_tile_warps<Tile> * Tile::PIECES; i++) {
    mn_barrier_init(at.ready + 8 * i, 32); /* a warp, each lane for itself */
    mn_barrier_init(at.free + 8 * i, 32);
  }
  mn_barrier_publish();
}

/* All threads of the cluster. */
template <class Tile> static __device__ __forceinline__ void mn_tile_sync() {
  __syncwarp();
  if constexpr (Tile::CLUSTER > 1)
    mn_cluster_sync();
  else
    __syncthreads();
}

template <enum mn_form Form, class Epilogue>
static __global__ void __cluster_dims__(Epilogue::tile::CLUSTER, 1, 1)
    __launch_bounds__(mn_tile_threads<typename Epilogue::tile>, 1)
        mn_hopper_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                         const mn_walk walk, const __grid_constant__ typename Epilogue::arguments arguments) {
  typedef typename Epilogue::tile tile;
  extern __shared__ __align__(1024) char stages[]; /* the swizzle counts from multiples of 1024 */
  constexpr int CONSUMERS = mn_tile_warps<tile>, PIECES = CONSUMERS * tile::PIECES;
  float *pieces = reinterpret_cast<float *>(stages + tile::STAGES * mn_tile_stage<tile>);
  const uint32_t full = mn_shared(pieces + PIECES * MN_TILE_PIECE), empty = full + 8 * tile::STAGES;
  const uint32_t ready = empty + 8 * tile::STAGES;
  const mn_places at = {mn_shared(stages), full, empty, ready, ready + 8 * PIECES, pieces};
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    if (at.stages % 1024) __trap();
    mn_tma_fetch_map(&map_a);
    mn_tma_fetch_map(&map_b);
    mn_tile_barriers<tile>(at);
  }
  mn_tile_sync<tile>();
  if (warp < CONSUMERS) {
    mn_registers_up<tile::CONSUME>();
    mn_tile_consume<Form, Epilogue>(walk, arguments, at);
  } else if (warp < CONSUMERS + tile::WRITERS) {
    mn_registers_up<tile::WRITE>();
    if constexpr (tile::WRITERS > 0) mn_tile_write<Epilogue>(walk, arguments, at);
  } else {
    mn_registers_down<tile::PRODUCE>();
    if (warp == CONSUMERS + tile::WRITERS)
      mn_tile_produce<Form, Epilogue>(&map_a, &map_b, walk, arguments, at);
  }
  if (tile::CLUSTER > 1) mn_tile_sync<tile>(); /* the other block may still arrive at this one's barriers */
}

/* The part of a tile that is inside the matrix comes into the L2 cache: a lane for every 32nd row. */
template <class Tile, typename T>
static __device__ __forceinline__ void mn_tile_prefetch(const T *matrix, int64_t rows, int64_t cols,
                                                        int64_t row, int64_t col, int lane) {
  const int inside = (int)min((int64_t)Tile::COLS, cols - col) * (int)sizeof(T);
  const T *from = matrix + (row + lane) * cols + col;
#pragma unroll 1
  for (int left = (int)min(rows - row, (int64_t)Tile::ROWS) - lane; left > 0; left -= 32, from += 32 * cols)
    mn_prefetch(from, inside);
}

/* Whether such tiles keep two thirds of the multiprocessors busy, in whole rounds; and no cluster is half
 * empty all the way. */
template <class Tile>
static bool mn_tiles_fill(const struct mn_device *device, const struct mn_hopper_product *p) {
  const int64_t tiles = mn_tiles_down<Tile>(p) * mn_tiles_across<Tile>(p),
                all = device->cuda->multiprocessors;
  return p->rows > (Tile::CLUSTER - 1) * Tile::ROWS && 3 * tiles >= 2 * all * ((tiles + all - 1) / all);
}

/* Where large tiles do not: whether small ones pay. With more depth than this in all, over their rounds, the
 * library does better, with larger tiles or by dividing the depth. */
enum { MN_SMALL_DEPTH = 1024 };

static inline bool mn_small_pays(const struct mn_device *device, const struct mn_hopper_product *p) {
  const int64_t tiles = mn_tiles_down<mn_small_tile>(p) * mn_tiles_across<mn_small_tile>(p);
  const int64_t all = device->cuda->multiprocessors;
  return (tiles + all - 1) / all * p->depth <= MN_SMALL_DEPTH;
}

/* The product, on as many clusters as there is room for. */
template <enum mn_form Form, class Epilogue>
static mn_status mn_hopper_launch(struct mn_device *device, const struct mn_hopper_product *p,
                                  const typename Epilogue::arguments &arguments, int panel = MN_TILE_PANEL) {
  typedef typename Epilogue::tile tile;
  constexpr int memory = mn_tile_memory<tile>;
  static_assert(memory <= 227 * 1024);
  CUtensorMap a, b;
  MN_TRY(mn_hopper_map(device, &a, p->a, Form == MN_TN, p->rows, p->depth, tile::ROWS));
  MN_TRY(mn_hopper_map(device, &b, p->b, Form != MN_NT, p->cols, p->depth, tile::COLS / tile::CLUSTER));
  const int down = (int)mn_tiles_down<tile>(p) / tile::CLUSTER;
  const mn_walk walk = {down, (int)mn_tiles_across<tile>(p),
                        (int)((p->depth + MN_TILE_DEPTH - 1) / MN_TILE_DEPTH), std::min(panel, down)};
  const int clusters = std::min(walk.down * walk.across, device->cuda->multiprocessors / tile::CLUSTER);
  auto kernel = mn_hopper_kernel<Form, Epilogue>;
  MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  kernel<<<tile::CLUSTER * clusters, mn_tile_threads<tile>, memory, device->cuda->stream>>>(a, b, walk,
                                                                                            arguments);
  return mn_cuda_launched("gemm");
}

#endif
