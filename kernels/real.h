/* The real that a CPU kernel file is compiled for. Each is compiled twice, with and without MN_DOUBLE, so
 * that a function which it defines for others has two names to the linker: mn_gemm_cpu_fp32 and _fp64. */
#ifndef MN_KERNELS_REAL_H
#define MN_KERNELS_REAL_H

#include "kernels/types.h"

#ifdef MN_DOUBLE
typedef double real;
#define MN_CPU(name) name##_fp64
#else
typedef float real;
#define MN_CPU(name) name##_fp32
#endif
#define mn_add_cpu MN_CPU(mn_add_cpu)
#define mn_clip_cpu MN_CPU(mn_clip_cpu)
#define mn_column_sums_cpu MN_CPU(mn_column_sums_cpu)
#define mn_cross_entropy_cpu MN_CPU(mn_cross_entropy_cpu)
#define mn_epilogue_cpu MN_CPU(mn_epilogue_cpu)
#define mn_gemm_cpu MN_CPU(mn_gemm_cpu)
#define mn_mse_cpu MN_CPU(mn_mse_cpu)
#define mn_narrow_cpu MN_CPU(mn_narrow_cpu)
#define mn_reduce_cpu MN_CPU(mn_reduce_cpu)
#define mn_rescale_cpu MN_CPU(mn_rescale_cpu)
#define mn_round_cpu MN_CPU(mn_round_cpu)
#define mn_uniform_cpu MN_CPU(mn_uniform_cpu)
#define mn_block_end_cpu MN_CPU(mn_block_end_cpu)
#define mn_block_tile_cpu MN_CPU(mn_block_tile_cpu)
#define mn_product_tile_cpu MN_CPU(mn_product_tile_cpu)
#define mn_product_pack_cpu MN_CPU(mn_product_pack_cpu)
#define mn_pack_cpu MN_CPU(mn_pack_cpu)
#define mn_rule_tile_cpu MN_CPU(mn_rule_tile_cpu)

/* Loops of no more elements run on one thread, because waking the others costs some microseconds. Results do
 * not depend on the number of threads. */
enum { MN_PARALLEL_FROM = 16384 };

/* Sets the nonfinite flag, unless an earlier step has. */
static inline void mn_raise(struct mn_device *device) {
  if (*device->nonfinite == 0) *device->nonfinite = device->mark;
}

#endif
