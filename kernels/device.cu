/* Opening a GPU: device, device, cuBLASLt and workspace, and the sentences for everything that can be
 * missing. A machine without a driver gets as far as mn_cuda_open and one line of explanation. */
#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda.cuh"

mn_status mn_cuda_failed(cudaError_t error, const char *what) {
  return mn_fail(error == cudaErrorMemoryAllocation ? MN_NO_MEMORY : MN_LIBRARY, "CUDA: %s: %s (%s)", what,
                 cudaGetErrorString(error), cudaGetErrorName(error));
}

mn_status mn_cublas_failed(cublasStatus_t error, const char *what) {
  return mn_fail(MN_LIBRARY, "cuBLASLt: %s: %s", what, cublasLtGetStatusName(error));
}

/* Only its presence in the binary for this GPU is asked for. */
static __global__ void probe_kernel() {}

static mn_status no_driver(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver)
    return mn_fail(MN_NO_DEVICE,
                   "no GPU: there is no NVIDIA driver, or one older than CUDA %d.%d needs; "
                   "--device cpu would do",
                   CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return mn_fail(MN_NO_DEVICE, "no GPU: %s; --device cpu would do",
                 error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
}

static mn_status check_precision(const cudaDeviceProp *p, enum mn_precision precision) {
  if (p->major >= 8 || precision == MN_FP64 || precision == MN_FP32) return MN_OK;
  return mn_fail(MN_NO_DEVICE,
                 "%s (compute capability %d.%d) has no %s, which needs 8.0 or newer; "
                 "--precision fp32 would do",
                 p->name, p->major, p->minor, precision == MN_TF32 ? "tf32" : "bf16");
}

static mn_status check_code(const cudaDeviceProp *p) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    (void)cudaGetLastError(); /* not sticky; it has been reported */
    return mn_fail(MN_NO_DEVICE,
                   "this build has no code for %s (compute capability %d.%d); "
                   "make CUDA_ARCH=%d%d would, and --device cpu would do",
                   p->name, p->major, p->minor, p->major, p->minor);
  }
  return error == cudaSuccess ? MN_OK : mn_cuda_failed(error, "looking for this GPU's code");
}

static mn_status open_parts(struct mn_cuda *cuda) {
  int least, greatest;
  MN_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  MN_CUDA_TRY(cudaStreamCreateWithPriority(&cuda->stream, cudaStreamNonBlocking, greatest));
  MN_CUDA_TRY(cudaStreamCreateWithPriority(&cuda->branch, cudaStreamNonBlocking, least));
  MN_CUDA_TRY(cudaEventCreateWithFlags(&cuda->forked, cudaEventDisableTiming));
  MN_CUDA_TRY(cudaEventCreateWithFlags(&cuda->joined, cudaEventDisableTiming));
  for (cudaEvent_t &mark : cuda->marks) MN_CUDA_TRY(cudaEventCreate(&mark));
  MN_CUDA_TRY(cudaMalloc(&cuda->workspace, MN_CUDA_WORKSPACE));
  MN_CUDA_TRY(cudaMalloc(&cuda->spans_done, sizeof *cuda->spans_done));
  MN_CUDA_TRY(cudaMemsetAsync(cuda->spans_done, 0, sizeof *cuda->spans_done, cuda->stream));
  MN_CUBLAS_TRY(cublasLtCreate(&cuda->blas));
  return MN_OK;
}

extern "C" mn_status mn_cuda_open(struct mn_device *device, int ordinal) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return no_driver(error);
  if (ordinal < 0 || ordinal >= count)
    return mn_fail(MN_NO_DEVICE, "no GPU %d: there %s %d, counted from 0; --device cpu would do", ordinal,
                   count == 1 ? "is" : "are", count);
  cudaDeviceProp properties;
  MN_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
  MN_TRY(check_precision(&properties, device->precision));
  MN_CUDA_TRY(cudaSetDevice(ordinal));
  MN_TRY(check_code(&properties));
  struct mn_cuda *cuda = static_cast<struct mn_cuda *>(calloc(1, sizeof *cuda));
  if (!cuda) return mn_fail(MN_NO_MEMORY, "no memory for a device");
  cuda->ordinal = ordinal;
  snprintf(cuda->name, sizeof cuda->name, "%s", properties.name);
  cuda->multiprocessors = properties.multiProcessorCount;
  mn_status status = open_parts(cuda);
  mn_hopper_open(cuda, &properties);
  device->cuda = cuda; /* whole or in part, mn_cuda_close knows what to give back */
  if (status != MN_OK) mn_cuda_close(device);
  return status;
}

/* Errors have no one left to hear them: a failed device gives everything back when the process ends. */
extern "C" void mn_cuda_close(struct mn_device *device) {
  struct mn_cuda *cuda = device->cuda;
  if (!cuda) return;
  (void)cudaSetDevice(cuda->ordinal);
  if (cuda->stream) (void)cudaStreamSynchronize(cuda->stream);
  mn_cuda_release_plans(cuda);
  if (cuda->blas) (void)cublasLtDestroy(cuda->blas);
  if (cuda->workspace) (void)cudaFree(cuda->workspace);
  if (cuda->scratch) (void)cudaFree(cuda->scratch);
  if (cuda->spans_done) (void)cudaFree(cuda->spans_done);
  for (cudaEvent_t event : {cuda->forked, cuda->joined, cuda->marks[0], cuda->marks[1]})
    if (event) (void)cudaEventDestroy(event);
  for (cudaStream_t each : {cuda->branch, cuda->stream})
    if (each) (void)cudaStreamDestroy(each);
  (void)cudaGetLastError();
  free(cuda);
  device->cuda = NULL;
}

extern "C" void mn_cuda_describe(const struct mn_device *device, char *text, size_t size) {
  snprintf(text, size, "%s", device->cuda->name);
}

extern "C" int mn_cuda_fuses(const struct mn_device *device) {
  return device->cuda->encode && device->precision == MN_BF16;
}
