/* The matrix product on the CPU: OpenBLAS, then the epilogue over the stored matrix; and the column sums,
 * whose sinks are epilogues. */
#include <limits.h>
#include <string.h>

#include "kernels/blas.h"
#include "kernels/device.h"
#include "kernels/real.h"

#ifdef MN_DOUBLE
#define GEMM cblas_dgemm
#else
#define GEMM cblas_sgemm
#endif

/* d = alpha·a·b + beta·d. */
static void product(enum mn_form form, real *d, real alpha, const real *a, const real *b, int64_t rows,
                    int64_t cols, int64_t depth, real beta) {
  CBLAS_TRANSPOSE ta = form == MN_TN ? CblasTrans : CblasNoTrans,
                  tb = form == MN_NT ? CblasTrans : CblasNoTrans;
  int lda = (int)(form == MN_TN ? rows : depth), ldb = (int)(form == MN_NT ? depth : cols);
  mn_team_limit();
  mn_blas()->GEMM(CblasRowMajor, ta, tb, (int)rows, (int)cols, (int)depth, alpha, a, lda, b, ldb, beta, d,
                  (int)cols);
}

mn_status MN_CPU(mn_epilogue)(struct mn_device *device, void *d, int64_t rows, int64_t cols,
                              const struct mn_epilogue *epilogue) {
  int64_t count = rows * cols;
  switch (epilogue->kind) {
  case MN_STORE:
    if (epilogue->into != d) memcpy(epilogue->into, d, (size_t)count * sizeof(real));
    return MN_OK;
  case MN_ADD:
    if (*device->nonfinite) return MN_OK;
#pragma omp parallel for simd schedule(static) if (count > MN_PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) ((real *)epilogue->into)[i] += ((const real *)d)[i];
    return MN_OK;
  case MN_UPDATE:
    MN_REQUIRE(rows == epilogue->update->w->rows && cols == epilogue->update->w->cols);
    MN_CPU(mn_rule)(device, epilogue->update, d);
    return MN_OK;
  case MN_REDUCE_SCATTER:
    MN_TRY(device->kernels->reduce_scatter(device, epilogue->piece, d, rows, cols));
    return MN_CPU(mn_epilogue)(device, epilogue->piece, rows, epilogue->share, epilogue->then);
  case MN_REDUCE_SCATTER_ROWS:
    MN_REQUIRE(epilogue->into == d);
    return device->kernels->reduce_scatter_rows(device, d, count);
  default:
    MN_REQUIRE(mn_is_block(epilogue->kind));
    MN_REQUIRE(rows == epilogue->block->rows && cols == epilogue->block->channels);
    MN_CPU(mn_block)(device, d, epilogue);
    return MN_OK;
  }
}

mn_status MN_CPU(mn_column_sums)(struct mn_device *device, void *sums, int64_t chunks, int64_t channels,
                                 const struct mn_epilogue *const sinks[3], const struct mn_reduction *loss) {
  for (int i = 0; i < 3; i++) {
    if (!sinks[i]) continue;
    /* The sum overwrites the first chunk's. */
    real *total = (real *)sums + i * chunks * channels;
    for (int64_t k = 1; k < chunks; k++)
      for (int64_t c = 0; c < channels; c++) total[c] += total[k * channels + c];
    MN_TRY(MN_CPU(mn_epilogue)(device, total, 1, channels, sinks[i]));
  }
  return loss ? MN_CPU(mn_reduce)(device, loss) : MN_OK;
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
