/* Streams and graphs on CUDA. Contract: kernels/stream.h.
 *
 * A branch, and work that runs ahead, has a stream that is swapped with the device's between begin and end.
 * The copies of ahead_used have one too, because they must wait neither for the next filling nor for the next
 * reader. */
#include <algorithm>
#include <utility>

#include "kernels/cuda.cuh"

mn_status mn_branch_fork_cuda(struct mn_device *device, enum mn_branch which) {
  struct mn_cuda *cuda = device->cuda;
  MN_CUDA_TRY(cudaEventRecord(cuda->forked, cuda->stream));
  MN_CUDA_RETURN(cudaStreamWaitEvent(cuda->branches[which], cuda->forked, 0));
}

mn_status mn_branch_begin_cuda(struct mn_device *device, enum mn_branch which) {
  std::swap(device->cuda->stream, device->cuda->branches[which]);
  return MN_OK;
}

mn_status mn_branch_end_cuda(struct mn_device *device, enum mn_branch which) {
  return mn_branch_begin_cuda(device, which);
}

mn_status mn_branch_join_cuda(struct mn_device *device, enum mn_branch which) {
  struct mn_cuda *cuda = device->cuda;
  MN_CUDA_TRY(cudaEventRecord(cuda->joined, cuda->branches[which]));
  MN_CUDA_TRY(cudaStreamWaitEvent(cuda->stream, cuda->joined, 0));
  if (which != MN_BRANCH_SUMS || !cuda->agreement) return MN_OK;
  MN_CUDA_TRY(cudaMemsetAsync(cuda->agreement, 0, sizeof *cuda->agreement, cuda->stream));
  cuda->agreement = NULL;
  return MN_OK;
}

/* Fillings are numbered, and filling n has the events n % MN_CUDA_FILLINGS. */
static cudaEvent_t of(const cudaEvent_t (&events)[MN_CUDA_FILLINGS], unsigned filling) {
  return events[filling % MN_CUDA_FILLINGS];
}

mn_status mn_ahead_begin_cuda(struct mn_device *device) {
  struct mn_cuda *cuda = device->cuda;
  MN_REQUIRE(cuda->fillings - cuda->waited < MN_AHEAD_MOST);
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
  MN_CUDA_RETURN(cudaStreamWaitEvent(cuda->stream, filled, 0));
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
  if (n == cuda->fillings) return MN_OK; /* after an error pieces may have been waited for already */
  MN_TRY(mn_cuda_wait(device, of(cuda->reported, n)));
  cuda->waited++;
  if (n == 0) return MN_OK;
  MN_CUDA_TRY(cudaEventElapsedTime(&ms, of(cuda->used, n - 1), of(cuda->filled, n)));
  *idle = std::max(ms, 0.0f);
  return MN_OK;
}

/* A struct mn_graph * is a cudaGraphExec_t. Thread-local: allocations by another thread do not invalidate the
 * capture. */
mn_status mn_graph_begin_cuda(struct mn_device *device) {
  MN_CUDA_RETURN(cudaStreamBeginCapture(device->cuda->stream, cudaStreamCaptureModeThreadLocal));
}

mn_status mn_graph_end_cuda(struct mn_device *device, struct mn_graph **out) {
  *out = NULL;
  cudaGraph_t captured = NULL;
  MN_CUDA_TRY(cudaStreamEndCapture(device->cuda->stream, &captured));
  cudaGraphExec_t executable;
  cudaError_t error = cudaGraphInstantiate(&executable, captured, 0);
  (void)cudaGraphDestroy(captured);
  MN_TRY(mn_cuda_check(error, "making a graph"));
  *out = reinterpret_cast<struct mn_graph *>(executable);
  return MN_OK;
}

mn_status mn_graph_launch_cuda(struct mn_device *device, struct mn_graph *graph) {
  MN_CUDA_RETURN(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), device->cuda->stream));
}

void mn_graph_free_cuda(struct mn_device *, struct mn_graph *graph) {
  if (graph) (void)cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph));
}

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

static __global__ void count_kernel(const mn_counts counts, int *nonfinite, int mark) {
  const int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
  int set = counts.flags ? 0 : *nonfinite;
  for (int i = lane; i < counts.flag_count; i += lanes) set |= counts.flags[i], counts.flags[i] = 0;
  set = __syncthreads_or(set);
  if (lane == 0) *nonfinite = set ? mark : 0;
  mn_count_step(&counts, set, lane, lanes);
}

mn_status mn_count_cuda(struct mn_device *device, const struct mn_counts *counts) {
  return mn_cuda_launch("count", device, 1, MN_CUDA_THREADS, count_kernel, *counts, device->nonfinite,
                        device->mark);
}
