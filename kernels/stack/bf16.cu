/* The narrow stack for planes of bfloat16. */
#include "kernels/stack/shapes.cuh"

template struct mn_stack_shapes<MN_PLANES_BF16>;
