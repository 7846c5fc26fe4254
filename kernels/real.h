/* The width a CPU kernel file is being compiled for: every one is compiled twice. */
#ifndef MN_KERNELS_REAL_H
#define MN_KERNELS_REAL_H

#ifdef MN_DOUBLE
typedef double real;
#define MN_CPU(name) name##_cpu_fp64
#else
typedef float real;
#define MN_CPU(name) name##_cpu_fp32
#endif

/* Elements from which a loop is worth more than one thread: waking the others costs some microseconds.
 * Results do not depend on how many there are. */
enum { MN_PARALLEL_FROM = 16384 };

#endif
