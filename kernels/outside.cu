/* Contract: kernels/outside.h. */
#include <utility>

#include "kernels/cuda.cuh"

template <typename T> static void exchange(T *&own, void *&other) {
  T *kept = own;
  own = static_cast<T *>(other), other = kept;
}

/* If the device's GPU cannot be made current, the next kernel's entry, which does it too, returns the error. */
void mn_exchange_cuda(struct mn_device *device, struct mn_outside *outside) {
  struct mn_cuda *cuda = device->cuda;
  static_assert(MN_LIBRARY_SCALARS == 2 * sizeof *cuda->alpha);
  const int wanted = outside->ordinal;
  if (cudaGetDevice(&outside->ordinal) == cudaSuccess) (void)cudaSetDevice(wanted);
  exchange(cuda->stream, outside->stream);
  exchange(cuda->workspace, outside->workspace);
  exchange(cuda->alpha, outside->scalars);
  exchange(cuda->scratch, outside->scratch);
  std::swap(device->nonfinite, outside->nonfinite);
  std::swap(device->mark, outside->mark);
}
