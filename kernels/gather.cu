/* The gather on CUDA: a warp takes a piece of a row at a time, PIECE vectors a lane, all of them in flight at
 * once. From the device's memory the whole GPU gathers. From host memory a few CTAs do, because loads over
 * the link take so long that more of them bring nothing, and each would keep a multiprocessor from the GEMM
 * that runs beside it. Contract: kernels/gather.h. */
#include "kernels/cuda.cuh"

enum { PIECE = 8, NEAR_THREADS = 256, FAR_THREADS = 1024 };

/* W elements in one access. */
template <typename T, int W>
static __global__ void __launch_bounds__(FAR_THREADS)
    gather_kernel(T *to, const T *from, const int64_t *rows, int64_t count, int64_t cols) {
  const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), words = cols / W,
                pieces = (words + 32 * PIECE - 1) / (32 * PIECE);
  int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  for (; piece < count * pieces; piece += warps) {
    const int64_t row = piece / pieces, first = piece % pieces * (32 * PIECE) + threadIdx.x % 32;
    const T *source = from + rows[row] * cols;
    T values[PIECE][W];
#pragma unroll
    for (int i = 0; i < PIECE; i++)
      if (first + 32 * i < words) mn_load<W>(values[i], source + (first + 32 * i) * W);
#pragma unroll
    for (int i = 0; i < PIECE; i++)
      if (first + 32 * i < words) mn_store<W>(to + row * cols + (first + 32 * i) * W, values[i]);
  }
}

/* A far gather's CTAs come in pairs, as clusters, because GEMMs need pairs of multiprocessors too: left alone
 * they would take one of each of several pairs. Its shared memory, which it does not use, keeps each CTA on a
 * multiprocessor of its own. */
template <typename T, int W>
static mn_status launch_far(struct mn_device *device, const struct mn_gather *g) {
  auto kernel = gather_kernel<T, W>;
  enum { SHARED = 160 * 1024 };
  cudaLaunchAttribute pair = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = MN_GATHER_MULTIPROCESSORS;
  config.blockDim = FAR_THREADS;
  config.stream = device->cuda->stream;
  if (device->cuda->encode) { /* Hopper */
    MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = 2, pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    config.attrs = &pair;
    config.numAttrs = 1;
    config.dynamicSmemBytes = SHARED;
  }
  MN_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, static_cast<T *>(g->to), static_cast<const T *>(g->from),
                                 g->rows, g->count, g->cols));
  return MN_OK;
}

template <typename T, int W> static mn_status launch(struct mn_device *device, const struct mn_gather *g) {
  if (g->far) return launch_far<T, W>(device, g);
  const int64_t pieces = (g->cols / W + 32 * PIECE - 1) / (32 * PIECE);
  gather_kernel<T, W>
      <<<mn_cuda_grid(g->count * pieces, NEAR_THREADS / 32), NEAR_THREADS, 0, device->cuda->stream>>>(
          static_cast<T *>(g->to), static_cast<const T *>(g->from), g->rows, g->count, g->cols);
  return mn_cuda_launched("gather");
}

/* 16 bytes at a time where rows and addresses are multiples of that, else one element. */
template <typename T> static mn_status launch_width(struct mn_device *device, const struct mn_gather *g) {
  constexpr int W = 16 / sizeof(T);
  return g->cols % W == 0 && mn_aligned(16, g->from, g->to) ? launch<T, W>(device, g)
                                                            : launch<T, 1>(device, g);
}

mn_status mn_gather_cuda(struct mn_device *device, const struct mn_gather *g) {
  switch (g->size) {
  case 2:
    return launch_width<uint16_t>(device, g);
  case 4:
    return launch_width<uint32_t>(device, g);
  case 8:
    return launch_width<uint64_t>(device, g);
  }
  mn_abort(__FILE__, __LINE__, "an element's size");
}
