/* A GPU's memory and its clock. Everything but download_beside is in order with the device's work; only
 * download, synchronize, elapsed and download_beside make the host wait. */
#include <string.h>

#include <algorithm>

#include "kernels/cuda.cuh"
#include "kernels/ranks/peer.h"

static const double MIB = 1048576.0;

mn_status mn_allocate_cuda(struct mn_device *device, void **out, size_t bytes) {
  *out = NULL;
  cudaError_t error = cudaMalloc(out, bytes);
  if (error != cudaErrorMemoryAllocation) return mn_cuda_check(error, "cudaMalloc");
  (void)cudaGetLastError(); /* not sticky; reported here */
  size_t left = 0, total = 0;
  MN_CUDA_TRY(cudaMemGetInfo(&left, &total));
  return mn_fail(MN_NO_MEMORY,
                 "%s has no %.1f MiB left: %.1f of %.1f MiB are free; a smaller batch or model would need "
                 "less",
                 device->name, (double)bytes / MIB, (double)left / MIB, (double)total / MIB);
}

/* An error here is an earlier kernel's, which the next synchronize reports. */
void mn_release_cuda(struct mn_device *device, void *memory) {
  if (!memory) return;
  if (device->ranks)
    for (const struct mn_team *team : {&device->ranks->shards, &device->ranks->replicas})
      mn_peer_release(team, memory);
  (void)cudaFree(memory);
}

mn_status mn_allocate_host_cuda(struct mn_device *, void **out, size_t bytes) {
  *out = NULL;
  cudaError_t error = cudaHostAlloc(out, bytes, cudaHostAllocPortable);
  if (error != cudaErrorMemoryAllocation) return mn_cuda_check(error, "cudaHostAlloc");
  (void)cudaGetLastError(); /* not sticky; reported here */
  return mn_fail(MN_NO_MEMORY, "no %.1f MiB of pinned host memory left; a smaller batch would need less",
                 (double)bytes / MIB);
}

void mn_release_host_cuda(struct mn_device *, void *memory) {
  if (memory) (void)cudaFreeHost(memory);
}

mn_status mn_available_cuda(struct mn_device *, size_t *bytes) {
  size_t total;
  MN_CUDA_RETURN(cudaMemGetInfo(bytes, &total));
}

mn_status mn_copy_cuda(struct mn_device *device, void *to, const void *from, size_t bytes) {
  MN_CUDA_RETURN(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device->cuda->stream));
}

mn_status mn_download_cuda(struct mn_device *device, void *to, const void *from, size_t bytes) {
  MN_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device->cuda->stream));
  return mn_synchronize_cuda(device);
}

mn_status mn_zero_cuda(struct mn_device *device, void *memory, size_t bytes) {
  MN_CUDA_RETURN(cudaMemsetAsync(memory, 0, bytes, device->cuda->stream));
}

mn_status mn_cuda_wait(struct mn_device *device, cudaEvent_t event) {
  const cudaStream_t stream = device->cuda->stream;
  if (!device->ranks) MN_CUDA_RETURN(event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream));
  cudaError_t ended = cudaErrorNotReady;
  while (ended == cudaErrorNotReady) {
    device->ranks->attend(MN_WAITS_FOR_GPU);
    ended = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
  }
  device->ranks->attend(MN_WAITS_FOR_NOTHING);
  if (ended == cudaSuccess) (void)cudaGetLastError(); /* that it was not ready yet */
  MN_CUDA_RETURN(ended);
}

mn_status mn_synchronize_cuda(struct mn_device *device) {
  return mn_cuda_wait(device, nullptr);
}

/* A copy that runs beside the host's work needs pinned memory, and `to` is as large as the model: so it goes
 * piece by piece through a pinned buffer. */
mn_status mn_download_beside_cuda(struct mn_device *device, void *to, const void *from, size_t bytes) {
  struct mn_cuda *cuda = device->cuda;
  if (!cuda->staging) MN_TRY(mn_allocate_host_cuda(device, &cuda->staging, MN_CUDA_STAGING));
  for (size_t at = 0; at < bytes; at += MN_CUDA_STAGING) {
    const size_t piece = std::min(MN_CUDA_STAGING, bytes - at);
    MN_CUDA_TRY(cudaMemcpyAsync(cuda->staging, static_cast<const char *>(from) + at, piece,
                                cudaMemcpyDeviceToHost, cuda->branches[MN_BRANCH_SAVES]));
    MN_CUDA_TRY(cudaEventRecord(cuda->staged, cuda->branches[MN_BRANCH_SAVES]));
    MN_CUDA_TRY(cudaEventSynchronize(cuda->staged));
    memcpy(static_cast<char *>(to) + at, cuda->staging, piece);
  }
  return MN_OK;
}

mn_status mn_stamp_cuda(struct mn_device *device, int which) {
  MN_REQUIRE(which == 0 || which == 1);
  MN_CUDA_RETURN(cudaEventRecord(device->cuda->stamps[which], device->cuda->stream));
}

mn_status mn_elapsed_cuda(struct mn_device *device, double *milliseconds) {
  float ms = 0;
  for (cudaEvent_t stamp : device->cuda->stamps) MN_CUDA_TRY(cudaEventSynchronize(stamp));
  MN_CUDA_TRY(cudaEventElapsedTime(&ms, device->cuda->stamps[0], device->cuda->stamps[1]));
  *milliseconds = ms;
  return MN_OK;
}
