/* The order of samples: a function of (seed, epoch, position) alone, never stored, so that a run can resume
 * anywhere.
 *
 * An epoch is a permutation of the n rows. First the extents, MN_ORDER_EXTENT neighbouring rows each, are
 * shuffled; MN_ORDER_WINDOW extents in the new order make a window; then the rows of each window are
 * shuffled. So a window takes at most one read per extent, and a dataset of one window is shuffled fully.
 * Batches are consecutive ranges of the endless sequence of epochs and may straddle two epochs. Both sizes
 * are constants; a checkpoint's /config names them order_block and order_window. */
#ifndef MN_DATA_ORDER_H
#define MN_DATA_ORDER_H

#include <stdint.h>

#include "kernels/status.h"

enum { MN_ORDER_EXTENT = 64, MN_ORDER_WINDOW = 64, MN_ORDER_WINDOW_ROWS = MN_ORDER_EXTENT * MN_ORDER_WINDOW };

struct mn_order; /* the shuffled extents of one epoch: O(n/64) memory */

/* `rows` ≥ 1. With shuffled 0 every epoch has the order in which the rows are stored. MN_NO_MEMORY. */
mn_status mn_order_open(struct mn_order **out, int64_t rows, uint64_t seed, int shuffled);
void mn_order_close(struct mn_order *order); /* NULL is fine */

/* The number of windows in an epoch. */
int64_t mn_order_windows(const struct mn_order *order);

/* Window `window` of `epoch`: its *count extents, ascending (extent e starts at row 64·e; the last one may be
 * short), and the training order of their *total rows: samples[i] is the i-th row, counted in the order of
 * `extents`. The positions epoch·n + offset of all samples must stay below 2⁶³. */
void mn_order_window(struct mn_order *order, int64_t epoch, int64_t window, int64_t extents[MN_ORDER_WINDOW],
                     int64_t *count, int64_t samples[MN_ORDER_WINDOW_ROWS], int64_t *total);

/* Sample `offset` of `epoch` (0 ≤ offset < n) is the *within-th of window *window. (Not offset/4096: windows
 * behind the short extent, which may be anywhere, start earlier.) */
void mn_order_find(struct mn_order *order, int64_t epoch, int64_t offset, int64_t *window, int64_t *within);

#endif
