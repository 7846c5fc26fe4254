/* The Hopper GEMM's block epilogues. A group's channels are in the registers of a few lanes, so bias,
 * statistics, normalisation, activation, loss and their backward are computed before anything is written.
 * What was measured and tried: NOTES.md. */
#ifndef MN_KERNELS_HOPPER_BLOCK_CUH
#define MN_KERNELS_HOPPER_BLOCK_CUH

#include "kernels/block_row.cuh"
#include "kernels/hopper/gemm.cuh"

/* For groups of D channels. A lane has one vector of 4 in a row of the staging buffer, or two if D is 256.
 * Saves: the forward writes more than y's planes. */
template <enum mn_epilogue_kind Kind, int D, bool Saves, class Tile> struct block_epilogue {
  typedef mn_block_arguments<float> arguments;
  typedef Tile tile;
  enum { COLS = tile::COLS, K = D == 256 ? 2 : 1, V = 4 * K, L = D / V };
  enum { WIDE = COLS < 32 * V ? (int)COLS : 32 * V, HIGH = MN_STAGING_FLOATS / WIDE };
  /* Rows of a lane computed together, while the next batch is being loaded; and batches in a slice. */
  enum { BATCH = K > 1 ? 1 : WIDE < 128 ? 8 : 4, BATCHES = COLS * 16 / (32 * V * BATCH) };
  typedef mn_staging_lane<WIDE> part;
  typedef mn_lanes_of<4, K, L, true, float> io;
  typedef mn_group<V, L, true, float> group;

  /* A lane's registers for its columns. */
  struct columns {
    int64_t first;
    group lanes;
    float bias[V], gamma[V], beta[V], sums[3][V];
  };

  /* A batch of rows, with what has been loaded ahead for it. */
  typedef mn_row_batch<V, BATCH, float> rows;
  struct state {
    rows ready;
    mn_factors factors;
  };

  /* Constant, except for the forward's 16-bit flags. */
  static MN_GPU unsigned ops_of(const arguments &a) {
    if constexpr (Kind != MN_BLOCK || tile::KIND == MN_PLANES_FP16X2) return MN_OP_ALL;
    return MN_OP_ALL | (a.ops & ((tile::KIND == MN_PLANES_BF16 ? MN_OPS_BF16 : MN_OPS_FP16) | MN_OPS_NARROW));
  }

  static MN_GPU void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (BATCHES == 1) return;
    if constexpr (Kind == MN_BLOCK_LOSS) mn_tile_prefetch<tile>(a.target, a.rows, a.channels, row, col, lane);
    if constexpr (Kind == MN_BLOCK_BACKWARD) mn_tile_prefetch<tile>(a.z, a.rows, a.channels, row, col, lane);
  }

  static MN_GPU group lanes_at(const arguments &a, int64_t col) {
    const bool inside = col < a.channels;
    return {L, inside ? V : 0, a.inverse, inside && threadIdx.x % L == 0};
  }

  static MN_GPU void columns_at(columns &c, const arguments &a, int64_t first) {
    c = {};
    c.first = first;
    c.lanes = lanes_at(a, first);
    const enum mn_plane_kind narrow = mn_narrow_of(ops_of(a));
    io::load(c.gamma, a.gamma, first, c.lanes, narrow);
    io::load(c.beta, a.beta, first, c.lanes, narrow);
    if constexpr (Kind != MN_BLOCK_BACKWARD) io::load(c.bias, a.bias, first, c.lanes, narrow);
  }

  /* Makes NULL constant for what this instantiation does not write, so that the compiler removes the stores.
   * A backward has read z, mean and rstd before. */
  static MN_GPU arguments written(arguments a) {
    a.weights = NULL;
    if constexpr (!Saves) a.z = a.mean = a.rstd = a.y = a.dz = NULL;
    if constexpr (Kind == MN_BLOCK) a.dz_planes = {};
    if constexpr (Kind != MN_BLOCK) a.y_planes = {};
    a.y_planes = mn_planes_as<tile::KIND>(a.y_planes);
    a.dz_planes = mn_planes_as<tile::KIND>(a.dz_planes);
    return a;
  }

  /* Starts the loads for batch b of the slice at `slice`; outside the matrix they read inside it. */
  static MN_GPU void load(const arguments &a, rows &next, int b, const mn_coord &slice) {
    constexpr int DOWN = 16 / (BATCH * part::ROW_STEP);
    const part mine;
    const int64_t row = slice.row + b % DOWN * BATCH * part::ROW_STEP + mine.row;
    const int64_t col = slice.col + b / DOWN * WIDE + mine.col;
    const int64_t inside_row = min(row, a.rows - 1), inside_col = col < a.channels ? col : 0;
    next.at = inside_row * a.channels + inside_col, next.statistic = inside_row * a.groups + inside_col / D;
    next.step = part::ROW_STEP;
    next.count =
        (int)max(min((a.rows - row + part::ROW_STEP - 1) / part::ROW_STEP, (int64_t)BATCH), (int64_t)0);
    mn_rows_load<Kind, 4, K>(a, MN_OP_ALL, lanes_at(a, col), next);
  }

  static MN_GPU void begin(const arguments &a, state &s, const mn_coord &first) {
    load(a, s.ready, 0, first);
    s.factors = mn_factors_of(written(a));
  }

  /* One batch, whose vectors start at `first` in the staging buffer. */
  static MN_GPU void finish_batch(const arguments &a, columns &c, rows &now, const mn_factors &factors,
                                  mn_noticed<float> &noticed, float *staging, int first) {
    MN_UNROLL(int i = 0; i < BATCH; i++)
      MN_UNROLL(int k = 0; k < K; k++) {
        float four[4];
        part().read(four, staging, first + i, k * 128);
        MN_UNROLL(int j = 0; j < 4; j++) now.row[i].d[k * 4 + j] = four[j];
      }
    mn_rows_finish<Kind, 4, K>(written(a), ops_of(a), c.lanes, now, c.bias, c.gamma, c.beta, c.sums, factors,
                               noticed);
  }

  /* Writes the column sums of a chunk, which is the 32 rows of a pair of warps: the second warp passes its
   * sums to the first through its staging buffer. If a row takes half a warp, the halves are added first.
   */
  static_assert(MN_CHUNK_ROWS == 32 && tile::STAGING == 1 && part::ROW_STEP <= 2);
  static MN_GPU void write_sums(const arguments &a, columns &c, float *staging, int64_t row) {
    if constexpr (part::ROW_STEP == 2)
      MN_UNROLL(int i = 0; i < 3 * V; i++)
        c.sums[i / V][i % V] += __shfl_xor_sync(MN_CUDA_WARP, c.sums[i / V][i % V], 16);
    const int64_t chunks = mn_chunks(a.rows), chunk = row / MN_CHUNK_ROWS;
    const int lane = threadIdx.x % 32, pair = threadIdx.x / 64;
    const bool second = threadIdx.x / 32 % 2;
    __syncwarp();
    if (second)
      MN_UNROLL(int i = 0; i < 3 * V; i++) staging[i * 32 + lane] = c.sums[i / V][i % V];
    mn_warps_sync(1 + pair, 64);
    if (!second)
      MN_UNROLL(int q = 0; q < 3; q++) {
        float sum[V];
        MN_UNROLL(int i = 0; i < V; i++)
          sum[i] = c.sums[q][i] + staging[MN_STAGING_FLOATS + (q * V + i) * 32 + lane];
        if (chunk < chunks && part().row == 0)
          io::store(a.sums, {}, 1, (q * chunks + chunk) * a.channels + c.first, sum, c.lanes);
      }
    mn_warps_sync(1 + pair, 64); /* before the second warp overwrites its staging buffer */
  }

  static MN_GPU void finish(const arguments &a, state &s, const mn_result<tile> &result, const mn_coord &at,
                            const mn_coord &next, float *staging) {
    mn_noticed<float> noticed;
    int b = 0;
    MN_UNROLL(int across = 0; across < COLS; across += WIDE) {
      columns c;
      columns_at(c, a, at.col + across + part().col);
      MN_UNROLL(int down = 0; down < result.ROWS; down += HIGH) {
        result.template stage<WIDE, HIGH>(staging, across, down);
#pragma unroll 1
        for (int first = 0; first < part::VECTORS; first += BATCH) {
          rows now = s.ready;
          b++;
          load(a, s.ready, b % BATCHES, b < BATCHES ? at : next);
          finish_batch(a, c, now, s.factors, noticed, staging, first);
        }
      }
      if constexpr (Kind != MN_BLOCK) {
        noticed.poison += mn_sums_poison(c.sums);
        write_sums(a, c, staging, at.row);
      }
    }
    mn_notice(written(a), s.factors, noticed);
  }
};

template <enum mn_form Form, class Epilogue>
static mn_status launch_block(struct mn_device *device, const struct mn_hopper_product *p,
                              const struct mn_epilogue *epilogue) {
  return mn_hopper_launch<Form, Epilogue>(device, p, mn_block_arguments_of<float>(device, NULL, epilogue));
}

/* The launcher for groups of `width` channels, a power of two from D on, with the first of plain, half and
 * small tile that fills the GPU or pays, or NULL. */
template <enum mn_form Form, enum mn_epilogue_kind Kind, bool Saves, enum mn_plane_kind Planes, int D = 8>
static mn_hopper_launcher *plan_width(const struct mn_device *device, const struct mn_hopper_product *p,
                                      int64_t width) {
  typedef mn_plain_tile<Planes> plain;
  typedef mn_half_tile<Planes> half;
  typedef mn_small_tile<Planes> small;
  if constexpr (D < plain::COLS)
    if (width > D) return plan_width<Form, Kind, Saves, Planes, 2 * D>(device, p, width);
  if (width != D) return NULL;
  if (mn_tiles_fill<plain>(device, p)) return launch_block<Form, block_epilogue<Kind, D, Saves, plain>>;
  if constexpr (D <= half::COLS && (int)half::COLS < (int)plain::COLS)
    if (mn_tiles_fill<half>(device, p)) return launch_block<Form, block_epilogue<Kind, D, Saves, half>>;
  if constexpr (D <= small::COLS)
    if (mn_small_pays<Planes>(device, p)) return launch_block<Form, block_epilogue<Kind, D, Saves, small>>;
  return NULL;
}

/* Whether a forward writes more than y's planes. */
static inline bool saves(const struct mn_block *b) {
  return b->z || b->mean || b->rstd || (b->y && b->y->real);
}

/* Whether all forms of an operand can be written. */
static inline bool writes(const struct mn_operand *o) {
  return !o || mn_aligned(16, o->real, o->planes[0], o->planes[1]);
}

/* The epilogue accesses matrices and vectors of channels 16 bytes at a time, so all must be aligned to that.
 */
template <enum mn_plane_kind Planes>
static mn_hopper_launcher *plan_block(const struct mn_device *device, const struct mn_hopper_product *p,
                                      const struct mn_epilogue *epilogue) {
  const struct mn_block *b = epilogue->block;
  const enum mn_epilogue_kind kind = epilogue->kind;
  const int64_t width = b->channels / b->groups;
  if (p->form != (kind == MN_BLOCK_BACKWARD ? MN_NN : MN_NT)) return NULL;
  if (kind == MN_BLOCK_LOSS && (saves(b) || b->y || b->weights)) return NULL;
  if (kind == MN_BLOCK_BACKWARD && b->narrow) return NULL;
  if (kind != MN_BLOCK && (b->dz->real || !b->dz->planes[0] || !writes(b->dz))) return NULL;
  if (b->ops != MN_OP_ALL || !writes(b->y) ||
      !mn_aligned(16, b->bias, b->gamma, b->beta, b->z, b->target, b->sums))
    return NULL;
  if (kind == MN_BLOCK_BACKWARD) return plan_width<MN_NN, MN_BLOCK_BACKWARD, false, Planes>(device, p, width);
  if (kind == MN_BLOCK_LOSS) return plan_width<MN_NT, MN_BLOCK_LOSS, false, Planes>(device, p, width);
  return saves(b) ? plan_width<MN_NT, MN_BLOCK, true, Planes>(device, p, width)
                  : plan_width<MN_NT, MN_BLOCK, false, Planes>(device, p, width);
}

#endif
