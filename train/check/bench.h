/* `minnow bench`: what a step costs, beside what the device can do, measured in the same run. */
#ifndef MN_TRAIN_CHECK_BENCH_H
#define MN_TRAIN_CHECK_BENCH_H

#include <stdio.h>

#include "train/pass.h"

struct mn_bench_config {
  struct mn_model_config model; /* without a head, under mse */
  int64_t batch;
  uint64_t seed;
  double momentum, weight_decay;
  int plans; /* the fusion plans beside each other, forward, forward+backward and step */
};

/* Times, on random data, medians after a warm-up: the forward (from x to y, nothing saved for a backward;
 * every y, the last one too, in the form that the next GEMM reads: bfloat16 alone in bf16), forward +
 * backward (gradients stored, no update, x's gradient not computed), and the whole training step (forward,
 * loss, backward, SGD), beside the library's bare GEMMs of the first block (forward, dx, dW), where there is
 * a GEMM of our own its times for the same three products, and the rate of a device-to-device copy. The six
 * plans run on the library's GEMMs, so that they differ in fusion alone; a seventh row is the block with its
 * epilogues in a GEMM of our own, where there is one. To `out` as text or one JSON object (forward_ms,
 * forward_backward_ms, step_ms, gemm_forward_ms, gemm_dx_ms, gemm_dw_ms, own_gemm_forward_ms …, gemm_tflops,
 * copy_gb_per_s …, plans). */
mn_status mn_bench(FILE *out, struct mn_context *context, const struct mn_bench_config *config, int json);

#endif
