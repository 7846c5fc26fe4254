/* Reading rows of a dataset into host memory, in the form in which they wait for their batch, by several
 * threads if the dataset allows it. */
#ifndef MN_DATA_READ_H
#define MN_DATA_READ_H

#include "data/fingerprint.h"
#include "kernels/types.h"

/* The form in which rows wait, and how many threads read them. */
struct mn_rows_form {
  size_t real; /* bytes of a real: 4 or 8 */
  size_t bf16; /* bytes of an element if x waits as a bfloat16 plane (struct mn_device); 0: as reals */
  int scaled;  /* planes of x are scaled by the largest |x| of a batch: x waits as floats, with `largest` */
  const double *mean, *scale; /* [inputs]: x is standardised, (x − mean[c])·(1/scale[c]) in double; or NULL */
  size_t x_row, y_row;        /* bytes of a row; y_row is 0 without y */
  int threads; /* the most that read: a rank's share of its host's cores; 0: one for each core */
};

/* Rows in the host's memory or the device's; y is NULL without targets. `largest`, in the host's memory: the
 * largest finite |value| of each row of x, or NULL. `fingerprint`: rows that are read are added to it, or
 * NULL. */
struct mn_rows {
  void *x, *y;
  float *largest;
  struct mn_fingerprint *fingerprint;
};

/* The form for a device: x as its GEMMs read it. MN_NO_MEMORY: rows too wide to be counted in bytes. */
mn_status mn_rows_form(struct mn_rows_form *form, const struct mn_dataset *dataset,
                       const struct mn_device *device);

/* Allocates rows->largest, for `free`, if the form is scaled. MN_NO_MEMORY. */
mn_status mn_rows_largest(struct mn_rows *rows, const struct mn_rows_form *form, int64_t count);

/* Rows first … first + count − 1, which go to rows at … at + count − 1. */
struct mn_range {
  int64_t first, count, at;
};

/* Reads the ranges, at most 4 MiB of x, or a row, at a time. If to->y is NULL, only x is read. If several
 * ranges fail, the error of the earliest rows is returned. MN_INTERRUPTED: another thread set *stop,
 * atomically (stop may be NULL). */
mn_status mn_read_rows(struct mn_dataset *dataset, const struct mn_rows_form *form,
                       const struct mn_range *ranges, int64_t count, const struct mn_rows *to,
                       const int *stop);

/* Sets the fingerprint of the sample: reads its rows in the file's order and forgets them. Errors: as
 * mn_read_rows; MN_NO_MEMORY. */
mn_status mn_read_sample(struct mn_dataset *dataset, const struct mn_rows_form *form,
                         struct mn_fingerprint *fingerprint, const int *stop);

#endif
