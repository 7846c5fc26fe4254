/* What kernels/stack/step.cuh needs of a GPU, for a CPU: every thread of a CTA is a fiber, and warps run
 * at uneven speeds, so that a missing barrier shows. Stands for kernels/stack/warp.cuh and
 * kernels/planes.cuh (test_stack.sh). */
#ifndef MN_TESTS_WARPS_H
#define MN_TESTS_WARPS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <vector>

#define MN_GPU inline
#define MN_UNROLL(...) for (__VA_ARGS__)
#define MN_CUDA_WARP 0xffffffffu
#define __global__ static
#define __launch_bounds__(...)
#define __grid_constant__

#include "kernels/planes.h"
#include "kernels/stack/stack.h"

using std::min;
struct float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

namespace gpu {
/* What lanes exchange: each puts its bytes into a buffer, which all read once all 32 have come. */
struct warp {
  int arrived;
  unsigned turn;
  unsigned char lanes[2][32][32];
};
struct barrier {
  int arrived;
  unsigned turn;
};
struct cta {
  unsigned index;
  std::vector<char> memory;
  barrier barriers[16];
  std::vector<warp> warps;
  char *shared() { return memory.data() + (128 - (uintptr_t)memory.data() % 128); }
};
struct thread {
  ucontext_t state;
  unsigned index;
  cta *of;
  int done;
};
static thread *now;
static ucontext_t scheduler;
static unsigned ctas, threads, numbers = 1;
static const std::function<void()> *work;

inline void wait() {
  swapcontext(&now->state, &scheduler);
}
static void begin() {
  (*work)();
  now->done = 1;
  wait();
}
inline unsigned random() {
  return (numbers = numbers * 1664525 + 1013904223) >> 16;
}

inline unsigned char (*exchange(const void *bytes, size_t size))[32] {
  warp &w = now->of->warps[now->index / 32];
  const unsigned turn = w.turn;
  memcpy(w.lanes[turn % 2][now->index % 32], bytes, size);
  if (++w.arrived == 32)
    w.arrived = 0, w.turn++;
  else
    while (w.turn == turn) wait();
  return w.lanes[turn % 2];
}
template <typename T> T of_lane(T value, unsigned lane) {
  T other;
  memcpy(&other, exchange(&value, sizeof value)[lane % 32], sizeof other);
  return other;
}
inline void sync(int which, int count) {
  barrier &b = now->of->barriers[which];
  const unsigned turn = b.turn;
  if (++b.arrived == count)
    b.arrived = 0, b.turn++;
  else
    while (b.turn == turn) wait();
}

/* Runs work() in every thread of the grid. A warp that is held back sleeps for some rounds of the
 * scheduler. */
static void run(unsigned grid, unsigned each, size_t shared, const std::function<void()> &what) {
  const size_t stack = 128 << 10;
  std::vector<cta> all(grid);
  std::vector<thread> of(grid * each);
  std::vector<unsigned> until(grid * each / 32);
  char *stacks = static_cast<char *>(mmap(NULL, stack * of.size(), PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ctas = grid, threads = each, work = &what;
  for (unsigned i = 0; i < of.size(); i++) {
    cta &c = all[i / each];
    if (i % each == 0)
      c.index = i / each, c.memory.assign(shared + 128, (char)0xff), c.warps.resize(each / 32);
    of[i].index = i % each, of[i].of = &c;
    getcontext(&of[i].state);
    of[i].state.uc_stack.ss_sp = stacks + stack * i, of[i].state.uc_stack.ss_size = stack;
    makecontext(&of[i].state, begin, 0);
  }
  size_t left = of.size();
  for (unsigned round = 0; left > 0; round++) {
    left = 0;
    for (unsigned w = 0; w < until.size(); w++) {
      if (until[w] <= round && random() % 64 == 0) until[w] = round + random() % 2000;
      for (unsigned i = 32 * w; i < 32 * w + 32; i++) {
        left += !of[i].done;
        if (of[i].done || until[w] > round) continue;
        now = &of[i];
        swapcontext(&scheduler, &now->state);
      }
    }
    if (round > 100000000) fprintf(stderr, "the kernel does not end\n"), exit(1);
  }
  munmap(stacks, stack * of.size());
}
inline char *shared(uint32_t at, size_t bytes) {
  if (at % bytes || at + bytes + 128 > now->of->memory.size())
    fprintf(stderr, "%zu bytes at %u\n", bytes, at), exit(1);
  return now->of->shared() + at;
}
inline uint16_t bits(enum mn_plane_kind kind, float value) {
  if (kind == MN_PLANES_BF16) return mn_bf16_bits(value);
  const _Float16 half = (_Float16)value;
  uint16_t out;
  memcpy(&out, &half, sizeof out);
  return out;
}
inline float value(enum mn_plane_kind kind, uint16_t bits) {
  if (kind == MN_PLANES_BF16) return mn_join_halves(bits, 0);
  _Float16 half;
  memcpy(&half, &bits, sizeof half);
  return (float)half;
}
inline uint16_t half_of(uint32_t word, int which) {
  return (uint16_t)(word >> 16 * which);
}
} // namespace gpu

struct gpu_index {
  unsigned x;
};
#define threadIdx (gpu_index{gpu::now->index})
#define blockIdx (gpu_index{gpu::now->of->index})
#define gridDim (gpu_index{gpu::ctas})

inline void __syncthreads() {
  gpu::sync(0, (int)gpu::threads);
}
inline void __syncwarp() {
  (void)gpu::of_lane(0, 0);
}
inline void mn_warps_sync(int barrier, int count) {
  gpu::sync(barrier, count);
}
template <typename T> T __shfl_xor_sync(unsigned, T x, unsigned mask) {
  return gpu::of_lane(x, gpu::now->index % 32 ^ mask);
}
template <typename T> T __shfl_down_sync(unsigned, T x, unsigned by) {
  const unsigned lane = gpu::now->index % 32;
  return gpu::of_lane(x, lane + by < 32 ? lane + by : lane);
}
template <int L, typename T> T mn_lanes_sum(T x) {
  for (unsigned mask = L / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(MN_CUDA_WARP, x, mask);
  return x;
}
inline float mn_lanes_largest(float x) {
  for (unsigned mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(MN_CUDA_WARP, x, mask));
  return x;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline void atomicMax(unsigned *at, unsigned value) {
  if (value > *at) *at = value;
}
inline float __expf(float x) {
  return expf(x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float mn_rsqrt(float x) {
  return 1 / sqrtf(x);
}
inline float4 __ldcg(const float4 *p) {
  return *p;
}
template <int W, typename T> void mn_load(T (&out)[W], const T *p) {
  memcpy(out, p, sizeof out);
}
inline void mn_raise(int *nonfinite, int mark) {
  if (*nonfinite == 0) *nonfinite = mark;
}

struct mn_planes {
  enum mn_plane_kind kind;
  mn_scale *scale;
};
template <int W>
void mn_forms_store(float *real, const mn_planes &, float, int64_t at, const float (&values)[W]) {
  memcpy(real + at, values, sizeof values);
}

inline uint32_t mn_shared_of(const void *p) {
  return (uint32_t)(static_cast<const char *>(p) - gpu::now->of->shared());
}
inline uint32_t mn_shared_load(uint32_t from) {
  uint32_t word;
  memcpy(&word, gpu::shared(from, sizeof word), sizeof word);
  return word;
}
inline void mn_shared_store(uint32_t to, uint32_t word) {
  memcpy(gpu::shared(to, sizeof word), &word, sizeof word);
}
inline void mn_copy_start(uint32_t to, const void *from, bool there) {
  static const char zeros[16] = {0};
  memcpy(gpu::shared(to, 16), there ? from : zeros, 16);
}
inline void mn_copies_wait() {}
inline void mn_prefetch(const void *) {}

/* Element (row, col) of matrix m, whose rows' addresses the lanes have given. */
inline char *gpu_element(unsigned char (*rows)[32], int m, unsigned row, unsigned col) {
  uint32_t at;
  memcpy(&at, rows[8 * m + (int)row], sizeof at);
  return gpu::shared(at, 16) + 2 * col;
}
inline void gpu_load(uint32_t (&r)[4], uint32_t row, bool transposed) {
  unsigned char(*rows)[32] = gpu::exchange(&row, sizeof row);
  const unsigned i = gpu::now->index % 32 / 4, q = gpu::now->index % 4;
  for (int m = 0; m < 4; m++) {
    uint16_t pair[2];
    for (unsigned e = 0; e < 2; e++)
      memcpy(&pair[e], transposed ? gpu_element(rows, m, 2 * q + e, i) : gpu_element(rows, m, i, 2 * q + e),
             2);
    memcpy(&r[m], pair, sizeof r[m]);
  }
}
inline void mn_matrices_load(uint32_t (&r)[4], uint32_t row) {
  gpu_load(r, row, false);
}
inline void mn_matrices_load_transposed(uint32_t (&r)[4], uint32_t row) {
  gpu_load(r, row, true);
}
template <int Count> void mn_matrices_store_transposed(uint32_t row, const uint32_t (&r)[Count]) {
  unsigned char(*rows)[32] = gpu::exchange(&row, sizeof row);
  const unsigned i = gpu::now->index % 32 / 4, q = gpu::now->index % 4;
  for (int m = 0; m < Count; m++)
    for (unsigned e = 0; e < 2; e++) {
      const uint16_t half = gpu::half_of(r[m], (int)e);
      memcpy(gpu_element(rows, m, 2 * q + e, i), &half, sizeof half);
    }
  __syncwarp();
}
inline uint32_t mn_matrix_transpose(uint32_t r) {
  unsigned char(*lanes)[32] = gpu::exchange(&r, sizeof r);
  const unsigned i = gpu::now->index % 32 / 4, q = gpu::now->index % 4;
  uint16_t pair[2];
  for (unsigned e = 0; e < 2; e++)
    memcpy(&pair[e], lanes[(2 * q + e) * 4 + i / 2] + i % 2 * 2, sizeof pair[e]);
  memcpy(&r, pair, sizeof r);
  return r;
}
template <enum mn_plane_kind Kind>
void mn_matrices_multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                          const float (&c)[4]) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  unsigned char(*lanes)[32] = gpu::exchange(mine, sizeof mine);
  const int i = (int)(gpu::now->index % 32 / 4), q = (int)(gpu::now->index % 4);
  for (int k = 0; k < 4; k++) {
    double sum = c[k];
    for (int at = 0; at < 16; at++) {
      uint32_t left, right;
      memcpy(&left, lanes[i * 4 + at % 8 / 2] + 4 * (k / 2 + 2 * (at / 8)), sizeof left);
      memcpy(&right, lanes[(2 * q + k % 2) * 4 + at % 8 / 2] + 16 + 4 * (at / 8), sizeof right);
      sum += (double)gpu::value(Kind, gpu::half_of(left, at % 2)) *
             gpu::value(Kind, gpu::half_of(right, at % 2));
    }
    d[k] = (float)sum;
  }
}
inline float mn_leaky_gradient(float g, float v, float slope) {
  return v > 0 ? g : slope * g;
}
template <enum mn_plane_kind Kind> uint32_t mn_plane_pair(float first, float second) {
  return gpu::bits(Kind, first) | (uint32_t)gpu::bits(Kind, second) << 16;
}

#endif
