/* The CPU's kernel tables, opening a device by its name, its memory, which is counted, and the words for a
 * precision. */
#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/planes.h"
#include "kernels/text.h"

#define FP32(name) .name = mn_##name##_cpu_fp32,
#define FP64(name) .name = mn_##name##_cpu_fp64,
#define CPU(name) .name = mn_##name##_cpu,
#define AS(name, other) .name = mn_##other##_cpu,
#define NONE(name) .name = NULL,

static const struct mn_kernels fp32 = {MN_KERNELS(FP32, CPU, AS, NONE)},
                               fp64 = {MN_KERNELS(FP64, CPU, AS, NONE)};

MN_WORDS(precision, enum mn_precision, MN_PRECISIONS, [MN_FP64] = "fp64", [MN_FP32] = "fp32",
         [MN_TF32] = "tf32", [MN_BF16] = "bf16", [MN_FP16] = "fp16", [MN_FP16X3] = "fp16x3");

/* By precision. If a product's inputs are rounded, the tolerance is eight such roundings, in bf16 four. */
static const struct {
  size_t real;
  enum mn_plane_kind planes;
  int capability;
  double tolerance;
} precisions[] = {[MN_FP64] = {sizeof(double), MN_NO_PLANES, 0, 1e-10},
                  [MN_FP32] = {sizeof(float), MN_NO_PLANES, 0, 1e-5},
                  [MN_TF32] = {sizeof(float), MN_NO_PLANES, 8, 8 * 0x1p-11},
                  [MN_BF16] = {sizeof(float), MN_PLANES_BF16, 8, 8 * 0x1p-9},
                  [MN_FP16] = {sizeof(float), MN_PLANES_FP16, 0, 8 * 0x1p-11},
                  [MN_FP16X3] = {sizeof(float), MN_PLANES_FP16X2, 0, 1e-5}};
_Static_assert(sizeof precisions / sizeof *precisions == MN_PRECISIONS, "every precision has a row");

#ifndef MN_CUDA
mn_status mn_cuda_open(struct mn_device *device) {
  return mn_fail(MN_NO_DEVICE, "this build of minnow is without CUDA; the device cpu would do");
}

void mn_cuda_close(struct mn_device *device) {}
#endif

static void set_planes(struct mn_device *device, enum mn_plane_kind kind) {
  device->plane_kind = kind;
  device->planes = kind == MN_PLANES_FP16X2 ? 2 : kind != MN_NO_PLANES;
  device->scaled = kind == MN_PLANES_FP16 || kind == MN_PLANES_FP16X2;
  device->plane = !device->planes ? 0 : device->type == MN_DEVICE_CUDA ? 2 : sizeof(float);
}

static mn_status open_device(struct mn_device **out, enum mn_device_type type, int ordinal,
                             enum mn_precision precision, int threads) {
  static const struct mn_scale one = {1, 0};
  *out = NULL;
  struct mn_device *device = calloc(1, sizeof *device);
  if (!device) return mn_fail(MN_NO_MEMORY, "no memory for a device");
  device->type = type;
  device->ordinal = ordinal;
  device->threads = threads;
  device->all_threads = threads ? MN_ASKED_THREADS : MN_FEWER_THREADS;
  device->precision = precision;
  device->mark = 1;
  device->real = precisions[precision].real;
  device->capability = precisions[precision].capability;
  device->tolerance = precisions[precision].tolerance;
  set_planes(device, precisions[precision].planes);
  device->kernels = precision == MN_FP64 ? &fp64 : &fp32;
  mn_status status = type == MN_DEVICE_CUDA ? mn_cuda_open(device) : mn_team_take(device);
  if (type == MN_DEVICE_CPU)
    snprintf(device->name, sizeof device->name, "CPU (%d threads)", mn_threads(device));
  if (device->planes == 2 && !device->has_own_gemm) set_planes(device, MN_NO_PLANES);
  if (status == MN_OK) status = mn_allocate(device, (void **)&device->nonfinite, sizeof(int));
  if (status == MN_OK) status = mn_zero(device, device->nonfinite, sizeof(int));
  if (status == MN_OK) status = mn_allocate(device, (void **)&device->unscaled, sizeof *device->unscaled);
  if (status == MN_OK) status = mn_copy(device, device->unscaled, &one, sizeof one);
  if (status == MN_OK) status = mn_synchronize(device);
  if (status != MN_OK) {
    mn_device_close(device);
    return status;
  }
  *out = device;
  return MN_OK;
}

/* The ordinal in "cuda:N", 0 of "cuda" and "auto"; −1 for anything else. */
static int cuda_ordinal(const char *name) {
  if (strcmp(name, "cuda") == 0 || strcmp(name, "auto") == 0) return 0;
  if (strncmp(name, "cuda:", 5) != 0) return -1;
  size_t digits = strspn(name + 5, "0123456789");
  return digits >= 1 && digits <= 4 && name[5 + digits] == 0 ? atoi(name + 5) : -1;
}

mn_status mn_device_open(struct mn_device **out, const char *name, const char *precision, int threads) {
  MN_OPENS(out, name, precision);
  int found;
  MN_TRY(mn_word_find(&found, "precision", mn_precision_words, precision));
  const enum mn_precision parsed = (enum mn_precision)found;
  if (threads < 0)
    return mn_fail(MN_USAGE, "a device with %d threads: 1 or more, or 0 for all cores", threads);
  if (strcmp(name, "cpu") == 0) return open_device(out, MN_DEVICE_CPU, 0, parsed, threads);
  int ordinal = cuda_ordinal(name);
  if (ordinal < 0) return mn_fail(MN_USAGE, "no device is called '%s'; auto, cpu, cuda and cuda:N are", name);
  mn_status status = open_device(out, MN_DEVICE_CUDA, ordinal, parsed, threads);
  /* The CPU only without a GPU to use: a GPU that fails is an error. */
  if (status != MN_NO_DEVICE || strcmp(name, "auto") != 0) return status;
  return open_device(out, MN_DEVICE_CPU, 0, parsed, threads);
}

void mn_device_close(struct mn_device *device) {
  if (!device) return;
  if (device->ranks && device->collectives->ranks_leave) mn_ranks_leave(device);
  for (int i = 0; device->ranks && i < 2; i++) {
    if (device->ranks->staging[i]) mn_release(device, device->ranks->staging[i]);
    device->ranks->staging[i] = NULL;
  }
  if (device->nonfinite) mn_release(device, device->nonfinite);
  if (device->unscaled) mn_release(device, device->unscaled);
  mn_cuda_close(device);
  free(device->room);
  free(device);
}

mn_status mn_device_allocate_shared(struct mn_device *device, const struct mn_team *team, void **out,
                                    int64_t count, size_t size) {
  if (count < 1) return mn_fail(MN_USAGE, "memory for %ld elements: 1 or more work", (long)count);
  if ((size_t)count > PTRDIFF_MAX / size)
    return mn_fail(MN_NO_MEMORY, "no memory for %ld elements of %zu bytes; a smaller batch or model would do",
                   (long)count, size);
  const size_t bytes = (size_t)count * size;
  MN_TRY(team && device->collectives->allocate_shared ? mn_allocate_shared(device, team, out, bytes)
                                                      : mn_allocate(device, out, bytes));
  device->allocations++;
  device->bytes += bytes;
  return MN_OK;
}

mn_status mn_device_allocate(struct mn_device *device, void **out, int64_t count, size_t size) {
  return mn_device_allocate_shared(device, NULL, out, count, size);
}

void mn_device_release(struct mn_device *device, void *memory, int64_t count, size_t size) {
  if (!memory) return;
  mn_release(device, memory);
  device->bytes -= (size_t)count * size;
}

void mn_pack(const struct mn_device *device, struct mn_operand *w) {
  (device->real == sizeof(double) ? mn_pack_cpu_fp64 : mn_pack_cpu_fp32)(device, w);
}

mn_status mn_device_write(struct mn_device *device, void *to, const double *from, int64_t count) {
  size_t bytes = (size_t)count * device->real;
  int wide = device->real == sizeof(double);
  float *narrow = wide ? NULL : malloc(bytes);
  if (!wide && !narrow) return mn_fail(MN_NO_MEMORY, "no %.1f MiB of memory left", (double)bytes / 1048576);
  for (int64_t i = 0; i < count && !wide; i++) narrow[i] = (float)from[i];
  mn_status status = mn_copy(device, to, wide ? (const void *)from : narrow, bytes);
  if (status == MN_OK) status = mn_synchronize(device);
  free(narrow);
  return status;
}

mn_status mn_device_read(struct mn_device *device, double *to, const void *from, int64_t count) {
  size_t bytes = (size_t)count * device->real;
  MN_TRY(mn_download(device, to, from, bytes));
  if (device->real == sizeof(double)) return MN_OK;
  /* Floats are widened in place, from the end, so that each is read before it is overwritten. */
  for (int64_t i = count - 1; i >= 0; i--) {
    float narrow;
    memcpy(&narrow, (const char *)to + (size_t)i * sizeof narrow, sizeof narrow);
    to[i] = narrow;
  }
  return MN_OK;
}

const char *mn_device_name(const struct mn_device *device) {
  return device->name;
}
