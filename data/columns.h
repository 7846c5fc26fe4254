/* Statistics of the columns of x or of y, and what the columns are standardised by. */
#ifndef MN_DATA_COLUMNS_H
#define MN_DATA_COLUMNS_H

#include "data/dataset.h"

enum { MN_X, MN_Y, MN_SIDES }; /* of a row */

/* What the columns of x or y are standardised by: (value − mean[c])·inverse[c] in double, where inverse is
 * 1/scale. All are NULL if values are taken as they are. */
struct mn_standard {
  double *mean, *scale, *inverse; /* [columns], in one allocation, which `mean` begins */
  int log; /* the model learns the logarithms of y, and its outputs are their exponentials */
};

/* Each column's mean, deviation √(Σ(x − mean)²/rows), smallest and largest value, and the divisor that
 * standardises it: the deviation, or 1 if all values are the same. */
struct mn_columns {
  int64_t rows, cols; /* rows that were measured, and the dataset's inputs or outputs */
  double *mean, *deviation, *smallest, *largest, *scale; /* [cols], owned */
  double *low, *high; /* [cols], owned: the values next to the smallest and to the largest */
  int alike;          /* mn_columns_pool has made mean and scale the same */
  double *whole;      /* [cols], owned: 1 for whole numbers, 2 if they also rise from row to row */
};

/* Measures x, or real targets y, in all rows or, if `most` is less, `most` rows in stretches of neighbours,
 * spread over the dataset. The result depends on the rows alone, not on threads. Free *out with
 * mn_columns_free, also after an error. MN_NO_MEMORY; MN_INTERRUPTED: *stop was set meanwhile (stop may be
 * NULL); the errors of the dataset's read. */
mn_status mn_columns_measure(struct mn_columns *out, struct mn_dataset *dataset, int side, int64_t most,
                             const int *stop);

/* Whether the columns are of one unit, as pixels are: `type`, which may be NULL, is an integer of 8 bits, or
 * all columns share their smallest or their largest value, and at least half of those that vary share both.
 */
int mn_columns_alike(const struct mn_columns *columns, const char *type);

/* Makes each column's mean and scale those of all values together; deviation stays each column's. */
void mn_columns_pool(struct mn_columns *columns);

void mn_columns_free(struct mn_columns *columns);

/* The columns with the least deviation above 0 and with the largest; −1 if all are constant. */
void mn_columns_extremes(const struct mn_columns *columns, int64_t *least, int64_t *largest);

#endif
