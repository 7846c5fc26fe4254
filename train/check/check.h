/* The checks and measurements of `minnow gradcheck`, `minnow parity` and `minnow bench`. */
#ifndef MN_TRAIN_CHECK_CHECK_H
#define MN_TRAIN_CHECK_CHECK_H

#include <stdio.h>

#include "train/optimizer.h"
#include "train/pass.h"

/* What gradcheck and bench run on, and how. */
struct mn_check_config {
  struct mn_model_config model;
  int64_t batch;
  uint64_t seed;
  int has_loss;     /* gradcheck: the loss is model.loss; else Σ dy·y with random dy */
  double tolerance; /* gradcheck: |a − n| ≤ tolerance·max(|a|, |n|, rms of the tensor's gradient) */
  struct mn_optimizer_config optimizer; /* bench */
  int plans; /* bench: the fusion plans beside each other, forward, forward+backward and step */
};

/* `minnow gradcheck`: every parameter's gradient and x's against central differences, through the same tape
 * and kernels as training, on `device`, which must be fp64. Writes one line a tensor to `out`: its elements,
 * the worst error over its bound, the index of that element, its analytic and numeric value, and how many
 * elements were kinks (±h moves a v of some block across 0; they are not compared); or one JSON object. All
 * parameters are random. With a loss, a line `loss` compares the loss computed in training, fused into the
 * last block if it can be, with the one computed in evaluation, to 1e-12. The bound of a gradient that is 0
 * but for rounding (one channel a group) is that rounding. MN_FAILED: a tensor is past its bound, or all of
 * its elements were kinks; MN_USAGE: a slope below 0, for which kinks do not show in y; MN_NO_MEMORY. */
mn_status mn_gradcheck(FILE *out, struct mn_device *device, const struct mn_check_config *config, int json);

/* Cases of `minnow parity`: inputs and results computed elsewhere in float64, one group each in an HDF5 file.
 *
 *   attributes  N I C G eps negative_slope
 *   datasets    x [N, I]  fc.weight [C, I]  fc.bias gn.weight gn.bias [C]  dy [N, C]
 *   expected    z y [N, C]  mean rstd [N, G]  grad/x and grad/ with the four parameters
 *
 * A group with the attribute `steps` is a training run instead: lr momentum weight_decay nesterov, x, target
 * [N, C], weights [N] if the loss has some, initial/ and final/ with the four parameters, losses [steps],
 * after full-batch SGD on the mean squared error. With the attribute optimizer = "adamw" it is by AdamW:
 * beta1, beta2 and adam_eps stand in place of momentum and nesterov. All datasets are float64. */
enum { MN_CASE_ARRAYS = 16 };

struct mn_case {
  int cases; /* how many its file has; stays after mn_case_free */
  char name[64];
  struct mn_model_config model; /* one block: I C G eps slope */
  int64_t rows;                 /* N */
  int steps;                    /* 0 for forward and gradients; else a training run */
  double rate;
  struct mn_optimizer_config optimizer;
  struct {
    char name[32];
    int64_t count;
    double *values;
  } arrays[MN_CASE_ARRAYS];
  int count;
};

/* Case number `index`, from 0 on, of the file in the order of their names, to be freed with mn_case_free.
 * MN_NO_INPUT; MN_BAD_DATA: something is missing, of another type or size, behind a link, in another file, or
 * declared but not stored; MN_NO_MEMORY. */
mn_status mn_case_read(const char *path, int index, struct mn_case *out);
void mn_case_free(struct mn_case *which);

/* The array called `name`, owned by the case, and its elements (count may be NULL). Aborts if the case has no
 * such array, except for weights: NULL. */
double *mn_case_array(const struct mn_case *which, const char *name, int64_t *count);

/* `minnow parity`: runs every case of `path` and writes a line a tensor to `out`, or one JSON object. The
 * error of a tensor is ‖a − e‖/‖e‖, or ‖a‖/√elements if all of e is zero. A `tolerance` ≤ 0 is replaced by
 * device->tolerance. MN_FAILED: a tensor is past its tolerance, or holds a NaN; and the errors of
 * mn_case_read.
 *
 * The tolerance of a case with two or more channels a group is at least 4·2⁻²⁴·κ (2⁻⁵³ in fp64). κ is its
 * largest |mean|·rstd, which is large if groups lie far from zero: the rounding of z is relative to the mean,
 * and normalising divides it by the much smaller deviation.
 *
 * Kinks: if rounding takes a v of no more than tolerance·max|v| across 0, the activation's slope differs and
 * so does the gradient. Such an element is counted and its dy set to 0; the gradients expected for that
 * dy are computed in fp64 on the CPU. */
mn_status mn_parity(FILE *out, struct mn_device *device, const char *path, double tolerance, int json);

/* The error of a tensor, as mn_parity defines it: actual and expected are [count]. */
double mn_parity_error(const double *actual, const double *expected, int64_t count);

/* `minnow bench`: the cost of a step, beside the device's own limits, measured in the same run on random
 * data. Medians after a warm-up:
 *
 * - forward: from x to y, without saving for a backward; every y, the last one too, in the form that the
 *   next GEMM reads (in bf16 bfloat16 alone);
 * - forward + backward: gradients stored, no update, x's gradient not computed;
 * - training step: forward, loss, backward, update;
 * - GEMMs: the three of the first block alone (forward, dx, dW), by the library, and by the GEMM of our own
 *   if there is one; operands of two planes, which no library takes, by the GEMM of our own alone;
 * - copy: from device memory to device memory.
 *
 * With `plans`, the six plans run on the library's GEMMs, so that they differ in fusion alone; a seventh row
 * is the block with its epilogues in a GEMM of our own, if there is one. Writes text to `out`, or one JSON
 * object (forward_ms, forward_backward_ms, step_ms, gemm_forward_ms, gemm_dx_ms, gemm_dw_ms,
 * own_gemm_forward_ms …, gemm_tflops, copy_gb_per_s …, plans). MN_FAILED: values became non-finite, so that
 * updates did nothing; MN_NO_MEMORY. */
mn_status mn_bench(FILE *out, struct mn_device *device, const struct mn_check_config *config, int json);

#endif
