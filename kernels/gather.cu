/* The gather on CUDA: a warp takes a piece of a row at a time, PIECE words a lane, all of them in flight at
 * once. From the device's memory the whole GPU gathers. From host memory a few CTAs do, because loads over
 * the link take so long that more of them are no faster, and each would keep a multiprocessor from the GEMM
 * that runs beside it. Floats that become planes are rounded on their way, so that no kernel has to wait for
 * this one to do it. Contract: kernels/memory.h. */
#include "kernels/planes.cuh"

enum { PIECE = 8, NEAR_THREADS = 256, FAR_THREADS = 512 };

/* x or y as the kernel copies it: `words` words a row, `pieces` pieces a row, rows that are `apart` words
 * apart. */
struct part {
  char *to;
  const char *from;
  unsigned words, pieces;
  int64_t apart;
  int word; /* bytes: the most, up to 16, that divide rows and addresses */
};

/* What x's floats become: planes of kind MN_PLANES_FP16 or MN_PLANES_FP16X2 under scale 0, 1, … */
struct rounding {
  mn_planes planes;
  int64_t batch; /* rows under each */
};

/* For rounding, a word is 4 floats, or one if the planes' words would not be aligned. */
static struct part part_of(const struct mn_gather *gather, int which, const mn_planes &planes = {}) {
  const auto *g = &gather->of[which];
  struct part p = {static_cast<char *>(g->to), static_cast<const char *>(g->from), 0, 0, 0, 16};
  const size_t apart = g->apart ? g->apart : g->bytes;
  MN_REQUIRE((g->bytes | apart) % (planes.high ? sizeof(float) : 2) == 0);
  while ((g->bytes | apart) % p.word || !mn_aligned(p.word, g->to, g->from)) p.word /= 2;
  if (planes.high && (p.word < 16 || !mn_aligned(8, planes.high, planes.low))) p.word = sizeof(float);
  p.words = (unsigned)(g->bytes / p.word);
  p.apart = (int64_t)(apart / p.word);
  p.pieces = (p.words + 32 * PIECE - 1) / (32 * PIECE);
  return p;
}

template <int Bytes = 16>
static MN_GPU void copy_piece(const part &p, unsigned to_row, int64_t from_row, unsigned first) {
  if constexpr (Bytes > 2) /* p.word is the same for the whole warp */
    if (p.word < Bytes) return copy_piece<Bytes / 2>(p, to_row, from_row, first);
  typedef typename mn_word<Bytes>::type Word;
  const Word *from = reinterpret_cast<const Word *>(p.from) + from_row * p.apart + first;
  Word *to = reinterpret_cast<Word *>(p.to) + (int64_t)to_row * p.words + first;
  const unsigned left = p.words - first;
  Word values[PIECE];
  MN_UNROLL(int i = 0; i < PIECE; i++)
    if (first < p.words && 32 * i < left) values[i] = from[32 * i];
  MN_UNROLL(int i = 0; i < PIECE; i++)
    if (first < p.words && 32 * i < left) to[32 * i] = values[i];
}

/* The same of floats that become planes, W to a word. */
template <enum mn_plane_kind Kind, int W>
static MN_GPU void round_piece(const part &p, const rounding &r, unsigned to_row, int64_t from_row,
                               unsigned first) {
  const float factor = r.planes.scale[to_row / (unsigned)r.batch].factor;
  const float *from = reinterpret_cast<const float *>(p.from) + (from_row * p.apart + first) * W;
  mn_planes planes = mn_planes_as<Kind>(r.planes);
  planes.high += ((int64_t)to_row * p.words + first) * W;
  if (Kind == MN_PLANES_FP16X2) planes.low += ((int64_t)to_row * p.words + first) * W;
  const int left = first < p.words ? (int)min(p.words - first, 32u * PIECE) : 0;
  float values[PIECE][W];
  MN_UNROLL(int i = 0; i < PIECE; i++)
    if (32 * i < left) mn_load<W>(values[i], from + 32 * i * W);
  MN_UNROLL(int i = 0; i < PIECE; i++)
    if (32 * i < left) mn_planes_store<W>(planes, factor, 32 * i * W, values[i]);
}

/* Kind: of x's planes; MN_NO_PLANES: x is copied. */
template <enum mn_plane_kind Kind>
static __global__ void __launch_bounds__(FAR_THREADS)
    gather_kernel(const int64_t *rows, unsigned count, const __grid_constant__ part x,
                  const __grid_constant__ part y, const __grid_constant__ rounding r) {
  const unsigned warps = gridDim.x * (blockDim.x / 32), of_x = count * x.pieces;
  unsigned piece = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  for (; piece < of_x + count * y.pieces; piece += warps) {
    const part &p = piece < of_x ? x : y;
    const unsigned number = piece < of_x ? piece : piece - of_x, row = number / p.pieces;
    const unsigned first = (number - row * p.pieces) * (32 * PIECE) + threadIdx.x % 32;
    const int64_t from_row = rows ? rows[row] : row;
    if (Kind == MN_NO_PLANES || piece >= of_x)
      copy_piece(p, row, from_row, first);
    else if (x.word == 16)
      round_piece<Kind, 4>(x, r, row, from_row, first);
    else
      round_piece<Kind, 1>(x, r, row, from_row, first);
  }
}

/* A far gather's CTAs come in pairs, as clusters, because GEMMs need pairs of multiprocessors too: left alone
 * they would take one of each of several pairs. Shared memory that it does not use keeps each CTA on a
 * multiprocessor of its own. */
mn_status mn_gather_cuda(struct mn_device *device, const struct mn_gather *g) {
  enum { SHARED = 160 * 1024 };
  const rounding r = {{g->planes[0] ? device->plane_kind : MN_NO_PLANES,
                       static_cast<uint16_t *>(g->planes[0]), static_cast<uint16_t *>(g->planes[1]),
                       const_cast<struct mn_scale *>(g->scales)},
                      g->batch};
  const part x = part_of(g, 0, r.planes), y = part_of(g, 1);
  const auto kernel = r.planes.kind == MN_NO_PLANES     ? gather_kernel<MN_NO_PLANES>
                      : r.planes.kind == MN_PLANES_FP16 ? gather_kernel<MN_PLANES_FP16>
                                                        : gather_kernel<MN_PLANES_FP16X2>;
  const int64_t pieces = g->count * (x.pieces + (int64_t)y.pieces);
  MN_REQUIRE(pieces <= INT32_MAX); /* the kernel counts in 32 bits */
  cudaLaunchAttribute pair = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = g->far ? MN_GATHER_MULTIPROCESSORS : mn_cuda_grid(pieces, NEAR_THREADS / 32);
  config.blockDim = g->far ? FAR_THREADS : NEAR_THREADS;
  config.stream = device->cuda->stream;
  if (g->far && device->cuda->encode) { /* Hopper */
    MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = 2, pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    config.attrs = &pair;
    config.numAttrs = 1;
    config.dynamicSmemBytes = SHARED;
  }
  MN_CUDA_RETURN(cudaLaunchKernelEx(&config, kernel, g->rows, (unsigned)g->count, x, y, r));
}
