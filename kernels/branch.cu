/* Branches on CUDA: streams that are swapped with the first between begin and end. Contract:
 * kernels/branch.h. */
#include <utility>

#include "kernels/cuda.cuh"

mn_status mn_branch_fork_cuda(struct mn_device *device, enum mn_branch which) {
  struct mn_cuda *cuda = device->cuda;
  MN_CUDA_TRY(cudaEventRecord(cuda->forked, cuda->stream));
  MN_CUDA_TRY(cudaStreamWaitEvent(cuda->branches[which], cuda->forked, 0));
  return MN_OK;
}

mn_status mn_branch_begin_cuda(struct mn_device *device, enum mn_branch which) {
  std::swap(device->cuda->stream, device->cuda->branches[which]);
  return MN_OK;
}

mn_status mn_branch_end_cuda(struct mn_device *device, enum mn_branch which) {
  std::swap(device->cuda->stream, device->cuda->branches[which]);
  return MN_OK;
}

mn_status mn_branch_join_cuda(struct mn_device *device, enum mn_branch which) {
  struct mn_cuda *cuda = device->cuda;
  MN_CUDA_TRY(cudaEventRecord(cuda->joined, cuda->branches[which]));
  MN_CUDA_TRY(cudaStreamWaitEvent(cuda->stream, cuda->joined, 0));
  return MN_OK;
}
