/* The gather on CUDA: a warp takes a piece of a row at a time, PIECE words a lane, all of them in flight at
 * once. From the device's memory the whole GPU gathers. From host memory a few CTAs do, because loads over
 * the link take so long that more of them bring nothing, and each would keep a multiprocessor from the GEMM
 * that runs beside it. Contract: kernels/gather.h. */
#include "kernels/cuda.cuh"

enum { PIECE = 8, NEAR_THREADS = 256, FAR_THREADS = 512 };

/* x or y as the kernel copies it: `words` words a row, `pieces` pieces a row. */
struct part {
  char *to;
  const char *from;
  int64_t words, pieces;
  int word; /* bytes: the most, up to 16, that divide rows and addresses */
};

static struct part part_of(const struct mn_gathered *g) {
  struct part p = {static_cast<char *>(g->to), static_cast<const char *>(g->from), 0, 0, 16};
  MN_REQUIRE(g->bytes % 2 == 0);
  while (g->bytes % p.word || !mn_aligned(p.word, g->to, g->from)) p.word /= 2;
  p.words = (int64_t)(g->bytes / p.word);
  p.pieces = (p.words + 32 * PIECE - 1) / (32 * PIECE);
  return p;
}

template <typename Word>
static __device__ __forceinline__ void copy_piece(const part &p, int64_t to_row, int64_t from_row,
                                                  int64_t first) {
  const Word *from = reinterpret_cast<const Word *>(p.from) + from_row * p.words;
  Word *to = reinterpret_cast<Word *>(p.to) + to_row * p.words;
  Word values[PIECE];
#pragma unroll
  for (int i = 0; i < PIECE; i++)
    if (first + 32 * i < p.words) values[i] = from[first + 32 * i];
#pragma unroll
  for (int i = 0; i < PIECE; i++)
    if (first + 32 * i < p.words) to[first + 32 * i] = values[i];
}

static __global__ void __launch_bounds__(FAR_THREADS)
    gather_kernel(const int64_t *rows, int64_t count, part x, part y) {
  const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), of_x = count * x.pieces;
  int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  for (; piece < of_x + count * y.pieces; piece += warps) {
    const part &p = piece < of_x ? x : y;
    const int64_t number = piece < of_x ? piece : piece - of_x, row = number / p.pieces;
    const int64_t first = number % p.pieces * (32 * PIECE) + threadIdx.x % 32;
    switch (p.word) { /* the same for the whole warp */
    case 16:
      copy_piece<uint4>(p, row, rows[row], first);
      break;
    case 8:
      copy_piece<uint2>(p, row, rows[row], first);
      break;
    case 4:
      copy_piece<unsigned>(p, row, rows[row], first);
      break;
    default:
      copy_piece<unsigned short>(p, row, rows[row], first);
    }
  }
}

/* A far gather's CTAs come in pairs, as clusters, because GEMMs need pairs of multiprocessors too: left alone
 * they would take one of each of several pairs. Shared memory that it does not use keeps each CTA on a
 * multiprocessor of its own. */
static mn_status launch_far(struct mn_device *device, const struct mn_gather *g, const part &x,
                            const part &y) {
  enum { SHARED = 160 * 1024 };
  cudaLaunchAttribute pair = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = MN_GATHER_MULTIPROCESSORS;
  config.blockDim = FAR_THREADS;
  config.stream = device->cuda->stream;
  if (device->cuda->encode) { /* Hopper */
    MN_CUDA_TRY(cudaFuncSetAttribute(gather_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = 2, pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    config.attrs = &pair;
    config.numAttrs = 1;
    config.dynamicSmemBytes = SHARED;
  }
  MN_CUDA_TRY(cudaLaunchKernelEx(&config, gather_kernel, g->rows, g->count, x, y));
  return MN_OK;
}

mn_status mn_gather_cuda(struct mn_device *device, const struct mn_gather *g) {
  const part x = part_of(&g->of[0]), y = part_of(&g->of[1]);
  if (g->far) return launch_far(device, g, x, y);
  gather_kernel<<<mn_cuda_grid(g->count * (x.pieces + y.pieces), NEAR_THREADS / 32), NEAR_THREADS, 0,
                  device->cuda->stream>>>(g->rows, g->count, x, y);
  return mn_cuda_launched("gather");
}
