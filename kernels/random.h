/* Random numbers that do not depend on the device: Philox4x32-10 (Salmon et al., SC'11), Random123 on the
 * CPU, cuRAND's device functions on the GPU.
 *
 * Word i of a sequence is lane i mod 4 of Philox(counter = {i/4 low, i/4 high, sequence, 0}, key = {seed low,
 * seed high}). A word u becomes t = (u >> 8)·2⁻²³ − 1, exact in a float, uniform on [−1, 1); a value is
 * bound·t, rounded once. */
#ifndef MN_KERNELS_RANDOM_H
#define MN_KERNELS_RANDOM_H

#include "kernels/types.h"

/* out[i] = bound·t(word first + i), 0 ≤ i < count. In fp64 too t has 24 bits, so that the widths agree. */
typedef mn_status mn_uniform_function(struct mn_device *device, void *out, int64_t count, uint64_t seed,
                                      uint32_t sequence, uint64_t first, double bound);
#define mn_uniform(device, ...) (device)->kernels->uniform(device, __VA_ARGS__)

/* On the host, by Random123: the four words 4·quad … 4·quad + 3 of a sequence, and word `index` of it. */
MN_C void mn_philox(uint64_t seed, uint32_t sequence, uint64_t quad, uint32_t words[4]);
MN_C uint32_t mn_random_word(uint64_t seed, uint32_t sequence, uint64_t index);

/* The sequences, so that no two users share one. */
enum {
  MN_RANDOM_PARAMETER = 0x10000, /* + the parameter's index in the model */
  MN_RANDOM_ORDER = 0x20000,     /* the order of samples */
  MN_RANDOM_INPUTS = 0x30000,    /* synthetic inputs */
  MN_RANDOM_NOISE = 0x40000,     /* synthetic noise */
  MN_RANDOM_TEACHER = 0x50000,   /* + the teacher's parameter */
  MN_RANDOM_CHECK = 0x60000,     /* gradient checks and benchmarks */
  MN_RANDOM_HELD_OUT = 0x70000,  /* the rows that are held out */
};

#endif
