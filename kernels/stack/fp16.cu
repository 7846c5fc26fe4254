/* The narrow stack for planes of float16. */
#include "kernels/stack/shapes.cuh"

template struct mn_stack_shapes<MN_PLANES_FP16>;
