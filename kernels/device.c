/* The CPU's kernel tables, opening a device, and the words for a precision. */
#include "kernels/device.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/blas.h"
#include "kernels/ranks/ranks.h"
#include "kernels/words.h"

#define FP32(name) .name = mn_##name##_cpu_fp32,
#define FP64(name) .name = mn_##name##_cpu_fp64,
#define CPU(name) .name = mn_##name##_cpu,
#define NONE(name) .name = NULL,

static const struct mn_kernels fp32 = {MN_KERNELS(FP32, CPU, NONE)}, fp64 = {MN_KERNELS(FP64, CPU, NONE)};

MN_WORDS(precision, enum mn_precision, MN_PRECISIONS, [MN_FP64] = "fp64", [MN_FP32] = "fp32",
         [MN_TF32] = "tf32", [MN_BF16] = "bf16", [MN_FP16] = "fp16", [MN_FP16X3] = "fp16x3");

#ifndef MN_CUDA
mn_status mn_cuda_open(struct mn_device *device) {
  (void)device;
  return mn_fail(MN_NO_DEVICE, "this build of minnow is without CUDA; the device cpu would do");
}

void mn_cuda_close(struct mn_device *device) {
  (void)device;
}
#endif

mn_status mn_device_open(struct mn_device **out, enum mn_device_type type, int ordinal,
                         enum mn_precision precision) {
  static const struct mn_scale one = {1, 0};
  *out = NULL;
  struct mn_device *device = calloc(1, sizeof *device);
  if (!device) return mn_fail(MN_NO_MEMORY, "no memory for a device");
  int cuda = type == MN_DEVICE_CUDA;
  device->type = type;
  device->ordinal = ordinal;
  device->precision = precision;
  device->mark = 1;
  device->real = precision == MN_FP64 ? sizeof(double) : sizeof(float);
  device->planes = precision == MN_BF16 || precision == MN_FP16; /* MN_FP16X3: mn_cuda_open knows */
  device->scaled = precision == MN_FP16;
  device->kernels = precision == MN_FP64 ? &fp64 : &fp32;
  snprintf(device->name, sizeof device->name, "CPU (%d threads)", omp_get_max_threads());
  mn_status status = cuda ? mn_cuda_open(device) : mn_blas_take_buffers();
  device->plane = !device->planes ? 0 : cuda ? 2 : sizeof(float);
  if (status == MN_OK) status = device->kernels->allocate(device, (void **)&device->nonfinite, sizeof(int));
  if (status == MN_OK) status = device->kernels->zero(device, device->nonfinite, sizeof(int));
  if (status == MN_OK)
    status = device->kernels->allocate(device, (void **)&device->unscaled, sizeof *device->unscaled);
  if (status == MN_OK) status = device->kernels->upload(device, device->unscaled, &one, sizeof one);
  if (status == MN_OK) status = device->kernels->synchronize(device);
  if (status != MN_OK) {
    mn_device_close(device);
    return status;
  }
  *out = device;
  return MN_OK;
}

void mn_device_close(struct mn_device *device) {
  if (!device) return;
  if (device->ranks) device->ranks->kernels->ranks_leave(device);
  if (device->nonfinite) device->kernels->release(device, device->nonfinite);
  if (device->unscaled) device->kernels->release(device, device->unscaled);
  mn_cuda_close(device);
  free(device);
}
