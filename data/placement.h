/* The places in which the rows of a dataset wait for their batch: all in the device's memory, all in pinned
 * host memory, or in the file, from which they are read window by window. A batch holds the same values in
 * each case. */
#ifndef MN_DATA_PLACEMENT_H
#define MN_DATA_PLACEMENT_H

#include "data/columns.h"
#include "data/fingerprint.h"
#include "kernels/device.h"
#include "kernels/types.h"

/* ---- reading rows into host memory, in the form in which they wait (data/read_rows.c) ---- */

/* The form in which rows wait, and how many threads read them. */
struct mn_rows_form {
  size_t real;   /* bytes of a real: 4 or 8 */
  size_t bf16;   /* bytes of an element if x waits as a bfloat16 plane (struct mn_device); 0 if as reals */
  size_t scaled; /* bytes of a row's `largest`, by which planes of x are scaled: x waits as floats; or 0 */
  size_t weight; /* bytes of a row's weight, a real; 0 without */
  struct mn_standard standard[MN_SIDES]; /* borrowed: x and y are standardised by these */
  size_t x_row, y_row;                   /* bytes of a row; y_row is 0 without y */
  int threads; /* the most that read: a rank's share of its host's cores; 0 for one a core */
};

/* Copies mean and scale, [columns]; NULL: values are taken as they are. MN_NO_MEMORY: it is as before. */
mn_status mn_standard_set(struct mn_standard *standard, int64_t columns, const double *mean,
                          const double *scale);

/* From values [rows, cols] of `had` bytes, in their own units, to reals of `real` bytes, standardised. */
void mn_standard_apply(const struct mn_standard *standard, size_t real, void *to, size_t had,
                       const void *from, int64_t rows, int64_t cols);

/* Rows in the host's memory or the device's; y is NULL without targets, `weights` without weights. `largest`:
 * the largest finite |value| of each row of x, or NULL. `fingerprint`: rows that are read are added to it, or
 * NULL. */
struct mn_rows {
  void *x, *y, *weights;
  float *largest;
  struct mn_fingerprint *fingerprint;
};

/* The form for a device: x as its GEMMs read it. MN_NO_MEMORY: rows too wide to be counted in bytes. */
mn_status mn_rows_form(struct mn_rows_form *form, const struct mn_dataset *dataset,
                       const struct mn_device *device);

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

/* ---- places ---- */

enum { MN_PLACES = MN_PLACE_FILE + 1 };
/* The word for a place, such as "device", or NULL. */
extern const char *const mn_place_words[]; /* NULL behind the last */
const char *mn_place_name(enum mn_place place);

struct mn_placement {
  struct mn_device *device; /* borrowed, like the dataset */
  struct mn_dataset *dataset;
  enum mn_place
      place; /* not MN_PLACE_AUTO; on the CPU never MN_PLACE_HOST, which is the same as the device */
  struct mn_rows_form form;
  size_t bytes;                      /* of all rows in that form; INT64_MAX at most */
  struct mn_rows rows;               /* all rows; NULL in MN_PLACE_FILE */
  struct mn_fingerprint fingerprint; /* of the rows read at opening */
  char why[240];                     /* why this place, for messages */
  const int *stop;                   /* borrowed while opening */
};

/* MN_PLACE_AUTO chooses: the GPU if the rows take at most four fifths of its free memory and leave at
 * least as much as the device has allocated; else the host if they take at most half of the available
 * memory; else the file. Then reads all rows into that memory, or of the file a sample, if the dataset has
 * a fingerprint; `standard`: [MN_SIDES], as in struct mn_rows_form, or NULL.
 * MN_NO_MEMORY: the requested place is too small; MN_INTERRUPTED: *stop was set meanwhile; and the errors
 * of the dataset's read. */
mn_status mn_placement_open(struct mn_placement *placement, struct mn_device *device,
                            struct mn_dataset *dataset, enum mn_place place,
                            const struct mn_standard *standard, const int *stop);

/* Allocates `count` rows in the placement's form: in the device's memory if `place` is that, else in pinned
 * memory of the host. After MN_NO_MEMORY *rows may hold a part: release it. mn_placement_release sets *rows
 * to NULLs, and takes NULLs. It is for placement->rows too, which are NULLs if mn_placement_open failed. */
mn_status mn_placement_allocate(const struct mn_placement *placement, enum mn_place place,
                                struct mn_rows *rows, int64_t count);
void mn_placement_release(const struct mn_placement *placement, enum mn_place place, struct mn_rows *rows,
                          int64_t count);

#endif
