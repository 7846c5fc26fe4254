/* The block epilogues of the Hopper GEMM: a group's neighbours sit in the registers of a few lanes, so bias,
 * statistics, normalisation, activation, loss and all of their backward are done before anything is written.
 */
#include "kernels/block_row.cuh"
#include "kernels/gemm_hopper.cuh"

/* Groups of D channels, in pieces of one row of a warp's lanes, or of two vectors a lane where D is 256. */
template <enum mn_epilogue_kind Kind, int D> struct block_epilogue {
  typedef mn_block_arguments<float> arguments;
  enum {
    COLS = 256,
    K = D == 256 ? 2 : 1,
    V = 4 * K,
    L = D / V,
    WIDE = 32 * V,
    HIGH = mn_tile<COLS>::PIECE / WIDE,
    AHEAD = K == 1 ? 4 : 2, /* rows in a batch; one is worked on, one on its way */
    BATCHES = COLS / WIDE * 16 / AHEAD,
  };
  typedef mn_lanes_of<4, K, L, true, float> io;
  typedef mn_group<V, L, true, float> group;

  /* What a lane keeps for its columns. */
  struct columns {
    int64_t first;
    float bias[V], gamma[V], beta[V], sums[3][V];
  };

  static __device__ __forceinline__ void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (Kind == MN_BLOCK_LOSS) mn_tile_prefetch(a.target, a.rows, a.channels, row, col, COLS, lane);
    if constexpr (Kind == MN_BLOCK_BACKWARD) mn_tile_prefetch(a.z, a.rows, a.channels, row, col, COLS, lane);
  }

  static __device__ __forceinline__ void columns_at(columns &c, const arguments &a, int64_t first) {
    const group there = {L, first < a.channels ? V : 0, a.inverse};
    c = {};
    c.first = first;
    io::load(c.gamma, a.gamma + first, there);
    io::load(c.beta, a.beta + first, there);
    if constexpr (Kind != MN_BLOCK_BACKWARD) io::load(c.bias, a.bias + first, there);
  }

  /* AHEAD rows and what they need from memory. A warp's strip is so many batches, piece by piece. */
  struct batch {
    mn_row<V, float> rows[AHEAD];
  };

  static __device__ __forceinline__ group group_at(const arguments &a, int64_t row, int64_t col) {
    return {L, row < a.rows && col < a.channels ? V : 0, a.inverse};
  }

  static __device__ __forceinline__ void fetch(const arguments &a, batch &next, int b, int64_t row,
                                               int64_t col) {
    row += b % (16 / AHEAD) * AHEAD;
    col += b / (16 / AHEAD) * WIDE;
#pragma unroll
    for (int i = 0; i < AHEAD; i++, row++) {
      mn_row_fetch<Kind, 4, K, L, true>(a, MN_STAGE_ALL, group_at(a, row, col), next.rows[i],
                                        row * a.channels + col, row * a.groups + col / D);
      if (row >= a.rows) next.rows[i].factor = 0;
    }
  }

  /* The batch's rows of the piece, from `within` on; `row` is the first one's. */
  static __device__ __forceinline__ float finish_rows(const arguments &a, columns &c, batch &now,
                                                      float *piece, int within, int64_t row) {
    const int lane = threadIdx.x % 32;
    float poison = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
      for (int k = 0; k < K; k++) {
        float four[4];
        mn_piece_get<WIDE>(four, piece, within + i, k * 128 + lane * 4);
#pragma unroll
        for (int j = 0; j < 4; j++) now.rows[i].d[k * 4 + j] = four[j];
      }
#pragma unroll
    for (int i = 0; i < AHEAD; i++, row++) {
      const group g = group_at(a, row, c.first);
      float bad = mn_row_finish<Kind, 4, K, L, true>(
          a, MN_STAGE_ALL, g.valid > 0 && lane % L == 0, g, now.rows[i], row * a.channels + c.first,
          row * a.groups + c.first / D, c.bias, c.gamma, c.beta, c.sums);
      poison += g.valid > 0 ? bad : 0;
    }
    return poison;
  }

  /* A warp is 16 rows high, a chunk of the column sums two warps: the second's pass through its piece. */
  static __device__ __forceinline__ void write_sums(const arguments &a, const columns &c, float *piece,
                                                    int64_t row) {
    const int64_t chunks = (a.rows + MN_CHUNK_ROWS - 1) / MN_CHUNK_ROWS, chunk = row / MN_CHUNK_ROWS;
    const int lane = threadIdx.x % 32, pair = threadIdx.x / 64;
    const bool second = threadIdx.x / 32 % 2;
    const group there = {L, chunk < chunks && c.first < a.channels ? V : 0, a.inverse};
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
        for (int i = 0; i < V; i++)
          sum[i] = c.sums[q][i] + piece[mn_tile<COLS>::PIECE + (q * V + i) * 32 + lane];
        io::store(a.sums, NULL, (q * chunks + chunk) * a.channels + c.first, sum, there);
      }
    mn_named_sync(1 + pair, 64); /* before the second's next piece */
  }

  static __device__ __forceinline__ void finish(const arguments &a, float (&d)[COLS / 2], int64_t row,
                                                int64_t col, float *piece) {
    float poison = 0;
    int b = 0;
    batch now, next;
    col += threadIdx.x % 32 * 4;
    fetch(a, next, 0, row, col);
#pragma unroll
    for (int across = 0; across < COLS; across += WIDE) {
      columns c;
      columns_at(c, a, col + across);
#pragma unroll
      for (int down = 0; down < 16; down += HIGH) {
        mn_piece_put<WIDE, HIGH>(piece, d, across, down);
#pragma unroll 1
        for (int within = 0; within < HIGH; within += AHEAD) {
          now = next;
          if (++b < BATCHES) fetch(a, next, b, row, col);
          poison += finish_rows(a, c, now, piece, within, row + down + within);
        }
      }
      if constexpr (Kind != MN_BLOCK) write_sums(a, c, piece, row);
    }
    if (!(poison == 0)) *a.nonfinite = 1;
  }
};

template <enum mn_form Form, enum mn_epilogue_kind Kind>
static mn_status launch(struct mn_stream *stream, const struct mn_hopper_product *p,
                        const struct mn_epilogue *epilogue) {
  const mn_block_arguments<float> a = mn_block_arguments_of<float>(stream, NULL, epilogue);
  switch (a.width) {
  case 8:
    return mn_hopper_launch<Form, 256, block_epilogue<Kind, 8>>(stream, p, a);
  case 16:
    return mn_hopper_launch<Form, 256, block_epilogue<Kind, 16>>(stream, p, a);
  case 32:
    return mn_hopper_launch<Form, 256, block_epilogue<Kind, 32>>(stream, p, a);
  case 64:
    return mn_hopper_launch<Form, 256, block_epilogue<Kind, 64>>(stream, p, a);
  case 128:
    return mn_hopper_launch<Form, 256, block_epilogue<Kind, 128>>(stream, p, a);
  default:
    MN_REQUIRE(a.width == 256);
    return mn_hopper_launch<Form, 256, block_epilogue<Kind, 256>>(stream, p, a);
  }
}

mn_status mn_hopper_block(struct mn_stream *stream, const struct mn_hopper_product *p,
                          const struct mn_epilogue *epilogue) {
  if (epilogue->kind == MN_BLOCK) return launch<MN_NT, MN_BLOCK>(stream, p, epilogue);
  if (epilogue->kind == MN_BLOCK_LOSS) return launch<MN_NT, MN_BLOCK_LOSS>(stream, p, epilogue);
  MN_REQUIRE(epilogue->kind == MN_BLOCK_BACKWARD);
  return launch<MN_NN, MN_BLOCK_BACKWARD>(stream, p, epilogue);
}
