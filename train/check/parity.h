/* `minnow parity`: the cases of a file (train/check/cases.h) on a device and in a precision, and the error of
 * each tensor. */
#ifndef MN_TRAIN_CHECK_PARITY_H
#define MN_TRAIN_CHECK_PARITY_H

#include <stdio.h>

#include "engine/context.h"

/* Runs every case of `path` and writes a line a tensor to `out`, or one JSON object. A tensor's error is
 * ‖a − e‖/‖e‖, or ‖a‖/√elements where all of e is zero. `tolerance` ≤ 0: the precision's own
 * (mn_parity_tolerance). MN_FAILED when a tensor is past its tolerance (a NaN is).
 *
 * A case whose groups lie far from zero gets the bound that float can hold, where that is wider: 4·2⁻²⁴·κ
 * (2⁻⁵³ in fp64), κ the largest |mean|·rstd of its groups of two or more channels: z is rounded to that unit
 * at the size of the mean, rstd divides by the deviation, and a gradient meets ẑ twice.
 *
 * Kinks: where rounding moved a v of no more than tolerance·max|v| across 0, the slope there is another one,
 * and no gradient is right on both sides. Such an element is counted, its dy set to 0, and the gradients
 * expected for that dy are computed in fp64 on the CPU, which the same file checks to 1e-10. */
mn_status mn_parity(FILE *out, struct mn_context *context, const char *path, double tolerance, int json);

/* fp64 1e-10, fp32 1e-5, and for the GEMMs' rounded inputs tf32 (2⁻¹¹) and bf16 (2⁻⁹) eight units: 3.9e-3 and
 * 1.6e-2. */
double mn_parity_tolerance(enum mn_precision precision);

/* The measure above. */
double mn_parity_error(const double *actual, const double *expected, int64_t count);

#endif
