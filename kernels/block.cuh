/* The block's arithmetic on CUDA, shared by every kernel that applies it: on one element, and on one group of
 * one row, of which L neighbouring lanes hold V registers each. Formulas: kernels/kernels.h.
 *
 * Where `ops` is a constant, the compiler removes the tests of it. Multiply-adds are written as fma, so that
 * the backward recomputes exactly the forward's v, and with it the same side of the activation's kink. */
#ifndef MN_KERNELS_BLOCK_CUH
#define MN_KERNELS_BLOCK_CUH

#include "kernels/cuda.cuh"

template <typename Real> __device__ __forceinline__ Real mn_standardise(Real z, Real mean, Real rstd) {
  return (z - mean) * rstd;
}

/* v, from ẑ (without MN_OP_NORM: z). */
template <typename Real>
__device__ __forceinline__ Real mn_normalise(unsigned ops, Real standard, Real gamma, Real beta) {
  return ops & MN_OP_NORM ? fma(standard, gamma, beta) : standard;
}

/* dy/dv, so that y = steepness·v and g = steepness·dy; v = 0 counts as negative. Doubling is exact, so y is
 * the sum of the two equal terms to the bit. */
template <typename Real> __device__ __forceinline__ Real mn_steepness(unsigned ops, Real v, Real slope) {
  const Real sum = ops & MN_OP_SUM ? 2 : 1;
  return !(ops & MN_OP_ACTIVATE) || v > 0 ? sum : sum * slope;
}

/* dz, from h = g·gamma and the group's means of h and h·ẑ. */
template <typename Real>
__device__ __forceinline__ Real mn_centre(Real h, Real standard, Real m1, Real m2, Real rstd) {
  return rstd * fma(-standard, m2, h - m1);
}

/* Poison stays 0 as long as every value passed in is finite, and is NaN from the first that is not. */
template <typename Real> __device__ __forceinline__ Real mn_poison(Real poison, Real value) {
  return fma(value, Real(0), poison);
}

/* How a group is distributed: over L lanes (0: `lanes`, known at run time). This lane's first `valid` of V
 * registers are in the group. Full: either all V are, on L lanes of a power of two, or none. */
template <int V, int L, bool Full, typename Real> struct mn_group {
  int lanes, valid;
  Real inverse; /* 1/D */
  bool leads;   /* this lane writes the group's mean, rstd and loss */

  __device__ __forceinline__ Real sum(Real x) const { return mn_lanes_sum<L>(x, lanes); }
  __device__ __forceinline__ bool has(int i) const { return Full || i < valid; }
};

/* Centred variance. The mean of a constant group is exactly the constant, so that v = beta: a Full group's
 * pairwise sum of equal values is exact, and any other group is summed relative to its first element. */
template <int V, int L, bool Full, typename Real>
__device__ __forceinline__ void mn_group_statistics(const mn_group<V, L, Full, Real> &group, Real &mean,
                                                    Real &rstd, const Real (&z)[V], Real eps) {
  Real sum = 0, squares = 0;
  if constexpr (Full) {
    Real half[V];
#pragma unroll
    for (int i = 0; i < V; i++) half[i] = z[i];
#pragma unroll
    for (int n = V / 2; n > 0; n /= 2)
#pragma unroll
      for (int i = 0; i < n; i++) half[i] += half[i + n];
    sum = half[0];
    mean = group.sum(sum) * group.inverse;
  } else {
    Real origin = __shfl_sync(MN_CUDA_WARP, z[0], 0, group.lanes);
#pragma unroll
    for (int i = 0; i < V; i++) sum += group.has(i) ? z[i] - origin : Real(0);
    mean = fma(group.sum(sum), group.inverse, origin);
  }
#pragma unroll
  for (int i = 0; i < V; i++) {
    Real centred = group.has(i) ? z[i] - mean : Real(0);
    squares = fma(centred, centred, squares);
  }
  squares = group.sum(squares);
  rstd = mn_poison(rsqrt(fma(squares, group.inverse, eps)), squares); /* NaN where they overflow */
}

/* ẑ (without MN_OP_NORM: z), y and dy/dv of a group. */
template <int V, typename Real>
__device__ __forceinline__ void
mn_group_forward(unsigned ops, Real (&standard)[V], Real (&y)[V], Real (&steepness)[V], const Real (&z)[V],
                 Real mean, Real rstd, const Real (&gamma)[V], const Real (&beta)[V], Real slope) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    standard[i] = ops & MN_OP_NORM ? mn_standardise(z[i], mean, rstd) : z[i];
    const Real v = mn_normalise(ops, standard[i], gamma[i], beta[i]);
    steepness[i] = mn_steepness(ops, v, slope);
    y[i] = steepness[i] * v;
  }
}

/* d: dy in, dz out. Adds to the lane's sums of dbias, dgamma, dbeta. Registers outside the group must hold
 * dy = 0 and a finite ẑ. */
template <int V, int L, bool Full, typename Real>
__device__ __forceinline__ void
mn_group_backward(const mn_group<V, L, Full, Real> &group, unsigned ops, Real (&d)[V], Real (&sums)[3][V],
                  const Real (&standard)[V], const Real (&steepness)[V], const Real (&gamma)[V], Real rstd) {
  Real m1 = 0, m2 = 0;
#pragma unroll
  for (int i = 0; i < V; i++) {
    d[i] *= steepness[i];
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
#pragma unroll
    for (int i = 0; i < V; i++) d[i] = mn_centre(d[i], standard[i], m1, m2, rstd);
  }
#pragma unroll
  for (int i = 0; i < V; i++) sums[0][i] += d[i];
}

#endif
