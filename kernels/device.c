/* The CPU's kernel tables, opening a device, and the words for a precision. */
#include "kernels/device.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/words.h"

#define FP32(name) .name = mn_##name##_cpu_fp32,
#define FP64(name) .name = mn_##name##_cpu_fp64,
#define CPU(name) .name = mn_##name##_cpu,
#define NONE(name) .name = NULL,

static const struct mn_kernels fp32 = {MN_KERNELS(FP32, CPU, NONE)}, fp64 = {MN_KERNELS(FP64, CPU, NONE)};

#define WORD(value, word) [value] = word,
static const char *const words[] = {MN_PRECISIONS(WORD)};

const char *mn_precision_name(enum mn_precision precision) {
  return (int)precision < MN_PRECISION_COUNT ? words[precision] : NULL;
}

mn_status mn_precision_parse(const char *word, enum mn_precision *out) {
  int found;
  MN_TRY(mn_word_find(&found, "precision", words, MN_PRECISION_COUNT, word));
  *out = (enum mn_precision)found;
  return MN_OK;
}

#ifndef MN_CUDA
mn_status mn_cuda_open(struct mn_device *device, int ordinal) {
  (void)device, (void)ordinal;
  return mn_fail(MN_NO_DEVICE, "this build of minnow is without CUDA; the device cpu would do");
}

void mn_cuda_close(struct mn_device *device) {
  (void)device;
}
#endif

static void open_cpu(struct mn_device *device) {
  device->kernels = device->precision == MN_FP64 ? &fp64 : &fp32;
  snprintf(device->name, sizeof device->name, "CPU (%d threads)", omp_get_max_threads());
}

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
  mn_status status = MN_OK;
  if (cuda)
    status = mn_cuda_open(device, ordinal);
  else
    open_cpu(device);
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
  mn_cuda_close(device);
  free(device);
}

void mn_device_describe(const struct mn_device *device, char *text, size_t size) {
  snprintf(text, size, "%s", device->name);
}

int mn_device_fuses(const struct mn_device *device) {
  return device->fuses;
}

void mn_device_versions(const struct mn_device *device, struct mn_versions *out) {
  *out = device->versions;
}
