/* Cases computed elsewhere, in float64, to hold minnow against: one group each in an HDF5 file.
 *
 *   attributes  N I C G eps negative_slope
 *   datasets    x [N, I]  fc.weight [C, I]  fc.bias gn.weight gn.bias [C]  dy [N, C]
 *   expected    z y [N, C]  mean rstd [N, G]  grad/x and grad/ with the four parameters
 *
 * A group with the attribute `steps` is a training run instead: lr momentum weight_decay nesterov, x, target
 * [N, C], initial/ and final/ with the four parameters, losses [steps], after full-batch SGD on the mean
 * squared error. With the attribute optimizer = "adamw" it is by AdamW: beta1, beta2 and adam_eps stand in
 * place of momentum and nesterov. All datasets are float64. */
#ifndef MN_TRAIN_CHECK_CASES_H
#define MN_TRAIN_CHECK_CASES_H

#include "train/optimizer.h"

enum { MN_CASE_ARRAYS = 16 };

struct mn_case {
  char name[64];
  int64_t rows, inputs, channels, groups; /* N I C G */
  double eps, slope;
  int steps; /* 0: forward and gradients; else a training run */
  double rate;
  struct mn_optimizer_config optimizer;
  struct {
    char name[32];
    int64_t count;
    double *values;
  } arrays[MN_CASE_ARRAYS];
  int count;
};

/* The number of cases in the file, and case number `index` in the order of their names, to be freed with
 * mn_case_free. MN_NO_INPUT; MN_BAD_DATA: something is missing, of another type or size, behind a link, in
 * another file, or declared but not stored; MN_NO_MEMORY. */
mn_status mn_cases_count(const char *path, int *count);
mn_status mn_case_read(const char *path, int index, struct mn_case *out);
void mn_case_free(struct mn_case *which);

/* The array called `name`, owned by the case, and its elements (count may be NULL). Aborts where the case has
 * none. */
double *mn_case_array(const struct mn_case *which, const char *name, int64_t *count);

#endif
