/* The passes over memory that are not an epilogue, on the CPU. */
#include "kernels/elementwise.h"

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "kernels/real.h"

mn_status MN_CPU(mn_add)(struct mn_device *device, struct mn_operand *y, const void *a, const void *b) {
  (void)device;
  const real *pa = a, *pb = b;
  real *out = y->real;
  float *bf16 = y->bf16;
  int64_t count = y->rows * y->cols;
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) {
    real sum = pa[i] + pb[i];
    if (out) out[i] = sum;
    if (bf16) bf16[i] = mn_to_bf16((float)sum);
  }
  return MN_OK;
}

mn_status MN_CPU(mn_round)(struct mn_device *device, struct mn_operand *operand) {
  (void)device;
  const real *from = operand->real;
  float *bf16 = operand->bf16;
  int64_t count = operand->rows * operand->cols;
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) bf16[i] = mn_to_bf16((float)from[i]);
  operand->stale = 0;
  return MN_OK;
}

mn_status MN_CPU(mn_narrow)(struct mn_device *device, float *out, const void *from, int64_t count) {
  (void)device;
  const real *values = from;
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) out[i] = (float)values[i];
  return MN_OK;
}
