/* Contract: kernels/outside.h. */
#include <utility>

#include "kernels/cuda.cuh"

template <typename T> static void exchange(T *&own, void *&other) {
  T *kept = own;
  own = static_cast<T *>(other), other = kept;
}

/* If the device's GPU cannot be made current, the next kernel's entry, which does it too, returns the error.
 */
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

static __global__ void count_kernel(const mn_counts c, int *nonfinite) {
  if (threadIdx.x != 0) return;
  const bool skipped = c.ended && *nonfinite != 0;
  if (c.steps) {
    if (c.ended && !skipped) *c.steps += 1;
    c.rate[MN_RATE_FIRST] = 1 / (1 - pow(c.beta1, *c.steps + 1.0));
    c.rate[MN_RATE_SECOND] = 1 / sqrt(1 - pow(c.beta2, *c.steps + 1.0));
  }
  if (!c.clears) return;
  *c.told = *c.skipped += skipped;
  *nonfinite = 0;
}

mn_status mn_count_cuda(struct mn_device *device, const struct mn_counts *counts) {
  return mn_cuda_launch("count", device, 1, MN_CUDA_THREADS, count_kernel, *counts, device->nonfinite);
}
