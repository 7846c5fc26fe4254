/* The block's epilogues on CUDA, over a matrix in memory: two kernels, instantiated for each epilogue.
 *
 * A group of up to 256 channels is kept in the registers of a few lanes (register_kernel). For a wider one,
 * the threads loop over the group once for each statistic (loop_kernel). Both use the arithmetic in
 * block_row.cuh. If the operations do not depend on groups, 16 bytes are treated as a group. A CTA
 * processes one chunk of MN_CHUNK_ROWS rows of its columns: column sums are added in registers, then over its
 * warps in order, so that they have the same bytes every time, without atomics. */
#include "kernels/block_row.cuh"

/* In register_kernel warp w of a CTA processes rows w, w + WARPS, … of the chunk. */
enum { WARPS = MN_CUDA_THREADS / 32, LOOP_THREADS = 1024, WIDEST = 256 };

/* Adds the sums of a CTA's warps in order and writes its columns of the chunk's partial column sums. */
template <int W, int K, typename Real>
static MN_GPU void write_sums(const mn_block_arguments<Real> &a, unsigned ops, int64_t tile, int64_t chunk,
                              int lanes, const Real (&sums)[3][W * K]) {
  constexpr int V = W * K;
  __shared__ Real parts[WARPS][3][32 * V];
  if (!a.sums) return;
  MN_UNROLL(int i = 0; i < 3 * V; i++)
    parts[threadIdx.x / 32][i / V][threadIdx.x % 32 * V + i % V] = sums[i / V][i % V];
  __syncthreads();
  int64_t plane = mn_chunks(a.rows) * a.channels;
  for (int at = threadIdx.x; at < 3 * 32 * V; at += MN_CUDA_THREADS) {
    int q = at / (32 * V), e = at % (32 * V), lane = e / V, i = e % V;
    if (!(ops & (q == 0 ? MN_OP_BIAS : MN_OP_NORM))) continue;
    int64_t group = tile * (32 / lanes) + lane / lanes;
    int64_t within = (int64_t)(i / W * lanes + lane % lanes) * W + i % W;
    if (group >= a.groups || within >= a.width) continue;
    Real sum = 0;
    MN_UNROLL(int w = 0; w < WARPS; w++) sum += parts[w][q][e];
    a.sums[q * plane + chunk * a.channels + group * a.width + within] = sum;
  }
}

/* Adds up a row's terms in their order. */
template <typename io, int V, typename Real>
static MN_GPU void load_terms(Real (&d)[V], const mn_terms<Real> &terms, int64_t at,
                              const typename io::group &group) {
  io::load(d, terms.at[0], at, group);
  for (int q = 1; q < terms.count; q++) {
    Real more[V];
    io::load(more, terms.at[q], at, group);
    MN_UNROLL(int k = 0; k < V; k++) d[k] += more[k];
  }
}

/* A group in the registers of its lanes: V = W·K values a lane. Ops: the operations at compile time, so that
 * they are not tested at each element; 0 for a.ops. */
template <enum mn_epilogue_kind Kind, int W, int K, int L, bool Full, unsigned Ops, typename Real>
MN_CUDA_KERNEL register_kernel(const mn_block_arguments<Real> a) {
  constexpr int V = W * K;
  constexpr int ROWS = V * sizeof(Real) > 16 ? 1 : Kind == MN_BLOCK ? 4 : 2; /* loaded together */
  typedef mn_lanes_of<W, K, L, Full, Real> io;
  const unsigned ops = Ops ? Ops : a.ops;
  const enum mn_plane_kind narrow = mn_narrow_of(ops);
  const int lanes = L > 0 ? L : a.lanes, lane = threadIdx.x % 32 % lanes; /* within the group */
  const int64_t tile = blockIdx.x % a.tiles, chunk = blockIdx.x / a.tiles;
  const int64_t number = tile * (32 / lanes) + threadIdx.x % 32 / lanes;
  const bool inside = number < a.groups;
  const int64_t some = inside ? number : 0; /* a group: loads without a predicate need valid addresses */
  const int64_t column = some * a.width + lane * W;
  const int held = Full ? V : (int)((a.width / W - lane + lanes - 1) / lanes * W); /* values in this lane */
  const mn_group<V, L, Full, Real> group = {lanes, inside ? held : 0, a.inverse, inside && lane == 0};

  const mn_factors factors = mn_factors_of(a);
  mn_noticed<Real> noticed;
  Real bias[V] = {}, gamma[V] = {}, beta[V] = {}, sums[3][V] = {};
  if (Kind != MN_BLOCK_BACKWARD && (ops & MN_OP_BIAS)) io::load(bias, a.bias, column, group, narrow);
  if (ops & MN_OP_NORM) {
    io::load(gamma, a.gamma, column, group, narrow);
    io::load(beta, a.beta, column, group, narrow);
  }
  const int64_t first_row = chunk * MN_CHUNK_ROWS + threadIdx.x / 32;
  for (int turn = 0; turn < MN_CHUNK_ROWS / WARPS; turn += ROWS) {
    const int64_t row = first_row + turn * WARPS, some_row = min(row, a.rows - 1);
    mn_row_batch<V, ROWS, Real> rows;
    rows.at = some_row * a.channels + column, rows.statistic = some_row * a.groups + some;
    rows.step = WARPS;
    rows.count = row < a.rows ? (int)min((a.rows - row + WARPS - 1) / WARPS, (int64_t)ROWS) : 0;
    MN_UNROLL(int i = 0; i < ROWS; i++) {
      MN_UNROLL(int k = 0; k < V; k++) rows.row[i].d[k] = 0;
      if (i >= rows.count) continue;
      if (Kind == MN_BLOCK_BACKWARD && a.terms.count > 0)
        load_terms<io>(rows.row[i].d, a.terms, (row + i * WARPS) * a.terms.pitch + column, group);
      else
        io::load(rows.row[i].d, a.d, rows.at + i * WARPS * a.channels, group,
                 Kind == MN_BLOCK ? MN_NO_PLANES : narrow);
    }
    mn_rows_load<Kind, W, K>(a, ops, group, rows);
    mn_rows_finish<Kind, W, K>(a, ops, group, rows, bias, gamma, beta, sums, factors, noticed);
  }
  if constexpr (Kind != MN_BLOCK) noticed.poison += mn_sums_poison(sums);
  if (!inside) noticed = {};
  mn_notice(a, factors, noticed);
  if constexpr (Kind != MN_BLOCK) write_sums<W, K>(a, ops, tile, chunk, lanes, sums);
}

/* The statistics of a group of one row, in loop_kernel. */
template <typename Real> struct row_state { Real mean, rstd, m1, m2; };

/* The values computed from one element: z, ẑ, v, y, y − target and, in a backward, g. */
template <typename Real> struct element { Real z, standard, v, y, error, g; };

template <typename Real>
static __device__ Real stored(const mn_block_arguments<Real> &a, const Real *values, int64_t at) {
  Real value[1];
  mn_load_narrow<1>(value, values, at, mn_narrow_of(a.ops));
  return value[0];
}

template <enum mn_epilogue_kind Kind, typename Real>
static __device__ Real saved_z(const mn_block_arguments<Real> &a, int64_t row, int64_t column) {
  int64_t at = row * a.channels + column;
  const enum mn_plane_kind kind = mn_z_kind(a.ops);
  Real z[1] = {0};
  if (Kind != MN_BLOCK_BACKWARD) {
    z[0] = a.ops & MN_OP_BIAS ? a.d[at] + stored(a, a.bias, column) : a.d[at];
    mn_plane_round(z, kind);
  } else if (a.ops & (MN_OP_NORM | MN_OP_ACTIVATE)) {
    mn_load_narrow<1>(z, a.z, at, kind);
  }
  return z[0];
}

template <typename Real> static __device__ Real weight_of(const mn_block_arguments<Real> &a, int64_t row) {
  return a.weights ? a.weights[row] : Real(1);
}

template <enum mn_epilogue_kind Kind, typename Real>
static __device__ element<Real> element_at(const mn_block_arguments<Real> &a, const row_state<Real> &s,
                                           int64_t row, int64_t column) {
  bool norm = a.ops & MN_OP_NORM;
  element<Real> e;
  e.z = saved_z<Kind>(a, row, column);
  e.standard = norm ? (e.z - s.mean) * s.rstd : e.z;
  e.v = norm ? fma(e.standard, stored(a, a.gamma, column), stored(a, a.beta, column)) : e.z;
  Real dy_dv;
  e.y = mn_activate(a.ops, e.v, a.slope, dy_dv);
  e.error = Kind == MN_BLOCK_LOSS ? e.y - a.target[row * a.channels + column] : Real(0);
  Real dy = Kind == MN_BLOCK_BACKWARD ? stored(a, a.d, row * a.channels + column)
                                      : weight_of(a, row) * a.factor * e.error;
  e.g = Kind == MN_BLOCK ? Real(0) : dy_dv * dy;
  return e;
}

/* The statistics of a group of one row, computed by the row's team of threads: the forward's, then the
 * backward's. Returns 0, or NaN when the loss is not finite. */
template <enum mn_epilogue_kind Kind, typename Real>
static __device__ Real loop_statistics(const mn_block_arguments<Real> &a, row_state<Real> &s, int64_t row,
                                       int64_t group, int team) {
  const int64_t first = group * a.width, last = first + a.width, mine = first + threadIdx.x % team;
  const bool norm = a.ops & MN_OP_NORM, there = row < a.rows, leads = there && mine == first;
  const int64_t end = there ? last : 0, at = row * a.groups + group;
  const unsigned warps = team / 32, first_warp = threadIdx.x / team * warps;
  s = {0, 0, 0, 0};
  if (Kind == MN_BLOCK_BACKWARD && norm && there) s = {a.mean[at], a.rstd[at], 0, 0};
  if (Kind != MN_BLOCK_BACKWARD && norm) {
    Real origin = there ? saved_z<Kind>(a, row, first) : Real(0), sum = 0, squares = 0;
    for (int64_t c = mine; c < end; c += team) sum += saved_z<Kind>(a, row, c) - origin;
    s.mean = fma(mn_cta_sum(sum, first_warp, warps), a.inverse, origin);
    for (int64_t c = mine; c < end; c += team) {
      Real centred = saved_z<Kind>(a, row, c) - s.mean;
      squares = fma(centred, centred, squares);
    }
    squares = mn_cta_sum(squares, first_warp, warps);
    s.rstd = mn_poison(rsqrt(fma(squares, a.inverse, a.eps)), squares); /* NaN if they overflow */
    if (leads && a.mean) a.mean[at] = s.mean;
    if (leads && a.rstd) a.rstd[at] = s.rstd;
  }
  if (Kind == MN_BLOCK) return 0;
  Real m1 = 0, m2 = 0, loss = 0;
  for (int64_t c = mine; c < end; c += team) {
    element<Real> e = element_at<Kind>(a, s, row, c);
    Real h = norm ? e.g * stored(a, a.gamma, c) : e.g;
    m1 += h;
    m2 = fma(h, e.standard, m2);
    loss = fma(e.error, e.error, loss);
  }
  s.m1 = mn_cta_sum(m1, first_warp, warps) * a.inverse;
  s.m2 = mn_cta_sum(m2, first_warp, warps) * a.inverse;
  if (Kind != MN_BLOCK_LOSS) return 0;
  loss = mn_cta_sum(loss, first_warp, warps);
  if (leads && a.loss) a.loss[at] = weight_of(a, row) * loss;
  return there ? mn_poison(Real(0), loss) : Real(0);
}

/* One column of a group, over the CTA's rows: writes the results and the column's sums. Each element is read
 * before it is written, by the thread that writes it. */
template <enum mn_epilogue_kind Kind, typename Real>
static __device__ void loop_column(const mn_block_arguments<Real> &a, const row_state<Real> *states,
                                   int64_t first_row, int64_t last_row, int64_t column,
                                   const mn_factors &factors, mn_noticed<Real> &noticed) {
  const bool norm = a.ops & MN_OP_NORM;
  const enum mn_plane_kind kind = mn_z_kind(a.ops);
  Real sums[3] = {};
  for (int64_t row = first_row; row < last_row; row++) {
    const row_state<Real> s = states[row - first_row];
    const element<Real> e = element_at<Kind>(a, s, row, column);
    const int64_t at = row * a.channels + column;
    if (Kind != MN_BLOCK_BACKWARD) {
      noticed.poison = mn_poison(noticed.poison, e.y);
      mn_forms_store<1>(kind ? NULL : a.z, mn_planes_at(a.z, kind), 1, at, {e.z});
      mn_forms_store<1>(a.y, a.y_planes, factors.y, at, {e.y});
    }
    if (Kind == MN_BLOCK) continue;
    Real dz = norm ? mn_centre(e.g * stored(a, a.gamma, column), e.standard, s.m1, s.m2, s.rstd) : e.g;
    sums[0] += dz;
    sums[1] = fma(e.g, e.standard, sums[1]);
    sums[2] += e.g;
    noticed.poison = mn_poison(noticed.poison, dz);
    noticed.largest = fmaxf(noticed.largest, fabsf((float)dz));
    mn_forms_store<1>(a.dz, a.dz_planes, factors.dz, at, {dz});
  }
  if (Kind != MN_BLOCK && a.sums)
    for (int q = 0; q < 3; q++)
      if (a.ops & (q == 0 ? MN_OP_BIAS : MN_OP_NORM))
        a.sums[(q * mn_chunks(a.rows) + first_row / MN_CHUNK_ROWS) * a.channels + column] = sums[q];
}

/* One CTA has one group of `height` rows (MN_CHUNK_ROWS if there are column sums): first a team of threads
 * computes the statistics of each row, then a thread goes down each column. */
template <enum mn_epilogue_kind Kind, typename Real>
static __global__ void __launch_bounds__(LOOP_THREADS)
    loop_kernel(const mn_block_arguments<Real> a, int height) {
  __shared__ row_state<Real> states[MN_CHUNK_ROWS];
  const int64_t group = blockIdx.x % a.groups, first_row = blockIdx.x / a.groups * height;
  const int team = LOOP_THREADS / height, row = threadIdx.x / team;
  const mn_factors factors = mn_factors_of(a);
  mn_noticed<Real> noticed;
  row_state<Real> s;
  noticed.poison = loop_statistics<Kind>(a, s, first_row + row, group, team);
  if (threadIdx.x % team == 0) states[row] = s;
  __syncthreads();
  const int64_t last_row = first_row + height < a.rows ? first_row + height : a.rows;
  for (int64_t c = threadIdx.x; c < a.width; c += LOOP_THREADS)
    loop_column<Kind>(a, states, first_row, last_row, group * a.width + c, factors, noticed);
  mn_notice(a, factors, noticed);
}

template <enum mn_epilogue_kind Kind, int W, int K, int L, bool Full, unsigned Ops, typename Real>
static void launch(cudaStream_t on, mn_block_arguments<Real> &a) {
  a.tiles = (a.groups + 32 / a.lanes - 1) / (32 / a.lanes);
  unsigned grid = mn_cuda_grid(a.tiles * mn_chunks(a.rows), 1);
  register_kernel<Kind, W, K, L, Full, Ops><<<grid, MN_CUDA_THREADS, 0, on>>>(a);
}

template <enum mn_epilogue_kind Kind, int W, int K, int L, typename Real>
static void launch_full(cudaStream_t on, mn_block_arguments<Real> &a) {
  if (a.ops == MN_OP_ALL) return launch<Kind, W, K, L, true, MN_OP_ALL>(on, a);
  if constexpr (Kind == MN_BLOCK_BACKWARD) {
    constexpr unsigned BF16 = MN_OP_ALL | MN_OPS_BF16, FP16 = MN_OP_ALL | MN_OPS_FP16, N = MN_OPS_NARROW;
    if (a.ops == BF16) return launch<Kind, W, K, L, true, BF16>(on, a);
    if (a.ops == FP16) return launch<Kind, W, K, L, true, FP16>(on, a);
    if (a.ops == (BF16 | N)) return launch<Kind, W, K, L, true, BF16 | N>(on, a);
    if (a.ops == (FP16 | N)) return launch<Kind, W, K, L, true, FP16 | N>(on, a);
  }
  launch<Kind, W, K, L, true, 0>(on, a);
}

/* Launches for a group of a power of two of 16-byte vectors, from Vectors to 64: 4, 8, 16 … 256 floats. False
 * for any other number. */
template <enum mn_epilogue_kind Kind, int Vectors = 1, typename Real>
static bool launch_whole(cudaStream_t on, mn_block_arguments<Real> &a, int64_t vectors) {
  if (vectors == Vectors) {
    launch_full<Kind, mn_width<Real>, Vectors == 64 ? 2 : 1, Vectors == 64 ? 32 : Vectors>(on, a);
    return true;
  }
  if constexpr (Vectors < 64) return launch_whole<Kind, 2 * Vectors>(on, a, vectors);
  return false;
}

/* Launches register_kernel; it loads 16 bytes at a time if `wide`, else one real. */
template <enum mn_epilogue_kind Kind, typename Real>
static void launch_registers(cudaStream_t on, mn_block_arguments<Real> &a, bool wide) {
  constexpr int W = mn_width<Real>;
  int64_t vectors = wide ? a.width / W : a.width;
  for (a.lanes = 1; a.lanes < vectors && a.lanes < 32;) a.lanes *= 2;
  int64_t each = (vectors + a.lanes - 1) / a.lanes;
  if constexpr (sizeof(Real) == 4) /* double, used for checks, runs the general versions only */
    if (wide && launch_whole<Kind>(on, a, vectors)) return;
  if (wide && each == 1)
    launch<Kind, W, 1, 0, false, 0>(on, a);
  else if (wide && each <= WIDEST / 32 / W)
    launch<Kind, W, WIDEST / 32 / W, 32, false, 0>(on, a);
  else if (each == 1)
    launch<Kind, 1, 1, 0, false, 0>(on, a);
  else if (each == 2)
    launch<Kind, 1, 2, 32, false, 0>(on, a);
  else
    launch<Kind, 1, WIDEST / 32, 32, false, 0>(on, a);
}

/* Whether every pointer and the group width are aligned to 16-byte vectors of reals. */
template <typename Real> static bool vectors_fit(const mn_block_arguments<Real> &a) {
  return a.width % mn_width<Real> == 0 &&
         mn_aligned(2 * mn_width<Real>, a.y_planes.high, a.y_planes.low, a.dz_planes.high, a.dz_planes.low) &&
         mn_aligned(16, a.terms.at[0], a.d, a.bias, a.gamma, a.beta, a.target, a.z, a.y, a.dz);
}

template <enum mn_epilogue_kind Kind, typename Real>
static mn_status block(struct mn_device *device, mn_block_arguments<Real> &a) {
  cudaStream_t on = device->cuda->stream;
  if (!(a.ops & MN_OP_NORM) && Kind != MN_BLOCK_LOSS) {
    /* The operations do not depend on groups, so any width will do. */
    a.width = a.channels % mn_width<Real> == 0 ? mn_width<Real> : 1;
    if (!vectors_fit(a)) a.width = 1;
    a.groups = a.channels / a.width;
  }
  a.inverse = 1 / (Real)a.width;
  if (a.width <= WIDEST) {
    launch_registers<Kind>(on, a, vectors_fit(a));
  } else {
    int height = Kind == MN_BLOCK ? 8 : MN_CHUNK_ROWS; /* rows of a CTA; column sums need a whole chunk */
    unsigned grid = mn_cuda_grid((a.rows + height - 1) / height * a.groups, 1);
    loop_kernel<Kind><<<grid, LOOP_THREADS, 0, on>>>(a, height);
  }
  return mn_cuda_launched("block");
}

template <typename Real>
mn_status mn_block_cuda<Real>::run(struct mn_device *device, const Real *d,
                                   const struct mn_epilogue *epilogue, const mn_terms<Real> &terms) {
  mn_block_arguments<Real> a = mn_block_arguments_of(device, d, epilogue);
  a.terms = terms;
  return epilogue->kind == MN_BLOCK        ? block<MN_BLOCK>(device, a)
         : epilogue->kind == MN_BLOCK_LOSS ? block<MN_BLOCK_LOSS>(device, a)
                                           : block<MN_BLOCK_BACKWARD>(device, a);
}
MN_CUDA_INSTANTIATE(block);

/* Only of groups that fit the registers. */
bool mn_cuda_takes_terms(const struct mn_epilogue *epilogue) {
  const struct mn_block *b = epilogue->block;
  return epilogue->kind == MN_BLOCK_BACKWARD && b->ops & MN_OP_NORM && b->channels / b->groups <= WIDEST;
}
