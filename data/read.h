/* Rows of a dataset into host memory, by several threads where the dataset allows it, in the form in which
 * they wait for their batch. */
#ifndef MN_DATA_READ_H
#define MN_DATA_READ_H

#include "data/fingerprint.h"
#include "kernels/types.h"

/* How the rows of a dataset wait, and who reads them. */
struct mn_rows_form {
  size_t real; /* bytes of a real: 4 or 8 */
  size_t bf16; /* x waits as a bfloat16 plane, in elements of so many bytes (struct mn_device); 0: as reals */
  int scaled;  /* x waits as floats, and its planes are scaled by the largest |x| of a batch: `largest` below
                  is noted */
  size_t x_row, y_row; /* bytes of a row; y_row 0 where there is no y */
  int threads;         /* that read at most, a rank's share of its host's cores; 0: as many as all cores */
};

/* Rows in host memory, or in the device's; y NULL where there is none. largest[i], in host memory of any
 * kind: the largest finite |value| of row i of x; NULL: nobody asks, as where the fingerprint is. */
struct mn_rows {
  void *x, *y;
  float *largest;
  struct mn_fingerprint *fingerprint; /* what is read is added to it */
};

/* The form for a device: x as its GEMMs read it. MN_NO_MEMORY: rows too wide to be counted in bytes. */
mn_status mn_rows_form(struct mn_rows_form *form, const struct mn_dataset *dataset,
                       const struct mn_device *device);

/* Takes memory for rows->largest, for `free`, where the form asks for it. MN_NO_MEMORY. */
mn_status mn_rows_largest(struct mn_rows *rows, const struct mn_rows_form *form, int64_t count);

/* Rows first … first + count − 1 go to row `at` and those after it. */
struct mn_range {
  int64_t first, count, at;
};

/* Reads the ranges, at most 4 MiB of x, or a row, at a time. to->y NULL: only x is read. The error of the
 * earliest rows is the one returned (mn_dataset's read), whichever thread met it. MN_INTERRUPTED: *stop was
 * set meanwhile by another thread, atomically (NULL: nobody does). */
mn_status mn_read_rows(struct mn_dataset *dataset, const struct mn_rows_form *form,
                       const struct mn_range *ranges, int64_t count, const struct mn_rows *to,
                       const int *stop);

/* Reads the rows of the sample alone, in the file's order, into memory that is freed again, and sets the
 * fingerprint. Errors: those of mn_read_rows; MN_NO_MEMORY. */
mn_status mn_read_sample(struct mn_dataset *dataset, const struct mn_rows_form *form,
                         struct mn_fingerprint *fingerprint, const int *stop);

#endif
