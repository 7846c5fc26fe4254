/* Loaded before minnow by tests/determinism.sh (LD_PRELOAD): OpenBLAS computes every product with one thread,
 * whatever the number of minnow's own. Built with OpenMP it takes OpenMP's number and heeds no variable of
 * its own. */
#include <cblas.h>
#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>

#define GEMM(name, real)                                                                                     \
  void name(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, blasint m, blasint n,  \
            blasint k, real alpha, const real *a, blasint lda, const real *b, blasint ldb, real beta,        \
            real *c, blasint ldc) {                                                                          \
    static __typeof__(&name) theirs;                                                                         \
    if (!theirs && !(theirs = (__typeof__(&name))dlsym(dlopen("libopenblas.so.0", RTLD_NOW), #name)))        \
      abort();                                                                                               \
    const int threads = omp_get_max_threads();                                                               \
    omp_set_num_threads(1);                                                                                  \
    theirs(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                     \
    omp_set_num_threads(threads);                                                                            \
  }

GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)
