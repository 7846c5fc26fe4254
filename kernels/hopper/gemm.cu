/* The Hopper GEMM's store, add and update epilogues, and when each tile is used. What was measured and tried:
 * NOTES.md. */
#include <cudaTypedefs.h>

#include "kernels/hopper/gemm.cuh"
#include "kernels/sgd.cuh"

struct store_arguments {
  float *into;
  int64_t rows, cols;
};

/* into = d, or into += d. */
template <bool Add> struct store_epilogue {
  typedef store_arguments arguments;
  typedef mn_plain_tile tile;
  enum { COLS = tile::COLS, WIDE = 128, HIGH = MN_STAGING_FLOATS / WIDE };
  typedef mn_staging_lane<WIDE> part;
  struct state {};

  static __device__ __forceinline__ void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (Add) mn_tile_prefetch<tile>(a.into, a.rows, a.cols, row, col, lane);
  }

  static __device__ __forceinline__ void begin(const arguments &, state &, const mn_coord &) {}

  static __device__ __forceinline__ void finish(const arguments &a, state &, const mn_result<tile> &result,
                                                const mn_coord &at, const mn_coord &, float *staging) {
    const part mine;
#pragma unroll
    for (int across = 0; across < COLS; across += WIDE)
#pragma unroll
      for (int down = 0; down < result.ROWS; down += HIGH) {
        result.template stage<WIDE, HIGH>(staging, across, down);
        const int64_t row = at.row + down + mine.row, col = at.col + across + mine.col;
        float *to = a.into + row * a.cols + col;
#pragma unroll
        for (int i = 0; i < part::VECTORS; i++, to += part::ROW_STEP * a.cols) {
          float values[4], before[4];
          if (col >= a.cols || row + i * part::ROW_STEP >= a.rows) break;
          mine.read(values, staging, i);
          if constexpr (Add) {
            mn_load<4>(before, to);
#pragma unroll
            for (int j = 0; j < 4; j++) values[j] += before[j];
          }
          mn_store<4>(to, values);
        }
      }
  }
};

struct update_arguments {
  float *w, *m;
  mn_bf16 *bf16;
  int64_t rows, cols;
  mn_sgd_rule<float> rule;
};

/* Updates W, momentum and W's bfloat16 copy in place, a staging buffer at a time. The loads of W and momentum
 * for the next buffer are always in flight. */
template <bool Momentum, class Tile> struct update_epilogue {
  typedef update_arguments arguments;
  typedef Tile tile;
  enum { COLS = tile::COLS, WIDE = COLS < 128 ? COLS : 128, HIGH = MN_STAGING_FLOATS / WIDE };
  typedef mn_staging_lane<WIDE> part;
  struct state {
    float w[part::VECTORS][4], m[part::VECTORS][4], rate, scale;
    bool stop; /* a value was not finite: nothing is written */
  };

  static __device__ __forceinline__ void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (tile::EPILOGUE_WARPS == 0 && COLS > WIDE) { /* the other tiles load far enough ahead */
      mn_tile_prefetch<tile>(a.w, a.rows, a.cols, row, col, lane);
      if (Momentum) mn_tile_prefetch<tile>(a.m, a.rows, a.cols, row, col, lane);
    }
  }

  /* The offset of the lane's vector i in the buffer that starts at `at`; −1: outside the matrix. */
  static __device__ __forceinline__ int64_t offset_of(const arguments &a, int i, const mn_coord &at) {
    const part mine;
    const int64_t row = at.row + i * part::ROW_STEP + mine.row, col = at.col + mine.col;
    return row < a.rows && col < a.cols ? row * a.cols + col : -1;
  }

  static __device__ __forceinline__ void load(const arguments &a, state &s, int i, const mn_coord &at) {
    const int64_t from = offset_of(a, i, at);
    if (from < 0) return;
    mn_load_once<4>(s.w[i], a.w + from);
    if (Momentum) mn_load_once<4>(s.m[i], a.m + from);
  }

  static __device__ __forceinline__ void begin(const arguments &a, state &s, const mn_coord &first) {
#pragma unroll
    for (int i = 0; i < part::VECTORS; i++) load(a, s, i, first);
    s.rate = (float)*a.rule.rate, s.scale = a.rule.scale ? (float)*a.rule.scale : 1.0f;
    s.stop = *a.rule.nonfinite;
  }

  static __device__ __forceinline__ void update_vector(const arguments &a, state &s, int i, int64_t to,
                                                       float *staging) {
    float gradient[4], (&w)[4] = s.w[i], (&m)[4] = s.m[i];
    mn_bf16 rounded[4];
    part().read(gradient, staging, i);
#pragma unroll
    for (int j = 0; j < 4; j++) mn_sgd_step(a.rule, s.rate, s.scale, Momentum, gradient[j], w[j], m[j]);
    if (to < 0 || s.stop) return;
    if (Momentum) mn_store_once<4>(a.m + to, m);
    mn_store_once<4>(a.w + to, w);
    mn_to_bf16<4>(rounded, w);
    mn_store_once<4>(a.bf16 + to, rounded);
  }

  /* One staging buffer, which starts at `at`; vectors that are updated make room for those at `next`. */
  static __device__ __forceinline__ void update_buffer(const arguments &a, state &s, const mn_coord &at,
                                                       const mn_coord &next, float *staging) {
#pragma unroll
    for (int i = 0; i < part::VECTORS; i++) {
      update_vector(a, s, i, offset_of(a, i, at), staging);
      load(a, s, i, next);
    }
  }

  static __device__ __forceinline__ void finish(const arguments &a, state &s, const mn_result<tile> &result,
                                                const mn_coord &at, const mn_coord &next, float *staging) {
    if constexpr (tile::EPILOGUE_WARPS > 0) { /* the slice is one staging buffer */
      update_buffer(a, s, at, next, staging);
    } else {
#pragma unroll
      for (int across = 0; across < COLS; across += WIDE)
#pragma unroll
        for (int down = 0; down < result.ROWS; down += HIGH) {
          const bool last_down = down + HIGH == result.ROWS, last = last_down && across + WIDE == COLS;
          const mn_coord below = {last_down ? at.row : at.row + down + HIGH,
                                  at.col + across + last_down * WIDE};
          result.template stage<WIDE, HIGH>(staging, across, down);
          update_buffer(a, s, {at.row + down, at.col + across}, last ? next : below, staging);
        }
    }
  }
};

/* From this depth on the multiplication of a tile takes longer than its share of the memory traffic, and the
 * plain tile is faster than the streaming one (NOTES.md). */
enum { DEEP = 2048 };

/* Bytes of an operand that stay in both halves of the L2 cache while W and momentum stream through it. The
 * link between the halves is the bottleneck of an update (NOTES.md). */
enum { KEPT = 8 << 20 };

/* The height of an update's panels, in clusters: 1 where all of b fits in KEPT bytes, else as many clusters
 * as have rows of a that fit. */
static int panel_of(const struct mn_hopper_product *p) {
  if (p->cols * p->depth * 2 <= KEPT) return 1;
  return (int)std::max(KEPT / (2 * mn_streaming_tile::ROWS * p->depth * 2), (int64_t)1);
}

enum update_tile { NONE, SMALL, STREAMING, PLAIN };

static enum update_tile update_tile_of(const struct mn_device *device, const struct mn_hopper_product *p) {
  const bool plain = mn_tiles_fill<mn_plain_tile>(device, p);
  if (plain && p->depth > DEEP) return PLAIN;
  if (mn_tiles_fill<mn_streaming_tile>(device, p)) return STREAMING;
  return plain ? PLAIN : mn_small_pays(device, p) ? SMALL : NONE;
}

template <bool Momentum>
static mn_status launch_update(struct mn_device *device, const struct mn_hopper_product *p,
                               const update_arguments &a) {
  switch (update_tile_of(device, p)) {
  case PLAIN:
    return mn_hopper_launch<MN_TN, update_epilogue<Momentum, mn_plain_tile>>(device, p, a);
  case STREAMING:
    return mn_hopper_launch<MN_TN, update_epilogue<Momentum, mn_streaming_tile>>(device, p, a, panel_of(p));
  case SMALL:
    return mn_hopper_launch<MN_TN, update_epilogue<Momentum, mn_small_tile>>(device, p, a);
  case NONE:
    break;
  }
  mn_abort(__FILE__, __LINE__, "an update that fits");
}

static mn_status update(struct mn_device *device, const struct mn_hopper_product *p,
                        const struct mn_update *u) {
  MN_REQUIRE(p->form == MN_TN && u->w->real && (u->momentum || u->sgd->momentum == 0));
  const update_arguments arguments = {static_cast<float *>(u->w->real),
                                      static_cast<float *>(u->momentum),
                                      static_cast<mn_bf16 *>(u->w->planes[0]),
                                      p->rows,
                                      p->cols,
                                      mn_sgd_rule_of<float>(device, u->sgd)};
  return u->momentum ? launch_update<true>(device, p, arguments) : launch_update<false>(device, p, arguments);
}

template <bool Add>
static mn_status store(struct mn_device *device, const struct mn_hopper_product *p, void *into) {
  const store_arguments arguments = {static_cast<float *>(into), p->rows, p->cols};
  typedef store_epilogue<Add> epilogue;
  switch (p->form) {
  case MN_NT:
    return mn_hopper_launch<MN_NT, epilogue>(device, p, arguments);
  case MN_NN:
    return mn_hopper_launch<MN_NN, epilogue>(device, p, arguments);
  case MN_TN:
    return mn_hopper_launch<MN_TN, epilogue>(device, p, arguments);
  }
  mn_abort(__FILE__, __LINE__, "a form");
}

mn_status mn_hopper_gemm(struct mn_device *device, const struct mn_hopper_product *p,
                         const struct mn_epilogue *epilogue) {
  switch (epilogue->kind) {
  case MN_STORE:
    return store<false>(device, p, epilogue->into);
  case MN_ADD:
    return store<true>(device, p, epilogue->into);
  case MN_UPDATE:
    return update(device, p, epilogue->update);
  case MN_BLOCK:
  case MN_BLOCK_LOSS:
  case MN_BLOCK_BACKWARD:
    return mn_hopper_block(device, p, epilogue);
  }
  mn_abort(__FILE__, __LINE__, "an epilogue kind");
}

/* With a driver that lacks the function, products take the library path. */
void mn_hopper_open(struct mn_cuda *cuda, const cudaDeviceProp *properties) {
  if (properties->major != 9 || properties->minor != 0) return;
  enum cudaDriverEntryPointQueryResult found;
  void *entry = NULL;
#if CUDART_VERSION >= 12050
  cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
#else
  cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) cuda->encode = entry;
  (void)cudaGetLastError();
}

static bool update_fits(const struct mn_device *device, const struct mn_hopper_product *p,
                        const struct mn_update *u) {
  return p->form == MN_TN && u->w->planes[0] && mn_aligned(16, u->w->real, u->w->planes[0], u->momentum) &&
         update_tile_of(device, p) != NONE;
}

/* Sizes in multiples of 8 give bfloat16 rows of multiples of 16 bytes, which the TMA requires, and whole
 * vectors in the epilogue. */
bool mn_hopper_fits(const struct mn_device *device, const struct mn_hopper_product *p,
                    const struct mn_epilogue *epilogue) {
  if (device->library || !device->fuses) return false;
  if (p->cols % 8 || (p->form == MN_TN ? p->rows : p->depth) % 8 || !mn_aligned(16, p->a, p->b)) return false;
  if (p->rows > INT32_MAX / 2 || p->cols > INT32_MAX / 2 || p->depth > INT32_MAX / 2) return false;
  if (mn_tiles_down<mn_small_tile>(p) * mn_tiles_across<mn_small_tile>(p) > INT32_MAX / 4) return false;
  switch (epilogue->kind) {
  case MN_STORE:
  case MN_ADD:
    return mn_tiles_fill<mn_plain_tile>(device, p) && mn_aligned(16, epilogue->into);
  case MN_UPDATE:
    return update_fits(device, p, epilogue->update);
  case MN_BLOCK:
  case MN_BLOCK_LOSS:
  case MN_BLOCK_BACKWARD:
    return mn_hopper_block_fits(device, p, epilogue);
  }
  mn_abort(__FILE__, __LINE__, "an epilogue kind");
}

mn_status mn_hopper_tensor_map(struct mn_device *device, CUtensorMap *out, const void *matrix, bool mn_major,
                               int64_t size, int64_t depth, int box) {
  const cuuint64_t sizes[2] = {(cuuint64_t)(mn_major ? size : depth), (cuuint64_t)(mn_major ? depth : size)};
  const cuuint64_t stride[1] = {sizes[0] * 2};
  const cuuint32_t boxes[2] = {64, (cuuint32_t)(mn_major ? MN_K_BLOCK : box)}, steps[2] = {1, 1};
  CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(device->cuda->encode)(
      out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(matrix), sizes, stride, boxes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? MN_OK
                                : mn_fail(MN_LIBRARY, "CUDA: cuTensorMapEncodeTiled: error %d", (int)result);
}
