/* The finish of the block's column sums on CUDA: the chunks' parts become dbias, dgamma and dbeta, and end in
 * their sinks, all three in one launch. */
#include "kernels/block.h"

#include "kernels/sgd.cuh"

/* Where one vector of column sums goes. */
template <typename Real> struct sink {
  int kind; /* enum mn_epilogue_kind; −1: nowhere */
  Real *into, *momentum;
  mn_half *half;
  mn_sgd_rule<Real> rule;
};
template <typename Real> struct sinks { sink<Real> of[3]; };

/* 32 columns by blockDim.y stretches of the chunks: each adds its own in order, then they are added in order.
 * The stretches, and so the bytes, depend on the number of chunks alone. */
template <typename Real>
static __global__ void column_sums_kernel(const Real *sums, int64_t chunks, int64_t channels,
                                          const sinks<Real> all) {
  __shared__ Real parts[32][32];
  const sink<Real> &to = all.of[blockIdx.y];
  if (to.kind < 0) return;
  const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x;
  const int64_t each = (chunks + blockDim.y - 1) / blockDim.y, first = threadIdx.y * each;
  const int64_t last = first + each < chunks ? first + each : chunks;
  Real sum = 0;
  if (column < channels)
    for (int64_t k = first; k < last; k++) sum += sums[(blockIdx.y * chunks + k) * channels + column];
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= channels) return;
  for (unsigned i = 1; i < blockDim.y; i++) sum += parts[i][threadIdx.x];
  if (to.kind == MN_ADD) sum += to.into[column];
  if (to.kind == MN_UPDATE) {
    if (*to.rule.nonfinite) return;
    Real rate = (Real)*to.rule.rate, scale = to.rule.scale ? (Real)*to.rule.scale : Real(1);
    Real w = to.into[column], m = to.momentum ? to.momentum[column] : Real(0);
    mn_sgd_step(to.rule, rate, scale, to.momentum != NULL, sum, w, m);
    if (to.momentum) to.momentum[column] = m;
    if (to.half) to.half[column] = mn_to_half(w);
    sum = w;
  }
  to.into[column] = sum;
}

template <typename Real>
static sink<Real> sink_of(struct mn_stream *stream, int64_t channels, const struct mn_epilogue *epilogue) {
  sink<Real> to = {};
  to.kind = epilogue ? (int)epilogue->kind : -1;
  if (!epilogue) return to;
  MN_REQUIRE(epilogue->kind == MN_STORE || epilogue->kind == MN_ADD || epilogue->kind == MN_UPDATE);
  to.into = static_cast<Real *>(epilogue->into);
  if (epilogue->kind == MN_UPDATE) {
    const struct mn_update *update = epilogue->update;
    MN_REQUIRE(update->w->rows * update->w->cols == channels);
    MN_REQUIRE(update->momentum || update->sgd->momentum == 0);
    to.into = static_cast<Real *>(update->w->real);
    to.half = static_cast<mn_half *>(update->w->half);
    to.momentum = static_cast<Real *>(update->momentum);
    to.rule = mn_sgd_rule_of<Real>(stream, update->sgd);
  }
  MN_REQUIRE(to.into);
  return to;
}

template <typename Real>
static mn_status column_sums(struct mn_stream *stream, void *sums, int64_t chunks, int64_t channels,
                             const struct mn_epilogue *const targets[3]) {
  sinks<Real> all;
  for (int i = 0; i < 3; i++) all.of[i] = sink_of<Real>(stream, channels, targets[i]);
  unsigned stretches = chunks <= 1 ? 1 : chunks <= 64 ? 8 : 32;
  dim3 grid(mn_cuda_grid(channels, 32), 3), threads(32, stretches);
  column_sums_kernel<<<grid, threads, 0, stream->cuda->stream>>>(static_cast<const Real *>(sums), chunks,
                                                                 channels, all);
  return mn_cuda_launched("column_sums");
}

extern "C" mn_status mn_column_sums_cuda_fp32(struct mn_stream *stream, void *sums, int64_t chunks,
                                              int64_t channels, const struct mn_epilogue *const targets[3]) {
  return column_sums<float>(stream, sums, chunks, channels, targets);
}
extern "C" mn_status mn_column_sums_cuda_fp64(struct mn_stream *stream, void *sums, int64_t chunks,
                                              int64_t channels, const struct mn_epilogue *const targets[3]) {
  return column_sums<double>(stream, sums, chunks, channels, targets);
}
