/* Statistics of the columns of x. */
#ifndef MN_DATA_COLUMNS_H
#define MN_DATA_COLUMNS_H

#include "data/dataset.h"

/* Each column's mean, deviation √(Σ(x − mean)²/rows), smallest and largest value, and the divisor that
 * standardises it: the deviation, or 1 if all values are the same. */
struct mn_columns {
  int64_t rows, cols; /* rows that were measured, and the dataset's inputs */
  double *mean, *deviation, *smallest, *largest, *scale; /* [cols], owned */
};

/* Measures all rows or, if `most` is less, `most` rows in stretches of neighbours, spread over the dataset.
 * The result depends on the rows alone, not on threads. Free *out with mn_columns_free, also after an error.
 * MN_NO_MEMORY; MN_INTERRUPTED: *stop was set meanwhile (stop may be NULL); the errors of the dataset's
 * read. */
MN_API mn_status mn_columns_measure(struct mn_columns *out, struct mn_dataset *dataset, int64_t most,
                                    const int *stop);
MN_API void mn_columns_free(struct mn_columns *columns);

/* The columns with the least deviation above 0 and with the largest; −1 if all are constant. */
void mn_columns_extremes(const struct mn_columns *columns, int64_t *least, int64_t *largest);

#endif
