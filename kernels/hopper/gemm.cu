/* The Hopper GEMM's plain epilogues, store, add and update, and when it is the one to take.
 *
 * The update at the reference shape, N 1024, W [8192, 8192], reads and writes W and momentum and writes the
 * bfloat16 copy: 1.21 GB, 0.29 ms at the rate of a copy; its 137 GFLOP would fit beneath. On an H200 it takes
 * 0.36 to 0.37 ms rested: what is left of a step after the loss (make peers). A depth of 8, all of the
 * traffic and next to no product, took 0.328; all of the product and no traffic 0.213. Nsight Compute says
 * what bounds it: the link between the two halves of the L2 cache, 90 % busy. Half of W, momentum and copy
 * crosses it, 0.6 GB, in any case; operands crossed it with another 0.25 GB, since they left the cache before
 * they were read again. From 0.391 ms: panels of tiles whose operands fit, 0.372 (DRAM reads 0.62 GB instead
 * of 0.72, the link 85 %); a policy that keeps operands, and lines fetched one by one, 0.361. If operands
 * never missed, 0.345 (every tile given the same ones).
 *
 * Tried and no better, ms rested, in brackets what it was tried on: other panels, or back and forth across
 * them, 0.376 to 0.399 (0.376); 64 clusters of the 66 0.366 (0.361); twice as many stages half as deep 0.366
 * (0.361); W, momentum and copy without the hint that they are used once 0.389 (0.375); no multicast 0.401
 * (0.384). Loss and update at the same time on two halves of the GPU, the update of half of the channels as
 * soon as their dz stands: a step of 0.589 (0.580), because on 68 of 132 multiprocessors the update takes
 * 0.507. Earlier, sustained, from 0.43: clusters of four 0.43; tiles twice as wide with four writers 0.48;
 * three stages 0.49; fewer rows of W on their way 0.44 to 0.48; the library's product in slabs and a pass
 * over each 0.62. The programs that timed these are not kept. */
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
  enum { COLS = tile::COLS, WIDE = 128, HIGH = MN_TILE_PIECE / WIDE };
  typedef mn_piece_lane<WIDE> part;
  struct ahead {};

  static __device__ __forceinline__ void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (Add) mn_tile_prefetch<tile>(a.into, a.rows, a.cols, row, col, lane);
  }

  static __device__ __forceinline__ void begin(const arguments &, ahead &, const mn_strip &) {}

  static __device__ __forceinline__ void finish(const arguments &a, ahead &, const float *d,
                                                const mn_strip &at, const mn_strip &, float *piece) {
    const part mine;
#pragma unroll
    for (int across = 0; across < COLS; across += WIDE)
#pragma unroll
      for (int down = 0; down < 16; down += HIGH) {
        mn_piece_put<WIDE, HIGH>(piece, d, across, down);
        const int64_t row = at.row + down + mine.row, col = at.col + across + mine.col;
        float *to = a.into + row * a.cols + col;
#pragma unroll
        for (int i = 0; i < part::SLOTS; i++, to += part::ROWS * a.cols) {
          float values[4], before[4];
          if (col >= a.cols || row + i * part::ROWS >= a.rows) break;
          mine.get(values, piece, i);
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

/* W, momentum and W's bfloat16 copy, in place, a piece at a time. The next piece's rows of W and of momentum
 * are always on their way. */
template <bool Momentum, class Tile> struct update_epilogue {
  typedef update_arguments arguments;
  typedef Tile tile;
  enum { COLS = tile::COLS, WIDE = COLS < 128 ? COLS : 128, HIGH = MN_TILE_PIECE / WIDE };
  typedef mn_piece_lane<WIDE> part;
  struct ahead {
    float w[part::SLOTS][4], m[part::SLOTS][4], rate, scale;
    bool stop; /* a value was not finite: nothing is written */
  };

  static __device__ __forceinline__ void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (tile::WRITERS == 0 && COLS > WIDE) { /* else all of it is read ahead */
      mn_tile_prefetch<tile>(a.w, a.rows, a.cols, row, col, lane);
      if (Momentum) mn_tile_prefetch<tile>(a.m, a.rows, a.cols, row, col, lane);
    }
  }

  /* Slot i of a piece; -1: outside. */
  static __device__ __forceinline__ int64_t place(const arguments &a, int i, const mn_strip &at) {
    const part mine;
    const int64_t row = at.row + i * part::ROWS + mine.row, col = at.col + mine.col;
    return row < a.rows && col < a.cols ? row * a.cols + col : -1;
  }

  static __device__ __forceinline__ void fetch(const arguments &a, ahead &next, int i, const mn_strip &at) {
    const int64_t from = place(a, i, at);
    if (from < 0) return;
    mn_load_once<4>(next.w[i], a.w + from);
    if (Momentum) mn_load_once<4>(next.m[i], a.m + from);
  }

  static __device__ __forceinline__ void begin(const arguments &a, ahead &next, const mn_strip &first) {
#pragma unroll
    for (int i = 0; i < part::SLOTS; i++) fetch(a, next, i, first);
    next.rate = (float)*a.rule.rate, next.scale = a.rule.scale ? (float)*a.rule.scale : 1.0f;
    next.stop = *a.rule.nonfinite;
  }

  static __device__ __forceinline__ void update_slot(const arguments &a, ahead &now, int i, int64_t to,
                                                     float *piece) {
    float gradient[4], (&w)[4] = now.w[i], (&m)[4] = now.m[i];
    mn_bf16 halves[4];
    part().get(gradient, piece, i);
#pragma unroll
    for (int j = 0; j < 4; j++) mn_sgd_step(a.rule, now.rate, now.scale, Momentum, gradient[j], w[j], m[j]);
    if (to < 0 || now.stop) return;
    if (Momentum) mn_store_once<4>(a.m + to, m);
    mn_store_once<4>(a.w + to, w);
    mn_to_bf16<4>(halves, w);
    mn_store_once<4>(a.bf16 + to, halves);
  }

  /* One piece. A slot that has been updated makes room for the same of the next piece. */
  static __device__ __forceinline__ void finish(const arguments &a, ahead &now, const mn_strip &at,
                                                const mn_strip &next, float *piece) {
#pragma unroll
    for (int i = 0; i < part::SLOTS; i++) {
      update_slot(a, now, i, place(a, i, at), piece);
      fetch(a, now, i, next);
    }
  }

  /* A strip of a tile without writers: its pieces down, then across. */
  static __device__ __forceinline__ void finish(const arguments &a, ahead &now, const float *d,
                                                const mn_strip &at, const mn_strip &next, float *piece) {
#pragma unroll
    for (int across = 0; across < COLS; across += WIDE)
#pragma unroll
      for (int down = 0; down < 16; down += HIGH) {
        const bool last_down = down + HIGH == 16, last = last_down && across + WIDE == COLS;
        const mn_strip below = {last_down ? at.row : at.row + down + HIGH,
                                at.col + across + last_down * WIDE};
        mn_piece_put<WIDE, HIGH>(piece, d, across, down);
        finish(a, now, {at.row + down, at.col + across}, last ? next : below, piece);
      }
  }
};

/* From this depth on multiplying a tile takes longer than its share of the memory's time: at 8192 the plain
 * tile took 2.0 ms sustained, the streaming one 2.2. */
enum { DEEP = 2048 };

/* W and momentum stream past the operands through the L2 cache, two halves joined by a link that is the first
 * to be full. An operand, or a panel's part of it, that is no larger than this stays in both. */
enum { KEPT = 8 << 20 };

/* All of b, or as much of a as that; pairs of tiles. */
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
  default:
    return mn_hopper_launch<MN_TN, update_epilogue<Momentum, mn_small_tile>>(device, p, a);
  }
}

static mn_status update(struct mn_device *device, const struct mn_hopper_product *p,
                        const struct mn_update *u) {
  MN_REQUIRE(p->form == MN_TN && u->w->real && (u->momentum || u->sgd->momentum == 0));
  const update_arguments arguments = {static_cast<float *>(u->w->real),
                                      static_cast<float *>(u->momentum),
                                      static_cast<mn_bf16 *>(u->w->bf16),
                                      p->rows,
                                      p->cols,
                                      mn_sgd_rule_of<float>(device, u->sgd)};
  return u->momentum ? launch_update<true>(device, p, arguments) : launch_update<false>(device, p, arguments);
}

template <bool Add>
static mn_status store(struct mn_device *device, const struct mn_hopper_product *p, void *into) {
  const store_arguments arguments = {static_cast<float *>(into), p->rows, p->cols};
  typedef store_epilogue<Add> epilogue;
  return p->form == MN_NT   ? mn_hopper_launch<MN_NT, epilogue>(device, p, arguments)
         : p->form == MN_NN ? mn_hopper_launch<MN_NN, epilogue>(device, p, arguments)
                            : mn_hopper_launch<MN_TN, epilogue>(device, p, arguments);
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
  default:
    return mn_hopper_block(device, p, epilogue);
  }
}

/* A driver that does not know the function is one that the library path is for. */
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
  return p->form == MN_TN && u->w->bf16 && mn_aligned(16, u->w->real, u->w->bf16, u->momentum) &&
         update_tile_of(device, p) != NONE;
}

/* Multiples of 8 make every row of a bfloat16 operand one of 16 bytes, which TMA asks for, and the epilogue's
 * accesses whole. */
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
  default:
    return mn_hopper_block_fits(device, p, epilogue);
  }
}

mn_status mn_hopper_map(struct mn_device *device, CUtensorMap *out, const void *matrix, bool down,
                        int64_t across, int64_t depth, int box) {
  const cuuint64_t sizes[2] = {(cuuint64_t)(down ? across : depth), (cuuint64_t)(down ? depth : across)};
  const cuuint64_t stride[1] = {sizes[0] * 2};
  const cuuint32_t boxes[2] = {64, (cuuint32_t)(down ? MN_TILE_DEPTH : box)}, steps[2] = {1, 1};
  CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(device->cuda->encode)(
      out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(matrix), sizes, stride, boxes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? MN_OK
                                : mn_fail(MN_LIBRARY, "CUDA: cuTensorMapEncodeTiled: error %d", (int)result);
}
