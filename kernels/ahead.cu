/* Work that runs ahead, on CUDA: a stream that is swapped with the device's between begin and end, and one
 * for the copies of ahead_used, which must wait neither for the next filling nor for the next reader.
 * Contract: kernels/ahead.h. */
#include <algorithm>
#include <utility>

#include "kernels/cuda.cuh"

/* Fillings are numbered, and filling n has the events n % MN_CUDA_FILLINGS. */
static cudaEvent_t of(const cudaEvent_t (&events)[MN_CUDA_FILLINGS], unsigned filling) {
  return events[filling % MN_CUDA_FILLINGS];
}

mn_status mn_ahead_begin_cuda(struct mn_device *device) {
  struct mn_cuda *cuda = device->cuda;
  MN_REQUIRE(cuda->fillings - cuda->waited < 2);
  if (cuda->fillings >= 2)
    MN_CUDA_TRY(cudaStreamWaitEvent(cuda->ahead, of(cuda->used, cuda->fillings - 2), 0));
  std::swap(cuda->stream, cuda->ahead);
  return MN_OK;
}

mn_status mn_ahead_end_cuda(struct mn_device *device) {
  struct mn_cuda *cuda = device->cuda;
  const cudaEvent_t filled = of(cuda->filled, cuda->fillings);
  std::swap(cuda->stream, cuda->ahead);
  MN_CUDA_TRY(cudaEventRecord(filled, cuda->ahead));
  MN_CUDA_TRY(cudaStreamWaitEvent(cuda->stream, filled, 0));
  return MN_OK;
}

mn_status mn_ahead_used_cuda(struct mn_device *device, void *to, const void *from, size_t bytes) {
  struct mn_cuda *cuda = device->cuda;
  const cudaEvent_t used = of(cuda->used, cuda->fillings);
  MN_CUDA_TRY(cudaEventRecord(used, cuda->stream));
  MN_CUDA_TRY(cudaStreamWaitEvent(cuda->report, used, 0));
  MN_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda->report));
  MN_CUDA_TRY(cudaEventRecord(of(cuda->reported, cuda->fillings), cuda->report));
  cuda->fillings++;
  return MN_OK;
}

mn_status mn_ahead_wait_cuda(struct mn_device *device, double *idle) {
  struct mn_cuda *cuda = device->cuda;
  const unsigned n = cuda->waited;
  float ms = 0;
  *idle = 0;
  MN_REQUIRE(n < cuda->fillings);
  MN_TRY(mn_cuda_wait(device, of(cuda->reported, n)));
  cuda->waited++;
  if (n == 0) return MN_OK;
  MN_CUDA_TRY(cudaEventElapsedTime(&ms, of(cuda->used, n - 1), of(cuda->filled, n)));
  *idle = std::max(ms, 0.0f);
  return MN_OK;
}

mn_status mn_ahead_finish_cuda(struct mn_device *device) {
  /* Between begin and end the two streams are swapped, and either may be this one. */
  return mn_cuda_wait(device, nullptr);
}
