/* What the test programs share: a device or a reason to skip, random numbers, device buffers that go back by
 * themselves, and comparisons that NaN fails. */
#ifndef MN_TESTS_CHECK_H
#define MN_TESTS_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tensor.h"
#include "tests/skip.h"

/* A test run on a device; the test gets the device's name as its state. */
#define ON(where, test)                                                                                      \
  { #test ", " where, test, NULL, NULL, (void *)(uintptr_t)(where) }

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The call succeeds. */
#define MUST(call)                                                                                           \
  do {                                                                                                       \
    mn_status must_status_ = (call);                                                                         \
    if (must_status_ != MN_OK) fail_msg("%s: %d, %s", #call, must_status_, mn_message());                    \
  } while (0)

/* A device; a test on a device that is not there is skipped, and says why. */
static inline struct mn_device *open_or_skip(const char *where, const char *precision) {
  struct mn_device *device = NULL;
  mn_status status = mn_device_open(&device, where, precision);
  if (status == MN_NO_DEVICE) SKIP("%s", mn_message());
  if (status != MN_OK) fail_msg("%s, %s: %s", where, precision, mn_message());
  return device;
}

/* `count` numbers uniform on [−bound, bound), a function of the seed; free() them. They are floats' values,
 * so that float and double start from the same ones. */
static inline double *random_values(int64_t count, uint64_t seed, double bound) {
  double *values = malloc((size_t)count * sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)(bound * ((mn_random_word(seed, 1, (uint64_t)i) >> 8) * 0x1p-23 - 1));
  return values;
}

/* Fills a tensor with them. */
static inline void randomise(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed) {
  double *values = random_values(mn_tensor_count(tensor), seed, 1);
  MUST(mn_tensor_write(device, tensor, values));
  free(values);
}

static inline double *zeros(int64_t count) {
  double *out = calloc((size_t)count, sizeof *out);
  assert_non_null(out);
  return out;
}

/* What the bits of a float16 mean. */
static inline float half_value(uint32_t half) {
  int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
  float size = exponent == 31  ? fraction ? NAN : INFINITY
               : exponent == 0 ? ldexpf((float)fraction, -24)
                               : ldexpf((float)(1024 + fraction), exponent - 25);
  return half >> 15 ? -size : size;
}

/* What is in a scaled plane: float16s on CUDA, their values in floats on the CPU; free() it. */
static inline float *read_float16(struct mn_device *device, const void *plane, int64_t count) {
  size_t size = device->plane;
  char *raw = malloc((size_t)count * size);
  float *out = malloc((size_t)count * sizeof *out);
  assert_true(raw && out);
  MUST(device->kernels->download(device, raw, plane, (size_t)count * size));
  for (int64_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(size == sizeof half ? (void *)&half : &out[i], raw + (size_t)i * size, size);
    if (size == sizeof half) out[i] = half_value(half);
  }
  free(raw);
  return out;
}

/* A tensor's values; free() them. */
static inline double *read_values(struct mn_device *device, const struct mn_tensor *tensor) {
  double *out = zeros(mn_tensor_count(tensor));
  MUST(mn_tensor_read(device, tensor, out));
  return out;
}

/* The two widths that kernels come in, and how near to plain double arithmetic one kernel stays. */
static const char *const widths[] __attribute__((unused)) = {"fp64", "fp32"};

static inline double tolerance_of(const struct mn_device *device) {
  return device->precision == MN_FP64 ? 1e-12 : 2e-5;
}

/* ‖a − e‖/‖e‖, or a's rms where e is 0 throughout. */
static inline double distance(const double *a, const double *e, int64_t count) {
  double difference = 0, size = 0, own = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (a[i] - e[i]) * (a[i] - e[i]);
    size += e[i] * e[i];
    own += a[i] * a[i];
  }
  return size == 0 ? sqrt(own / (double)count) : sqrt(difference / size);
}

static inline void assert_close(const char *what, const double *a, const double *e, int64_t count,
                                double tolerance) {
  double error = distance(a, e, count);
  if (!(error <= tolerance)) fail_msg("%s: off by %g, more than %g", what, error, tolerance);
}

/* Reals on the device, all given back by release_all. */
struct memory {
  struct mn_device *device;
  struct {
    void *memory;
    int64_t count;
    size_t size;
  } taken[128];
  int count;
};

static inline void *take_bytes(struct memory *m, int64_t count, size_t size) {
  assert_true(m->count < 128);
  void *out = NULL;
  MUST(mn_device_allocate(m->device, &out, count, size));
  m->taken[m->count].memory = out;
  m->taken[m->count].count = count;
  m->taken[m->count++].size = size;
  return out;
}

/* `count` reals with these values, or, from NULL, full of NaN: what nobody writes then shows. */
static inline void *take_reals(struct memory *m, const double *from, int64_t count) {
  void *out = take_bytes(m, count, m->device->real);
  double *poison = NULL;
  if (!from) {
    poison = malloc((size_t)count * sizeof *poison);
    assert_non_null(poison);
    for (int64_t i = 0; i < count; i++) poison[i] = NAN;
  }
  MUST(mn_device_write(m->device, out, from ? from : poison, count));
  free(poison);
  return out;
}

static inline double *read_reals(const struct memory *m, const void *from, int64_t count) {
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
  MUST(mn_device_read(m->device, out, from, count));
  return out;
}

static inline void release_all(struct memory *m) {
  for (int i = 0; i < m->count; i++)
    mn_device_release(m->device, m->taken[i].memory, m->taken[i].count, m->taken[i].size);
  m->count = 0;
}

/* Reals on the device against doubles. */
static inline void assert_reals(const struct memory *m, const char *what, const void *actual,
                                const double *expected, int64_t count, double tolerance) {
  double *values = read_reals(m, actual, count);
  double error = distance(values, expected, count);
  free(values);
  if (!(error <= tolerance)) fail_msg("%s: off by %g, more than %g", what, error, tolerance);
}

#endif
