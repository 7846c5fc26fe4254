/* The Hopper GEMM for operands of two float16 planes. */
#include "kernels/hopper/epilogues.cuh"

template struct mn_hopper<MN_PLANES_FP16X2>;
