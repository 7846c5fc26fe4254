/* Contract: kernels/outside.h. */
#include "kernels/cuda.cuh"

template <typename T> static void exchange(T *&own, void *&other) {
  T *kept = own;
  own = static_cast<T *>(other), other = kept;
}

void mn_exchange_cuda(struct mn_device *device, struct mn_outside *outside) {
  struct mn_cuda *cuda = device->cuda;
  static_assert(MN_LIBRARY_SCALARS == 2 * sizeof *cuda->alpha);
  exchange(cuda->stream, outside->stream);
  exchange(cuda->workspace, outside->workspace);
  exchange(cuda->alpha, outside->scalars);
}
