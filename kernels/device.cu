/* The CUDA kernel tables, and opening a GPU: its streams and events, cuBLASLt, workspace, and a message for
 * each thing that can be missing: the driver, the GPU, its precision, this build's code for it. */
#include "kernels/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <type_traits>

#include "kernels/cuda.cuh"

mn_status mn_cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return MN_OK;
  const char *remedy =
      error == cudaErrorInitializationError
          ? "; a process that was forked off one that used CUDA cannot use it: take the device cpu"
          : "";
  return mn_fail(error == cudaErrorMemoryAllocation ? MN_NO_MEMORY : MN_LIBRARY, "CUDA: %s: %s (%s)%s", what,
                 cudaGetErrorString(error), cudaGetErrorName(error), remedy);
}

mn_status mn_cuda_check(cublasStatus_t error, const char *what) {
  if (error == CUBLAS_STATUS_SUCCESS) return MN_OK;
  return mn_fail(MN_LIBRARY, "cuBLASLt: %s: %s", what, mn_cublaslt().GetStatusName(error));
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* From the library of the major version that minnow was compiled with. */
static struct mn_cublaslt load() {
  struct mn_cublaslt l = {};
  void *library = dlopen("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW);
  bool all = library != NULL;
#define FIND(name)                                                                                           \
  if (all) *reinterpret_cast<void **>(&l.name) = dlsym(library, "cublasLt" #name);                           \
  all = all && l.name;
  MN_CUBLASLT(FIND)
  if (!all) snprintf(l.error, sizeof l.error, "%s", dlerror());
  return l;
}

const struct mn_cublaslt &mn_cublaslt() {
  static const struct mn_cublaslt functions = load();
  return functions;
}

/* Calls Function with the device's GPU as the thread's current one: the thread may have used another device
 * since, or not yet have one (the loader's). Every entry of the CUDA tables goes through this. An entry that
 * returns void releases something, and is called even if the GPU cannot be set. */
template <typename Type, Type *Function> struct on_gpu;
template <typename Result, typename... Arguments, Result (*Function)(struct mn_device *, Arguments...)>
struct on_gpu<Result(struct mn_device *, Arguments...), Function> {
  static Result call(struct mn_device *device, Arguments... arguments) {
    const cudaError_t error = cudaSetDevice(device->ordinal);
    if constexpr (!std::is_void_v<Result>) MN_TRY(mn_cuda_check(error, "cudaSetDevice"));
    return Function(device, arguments...);
  }
};

/* The exchange makes the GPU current itself, because it restores the earlier one afterwards. */
template <> struct on_gpu<mn_exchange_function, mn_exchange_cuda> {
  static constexpr auto call = mn_exchange_cuda;
};

#define FP32(name) on_gpu<mn_##name##_function, mn_##name##_cuda<float>::run>::call,
#define FP64(name) on_gpu<mn_##name##_function, mn_##name##_cuda<double>::run>::call,
#define ONE(name, ...) on_gpu<mn_##name##_function, mn_##name##_cuda>::call,
static const struct mn_kernels fp32 = {MN_KERNELS(FP32, ONE, ONE, ONE)},
                               fp64 = {MN_KERNELS(FP64, ONE, ONE, ONE)};
static const struct mn_collectives collectives = {MN_COLLECTIVES(ONE, ONE)};

/* Has attributes if this binary has code for the GPU. */
static __global__ void probe_kernel() {}

static mn_status no_driver(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) /* there may be a GPU, and `auto` must not pass over it */
    return mn_fail(MN_NO_MEMORY, "no memory to look for a GPU; the device cpu would do");
  if (error == cudaErrorInsufficientDriver)
    return mn_fail(MN_NO_DEVICE,
                   "no GPU: there is no NVIDIA driver, or one older than CUDA %d.%d needs; the device cpu "
                   "would do",
                   CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return mn_fail(MN_NO_DEVICE, "no GPU: %s; the device cpu would do",
                 error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
}

static mn_status check_precision(const cudaDeviceProp *p, const struct mn_device *device) {
  if (p->major >= device->capability) return MN_OK;
  return mn_fail(MN_NO_DEVICE,
                 "%s (compute capability %d.%d) has no %s, which needs %d.0 or newer; "
                 "the precision fp32 would do",
                 p->name, p->major, p->minor, mn_precision_name(device->precision), device->capability);
}

static mn_status check_code(const cudaDeviceProp *p) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    (void)cudaGetLastError(); /* not sticky; reported here */
    return mn_fail(MN_NO_DEVICE,
                   "this build has no code for %s; a build for compute capability %d.%d would, "
                   "and the device cpu would do",
                   p->name, p->major, p->minor);
  }
  return mn_cuda_check(error, "looking for this GPU's code");
}

static mn_status read_versions(struct mn_device *device, int *driver) {
  auto *out = &device->versions;
  int runtime = 0;
  MN_CUDA_TRY(cudaRuntimeGetVersion(&runtime));
  MN_CUDA_TRY(cudaDriverGetVersion(driver));
  const int blas = (int)mn_cublaslt().GetVersion(); /* 130100 is 13.1.0 */
  snprintf(out->cuda, sizeof out->cuda, "%d.%d", runtime / 1000, runtime % 1000 / 10);
  snprintf(out->driver, sizeof out->driver, "%d.%d", *driver / 1000, *driver % 1000 / 10);
  snprintf(out->cublaslt, sizeof out->cublaslt, "%d.%d.%d", blas / 10000, blas / 100 % 100, blas % 100);
  return MN_OK;
}

static mn_status open_parts(struct mn_cuda *cuda) {
  int least, greatest;
  MN_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (int which : {MN_BRANCH_REPLICAS, MN_BRANCH_SHARDS})
    MN_CUDA_TRY(cudaStreamCreateWithPriority(&cuda->branches[which], cudaStreamNonBlocking, greatest));
  MN_CUDA_TRY(
      cudaStreamCreateWithPriority(&cuda->stream, cudaStreamNonBlocking, std::min(greatest + 1, least)));
  for (cudaStream_t *stream :
       {&cuda->branches[MN_BRANCH_SUMS], &cuda->branches[MN_BRANCH_SAVES], &cuda->ahead, &cuda->report})
    MN_CUDA_TRY(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, least));
  for (cudaEvent_t *event : {&cuda->forked, &cuda->joined})
    MN_CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  for (cudaEvent_t &stamp : cuda->stamps) MN_CUDA_TRY(cudaEventCreate(&stamp));
  for (int i = 0; i < MN_CUDA_FILLINGS; i++)
    for (cudaEvent_t *event : {&cuda->filled[i], &cuda->used[i], &cuda->reported[i]})
      MN_CUDA_TRY(cudaEventCreate(event));
  /* Waited for by a thread that has time: it sleeps instead of keeping a core busy. */
  MN_CUDA_TRY(cudaEventCreateWithFlags(&cuda->staged, cudaEventDisableTiming | cudaEventBlockingSync));
  MN_CUDA_TRY(cudaMalloc(&cuda->alpha, 2 * sizeof *cuda->alpha));
  MN_CUDA_TRY(cudaMalloc(&cuda->spans_done, sizeof *cuda->spans_done));
  MN_CUDA_TRY(cudaMemsetAsync(cuda->spans_done, 0, sizeof *cuda->spans_done, cuda->stream));
  MN_CUDA_RETURN(mn_cublaslt().Create(&cuda->blas));
}

extern "C" mn_status mn_cuda_open(struct mn_device *device) {
  const int ordinal = device->ordinal;
  int count = 0, driver = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return no_driver(error);
  if (ordinal < 0 || ordinal >= count)
    return mn_fail(MN_NO_DEVICE, "no GPU %d: there %s %d, counted from 0; the device cpu would do", ordinal,
                   count == 1 ? "is" : "are", count);
  cudaDeviceProp properties;
  MN_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
  MN_TRY(check_precision(&properties, device));
  MN_CUDA_TRY(cudaSetDevice(ordinal));
  MN_TRY(check_code(&properties));
  if (*mn_cublaslt().error)
    return mn_fail(MN_LIBRARY,
                   "cannot load cuBLASLt: %s: install cuBLAS %d, or name its folder in LD_LIBRARY_PATH; the "
                   "device cpu would do",
                   mn_cublaslt().error, CUBLAS_VER_MAJOR);
  MN_TRY(read_versions(device, &driver));
  struct mn_cuda *cuda = static_cast<struct mn_cuda *>(calloc(1, sizeof *cuda));
  if (!cuda) return mn_fail(MN_NO_MEMORY, "no memory for a device");
  device->cuda = cuda; /* if the rest fails, mn_cuda_close frees what has been created */
  device->kernels = device->precision == MN_FP64 ? &fp64 : &fp32;
  device->collectives = &collectives;
  snprintf(device->name, sizeof device->name, "%s", properties.name);
  cuda->multiprocessors = properties.multiProcessorCount;
  /* CUDA graphs have programmatic dependent launch since CUDA 12.3. */
  cuda->dependents = properties.major >= 9 && CUDART_VERSION >= 12030 && driver >= 12030;
  mn_hopper_open(cuda, &properties);
  device->has_own_gemm = cuda->encode && device->planes > 0;
  return open_parts(cuda);
}

/* Errors are not reported, since the process's end frees the rest. */
extern "C" void mn_cuda_close(struct mn_device *device) {
  struct mn_cuda *cuda = device->cuda;
  if (!cuda) return;
  (void)cudaSetDevice(device->ordinal);
  for (cudaStream_t each : {cuda->ahead, cuda->stream, cuda->report})
    if (each) (void)cudaStreamSynchronize(each);
  free(cuda->matmuls);
  if (cuda->blas) (void)mn_cublaslt().Destroy(cuda->blas);
  for (void *memory : {cuda->workspace, cuda->scratch, (void *)cuda->alpha, (void *)cuda->spans_done})
    (void)cudaFree(memory);
  for (cudaEvent_t event : {cuda->forked, cuda->joined, cuda->stamps[0], cuda->stamps[1], cuda->staged})
    if (event) (void)cudaEventDestroy(event);
  for (int i = 0; i < MN_CUDA_FILLINGS; i++)
    for (cudaEvent_t event : {cuda->filled[i], cuda->used[i], cuda->reported[i]})
      if (event) (void)cudaEventDestroy(event);
  mn_release_host_cuda(device, cuda->staging);
  for (cudaStream_t each :
       {cuda->report, cuda->ahead, cuda->branches[MN_BRANCH_SAVES], cuda->branches[MN_BRANCH_SUMS],
        cuda->branches[MN_BRANCH_REPLICAS], cuda->branches[MN_BRANCH_SHARDS], cuda->stream})
    if (each) (void)cudaStreamDestroy(each);
  (void)cudaGetLastError();
  free(cuda);
  device->cuda = NULL;
}
