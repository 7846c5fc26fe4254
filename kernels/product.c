/* The product of a tile: parts of a and b are packed, so that the innermost loop reads both in order, and a
 * few rows and columns of the result are summed up in registers (kernels/product_level.h). */
#include "kernels/tile.h"

#include <string.h>

#include "kernels/lanes.h"

/* With these a packed b of 512 KiB, STRIP columns of a block, stays in the second cache, and of it a panel, a
 * few columns, in the first, while TALL times the rows of the registers pass. */
enum { DEPTH = 256, STRIP = 2048 / sizeof(real), TALL = 8, MOST_ROWS = 8, LEAST_COLS = 16 / sizeof(real) };
_Static_assert(sizeof(real) * (TALL * MOST_ROWS * (DEPTH + 16) + STRIP * DEPTH + 32 * STRIP / LEAST_COLS) <=
                   MN_PRODUCT_ROOM,
               "a and b fit");

/* The length of the blocks that a depth is cut into: as even as multiples of 16 allow. */
static int64_t block_length(int64_t depth) {
  const int64_t blocks = (depth + DEPTH - 1) / DEPTH;
  return ((depth + blocks - 1) / blocks + 15) / 16 * 16;
}

/* SHUFFLE: the elements of a and b at these positions; b's follow a's. LANES_…: reals in 16, 32 and 64 bytes;
 * LIST(F): F(0), … F(LANES − 1). */
#ifdef __clang__
#define UNROLL(...) _Pragma("clang loop unroll(full)") for (__VA_ARGS__)
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define UNROLL(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
/* A vector that the compiler takes as it stands, and fuses into nothing. */
#if defined __x86_64__
#define ROUNDED(vector) __asm__("" : "+x"(vector))
#elif defined __aarch64__
#define ROUNDED(vector) __asm__("" : "+w"(vector))
#else
#define ROUNDED(vector) __asm__("" : "+m"(vector))
#endif
#ifdef MN_DOUBLE
typedef int64_t position;
#define LANES_16 2
#define LANES_32 4
#define LANES_64 8
#else
typedef int32_t position;
#define LANES_16 4
#define LANES_32 8
#define LANES_64 16
#endif
#define LIST2(F, i) F((i)), F((i) + 1)
#define LIST4(F, i) LIST2(F, i), LIST2(F, (i) + 2)
#define LIST8(F, i) LIST4(F, i), LIST4(F, (i) + 4)
#define LIST16(F, i) LIST8(F, i), LIST8(F, (i) + 8)
#define LIST_OF(lanes, F) LIST##lanes(F, 0)
#define LIST_(lanes, F) LIST_OF(lanes, F)
#define LIST(F) LIST_(LANES, F)

#define TARGET
#define LANES LANES_16
#define ROWS 4
#ifdef __x86_64__
#define LEVEL(name) name##_sse2
#include "kernels/product_level.h"
#define LEVEL(name) name##_avx2
#define TARGET MN_AVX2
#define LANES LANES_32
#define ROWS 6
#include "kernels/product_level.h"
#define LEVEL(name) name##_avx512
#define TARGET MN_AVX512
#define LANES LANES_64
#define ROWS 8
#include "kernels/product_level.h"
#else
#define LEVEL(name) name##_base
#include "kernels/product_level.h"
#endif

typedef void tile_function(const struct mn_product *p, struct mn_tile t, real *room);
typedef void pack_function(real *to, const real *b, int64_t cols, int64_t depth);
#define TILE_AT(level, attribute) tile_##level,
#define PACK_AT(level, attribute) pack_all_##level,

void mn_product_tile_cpu(const struct mn_product *product, struct mn_tile tile, void *room) {
  static tile_function *const levels[] = {MN_LEVELS(TILE_AT)};
  levels[mn_level()](product, tile, room);
}

void mn_product_pack_cpu(real *to, const real *b, int64_t cols, int64_t depth) {
  static pack_function *const levels[] = {MN_LEVELS(PACK_AT)};
  levels[mn_level()](to, b, cols, depth);
}
