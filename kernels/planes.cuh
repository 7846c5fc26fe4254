/* Planes on CUDA: how kernels round values to them and store them. */
#ifndef MN_KERNELS_PLANES_CUH
#define MN_KERNELS_PLANES_CUH

#include <cuda_fp16.h>

#include "kernels/cuda.cuh"
#include "kernels/planes.h"

/* An operand's planes as a kernel's argument. */
struct mn_planes {
  enum mn_plane_kind kind;
  uint16_t *high, *low; /* low: MN_PLANES_FP16X2 alone */
  struct mn_scale *scale;
};

/* From element `offset` on; of no operand, or one without planes, MN_NO_PLANES. */
static inline mn_planes mn_planes_of(const struct mn_device *device, const struct mn_operand *o,
                                     int64_t offset = 0) {
  if (!o || !o->planes[0]) return {};
  return {device->plane_kind, static_cast<uint16_t *>(o->planes[0]) + offset,
          o->planes[1] ? static_cast<uint16_t *>(o->planes[1]) + offset : NULL, o->scale};
}

/* The planes with their kind as a constant, so that the compiler removes what it does not need. */
template <enum mn_plane_kind Kind> static MN_GPU mn_planes mn_planes_as(mn_planes p) {
  p.kind = p.high ? Kind : MN_NO_PLANES;
  if (Kind != MN_PLANES_FP16X2) p.low = NULL;
  if (Kind == MN_PLANES_BF16) p.scale = NULL;
  return p;
}

/* The factor, to be loaded once for many stores. */
static MN_GPU float mn_planes_factor(const mn_planes &p) {
  return p.scale ? p.scale->factor : 1.0f;
}

/* To nearest, ties to even; NaN stays NaN. Two in one instruction. */
template <int W> static MN_GPU void mn_to_bf16(uint16_t (&out)[W], const float (&in)[W]) {
  MN_UNROLL(int i = 0; i < W; i += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(in[i], i + 1 < W ? in[i + 1] : 0.0f);
    out[i] = __bfloat16_as_ushort(pair.x);
    if (i + 1 < W) out[i + 1] = __bfloat16_as_ushort(pair.y);
  }
}

/* The halves of split floats. */
template <int W, typename Real>
static MN_GPU void mn_split(uint16_t (&high)[W], uint16_t (&low)[W], const Real (&values)[W]) {
  MN_UNROLL(int i = 0; i < W; i++) {
    const float value = (float)values[i];
    high[i] = mn_upper_half(value), low[i] = (uint16_t)mn_split_bits(value);
  }
}

/* The same of two floats, a word for each half, in fewer instructions: __byte_perm picks bytes of two words;
 * and the floats again. */
static MN_GPU void mn_split_pair(uint32_t &high, uint32_t &low, float a, float b) {
  const uint32_t bits[2] = {mn_split_bits(a), mn_split_bits(b)};
  high = __byte_perm(bits[0] + 0x8000u, bits[1] + 0x8000u, 0x7632);
  low = __byte_perm(bits[0], bits[1], 0x5410);
}
static MN_GPU void mn_join_pair(float &a, float &b, uint32_t high, uint32_t low) {
  a = __uint_as_float((high << 16) + (uint32_t)(int32_t)(int16_t)low);
  b = __uint_as_float((high & 0xffff0000u) + (uint32_t)((int32_t)low >> 16));
}

/* The same to float16, and what rounding left. */
template <int W> static MN_GPU void mn_to_fp16(uint16_t (&out)[W], float (&rest)[W], const float (&in)[W]) {
  MN_UNROLL(int i = 0; i < W; i += 2) {
    const __half2 pair = __floats2half2_rn(in[i], i + 1 < W ? in[i + 1] : 0.0f);
    out[i] = __half_as_ushort(pair.x), rest[i] = in[i] - __low2float(pair);
    if (i + 1 < W) out[i + 1] = __half_as_ushort(pair.y), rest[i + 1] = in[i + 1] - __high2float(pair);
  }
}

/* A store of the first n of W elements; Once: whole, with the streaming hint. */
template <int W, bool Once>
static MN_GPU void mn_plane_store(uint16_t *to, const uint16_t (&bits)[W], int64_t n) {
  if constexpr (Once)
    mn_store_once<W>(to, bits);
  else
    mn_store_some<W>(to, bits, n);
}

/* Stores the first n of W values, from index `at` on. */
template <int W, bool Once = false, typename Real>
static MN_GPU void mn_planes_store(const mn_planes &p, float factor, int64_t at, const Real (&values)[W],
                                   int64_t n = W) {
  float scaled[W];
  uint16_t bits[W];
  if (p.kind == MN_NO_PLANES) return;
  MN_UNROLL(int i = 0; i < W; i++)
    scaled[i] = p.kind == MN_PLANES_BF16 ? (float)values[i] : (float)values[i] * factor;
  if (p.kind == MN_PLANES_BF16) {
    mn_to_bf16<W>(bits, scaled);
    return mn_plane_store<W, Once>(p.high + at, bits, n);
  }
  float rest[W], nothing[W];
  mn_to_fp16<W>(bits, rest, scaled);
  mn_plane_store<W, Once>(p.high + at, bits, n);
  if (p.kind != MN_PLANES_FP16X2) return;
  mn_to_fp16<W>(bits, nothing, rest);
  mn_plane_store<W, Once>(p.low + at, bits, n);
}

/* 16 bits that a pointer leads to in place of reals, as a plane without a scale. MN_NO_PLANES or NULL for no
 * plane. */
template <typename Real>
static __host__ __device__ __forceinline__ mn_planes mn_planes_at(Real *at, enum mn_plane_kind kind) {
  if (!kind || !at) return {};
  return {kind, reinterpret_cast<uint16_t *>(at), NULL, NULL};
}

/* From reals or, if they are narrow, from such a plane. */
template <int W, typename Real>
static MN_GPU void mn_load_narrow(Real (&values)[W], const Real *from, int64_t at,
                                  enum mn_plane_kind narrow) {
  uint16_t bits[W];
  if (!narrow) return mn_load<W>(values, from + at);
  mn_load<W>(bits, reinterpret_cast<const uint16_t *>(from) + at);
  MN_UNROLL(int i = 0; i < W; i++)
    values[i] = narrow == MN_PLANES_BF16 ? __uint_as_float((uint32_t)bits[i] << 16)
                                         : __half2float(__ushort_as_half(bits[i]));
}

/* The values as such a plane holds them. */
template <int W, typename Real>
static MN_GPU void mn_plane_round(Real (&values)[W], enum mn_plane_kind kind) {
  float rest[W], floats[W];
  uint16_t bits[W];
  if (kind == MN_NO_PLANES) return;
  MN_UNROLL(int i = 0; i < W; i++) floats[i] = (float)values[i];
  if (kind == MN_PLANES_BF16)
    mn_to_bf16<W>(bits, floats);
  else
    mn_to_fp16<W>(bits, rest, floats);
  MN_UNROLL(int i = 0; i < W; i++)
    values[i] = kind == MN_PLANES_BF16 ? __uint_as_float((uint32_t)bits[i] << 16) : floats[i] - rest[i];
}

/* Stores an operand's forms, those that there are. */
template <int W, typename Real>
static MN_GPU void mn_forms_store(Real *real, const mn_planes &planes, float factor, int64_t at,
                                  const Real (&values)[W], int64_t n = W) {
  if (real) mn_store_some<W>(real + at, values, n);
  mn_planes_store<W>(planes, factor, at, values, n);
}

/* The largest of the warp's, in every lane. */
static MN_GPU float mn_lanes_largest(float value) {
  MN_UNROLL(int offset = 16; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(MN_CUDA_WARP, value, offset));
  return value;
}

/* A weight as a kernel's argument: reals with the planes beside them, or the two halves of a split one. */
template <typename Real> struct mn_weight {
  Real *real;
  mn_planes planes;
  uint16_t *low; /* the lower halves; the upper ones are planes.high. NULL if not split */
};

/* From element `offset` on. The bfloat16 plane of a split weight is its upper half; one beside reals, of a
 * caller's weight, is rounded to even. */
template <typename Real>
static inline mn_weight<Real> mn_weight_of(const struct mn_device *device, const struct mn_operand *w,
                                           int64_t offset = 0) {
  const mn_planes planes = mn_planes_of(device, w, offset);
  MN_REQUIRE(w->low ? !w->real && sizeof(Real) == sizeof(float) : w->real != NULL);
  return {w->real ? static_cast<Real *>(w->real) + offset : NULL, planes, w->low ? w->low + offset : NULL};
}

/* The first n of W values, from index `at` on. */
template <int W, typename Real>
static MN_GPU void mn_weight_load(Real (&values)[W], const mn_weight<Real> &w, int64_t at, int64_t n) {
  if (w.low) {
    uint16_t high[W], low[W];
    mn_load_some<W>(high, w.planes.high + at, n);
    mn_load_some<W>(low, w.low + at, n);
    MN_UNROLL(int i = 0; i < W; i++) values[i] = mn_join_halves(high[i], low[i]);
  } else {
    mn_load_some<W>(values, w.real + at, n);
  }
}
template <int W, typename Real>
static MN_GPU void mn_weight_store(const mn_weight<Real> &w, float factor, int64_t at,
                                   const Real (&values)[W], int64_t n) {
  if (w.low) {
    uint16_t high[W], low[W];
    mn_split<W>(high, low, values);
    mn_store_some<W>(w.planes.high + at, high, n);
    mn_store_some<W>(w.low + at, low, n);
  } else {
    mn_forms_store<W>(w.real, w.planes, factor, at, values, n);
  }
}

/* Notes the largest |value| that the warp's lanes wrote: the order does not matter, since the bits of floats
 * that are not negative are ordered as the floats are. All lanes must call it. */
static MN_GPU void mn_scale_note(struct mn_scale *scale, float largest) {
  largest = mn_lanes_largest(largest);
  if (threadIdx.x % 32 == 0 && largest > 0)
    atomicMax(reinterpret_cast<unsigned *>(&scale->largest), __float_as_uint(largest));
}

#endif
