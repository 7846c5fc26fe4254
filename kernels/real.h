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

#endif
