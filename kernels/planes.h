/* The scales of planes, the choice of their factors, and the roundings of planes on the CPU, which keeps a
 * plane's value in a float, so that products read it. */
#ifndef MN_KERNELS_PLANES_H
#define MN_KERNELS_PLANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/types.h"

/* The scale of a float16 operand, in the device's memory: its planes hold factor·value. A GEMM's result is
 * divided by both operands' factors, exactly, since they are powers of two. */
struct mn_scale {
  float factor;
  float largest; /* the largest |value| written since mn_rescale; NaN is not counted */
};

/* A factor is a power of two that brings the largest value below 2^(16 − headroom); float16 ends at 65504.
 * Values may grow by 2^headroom before the next factor is chosen: x's is chosen from the values that it
 * scales, dz's from those of the step before. W keeps its factor while it fits, so a W that shrinks by more
 * than about 2^10 in training loses bits. */
enum { MN_HEADROOM_X = 1, MN_HEADROOM_DZ = 8, MN_HEADROOM_W = 7 };
#define MN_FACTOR_MOST 0x1p60f /* and 1/MN_FACTOR_MOST: so that a product of two stays a float */
#define MN_FP16_MOST 65504.0f

/* `value` rounded to the nearest bfloat16, ties to even, in 16 bits, the GPU's form; it must not be a NaN. */
static inline uint16_t mn_bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* A float in two halves: the bfloat16 nearest to it, ties away from zero, and its lower 16 bits, which as a
 * signed number are the distance of the float's bits from the bfloat16's. At an exact tie rounding to even
 * would leave two floats with the same halves. A finite float may have an infinite upper half, as with any
 * rounding to bfloat16, and still comes back. Every NaN becomes one whose upper half, which is read alone
 * too, is a NaN: the carry of rounding would make minus zero of the GPU's own. The lower half is the low 16
 * bits of mn_split_bits. */
MN_EVERYWHERE static inline uint32_t mn_split_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return value != value ? 0x7fff0000u : bits;
}
MN_EVERYWHERE static inline uint16_t mn_upper_half(float value) {
  return (uint16_t)((mn_split_bits(value) + 0x8000u) >> 16);
}
MN_EVERYWHERE static inline float mn_join_halves(uint16_t high, uint16_t low) {
  const uint32_t bits = ((uint32_t)high << 16) + (uint32_t)(int32_t)(int16_t)low;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The bfloat16's value; infinities and NaN stay what they are. */
static inline float mn_to_bf16(float value) {
  return value != value ? value : mn_join_halves(mn_bf16_bits(value), 0);
}

/* The upper half's value. */
static inline float mn_to_upper_half(float value) {
  return mn_join_halves(mn_upper_half(value), 0);
}

/* `value` rounded to the nearest float16, ties to even: infinite from 65520 on. Below 2⁻¹⁴ float16's are
 * multiples of 2⁻²⁴, to which a sum with 0.5 is rounded. */
static inline float mn_to_fp16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = (bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u;
  float normal, small = copysignf((fabsf(value) + 0.5f) - 0.5f, value);
  memcpy(&normal, &rounded, sizeof normal);
  if (fabsf(value) < 0x1p-14f) return small;
  if (fabsf(value) < 65520.0f) return normal;
  return value + copysignf(INFINITY, value); /* NaN stays NaN */
}

/* The element of a first plane. */
static inline float mn_to_plane(enum mn_plane_kind kind, float value, float factor) {
  return kind == MN_PLANES_BF16 ? mn_to_bf16(value) : mn_to_fp16(value * factor);
}

/* The element of this operand's first plane. */
static inline float mn_to_plane_of(const struct mn_device *device, const struct mn_operand *o, float value,
                                   float factor) {
  return o->split ? mn_to_upper_half(value) : mn_to_plane(device->plane_kind, value, factor);
}

/* The larger of the two: `largest` so far, and |value| if that is finite. */
MN_EVERYWHERE static inline float mn_scale_larger(float largest, float value) {
  const float size = fabsf(value), counted = size < INFINITY ? size : 0;
  return counted > largest ? counted : largest;
}

/* The factor of struct mn_scale for this largest |value|; `factor` if it is 0 or not finite. */
MN_EVERYWHERE static inline float mn_scale_factor(float largest, int headroom, float factor) {
  if (!(largest > 0 && largest < INFINITY)) return factor;
  const float found = ldexpf(1, 15 - headroom - ilogbf(largest));
  return fminf(fmaxf(found, 1 / MN_FACTOR_MOST), MN_FACTOR_MOST);
}

/* The factor under which a dz is written next, by the largest |dz| that was written under the last. */
MN_EVERYWHERE static inline float mn_scale_next(const struct mn_scale *dz) {
  return mn_scale_factor(dz->largest, MN_HEADROOM_DZ, dz->factor);
}

#endif
