/* OpenBLAS, loaded when the first CPU is opened. As soon as it is loaded it maps 128 MiB for each of its
 * threads, and tries for ever if it cannot have them: a command that computes nothing does without. */
#ifndef MN_KERNELS_BLAS_H
#define MN_KERNELS_BLAS_H

#include <cblas.h>

#include "kernels/status.h"

/* The functions that minnow calls. */
#define MN_BLAS(F)                                                                                           \
  F(cblas_sgemm)                                                                                             \
  F(cblas_dgemm)                                                                                             \
  F(openblas_set_num_threads)                                                                                \
  F(openblas_get_num_threads)                                                                                \
  F(openblas_get_parallel)                                                                                   \
  F(openblas_get_config)                                                                                     \
  F(openblas_get_corename)

struct mn_blas {
#define MN_BLAS_MEMBER(name) __typeof__(&name) name;
  MN_BLAS(MN_BLAS_MEMBER)
};

/* NULL if it is not loaded. */
const struct mn_blas *mn_blas(void);

#endif
