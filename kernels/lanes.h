/* What the CPU's kernels have for the processor's vectors: sums whose bytes do not depend on their length,
 * and functions that are compiled for several sets of instructions. */
#ifndef MN_KERNELS_LANES_H
#define MN_KERNELS_LANES_H

#include "kernels/real.h"

/* A function that is part of every one it is called in, with that one's instructions and constants. */
#define MN_INLINE static inline __attribute__((always_inline))

/* A sum is taken in so many parts, whatever the processor: lane i has the elements i, i + lanes, … Sums over
 * few elements have fewer. Both numbers are powers of 2. */
enum { MN_LANES = 16, MN_LANES_FEW = 4 };
MN_INLINE int mn_lanes(int64_t width) {
  return width < MN_LANES ? MN_LANES_FEW : MN_LANES;
}

/* Does what follows `lane` for each element c in 0 … width − 1, which is of that lane. */
#define MN_EACH(lanes, width, c, lane, ...)                                                                  \
  {                                                                                                          \
    int64_t first_ = 0;                                                                                      \
    for (; first_ + (lanes) <= (width); first_ += (lanes))                                                   \
      _Pragma("omp simd") for (int lane = 0; lane < (lanes); lane++) {                                       \
        const int64_t c = first_ + lane;                                                                     \
        __VA_ARGS__                                                                                          \
      }                                                                                                      \
    for (int lane = 0; first_ + lane < (width); lane++) {                                                    \
      const int64_t c = first_ + lane;                                                                       \
      __VA_ARGS__                                                                                            \
    }                                                                                                        \
  }

/* The sum of the lanes, halves added to halves. */
MN_INLINE real mn_total(real sums[MN_LANES], int lanes) {
#pragma GCC unroll 4
  for (int half = lanes / 2; half; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  return sums[0];
}

/* MN_LEVELS(F) is F(name, attribute) for each set of instructions that functions are compiled for, in the
 * order of mn_level(), which says what the processor that runs has. */
#ifdef __x86_64__
#define MN_AVX2 __attribute__((target("avx2,fma")))
#define MN_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define MN_LEVELS(F)                                                                                         \
  F(sse2, )                                                                                                  \
  F(avx2, MN_AVX2)                                                                                           \
  F(avx512, MN_AVX512)
static inline int mn_level(void) {
  return !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ? 0
         : !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
                 !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")
             ? 1
             : 2;
}
#else
#define MN_LEVELS(F) F(base, )
static inline int mn_level(void) {
  return 0;
}
#endif

/* Whether products are made of fused multiply-adds, on which their last bits depend. */
static inline int mn_fused(void) {
#ifdef __x86_64__
  return mn_level() > 0;
#else
  return 1;
#endif
}

#endif
