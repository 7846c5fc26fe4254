/* The products of the wheel's library (train/install/wheel.sh), in place of kernels/blas.c and OpenBLAS: the
 * PyTorch that loads it has Fortran's sgemm and dgemm in libtorch_cpu.so, or in what that is linked with.
 * OpenMP is PyTorch's, too. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "kernels/blas.h"
#include "kernels/device.h"

static const char *letter(CBLAS_TRANSPOSE t) {
  return t == CblasTrans ? "T" : "N";
}

/* Fortran's matrices are columns behind each other: a product of rows is theirs of the transposed, in the
 * other order. */
#define PRODUCT(NAME, REAL)                                                                                  \
  static void (*NAME)(const char *ta, const char *tb, const int *m, const int *n, const int *k,              \
                      const REAL *alpha, const REAL *a, const int *lda, const REAL *b, const int *ldb,       \
                      const REAL *beta, REAL *c, const int *ldc);                                            \
  static void multiply_##NAME(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n,       \
                              int k, REAL alpha, const REAL *a, int lda, const REAL *b, int ldb, REAL beta,  \
                              REAL *c, int ldc) {                                                            \
    MN_REQUIRE(order == CblasRowMajor);                                                                      \
    NAME(letter(tb), letter(ta), &n, &m, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc);                      \
  }
PRODUCT(sgemm, float)
PRODUCT(dgemm, double)

const struct mn_blas *mn_blas(void) {
  static const struct mn_blas blas = {.cblas_sgemm = multiply_sgemm, .cblas_dgemm = multiply_dgemm};
  return &blas;
}

/* Debian's has a number behind its name, so it is found among the loaded libraries. */
static int is_torch(struct dl_phdr_info *library, size_t size, void *path) {
  if (!strstr(library->dlpi_name, "/libtorch_cpu.so")) return 0;
  *(const char **)path = library->dlpi_name;
  return 1;
}

mn_status mn_blas_take_buffers(void) {
  const char *path = NULL;
  dl_iterate_phdr(is_torch, &path);
  void *torch = path ? dlopen(path, RTLD_NOLOAD | RTLD_NOW) : NULL;
  if (!torch) return mn_fail(MN_LIBRARY, "libtorch_cpu.so is not loaded: import torch before");
  *(void **)&sgemm = dlsym(torch, "sgemm_"), *(void **)&dgemm = dlsym(torch, "dgemm_");
  dlclose(torch);
  if (!sgemm || !dgemm) return mn_fail(MN_LIBRARY, "%s has no sgemm_ and dgemm_", path);
  return mn_team_start();
}
