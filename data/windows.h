/* Windows of the order of samples, read ahead from a dataset that stays in its file: a thread reads the next
 * one while batches are gathered from the one before. */
#ifndef MN_DATA_WINDOWS_H
#define MN_DATA_WINDOWS_H

#include "data/order.h"
#include "data/placement.h"

struct mn_windows;

/* Starts reading at window `first` of the endless sequence of windows (number = epoch·windows + window) of
 * an order like `order`. Everything is borrowed. Memory: two windows of 4096 rows, pinned where there is a
 * GPU, in the placement's form; one, read once, where that is the whole dataset. The dataset is read by the
 * windows' threads alone until they are closed. MN_NO_MEMORY. */
mn_status mn_windows_open(struct mn_windows **out, const struct mn_placement *placement,
                          const struct mn_order *order, int64_t first);
void mn_windows_close(struct mn_windows *windows); /* stops the threads; NULL is fine */

/* Waits for window `number`: its rows, in the order of its extents, which stay until mn_windows_release.
 * Windows are asked for in order and each is released before the one after the next is asked for. An error of
 * reading it comes back here, with its message, as often as it is asked for. */
mn_status mn_windows_get(struct mn_windows *windows, int64_t number, struct mn_rows *rows);
void mn_windows_release(struct mn_windows *windows, int64_t number);

/* Seconds that mn_windows_get has waited so far. */
double mn_windows_waited(const struct mn_windows *windows);

#endif
