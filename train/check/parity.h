/* `minnow parity`: the cases of a file (train/check/cases.h) on a device and in a precision, and the error of
 * each tensor. */
#ifndef MN_TRAIN_CHECK_PARITY_H
#define MN_TRAIN_CHECK_PARITY_H

#include <stdio.h>

#include "kernels/device.h"

/* Runs every case of `path` and writes a line a tensor to `out`, or one JSON object. A tensor's error is
 * ‖a − e‖/‖e‖, or ‖a‖/√elements where all of e is zero. `tolerance` ≤ 0: the precision's own
 * (mn_parity_tolerance). MN_FAILED: a tensor is past its tolerance, or holds a NaN; and the errors of
 * mn_cases_count and mn_case_read.
 *
 * Where the groups of a case lie far from zero, its tolerance is at least 4·2⁻²⁴·κ (2⁻⁵³ in fp64), κ the
 * largest |mean|·rstd, for groups of two or more channels: the rounding of z is relative to the mean, and
 * normalising divides it by the much smaller deviation.
 *
 * Kinks: where rounding took a v of no more than tolerance·max|v| across 0, the activation's slope differs
 * and so does the gradient. Such an element is counted and its dy set to 0; the gradients expected for that
 * dy are computed in fp64 on the CPU. */
mn_status mn_parity(FILE *out, struct mn_device *device, const char *path, double tolerance, int json);

/* fp64 1e-10, fp32 and fp16x3 1e-5; tf32, fp16 and bf16, whose GEMM inputs are rounded by up to 2⁻¹¹, 2⁻¹¹
 * and 2⁻⁹, eight times that: 3.9e-3 and 1.6e-2. */
double mn_parity_tolerance(enum mn_precision precision);

/* The error of a tensor, as mn_parity defines it: actual and expected are [count]. */
double mn_parity_error(const double *actual, const double *expected, int64_t count);

#endif
