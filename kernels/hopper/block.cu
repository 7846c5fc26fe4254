/* The block epilogues of the Hopper GEMM: a group's neighbours sit in the registers of a few lanes, so bias,
 * statistics, normalisation, activation, loss and all of their backward are done before anything is written.
 *
 * The reference shape, N 1024, I = C 8192, D 16, is 137 GFLOP: 0.174 ms in the fastest library product there.
 * On an H200, rested: the same main loop with a plain store 0.176 ms, forward 0.178, with z, mean and rstd
 * saved 0.184, loss and backward 0.192, backward on the arriving dx 0.190. The tensor cores are the bound,
 * and the rest are the epilogues of the two tiles that fall to each multiprocessor: while they run, the
 * tensor cores rest. They are bound by the instructions that eight warps issue. That it is known when the
 * kernel is compiled what is written took a batch of four rows from 490 to 340 of them in the forward and
 * from 920 to 660 in the loss, of which 374 are the formulas; the loss took 0.198 before. Earlier, the loss
 * from 0.229 to 0.207 (Nsight Compute, caches flushed): the target is asked into the L2 cache late enough to
 * be still there, and its loads, a batch ahead, stand under no condition.
 *
 * N 128, 512 -> 256, D 32: small tiles, 0.0044 ms a launch in a row of them, forward; 0.0056 the loss. The
 * library's product and the epilogue's pass take 0.0057 and 0.0071. */
#include "kernels/block_row.cuh"
#include "kernels/hopper/gemm.cuh"

/* Groups of D channels, a row of a piece one vector of 4 a lane, or two where D is 256. Saves: a forward that
 * leaves more than the bf16 form of y. */
template <enum mn_epilogue_kind Kind, int D, bool Saves, class Tile> struct block_epilogue {
  typedef mn_block_arguments<float> arguments;
  typedef Tile tile;
  enum {
    COLS = tile::COLS,
    K = D == 256 ? 2 : 1,
    V = 4 * K,
    L = D / V,
    WIDE = COLS < 32 * V ? (int)COLS : 32 * V,
    HIGH = MN_TILE_PIECE / WIDE,
    AHEAD = K > 1        ? 1
            : WIDE < 128 ? 8
                         : 4, /* slots in a batch; one is worked on, one on its way */
    BATCHES = COLS * 16 / (32 * V * AHEAD),
  };
  typedef mn_piece_lane<WIDE> part;
  typedef mn_lanes_of<4, K, L, true, float> io;
  typedef mn_group<V, L, true, float> group;

  /* What a lane keeps for its columns. */
  struct columns {
    int64_t first;
    group lanes;
    float bias[V], gamma[V], beta[V], sums[3][V];
  };

  /* Slots and what they need from memory. A warp's strip is BATCHES of them, piece by piece. */
  typedef mn_rows<V, AHEAD, float> ahead;

  static __device__ __forceinline__ void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (BATCHES == 1) return;
    if constexpr (Kind == MN_BLOCK_LOSS) mn_tile_prefetch<tile>(a.target, a.rows, a.channels, row, col, lane);
    if constexpr (Kind == MN_BLOCK_BACKWARD) mn_tile_prefetch<tile>(a.z, a.rows, a.channels, row, col, lane);
  }

  static __device__ __forceinline__ group lanes_at(const arguments &a, int64_t col) {
    const bool inside = col < a.channels;
    return {L, inside ? V : 0, a.inverse, inside && threadIdx.x % L == 0};
  }

  static __device__ __forceinline__ void columns_at(columns &c, const arguments &a, int64_t first) {
    c = {};
    c.first = first;
    c.lanes = lanes_at(a, first);
    io::load(c.gamma, a.gamma + first, c.lanes);
    io::load(c.beta, a.beta + first, c.lanes);
    if constexpr (Kind != MN_BLOCK_BACKWARD) io::load(c.bias, a.bias + first, c.lanes);
  }

  /* Batch b of a strip, if there is anything to fetch. */
  static __device__ __forceinline__ void fetch(const arguments &a, ahead &next, int b,
                                               const mn_strip &strip) {
    constexpr int DOWN = 16 / (AHEAD * part::ROWS);
    const part mine;
    const int64_t row = strip.row + b % DOWN * AHEAD * part::ROWS + mine.row;
    const int64_t col = strip.col + b / DOWN * WIDE + mine.col;
    const int64_t inside_row = min(row, a.rows - 1), inside_col = col < a.channels ? col : 0;
    next.at = inside_row * a.channels + inside_col, next.statistic = inside_row * a.groups + inside_col / D;
    next.step = part::ROWS;
    next.count = (int)max(min((a.rows - row + part::ROWS - 1) / part::ROWS, (int64_t)AHEAD), (int64_t)0);
    mn_rows_load<Kind, 4, K>(a, MN_OP_ALL, lanes_at(a, col), next);
  }

  static __device__ __forceinline__ void begin(const arguments &a, ahead &next, const mn_strip &first) {
    fetch(a, next, 0, first);
  }

  /* What mn_hopper_fits lets through leaves nothing else: so the compiler knows it too. */
  static __device__ __forceinline__ arguments written(arguments a) {
    if constexpr (!Saves) a.z = a.mean = a.rstd = a.y = a.dz = NULL;
    if constexpr (Kind == MN_BLOCK_LOSS) a.y_bf16 = NULL;
    return a;
  }

  /* The batch's slots of the piece, from `within` on. */
  static __device__ __forceinline__ float finish_rows(const arguments &a, columns &c, ahead &now,
                                                      float *piece, int within) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
      for (int k = 0; k < K; k++) {
        float four[4];
        part().get(four, piece, within + i, k * 128);
#pragma unroll
        for (int j = 0; j < 4; j++) now.row[i].d[k * 4 + j] = four[j];
      }
    return mn_rows_finish<Kind, 4, K>(written(a), MN_OP_ALL, c.lanes, now, c.bias, c.gamma, c.beta, c.sums);
  }

  /* A warp is 16 rows high, a chunk of the column sums two warps: the second's pass through its piece. Where
   * lanes have rows of their own, each has added to sums of its own before. */
  static_assert(MN_CHUNK_ROWS == 32 && tile::PIECES == 1 && part::ROWS <= 2);
  static __device__ __forceinline__ void write_sums(const arguments &a, columns &c, float *piece,
                                                    int64_t row) {
    if constexpr (part::ROWS == 2)
#pragma unroll
      for (int q = 0; q < 3; q++)
#pragma unroll
        for (int i = 0; i < V; i++) c.sums[q][i] += __shfl_xor_sync(MN_CUDA_WARP, c.sums[q][i], 16);
    const int64_t chunks = (a.rows + MN_CHUNK_ROWS - 1) / MN_CHUNK_ROWS, chunk = row / MN_CHUNK_ROWS;
    const int lane = threadIdx.x % 32, pair = threadIdx.x / 64;
    const bool second = threadIdx.x / 32 % 2;
    __syncwarp();
    if (second)
#pragma unroll
      for (int q = 0; q < 3; q++)
#pragma unroll
        for (int i = 0; i < V; i++) piece[(q * V + i) * 32 + lane] = c.sums[q][i];
    mn_named_sync(1 + pair, 64);
    if (!second)
#pragma unroll
      for (int q = 0; q < 3; q++) {
        float sum[V];
#pragma unroll
        for (int i = 0; i < V; i++) sum[i] = c.sums[q][i] + piece[MN_TILE_PIECE + (q * V + i) * 32 + lane];
        if (chunk < chunks && part().row == 0)
          io::store(a.sums, NULL, (q * chunks + chunk) * a.channels + c.first, sum, c.lanes);
      }
    mn_named_sync(1 + pair, 64); /* before the second's next piece */
  }

  static __device__ __forceinline__ void finish(const arguments &a, ahead &ready, const float *d,
                                                const mn_strip &at, const mn_strip &next, float *piece) {
    float poison = 0;
    int b = 0;
#pragma unroll
    for (int across = 0; across < COLS; across += WIDE) {
      columns c;
      columns_at(c, a, at.col + across + part().col);
#pragma unroll
      for (int down = 0; down < 16; down += HIGH) {
        mn_piece_put<WIDE, HIGH>(piece, d, across, down);
#pragma unroll 1
        for (int within = 0; within < part::SLOTS; within += AHEAD) {
          ahead now = ready;
          b++;
          fetch(a, ready, b % BATCHES, b < BATCHES ? at : next);
          poison += finish_rows(a, c, now, piece, within);
        }
      }
      if constexpr (Kind != MN_BLOCK) {
        poison += mn_sums_poison(c.sums);
        write_sums(a, c, piece, at.row);
      }
    }
    if (!(poison == 0)) *a.nonfinite = 1;
  }
};

template <enum mn_form Form, enum mn_epilogue_kind Kind, int D, bool Saves>
static mn_status launch_width(struct mn_device *device, const struct mn_hopper_product *p,
                              const mn_block_arguments<float> &a) {
  if constexpr (D <= mn_small_tile::COLS)
    if (!mn_tiles_fill<mn_plain_tile>(device, p))
      return mn_hopper_launch<Form, block_epilogue<Kind, D, Saves, mn_small_tile>>(device, p, a);
  return mn_hopper_launch<Form, block_epilogue<Kind, D, Saves, mn_plain_tile>>(device, p, a);
}

template <enum mn_form Form, enum mn_epilogue_kind Kind, bool Saves = false>
static mn_status launch(struct mn_device *device, const struct mn_hopper_product *p,
                        const struct mn_epilogue *epilogue) {
  const mn_block_arguments<float> a = mn_block_arguments_of<float>(device, NULL, epilogue);
  switch (a.width) {
  case 8:
    return launch_width<Form, Kind, 8, Saves>(device, p, a);
  case 16:
    return launch_width<Form, Kind, 16, Saves>(device, p, a);
  case 32:
    return launch_width<Form, Kind, 32, Saves>(device, p, a);
  case 64:
    return launch_width<Form, Kind, 64, Saves>(device, p, a);
  case 128:
    return launch_width<Form, Kind, 128, Saves>(device, p, a);
  default:
    MN_REQUIRE(a.width == 256);
    return launch_width<Form, Kind, 256, Saves>(device, p, a);
  }
}

/* Whether a forward leaves more than the bf16 form of y. */
static bool saves(const struct mn_block *b) {
  return b->z || b->mean || b->rstd || (b->y && b->y->real);
}

/* Every access of an epilogue to a matrix or a vector of channels is one of 16 bytes. */
bool mn_hopper_block_fits(const struct mn_device *device, const struct mn_hopper_product *p,
                          const struct mn_epilogue *epilogue) {
  const struct mn_block *b = epilogue->block;
  const int64_t width = b->channels / b->groups;
  if (p->form != (epilogue->kind == MN_BLOCK_BACKWARD ? MN_NN : MN_NT)) return false;
  if (epilogue->kind == MN_BLOCK_LOSS && (saves(b) || b->y)) return false;
  if (epilogue->kind != MN_BLOCK && b->dz->real) return false;
  const bool large = mn_tiles_fill<mn_plain_tile>(device, p);
  if (!large && !mn_small_pays(device, p)) return false;
  const int64_t widest = large ? 256 : mn_small_tile::COLS;
  return b->ops == MN_OP_ALL && width >= 8 && width <= widest && (width & (width - 1)) == 0 &&
         mn_aligned(16, b->bias, b->gamma, b->beta, b->z, b->target, b->sums) &&
         (!b->y || mn_aligned(16, b->y->real, b->y->bf16)) && (!b->dz || mn_aligned(16, b->dz->bf16));
}

mn_status mn_hopper_block(struct mn_device *device, const struct mn_hopper_product *p,
                          const struct mn_epilogue *epilogue) {
  if (epilogue->kind == MN_BLOCK_LOSS) return launch<MN_NT, MN_BLOCK_LOSS>(device, p, epilogue);
  if (epilogue->kind == MN_BLOCK_BACKWARD) return launch<MN_NN, MN_BLOCK_BACKWARD>(device, p, epilogue);
  MN_REQUIRE(epilogue->kind == MN_BLOCK);
  return saves(epilogue->block) ? launch<MN_NT, MN_BLOCK, true>(device, p, epilogue)
                                : launch<MN_NT, MN_BLOCK>(device, p, epilogue);
}
