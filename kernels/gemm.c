/* The matrix product on the CPU: OpenBLAS, then the epilogue over the stored matrix. */
#include <cblas.h>
#include <limits.h>

#include "kernels/kernels.h"
#include "kernels/real.h"

#ifdef MN_DOUBLE
#define CBLAS_GEMM cblas_dgemm
#else
#define CBLAS_GEMM cblas_sgemm
#endif

/* d = alpha·a·b + beta·d. */
static void product(enum mn_form form, real *d, real alpha, const real *a, const real *b, int64_t rows,
                    int64_t cols, int64_t depth, real beta) {
  CBLAS_TRANSPOSE ta = form == MN_TN ? CblasTrans : CblasNoTrans,
                  tb = form == MN_NT ? CblasTrans : CblasNoTrans;
  int lda = (int)(form == MN_TN ? rows : depth), ldb = (int)(form == MN_NT ? depth : cols);
  CBLAS_GEMM(CblasRowMajor, ta, tb, (int)rows, (int)cols, (int)depth, alpha, a, lda, b, ldb, beta, d,
             (int)cols);
}

mn_status MN_CPU(mn_gemm)(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                          const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  int64_t rows = form == MN_TN ? a->cols : a->rows, depth = form == MN_TN ? a->rows : a->cols;
  int64_t cols = form == MN_NT ? b->rows : b->cols;
  MN_REQUIRE(depth == (form == MN_NT ? b->cols : b->rows));
  MN_REQUIRE(rows > 0 && cols > 0 && depth > 0 && rows <= INT_MAX && cols <= INT_MAX && depth <= INT_MAX);
  int planes = device->planes > 0;
  MN_REQUIRE(!planes || (a->planes[0] && b->planes[0] && !a->stale && !b->stale));
  const real *pa = planes ? a->planes[0] : a->real, *pb = planes ? b->planes[0] : b->real;
  const real alpha = planes && device->scaled ? 1 / ((real)a->scale->factor * (real)b->scale->factor) : 1;

  if (epilogue->kind == MN_ADD) {
    if (*device->nonfinite) return MN_OK;
    product(form, epilogue->into, alpha, pa, pb, rows, cols, depth, 1);
    return MN_OK;
  }
  if (epilogue->kind == MN_UPDATE && mn_rule_by_gemm(epilogue->update->rule)) {
    const struct mn_update *update = epilogue->update;
    MN_REQUIRE(rows == update->w->rows && cols == update->w->cols);
    if (*device->nonfinite) return MN_OK;
    product(form, update->m, alpha, pa, pb, rows, cols, depth, (real)update->rule->momentum);
    MN_CPU(mn_rule)(device, update, NULL);
    return MN_OK;
  }
  product(form, epilogue->into, alpha, pa, pb, rows, cols, depth, 0);
  return MN_CPU(mn_epilogue)(device, epilogue->into, rows, cols, epilogue);
}
