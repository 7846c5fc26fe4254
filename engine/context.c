/* Opening a device by name, and its memory with a count of what is taken. */
#include "engine/context.h"
#include "kernels/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

/* The ordinal in "cuda:N", 0 of "cuda" and "auto"; −1 for anything else. */
static int cuda_ordinal(const char *device) {
  if (strcmp(device, "cuda") == 0 || strcmp(device, "auto") == 0) return 0;
  if (strncmp(device, "cuda:", 5) != 0) return -1;
  size_t digits = strspn(device + 5, "0123456789");
  return digits >= 1 && digits <= 4 && device[5 + digits] == 0 ? atoi(device + 5) : -1;
}

static mn_status open_device(struct mn_device **out, const char *device, enum mn_precision precision) {
  if (strcmp(device, "cpu") == 0) return mn_device_open(out, MN_DEVICE_CPU, 0, precision);
  int ordinal = cuda_ordinal(device);
  if (ordinal < 0)
    return mn_fail(MN_USAGE, "no device is called '%s'; auto, cpu, cuda and cuda:N are", device);
  mn_status status = mn_device_open(out, MN_DEVICE_CUDA, ordinal, precision);
  /* The CPU only where there is no GPU to use: a GPU that fails is an error. */
  if (status != MN_NO_DEVICE || strcmp(device, "auto") != 0) return status;
  return mn_device_open(out, MN_DEVICE_CPU, 0, precision);
}

mn_status mn_context_open(struct mn_context **out, const char *device, const char *precision) {
  *out = NULL;
  enum mn_precision parsed;
  MN_TRY(mn_precision_parse(precision, &parsed));
  struct mn_context *context = calloc(1, sizeof *context);
  if (!context) return mn_fail(MN_NO_MEMORY, "no memory for a context");
  mn_status status = open_device(&context->device, device, parsed);
  if (status != MN_OK) {
    free(context);
    return status;
  }
  context->kernels = context->device->kernels;
  context->precision = parsed;
  context->name = context->device->name;
  *out = context;
  return MN_OK;
}

void mn_context_close(struct mn_context *context) {
  if (!context) return;
  mn_device_close(context->device);
  free(context);
}

mn_status mn_context_allocate_shared(struct mn_context *context, enum mn_sharing with, void **out,
                                     int64_t count, size_t size) {
  MN_REQUIRE(count > 0);
  if ((size_t)count > PTRDIFF_MAX / size)
    return mn_fail(MN_NO_MEMORY, "no memory for %ld elements of %zu bytes; a smaller batch or model would do",
                   (long)count, size);
  const size_t bytes = (size_t)count * size;
  const struct mn_ranks *ranks = context->device->ranks;
  MN_TRY(with == MN_ALONE || !ranks ? context->kernels->allocate(context->device, out, bytes)
                                    : ranks->kernels->allocate_shared(context->device, with, out, bytes));
  context->allocations++;
  context->bytes += bytes;
  return MN_OK;
}

mn_status mn_context_allocate(struct mn_context *context, void **out, int64_t count, size_t size) {
  return mn_context_allocate_shared(context, MN_ALONE, out, count, size);
}

void mn_context_release(struct mn_context *context, void *memory, int64_t count, size_t size) {
  if (!memory) return;
  context->kernels->release(context->device, memory);
  context->bytes -= (size_t)count * size;
}

mn_status mn_context_write(struct mn_context *context, void *to, const double *from, int64_t count) {
  size_t bytes = (size_t)count * context->device->real;
  int wide = context->device->real == sizeof(double);
  float *narrow = wide ? NULL : malloc(bytes);
  if (!wide && !narrow) return mn_fail(MN_NO_MEMORY, "no %.1f MiB of memory left", (double)bytes / 1048576);
  for (int64_t i = 0; i < count && !wide; i++) narrow[i] = (float)from[i];
  mn_status status = context->kernels->upload(context->device, to, wide ? (const void *)from : narrow, bytes);
  if (status == MN_OK) status = context->kernels->synchronize(context->device);
  free(narrow);
  return status;
}

mn_status mn_context_read(struct mn_context *context, double *to, const void *from, int64_t count) {
  size_t bytes = (size_t)count * context->device->real;
  MN_TRY(context->kernels->download(context->device, to, from, bytes));
  if (context->device->real == sizeof(double)) return MN_OK;
  /* Floats are widened in place, from the end, so that none is overwritten before it is read. */
  for (int64_t i = count - 1; i >= 0; i--) {
    float narrow;
    memcpy(&narrow, (const char *)to + (size_t)i * sizeof narrow, sizeof narrow);
    to[i] = narrow;
  }
  return MN_OK;
}
