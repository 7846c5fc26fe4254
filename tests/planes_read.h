/* How tests read an operand's planes, of every kind and from every device, and hold them against the reals
 * that they were written from. */
#ifndef MN_TESTS_PLANES_READ_H
#define MN_TESTS_PLANES_READ_H

#include "tests/check.h"

#include "kernels/planes.h"

/* Numbers of every kind, to a float, a bfloat16 and a float16: ties, both ways, and what is beside them; the largest
 * finite ones, those that round to infinity and those that just do not; subnormals and their ties; infinities and NaN.
 */
enum { SPECIAL = 52 };
static inline double special(int64_t i) {
  static const double numbers[4][13] = {
      {1, 0, NAN, 0.1, -0.0, 1e-12, 65504, 65519, 65520, 65535, -65520, 3.14159, 0x1p-60},
      {0x1p-14, 0x1p-24, 0x1p-25, INFINITY, 0x1.01p0, 0x1.03p0, 0x1.02p0, -0x1p128, -0x1p-25, 0x1p-134,
       0x1p-140, 0x1p-149, 0x1p-150},
      {-INFINITY, -0x1.01p0, 0x1.002p0, 0x1.006p0, 0x1.8p-25, 0x1.0101p0, 0x1.0021p0, -0x1.8p-24, 0x1.8p-134,
       0x1.8p-149, 0x1.004p-14, 0x1.ffcp-15, 0x1.ffep-15},
      {0x1.010002p0, 0x1.00fffep0, 0x1.000001p0, 0x1.000003p0, 0x1.123456p3, -0x1.000001p0, 0x1.fffffep127,
       0x1.ffffffp127, -0x1.fedcbap-9, 0x1.000002p-126, 0x1.0000010000001p0, 0x1.fffffefffffffp127,
       -0x1.0000000000001p-150}};
  return numbers[i % SPECIAL / 13][i % 13];
}

/* An operand's planes on the host, as they lie on the device. */
struct planes {
  void *plane[2]; /* the second NULL where there is one */
  int64_t count;
  size_t size; /* of an element */
  int scaled;
  float factor;
  int split; /* ties were rounded away from zero */
};

static inline struct mn_scale get_scale(struct mn_device *device, const struct mn_scale *from) {
  struct mn_scale *scale = get_bytes(device, from, sizeof *from), out = *scale;
  free(scale);
  return out;
}

static inline void put_scale(struct mn_device *device, struct mn_scale *to, struct mn_scale scale) {
  MUST(device->kernels->copy(device, to, &scale, sizeof scale));
  MUST(device->kernels->synchronize(device));
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

/* Element i of a plane, which on the CPU is the float whose value it is. */
static inline float plane_at(const struct planes *p, int which, int64_t i) {
  if (p->size == sizeof(float)) return ((const float *)p->plane[which])[i];
  const uint16_t bits = ((const uint16_t *)p->plane[which])[i];
  return p->scaled ? half_value(bits) : from_bits((uint32_t)bits << 16);
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
  MUST(device->kernels->allocate(device, &joined, bytes));
  MUST(device->kernels->narrow(device, joined, o, 0, o->rows * o->cols));
  float *reals = get_bytes(device, joined, bytes);
  device->kernels->release(device, joined);
  return reals;
}

/* An operand's planes are its reals, rounded under the factor that they have or, split, halves away from
 * zero; planes that it does not have are not wrong. */
static inline void assert_planes(struct mn_device *device, const char *what, const struct mn_operand *o) {
  if (!o->planes[0]) return;
  struct planes p = get_planes(device, o);
  float *reals = get_reals(device, o);
  const int64_t wrong = wrongly_rounded(&p, reals);
  free(reals);
  free_planes(&p);
  if (wrong) WRONG("%s: %ld elements of the planes are not its reals, rounded", what, (long)wrong);
}

/* The largest |value| of an operand's reals. */
static inline double largest_real(const struct memory *m, const struct mn_operand *o) {
  double *values = read_reals(m, o->real, o->rows * o->cols), largest = 0;
#pragma omp parallel for reduction(max : largest)
  for (int64_t i = 0; i < o->rows * o->cols; i++) largest = fmax(largest, fabs(values[i]));
  free(values);
  return largest;
}

/* Planes that nobody has written yet, where the device's GEMMs read them, and a scale with this factor. */
static inline void take_planes(struct memory *m, struct mn_operand *o, float factor) {
  const struct mn_scale scale = {factor, 0};
  for (int i = 0; i < m->device->planes; i++)
    o->planes[i] = poisoned(m, (size_t)(o->rows * o->cols) * m->device->plane);
  if (m->device->scaled) o->scale = put_bytes(m, &scale, sizeof scale);
  o->stale = 1;
}

#endif
