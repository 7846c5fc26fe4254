/* The block epilogues on one row of one group, from what its lanes hold to what is saved: the same for a
 * matrix that stands in memory (block.cu) and for one in a GEMM's accumulators (gemm_hopper_block.cu). */
#ifndef MN_KERNELS_BLOCK_ROW_CUH
#define MN_KERNELS_BLOCK_ROW_CUH

#include "kernels/block.cuh"

/* Any kernel's arguments: struct mn_block with its types, and NULL for what is not to be written. */
template <typename Real> struct mn_block_arguments {
  unsigned stages;
  int64_t rows, channels, groups, width; /* N, C, G, D */
  int64_t tiles;
  int lanes;
  Real inverse, eps, slope, factor; /* 1/D; dy = factor·(y − target) */
  const Real *d, *bias, *gamma, *beta, *target;
  Real *z, *mean, *rstd, *y, *dz, *loss, *sums;
  mn_half *y_half, *dz_half;
  int *nonfinite;
};

/* d: where the product stands; NULL when it is in registers. */
template <typename Real>
static mn_block_arguments<Real> mn_block_arguments_of(struct mn_stream *stream, const Real *d,
                                                      const struct mn_epilogue *epilogue) {
  const struct mn_block *b = epilogue->block;
  mn_block_arguments<Real> a = {};
  a.stages = b->stages;
  a.rows = b->rows, a.channels = b->channels;
  a.groups = b->stages & MN_STAGE_NORM ? b->groups : 1;
  MN_REQUIRE(a.rows > 0 && a.channels > 0 && a.groups > 0 && a.channels % a.groups == 0);
  a.width = a.channels / a.groups;
  a.inverse = 1 / (Real)a.width;
  a.eps = (Real)b->eps, a.slope = (Real)b->slope;
  a.factor = (Real)(2 * b->scale / ((double)b->rows * (double)b->channels));
  a.nonfinite = stream->nonfinite;
  a.d = d;
  a.z = static_cast<Real *>(b->z);
  if (b->stages & MN_STAGE_BIAS) a.bias = static_cast<const Real *>(b->bias);
  if (b->stages & MN_STAGE_NORM) {
    a.gamma = static_cast<const Real *>(b->gamma), a.beta = static_cast<const Real *>(b->beta);
    a.mean = static_cast<Real *>(b->mean), a.rstd = static_cast<Real *>(b->rstd);
  }
  if (epilogue->kind != MN_BLOCK_BACKWARD && b->y) {
    a.y = static_cast<Real *>(b->y->real), a.y_half = static_cast<mn_half *>(b->y->half);
    if (a.y_half) b->y->stale = 0;
  }
  if (epilogue->kind != MN_BLOCK) {
    a.dz = static_cast<Real *>(b->dz->real), a.dz_half = static_cast<mn_half *>(b->dz->half);
    if (a.dz_half) b->dz->stale = 0;
    a.sums = static_cast<Real *>(b->sums);
  }
  if (epilogue->kind == MN_BLOCK_LOSS) {
    a.target = static_cast<const Real *>(b->target);
    a.loss = static_cast<Real *>(b->loss_parts);
  }
  /* z is written where it is not there already, unless dz is about to take its place. */
  if (epilogue->kind != MN_BLOCK_BACKWARD &&
      ((a.z == d && !(b->stages & MN_STAGE_BIAS)) || (a.z && a.z == a.dz)))
    a.z = NULL;
  return a;
}

/* What a lane has of a row: d, or what stands in its place, z (backward) or the target (loss), the group's
 * statistics (backward). factor 0: the row is not there and adds nothing to the column sums. */
template <int V, typename Real> struct mn_row { Real d[V], other[V], mean, rstd, factor; };

/* How a lane's values lie in memory: value i of its V = W·K is (i/W·L)·W + i%W columns on from its first. */
template <int W, int K, int L, bool Full, typename Real> struct mn_lanes_of {
  static constexpr int V = W * K;
  typedef mn_group<V, L, Full, Real> group;

  static __device__ __forceinline__ int count(const group &g) { return L > 0 ? L : g.lanes; }

  static __device__ __forceinline__ void load(Real (&out)[V], const Real *from, const group &g) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      Real part[W] = {};
      if (k * W < g.valid) mn_load<W>(part, from + k * count(g) * W);
#pragma unroll
      for (int i = 0; i < W; i++) out[k * W + i] = part[i];
    }
  }

  static __device__ __forceinline__ void store(Real *real, mn_half *half, int64_t at, const Real (&from)[V],
                                               const group &g) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      Real part[W];
#pragma unroll
      for (int i = 0; i < W; i++) part[i] = from[k * W + i];
      if (k * W < g.valid) mn_store_forms<W>(real, half, at + k * count(g) * W, part, W);
    }
  }
};

/* What a row needs from memory beside d. Fetched before an earlier row writes. */
template <enum mn_epilogue_kind Kind, int W, int K, int L, bool Full, typename Real>
static __device__ __forceinline__ void mn_row_fetch(const mn_block_arguments<Real> &a, unsigned stages,
                                                    const mn_group<W * K, L, Full, Real> &group,
                                                    mn_row<W * K, Real> &row, int64_t at, int64_t statistic) {
  typedef mn_lanes_of<W, K, L, Full, Real> io;
  row.mean = row.rstd = 0;
  row.factor = a.factor;
  if constexpr (Kind == MN_BLOCK_LOSS) io::load(row.other, a.target + at, group);
  if constexpr (Kind == MN_BLOCK_BACKWARD) {
    if (stages & (MN_STAGE_NORM | MN_STAGE_ACTIVATE))
      io::load(row.other, a.z + at, group);
    else
#pragma unroll
      for (int i = 0; i < W * K; i++) row.other[i] = 0;
    if ((stages & MN_STAGE_NORM) && group.valid > 0) {
      row.mean = a.mean[statistic];
      row.rstd = a.rstd[statistic];
    }
  }
}

/* From what was fetched to what is saved; sums: what the row adds to the columns of dbias, dgamma, dbeta.
 * Returns 0, or NaN when a value is not finite. */
template <enum mn_epilogue_kind Kind, int W, int K, int L, bool Full, typename Real>
static __device__ __forceinline__ Real mn_row_finish(const mn_block_arguments<Real> &a, unsigned stages,
                                                     bool leads, const mn_group<W * K, L, Full, Real> &group,
                                                     mn_row<W * K, Real> &row, int64_t at, int64_t statistic,
                                                     const Real (&bias)[W * K], const Real (&gamma)[W * K],
                                                     const Real (&beta)[W * K], Real (&sums)[3][W * K]) {
  constexpr int V = W * K;
  typedef mn_lanes_of<W, K, L, Full, Real> io;
  Real standard[V], v[V], poison = 0;
  if constexpr (Kind == MN_BLOCK_BACKWARD) {
    mn_group_normalise(stages, standard, v, row.other, row.mean, row.rstd, gamma, beta);
  } else {
    if (stages & MN_STAGE_BIAS)
#pragma unroll
      for (int i = 0; i < V; i++) row.d[i] += bias[i];
    if (a.z) io::store(a.z, NULL, at, row.d, group);
    if (stages & MN_STAGE_NORM) {
      mn_group_statistics(group, row.mean, row.rstd, row.d, a.eps);
      if (leads && a.mean) a.mean[statistic] = row.mean;
      if (leads && a.rstd) a.rstd[statistic] = row.rstd;
    }
    mn_group_normalise(stages, standard, v, row.d, row.mean, row.rstd, gamma, beta);
#pragma unroll
    for (int i = 0; i < V; i++) {
      row.d[i] = mn_activate(stages, v[i], a.slope);
      poison = mn_poison(poison, row.d[i]);
    }
    if (a.y || a.y_half) io::store(a.y, a.y_half, at, row.d, group);
  }
  if constexpr (Kind == MN_BLOCK_LOSS) {
    Real loss = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
      Real error = group.has(i) ? row.d[i] - row.other[i] : Real(0);
      loss = fma(error, error, loss);
      row.d[i] = row.factor * error;
    }
    loss = group.sum(loss);
    poison = mn_poison(poison, loss);
    if (leads && a.loss) a.loss[statistic] = loss;
  }
  if constexpr (Kind != MN_BLOCK) {
    mn_group_backward(group, stages, row.d, sums, standard, v, gamma, row.rstd, a.slope);
#pragma unroll
    for (int i = 0; i < V; i++) poison = mn_poison(poison, row.d[i]);
    io::store(a.dz, a.dz_half, at, row.d, group);
  }
  return poison;
}

#endif
