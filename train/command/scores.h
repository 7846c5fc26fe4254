/* Outputs on the host: one number of them, and the class that a row of them predicts. */
#ifndef MN_TRAIN_COMMAND_SCORES_H
#define MN_TRAIN_COMMAND_SCORES_H

#include <stddef.h>
#include <stdint.h>

/* Number `i` of reals of `real` bytes; and the class that a row of `cols` of them, which begins at number
 * `at`, predicts: the first of the largest. */
double mn_scores_at(const void *values, size_t real, int64_t i);
int32_t mn_scores_class(const void *y, size_t real, int64_t at, int64_t cols);

#endif
