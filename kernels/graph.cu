/* CUDA graphs, captured from the device's stream. */
#include <new>

#include "kernels/cuda.cuh"

struct mn_graph {
  cudaGraphExec_t executable;
};

/* Thread-local: allocations by another thread do not invalidate the capture. */
mn_status mn_graph_begin_cuda(struct mn_device *device) {
  MN_CUDA_TRY(cudaStreamBeginCapture(device->cuda->stream, cudaStreamCaptureModeThreadLocal));
  return MN_OK;
}

mn_status mn_graph_end_cuda(struct mn_device *device, struct mn_graph **out) {
  *out = NULL;
  cudaGraph_t captured = NULL;
  MN_CUDA_TRY(cudaStreamEndCapture(device->cuda->stream, &captured));
  cudaGraphExec_t executable;
  cudaError_t error = cudaGraphInstantiate(&executable, captured, 0);
  (void)cudaGraphDestroy(captured);
  if (error != cudaSuccess) return mn_cuda_failed(error, "making a graph");
  *out = new (std::nothrow) mn_graph{executable};
  if (*out) return MN_OK;
  (void)cudaGraphExecDestroy(executable);
  return mn_fail(MN_NO_MEMORY, "no memory for a graph");
}

mn_status mn_graph_launch_cuda(struct mn_device *device, struct mn_graph *graph) {
  MN_CUDA_TRY(cudaGraphLaunch(graph->executable, device->cuda->stream));
  return MN_OK;
}

void mn_graph_free_cuda(struct mn_device *, struct mn_graph *graph) {
  if (!graph) return;
  (void)cudaGraphExecDestroy(graph->executable);
  delete graph;
}
