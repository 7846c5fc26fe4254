/* A tile, the part of a result that one thread computes: its product, and the epilogue while it is in the
 * thread's cache (kernels/gemm.c). Bytes do not depend on how a result is cut into tiles. */
#ifndef MN_KERNELS_TILE_H
#define MN_KERNELS_TILE_H

#include "kernels/kernels.h"
#include "kernels/real.h"

/* First row and column, and how many there are. */
struct mn_tile {
  int64_t row, rows, col, cols;
};

/* d = alpha·a·b + beta·d in `form`, as mn_gemm; d is not read if beta is 0. Without a, d is there already. */
struct mn_product {
  enum mn_form form;
  const real *a, *b,
      *packed; /* packed: b (struct mn_operand), or NULL; then tiles begin at multiples of 32 */
  real *d, alpha, beta;
  int64_t rows, cols, depth;
};

/* Bytes in which a thread packs parts of a and b. */
enum { MN_PRODUCT_ROOM = 704 << 10 };

/* Computes a tile of d. Each element is summed over the depth in order, in blocks whose length depends on the
 * depth alone, so that its bytes do not depend on the processor's vectors, as far as it has fused
 * multiply-adds. `room` is MN_PRODUCT_ROOM bytes at a multiple of 64. */
void mn_product_tile_cpu(const struct mn_product *product, struct mn_tile tile, void *room);

/* Packs b[cols, depth]: for each block of the depth panels of [length, a few columns], as tiles read them.
 * The last panel's missing columns are 0. */
void mn_product_pack_cpu(real *to, const real *b, int64_t cols, int64_t depth);

/* What a block's epilogue found in its values. */
struct mn_noticed {
  real poison;   /* 0, or NaN when a value was not finite */
  float largest; /* |dz|, if its plane is scaled */
};

/* Applies a block epilogue to a tile of d, which has whole chunks of rows and whole groups. Without
 * normalisation a row of the tile is a group: for the loss, the whole row.
 * mn_block_end_cpu follows the last. */
struct mn_noticed mn_block_tile_cpu(const struct mn_device *device, const struct mn_epilogue *epilogue,
                                    void *d, struct mn_tile tile);
void mn_block_end_cpu(struct mn_device *device, const struct mn_epilogue *epilogue,
                      struct mn_noticed noticed);

/* Applies the update's rule to a tile. The gradient of SGD may be NULL: m holds momentum·m + gradient. */
void mn_rule_tile_cpu(const struct mn_device *device, const struct mn_update *update, const void *gradient,
                      struct mn_tile tile);

#endif
