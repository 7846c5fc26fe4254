/* The Hopper GEMM for operands of one float16 plane. */
#include "kernels/hopper/epilogues.cuh"

template struct mn_hopper<MN_PLANES_FP16>;
