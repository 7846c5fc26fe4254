/* The Hopper GEMM for operands of one bfloat16 plane. */
#include "kernels/hopper/epilogues.cuh"

template struct mn_hopper<MN_PLANES_BF16>;
