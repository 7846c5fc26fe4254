/* The planes of a filling, if they are scaled: the gather writes them, a batch's under a scale that follows
 * from the largest |x| of each of its rows, noted when the row was read. If a filling spans several windows
 * of a file, its rows are gathered as they are, into `apart`, and after the last a second time, as planes. */
#ifndef MN_DATA_SCALING_H
#define MN_DATA_SCALING_H

#include "data/loader.h"

/* Without scaled planes `batches` is 0, and close, note and choose do nothing. */
struct mn_scaling {
  struct mn_device *device;
  int64_t batches, room;                    /* the most of a filling, and its rows */
  struct mn_scale *list[MN_LOADER_BUFFERS]; /* of each batch, on the host; on the device they are x's */
  char *apart;  /* [room] rows in the form in which they wait; NULL for rows in memory */
  size_t x_row; /* bytes of such a row */
};

/* Takes the planes of `x`, [room, x->cols] of each buffer, and their scales. Close it also after an error. */
mn_status mn_scaling_open(struct mn_scaling *s, const struct mn_placement *placement, int64_t batches,
                          int64_t room, struct mn_operand x[MN_LOADER_BUFFERS]);
void mn_scaling_close(struct mn_scaling *s, struct mn_operand x[MN_LOADER_BUFFERS]);

/* Notes a row of a batch, of all replicas' rows, so that all have the same scale; `first` of the batch. */
void mn_scaling_note(struct mn_scaling *s, int buffer, int64_t batch, int first, float largest);

/* Chooses the first `batches` scales by the rows noted so far, and gives them to the device. */
mn_status mn_scaling_choose(struct mn_scaling *s, int buffer, const struct mn_operand *x, int64_t batches);

/* Makes `gather` write x's planes, in batches of `share` rows. */
void mn_scaling_into(const struct mn_operand *x, int64_t share, struct mn_gather *gather);

void mn_scaling_skip(struct mn_operand *x, int64_t batches); /* x begins with a later batch's scale */

/* Writes x's planes of `rows` rows from `apart`. */
mn_status mn_scaling_finish(struct mn_scaling *s, const struct mn_operand *x, int64_t share, int64_t rows);

#endif
