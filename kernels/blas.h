/* OpenBLAS's memory. A product packs its operands into buffers, which OpenBLAS maps once and keeps for the
 * life of the process: one for each of its threads, most of them before main, and one for the caller. If a
 * mapping fails, OpenBLAS retries for ever, so memory for all of them is tried here first, with each thread's
 * stack, and again once the threads have started. */
#ifndef MN_KERNELS_BLAS_H
#define MN_KERNELS_BLAS_H

#include "kernels/status.h"

/* Has OpenBLAS take the buffers, and OpenMP the threads, that products of any size need under
 * omp_get_max_threads(), so that no later one asks for more. Any thread may call it, as often as it likes.
 * Threads that compute products side by side need a buffer more each. MN_NO_MEMORY, before any is taken. */
MN_C mn_status mn_blas_take_buffers(void);

#endif
