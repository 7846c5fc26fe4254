/* The kernel tables, and opening a device on one of them. */
#include "kernels/device.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define TABLE(device, width, ...)                                                                            \
  {                                                                                                          \
    .gemm = mn_gemm_##device##_##width, .epilogue = mn_epilogue_##device##_##width,                          \
    .column_sums = mn_column_sums_##device##_##width, .mse = mn_mse_##device##_##width,                      \
    .mse_gradient = mn_mse_gradient_##device##_##width,                                                      \
    .cross_entropy = mn_cross_entropy_##device##_##width,                                                    \
    .cross_entropy_gradient = mn_cross_entropy_gradient_##device##_##width,                                  \
    .reduce = mn_reduce_##device##_##width, .sum_of_squares = mn_sum_of_squares_##device##_##width,          \
    .clip = mn_clip_##device##_##width, .add = mn_add_##device##_##width,                                    \
    .round = mn_round_##device##_##width, .uniform = mn_uniform_##device##_##width,                          \
    .allocate = mn_allocate_##device, .release = mn_release_##device,                                        \
    .allocate_host = mn_allocate_host_##device, .release_host = mn_release_host_##device,                    \
    .upload = mn_upload_##device, .download = mn_download_##device, .copy = mn_copy_##device,                \
    .zero = mn_zero_##device, .synchronize = mn_synchronize_##device, .mark = mn_mark_##device,              \
    .elapsed = mn_elapsed_##device, .branch_fork = mn_branch_fork_##device,                                  \
    .branch_begin = mn_branch_begin_##device, .branch_join = mn_branch_join_##device, __VA_ARGS__            \
  }

#define NO_GRAPH .graph_begin = NULL, .graph_end = NULL, .graph_launch = NULL, .graph_free = NULL

static const struct mn_kernels cpu_fp32 = TABLE(cpu, fp32, NO_GRAPH), cpu_fp64 = TABLE(cpu, fp64, NO_GRAPH);

#ifdef MN_CUDA
#define GRAPH                                                                                                \
  .graph_begin = mn_graph_begin_cuda, .graph_end = mn_graph_end_cuda, .graph_launch = mn_graph_launch_cuda,  \
  .graph_free = mn_graph_free_cuda

static const struct mn_kernels cuda_fp32 = TABLE(cuda, fp32, GRAPH), cuda_fp64 = TABLE(cuda, fp64, GRAPH);

static const struct mn_kernels *cuda_table(enum mn_precision precision) {
  return precision == MN_FP64 ? &cuda_fp64 : &cuda_fp32;
}
#else
static const struct mn_kernels *cuda_table(enum mn_precision precision) {
  (void)precision;
  return NULL;
}

mn_status mn_cuda_open(struct mn_device *device, int ordinal) {
  (void)device, (void)ordinal;
  return mn_fail(MN_NO_DEVICE, "this minnow was built without CUDA; --device cpu works, or build with nvcc");
}

void mn_cuda_close(struct mn_device *device) {
  (void)device;
}

void mn_cuda_describe(const struct mn_device *device, char *text, size_t size) {
  (void)device;
  snprintf(text, size, "CUDA");
}

int mn_cuda_fuses(const struct mn_device *device) {
  (void)device;
  return 0;
}
#endif

mn_status mn_device_open(struct mn_device **out, enum mn_device_type type, int ordinal,
                         enum mn_precision precision) {
  *out = NULL;
  struct mn_device *device = calloc(1, sizeof *device);
  if (!device) return mn_fail(MN_NO_MEMORY, "no memory for a device");
  int cuda = type == MN_DEVICE_CUDA;
  device->type = type;
  device->precision = precision;
  device->real = precision == MN_FP64 ? sizeof(double) : sizeof(float);
  device->bf16 = precision == MN_BF16 ? (cuda ? 2 : sizeof(float)) : 0;
  device->kernels = cuda ? cuda_table(precision) : precision == MN_FP64 ? &cpu_fp64 : &cpu_fp32;
  mn_status status = cuda ? mn_cuda_open(device, ordinal) : MN_OK;
  if (status == MN_OK) status = device->kernels->allocate(device, (void **)&device->nonfinite, sizeof(int));
  if (status == MN_OK) status = device->kernels->zero(device, device->nonfinite, sizeof(int));
  if (status != MN_OK) {
    mn_device_close(device);
    return status;
  }
  *out = device;
  return MN_OK;
}

void mn_device_close(struct mn_device *device) {
  if (!device) return;
  if (device->nonfinite) device->kernels->release(device, device->nonfinite);
  if (device->type == MN_DEVICE_CUDA) mn_cuda_close(device);
  free(device);
}

void mn_device_describe(const struct mn_device *device, char *text, size_t size) {
  if (device->type == MN_DEVICE_CUDA)
    mn_cuda_describe(device, text, size);
  else
    snprintf(text, size, "CPU (%d threads)", omp_get_max_threads());
}

int mn_device_fuses(const struct mn_device *device) {
  return device->type == MN_DEVICE_CUDA && mn_cuda_fuses(device);
}
