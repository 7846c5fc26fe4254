/* The gather on CUDA: a CTA takes a range of words at a time, IN_FLIGHT of them a thread, all in flight at
 * once. From the device's memory the whole GPU gathers. From host memory a few CTAs do, because loads over
 * the link take so long that more of them are no faster, and each would keep a multiprocessor from the GEMM
 * that runs beside it. Floats that become planes are rounded on their way. Contract: kernels/memory.h. */
#include "kernels/planes.cuh"

enum { IN_FLIGHT = 4, NEAR_THREADS = 256, FAR_THREADS = 512 };

/* x or y as the kernel copies it: `all` words, `words` a row, rows that are `apart` words apart. */
struct part {
  char *to;
  const char *from;
  unsigned words, ranges;
  int64_t all, apart;
  int word;                   /* bytes: the most, up to 16, that divide rows and addresses */
  unsigned rows_on, words_on; /* a word for each thread of a CTA, in rows and words */
};

/* For rounding, a word is 4 floats, or one if the planes' words would not be aligned. */
static struct part part_of(const struct mn_gather *gather, int which, const mn_planes &planes = {}) {
  const auto *g = &gather->of[which];
  const unsigned threads = gather->far ? FAR_THREADS : NEAR_THREADS;
  struct part p = {static_cast<char *>(g->to), static_cast<const char *>(g->from), 0, 0, 0, 0, 16};
  const size_t apart = g->apart ? g->apart : g->bytes;
  MN_REQUIRE((g->bytes | apart) % (planes.high ? sizeof(float) : 2) == 0);
  while ((g->bytes | apart) % p.word || !mn_aligned(p.word, g->to, g->from)) p.word /= 2;
  if (planes.high && (p.word < 16 || !mn_aligned(8, planes.high, planes.low))) p.word = sizeof(float);
  p.words = (unsigned)(g->bytes / p.word), p.all = p.words * gather->count;
  p.ranges = (unsigned)((p.all + threads * IN_FLIGHT - 1) / (threads * IN_FLIGHT));
  p.apart = (int64_t)(apart / p.word);
  if (p.words) p.rows_on = threads / p.words, p.words_on = threads % p.words;
  return p;
}

/* Gives store(row, word, value) every word of a range, but those of rows that come from nowhere. */
template <typename Word, typename Store>
static MN_GPU void each_word(const part &p, const int64_t *rows, unsigned range, Store store) {
  const int64_t first = (int64_t)range * (blockDim.x * IN_FLIGHT) + threadIdx.x;
  unsigned row[IN_FLIGHT], word[IN_FLIGHT];
  int64_t from_row[IN_FLIGHT];
  Word values[IN_FLIGHT];
  MN_UNROLL(int i = 0; i < IN_FLIGHT; i++) {
    row[i] = i ? row[i - 1] + p.rows_on : (unsigned)(first / p.words);
    word[i] = i ? word[i - 1] + p.words_on : (unsigned)(first % p.words);
    if (word[i] >= p.words) row[i]++, word[i] -= p.words;
    from_row[i] = first + i * blockDim.x >= p.all ? -1 : rows ? rows[row[i]] : row[i];
  }
  MN_UNROLL(int i = 0; i < IN_FLIGHT; i++)
    if (from_row[i] >= 0) values[i] = reinterpret_cast<const Word *>(p.from)[from_row[i] * p.apart + word[i]];
  MN_UNROLL(int i = 0; i < IN_FLIGHT; i++)
    if (from_row[i] >= 0) store(row[i], word[i], values[i]);
}

template <int Bytes = 16> static MN_GPU void copy(const part &p, const int64_t *rows, unsigned range) {
  if constexpr (Bytes > 2) /* p.word is the same for the whole grid */
    if (p.word < Bytes) return copy<Bytes / 2>(p, rows, range);
  typedef typename mn_word<Bytes>::type Word;
  each_word<Word>(p, rows, range, [&](unsigned row, unsigned word, const Word &value) {
    reinterpret_cast<Word *>(p.to)[(int64_t)row * p.words + word] = value;
  });
}

/* The same of floats that become planes, W to a word, of kind MN_PLANES_FP16 or MN_PLANES_FP16X2. */
template <enum mn_plane_kind Kind, int W>
static MN_GPU void round(const part &p, const mn_planes &to, unsigned batch, const int64_t *rows,
                         unsigned range) {
  typedef typename mn_word<W * sizeof(float)>::type Word;
  const mn_planes planes = mn_planes_as<Kind>(to);
  each_word<Word>(p, rows, range, [&](unsigned row, unsigned word, const Word &value) {
    float values[W];
    memcpy(values, &value, sizeof values);
    struct mn_scale &scale = planes.scale[row / batch];
    const float factor = mn_scale_factor(scale.largest, MN_HEADROOM_X, 1);
    if (word == 0 && row % batch == 0) scale.factor = factor;
    mn_planes_store<W>(planes, factor, ((int64_t)row * p.words + word) * W, values);
  });
}

/* Kind: of x's planes, of which `batch` rows have a scale; MN_NO_PLANES: x is copied. */
template <enum mn_plane_kind Kind>
static __global__ void __launch_bounds__(FAR_THREADS)
    gather_kernel(const int64_t *rows, const __grid_constant__ part x, const __grid_constant__ part y,
                  const __grid_constant__ mn_planes planes, unsigned batch) {
  for (unsigned range = blockIdx.x; range < x.ranges + y.ranges; range += gridDim.x)
    if (range >= x.ranges)
      copy(y, rows, range - x.ranges);
    else if (Kind == MN_NO_PLANES)
      copy(x, rows, range);
    else if (x.word == 16)
      round<Kind, 4>(x, planes, batch, rows, range);
    else
      round<Kind, 1>(x, planes, batch, rows, range);
}

/* A far gather's CTAs come in pairs, as clusters, because GEMMs need pairs of multiprocessors too: left alone
 * they would take one of each of several pairs. Shared memory that it does not use keeps each CTA on a
 * multiprocessor of its own. */
mn_status mn_gather_cuda(struct mn_device *device, const struct mn_gather *g) {
  enum { SHARED = 160 * 1024 };
  const mn_planes planes = {g->planes[0] ? device->plane_kind : MN_NO_PLANES,
                            static_cast<uint16_t *>(g->planes[0]), static_cast<uint16_t *>(g->planes[1]),
                            g->scales};
  const part x = part_of(g, 0, planes), y = part_of(g, 1);
  const auto kernel = planes.kind == MN_NO_PLANES     ? gather_kernel<MN_NO_PLANES>
                      : planes.kind == MN_PLANES_FP16 ? gather_kernel<MN_PLANES_FP16>
                                                      : gather_kernel<MN_PLANES_FP16X2>;
  cudaLaunchAttribute pair = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = g->far ? MN_GATHER_MULTIPROCESSORS : x.ranges + y.ranges;
  config.blockDim = g->far ? FAR_THREADS : NEAR_THREADS;
  config.stream = device->cuda->stream;
  if (g->far && device->cuda->encode) { /* Hopper */
    MN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    pair.id = cudaLaunchAttributeClusterDimension, pair.val.clusterDim = {2, 1, 1};
    config.attrs = &pair, config.numAttrs = 1, config.dynamicSmemBytes = SHARED;
  }
  MN_CUDA_RETURN(cudaLaunchKernelEx(&config, kernel, g->rows, x, y, planes, (unsigned)g->batch));
}
