/* The losses, as torch.nn.MSELoss and torch.nn.CrossEntropyLoss (mean over the elements; over the rows). */
#ifndef MN_KERNELS_LOSS_H
#define MN_KERNELS_LOSS_H

#include "kernels/types.h"

/* parts[n] = Σ over k of (y − target)², for the N rows of y[N, K]. The loss is reduce(parts)/(N·K). */
typedef mn_status mn_mse_function(struct mn_device *device, void *parts, const void *y, const void *target,
                                  int64_t rows, int64_t cols);

/* dy = (add ? dy : 0) + scale·2·(y − target)/(N·K). */
typedef mn_status mn_mse_gradient_function(struct mn_device *device, void *dy, const void *y,
                                           const void *target, int64_t rows, int64_t cols, double scale,
                                           int add);

/* parts[n] = log Σ exp(y[n]) − y[n, label], computed relative to the row's maximum, so that exp does not
 * overflow; correct[n] = 1 where the first largest of y[n] is at the label, else 0. labels int32 [N], each in
 * 0 … K−1 (checked where rows are read). Another label makes parts[n] NaN, and the reduce that follows sets
 * the nonfinite flag. */
typedef mn_status mn_cross_entropy_function(struct mn_device *device, void *parts, void *correct,
                                            const void *y, const int32_t *labels, int64_t rows, int64_t cols);

/* dy = (add ? dy : 0) + scale·(softmax(y) − onehot(label))/N. */
typedef mn_status mn_cross_entropy_gradient_function(struct mn_device *device, void *dy, const void *y,
                                                     const int32_t *labels, int64_t rows, int64_t cols,
                                                     double scale, int add);

/* *out = factor·Σ parts[0 … count), added in double, in a fixed order: 4096 at a time, then those sums. A sum
 * that is not finite sets the nonfinite flag. `scratch`, mn_reduce_scratch(count) doubles, is in the device's
 * memory; `out`, one double, there or in memory of allocate_host. */
enum { MN_REDUCE_SPAN = 4096 };
static inline int64_t mn_reduce_scratch(int64_t count) {
  return (count + MN_REDUCE_SPAN - 1) / MN_REDUCE_SPAN;
}
typedef mn_status mn_reduce_function(struct mn_device *device, double *out, double *scratch,
                                     const void *parts, int64_t count, double factor);

/* mn_reduce's arguments, for a sum that is computed in another kernel's launch (mn_column_sums). */
struct mn_reduction {
  double *out, *scratch;
  const void *parts;
  int64_t count;
  double factor;
};

#endif
