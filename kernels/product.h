/* A tile of a matrix product on the CPU, computed by one thread. */
#ifndef MN_KERNELS_PRODUCT_H
#define MN_KERNELS_PRODUCT_H

#include "kernels/kernels.h"
#include "kernels/real.h"

/* d = alpha·a·b + beta·d in `form`, as mn_gemm; d is not read if beta is 0. */
struct mn_product {
  enum mn_form form;
  const real *a, *b;
  real *d, alpha, beta;
  int64_t rows, cols, depth;
};

/* A part of a matrix: its first row and column, and how many there are. */
struct mn_tile {
  int64_t row, rows, col, cols;
};

/* Bytes in which a thread packs parts of a and b. */
enum { MN_PRODUCT_ROOM = 704 << 10 };

/* Computes a tile of d. Each element is summed over the depth in order, in blocks whose length depends on the
 * depth alone: its bytes depend neither on the tile nor on the thread, nor on the processor's vectors, as far
 * as it has fused multiply-adds. `room` is MN_PRODUCT_ROOM bytes at a multiple of 64. */
void MN_CPU(mn_product_tile)(const struct mn_product *product, struct mn_tile tile, void *room);

#endif
