/* `minnow bench`: what a step costs, beside what the device can do, measured in the same run. */
#ifndef MN_TRAIN_CHECK_BENCH_H
#define MN_TRAIN_CHECK_BENCH_H

#include <stdio.h>

#include "train/optimizer.h"
#include "train/pass.h"

struct mn_bench_config {
  struct mn_model_config model;
  int64_t batch;
  uint64_t seed;
  struct mn_optimizer_config optimizer;
  int plans; /* the fusion plans beside each other, forward, forward+backward and step */
};

/* Times on random data, as medians after a warm-up:
 *
 * - forward: from x to y, nothing saved for a backward; every y, the last one too, in the form that the next
 *   GEMM reads (in bf16 bfloat16 alone);
 * - forward + backward: gradients stored, no update, x's gradient not computed;
 * - training step: forward, loss, backward, update;
 * - GEMMs: the three of the first block alone (forward, dx, dW), by the library, and by the GEMM of our own
 *   where there is one; of two planes, which no library takes, by the GEMM of our own alone;
 * - copy: from device memory to device memory.
 *
 * With `plans`, the six plans run on the library's GEMMs, so that they differ in fusion alone; a seventh row
 * is the block with its epilogues in a GEMM of our own, where there is one. Writes text to `out`, or one JSON
 * object (forward_ms, forward_backward_ms, step_ms, gemm_forward_ms, gemm_dx_ms, gemm_dw_ms,
 * own_gemm_forward_ms …, gemm_tflops, copy_gb_per_s …, plans). MN_FAILED: values became non-finite, so that
 * updates did nothing; MN_NO_MEMORY. */
mn_status mn_bench(FILE *out, struct mn_device *device, const struct mn_bench_config *config, int json);

#endif
