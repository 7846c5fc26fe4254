/* Reading outputs; see scores.h. */
#include "train/command/scores.h"

double mn_scores_at(const void *values, size_t real, int64_t i) {
  return real == sizeof(double) ? ((const double *)values)[i] : ((const float *)values)[i];
}

int32_t mn_scores_class(const void *y, size_t real, int64_t at, int64_t cols) {
  int64_t best = 0;
  for (int64_t k = 1; k < cols; k++)
    if (mn_scores_at(y, real, at + k) > mn_scores_at(y, real, at + best)) best = k;
  return (int32_t)best;
}
