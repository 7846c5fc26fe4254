/* The real that a CPU kernel file is compiled for. Each is compiled twice, with and without MN_DOUBLE. */
#ifndef MN_KERNELS_REAL_H
#define MN_KERNELS_REAL_H

#include "kernels/types.h"

#ifdef MN_DOUBLE
typedef double real;
#define MN_CPU(name) name##_cpu_fp64
#else
typedef float real;
#define MN_CPU(name) name##_cpu_fp32
#endif

/* Loops of no more elements run on one thread, because waking the others costs some microseconds. Results do
 * not depend on the number of threads. */
enum { MN_PARALLEL_FROM = 16384 };

/* Sets the nonfinite flag, unless an earlier step has. */
static inline void mn_raise(struct mn_device *device) {
  if (*device->nonfinite == 0) *device->nonfinite = device->mark;
}

#endif
