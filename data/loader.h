/* Batches in device memory, gathered ahead of the step that reads them from wherever the rows wait. */
#ifndef MN_DATA_LOADER_H
#define MN_DATA_LOADER_H

#include "data/placement.h"

struct mn_loader;

enum { MN_LOADER_BUFFERS = 2 }; /* filled in turn */

/* Rows from one of several batches in a buffer to the next: a multiple of 256 bytes (train/launch.c). */
static inline int64_t mn_loader_spacing(int64_t rows) {
  return (rows + 127) / 128 * 128;
}

/* `samples` must be set; 0 is the default of all others. */
struct mn_loader_config {
  enum mn_place place;
  const int *stop; /* set atomically by another thread or a signal handler, to end the opening; may be NULL */
  int shuffled;    /* in the order of kernels/order.h under `seed`; else as stored */
  uint64_t seed;
  int64_t position;              /* sample of the endless sequence to start at (epoch = position / n) */
  int64_t samples;               /* the most in one filling, which a buffer holds: a launch's batches */
  int64_t batch;                 /* samples of one step, whose planes share a scale; 0 means `samples` */
  int reals;                     /* if planes are scaled: x is wanted as reals (mn_pass_reads_reals) */
  int64_t targets, first_target; /* columns of real targets to gather: their number (0 for all), the first */
  const struct mn_standard *standard; /* [MN_SIDES] to standardise x and y by, borrowed; or NULL */
};

/* Rows of a batch in the device's memory. */
struct mn_batch {
  int64_t rows;
  int64_t first;       /* index of the first row in the batch of all replicas; 0 with one */
  struct mn_operand x; /* [rows, I]: the planes that the device's GEMMs read, or real */
  void *y;             /* [rows, targets] reals or [rows] labels; NULL if the dataset has no y */
  int64_t targets;     /* columns of y if targets are real */
  const void *weights; /* [rows] reals, or NULL */
};

/* Opens a loader of `dataset`, borrowed like the device, with a placement of its own. Until it is closed
 * only the loader reads the dataset: in MN_PLACE_FILE by a thread of its own or, if that cannot be started,
 * in mn_loader_fill, without reading ahead. Memory, beside the rows: two fillings on the device; in
 * MN_PLACE_FILE also two windows of at most 4096 rows on the host, pinned for a GPU, and, with scaled planes,
 * a filling as reals on the device. Samples are from 1 to the dataset's rows, and a position is from 0
 * to below 2⁶². MN_NO_MEMORY; and the errors of mn_placement_open. */
mn_status mn_loader_open(struct mn_loader **out, struct mn_device *device, struct mn_dataset *dataset,
                         const struct mn_loader_config *config);
void mn_loader_close(struct mn_loader *loader); /* NULL is fine */

/* Gathers the next `samples` samples into the next buffer, of two in turn; with replicas, mn_own_rows of each
 * batch. *batch describes its rows. Call it between the device's ahead_begin and ahead_end
 * (kernels/stream.h), whose rules hold for the buffers. An error of reading (a NaN in the data, a failing
 * disk) is returned, with its message, by the call that needs the faulty window, and by each later call. */
mn_status mn_loader_fill(struct mn_loader *loader, int64_t samples, struct mn_batch *batch);

/* Step `number`'s part of a gathered filling; `rows`: how many of a step's rows this rank has. */
struct mn_batch mn_batch_part(const struct mn_loader *loader, const struct mn_batch *batch, int64_t number,
                              int64_t rows);

/* The placement of the rows; and the seconds that mn_loader_fill has waited for the disk. */
const struct mn_placement *mn_loader_placement(const struct mn_loader *loader);
double mn_loader_waited(const struct mn_loader *loader);

#endif
