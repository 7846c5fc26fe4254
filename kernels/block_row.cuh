/* The block's arithmetic on CUDA, shared by every kernel that applies it: on one element, on one group of one
 * row, of which L neighbouring lanes hold V registers each, and on a few rows of a group, from registers to
 * the stored results. It is the same for a matrix in memory (block.cu) and for one in a GEMM's accumulators
 * (hopper/block.cuh). Formulas: kernels/kernels.h.
 *
 * If `ops` is a constant, the compiler removes the tests of it. Multiply-adds are written as fma, so that
 * the backward recomputes exactly the forward's v, and with it the same side of the activation's kink. */
#ifndef MN_KERNELS_BLOCK_ROW_CUH
#define MN_KERNELS_BLOCK_ROW_CUH

#include "kernels/planes.cuh"

/* y, and dy/dv, with which g = dy_dv·dy; v = 0 counts as negative. Doubling is exact, so y is the sum of the
 * two equal terms to the bit. */
template <typename Real> MN_GPU Real mn_activate(unsigned ops, Real v, Real slope, Real &dy_dv) {
  const Real sum = ops & MN_OP_SUM ? 2 : 1;
  dy_dv = !(ops & MN_OP_ACTIVATE) || v > 0 ? sum : sum * slope;
  return dy_dv * v;
}

/* dz, from h = g·gamma and the group's means of h and h·ẑ. */
template <typename Real> MN_GPU Real mn_centre(Real h, Real standard, Real m1, Real m2, Real rstd) {
  return rstd * fma(-standard, m2, h - m1);
}

/* Poison stays 0 as long as every value passed in is finite, and is NaN from the first that is not. */
template <typename Real> MN_GPU Real mn_poison(Real poison, Real value) {
  return fma(value, Real(0), poison);
}

/* How a group is distributed: over L lanes (0 for `lanes`, a run-time number). This lane's first `valid` of V
 * registers are in the group. Full: either all V are, on L lanes of a power of two, or the lane has no
 * values. */
template <int V, int L, bool Full, typename Real> struct mn_group {
  int lanes, valid;
  Real inverse; /* 1/D */
  bool leads;   /* this lane writes the group's mean, rstd and loss */

  MN_GPU Real sum(Real x) const { return mn_lanes_sum<L>(x, lanes); }
  MN_GPU bool has(int i) const { return Full || i < valid; }
};

/* Centred variance. The mean of a constant group is exactly the constant, so that v = beta: a Full group's
 * pairwise sum of equal values is exact, and any other group is summed relative to its first element. */
template <int V, int L, bool Full, typename Real>
MN_GPU void mn_group_statistics(const mn_group<V, L, Full, Real> &group, Real &mean, Real &rstd,
                                const Real (&z)[V], Real eps) {
  Real sum = 0, squares = 0;
  if constexpr (Full) {
    Real half[V];
    MN_UNROLL(int i = 0; i < V; i++) half[i] = z[i];
    MN_UNROLL(int n = V / 2; n > 0; n /= 2)
      MN_UNROLL(int i = 0; i < n; i++) half[i] += half[i + n];
    sum = half[0];
    mean = group.sum(sum) * group.inverse;
  } else {
    Real origin = __shfl_sync(MN_CUDA_WARP, z[0], 0, group.lanes);
    MN_UNROLL(int i = 0; i < V; i++) sum += group.has(i) ? z[i] - origin : Real(0);
    mean = fma(group.sum(sum), group.inverse, origin);
  }
  MN_UNROLL(int i = 0; i < V; i++) {
    Real centred = group.has(i) ? z[i] - mean : Real(0);
    squares = fma(centred, centred, squares);
  }
  squares = group.sum(squares);
  rstd = mn_poison(rsqrt(fma(squares, group.inverse, eps)), squares); /* NaN if they overflow */
}

/* ẑ (without MN_OP_NORM: z), y and dy/dv of a group. */
template <int V, typename Real>
MN_GPU void mn_group_forward(unsigned ops, Real (&standard)[V], Real (&y)[V], Real (&dy_dv)[V],
                             const Real (&z)[V], Real mean, Real rstd, const Real (&gamma)[V],
                             const Real (&beta)[V], Real slope) {
  MN_UNROLL(int i = 0; i < V; i++) {
    standard[i] = ops & MN_OP_NORM ? (z[i] - mean) * rstd : z[i];
    const Real v = ops & MN_OP_NORM ? fma(standard[i], gamma[i], beta[i]) : z[i];
    y[i] = mn_activate(ops, v, slope, dy_dv[i]);
  }
}

/* d: dy in, dz out. Adds to the lane's sums of dbias, dgamma, dbeta. Registers outside the group must hold
 * dy = 0 and a finite ẑ. */
template <int V, int L, bool Full, typename Real>
MN_GPU void mn_group_backward(const mn_group<V, L, Full, Real> &group, unsigned ops, Real (&d)[V],
                              Real (&sums)[3][V], const Real (&standard)[V], const Real (&dy_dv)[V],
                              const Real (&gamma)[V], Real rstd) {
  Real m1 = 0, m2 = 0;
  MN_UNROLL(int i = 0; i < V; i++) {
    d[i] *= dy_dv[i];
    if (!(ops & MN_OP_NORM)) continue;
    sums[1][i] = fma(d[i], standard[i], sums[1][i]);
    sums[2][i] += d[i];
    d[i] *= gamma[i];
    m1 += d[i];
    m2 = fma(d[i], standard[i], m2);
  }
  if (ops & MN_OP_NORM) {
    m1 = group.sum(m1) * group.inverse;
    m2 = group.sum(m2) * group.inverse;
    MN_UNROLL(int i = 0; i < V; i++) d[i] = mn_centre(d[i], standard[i], m1, m2, rstd);
  }
  MN_UNROLL(int i = 0; i < V; i++) sums[0][i] += d[i];
}

/* A matrix as a sum of `count` terms, whose rows are `pitch` apart; 0 for a plain matrix. */
template <typename Real> struct mn_terms {
  const Real *at[MN_PEERS];
  int count;
  int64_t pitch;
};

/* Flags beside MN_OP_… in a kernel's ops: z is 16 bits of this type and, with MN_OPS_NARROW, so
 * are bias, gamma, beta and, in a backward, d. As ops they are constant in most kernels: a load under a
 * condition would be waited for at once. */
enum { MN_OPS_BF16 = 16, MN_OPS_FP16 = 32, MN_OPS_NARROW = 64 };
static __host__ __device__ __forceinline__ enum mn_plane_kind mn_z_kind(unsigned ops) {
  return ops & MN_OPS_BF16 ? MN_PLANES_BF16 : ops & MN_OPS_FP16 ? MN_PLANES_FP16 : MN_NO_PLANES;
}
static __host__ __device__ __forceinline__ enum mn_plane_kind mn_narrow_of(unsigned ops) {
  return ops & MN_OPS_NARROW ? mn_z_kind(ops) : MN_NO_PLANES;
}

/* Every block kernel's arguments: struct mn_block with typed pointers; NULL if not written. */
template <typename Real> struct mn_block_arguments {
  unsigned ops;
  int64_t rows, channels, groups, width; /* N, C, G, D */
  int64_t tiles;
  int lanes;
  Real inverse, eps, slope, factor; /* 1/D; dy = factor·(y − target) */
  const Real *d, *bias, *gamma, *beta, *target, *weights;
  Real *z, *mean, *rstd, *y, *dz, *loss, *sums;
  mn_planes y_planes, dz_planes;
  int *nonfinite, mark;
  mn_terms<Real> terms; /* d as a sum, in block.cu only */
};

/* Loaded once by a thread of a block kernel: the factors of the planes that it writes. */
struct mn_factors {
  float y, dz;
};

template <typename Real> static MN_GPU mn_factors mn_factors_of(const mn_block_arguments<Real> &a) {
  return {mn_planes_factor(a.y_planes), mn_planes_factor(a.dz_planes)};
}

/* The result of a thread's checks while it computes. */
template <typename Real> struct mn_noticed {
  Real poison = 0;   /* NaN from the first value on that is not finite */
  float largest = 0; /* |dz|, if its planes are scaled */
};

/* Sets the flag and the scale from the findings of the warp's lanes; all must call it. */
template <typename Real>
static MN_GPU void mn_notice(const mn_block_arguments<Real> &a, const mn_factors &factors,
                             const mn_noticed<Real> &noticed) {
  bool raise = !(noticed.poison == 0);
  if (a.dz_planes.scale) {
    raise |= noticed.largest * factors.dz > MN_FP16_MOST;
    mn_scale_note(a.dz_planes.scale, noticed.largest);
  }
  if (raise) mn_raise(a.nonfinite, a.mark);
}

/* A block epilogue of d, [rows, channels], or, if it takes them, of terms; d is NULL then (block.cu). */
template <typename Real> struct mn_block_cuda {
  static mn_status run(struct mn_device *device, const Real *d, const struct mn_epilogue *epilogue,
                       const mn_terms<Real> &terms = {});
};
bool mn_cuda_takes_terms(const struct mn_epilogue *epilogue);

/* d: the product in memory; NULL when it is in registers. */
template <typename Real>
static mn_block_arguments<Real> mn_block_arguments_of(struct mn_device *device, const Real *d,
                                                      const struct mn_epilogue *epilogue) {
  const struct mn_block *b = epilogue->block;
  mn_block_arguments<Real> a = {};
  a.ops = b->ops;
  a.rows = b->rows, a.channels = b->channels;
  a.groups = b->ops & MN_OP_NORM ? b->groups : 1;
  MN_REQUIRE(a.rows > 0 && a.channels > 0 && a.groups > 0 && a.channels % a.groups == 0);
  a.width = a.channels / a.groups;
  a.inverse = 1 / (Real)a.width;
  a.eps = (Real)b->eps, a.slope = (Real)b->slope;
  a.factor = (Real)(2 * b->scale / ((double)b->rows * (double)b->channels));
  a.nonfinite = device->nonfinite, a.mark = device->mark;
  a.d = d;
  a.z = static_cast<Real *>(b->z);
  MN_REQUIRE(!b->narrow || (device->planes == 1 && epilogue->kind != MN_BLOCK_LOSS));
  if (b->narrow) a.ops |= device->scaled ? MN_OPS_FP16 : MN_OPS_BF16;
  if (b->narrow == MN_NARROW_MODULE) a.ops |= MN_OPS_NARROW;
  if (b->ops & MN_OP_BIAS) a.bias = static_cast<const Real *>(b->bias);
  if (b->ops & MN_OP_NORM) {
    a.gamma = static_cast<const Real *>(b->gamma), a.beta = static_cast<const Real *>(b->beta);
    a.mean = static_cast<Real *>(b->mean), a.rstd = static_cast<Real *>(b->rstd);
  }
  if (epilogue->kind != MN_BLOCK_BACKWARD && b->y) {
    a.y = static_cast<Real *>(b->y->real), a.y_planes = mn_planes_of(device, b->y);
    if (a.y_planes.high) b->y->stale = 0;
  }
  if (epilogue->kind != MN_BLOCK) {
    a.dz = static_cast<Real *>(b->dz->real), a.dz_planes = mn_planes_of(device, b->dz);
    if (a.dz_planes.high) b->dz->stale = 0;
    a.sums = static_cast<Real *>(b->sums);
  }
  if (epilogue->kind == MN_BLOCK_LOSS) {
    a.target = static_cast<const Real *>(b->target), a.weights = static_cast<const Real *>(b->weights);
    a.loss = static_cast<Real *>(b->loss_parts);
  }
  /* z is not written if d already is z, nor if dz is about to overwrite it. */
  if (epilogue->kind != MN_BLOCK_BACKWARD && ((a.z == d && !(b->ops & MN_OP_BIAS)) || (a.z && a.z == a.dz)))
    a.z = NULL;
  return a;
}

/* A lane's registers for a few rows, `step` apart, that are computed together: d, later y or dz; `other`,
 * which is z (backward) or the target (loss); the group's statistics. Only the first `count` rows exist; the
 * others are neither written nor added to the column sums. */
template <int V, int Rows, typename Real> struct mn_row_batch {
  struct {
    Real d[V], other[V], mean, rstd;
  } row[Rows];
  int64_t at, statistic; /* offsets of the lane's first column and of the group's statistics, first row */
  int step, count;
};

/* Loads and stores of a lane's V = W·K values, K vectors of W: value i is (i/W·L)·W + i%W columns to the
 * right of the lane's first. */
template <int W, int K, int L, bool Full, typename Real> struct mn_lanes_of {
  static constexpr int V = W * K;
  typedef mn_group<V, L, Full, Real> group;

  static MN_GPU int count(const group &g) { return L > 0 ? L : g.lanes; }

  /* Always: loads without a predicate, so that addresses outside the group must be valid too. */
  template <bool Always = false>
  static MN_GPU void load(Real (&out)[V], const Real *from, int64_t at, const group &g,
                          enum mn_plane_kind narrow = MN_NO_PLANES) {
    MN_UNROLL(int k = 0; k < K; k++) {
      Real part[W] = {};
      if (Always || k * W < g.valid) mn_load_narrow<W>(part, from, at + k * count(g) * W, narrow);
      MN_UNROLL(int i = 0; i < W; i++) out[k * W + i] = part[i];
    }
  }

  static MN_GPU void store(Real *real, const mn_planes &planes, float factor, int64_t at,
                           const Real (&from)[V], const group &g) {
    MN_UNROLL(int k = 0; k < K; k++) {
      Real part[W];
      MN_UNROLL(int i = 0; i < W; i++) part[i] = from[k * W + i];
      if (k * W < g.valid) mn_forms_store<W>(real, planes, factor, at + k * count(g) * W, part);
    }
  }
};

/* Loads the rows' `other` and statistics, ahead of use. A Full group loads without a predicate, because the
 * compiler waits for a predicated load at once: a row that does not exist loads the first row again (`at` and
 * `statistic` are always inside the matrix). */
template <enum mn_epilogue_kind Kind, int W, int K, int L, bool Full, int Rows, typename Real>
static MN_GPU void mn_rows_load(const mn_block_arguments<Real> &a, unsigned ops,
                                const mn_group<W * K, L, Full, Real> &group,
                                mn_row_batch<W * K, Rows, Real> &rows) {
  typedef mn_lanes_of<W, K, L, Full, Real> io;
  if constexpr (Kind == MN_BLOCK) return;
  const bool reads = Kind == MN_BLOCK_LOSS || ops & (MN_OP_NORM | MN_OP_ACTIVATE);
  const Real *from = Kind == MN_BLOCK_LOSS ? a.target : a.z;
  MN_UNROLL(int r = 0; r < Rows; r++) {
    auto &row = rows.row[r];
    const int64_t down = r < rows.count ? r * rows.step : 0;
    if (Full && reads) {
      io::template load<true>(row.other, from, rows.at + down * a.channels, group, mn_z_kind(ops));
    } else {
      MN_UNROLL(int i = 0; i < W * K; i++) row.other[i] = 0;
      if (reads && r < rows.count)
        io::load(row.other, from, rows.at + down * a.channels, group, mn_z_kind(ops));
    }
    row.mean = row.rstd = 0;
    if (Kind == MN_BLOCK_BACKWARD && (ops & MN_OP_NORM)) {
      row.mean = a.mean[rows.statistic + down * a.groups];
      row.rstd = a.rstd[rows.statistic + down * a.groups];
    }
  }
}

/* Stores all rows' d, in the forms that are not NULL. */
template <int W, int K, int L, bool Full, int Rows, typename Real>
static MN_GPU void mn_rows_store(Real *real, const mn_planes &planes, float factor, int64_t channels,
                                 const mn_group<W * K, L, Full, Real> &group,
                                 const mn_row_batch<W * K, Rows, Real> &rows) {
  typedef mn_lanes_of<W, K, L, Full, Real> io;
  const int64_t down = rows.step * channels;
  if (real)
    MN_UNROLL(int r = 0; r < Rows; r++)
      if (r < rows.count) io::store(real, {}, 1, rows.at + r * down, rows.row[r].d, group);
  if (planes.kind != MN_NO_PLANES)
    MN_UNROLL(int r = 0; r < Rows; r++)
      if (r < rows.count) io::store(NULL, planes, factor, rows.at + r * down, rows.row[r].d, group);
}

/* Stores one value for each row of the group: mean, rstd or loss. */
template <int V, int L, bool Full, int Rows, typename Real>
static MN_GPU void mn_rows_store_statistic(Real *to, int64_t groups, const mn_group<V, L, Full, Real> &group,
                                           const mn_row_batch<V, Rows, Real> &rows,
                                           const Real (&values)[Rows]) {
  if (!to || !group.leads) return;
  MN_UNROLL(int r = 0; r < Rows; r++)
    if (r < rows.count) to[rows.statistic + (int64_t)r * rows.step * groups] = values[r];
}

/* d becomes y, which is stored; also gives ẑ (`standard`) and dy/dv (`dy_dv`). Each step is done for all
 * rows before the next step, so that the rows' shuffles overlap. */
template <int W, int K, int L, bool Full, int Rows, typename Real>
static MN_GPU void mn_rows_forward(const mn_block_arguments<Real> &a, unsigned ops,
                                   const mn_group<W * K, L, Full, Real> &group,
                                   mn_row_batch<W * K, Rows, Real> &rows, Real (&standard)[Rows][W * K],
                                   Real (&dy_dv)[Rows][W * K], const Real (&bias)[W * K],
                                   const Real (&gamma)[W * K], const Real (&beta)[W * K], float factor) {
  Real mean[Rows], rstd[Rows];
  if (ops & MN_OP_BIAS)
    MN_UNROLL(int r = 0; r < Rows; r++)
      MN_UNROLL(int i = 0; i < W * K; i++) rows.row[r].d[i] += bias[i];
  const enum mn_plane_kind kind = mn_z_kind(ops);
  mn_rows_store<W, K>(kind ? NULL : a.z, mn_planes_at(a.z, kind), 1, a.channels, group, rows);
  MN_UNROLL(int r = 0; r < Rows; r++) mn_plane_round(rows.row[r].d, kind);
  if (ops & MN_OP_NORM) {
    MN_UNROLL(int r = 0; r < Rows; r++) {
      mn_group_statistics(group, mean[r], rstd[r], rows.row[r].d, a.eps);
      rows.row[r].mean = mean[r];
      rows.row[r].rstd = r < rows.count && group.valid > 0 ? rstd[r] : Real(0); /* else infinite, eps 0 */
    }
    mn_rows_store_statistic(a.mean, a.groups, group, rows, mean);
    mn_rows_store_statistic(a.rstd, a.groups, group, rows, rstd);
  }
  MN_UNROLL(int r = 0; r < Rows; r++) {
    auto &row = rows.row[r];
    mn_group_forward(ops, standard[r], row.d, dy_dv[r], row.d, row.mean, row.rstd, gamma, beta, a.slope);
  }
  mn_rows_store<W, K>(a.y, a.y_planes, factor, a.channels, group, rows);
}

/* Stores the squared error of each row of the group; replaces d, which holds y, by dy. Returns 0, or NaN when
 * an error is not finite. */
template <int V, int L, bool Full, int Rows, typename Real>
static MN_GPU Real mn_rows_loss(const mn_block_arguments<Real> &a, const mn_group<V, L, Full, Real> &group,
                                mn_row_batch<V, Rows, Real> &rows) {
  Real loss[Rows], poison = 0;
  MN_UNROLL(int r = 0; r < Rows; r++) {
    const Real weight = r >= rows.count ? 0 : a.weights ? a.weights[rows.at / a.channels + r * rows.step] : 1;
    loss[r] = 0;
    MN_UNROLL(int i = 0; i < V; i++) {
      Real error = group.has(i) ? rows.row[r].d[i] - rows.row[r].other[i] : Real(0);
      loss[r] = fma(error, error, loss[r]);
      rows.row[r].d[i] = weight * a.factor * error;
    }
    loss[r] = weight * group.sum(loss[r]);
    if (r < rows.count && group.valid > 0) poison = mn_poison(poison, loss[r]);
  }
  mn_rows_store_statistic(a.loss, a.groups, group, rows, loss);
  return poison;
}

/* The whole epilogue on rows that have been loaded; adds to the lane's sums of dbias, dgamma, dbeta. The
 * poison of values that go into the column sums is left to mn_sums_poison. */
template <enum mn_epilogue_kind Kind, int W, int K, int L, bool Full, int Rows, typename Real>
static MN_GPU void
mn_rows_finish(const mn_block_arguments<Real> &a, unsigned ops, const mn_group<W * K, L, Full, Real> &group,
               mn_row_batch<W * K, Rows, Real> &rows, const Real (&bias)[W * K], const Real (&gamma)[W * K],
               const Real (&beta)[W * K], Real (&sums)[3][W * K], const mn_factors &factors,
               mn_noticed<Real> &noticed) {
  constexpr int V = W * K;
  Real standard[Rows][V], dy_dv[Rows][V];
  if constexpr (Kind == MN_BLOCK_BACKWARD) {
    MN_UNROLL(int r = 0; r < Rows; r++) {
      auto &row = rows.row[r];
      Real y[V];
      mn_group_forward(ops, standard[r], y, dy_dv[r], row.other, row.mean, row.rstd, gamma, beta, a.slope);
    }
  } else {
    mn_rows_forward<W, K>(a, ops, group, rows, standard, dy_dv, bias, gamma, beta, factors.y);
  }
  if constexpr (Kind == MN_BLOCK) {
    MN_UNROLL(int r = 0; r < Rows; r++)
      MN_UNROLL(int i = 0; i < V; i++)
        if (r < rows.count) noticed.poison = mn_poison(noticed.poison, rows.row[r].d[i]);
  } else {
    if constexpr (Kind == MN_BLOCK_LOSS) noticed.poison += mn_rows_loss(a, group, rows);
    MN_UNROLL(int r = 0; r < Rows; r++)
      mn_group_backward(group, ops, rows.row[r].d, sums, standard[r], dy_dv[r], gamma, rows.row[r].rstd);
    if (a.dz_planes.scale)
      MN_UNROLL(int r = 0; r < Rows; r++)
        MN_UNROLL(int i = 0; i < V; i++)
          if (r < rows.count && group.has(i))
            noticed.largest = fmaxf(noticed.largest, fabsf((float)rows.row[r].d[i]));
    mn_rows_store<W, K>(a.dz, a.dz_planes, factors.dz, a.channels, group, rows);
  }
}

/* 0, or NaN when a column sum is not finite; it is not when any of its terms is not. */
template <int V, typename Real> static MN_GPU Real mn_sums_poison(const Real (&sums)[3][V]) {
  Real poison = 0;
  MN_UNROLL(int i = 0; i < 3 * V; i++) poison = mn_poison(poison, sums[i / V][i % V]);
  return poison;
}

#endif
