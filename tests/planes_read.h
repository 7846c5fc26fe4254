/* How tests read an operand's planes, of every kind and from every device, and hold them against the reals
 * that they were written from. */
#ifndef MN_TESTS_PLANES_READ_H
#define MN_TESTS_PLANES_READ_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/planes.h"

/* An operand's planes on the host, as they lie on the device. */
struct planes {
  void *plane[2]; /* the second NULL where there is one */
  int64_t count;
  size_t size; /* of an element */
  int scaled;
  float factor;
  int split; /* ties were rounded away from zero */
};

static inline void *get_bytes(struct mn_device *device, const void *from, size_t bytes) {
  void *out = malloc(bytes);
  assert_non_null(out);
  mn_status status = device->kernels->download(device, out, from, bytes);
  if (status != MN_OK) fail_msg("status %d: %s", status, mn_message());
  return out;
}

static inline struct mn_scale get_scale(struct mn_device *device, const struct mn_scale *from) {
  struct mn_scale *scale = get_bytes(device, from, sizeof *from), out = *scale;
  free(scale);
  return out;
}

static inline void put_scale(struct mn_device *device, struct mn_scale *to, struct mn_scale scale) {
  mn_status status = device->kernels->copy(device, to, &scale, sizeof scale);
  if (status == MN_OK) status = device->kernels->synchronize(device);
  if (status != MN_OK) fail_msg("status %d: %s", status, mn_message());
}

static inline struct planes get_planes(struct mn_device *device, const struct mn_operand *o) {
  struct planes p = {.count = o->rows * o->cols,
                     .size = device->plane,
                     .scaled = o->scale != NULL,
                     .factor = 1,
                     .split = o->split};
  for (int i = 0; i < 2; i++)
    if (o->planes[i]) p.plane[i] = get_bytes(device, o->planes[i], (size_t)p.count * p.size);
  if (p.scaled) p.factor = get_scale(device, o->scale).factor;
  return p;
}

static inline void free_planes(struct planes *p) {
  free(p->plane[0]), free(p->plane[1]);
}

static inline float fp16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float size = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
  if (exponent == 31) size = fraction ? NAN : INFINITY;
  return bits & 0x8000 ? -size : size;
}

static inline float bf16_value(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* Element i of a plane, which on the CPU is the float whose value it is. */
static inline float plane_at(const struct planes *p, int which, int64_t i) {
  if (p->size == sizeof(float)) return ((const float *)p->plane[which])[i];
  const uint16_t bits = ((const uint16_t *)p->plane[which])[i];
  return p->scaled ? fp16_value(bits) : bf16_value(bits);
}

/* The value that the planes stand for. */
static inline double planes_value(const struct planes *p, int64_t i) {
  double sum = plane_at(p, 0, i);
  if (p->plane[1]) sum += plane_at(p, 1, i);
  return sum / p->factor;
}

static inline int same_float(float a, float b) {
  return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* How many elements are not exactly what rounding these reals gives. */
static inline int64_t wrongly_rounded(const struct planes *p, const float *reals) {
  int64_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
  for (int64_t i = 0; i < p->count; i++) {
    const float value = p->scaled ? reals[i] * p->factor : reals[i];
    const float high = p->scaled ? mn_to_fp16(value) : p->split ? mn_to_upper_half(value) : mn_to_bf16(value);
    wrong += !same_float(plane_at(p, 0, i), high) ||
             (p->plane[1] && !same_float(plane_at(p, 1, i), mn_to_fp16(value - high)));
  }
  return wrong;
}

/* An operand's reals, of a weight that is split too. */
static inline float *get_reals(struct mn_device *device, const struct mn_operand *o) {
  const size_t bytes = (size_t)(o->rows * o->cols) * sizeof(float);
  if (!o->low) return get_bytes(device, o->real, bytes);
  void *joined;
  mn_status status = device->kernels->allocate(device, &joined, bytes);
  if (status == MN_OK) status = device->kernels->narrow(device, joined, o, 0, o->rows * o->cols);
  if (status != MN_OK) fail_msg("status %d: %s", status, mn_message());
  float *reals = get_bytes(device, joined, bytes);
  device->kernels->release(device, joined);
  return reals;
}

/* The same of an operand's own reals, on the device; planes that it does not have are not wrong. */
static inline int64_t wrong_planes(struct mn_device *device, const struct mn_operand *o) {
  if (!o->planes[0]) return 0;
  struct planes p = get_planes(device, o);
  float *reals = get_reals(device, o);
  const int64_t wrong = wrongly_rounded(&p, reals);
  free(reals);
  free_planes(&p);
  return wrong;
}

#endif
