/* bfloat16 on the CPU: the rounding alone. The value stays in a float, so that sgemm can read it. */
#ifndef MN_KERNELS_BF16_H
#define MN_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

/* `value` rounded to the nearest bfloat16, ties to even; infinities and NaN stay what they are. */
static inline float mn_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return value;
  bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

/* The same in 16 bits, the GPU's form; `value` is no NaN. */
static inline uint16_t mn_bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
